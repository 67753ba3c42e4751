/* SPDX-License-Identifier: Apache-2.0 */
/* IQ1_S times one to four activation rows with AVX-512, VNNI and VBMI (direct_avx512.h).
 *
 * With a code c = v + 1, a value is (2s + 1) * (8 * v +- 1) = 8 * (2s + 1) * c + (2s + 1) * (-8 +-
 * 1): the first part is a sum of products, the second needs the sums of activations alone. */
#include "cpu/x86/direct_avx512.h"
#include "cpu/x86/i_blocks_avx512.h"

INLINE struct block_sums block_iq1_s(const uint8_t *b, const struct activations *x, int k)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i two_bits = _mm512_set1_epi64(0x0e0c0a0806040200); /* of value j to byte j */
    __m512i rows[2];
    iq1_s_rows(b, rows);
    /* 8 * (2s + 1) and (2s + 1) * (-8 +- 1) of the eight groups. */
    __m128i words = i_load16(b + 34);
    __m128i factor = _mm_and_si128(_mm_srli_epi16(words, 8), _mm_set1_epi16(0x70));
    factor = _mm_or_si128(factor, _mm_set1_epi16(8));
    __m128i negative = _mm_srai_epi16(words, 15), one = _mm_srli_epi16(factor, 3);
    one = _mm_sub_epi16(_mm_xor_si128(one, negative), negative);
    __m128i sums = _mm_load_si128((const __m128i *)(x->bsum32 + 8 * k));
    __m128i rest = _mm_madd_epi16(_mm_sub_epi16(one, factor), sums);
    __m512i factors = _mm512_castsi128_si512(factor);
    __m512i sum[2] = {_mm512_zextsi128_si512(rest), _mm512_setzero_si512()};
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_add_epi32(twice, _mm512_set1_epi32(8 * (j % 2)));
        __m512i codes = _mm512_permutexvar_epi32(index, rows[j / 2]);
        codes = _mm512_multishift_epi64_epi8(two_bits, codes);
        codes = _mm512_and_si512(codes, _mm512_set1_epi8(3));
        codes = _mm512_maddubs_epi16(codes, _mm512_load_si512(x->q + 256 * k + 64 * j));
        sum[j % 2] = multiply_add(sum[j % 2], codes, two_scales(factors, 2 * j, 2 * j + 1));
    }
    return (struct block_sums){.sum = _mm512_add_epi32(sum[0], sum[1])};
}

BLOCKS(iq1_s)
DIRECT(iq1_s, order_of_file, 50, 0, 0.125f, false)

void cpu_set_direct_iq1_avx512_vbmi(struct cpu_matmul *m)
{
    x86_iq1_init();
    m->direct[TYPE_IQ1_S] = direct_iq1_s;
    m->window[TYPE_IQ1_S] = window_iq1_s;
}
