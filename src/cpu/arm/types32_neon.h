/* SPDX-License-Identifier: Apache-2.0 */
/* How the types with blocks of 32, 64 and 128 values pack their codes and scales, with NEON. Source:
 * gguf-and-quants.md section 2.4; integer forms: quant/small_blocks.c.
 *
 * A part is 32 values, the block of the activations. A type NAME has codes_NAME, the codes of part p
 * of the block at b as signed bytes, and d_NAME, the scale of this part. Only bytes of the block are
 * read. */
#ifndef STRATA_CPU_ARM_TYPES32_NEON_H
#define STRATA_CPU_ARM_TYPES32_NEON_H

#include "cpu/arm/rows_neon.h"
#include "quant/codebooks.h"
#include "quant/float_scales.h"

struct codes_32 {
    int8x16_t c[2];
};

typedef struct codes_32 codes32_fn(const uint8_t *b, int p);
typedef float d32_fn(const uint8_t *b, int p);

/* How the values of a part are scaled. */
enum scaling {
    SCALED,       /* by d */
    WITH_MINIMUM, /* and a minimum, the half float at byte 2 */
    HALVES        /* 16 values by d_NAME(b, 2p), 16 by d_NAME(b, 2p + 1) */
};

/* X(name, TYPE, bytes of a block, values of a block, scaling) */
#define TYPES_32(X)                        \
    X(q4_0, Q4_0, 18, 32, SCALED)          \
    X(q4_1, Q4_1, 20, 32, WITH_MINIMUM)    \
    X(q5_0, Q5_0, 22, 32, SCALED)          \
    X(q5_1, Q5_1, 24, 32, WITH_MINIMUM)    \
    X(q8_0, Q8_0, 34, 32, SCALED)          \
    X(iq4_nl, IQ4_NL, 18, 32, SCALED)      \
    X(mxfp4, MXFP4, 17, 32, SCALED)        \
    X(nvfp4, NVFP4, 36, 64, HALVES)        \
    X(q1_0, Q1_0, 18, 128, SCALED)         \
    X(q2_0, Q2_0, 18, 64, SCALED)

INLINE float d_half(const uint8_t *b, int p)
{
    return half_at(b);
}

#define d_q4_0 d_half
#define d_q4_1 d_half
#define d_q5_0 d_half
#define d_q5_1 d_half
#define d_q8_0 d_half
#define d_iq4_nl d_half
#define d_q1_0 d_half
#define d_q2_0 d_half

INLINE float d_mxfp4(const uint8_t *b, int p)
{
    return quant_scale_mxfp4(b[0]);
}

INLINE float d_nvfp4(const uint8_t *b, int part)
{
    return quant_scale_nvfp4(b[part]);
}

/* 16 bytes to 32 nibbles, first the low ones, then the high ones. */
INLINE struct codes_32 nibbles(const uint8_t *b)
{
    uint8x16_t q = vld1q_u8(b);
    return (struct codes_32){{vreinterpretq_s8_u8(vandq_u8(q, vdupq_n_u8(15))),
                              vreinterpretq_s8_u8(vshrq_n_u8(q, 4))}};
}

INLINE struct codes_32 less(struct codes_32 x, int8_t offset)
{
    return (struct codes_32){
        {vsubq_s8(x.c[0], vdupq_n_s8(offset)), vsubq_s8(x.c[1], vdupq_n_s8(offset))}};
}

INLINE struct codes_32 look_up(const int8_t table[16], struct codes_32 index)
{
    int8x16_t t = vld1q_s8(table);
    return (struct codes_32){{vqtbl1q_s8(t, vreinterpretq_u8_s8(index.c[0])),
                              vqtbl1q_s8(t, vreinterpretq_u8_s8(index.c[1]))}};
}

/* `value` in byte i where bit i of the two bytes at b is 1, else 0. */
INLINE uint8x16_t spread_bits(const uint8_t *b, uint8_t value)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    uint8x16_t bytes = vcombine_u8(vdup_n_u8(b[0]), vdup_n_u8(b[1]));
    return vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(value));
}

/* Nibbles with a fifth bit, from four bytes at h. */
INLINE struct codes_32 five_bits(const uint8_t *b, const uint8_t *h)
{
    struct codes_32 low = nibbles(b);
    return (struct codes_32){
        {vorrq_s8(low.c[0], vreinterpretq_s8_u8(spread_bits(h, 16))),
         vorrq_s8(low.c[1], vreinterpretq_s8_u8(spread_bits(h + 2, 16)))}};
}

INLINE struct codes_32 codes_q4_0(const uint8_t *b, int p)
{
    return less(nibbles(b + 2), 8);
}

INLINE struct codes_32 codes_q4_1(const uint8_t *b, int p)
{
    return nibbles(b + 4);
}

INLINE struct codes_32 codes_q5_0(const uint8_t *b, int p)
{
    return less(five_bits(b + 6, b + 2), 16);
}

INLINE struct codes_32 codes_q5_1(const uint8_t *b, int p)
{
    return five_bits(b + 8, b + 4);
}

INLINE struct codes_32 codes_q8_0(const uint8_t *b, int p)
{
    return (struct codes_32){
        {vreinterpretq_s8_u8(vld1q_u8(b + 2)), vreinterpretq_s8_u8(vld1q_u8(b + 18))}};
}

INLINE struct codes_32 codes_iq4_nl(const uint8_t *b, int p)
{
    return look_up(codebook_iq4nl, nibbles(b + 2));
}

INLINE struct codes_32 codes_mxfp4(const uint8_t *b, int p)
{
    return look_up(codebook_mxfp4, nibbles(b + 1));
}

/* Eight bytes hold 16 values, first the low nibbles. */
INLINE struct codes_32 codes_nvfp4(const uint8_t *b, int p)
{
    uint64x2_t low = vreinterpretq_u64_s8(nibbles(b + 4 + 16 * p).c[0]);
    uint64x2_t high = vreinterpretq_u64_s8(nibbles(b + 4 + 16 * p).c[1]);
    struct codes_32 index = {{vreinterpretq_s8_u64(vzip1q_u64(low, high)),
                              vreinterpretq_s8_u64(vzip2q_u64(low, high))}};
    return look_up(codebook_mxfp4, index);
}

/* Bits as codes 1 and -1. */
INLINE struct codes_32 codes_q1_0(const uint8_t *b, int p)
{
    b += 2 + 4 * p;
    struct codes_32 twos = {{vreinterpretq_s8_u8(spread_bits(b, 2)),
                             vreinterpretq_s8_u8(spread_bits(b + 2, 2))}};
    return less(twos, 1);
}

/* Four bytes, each four times, moved to the right by 0, 2, 4 and 6. */
INLINE int8x16_t spread_pairs(const uint8_t *b)
{
    const int8x16_t place = vreinterpretq_s8_u32(vdupq_n_u32(0xfafcfe00));
    static const uint8_t number[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(bytes_u32(b)));
    bytes = vshlq_u8(vqtbl1q_u8(bytes, vld1q_u8(number)), place);
    return vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(3)));
}

/* Codes 0 to 3 stand for -1 to 2. */
INLINE struct codes_32 codes_q2_0(const uint8_t *b, int p)
{
    b += 2 + 8 * p;
    return less((struct codes_32){{spread_pairs(b), spread_pairs(b + 4)}}, 1);
}

#endif
