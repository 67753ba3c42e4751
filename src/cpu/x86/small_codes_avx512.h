/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of the types with blocks of 32, 64 and 128 values as signed bytes, with AVX-512. Nothing
 * outside the block's bytes is read. */
#ifndef STRATA_CPU_X86_SMALL_CODES_AVX512_H
#define STRATA_CPU_X86_SMALL_CODES_AVX512_H

#include "cpu/x86/dot_int.h"
#include "cpu/x86/unpack_small.h"
#include "quant/codebooks.h"
#include "quant/float_scales.h"

/* Blocks of 32: 32 codes, and the scale where it is not the half float at the block's start. */
typedef __m256i codes_fn(const uint8_t *b);
typedef float scale_fn(const uint8_t *b);

INLINE __m256i codes_q4_0(const uint8_t *b)
{
    return _mm256_sub_epi8(nibbles(b + 2), _mm256_set1_epi8(8));
}

INLINE __m256i codes_q4_1(const uint8_t *b)
{
    return nibbles(b + 4);
}

/* low - 16 = low | f0 where the fifth bit is clear. */
INLINE __m256i codes_q5_0(const uint8_t *b)
{
    return _mm256_or_si256(nibbles(b + 6), _mm256_maskz_set1_epi8(~bytes_u32(b + 2), -16));
}

INLINE __m256i codes_q5_1(const uint8_t *b)
{
    return _mm256_or_si256(nibbles(b + 8), _mm256_maskz_set1_epi8(bytes_u32(b + 4), 16));
}

INLINE __m256i codes_q8_0(const uint8_t *b)
{
    return _mm256_loadu_si256((const __m256i *)(b + 2));
}

INLINE __m256i look_up(const int8_t *table, __m256i index)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

INLINE __m256i codes_iq4_nl(const uint8_t *b)
{
    return look_up(codebook_iq4nl, nibbles(b + 2));
}

INLINE __m256i codes_mxfp4(const uint8_t *b)
{
    return look_up(codebook_mxfp4, nibbles(b + 1));
}

INLINE float scale_mxfp4(const uint8_t *b)
{
    return quant_scale_mxfp4(b[0]);
}

/* Of two parts; eight bytes hold 16 codes, first the low nibbles. */
INLINE __m256i codes_nvfp4(const uint8_t *b, int part)
{
    __m256i index = _mm256_permute4x64_epi64(nibbles(b + 4 + 16 * part), 0xd8);
    return look_up(codebook_mxfp4, index);
}

/* Bits as codes 1 and -1: 64 codes, of two halves. */
INLINE __m512i codes_q1_0(const uint8_t *b, int half)
{
    __mmask64 set = bytes_u64(b + 2 + 8 * half);
    return _mm512_mask_blend_epi8(set, _mm512_set1_epi8(-1), _mm512_set1_epi8(1));
}

/* Codes 0 to 3 stand for -1 to 2. */
INLINE __m512i codes_q2_0(const uint8_t *b)
{
    /* Byte i as dword i, its four codes moved to the four bytes. */
    const __m512i three = _mm512_set1_epi8(3), one = _mm512_set1_epi8(1);
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(b + 2)));
    v = _mm512_or_si512(v, _mm512_slli_epi32(v, 12)); /* code 2 to bit 16, 3 to 18 */
    v = _mm512_or_si512(v, _mm512_slli_epi32(v, 6));  /* code 1 to bit 8, 3 to 24 */
    return _mm512_sub_epi8(_mm512_and_si512(v, three), one);
}

#endif
