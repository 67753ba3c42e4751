/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 256 values times a few activation rows (direct_neon.h). Compiled twice, with
 * the dot product extension and without. */
#include <math.h>

#include "cpu/arm/direct_neon.h"
#include "cpu/arm/types256_neon.h"

TYPES_256(DECLARE_FEW)

/* The scales of a block: one for each 16 values, or the eight for each 32. */
INLINE void take_scales(int8x16_t s, const int scale_values, int32x4_t out[4])
{
    if (scale_values == 16) {
        widen_scales(s, out);
    } else { /* every second one */
        int16x8_t eight = vmovl_s8(vget_low_s8(vuzp1q_s8(s, s)));
        out[0] = vmovl_s16(vget_low_s16(eight));
        out[1] = vmovl_high_s16(eight);
    }
}

/* Adds the sums over group g, whose first activations are at `at`. */
INLINE void add_codes(const struct codes_32 c, const struct activations *a, int at, const int g,
                      const int32x4_t scale[4], const int rows, const int scale_values,
                      const int most, int32x4_t *sum)
{
    for (int r = 0; r < rows; r++) {
        const int8_t *q = a[r].q + at + 32 * g;
        int8x16_t q0 = vld1q_s8(q), q1 = vld1q_s8(q + 16);
        if (scale_values == 0) {
            sum[r] = add_32(sum[r], c.c[0], c.c[1], q0, q1, most);
        } else if (scale_values == 32) {
            sum[r] = add_scaled(sum[r], sum_of_32(c.c[0], c.c[1], q0, q1, most), scale, g);
        } else {
            sum[r] = add_scaled(sum[r], sum_of_16(c.c[0], q0), scale, 2 * g);
            sum[r] = add_scaled(sum[r], sum_of_16(c.c[1], q1), scale, 2 * g + 1);
        }
    }
}

/* Lanes to be added: minimums times sums of activations. */
INLINE int32x4_t min_sum(uint8x16_t mins, const int16_t *bsum, const int min_values)
{
    int16x8_t first = vld1q_s16(bsum), second = vld1q_s16(bsum + 8);
    int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(mins)));
    if (min_values == 32) {
        low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(vuzp1q_u8(mins, mins))));
        first = vpaddq_s16(first, second);
    }
    int32x4_t sum = vmull_s16(vget_low_s16(low), vget_low_s16(first));
    sum = vmlal_high_s16(sum, low, first);
    if (min_values == 32)
        return sum;
    int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(mins));
    sum = vmlal_s16(sum, vget_low_s16(high), vget_low_s16(second));
    return vmlal_high_s16(sum, high, second);
}

/* Block k, at b, to its chain of each row. */
INLINE void add_block(const uint8_t *b, const struct activations *a, int k, float (*chains)[8],
                      const int rows, const int scale_values, const int most, codes256_fn *codes,
                      scales256_fn *scales, d256_fn *d, const int min_values, mins256_fn *mins)
{
    int32x4_t scale[4], sum[FEW_MOST];
    for (int r = 0; r < rows; r++)
        sum[r] = vdupq_n_s32(0);
    if (scale_values)
        take_scales(scales(b), scale_values, scale);
    /* A loop would be unrolled only after g is needed. */
    add_codes(codes(b, 0), a, 256 * k, 0, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 1), a, 256 * k, 1, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 2), a, 256 * k, 2, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 3), a, 256 * k, 3, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 4), a, 256 * k, 4, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 5), a, 256 * k, 5, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 6), a, 256 * k, 6, scale, rows, scale_values, most, sum);
    add_codes(codes(b, 7), a, 256 * k, 7, scale, rows, scale_values, most, sum);
    float dw = d(b);
    for (int r = 0; r < rows; r++) {
        float *chain = &chains[r][k % 8];
        *chain = fmaf(dw * a[r].d[k], (float)vaddvq_s32(sum[r]), *chain);
    }
    if (!min_values)
        return;
    struct mins_256 m = mins(b);
    for (int r = 0; r < rows; r++) {
        float *chain = &chains[r][k % 8];
        int32_t of_mins = vaddvq_s32(min_sum(m.m, a[r].bsum + 16 * k, min_values));
        *chain = fmaf(-(m.dmin * a[r].d[k]), (float)of_mins, *chain);
    }
}

INLINE void few(const uint8_t *b, int w_rows, const struct quant_act *x, int t, float *y,
                size_t y_stride, const int rows, const int bytes, const int scale_values,
                const int most, codes256_fn *codes, scales256_fn *scales, d256_fn *d,
                const int min_values, mins256_fn *mins)
{
    struct activations a[FEW_MOST];
    int blocks = x->n / 256;
    for (int r = 0; r < rows; r++)
        take_activations(&a[r], x, t + r);
    for (int i = 0; i < w_rows; i++) {
        float chains[FEW_MOST][8] = {0};
        for (int k = 0; k < blocks; k++, b += bytes) {
            prefetch_ahead(b, bytes);
            add_block(b, a, k, chains, rows, scale_values, most, codes, scales, d, min_values,
                      mins);
        }
        for (int r = 0; r < rows; r++) {
            struct chains_8 all = {{vld1q_f32(chains[r]), vld1q_f32(chains[r] + 4)}};
            y[(size_t)r * y_stride + (size_t)i] = chains_8_sum(&all);
        }
    }
}

#define DIRECT(name, TYPE, bytes, scale_values, mins, min_values)                                \
    INLINE void few_##name(const void *w, int w_rows, const struct quant_act *x, int t, float *y, \
                           size_t y_stride, const int rows)                                      \
    {                                                                                            \
        few(w, w_rows, x, t, y, y_stride, rows, bytes, scale_values, most_##name, codes_##name,  \
            scales_##name, d_##name, min_values, mins);                                          \
    }                                                                                            \
    DIRECT_FUNCTIONS(name)
TYPES_256(DIRECT)

#define SET(name, TYPE, bytes, scale_values, mins, min_values) \
    m->direct[TYPE_##TYPE] = direct_##name;

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_direct256_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_direct256_neon(struct cpu_matmul *m)
#endif
{
    TYPES_256(SET)
}
