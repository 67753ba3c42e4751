/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on plain rows of values, in C: the definition. */
#include "cpu/ops.h"

#include "base/fmath.h"
#include "base/half.h"

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static void add_scaled(float *x, const float *y, float s, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += s * y[i];
}

static void add_positive(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i] > 0 ? y[i] : 0;
}

static void scale(float *out, const float *x, float s, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = x[i] * s;
}

static void divide(float *x, float a, float b, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = x[i] / a / b;
}

static void silu_divided(float *x, float divisor, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = fmath_silu(x[i] / divisor);
}

static void mul_sigmoid(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = x[i] * fmath_sigmoid(z[i]);
}

static void mul_silu(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = x[i] * fmath_silu(z[i]);
}

static bool to_f16(const float *x, int n, uint16_t *out)
{
    bool finite = true;
    for (int i = 0; i < n; i++) {
        out[i] = half_from_f32(x[i]);
        finite &= (out[i] & 0x7c00) != 0x7c00;
    }
    return finite;
}

static void from_f16(const uint16_t *x, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = half_to_f32(x[i]);
}

void cpu_ops_set_vector_c(struct cpu_ops *ops)
{
    ops->add = add;
    ops->add_scaled = add_scaled;
    ops->add_positive = add_positive;
    ops->scale = scale;
    ops->divide = divide;
    ops->silu_divided = silu_divided;
    ops->mul_sigmoid = mul_sigmoid;
    ops->mul_silu = mul_silu;
    ops->to_f16 = to_f16;
    ops->from_f16 = from_f16;
}
