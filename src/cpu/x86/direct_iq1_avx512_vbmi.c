/* SPDX-License-Identifier: Apache-2.0 */
/* IQ1_S and IQ1_M times one to four activation rows with AVX-512, VNNI and VBMI (direct_avx512.h).
 *
 * With a code c = v + 1, a value is (2s + 1) * (8 * v +- 1). Where all 32 values of a scale have
 * the same sign (IQ1_S), this is 8 * (2s + 1) * c + (2s + 1) * (-8 +- 1): the first part is a sum
 * of products, the second needs the sums of activations alone. Where each eight values have their
 * sign (IQ1_M), it is (2s + 1) * (u - 9) with u = 8 * c, or 8 * c + 2 for plus. */
#include "cpu/x86/direct_avx512.h"
#include "cpu/x86/i_blocks_avx512.h"

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

/* The products of a block's codes and scales for all rows; first[r] is what row r starts with. */
INLINE void add_products(const __m512i codes[4], const __m512i scales[4], const __m512i *first,
                         const struct activations *x, int k, int rows, struct group_sums *out,
                         int at)
{
    for (int r = 0; r < rows; r++) {
        __m512i sum[2] = {first[r], _mm512_setzero_si512()};
        for (int j = 0; j < 4; j++) {
            __m512i q = _mm512_load_si512(x[r].q + 256 * k + 64 * j);
            sum[j % 2] = multiply_add(sum[j % 2], _mm512_maddubs_epi16(codes[j], q), scales[j]);
        }
        out->sum[r][at] = _mm512_add_epi32(sum[0], sum[1]);
    }
}

INLINE void blocks_iq1_s(const uint8_t *b, const struct activations *x, int k, int n_rows,
                         struct group_sums *out, int at)
{
    __m512i rows[2], codes[4], scales[4], first[DIRECT_ROWS];
    iq1_s_rows(b, rows);
    /* 8 * (2s + 1) and (2s + 1) * (-8 +- 1) of the eight groups. */
    __m128i words = i_load16(b + 34);
    __m128i factor = _mm_and_si128(_mm_srli_epi16(words, 8), _mm_set1_epi16(0x70));
    factor = _mm_or_si128(factor, _mm_set1_epi16(8));
    __m128i negative = _mm_srai_epi16(words, 15), one = _mm_srli_epi16(factor, 3);
    one = _mm_sub_epi16(_mm_xor_si128(one, negative), negative);
    for (int j = 0; j < 4; j++) {
        codes[j] = codes_of_rows(rows, j, 0);
        scales[j] = two_scales(_mm512_castsi128_si512(factor), 2 * j, 2 * j + 1);
    }
    for (int r = 0; r < n_rows; r++) {
        __m128i sums = _mm_load_si128((const __m128i *)(x[r].bsum32 + 8 * k));
        first[r] = _mm512_zextsi128_si512(_mm_madd_epi16(_mm_sub_epi16(one, factor), sums));
    }
    add_products(codes, scales, first, x, k, n_rows, out, at);
}

INLINE void blocks_iq1_m(const uint8_t *b, const struct activations *x, int k, int n_rows,
                         struct group_sums *out, int at)
{
    __m512i rows[2], codes[4], scales[4], first[DIRECT_ROWS];
    __mmask32 plus = ~iq1_m_rows(b, rows);
    __m256i words = _mm512_castsi512_si256(iq1_m_scales(b));
    for (int j = 0; j < 4; j++) {
        __mmask8 eight = (__mmask8)(plus >> 8 * j);
        codes[j] = codes_of_rows(rows, j, 3);
        codes[j] = _mm512_mask_or_epi64(codes[j], eight, codes[j], _mm512_set1_epi8(2));
        scales[j] = four_scales(_mm512_castsi256_si512(words), 4 * j);
    }
    __m256i nine = _mm256_mullo_epi16(words, _mm256_set1_epi16(-9));
    for (int r = 0; r < n_rows; r++)
        first[r] = _mm512_zextsi256_si512(_mm256_madd_epi16(nine, load16(x[r].bsum16 + 16 * k)));
    add_products(codes, scales, first, x, k, n_rows, out, at);
}

DIRECT(iq1_s, order_of_file, 50, 0, 0.125f, false)
DIRECT(iq1_m, order_of_file, 56, D_OF_IQ1_M, 0.125f, false)

void cpu_set_direct_iq1_avx512_vbmi(struct cpu_matmul *m)
{
    x86_iq1_init();
    m->direct[TYPE_IQ1_S] = direct_iq1_s;
    m->window[TYPE_IQ1_S] = window_iq1_s;
    m->direct[TYPE_IQ1_M] = direct_iq1_m;
    m->window[TYPE_IQ1_M] = window_iq1_m;
}
