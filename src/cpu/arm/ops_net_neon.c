/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are parts of certain layers with NEON, bit for bit as ops_net.c. From
 * 64-bit integers NEON converts to doubles only, which would round twice: routed_out stays C. */
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

static void hc_mix(const float *gate, const float *x, size_t stride, int hc, int n, float *y)
{
    float32x4_t share = vdupq_n_f32(1.0f / (float)hc);
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        float32x4_t sum = vmulq_f32(sigmoid_4(load_4(gate + i, left)), load_4(x + i, left));
        for (int s = 1; s < hc; s++) {
            size_t at = (size_t)s * stride + (size_t)i;
            float32x4_t product =
                vmulq_f32(sigmoid_4(load_4(gate + at, left)), load_4(x + at, left));
            sum = vaddq_f32(sum, product);
        }
        store_4(y + i, vmulq_f32(share, sum), left);
    }
}

/* Four taps, four channels at a time; other kernels and the last channels one by one. */
static void spread_taps(const float *kernel, int taps, int n, float *out, size_t stride)
{
    int c = 0;
    for (; taps == 4 && c + 4 <= n; c += 4) {
        float32x4x4_t tap = vld4q_f32(kernel + 4 * c);
        for (int j = 0; j < 4; j++)
            vst1q_f32(out + (size_t)j * stride + c, tap.val[j]);
    }
    for (; c < n; c++)
        for (int j = 0; j < taps; j++)
            out[(size_t)j * stride + (size_t)c] = kernel[(size_t)c * (size_t)taps + (size_t)j];
}

static void conv(const float *const *in, const float *kernel, size_t stride, int taps, int n,
                 float *out)
{
    const float32x4_t zero = vdupq_n_f32(0);
    for (int c = 0; c < n; c += 4) {
        int left = n - c;
        float32x4_t chain[CPU_CHAINS];
        int used = taps < CPU_CHAINS ? taps : CPU_CHAINS;
        for (int j = 0; j < taps; j++)
            chain[j % CPU_CHAINS] =
                vfmaq_f32(j < CPU_CHAINS ? zero : chain[j % CPU_CHAINS],
                          load_4(kernel + (size_t)j * stride + c, left), load_4(in[j] + c, left));
        for (int i = 0; i < used && i < 16; i++) /* unused chains add zero: it turns -0 into 0 */
            chain[i] = vaddq_f32(chain[i], i + 16 < used ? chain[i + 16] : zero);
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half && i + half < used; i++)
                chain[i] = vaddq_f32(chain[i], chain[i + half]);
        store_4(out + c, silu_4(chain[0]), left);
    }
}

/* One value row of any length; the decayed row goes through memory, which is in the L1 cache. */
static float delta_row(float *row, const float *q, const float *k, float v, float decay, float beta,
                       int d)
{
    float32x4_t factor = vdupq_n_f32(decay);
    struct chains_4 sum = chains_4_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 8 && c + 4 * r < d; r++) {
            int at = c + 4 * r, left = d - at;
            float32x4_t s = vmulq_f32(factor, load_4(row + at, left));
            store_4(row + at, s, left);
            chains_4_fma(&sum, r, s, load_4(k + at, left), left);
        }
    float32x4_t e = vdupq_n_f32(beta * (v - chains_4_sum(&sum)));
    sum = chains_4_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 8 && c + 4 * r < d; r++) {
            int at = c + 4 * r, left = d - at;
            float32x4_t s = vfmaq_f32(load_4(row + at, left), load_4(k + at, left), e);
            store_4(row + at, s, left);
            chains_4_fma(&sum, r, s, load_4(q + at, left), left);
        }
    return chains_4_sum(&sum);
}

/* The same for heads whose size is a multiple of 32, without a look at what is left. */
static float delta_row_even(float *row, const float *q, const float *k, float v, float decay,
                            float beta, int d)
{
    float32x4_t factor = vdupq_n_f32(decay);
    struct chains_4 sum = chains_4_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 8; r++) {
            int at = c + 4 * r;
            float32x4_t s = vmulq_f32(factor, vld1q_f32(row + at));
            sum.c[r] = vfmaq_f32(sum.c[r], s, vld1q_f32(k + at));
        }
    float32x4_t e = vdupq_n_f32(beta * (v - chains_4_sum(&sum)));
    sum = chains_4_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 8; r++) {
            int at = c + 4 * r;
            float32x4_t s = vmulq_f32(factor, vld1q_f32(row + at)); /* again: cheaper than a store */
            s = vfmaq_f32(s, vld1q_f32(k + at), e);
            vst1q_f32(row + at, s);
            sum.c[r] = vfmaq_f32(sum.c[r], s, vld1q_f32(q + at));
        }
    return chains_4_sum(&sum);
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay,
                       float beta, int d, float *out)
{
    for (int i = 0; i < d; i++) {
        float *row = state + (size_t)i * (size_t)d;
        out[i] = d % 32 ? delta_row(row, q, k, v[i], decay, beta, d)
                        : delta_row_even(row, q, k, v[i], decay, beta, d);
    }
}

static void rope(float *x, const float *cosine, const float *sine, int half)
{
    for (int i = 0; i < half; i += 4) {
        int left = half - i;
        float32x4_t a = load_4(x + i, left), b = load_4(x + half + i, left);
        float32x4_t c = load_4(cosine + i, left), s = load_4(sine + i, left);
        store_4(x + i, vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s)), left);
        store_4(x + half + i, vaddq_f32(vmulq_f32(b, c), vmulq_f32(a, s)), left);
    }
}

/* v * 2^32, rounded half to even; by way of doubles, which is exact. */
INLINE int64x2_t fixed_2(float32x2_t v)
{
    return vcvtnq_s64_f64(vmulq_f64(vcvt_f64_f32(v), vdupq_n_f64(0x1p32)));
}

static bool routed_add(int64_t *sum, const float *x, float weight, int n)
{
    float32x4_t factor = vdupq_n_f32(weight), limit = vdupq_n_f32(0x1p19f);
    uint32x4_t small = vdupq_n_u32(~0u);
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        float32x4_t v = vmulq_f32(load_4(x + i, left), factor);
        if (left < 4)
            v = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), lanes_4(left)));
        small = vandq_u32(small, vcaltq_f32(v, limit));
        int64_t part[4] = {0}, *to = left < 4 ? part : sum + i;
        if (left < 4)
            memcpy(part, sum + i, (size_t)left * sizeof *sum);
        vst1q_s64(to, vaddq_s64(vld1q_s64(to), fixed_2(vget_low_f32(v))));
        vst1q_s64(to + 2, vaddq_s64(vld1q_s64(to + 2), fixed_2(vget_high_f32(v))));
        if (left < 4)
            memcpy(sum + i, part, (size_t)left * sizeof *sum);
    }
    return vminvq_u32(small) != 0;
}

void cpu_ops_set_net_neon(struct cpu_ops *ops)
{
    ops->hc_mix = hc_mix;
    ops->spread_taps = spread_taps;
    ops->conv = conv;
    ops->delta_step = delta_step;
    ops->rope = rope;
    ops->routed_add = routed_add;
}
