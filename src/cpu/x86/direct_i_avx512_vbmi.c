/* SPDX-License-Identifier: Apache-2.0 */
/* IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS and IQ3_XXS times the activation rows of a window with AVX-512,
 * VNNI and VBMI (direct_avx512.h). Compiled twice, with gathers and without; without them IQ2_S and
 * IQ3_S too, which otherwise need no VBMI (direct_i_avx512.c).
 *
 * IQ1: with a code c = v + 1, a value is (2s + 1) * (8 * v +- 1). Where all 32 values of a scale
 * have the same sign (IQ1_S), this is 8 * (2s + 1) * c + (2s + 1) * (-8 +- 1): the first part is a
 * sum of products, the second needs the sums of activations alone. Where each eight values have
 * their sign (IQ1_M), it is (2s + 1) * (u - 9) with u = 8 * c, or 8 * c + 2 for plus. */
#include "cpu/x86/direct_i_avx512.h"

INLINE void take_iq1_s(const uint8_t *b, struct wide_block *out)
{
    i_codes_iq1(iq1_s_numbers(b), 0, out->codes);
    /* 8 * (2s + 1) and (2s + 1) * (-8 +- 1) of the eight groups. */
    __m128i words = i_load16(b + 34);
    __m128i factor = _mm_and_si128(_mm_srli_epi16(words, 8), _mm_set1_epi16(0x70));
    factor = _mm_or_si128(factor, _mm_set1_epi16(8));
    __m128i negative = _mm_srai_epi16(words, 15), one = _mm_srli_epi16(factor, 3);
    one = _mm_sub_epi16(_mm_xor_si128(one, negative), negative);
    out->offset = _mm256_castsi128_si256(_mm_sub_epi16(one, factor));
    __m256i twice = _mm256_cvtepu16_epi32(factor);
    out->scales = _mm512_castsi256_si512(_mm256_or_si256(twice, _mm256_slli_epi32(twice, 16)));
}

INLINE void take_iq1_m(const uint8_t *b, struct wide_block *out)
{
    __mmask32 negative;
    i_codes_iq1(iq1_m_numbers(b, &negative), 3, out->codes);
    out->scales = iq1_m_scales(b);
    out->offset = _mm256_mullo_epi16(_mm512_castsi512_si256(out->scales), _mm256_set1_epi16(-9));
    for (int j = 0; j < 4; j++)
        out->codes[j] = _mm512_mask_or_epi64(out->codes[j], (__mmask8)(~negative >> 8 * j),
                                             out->codes[j], _mm512_set1_epi8(2));
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
    i_rows_iq2_xxs(groups, out->codes);
    take_words(_mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 32)), out);
}

INLINE void take_iq3_xxs(const uint8_t *b, struct wide_block *out)
{
    i_rows_iq3_xxs(b + 2, out->codes);
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
    i_woven_iq2_xxs(groups, out->codes);
    __m256i bits = by_register(_mm512_multishift_epi64_epi8(sevens, groups), (int[]){0, 1, 2, 3});
    take_signs(complete_signs(_mm256_and_si256(bits, _mm256_set1_epi8(0x7f))), out);
    out->woven[0] = out->woven[1] = odd_scales(_mm512_multishift_epi64_epi8(scale, groups));
}

INLINE void take_woven_iq2_xs(const uint8_t *b, struct wide_block *out)
{
    __m512i q = _mm512_loadu_si512(b + 2);
    i_woven_iq2_xs(q, out->codes);
    take_signs(complete_signs(by_register(_mm512_srli_epi16(q, 9), (int[]){0, 2, 4, 6})), out);
    take_woven_scales(b + 66, out);
}

TAKE_I(iq2_xs)
DIRECT_WOVEN(iq2_xxs, .block_bytes = 66, .d_factor = 0.125f, .scale_32 = true, .bias = 64)
DIRECT_WOVEN(iq2_xs, .block_bytes = 74, .d_factor = 0.125f, .bias = 64)

#ifdef WITHOUT_GATHERS
DIRECT_I(iq2_s, .block_bytes = 82, .d_factor = 0.125f)
DIRECT_I(iq3_s, .block_bytes = 110, .d_factor = 1, .scale_32 = true)

void cpu_set_direct_i_avx512_lookup(struct cpu_matmul *m)
#else
void cpu_set_direct_i_avx512_vbmi(struct cpu_matmul *m)
#endif
{
    x86_codebooks_init();
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
#ifdef WITHOUT_GATHERS
    m->direct[TYPE_IQ2_S] = direct_iq2_s;
    m->window[TYPE_IQ2_S] = window_iq2_s;
    m->direct[TYPE_IQ3_S] = direct_iq3_s;
    m->window[TYPE_IQ3_S] = window_iq3_s;
#endif
}
