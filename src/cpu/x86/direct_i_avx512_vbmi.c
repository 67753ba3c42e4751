/* SPDX-License-Identifier: Apache-2.0 */
/* IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS and IQ3_XXS times the activation rows of a window with AVX-512,
 * VNNI and VBMI (direct_avx512.h).
 *
 * IQ1: with a code c = v + 1, a value is (2s + 1) * (8 * v +- 1). Where all 32 values of a scale
 * have the same sign (IQ1_S), this is 8 * (2s + 1) * c + (2s + 1) * (-8 +- 1): the first part is a
 * sum of products, the second needs the sums of activations alone. Where each eight values have
 * their sign (IQ1_M), it is (2s + 1) * (u - 9) with u = 8 * c, or 8 * c + 2 for plus. */
#include "cpu/x86/direct_i_avx512.h"

/* The codes of rows 8j to 8j + 7, times 2^left, left 0 or 3. The 16 bits of a row fill a quadword
 * four times, so that value i can be taken left bits before its own two. */
INLINE __m512i codes_of_rows(const __m512i rows[2], int j, int left)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i two_bits = _mm512_set1_epi64(left ? 0x0b09070503013f3d : 0x0e0c0a0806040200);
    __m512i index = _mm512_add_epi32(twice, _mm512_set1_epi32(8 * (j % 2)));
    __m512i codes = _mm512_permutexvar_epi32(index, rows[j / 2]);
    codes = _mm512_multishift_epi64_epi8(two_bits, codes);
    return _mm512_and_si512(codes, _mm512_set1_epi8((char)(3 << left)));
}

INLINE void take_iq1_s(const uint8_t *b, struct wide_block *out)
{
    __m512i rows[2];
    iq1_s_rows(b, rows);
    /* 8 * (2s + 1) and (2s + 1) * (-8 +- 1) of the eight groups. */
    __m128i words = i_load16(b + 34);
    __m128i factor = _mm_and_si128(_mm_srli_epi16(words, 8), _mm_set1_epi16(0x70));
    factor = _mm_or_si128(factor, _mm_set1_epi16(8));
    __m128i negative = _mm_srai_epi16(words, 15), one = _mm_srli_epi16(factor, 3);
    one = _mm_sub_epi16(_mm_xor_si128(one, negative), negative);
    out->offset = _mm256_castsi128_si256(_mm_sub_epi16(one, factor));
    __m256i twice = _mm256_cvtepu16_epi32(factor);
    out->scales = _mm512_castsi256_si512(_mm256_or_si256(twice, _mm256_slli_epi32(twice, 16)));
    for (int j = 0; j < 4; j++)
        out->codes[j] = codes_of_rows(rows, j, 0);
}

INLINE void take_iq1_m(const uint8_t *b, struct wide_block *out)
{
    __m512i rows[2];
    __mmask32 plus = ~iq1_m_rows(b, rows);
    out->scales = iq1_m_scales(b);
    out->offset = _mm256_mullo_epi16(_mm512_castsi512_si256(out->scales), _mm256_set1_epi16(-9));
    for (int j = 0; j < 4; j++) {
        __mmask8 eight = (__mmask8)(plus >> 8 * j);
        __m512i codes = codes_of_rows(rows, j, 3);
        out->codes[j] = _mm512_mask_or_epi64(codes, eight, codes, _mm512_set1_epi8(2));
    }
}

DIRECT(iq1_s, order_of_file, .block_bytes = 50, .d_factor = 0.125f, .offset = 32, .scale_32 = true)
DIRECT(iq1_m, order_of_file, .block_bytes = 56, .d_at = D_OF_IQ1_M, .d_factor = 0.125f,
       .offset = 16)

/* As split_words: VBMI moves the sign bits of two groups to bytes in one instruction. */
INLINE void take_words(__m256i w, struct wide_block *out)
{
    _Alignas(32) uint64_t signs[4];
    const __m256i sevens = _mm256_set1_epi64x(0x352e2720150e0700);
    __m256i bits = _mm256_multishift_epi64_epi8(sevens, w);
    bits = _mm256_and_si256(bits, _mm256_set1_epi8(0x7f));
    _mm256_store_si256((__m256i *)signs, complete_signs(bits));
    for (int j = 0; j < 4; j++)
        out->negative[j] = signs[j];
    out->scales = scales_of_groups(_mm256_srli_epi32(w, 27));
}

INLINE void take_iq2_xxs(const uint8_t *b, struct wide_block *out)
{
    __m512i groups = _mm512_loadu_si512(b + 2);
    iq2_xxs_rows(groups, out->codes);
    take_words(_mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 32)), out);
}

INLINE void take_iq3_xxs(const uint8_t *b, struct wide_block *out)
{
    iq3_xxs_rows(b, out->codes);
    take_words(i_load32(b + 66), out);
}

DIRECT(iq3_xxs, order_of_file, .block_bytes = 98, .d_factor = 0.25f, .scale_32 = true, .bias = 64)

/* --- IQ2_XXS, IQ2_XS, woven: quadword t of a block has what quadword t of the codes needs --- */

/* Place 8m + t: byte first[m] of quadword t. */
INLINE __m256i by_register(__m512i bytes, const int first[4])
{
    const int64_t eights = 0x3830282018100800, ones = 0x0101010101010101;
    const __m256i index = _mm256_setr_epi64x(eights + ones * first[0], eights + ones * first[1],
                                             eights + ones * first[2], eights + ones * first[3]);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi8(_mm512_castsi256_si512(index), bytes));
}

/* Through memory: out of the register of the signs gcc would take them with shuffles. */
INLINE void take_signs(__m256i signs, struct wide_block *out)
{
    _Alignas(32) uint64_t of[4];
    _mm256_store_si256((__m256i *)of, signs);
    IN_MEMORY(of);
    for (int m = 0; m < 4; m++)
        out->negative[m] = of[m];
}

/* Words 2s + 1 from words with s in the bits 1 to 4. */
INLINE __m512i odd_scales(__m512i doubled)
{
    return _mm512_ternarylogic_epi64(doubled, _mm512_set1_epi16(0x1e), _mm512_set1_epi16(1), 0xea);
}

/* The eight bytes at b: byte t has the scale of registers 0 and 1, and that of 2 and 3. */
INLINE void take_woven_scales(const uint8_t *b, struct wide_block *out)
{
    const __m512i spread = _mm512_setr_epi64(
        0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303, 0x0404040404040404,
        0x0505050505050505, 0x0606060606060606, 0x0707070707070707);
    __m512i x = _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)b));
    x = _mm512_permutexvar_epi8(spread, x);
    out->woven[0] = odd_scales(_mm512_add_epi16(x, x));
    out->woven[1] = odd_scales(_mm512_srli_epi16(x, 3));
}

INLINE void take_woven_iq2_xxs(const uint8_t *b, struct wide_block *out)
{
    const __m512i sevens = _mm512_set1_epi64(0x352e2720), scale = _mm512_set1_epi16(0x3b);
    __m512i groups = _mm512_loadu_si512(b + 2);
    for (int m = 0; m < 4; m++) {
        __m512i number = _mm512_and_si512(_mm512_srli_epi64(groups, 8 * m), _mm512_set1_epi64(255));
        out->codes[m] = _mm512_i64gather_epi64(number, codebook_iq2xxs, 8);
    }
    __m256i bits = by_register(_mm512_multishift_epi64_epi8(sevens, groups), (int[]){0, 1, 2, 3});
    take_signs(complete_signs(_mm256_and_si256(bits, _mm256_set1_epi8(0x7f))), out);
    out->woven[0] = out->woven[1] = odd_scales(_mm512_multishift_epi64_epi8(scale, groups));
}

INLINE void take_woven_iq2_xs(const uint8_t *b, struct wide_block *out)
{
    __m512i q = _mm512_loadu_si512(b + 2);
    for (int m = 0; m < 4; m++) {
        __m512i number = _mm512_and_si512(_mm512_srli_epi64(q, 16 * m), _mm512_set1_epi64(511));
        out->codes[m] = _mm512_i64gather_epi64(number, codebook_iq2xs, 8);
    }
    take_signs(complete_signs(by_register(_mm512_srli_epi16(q, 9), (int[]){0, 2, 4, 6})), out);
    take_woven_scales(b + 66, out);
}

INLINE void take_iq2_xs(const uint8_t *b, struct wide_block *out)
{
    take_i(b, out, i_block_iq2_xs);
}

DIRECT_WOVEN(iq2_xxs, .block_bytes = 66, .d_factor = 0.125f, .scale_32 = true, .bias = 64)
DIRECT_WOVEN(iq2_xs, .block_bytes = 74, .d_factor = 0.125f, .bias = 64)

void cpu_set_direct_i_avx512_vbmi(struct cpu_matmul *m)
{
    x86_iq1_init();
    m->direct[TYPE_IQ2_XXS] = direct_iq2_xxs;
    m->window[TYPE_IQ2_XXS] = window_iq2_xxs;
    m->direct[TYPE_IQ2_XS] = direct_iq2_xs;
    m->window[TYPE_IQ2_XS] = window_iq2_xs;
    m->direct[TYPE_IQ3_XXS] = direct_iq3_xxs;
    m->window[TYPE_IQ3_XXS] = window_iq3_xxs;
    m->direct[TYPE_IQ1_S] = direct_iq1_s;
    m->window[TYPE_IQ1_S] = window_iq1_s;
    m->direct[TYPE_IQ1_M] = direct_iq1_m;
    m->window[TYPE_IQ1_M] = window_iq1_m;
}
