/* SPDX-License-Identifier: Apache-2.0 */
/* 4 floats at once: the functions of base/fmath.h and the sums of numerics.md section 1 with the
 * bits of the C definition, and loads and stores that take what is left of a row. */
#ifndef STRATA_CPU_ARM_MATH_NEON_H
#define STRATA_CPU_ARM_MATH_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Lanes that `left` values fill: all for 4 or more, none for 0 or less. */
INLINE uint32x4_t lanes_4(int left)
{
    static const int32_t number[4] = {0, 1, 2, 3};
    return vcgtq_s32(vdupq_n_s32(left), vld1q_s32(number));
}

/* `left` values, at most 4; the other lanes are 0 and their memory is not touched. */
INLINE float32x4_t load_4(const float *p, int left)
{
    if (left >= 4)
        return vld1q_f32(p);
    float part[4] = {0};
    if (left > 0)
        memcpy(part, p, (size_t)left * sizeof *p);
    return vld1q_f32(part);
}

INLINE void store_4(float *p, float32x4_t x, int left)
{
    if (left >= 4) {
        vst1q_f32(p, x);
    } else if (left > 0) {
        float part[4];
        vst1q_f32(part, x);
        memcpy(p, part, (size_t)left * sizeof *p);
    }
}

/* Half floats as floats. A NaN may come out quiet where the C function keeps it signalling. */
INLINE float32x4_t load_half_4(const uint16_t *p, int left)
{
    uint16_t part[4] = {0};
    if (left >= 4)
        return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
    if (left > 0)
        memcpy(part, p, (size_t)left * sizeof *p);
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(part)));
}

/* 2^n for -126 <= n <= 127. */
INLINE float32x4_t power_of_two_4(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

/* fmath_exp; minimum and maximum keep a NaN. */
INLINE float32x4_t exp_4(float32x4_t x)
{
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-104.0f)), vdupq_n_f32(89.0f));
    float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504f)));
    float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0.693359375f));
    r = vfmaq_f32(r, n, vdupq_n_f32(2.12194440e-4f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    p = vmulq_f32(p, power_of_two_4(half));
    return vmulq_f32(p, power_of_two_4(vsubq_s32(whole, half)));
}

/* e^-|x| */
INLINE float32x4_t exp_of_minus_size_4(float32x4_t x)
{
    return exp_4(vnegq_f32(vabsq_f32(x)));
}

INLINE float32x4_t sigmoid_4(float32x4_t x)
{
    float32x4_t t = exp_of_minus_size_4(x), one = vdupq_n_f32(1);
    return vdivq_f32(vbslq_f32(vcltzq_f32(x), t, one), vaddq_f32(one, t));
}

INLINE float32x4_t silu_4(float32x4_t x)
{
    float32x4_t t = exp_of_minus_size_4(x);
    return vdivq_f32(vbslq_f32(vcltzq_f32(x), vmulq_f32(x, t), x), vaddq_f32(vdupq_n_f32(1), t));
}

/* The 32 chains of a sum, four to a register. */
struct chains_4 {
    float32x4_t c[8];
};

INLINE struct chains_4 chains_4_zero(void)
{
    float32x4_t zero = vdupq_n_f32(0);
    return (struct chains_4){{zero, zero, zero, zero, zero, zero, zero, zero}};
}

/* Chain register r takes a * b; of the last values of a row only `left` count. The others must not
 * be touched, not even by adding 0, which turns -0 into +0. */
INLINE void chains_4_fma(struct chains_4 *s, int r, float32x4_t a, float32x4_t b, int left)
{
    float32x4_t next = vfmaq_f32(s->c[r], a, b);
    s->c[r] = left < 4 ? vbslq_f32(lanes_4(left), next, s->c[r]) : next;
}

/* The tree: i + 16, + 8, + 4, + 2, + 1. */
INLINE float chains_4_sum(const struct chains_4 *s)
{
    float32x4_t a[4];
    for (int i = 0; i < 4; i++)
        a[i] = vaddq_f32(s->c[i], s->c[i + 4]);
    a[0] = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
    float32x2_t b = vadd_f32(vget_low_f32(a[0]), vget_high_f32(a[0]));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

#endif
