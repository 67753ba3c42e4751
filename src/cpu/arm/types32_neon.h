/* SPDX-License-Identifier: Apache-2.0 */
/* How the types with blocks of 32, 64 and 128 values pack their codes and scales, with NEON. Source:
 * gguf-and-quants.md section 2.4; integer forms: quant/small_blocks.c.
 *
 * A part is 32 values, the block of the activations. A type NAME has codes_NAME, the codes of part p
 * of the block at b as signed bytes, at most most_NAME in size; d_NAME, the scale of this part; and
 * four_d_NAME, those of the four parts from the block at b on. Only bytes of these blocks are read. */
#ifndef STRATA_CPU_ARM_TYPES32_NEON_H
#define STRATA_CPU_ARM_TYPES32_NEON_H

#include "cpu/arm/rows_neon.h"
#include "quant/codebooks.h"
#include "quant/float_scales.h"

typedef struct codes_32 codes32_fn(const uint8_t *b, int p);
typedef float d32_fn(const uint8_t *b, int p);

/* How the values of a part are scaled. */
enum scaling {
    SCALED,       /* by d */
    WITH_MINIMUM, /* and a minimum, the half float at byte 2 */
    HALVES        /* 16 values by d_NAME(b, 2p), 16 by d_NAME(b, 2p + 1) */
};

/* The scales of four parts; `second`: of the second halves, or the minimums. */
struct four_d {
    float32x4_t d, second;
};
typedef struct four_d four_d32_fn(const uint8_t *b);

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

#define FOUR_D(name, bytes)                               \
    INLINE struct four_d four_d_##name(const uint8_t *b) \
    {                                                     \
        return (struct four_d){.d = halves_at(b, bytes)}; \
    }
FOUR_D(q4_0, 18)
FOUR_D(q5_0, 22)
FOUR_D(q8_0, 34)
FOUR_D(iq4_nl, 18)

INLINE struct four_d four_d_q4_1(const uint8_t *b)
{
    return (struct four_d){halves_at(b, 20), halves_at(b + 2, 20)};
}

INLINE struct four_d four_d_q5_1(const uint8_t *b)
{
    return (struct four_d){halves_at(b, 24), halves_at(b + 2, 24)};
}

INLINE struct four_d four_d_q1_0(const uint8_t *b)
{
    return (struct four_d){.d = vdupq_n_f32(half_at(b))};
}

INLINE struct four_d four_d_q2_0(const uint8_t *b)
{
    float32x2_t first = vdup_n_f32(half_at(b)), second = vdup_n_f32(half_at(b + 18));
    return (struct four_d){.d = vcombine_f32(first, second)};
}

INLINE float d_mxfp4(const uint8_t *b, int p)
{
    return quant_scale_mxfp4(b[0]);
}

/* quant_scale_mxfp4 of four blocks. */
INLINE struct four_d four_d_mxfp4(const uint8_t *b)
{
    uint32_t bytes = b[0] | (uint32_t)b[17] << 8 | (uint32_t)b[34] << 16 | (uint32_t)b[51] << 24;
    uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))), one = vdupq_n_u32(1);
    uint32x4_t denormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, one), 23);
    return (struct four_d){
        .d = vreinterpretq_f32_u32(vbslq_u32(vcleq_u32(e, one), denormal, normal))};
}

INLINE float d_nvfp4(const uint8_t *b, int part)
{
    return quant_scale_nvfp4(b[part]);
}

/* quant_scale_nvfp4 of two blocks: four bits of exponent and three of mantissa where a float has them
 * are a float 2^119 times too small, denormal where the four bits are zero. */
INLINE struct four_d four_d_nvfp4(const uint8_t *b)
{
    uint8x8_t bytes = vcreate_u8(bytes_u32(b) | (uint64_t)bytes_u32(b + 36) << 32);
    bytes = vbic_u8(vand_u8(bytes, vdup_n_u8(0x7f)), vceq_u8(bytes, vdup_n_u8(0x7f)));
    uint16x8_t wide = vmovl_u8(bytes);
    const float32x4_t factor = vdupq_n_f32(0x1p119f);
    float32x4_t first = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), 20));
    float32x4_t second = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_high_u16(wide), 20));
    first = vmulq_f32(first, factor);
    second = vmulq_f32(second, factor);
    return (struct four_d){vuzp1q_f32(first, second), vuzp2q_f32(first, second)};
}

/* The largest size of a type's codes. */
enum {
    most_q4_0 = 8,
    most_q4_1 = 15,
    most_q5_0 = 16,
    most_q5_1 = 31,
    most_q8_0 = 128,
    most_iq4_nl = 127,
    most_mxfp4 = 12,
    most_nvfp4 = 12,
    most_q1_0 = 1,
    most_q2_0 = 2
};

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
    /* The fifth bit less 16 is 0 or -16. */
    struct codes_32 low = nibbles(b + 6), fifth = bit_masks(b + 2);
    const int8x16_t off = vdupq_n_s8(-16);
    return (struct codes_32){{vorrq_s8(low.c[0], vbicq_s8(off, fifth.c[0])),
                              vorrq_s8(low.c[1], vbicq_s8(off, fifth.c[1]))}};
}

INLINE struct codes_32 codes_q5_1(const uint8_t *b, int p)
{
    struct codes_32 low = nibbles(b + 8), fifth = bit_masks(b + 4);
    const int8x16_t on = vdupq_n_s8(16);
    return (struct codes_32){{vorrq_s8(low.c[0], vandq_s8(on, fifth.c[0])),
                              vorrq_s8(low.c[1], vandq_s8(on, fifth.c[1]))}};
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
    struct codes_32 is_one = bit_masks(b + 2 + 4 * p);
    const int8x16_t one = vdupq_n_s8(1); /* where all bits are 0 all are set */
    return (struct codes_32){{vornq_s8(one, is_one.c[0]), vornq_s8(one, is_one.c[1])}};
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
