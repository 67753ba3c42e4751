/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on plain rows of values with NEON, bit for bit as ops_vector.c. */
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        store_4(x + i, vaddq_f32(load_4(x + i, left), load_4(y + i, left)), left);
    }
}

static void add_scaled(float *x, const float *y, float s, int n)
{
    float32x4_t factor = vdupq_n_f32(s);
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        float32x4_t product = vmulq_f32(factor, load_4(y + i, left));
        store_4(x + i, vaddq_f32(load_4(x + i, left), product), left);
    }
}

static void add_positive(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        float32x4_t value = load_4(y + i, left);
        uint32x4_t bits = vandq_u32(vreinterpretq_u32_f32(value), vcgtzq_f32(value));
        float32x4_t positive = vreinterpretq_f32_u32(bits); /* NaN counts as 0 */
        store_4(x + i, vaddq_f32(load_4(x + i, left), positive), left);
    }
}

static void scale(float *out, const float *x, float s, int n)
{
    float32x4_t factor = vdupq_n_f32(s);
    for (int i = 0; i < n; i += 4)
        store_4(out + i, vmulq_f32(load_4(x + i, n - i), factor), n - i);
}

static void divide(float *x, float a, float b, int n)
{
    float32x4_t first = vdupq_n_f32(a), second = vdupq_n_f32(b);
    for (int i = 0; i < n; i += 4) {
        float32x4_t quotient = vdivq_f32(load_4(x + i, n - i), first);
        if (b != 1)
            quotient = vdivq_f32(quotient, second);
        store_4(x + i, quotient, n - i);
    }
}

static void silu_divided(float *x, float divisor, int n)
{
    float32x4_t d = vdupq_n_f32(divisor);
    for (int i = 0; i < n; i += 4)
        store_4(x + i, silu_4(vdivq_f32(load_4(x + i, n - i), d)), n - i);
}

static void mul_sigmoid(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        store_4(out + i, vmulq_f32(load_4(x + i, left), sigmoid_4(load_4(z + i, left))), left);
    }
}

static void mul_silu(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        store_4(out + i, vmulq_f32(load_4(x + i, left), silu_4(load_4(z + i, left))), left);
    }
}

static bool to_f16(const float *x, int n, uint16_t *out)
{
    uint16x4_t exponent = vdup_n_u16(0x7c00), bad = vdup_n_u16(0);
    for (int i = 0; i < n; i += 4) {
        uint16x4_t half = vreinterpret_u16_f16(vcvt_f16_f32(load_4(x + i, n - i)));
        bad = vorr_u16(bad, vceq_u16(vand_u16(half, exponent), exponent));
        uint16_t part[4];
        vst1_u16(part, half);
        memcpy(out + i, part, n - i >= 4 ? sizeof part : (size_t)(n - i) * sizeof *part);
    }
    return vmaxv_u16(bad) == 0;
}

static void from_f16(const uint16_t *x, int n, float *out)
{
    for (int i = 0; i < n; i += 4)
        store_4(out + i, load_half_4(x + i, n - i), n - i);
}

void cpu_ops_set_vector_neon(struct cpu_ops *ops)
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
