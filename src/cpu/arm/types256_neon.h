/* SPDX-License-Identifier: Apache-2.0 */
/* How each type with blocks of 256 values packs its codes, scales and minimums, with NEON. Source:
 * gguf-and-quants.md section 2.4; integer forms: quant/k_types.c, i_types.c, ternary.c.
 *
 * A type NAME has codes_NAME, the 32 codes of group g as signed bytes (g is a constant where this is
 * inlined and unrolled); scales_NAME, a scale for each 16 values; d_NAME, with the power of two that
 * makes scales integers. K types with minimums share their functions for these. */
#ifndef STRATA_CPU_ARM_TYPES256_NEON_H
#define STRATA_CPU_ARM_TYPES256_NEON_H

#include "cpu/arm/rows_neon.h"
#include "quant/codebooks.h"

typedef struct codes_32 codes256_fn(const uint8_t *b, int g);
typedef int8x16_t scales256_fn(const uint8_t *b);
typedef float d256_fn(const uint8_t *b);

/* What minimums a type has: none, or one for each 16 or 32 values in the file. */
struct mins_256 {
    uint8x16_t m; /* one for each 16 values */
    float dmin;
};
typedef struct mins_256 mins256_fn(const uint8_t *b);

INLINE struct mins_256 no_mins(const uint8_t *b)
{
    return (struct mins_256){vdupq_n_u8(0), 0};
}

/* X(name, TYPE, bytes of a block, values of a scale (0: no scales), minimums, values of a minimum)
 */
#define TYPES_256(X)                           \
    X(q2_k, Q2_K, 84, 16, mins_q2_k, 16)       \
    X(q3_k, Q3_K, 110, 16, no_mins, 0)         \
    X(q4_k, Q4_K, 144, 32, mins_q4_k, 32)      \
    X(q5_k, Q5_K, 176, 32, mins_q4_k, 32)      \
    X(q6_k, Q6_K, 210, 16, no_mins, 0)         \
    X(iq2_xxs, IQ2_XXS, 66, 32, no_mins, 0)    \
    X(iq2_xs, IQ2_XS, 74, 16, no_mins, 0)      \
    X(iq2_s, IQ2_S, 82, 16, no_mins, 0)        \
    X(iq3_xxs, IQ3_XXS, 98, 32, no_mins, 0)    \
    X(iq3_s, IQ3_S, 110, 32, no_mins, 0)       \
    X(iq1_s, IQ1_S, 50, 32, no_mins, 0)        \
    X(iq1_m, IQ1_M, 56, 16, no_mins, 0)        \
    X(iq4_xs, IQ4_XS, 136, 32, no_mins, 0)     \
    X(tq1_0, TQ1_0, 54, 0, no_mins, 0)         \
    X(tq2_0, TQ2_0, 66, 0, no_mins, 0)

/* The largest size of a type's codes. */
enum {
    most_q2_k = 3,
    most_q3_k = 4,
    most_q4_k = 15,
    most_q5_k = 31,
    most_q6_k = 32,
    most_iq2_xxs = 43,
    most_iq2_xs = 43,
    most_iq2_s = 43,
    most_iq3_xxs = 62,
    most_iq3_s = 15,
    most_iq1_s = 9,
    most_iq1_m = 9,
    most_iq4_xs = 127,
    most_tq1_0 = 1,
    most_tq2_0 = 2
};

/* --- pieces --- */

INLINE uint8x16_t shift_right(uint8x16_t x, int bits)
{
    return vshlq_u8(x, vdupq_n_s8((int8_t)-bits));
}

INLINE uint8x16_t low_bits(uint8x16_t x, uint8_t mask)
{
    return vandq_u8(x, vdupq_n_u8(mask));
}

/* `value` where bit g of x is 1, else 0. */
INLINE uint8x16_t where_bit(uint8x16_t x, int g, uint8_t value)
{
    return low_bits(vtstq_u8(x, vdupq_n_u8((uint8_t)(1 << g))), value);
}

INLINE int8x16_t less(uint8x16_t x, int8_t offset)
{
    return vsubq_s8(vreinterpretq_s8_u8(x), vdupq_n_s8(offset));
}

/* Eight bytes, each twice. */
INLINE int8x16_t twice(uint8x8_t x)
{
    return vreinterpretq_s8_u8(vcombine_u8(vzip1_u8(x, x), vzip2_u8(x, x)));
}

/* Nibbles of eight bytes, the low ones first. */
INLINE uint8x16_t nibble_pairs(uint8x8_t x)
{
    uint8x8_t low = vand_u8(x, vdup_n_u8(15)), high = vshr_n_u8(x, 4);
    return vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
}

/* 2s + 1 */
INLINE uint8x16_t odd_scale(uint8x16_t s)
{
    return vaddq_u8(vshlq_n_u8(s, 1), vdupq_n_u8(1));
}

/* 2-bit codes of group g; 32 bytes at b hold four groups. */
INLINE uint8x16_t two_bits(const uint8_t *b, int g, int h)
{
    return low_bits(shift_right(vld1q_u8(b + 32 * (g / 4) + 16 * h), 2 * (g % 4)), 3);
}

/* 4-bit codes of group g; 32 bytes at b hold two groups. */
INLINE uint8x16_t four_bits(const uint8_t *b, int g, int h)
{
    uint8x16_t x = vld1q_u8(b + 32 * (g / 2) + 16 * h);
    return g % 2 ? vshrq_n_u8(x, 4) : low_bits(x, 15);
}

/* --- K types --- */

INLINE struct codes_32 codes_q2_k(const uint8_t *b, int g)
{
    return (struct codes_32){{vreinterpretq_s8_u8(two_bits(b + 16, g, 0)),
                              vreinterpretq_s8_u8(two_bits(b + 16, g, 1))}};
}

INLINE int8x16_t scales_q2_k(const uint8_t *b)
{
    return vreinterpretq_s8_u8(low_bits(vld1q_u8(b), 15));
}

INLINE struct mins_256 mins_q2_k(const uint8_t *b)
{
    return (struct mins_256){vshrq_n_u8(vld1q_u8(b), 4), half_at(b + 82)};
}

INLINE float d_q2_k(const uint8_t *b)
{
    return half_at(b + 80);
}

INLINE struct codes_32 codes_q3_k(const uint8_t *b, int g)
{
    struct codes_32 out;
    for (int h = 0; h < 2; h++) { /* the third bit less 4 is 0 or -4 */
        uint8x16_t third = vtstq_u8(vld1q_u8(b + 16 * h), vdupq_n_u8((uint8_t)(1 << g)));
        uint8x16_t code = vorrq_u8(two_bits(b + 32, g, h), vbicq_u8(vdupq_n_u8(0xfc), third));
        out.c[h] = vreinterpretq_s8_u8(code);
    }
    return out;
}

INLINE int8x16_t scales_q3_k(const uint8_t *b)
{
    static const int8_t places[16] = {0, 0, 0, 0, -2, -2, -2, -2, -4, -4, -4, -4, -6, -6, -6, -6};
    uint8x8_t S = vld1_u8(b + 96);
    uint8x16_t low = vcombine_u8(vand_u8(S, vdup_n_u8(15)), vshr_n_u8(S, 4));
    uint8x16_t high = vreinterpretq_u8_u32(vdupq_n_u32(bytes_u32(b + 104)));
    high = low_bits(vshlq_u8(high, vld1q_s8(places)), 3);
    return less(vorrq_u8(low, vshlq_n_u8(high, 4)), 32);
}

INLINE float d_q3_k(const uint8_t *b)
{
    return half_at(b + 108);
}

INLINE struct codes_32 codes_q4_k(const uint8_t *b, int g)
{
    return (struct codes_32){{vreinterpretq_s8_u8(four_bits(b + 16, g, 0)),
                              vreinterpretq_s8_u8(four_bits(b + 16, g, 1))}};
}

/* With the twelve bytes S as three words: four scales are the low six bits of S0, four minimums
 * those of S1; of the other four scales and minimums S2 has the low four bits, in its low and high
 * nibbles, and S0 and S1 the upper two. */
INLINE int8x16_t scales_q4_k(const uint8_t *b)
{
    uint32_t S0 = bytes_u32(b + 4), S2 = bytes_u32(b + 12);
    uint64_t second = (S2 & 0x0f0f0f0f) | (S0 >> 2 & 0x30303030);
    return twice(vcreate_u8((S0 & 0x3f3f3f3f) | second << 32));
}

INLINE struct mins_256 mins_q4_k(const uint8_t *b)
{
    uint32_t S1 = bytes_u32(b + 8), S2 = bytes_u32(b + 12);
    uint64_t second = (S2 >> 4 & 0x0f0f0f0f) | (S1 >> 2 & 0x30303030);
    uint8x8_t m = vcreate_u8((S1 & 0x3f3f3f3f) | second << 32);
    return (struct mins_256){vreinterpretq_u8_s8(twice(m)), half_at(b + 2)};
}

INLINE float d_q4_k(const uint8_t *b)
{
    return half_at(b);
}

INLINE struct codes_32 codes_q5_k(const uint8_t *b, int g)
{
    struct codes_32 out;
    for (int h = 0; h < 2; h++) {
        uint8x16_t fifth = where_bit(vld1q_u8(b + 16 + 16 * h), g, 16);
        out.c[h] = vreinterpretq_s8_u8(vorrq_u8(four_bits(b + 48, g, h), fifth));
    }
    return out;
}

#define scales_q5_k scales_q4_k
#define d_q5_k d_q4_k

INLINE struct codes_32 codes_q6_k(const uint8_t *b, int g)
{
    struct codes_32 out;
    int j = g % 4;
    for (int h = 0; h < 2; h++) {
        uint8x16_t low = vld1q_u8(b + 64 * (g / 4) + 32 * (j % 2) + 16 * h);
        low = j < 2 ? low_bits(low, 15) : vshrq_n_u8(low, 4);
        uint8x16_t high = vld1q_u8(b + 128 + 32 * (g / 4) + 16 * h); /* bits 2j and 2j + 1 to 4, 5 */
        high = low_bits(vshlq_u8(high, vdupq_n_s8((int8_t)(4 - 2 * j))), 0x30);
        out.c[h] = less(vorrq_u8(low, high), 32);
    }
    return out;
}

INLINE int8x16_t scales_q6_k(const uint8_t *b)
{
    return vreinterpretq_s8_u8(vld1q_u8(b + 192));
}

INLINE float d_q6_k(const uint8_t *b)
{
    return half_at(b + 208);
}

/* --- codebooks --- */

/* Two rows of eight values, negative where a mask is. */
INLINE int8x16_t signed_rows(uint64_t row0, uint64_t row1, int8x16_t negative)
{
    int8x16_t values = vcombine_s8(vcreate_s8(row0), vcreate_s8(row1));
    return vsubq_s8(veorq_s8(values, negative), negative);
}

/* The masks of two entries of codebook_ksigns. */
INLINE int8x16_t ksign_masks(unsigned first, unsigned second)
{
    return vcombine_s8(vcreate_s8(codebook_ksign_masks[first]),
                       vcreate_s8(codebook_ksign_masks[second]));
}

INLINE struct codes_32 codes_iq2_xxs(const uint8_t *b, int g)
{
    struct codes_32 out;
    const uint8_t *t = b + 2 + 8 * g;
    uint32_t w = bytes_u32(t + 4);
    for (int h = 0; h < 2; h++, t += 2, w >>= 14)
        out.c[h] = signed_rows(codebook_iq2xxs[t[0]], codebook_iq2xxs[t[1]],
                               ksign_masks(w & 127, w >> 7 & 127));
    return out;
}

/* The upper four bits of eight words. */
INLINE int8x16_t scales_of_words(uint32x4_t first, uint32x4_t second)
{
    uint16x8_t s = vcombine_u16(vshrn_n_u32(first, 16), vshrn_n_u32(second, 16));
    uint8x16_t both = vreinterpretq_u8_s8(twice(vshrn_n_u16(vshrq_n_u16(s, 4), 8)));
    return vreinterpretq_s8_u8(odd_scale(both));
}

INLINE int8x16_t scales_iq2_xxs(const uint8_t *b)
{
    uint32x4_t w[4];
    for (int i = 0; i < 4; i++)
        w[i] = vreinterpretq_u32_u8(vld1q_u8(b + 2 + 16 * i));
    return scales_of_words(vuzp2q_u32(w[0], w[1]), vuzp2q_u32(w[2], w[3]));
}

INLINE float d_iq2_xxs(const uint8_t *b)
{
    return half_at(b) * 0.125f;
}

INLINE struct codes_32 codes_iq2_xs(const uint8_t *b, int g)
{
    struct codes_32 out;
    uint64_t q = bytes_u64(b + 2 + 8 * g);
    for (int h = 0; h < 2; h++, q >>= 32)
        out.c[h] = signed_rows(codebook_iq2xs[q & 511], codebook_iq2xs[q >> 16 & 511],
                               ksign_masks(q >> 9 & 127, q >> 25 & 127));
    return out;
}

INLINE int8x16_t scales_iq2_xs(const uint8_t *b)
{
    return vreinterpretq_s8_u8(odd_scale(nibble_pairs(vld1_u8(b + 66))));
}

#define d_iq2_xs d_iq2_xxs

INLINE struct codes_32 codes_iq2_s(const uint8_t *b, int g)
{
    struct codes_32 out;
    const uint8_t *t = b + 2 + 4 * g;
    struct codes_32 negative = bit_masks(b + 34 + 4 * g);
    unsigned high = b[66 + g];
    for (int h = 0; h < 2; h++, t += 2, high >>= 4)
        out.c[h] = signed_rows(codebook_iq2s[t[0] + 256 * (high & 3)],
                               codebook_iq2s[t[1] + 256 * (high >> 2 & 3)], negative.c[h]);
    return out;
}

INLINE int8x16_t scales_iq2_s(const uint8_t *b)
{
    return vreinterpretq_s8_u8(odd_scale(nibble_pairs(vld1_u8(b + 74))));
}

#define d_iq2_s d_iq2_xxs

/* Two rows of four values side by side. */
INLINE uint64_t two_rows(uint32_t first, uint32_t second)
{
    return first | (uint64_t)second << 32;
}

INLINE struct codes_32 codes_iq3_xxs(const uint8_t *b, int g)
{
    struct codes_32 out;
    const uint8_t *t = b + 2 + 8 * g;
    const uint32_t *grid = codebook_iq3xxs;
    uint32_t w = bytes_u32(b + 66 + 4 * g);
    for (int h = 0; h < 2; h++, t += 4, w >>= 14)
        out.c[h] = signed_rows(two_rows(grid[t[0]], grid[t[1]]), two_rows(grid[t[2]], grid[t[3]]),
                               ksign_masks(w & 127, w >> 7 & 127));
    return out;
}

INLINE int8x16_t scales_iq3_xxs(const uint8_t *b)
{
    return scales_of_words(vreinterpretq_u32_u8(vld1q_u8(b + 66)),
                           vreinterpretq_u32_u8(vld1q_u8(b + 82)));
}

INLINE float d_iq3_xxs(const uint8_t *b)
{
    return half_at(b) * 0.25f;
}

INLINE struct codes_32 codes_iq3_s(const uint8_t *b, int g)
{
    struct codes_32 out;
    const uint8_t *u = b + 2 + 8 * g;
    const uint32_t *grid = codebook_iq3s;
    struct codes_32 negative = bit_masks(b + 74 + 4 * g);
    unsigned high = b[66 + g];
    for (int h = 0; h < 2; h++, u += 4, high >>= 4)
        out.c[h] = signed_rows(
            two_rows(grid[u[0] + 256 * (high & 1)], grid[u[1] + 256 * (high >> 1 & 1)]),
            two_rows(grid[u[2] + 256 * (high >> 2 & 1)], grid[u[3] + 256 * (high >> 3 & 1)]),
            negative.c[h]);
    return out;
}

INLINE int8x16_t scales_iq3_s(const uint8_t *b)
{
    uint8x8_t c = vreinterpret_u8_u32(vdup_n_u32(bytes_u32(b + 106)));
    return vreinterpretq_s8_u8(odd_scale(vreinterpretq_u8_s8(twice(vget_low_u8(nibble_pairs(c))))));
}

#define d_iq3_s d_q4_k

/* Two rows of IQ1 times eight, plus one or minus one. */
INLINE int8x16_t iq1_rows(unsigned row0, unsigned row1, int8_t delta0, int8_t delta1)
{
    int8x16_t values = vcombine_s8(vcreate_s8(codebook_iq1s[row0]), vcreate_s8(codebook_iq1s[row1]));
    return vaddq_s8(vshlq_n_s8(values, 3), vcombine_s8(vdup_n_s8(delta0), vdup_n_s8(delta1)));
}

INLINE struct codes_32 codes_iq1_s(const uint8_t *b, int g)
{
    struct codes_32 out;
    const uint8_t *t = b + 2 + 4 * g;
    unsigned w = bytes_u16(b + 34 + 2 * g);
    int8_t delta = w >> 15 ? -1 : 1;
    for (int h = 0; h < 2; h++, t += 2, w >>= 6)
        out.c[h] =
            iq1_rows(t[0] + 256 * (w & 7), t[1] + 256 * (w >> 3 & 7), delta, delta);
    return out;
}

INLINE int8x16_t scales_iq1_s(const uint8_t *b)
{
    uint16x8_t w = vreinterpretq_u16_u8(vld1q_u8(b + 34));
    uint8x8_t s = vand_u8(vshrn_n_u16(vshrq_n_u16(w, 4), 8), vdup_n_u8(7));
    return vreinterpretq_s8_u8(odd_scale(vreinterpretq_u8_s8(twice(s))));
}

#define d_iq1_s d_iq2_xxs

INLINE struct codes_32 codes_iq1_m(const uint8_t *b, int g)
{
    struct codes_32 out;
    const uint8_t *t = b + 4 * g, *n = b + 32 + 2 * g;
    for (int h = 0; h < 2; h++, t += 2, n++)
        out.c[h] = iq1_rows(t[0] + 256u * (*n & 7), t[1] + 256u * (*n >> 4 & 7),
                            *n & 8 ? -1 : 1, *n & 128 ? -1 : 1);
    return out;
}

/* Four scales of three bits in each of four words. */
INLINE int8x16_t scales_iq1_m(const uint8_t *b)
{
    static const int16_t places[8] = {0, -3, -6, -9, 0, -3, -6, -9};
    const int16x8_t place = vld1q_s16(places);
    uint16x4_t w = vreinterpret_u16_u8(vld1_u8(b + 48));
    uint16x8_t first = vcombine_u16(vdup_lane_u16(w, 0), vdup_lane_u16(w, 1));
    uint16x8_t second = vcombine_u16(vdup_lane_u16(w, 2), vdup_lane_u16(w, 3));
    uint8x16_t s = vcombine_u8(vmovn_u16(vshlq_u16(first, place)), vmovn_u16(vshlq_u16(second, place)));
    return vreinterpretq_s8_u8(odd_scale(low_bits(s, 7)));
}

/* The upper four bits of the four words. */
INLINE float d_iq1_m(const uint8_t *b)
{
    uint64_t w = bytes_u64(b + 48);
    uint16_t half = (uint16_t)((w >> 12 & 0xf) | (w >> 24 & 0xf0) | (w >> 36 & 0xf00) |
                               (w >> 48 & 0xf000));
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0) * 0.125f;
}

INLINE struct codes_32 codes_iq4_xs(const uint8_t *b, int g)
{
    int8x16_t table = vld1q_s8(codebook_iq4nl);
    uint8x16_t q = vld1q_u8(b + 8 + 16 * g);
    return (struct codes_32){
        {vqtbl1q_s8(table, low_bits(q, 15)), vqtbl1q_s8(table, vshrq_n_u8(q, 4))}};
}

INLINE int8x16_t scales_iq4_xs(const uint8_t *b)
{
    static const int16_t places[8] = {0, -2, -4, -6, -8, -10, -12, -14};
    uint8x8_t low = vreinterpret_u8_u32(vdup_n_u32(bytes_u32(b + 4)));
    uint16x8_t high = vshlq_u16(vdupq_n_u16(bytes_u16(b + 2)), vld1q_s16(places));
    uint8x8_t upper = vshl_n_u8(vand_u8(vmovn_u16(high), vdup_n_u8(3)), 4);
    low = vorr_u8(vget_low_u8(nibble_pairs(low)), upper);
    return twice(vsub_u8(low, vdup_n_u8(32)));
}

#define d_iq4_xs d_q4_k

/* --- three values --- */

INLINE int8x16_t scales_tq1_0(const uint8_t *b)
{
    return vdupq_n_s8(1);
}

/* A digit of base 3, less 1: the byte times a power of three, modulo 256, is below 86, below 171 or
 * above. */
INLINE int8x16_t digit(uint8x16_t bytes, uint8x16_t power)
{
    uint8x16_t x = vmulq_u8(bytes, power);
    int8x16_t one = vreinterpretq_s8_u8(vcgeq_u8(x, vdupq_n_u8(86)));
    int8x16_t two = vreinterpretq_s8_u8(vcgeq_u8(x, vdupq_n_u8(171)));
    return vsubq_s8(vsubq_s8(vdupq_n_s8(-1), one), two);
}

/* Digits 0 to 4 of 32 bytes, of 16 bytes, then 0 to 3 of four bytes. */
INLINE struct codes_32 codes_tq1_0(const uint8_t *b, int g)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    static const uint8_t last[16] = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    if (g < 5) {
        uint8x16_t power = vdupq_n_u8(powers[g]);
        return (struct codes_32){{digit(vld1q_u8(b), power), digit(vld1q_u8(b + 16), power)}};
    }
    int n = 2 * (g - 5);
    uint8x16_t bytes = vld1q_u8(b + 32);
    int8x16_t first = digit(bytes, vdupq_n_u8(powers[n]));
    if (g < 7)
        return (struct codes_32){{first, digit(bytes, vdupq_n_u8(powers[n + 1]))}};
    bytes = vreinterpretq_u8_u32(vdupq_n_u32(bytes_u32(b + 48)));
    return (struct codes_32){{first, digit(bytes, vld1q_u8(last))}};
}

INLINE float d_tq1_0(const uint8_t *b)
{
    return half_at(b + 52);
}

INLINE struct codes_32 codes_tq2_0(const uint8_t *b, int g)
{
    return (struct codes_32){{less(two_bits(b, g, 0), 1), less(two_bits(b, g, 1), 1)}};
}

#define scales_tq2_0 scales_tq1_0

INLINE float d_tq2_0(const uint8_t *b)
{
    return half_at(b + 64);
}

#endif
