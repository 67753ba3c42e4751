/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are parts of certain layers, in C: the definition. */
#include "cpu/ops.h"

#include <math.h>

#include "base/fmath.h"

static void hc_mix(const float *gate, const float *x, size_t stride, int hc, int n, float *y)
{
    float share = 1.0f / (float)hc;
    for (int i = 0; i < n; i++) {
        float sum = fmath_sigmoid(gate[i]) * x[i];
        for (int s = 1; s < hc; s++) {
            size_t at = (size_t)s * stride + (size_t)i;
            sum += fmath_sigmoid(gate[at]) * x[at];
        }
        y[i] = share * sum;
    }
}

static void spread_taps(const float *kernel, int taps, int n, float *out, size_t stride)
{
    for (int c = 0; c < n; c++)
        for (int j = 0; j < taps; j++)
            out[(size_t)j * stride + (size_t)c] = kernel[(size_t)c * (size_t)taps + (size_t)j];
}

static void conv(const float *const *in, const float *kernel, size_t stride, int taps, int n,
                 float *out)
{
    for (int c = 0; c < n; c++) {
        float chain[CPU_CHAINS] = {0};
        for (int j = 0; j < taps; j++)
            chain[j % CPU_CHAINS] =
                fmaf(kernel[(size_t)j * stride + (size_t)c], in[j][c], chain[j % CPU_CHAINS]);
        out[c] = fmath_silu(cpu_chain_tree(chain));
    }
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay,
                       float beta, int d, float *out)
{
    for (int i = 0; i < d; i++) {
        float *row = state + (size_t)i * (size_t)d;
        float chain[CPU_CHAINS] = {0};
        for (int c = 0; c < d; c++) {
            row[c] = decay * row[c];
            chain[c % CPU_CHAINS] = fmaf(row[c], k[c], chain[c % CPU_CHAINS]);
        }
        float e = beta * (v[i] - cpu_chain_tree(chain));
        float chain_out[CPU_CHAINS] = {0};
        for (int c = 0; c < d; c++) {
            row[c] = fmaf(k[c], e, row[c]);
            chain_out[c % CPU_CHAINS] = fmaf(row[c], q[c], chain_out[c % CPU_CHAINS]);
        }
        out[i] = cpu_chain_tree(chain_out);
    }
}

static void rope(float *x, const float *cosine, const float *sine, int half)
{
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + half] = b * cosine[i] + a * sine[i];
    }
}

static bool routed_add(int64_t *sum, const float *x, float weight, int n)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        float v = x[i] * weight; /* a product of its own: fma would change bits */
        if (fabsf(v) < 0x1p19f)
            sum[i] += (int64_t)rint((double)v * 0x1p32);
        else
            ok = false;
    }
    return ok;
}

static void routed_out(int64_t *sum, int n, float *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = (float)sum[i] * 0x1p-32f; /* not by way of double, which would round twice */
        sum[i] = 0;
    }
}

void cpu_ops_set_net_c(struct cpu_ops *ops)
{
    ops->hc_mix = hc_mix;
    ops->spread_taps = spread_taps;
    ops->conv = conv;
    ops->delta_step = delta_step;
    ops->rope = rope;
    ops->routed_add = routed_add;
    ops->routed_out = routed_out;
}
