/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 256 values times several activation rows (window_neon.h). Compiled twice, with
 * the dot product extension and without. */
#include "cpu/arm/types256_neon.h"
#include "cpu/arm/window_neon.h"

TYPES_256(DECLARE_FEW)

#ifdef __ARM_FEATURE_DOTPROD
#define LEAST_4(scale_values) (scale_values == 16 ? 2 : 3)
#define LEAST_8(scale_values, min_values, most) (min_values ? 6 : 5)
#else
#define LEAST_4(scale_values) 4
#define LEAST_8(scale_values, min_values, most) \
    (scale_values == 32 && !min_values && most <= 64 ? 5 : 6)
#endif

/* Adds minimum i of eight times sums of activations. */
INLINE int32x4_t add_minimum(int32x4_t sum, int16x4_t of, int16x8_t m, const int i)
{
#define MINIMUM(lane) \
    case lane:        \
        return vmlal_laneq_s16(sum, of, m, lane);
    switch (i) {
        MINIMUM(0)
        MINIMUM(1)
        MINIMUM(2)
        MINIMUM(3)
        MINIMUM(4)
        MINIMUM(5)
        MINIMUM(6)
        MINIMUM(7)
    }
    return sum;
}

/* The same for all eight. */
INLINE void add_minimums(int16x8_t m, const int16_t *sums, const int quads, int32x4_t *sum)
{
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < quads; i++)
            sum[i] = add_minimum(sum[i], vld1_s16(sums + 4 * (quads * j + i)), m, j);
}

/* Adds the sums over group g of a block, whose first activations are at q. */
INLINE void add_codes(const struct codes_32 c, const int8_t *q, const int g,
                      const int32x4_t scale[4], const int quads, const int scale_values,
                      const int most, int32x4_t *sum)
{
    int32x4_t part[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    q += 32 * 4 * quads * g;
    if (scale_values != 16) {
        sum_32(c, q, quads, most, scale_values ? part : sum);
    } else {
        sum_16(c.c[0], q, quads, most, part);
        for (int i = 0; i < quads; i++) {
            sum[i] = add_scaled(sum[i], part[i], scale, 2 * g);
            part[i] = vdupq_n_s32(0);
        }
        sum_16(c.c[1], q + 16 * 4 * quads, quads, most, part);
    }
    for (int i = 0; scale_values && i < quads; i++)
        sum[i] = add_scaled(sum[i], part[i], scale, 2 * g + 1);
}

/* Sums of the minimums of block k times those of the activations. */
INLINE void sum_minimums(uint8x16_t mins, const struct window *x, size_t k, const int quads,
                         const int min_values, int32x4_t *sum)
{
    const size_t lanes = 4 * (size_t)quads;
    int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(mins)));
    int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(mins));
    sum[0] = sum[1] = vdupq_n_s32(0);
    if (min_values == 32) { /* every second one */
        add_minimums(vuzp1q_s16(low, high), x->sum + 8 * lanes * k, quads, sum);
        return;
    }
    add_minimums(low, x->sum + 16 * lanes * k, quads, sum);
    add_minimums(high, x->sum + 16 * lanes * k + 8 * lanes, quads, sum);
}

INLINE void add_block(const uint8_t *b, const struct window *x, size_t k, const int quads,
                      float32x4_t *chains, const int scale_values, const int most,
                      codes256_fn *codes, scales256_fn *scales, d256_fn *d, const int min_values,
                      mins256_fn *mins)
{
    const int8_t *q = x->q + 256 * 4 * (size_t)quads * k;
    const float *dx = x->d + 4 * (size_t)quads * k;
    float32x4_t *chain = chains + k % CHAINS * (size_t)quads;
    int32x4_t scale[4], sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    if (scale_values)
        widen_scales(scales(b), scale);
    /* A loop would be unrolled only after g is needed. */
    add_codes(codes(b, 0), q, 0, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 1), q, 1, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 2), q, 2, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 3), q, 3, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 4), q, 4, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 5), q, 5, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 6), q, 6, scale, quads, scale_values, most, sum);
    add_codes(codes(b, 7), q, 7, scale, quads, scale_values, most, sum);
    add_sums(d(b), dx, sum, quads, chain);
    if (!min_values)
        return;
    struct mins_256 m = mins(b);
    sum_minimums(m.m, x, k, quads, min_values, sum);
    take_sums(m.dmin, dx, sum, quads, chain);
}

#define WINDOW(name, TYPE, bytes, scale_values, mins, min_values)                             \
    INLINE void add_##name(const uint8_t *b, const struct window *x, size_t k, const int quads,  \
                           float32x4_t *chains)                                               \
    {                                                                                         \
        add_block(b, x, k, quads, chains, scale_values, most_##name, codes_##name,            \
                  scales_##name, d_##name, min_values, mins);                                 \
    }                                                                                         \
    static void window_##name(const void *w, int w_rows, const struct quant_act *x, int t,    \
                              int rows, float *y, size_t y_stride)                            \
    {                                                                                         \
        window_rows(w, w_rows, x, t, rows, y, y_stride, bytes, 1, min_values, add_##name,     \
                    LEAST_4(scale_values), LEAST_8(scale_values, min_values, most_##name),    \
                    FEW(name));                                                               \
    }
TYPES_256(WINDOW)

#define SET(name, TYPE, bytes, scale_values, mins, min_values) \
    m->window[TYPE_##TYPE] = window_##name;

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_window256_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_window256_neon(struct cpu_matmul *m)
#endif
{
    TYPES_256(SET)
}
