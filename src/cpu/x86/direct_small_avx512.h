/* SPDX-License-Identifier: Apache-2.0 */
/* Scales and codes of blocks of 32 values, straight from the file's bytes, with AVX-512. Codes are
 * unsigned bytes, a constant of the type above the values. */
#ifndef STRATA_CPU_X86_DIRECT_SMALL_AVX512_H
#define STRATA_CPU_X86_DIRECT_SMALL_AVX512_H

#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/unpack_small.h"

/* Windows of three and four activation rows: direct_small_four_avx512.c. */
extern cpu_window_fn cpu_four_q4_0, cpu_four_q4_1, cpu_four_q5_0, cpu_four_q5_1, cpu_four_q8_0,
    cpu_four_iq4_nl, cpu_four_mxfp4, cpu_four_nvfp4, cpu_four_q2_0;

/* Four half floats, each at the start of a block. Put together in general registers: as eight small
 * stores they would hold up the load of the vector. */
INLINE uint64_t four_halves(const uint8_t *b, size_t block_bytes)
{
    return bytes_u16(b) | (uint64_t)bytes_u16(b + block_bytes) << 16 |
           (uint64_t)bytes_u16(b + 2 * block_bytes) << 32 |
           (uint64_t)bytes_u16(b + 3 * block_bytes) << 48;
}

/* The scales of a group of which `count` blocks exist; 0 for the others. */
INLINE __m128i eight_halves(const uint8_t *row, size_t block_bytes, int count)
{
    if (count >= 8)
        return _mm_set_epi64x((long long)four_halves(row + 4 * block_bytes, block_bytes),
                              (long long)four_halves(row, block_bytes));
    uint16_t d[8] = {0};
    for (int b = 0; b < count; b++)
        d[b] = bytes_u16(row + (size_t)b * block_bytes);
    return _mm_loadu_si128((const __m128i *)d);
}

/* MXFP4: the scales of a group as eight_halves, each from the first byte of its block: half of
 * 2^(byte - 127), whose bits are (byte - 1) << 23, or below the normal numbers 2^21 << byte. */
INLINE __m256 eight_powers(const uint8_t *row, size_t block_bytes, int count)
{
    uint64_t bytes = 0;
    for (int b = 0; b < 8 && b < count; b++)
        bytes |= (uint64_t)row[(size_t)b * block_bytes] << 8 * b;
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __mmask8 small = _mm256_cmplt_epi32_mask(e, _mm256_set1_epi32(2));
    bits = _mm256_mask_sllv_epi32(bits, small, _mm256_set1_epi32(0x00200000), e);
    __mmask8 there = (__mmask8)(count >= 8 ? 255 : (1 << count) - 1);
    return _mm256_castsi256_ps(_mm256_maskz_mov_epi32(there, bits));
}

/* What stands at the start of a block. */
enum block_scale {
    SCALE_HALF, /* d as a half float */
    SCALE_MIN,  /* d and the minimum */
    SCALE_POWER /* a power of two in one byte */
};

/* The scales of a group. */
INLINE __m256 eight_scales(const uint8_t *row, const int block_bytes, const enum block_scale scale,
                           int count)
{
    if (scale == SCALE_POWER)
        return eight_powers(row, (size_t)block_bytes, count);
    return _mm256_cvtph_ps(eight_halves(row, (size_t)block_bytes, count));
}

/* The minimums of a group, negative, of types with SCALE_MIN. */
INLINE __m256 eight_minimums(const uint8_t *row, const int block_bytes, int count)
{
    __m256 m = _mm256_cvtph_ps(eight_halves(row + 2, (size_t)block_bytes, count));
    return _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
}

/* Unsigned codes of two blocks. */
typedef __m512i codes_fn(const uint8_t *first, const uint8_t *second);

/* 32 nibbles of each of two blocks, whose 16 bytes start at a and b. */
INLINE __m512i two_nibbles(const uint8_t *a, const uint8_t *b)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)a));
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)b));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
}

INLINE __m512i codes_q4_0(const uint8_t *first, const uint8_t *second)
{
    return two_nibbles(first + 2, second + 2);
}

INLINE __m512i codes_q5_0(const uint8_t *first, const uint8_t *second)
{
    __mmask64 fifth = bytes_u32(first + 2) | (uint64_t)bytes_u32(second + 2) << 32;
    __m512i low = two_nibbles(first + 6, second + 6);
    return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
}

INLINE __m512i codes_q4_1(const uint8_t *first, const uint8_t *second)
{
    return two_nibbles(first + 4, second + 4);
}

INLINE __m512i codes_q5_1(const uint8_t *first, const uint8_t *second)
{
    __mmask64 fifth = bytes_u32(first + 4) | (uint64_t)bytes_u32(second + 4) << 32;
    __m512i low = two_nibbles(first + 8, second + 8);
    return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
}

INLINE __m512i codes_mxfp4(const uint8_t *first, const uint8_t *second)
{
    /* twice the sixteen values, + 12 */
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm512_shuffle_epi8(table, two_nibbles(first + 1, second + 1));
}

INLINE __m512i codes_q8_0(const uint8_t *first, const uint8_t *second)
{
    __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(first + 2)));
    __m512i both = _mm512_inserti64x4(low, _mm256_loadu_si256((const __m256i *)(second + 2)), 1);
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
}

/* The sixteen values + 128. */
INLINE __m128i iq4_nl_codes(void)
{
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153,
                         (char)166, (char)181, (char)197, (char)217, (char)241);
}

INLINE __m512i codes_iq4_nl(const uint8_t *first, const uint8_t *second)
{
    const __m512i table = _mm512_broadcast_i32x4(iq4_nl_codes());
    return _mm512_shuffle_epi8(table, two_nibbles(first + 2, second + 2));
}

/* Q2_0: 64 activations by planes: 4k + j goes to byte 16j + k. */
INLINE __m512i four_planes(const int16_t *q)
{
    const __m512i transpose =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i first = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q));
    __m256i second = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + 32));
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return _mm512_permutexvar_epi32(gather, _mm512_shuffle_epi8(v, transpose));
}

#endif
