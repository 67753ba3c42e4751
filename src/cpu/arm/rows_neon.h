/* SPDX-License-Identifier: Apache-2.0 */
/* Integer rows with NEON: what all kernels share. Eight blocks make a group, one for each chain
 * (numerics.md section 2); chains 0 to 3 are the lanes of one register, 4 to 7 those of another.
 *
 * Blocks that a row does not have are lanes whose scale and sum are +0. Adding their product
 * changes no bit: a chain is never -0, since it starts as +0 and a nonzero scale times a nonzero
 * integer does not vanish. */
#ifndef STRATA_CPU_ARM_ROWS_NEON_H
#define STRATA_CPU_ARM_ROWS_NEON_H

#include "base/bytes.h"
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

/* Lane i: sum + a[4i] b[4i] + .. + a[4i + 3] b[4i + 3]. Without the dot product extension two
 * products are added to 16 bits, which hold them: |b| <= 127, the codes of an activation. */
INLINE int32x4_t dot_bytes(int32x4_t sum, int8x16_t a, int8x16_t b)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    int16x8_t high = vmull_s8(vget_high_s8(a), vget_high_s8(b));
    return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

/* First element of row t. */
INLINE const int16_t *codes_of(const struct quant_act *x, int t)
{
    return x->q + (size_t)t * (size_t)x->stride;
}

INLINE const float *scales_of(const struct quant_act *x, int t)
{
    return x->d + (size_t)t * (size_t)(x->stride / x->block);
}

INLINE const int16_t *sums_of(const struct quant_act *x, int t)
{
    return x->bsum + (size_t)t * (size_t)(x->stride / 16);
}

/* 16 codes of activations as bytes. */
INLINE int8x16_t narrow(const int16_t *q)
{
    return vcombine_s8(vmovn_s16(vld1q_s16(q)), vmovn_s16(vld1q_s16(q + 8)));
}

/* Sums over 16 values times what belongs to each of these sums. */
INLINE int32x4_t times_sums(const int16_t *m, const int16_t *bsum)
{
    int16x8_t a = vld1q_s16(m), b = vld1q_s16(bsum);
    int16x8_t c = vld1q_s16(m + 8), d = vld1q_s16(bsum + 8);
    int32x4_t sum = vmull_s16(vget_low_s16(a), vget_low_s16(b));
    sum = vmlal_high_s16(sum, a, b);
    sum = vmlal_s16(sum, vget_low_s16(c), vget_low_s16(d));
    return vmlal_high_s16(sum, c, d);
}

/* Lane i is the sum of the lanes of s[i]. */
INLINE int32x4_t sum_lanes(const int32x4_t *s)
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* The chains of a row. */
struct chains_8 {
    float32x4_t c[2];
};

INLINE struct chains_8 chains_8_zero(void)
{
    return (struct chains_8){{vdupq_n_f32(0), vdupq_n_f32(0)}};
}

/* Every block of a group to its chain: scales of the weights (`count` exist) and of the
 * activations, sums of products. */
INLINE void add_group(struct chains_8 *s, const float *dw, const float *dx, const int32x4_t *sum,
                      int count)
{
    for (int h = 0; h < 2; h++) {
        float32x4_t d = vmulq_f32(load_4(dw + 4 * h, count - 4 * h), load_4(dx + 4 * h, count - 4 * h));
        s->c[h] = vfmaq_f32(s->c[h], d, vcvtq_f32_s32(sum_lanes(sum + 4 * h)));
    }
}

/* The same, taken off. */
INLINE void take_group(struct chains_8 *s, const float *dmin, const float *dx,
                       const int32x4_t *sum, int count)
{
    for (int h = 0; h < 2; h++) {
        float32x4_t d =
            vmulq_f32(load_4(dmin + 4 * h, count - 4 * h), load_4(dx + 4 * h, count - 4 * h));
        s->c[h] = vfmsq_f32(s->c[h], d, vcvtq_f32_s32(sum_lanes(sum + 4 * h)));
    }
}

/* Chains i with i + 4, + 2, + 1. */
INLINE float chains_8_sum(const struct chains_8 *s)
{
    float32x4_t a = vaddq_f32(s->c[0], s->c[1]);
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

/* The half float at b. A NaN may come out quiet where the C function keeps it signalling. */
INLINE float half_at(const uint8_t *b)
{
    float16x4_t half = vreinterpret_f16_u16(vdup_n_u16(bytes_u16(b)));
    return vgetq_lane_f32(vcvt_f32_f16(half), 0);
}

#endif
