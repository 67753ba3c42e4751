/* SPDX-License-Identifier: Apache-2.0 */
/* Products whose lanes are activation rows, with NEON: what prefill tiles and windows share. Four
 * bytes of a weight row at a time meet four bytes of each activation row, so there are no sums across
 * lanes. */
#ifndef STRATA_CPU_ARM_LANES_NEON_H
#define STRATA_CPU_ARM_LANES_NEON_H

#include "cpu/arm/rows_neon.h"

#define CHAINS 8

/* Bytes 4j .. 4j + 3 of w, four times. */
INLINE int8x16_t word(int8x16_t w, const int j)
{
    int32x4_t words = vreinterpretq_s32_s8(w);
    int32_t one = j == 0   ? vgetq_lane_s32(words, 0)
                  : j == 1 ? vgetq_lane_s32(words, 1)
                  : j == 2 ? vgetq_lane_s32(words, 2)
                           : vgetq_lane_s32(words, 3);
    return vreinterpretq_s8_s32(vdupq_n_s32(one));
}

/* Bytes 4j .. 4j + 3 of w with four bytes of each of four activation rows. */
INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t q, int8x16_t w, const int j)
{
#ifdef __ARM_FEATURE_DOTPROD
    switch (j) {
    case 0:
        return vdotq_laneq_s32(sum, q, w, 0);
    case 1:
        return vdotq_laneq_s32(sum, q, w, 1);
    case 2:
        return vdotq_laneq_s32(sum, q, w, 2);
    default:
        return vdotq_laneq_s32(sum, q, w, 3);
    }
#else
    return dot_bytes(sum, word(w, j), q);
#endif
}

/* Chains 0 to 7, `step` apart, as a tree. */
INLINE float32x4_t add_chains(const float32x4_t *chain, const int step)
{
    float32x4_t s[4];
    for (int p = 0; p < 4; p++)
        s[p] = vaddq_f32(chain[p * step], chain[(p + 4) * step]);
    return vaddq_f32(vaddq_f32(s[0], s[2]), vaddq_f32(s[1], s[3]));
}

/* 16 codes of four rows to four registers whose lanes are rows, `stride` bytes apart. */
INLINE void pack_four(const int16_t *const q[4], int k, int8_t *out, const int stride)
{
    int32x4_t v[4];
    for (int r = 0; r < 4; r++)
        v[r] = vreinterpretq_s32_s8(narrow(q[r] + k));
    int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(v[0], v[1]));
    int64x2_t b = vreinterpretq_s64_s32(vtrn2q_s32(v[0], v[1]));
    int64x2_t c = vreinterpretq_s64_s32(vtrn1q_s32(v[2], v[3]));
    int64x2_t d = vreinterpretq_s64_s32(vtrn2q_s32(v[2], v[3]));
    vst1q_s8(out, vreinterpretq_s8_s64(vtrn1q_s64(a, c)));
    vst1q_s8(out + stride, vreinterpretq_s8_s64(vtrn1q_s64(b, d)));
    vst1q_s8(out + 2 * stride, vreinterpretq_s8_s64(vtrn2q_s64(a, c)));
    vst1q_s8(out + 3 * stride, vreinterpretq_s8_s64(vtrn2q_s64(b, d)));
}

#endif
