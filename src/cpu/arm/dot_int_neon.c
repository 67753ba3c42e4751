/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacked integer rows with NEON. One activation row: lanes are chains. Four activation rows:
 * lanes are rows, one register for each chain, and loads of w are shared by the rows. */
#include "cpu/arm/rows_neon.h"

/* Sums of products of one block and `rows` activation rows, four lanes each still to be added. */
INLINE void block_sums(const int16_t *w, const int16_t *q, size_t stride, const int n,
                       const int rows, int32x4_t *sum)
{
    for (int r = 0; r < rows; r++)
        sum[r] = vdupq_n_s32(0);
    for (int k = 0; k < n; k += 8) {
        int16x8_t v = vld1q_s16(w + k);
        for (int r = 0; r < rows; r++) {
            int16x8_t a = vld1q_s16(q + (size_t)r * stride + k);
            sum[r] = vmlal_s16(sum[r], vget_low_s16(v), vget_low_s16(a));
            sum[r] = vmlal_high_s16(sum[r], v, a);
        }
    }
}

/* Minimums of one block times the sums of its activations. */
INLINE int32x4_t minimums(const int16_t *m, const int16_t *bsum, const int block)
{
    if (block == 256)
        return times_sums(m, bsum);
    int32x4_t sum = vdupq_n_s32(0);
    return vsetq_lane_s32(m[0] * bsum[0] + m[1] * bsum[1], sum, 0);
}

INLINE float dot_one(const struct quant_row *w, const struct quant_act *x, int t, const int block,
                     const bool with_min)
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    const float *d = scales_of(x, t);
    struct chains_8 chains = chains_8_zero();
    int blocks = x->n / block;
    for (int g = 0; g < blocks; g += 8) {
        int32x4_t sum[8] = {0}, min[8] = {0};
        int count = blocks - g < 8 ? blocks - g : 8;
        for (int b = 0; b < count; b++) {
            int at = (g + b) * block;
            block_sums(w->w + at, q + at, 0, block, 1, &sum[b]);
            if (with_min)
                min[b] = minimums(w->m + at / 16, bsum + at / 16, block);
        }
        add_group(&chains, w->d + g, d + g, sum, count);
        if (with_min)
            take_group(&chains, w->dmin + g, d + g, min, count);
    }
    return chains_8_sum(&chains);
}

/* Element `at` of four rows. */
INLINE float32x4_t four_scales(const float *d, size_t stride, int at)
{
    const float four[4] = {d[at], d[stride + (size_t)at], d[2 * stride + (size_t)at],
                           d[3 * stride + (size_t)at]};
    return vld1q_f32(four);
}

INLINE void dot_four(const struct quant_row *w, const struct quant_act *x, int t, float *y,
                     size_t y_stride, const int block, const bool with_min)
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    size_t stride = (size_t)x->stride, d_stride = stride / (size_t)block;
    float32x4_t chain[8];
    for (int i = 0; i < 8; i++)
        chain[i] = vdupq_n_f32(0);
    for (int b = 0; b < x->n / block; b++) {
        int32x4_t sum[4];
        float32x4_t dx = four_scales(scales_of(x, t), d_stride, b), c = chain[b % 8];
        block_sums(w->w + b * block, q + b * block, stride, block, 4, sum);
        c = vfmaq_f32(c, vmulq_n_f32(dx, w->d[b]), vcvtq_f32_s32(sum_lanes(sum)));
        if (with_min) {
            int at = b * block / 16;
            for (int r = 0; r < 4; r++)
                sum[r] = minimums(w->m + at, bsum + (size_t)r * (stride / 16) + at, block);
            c = vfmsq_f32(c, vmulq_n_f32(dx, w->dmin[b]), vcvtq_f32_s32(sum_lanes(sum)));
        }
        chain[b % 8] = c;
    }
    for (int half = 4; half; half /= 2)
        for (int i = 0; i < half; i++)
            chain[i] = vaddq_f32(chain[i], chain[i + half]);
    float results[4];
    vst1q_f32(results, chain[0]);
    for (int r = 0; r < 4; r++)
        y[(size_t)r * y_stride] = results[r];
}

INLINE void dot(const struct quant_row *w, const struct quant_act *x, int t0, int rows, float *y,
                size_t y_stride, const int block, const bool with_min)
{
    int t = 0;
    for (; t + 4 <= rows; t += 4)
        dot_four(w, x, t0 + t, y + (size_t)t * y_stride, y_stride, block, with_min);
    for (; t < rows; t++)
        y[(size_t)t * y_stride] = dot_one(w, x, t0 + t, block, with_min);
}

static void dot_int32(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                      float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 32, false);
}

static void dot_int32_min(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                          float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 32, true);
}

static void dot_int256(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                       float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 256, false);
}

static void dot_int256_min(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                           float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 256, true);
}

/* --- two scales a block (NVFP4) --- */

static float dot_one_d16(const struct quant_row *w, const struct quant_act *x, int t)
{
    const int16_t *q = codes_of(x, t);
    const float *d = scales_of(x, t);
    struct chains_8 chains = chains_8_zero();
    int blocks = x->n / 32;
    for (int g = 0; g < blocks; g += 8) {
        int32x4_t first[8] = {0}, second[8] = {0};
        float d_first[8] = {0}, d_second[8] = {0};
        int count = blocks - g < 8 ? blocks - g : 8;
        for (int b = 0; b < count; b++) {
            int i = (g + b) * 32;
            d_first[b] = w->d16[2 * (g + b)];
            d_second[b] = w->d16[2 * (g + b) + 1];
            block_sums(w->w + i, q + i, 0, 16, 1, &first[b]);
            block_sums(w->w + i + 16, q + i + 16, 0, 16, 1, &second[b]);
        }
        add_group(&chains, d_first, d + g, first, count);
        add_group(&chains, d_second, d + g, second, count);
    }
    return chains_8_sum(&chains);
}

static void dot_int32_d16(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                          float *y, size_t y_stride)
{
    for (int t = 0; t < rows; t++)
        y[(size_t)t * y_stride] = dot_one_d16(w, x, t0 + t);
}

void cpu_set_dot_int_neon(struct cpu_matmul *m)
{
    m->dot_int32 = dot_int32;
    m->dot_int32_min = dot_int32_min;
    m->dot_int32_d16 = dot_int32_d16;
    m->dot_int256 = dot_int256;
    m->dot_int256_min = dot_int256_min;
}
