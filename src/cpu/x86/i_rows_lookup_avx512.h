/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of codebooks for a block of 256 values without gathers, with VBMI: the functions of
 * i_rows_gather_avx512.h. On Zen 5 gathers took three quarters of these kernels' time.
 *
 * Books of up to 512 rows are looked up in registers: a row is 16 bits, and one permutation chooses
 * among 64 rows for all 32 of a block. Rows of larger books are loaded one by one, their numbers
 * taken out of registers: by way of memory they would wait for the store. */
#ifndef STRATA_CPU_X86_I_ROWS_LOOKUP_AVX512_H
#define STRATA_CPU_X86_I_ROWS_LOOKUP_AVX512_H

#include <immintrin.h>

#include "cpu/x86/codebook_words.h"
#include "quant/codebooks.h"

/* --- in registers --- */

/* The words of 32 numbers; their bits from 8 on do not matter. */
static inline __m512i words_of_256(const uint16_t *book, __m512i numbers)
{
    __mmask32 bit6 = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(64));
    __mmask32 bit7 = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(128));
    __m512i w[4];
    for (int i = 0; i < 4; i++, book += 64)
        w[i] = _mm512_permutex2var_epi16(_mm512_load_si512(book), numbers,
                                         _mm512_load_si512(book + 32));
    w[0] = _mm512_mask_mov_epi16(w[0], bit6, w[1]);
    w[2] = _mm512_mask_mov_epi16(w[2], bit6, w[3]);
    return _mm512_mask_mov_epi16(w[0], bit7, w[2]);
}

/* The same; their bits from 9 on do not matter. */
static inline __m512i words_of_512(const uint16_t *book, __m512i numbers)
{
    __mmask32 bit8 = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(256));
    return _mm512_mask_mov_epi16(words_of_256(book, numbers), bit8,
                                 words_of_256(book + 256, numbers));
}

/* Eight values of two bits from word m of each quadword. */
static inline __m512i values_of_iq2(__m512i words, int m)
{
    const __m512i levels = _mm512_set1_epi32(0x002b1908); /* only the lowest two bits count */
    __m512i bits = _mm512_set1_epi64(0x0e0c0a0806040200 + m * 0x1010101010101010);
    return _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(bits, words), levels);
}

static inline void rows_of_iq2_words(__m512i words, __m512i rows[4])
{
    for (int j = 0; j < 4; j++) { /* row 8j + t to quadword t */
        __m512i of = _mm512_setr_epi64(8 * j, 8 * j + 1, 8 * j + 2, 8 * j + 3, 8 * j + 4, 8 * j + 5,
                                       8 * j + 6, 8 * j + 7);
        rows[j] = values_of_iq2(_mm512_permutexvar_epi16(of, words), 0);
    }
}

static inline __m512i words_of_groups(__m512i groups)
{
    return words_of_256(x86_codebooks.iq2_xxs,
                        _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(groups)));
}

static inline void i_rows_iq2_xxs(__m512i groups, __m512i rows[4])
{
    rows_of_iq2_words(words_of_groups(groups), rows);
}

static inline void i_rows_iq2_xs(__m512i q, __m512i rows[4])
{
    rows_of_iq2_words(words_of_512(x86_codebooks.iq2_xs, q), rows);
}

static inline void i_woven_iq2_xxs(__m512i groups, __m512i rows[4])
{
    __m512i words = words_of_groups(groups);
    for (int m = 0; m < 4; m++)
        rows[m] = values_of_iq2(words, m);
}

static inline void i_woven_iq2_xs(__m512i q, __m512i rows[4])
{
    __m512i words = words_of_512(x86_codebooks.iq2_xs, q);
    for (int m = 0; m < 4; m++)
        rows[m] = values_of_iq2(words, m);
}

/* Rows 16j to 16j + 15 of 32 words, as two words in each quadword. */
static inline __m512i two_words_each(__m512i words, int j)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_epi32(_mm512_add_epi32(twice, _mm512_set1_epi32(8 * j)), words);
}

static inline void i_rows_iq3_xxs(const uint8_t *numbers, __m512i rows[4])
{
    const __m512i bits = _mm512_set1_epi64(0x1916131009060300);
    const __m512i levels = _mm512_set1_epi64(0x3e342c241c140c04); /* only the lowest three count */
    for (int h = 0; h < 2; h++, numbers += 32) {
        __m512i n = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)numbers));
        __m512i words = words_of_256(x86_codebooks.iq3_xxs, n);
        for (int j = 0; j < 2; j++) {
            __m512i x = _mm512_multishift_epi64_epi8(bits, two_words_each(words, j));
            rows[2 * h + j] = _mm512_permutexvar_epi8(x, levels);
        }
    }
}

static inline void i_rows_iq3_s(const uint8_t *low, uint64_t high, __m512i rows[4])
{
    const __m512i bits = _mm512_set1_epi64(0x1815120f0805023f); /* each number one to the left */
    for (int h = 0; h < 2; h++, low += 32) {
        __m512i n = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)low));
        __mmask32 bit8 = (__mmask32)(high >> 32 * h);
        n = _mm512_mask_add_epi16(n, bit8, n, _mm512_set1_epi16(256));
        __m512i words = words_of_512(x86_codebooks.iq3_s, n);
        for (int j = 0; j < 2; j++) { /* 2 * number + 1 */
            __m512i x = _mm512_multishift_epi64_epi8(bits, two_words_each(words, j));
            rows[2 * h + j] = _mm512_ternarylogic_epi64(x, _mm512_set1_epi8(14),
                                                        _mm512_set1_epi8(1), 0xea);
        }
    }
}

/* --- from memory --- */

static inline __m128i two_rows(const uint64_t *grid, uint64_t first, uint64_t second)
{
    __m128i row = _mm_loadl_epi64((const __m128i *)(grid + first));
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(row), (const __m64 *)(grid + second)));
}

/* Four, whose numbers are the words of n. */
static inline __m256i four_rows(const uint64_t *grid, uint64_t n)
{
    return _mm256_set_m128i(two_rows(grid, (uint16_t)(n >> 32), n >> 48),
                            two_rows(grid, (uint16_t)n, (uint16_t)(n >> 16)));
}

static inline void load_rows(const uint64_t *grid, __m512i numbers, __m512i rows[4])
{
    const __m128i n[4] = {
        _mm512_castsi512_si128(numbers), _mm512_extracti32x4_epi32(numbers, 1),
        _mm512_extracti32x4_epi32(numbers, 2), _mm512_extracti32x4_epi32(numbers, 3)};
    for (int j = 0; j < 4; j++) {
        __m256i low = four_rows(grid, (uint64_t)_mm_cvtsi128_si64(n[j]));
        __m256i high = four_rows(grid, (uint64_t)_mm_extract_epi64(n[j], 1));
        rows[j] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
}

static inline void i_rows_iq2_s(__m512i numbers, __m512i rows[4])
{
    load_rows(codebook_iq2s, numbers, rows);
}

static inline void i_rows_iq1(__m512i numbers, __m512i rows[4])
{
    load_rows(codebook_iq1s, numbers, rows);
}

static inline void i_codes_iq1(__m512i numbers, int left, __m512i codes[4])
{
    load_rows(codebook_iq1s, numbers, codes);
    for (int j = 0; j < 4; j++)
        codes[j] = _mm512_slli_epi16(_mm512_add_epi8(codes[j], _mm512_set1_epi8(1)), left);
}

#endif
