/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the codebook types taken apart with AVX-512 F, BW, VL, DQ: row numbers, rows, signs and
 * scales. What is done with them, unpack_i_avx512.c and direct_i_avx512.c say.
 *
 * The rows of a block are bytes, 64 values a register. Where they come from, i_rows_gather_avx512.h
 * and i_rows_lookup_avx512.h say; a file compiled with WITHOUT_GATHERS has the second. */
#ifndef STRATA_CPU_X86_I_BLOCKS_AVX512_H
#define STRATA_CPU_X86_I_BLOCKS_AVX512_H

#include "base/tensor_type.h"
#include "cpu/x86/scales.h"
#include "quant/codebooks.h"
#ifdef WITHOUT_GATHERS
#include "cpu/x86/i_rows_lookup_avx512.h"
#else
#include "cpu/x86/i_rows_gather_avx512.h"
#endif

/* IQ2 and IQ3: value i is rows byte i, negative where bit i of signs is 1, times scale i / 16. */
struct i_block {
    __m512i rows[4]; /* 64 unsigned bytes each */
    _Alignas(32) uint64_t signs[4];
    __m512i scales; /* 16 words in the lower half */
};

typedef void i_block_fn(const uint8_t *b, struct i_block *out);

static inline __m128i i_load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m256i i_load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Sign bytes of seven bits with the eighth bit that makes the number of ones even. */
static inline __m256i complete_signs(__m256i bits)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i folded = _mm256_xor_si256(bits, _mm256_srli_epi16(bits, 4));
    folded = _mm256_and_si256(folded, _mm256_set1_epi8(15));
    return _mm256_or_si256(bits, _mm256_shuffle_epi8(parity, folded));
}

/* a | (b & mask) */
static inline __m256i or_masked(__m256i a, __m256i b, int mask)
{
    return _mm256_ternarylogic_epi32(a, b, _mm256_set1_epi32(mask), 0xf8);
}

/* The scales 2s + 1 of eight groups, each for two times 16 values, from dwords 2s (+ 1). */
static inline __m512i scales_of_groups(__m256i doubled)
{
    __m256i scale = _mm256_or_si256(doubled, _mm256_set1_epi32(1));
    return _mm512_castsi256_si512(_mm256_or_si256(scale, _mm256_slli_epi32(scale, 16)));
}

/* IQ2_XXS, IQ3_XXS: signs and scales from the words w of the eight groups. */
static inline void split_words(__m256i w, struct i_block *out)
{
    __m256i bits = _mm256_and_si256(w, _mm256_set1_epi32(0x7f));
    bits = or_masked(bits, _mm256_slli_epi32(w, 1), 0x7f00);
    bits = or_masked(bits, _mm256_slli_epi32(w, 2), 0x7f0000);
    bits = or_masked(bits, _mm256_slli_epi32(w, 3), 0x7f000000);
    _mm256_store_si256((__m256i *)out->signs, complete_signs(bits));
    out->scales = scales_of_groups(_mm256_srli_epi32(w, 27));
}

/* Groups: four row numbers and w, each. */
static inline void i_block_iq2_xxs(const uint8_t *b, struct i_block *out)
{
    __m512i groups = _mm512_loadu_si512(b + 2);
    i_rows_iq2_xxs(groups, out->rows);
    split_words(_mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 32)), out);
}

/* IQ2_XS, IQ2_S: 16 scales 2s + 1 as words from eight bytes. */
static inline __m512i scales_iq2(const uint8_t *b)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)b);
    x = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4)); /* byte v: scale v in its lower half */
    x = _mm_and_si128(x, _mm_set1_epi8(15));
    x = _mm_or_si128(_mm_add_epi8(x, x), _mm_set1_epi8(1));
    return _mm512_castsi256_si512(_mm256_cvtepu8_epi16(x));
}

static inline void i_block_iq2_xs(const uint8_t *b, struct i_block *out)
{
    __m512i q = _mm512_loadu_si512(b + 2);
    i_rows_iq2_xs(q, out->rows);
    __m256i bits = _mm512_cvtepi16_epi8(_mm512_srli_epi16(q, 9));
    _mm256_store_si256((__m256i *)out->signs, complete_signs(bits));
    out->scales = scales_iq2(b + 66);
}

/* Lane t of 32 words: word t / 4 of x. */
static inline __m512i each_four_times(__m512i x)
{
    const __m512i index =
        _mm512_setr_epi32(0, 0, 0x10001, 0x10001, 0x20002, 0x20002, 0x30003, 0x30003, 0x40004,
                          0x40004, 0x50005, 0x50005, 0x60006, 0x60006, 0x70007, 0x70007);
    return _mm512_permutexvar_epi16(index, x);
}

/* Row numbers from 32 low bytes and, at bit 8 and above, the bits of `high` under `mask`. */
static inline __m512i row_numbers(const uint8_t *low, __m512i high, short mask)
{
    __m512i words = _mm512_cvtepu8_epi16(i_load32(low));
    return _mm512_ternarylogic_epi32(words, high, _mm512_set1_epi16(mask), 0xf8);
}

static inline void i_block_iq2_s(const uint8_t *b, struct i_block *out)
{
    const __m512i left = _mm512_set1_epi64(0x0002000400060008); /* bits 2(t % 4) go to 8 */
    __m128i high = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(b + 66)));
    __m512i spread = each_four_times(_mm512_castsi128_si512(high));
    i_rows_iq2_s(row_numbers(b + 2, _mm512_sllv_epi16(spread, left), 0x300), out->rows);
    memcpy(out->signs, b + 34, 32);
    out->scales = scales_iq2(b + 74);
}

static inline void i_block_iq3_xxs(const uint8_t *b, struct i_block *out)
{
    i_rows_iq3_xxs(b + 2, out->rows);
    split_words(i_load32(b + 66), out);
}

static inline void i_block_iq3_s(const uint8_t *b, struct i_block *out)
{
    const __m256i nibbles = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    uint64_t high;
    int32_t scales;
    memcpy(&high, b + 66, 8);
    memcpy(&scales, b + 106, 4);
    i_rows_iq3_s(b + 2, high, out->rows);
    memcpy(out->signs, b + 74, 32);
    __m256i s = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(scales), nibbles),
                                 _mm256_set1_epi32(15));
    out->scales = scales_of_groups(_mm256_add_epi32(s, s));
}

/* --- IQ1 --- */

/* Lane t: bits 3(t % 4) of the word, the lowest of them at 0. */
static inline __m512i shift_threes(__m512i words)
{
    return _mm512_srlv_epi16(words, _mm512_set1_epi64(0x0009000600030000));
}

/* The row numbers of an IQ1_S block. */
static inline __m512i iq1_s_numbers(const uint8_t *b)
{
    __m512i high = shift_threes(each_four_times(_mm512_castsi128_si512(i_load16(b + 34))));
    return row_numbers(b + 2, _mm512_slli_epi16(high, 8), 0x700);
}

/* Those of an IQ1_M block; bit t of `negative`: the delta of row t is. */
static inline __m512i iq1_m_numbers(const uint8_t *b, __mmask32 *negative)
{
    /* Nibble t to word t, at bit 8: three bits of the row number, and the sign of delta. */
    __m128i x = i_load16(b + 32), upper = _mm_srli_epi16(x, 4);
    __m256i nibbles = _mm256_set_m128i(_mm_unpackhi_epi8(x, upper), _mm_unpacklo_epi8(x, upper));
    __m512i high = _mm512_slli_epi16(_mm512_cvtepu8_epi16(nibbles), 8);
    *negative = _mm512_test_epi16_mask(high, _mm512_set1_epi16(0x800));
    return row_numbers(b, high, 0x700);
}

/* A byte for each value, by which a table with a value of each kind is looked up: bits 0 and 1 are 0, 1
 * and 3 for v = 0, 1 and -1, bit 2 says a negative delta. */
static inline void iq1_m_kinds(const uint8_t *b, __m512i kinds[4])
{
    __mmask32 negative;
    i_rows_iq1(iq1_m_numbers(b, &negative), kinds);
    for (int j = 0; j < 4; j++) {
        __mmask8 eight = (__mmask8)(negative >> 8 * j);
        kinds[j] = _mm512_and_si512(kinds[j], _mm512_set1_epi8(3));
        kinds[j] = _mm512_mask_or_epi64(kinds[j], eight, kinds[j], _mm512_set1_epi8(4));
    }
}

/* Its 16 scales 2s + 1 as words, each for 16 values, in the lower half. */
static inline __m512i iq1_m_scales(const uint8_t *b)
{
    uint64_t words;
    memcpy(&words, b + 48, 8);
    __m512i scales = shift_threes(each_four_times(_mm512_set1_epi64((int64_t)words)));
    scales = _mm512_and_si512(scales, _mm512_set1_epi16(7));
    return _mm512_or_si512(_mm512_add_epi16(scales, scales), _mm512_set1_epi16(1));
}

#endif
