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

/* 32 bytes, codes of a weight row or masks. */
struct codes_32 {
    int8x16_t c[2];
};

/* Masks of the 32 bits at b: byte i is -1 where bit i is 1, else 0. */
INLINE struct codes_32 bit_masks(const uint8_t *b)
{
    static const uint8_t byte[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                     2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(bytes_u32(b)));
    return (struct codes_32){
        {vreinterpretq_s8_u8(vtstq_u8(vqtbl1q_u8(bytes, vld1q_u8(byte)), bit)),
         vreinterpretq_s8_u8(vtstq_u8(vqtbl1q_u8(bytes, vld1q_u8(byte + 16)), bit))}};
}

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

/* Sums of 16 or 32 products with the codes of an activation, lanes still to be added. `most`: the
 * size of the codes a; without the dot product extension products of up to 64 are added to 16 bits,
 * four to a lane, others two. */
INLINE int32x4_t add_32(int32x4_t sum, int8x16_t a0, int8x16_t a1, int8x16_t b0, int8x16_t b1,
                        const int most)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(vdotq_s32(sum, a0, b0), a1, b1);
#else
    int16x8_t p = vmlal_high_s8(vmull_s8(vget_low_s8(a0), vget_low_s8(b0)), a0, b0);
    if (most <= 64)
        return vpadalq_s16(sum, vmlal_high_s8(vmlal_s8(p, vget_low_s8(a1), vget_low_s8(b1)), a1, b1));
    int16x8_t second = vmlal_high_s8(vmull_s8(vget_low_s8(a1), vget_low_s8(b1)), a1, b1);
    return vpadalq_s16(vpadalq_s16(sum, p), second);
#endif
}

INLINE int32x4_t sum_of_16(int8x16_t a, int8x16_t b)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(vdupq_n_s32(0), a, b);
#else
    return vpaddlq_s16(vmlal_high_s8(vmull_s8(vget_low_s8(a), vget_low_s8(b)), a, b));
#endif
}

INLINE int32x4_t sum_of_32(int8x16_t a0, int8x16_t a1, int8x16_t b0, int8x16_t b1, const int most)
{
#ifdef __ARM_FEATURE_DOTPROD
    return add_32(vdupq_n_s32(0), a0, a1, b0, b1, most);
#else
    int16x8_t p = vmlal_high_s8(vmull_s8(vget_low_s8(a0), vget_low_s8(b0)), a0, b0);
    if (most > 64)
        return vaddq_s32(vpaddlq_s16(p), sum_of_16(a1, b1));
    return vpaddlq_s16(vmlal_high_s8(vmlal_s8(p, vget_low_s8(a1), vget_low_s8(b1)), a1, b1));
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

/* Sixteen numbers, four to a register. */
INLINE void widen_scales(int8x16_t s, int32x4_t out[4])
{
    int16x8_t low = vmovl_s8(vget_low_s8(s)), high = vmovl_high_s8(s);
    out[0] = vmovl_s16(vget_low_s16(low));
    out[1] = vmovl_high_s16(low);
    out[2] = vmovl_s16(vget_low_s16(high));
    out[3] = vmovl_high_s16(high);
}

/* sum + part * scale i of 16 */
INLINE int32x4_t add_scaled(int32x4_t sum, int32x4_t part, const int32x4_t scale[4], const int i)
{
#define SCALE(lane) \
    case lane:      \
        return vmlaq_laneq_s32(sum, part, scale[i / 4], lane);
    switch (i % 4) {
        SCALE(0)
        SCALE(1)
        SCALE(2)
        SCALE(3)
    }
    return sum;
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

/* Four half floats, `step` bytes apart; NaN as above. */
INLINE float32x4_t halves_at(const uint8_t *b, const int step)
{
    uint16x4_t half = vdup_n_u16(bytes_u16(b));
    half = vset_lane_u16(bytes_u16(b + step), half, 1);
    half = vset_lane_u16(bytes_u16(b + 2 * step), half, 2);
    half = vset_lane_u16(bytes_u16(b + 3 * step), half, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(half));
}

#endif
