/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of codebooks for a block of 256 values, gathered from memory. i_rows_lookup_avx512.h has the
 * same functions for processors whose gathers are slow.
 *
 * All gathers of a block come before its other work: on the Xeon this was written on, gathers
 * between mask instructions took half as long again. */
#ifndef STRATA_CPU_X86_I_ROWS_GATHER_AVX512_H
#define STRATA_CPU_X86_I_ROWS_GATHER_AVX512_H

#include <immintrin.h>

#include "cpu/x86/codebook_words.h"
#include "quant/codebooks.h"

/* Two vectors of dwords from the 32 words of x. */
static inline void widen(__m512i x, __m512i out[2])
{
    out[0] = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(x));
    out[1] = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, 1));
}

/* All 32 rows of a block, eight values each, for row numbers as words. */
static inline void gather_rows(const uint64_t *grid, __m512i words, __m512i rows[4])
{
    __m512i numbers[2];
    widen(words, numbers);
    for (int i = 0; i < 2; i++) {
        __m256i low = _mm512_castsi512_si256(numbers[i]);
        __m256i high = _mm512_extracti64x4_epi64(numbers[i], 1);
        rows[2 * i] = _mm512_i32gather_epi64(low, grid, 8);
        rows[2 * i + 1] = _mm512_i32gather_epi64(high, grid, 8);
    }
}

/* Groups: four row numbers and 32 other bits, each. */
static inline void i_rows_iq2_xxs(__m512i groups, __m512i rows[4])
{
    gather_rows(codebook_iq2xxs, _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(groups)), rows);
}

/* Row numbers in the lower nine bits of words. */
static inline void i_rows_iq2_xs(__m512i q, __m512i rows[4])
{
    gather_rows(codebook_iq2xs, _mm512_and_si512(q, _mm512_set1_epi16(511)), rows);
}

static inline void i_rows_iq2_s(__m512i numbers, __m512i rows[4])
{
    gather_rows(codebook_iq2s, numbers, rows);
}

static inline void i_rows_iq3_xxs(const uint8_t *numbers, __m512i rows[4])
{
    for (int j = 0; j < 4; j++, numbers += 16) {
        __m512i n = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)numbers));
        rows[j] = _mm512_i32gather_epi32(n, codebook_iq3xxs, 4);
    }
}

/* Bit 8 of number i is bit i of `high`. */
static inline void i_rows_iq3_s(const uint8_t *low, uint64_t high, __m512i rows[4])
{
    for (int j = 0; j < 4; j++, low += 16) {
        __m512i n = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)low));
        n = _mm512_mask_add_epi32(n, (__mmask16)(high >> 16 * j), n, _mm512_set1_epi32(256));
        rows[j] = _mm512_i32gather_epi32(n, codebook_iq3s, 4);
    }
}

/* Values -1, 0 and 1. */
static inline void i_rows_iq1(__m512i numbers, __m512i rows[4])
{
    gather_rows(codebook_iq1s, numbers, rows);
}

/* The same rows, two bits a value, twice in each dword. */
static inline void gather_iq1_words(__m512i words, __m512i rows[2])
{
    __m512i numbers[2];
    widen(words, numbers);
    rows[0] = _mm512_i32gather_epi32(numbers[0], x86_iq1.rows, 4);
    rows[1] = _mm512_i32gather_epi32(numbers[1], x86_iq1.rows, 4);
}

#ifdef __AVX512VBMI__
/* Codes v + 1 times 2^left, left 0 or 3. The 16 bits of a row fill a quadword four times, so that value i
 * can be taken left bits before its own two. */
static inline void i_codes_iq1(__m512i numbers, int left, __m512i codes[4])
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i two_bits = _mm512_set1_epi64(left ? 0x0b09070503013f3d : 0x0e0c0a0806040200);
    __m512i rows[2];
    gather_iq1_words(numbers, rows);
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_add_epi32(twice, _mm512_set1_epi32(8 * (j % 2)));
        codes[j] = _mm512_permutexvar_epi32(index, rows[j / 2]);
        codes[j] = _mm512_multishift_epi64_epi8(two_bits, codes[j]);
        codes[j] = _mm512_and_si512(codes[j], _mm512_set1_epi8((char)(3 << left)));
    }
}
#endif

/* Woven: quadword t of register m is row 4t + m. */
static inline void i_woven_iq2_xxs(__m512i groups, __m512i rows[4])
{
    for (int m = 0; m < 4; m++) {
        __m512i number = _mm512_and_si512(_mm512_srli_epi64(groups, 8 * m), _mm512_set1_epi64(255));
        rows[m] = _mm512_i64gather_epi64(number, codebook_iq2xxs, 8);
    }
}

static inline void i_woven_iq2_xs(__m512i q, __m512i rows[4])
{
    for (int m = 0; m < 4; m++) {
        __m512i number = _mm512_and_si512(_mm512_srli_epi64(q, 16 * m), _mm512_set1_epi64(511));
        rows[m] = _mm512_i64gather_epi64(number, codebook_iq2xs, 8);
    }
}

#endif
