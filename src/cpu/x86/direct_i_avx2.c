/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types times one to four activation rows with AVX2 (direct_avx2.h). A weight's sign goes to
 * its activation, since one factor of a product of bytes is unsigned. A block is taken apart once for
 * all rows. Compiled twice, with gathers and without (i_blocks_avx2.h). */
#include "cpu/x86/direct_avx2.h"
#include "cpu/x86/i_blocks_avx2.h"
#include "cpu/x86/unpack_small.h"

/* sums[r] += group g of block k: values with signs (signs: any with the sign, where a value is not 0)
 * times activations and scales. */
INLINE void add_group(__m256i values, __m256i signs, __m256i scale, const struct activations *x,
                      int k, int g, int rows, __m256i *sums)
{
    for (int r = 0; r < rows; r++) {
        __m256i q = _mm256_load_si256((const __m256i *)(x[r].q + 256 * k + 32 * g));
        __m256i products = _mm256_maddubs_epi16(values, _mm256_sign_epi8(q, signs));
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(products, scale));
    }
}

INLINE void blocks_i(const uint8_t *b, const struct activations *x, int k, int rows,
                     struct group_sums *out, int at, const bool wide, i_block_fn *take_apart)
{
    _Alignas(32) int32_t pairs[16];
    __m256i sums[DIRECT_ROWS];
    struct i_block block;
    take_apart(b, &block);
    x86_store_pairs(pairs, block.scales);
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_setzero_si256();
    for (int g = 0; g < 8; g++)
        add_group(block.values[g], block.signs[g],
                  wide ? _mm256_set1_epi32(pairs[2 * g]) : two_scales(pairs, g), x, k, g, rows,
                  sums);
    for (int r = 0; r < rows; r++)
        out->sum[r][at] = sums[r];
}

/* blocks_TYPE, direct_TYPE and window_TYPE. wide: a scale for 32 values. */
#define DIRECT_I(name, wide, ...)                                                                  \
    INLINE void blocks_##name(const uint8_t *b, const struct activations *x, int k, int rows,      \
                              struct group_sums *out, int at)                                      \
    {                                                                                              \
        blocks_i(b, x, k, rows, out, at, wide, i_block_##name);                                    \
    }                                                                                              \
    DIRECT_AND_WINDOW(name, __VA_ARGS__)

/* (2s + 1) * (8 * v +- 1): the products of v, and sums of activations for the rest. */
INLINE void blocks_iq1_s(const uint8_t *b, const struct activations *x, int k, int rows,
                         struct group_sums *out, int at)
{
    _Alignas(32) int32_t pairs[16];
    __m256i sums[DIRECT_ROWS];
    __m128i words = i_load16(b + 34); /* bits 12 to 14: s, bit 15: a negative delta */
    __m128i scale = _mm_and_si128(_mm_srli_epi16(words, 11), _mm_set1_epi16(14));
    scale = _mm_or_si128(scale, _mm_set1_epi16(1));
    __m128i negative = _mm_srai_epi16(words, 15);
    __m128i delta = _mm_sub_epi16(_mm_xor_si128(scale, negative), negative);
    __m256i deltas = _mm256_set_m128i(_mm_unpackhi_epi16(delta, delta),
                                      _mm_unpacklo_epi16(delta, delta));
    scale = _mm_slli_epi16(scale, 3);
    i_store_twice(pairs, _mm256_set_m128i(scale, scale));
    for (int r = 0; r < rows; r++)
        sums[r] = times_sums(deltas, &x[r], k);
    for (int p = 0; p < 4; p++) {
        __m256i v[2];
        iq1_s_rows(b, p, v);
        for (int i = 0; i < 2; i++)
            add_group(_mm256_set1_epi8(1), v[i], _mm256_set1_epi32(pairs[2 * p + i]), x, k,
                      2 * p + i, rows, sums);
    }
    for (int r = 0; r < rows; r++)
        out->sum[r][at] = sums[r];
}

/* (2s + 1) * (8 * v +- 1) too; each eight values have their sign of 1. */
INLINE void blocks_iq1_m(const uint8_t *b, const struct activations *x, int k, int rows,
                         struct group_sums *out, int at)
{
    const __m256i one = _mm256_set1_epi16(1);
    _Alignas(32) int32_t pairs[16];
    __m256i sums[DIRECT_ROWS], scales = iq1_m_scales(bytes_u64(b + 48));
    i_store_twice(pairs, _mm256_slli_epi16(scales, 3));
    /* Bit 3 of a row's nibble says a negative delta; a byte has an even row and an odd one. */
    __m256i two = _mm256_cvtepu8_epi16(i_load16(b + 32));
    __m256i even = _mm256_or_si256(_mm256_slli_epi16(two, 12), one);
    __m256i odd = _mm256_or_si256(_mm256_slli_epi16(two, 8), one);
    for (int r = 0; r < rows; r++) {
        const int16_t *eights = x[r].bsum8 + 32 * k;
        __m256i delta = _mm256_add_epi16(_mm256_sign_epi16(load16(eights), even),
                                         _mm256_sign_epi16(load16(eights + 16), odd));
        sums[r] = _mm256_madd_epi16(delta, scales);
    }
    for (int p = 0; p < 4; p++) {
        __m256i v[2];
        iq1_m_rows(b, p, v);
        for (int i = 0; i < 2; i++)
            add_group(_mm256_set1_epi8(1), v[i], two_scales(pairs, 2 * p + i), x, k, 2 * p + i,
                      rows, sums);
    }
    for (int r = 0; r < rows; r++)
        out->sum[r][at] = sums[r];
}

/* Two products fit 16 bits: 2 * 127 * 127. */
INLINE void blocks_iq4_xs(const uint8_t *b, const struct activations *x, int k, int rows,
                          struct group_sums *out, int at)
{
    const __m256i table = _mm256_broadcastsi128_si256(i_load16(codebook_iq4nl));
    _Alignas(32) int32_t pairs[8];
    __m256i sums[DIRECT_ROWS];
    x86_iq4_xs_scale_pairs(b, pairs);
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_setzero_si256();
    for (int g = 0; g < 8; g++) {
        __m256i codes = _mm256_shuffle_epi8(table, nibbles(b + 8 + 16 * g));
        add_group(_mm256_abs_epi8(codes), codes, _mm256_set1_epi32(pairs[g]), x, k, g, rows, sums);
    }
    for (int r = 0; r < rows; r++)
        out->sum[r][at] = sums[r];
}

DIRECT_I(iq2_xxs, true, 66, 0, 0.125f, false)
DIRECT_I(iq2_xs, false, 74, 0, 0.125f, false)
DIRECT_I(iq2_s, false, 82, 0, 0.125f, false)
DIRECT_I(iq3_xxs, true, 98, 0, 0.25f, false)
DIRECT_I(iq3_s, true, 110, 0, 1, false)
DIRECT_AND_WINDOW(iq1_s, 50, 0, 0.125f, false)
DIRECT_AND_WINDOW(iq1_m, 56, D_OF_IQ1_M, 0.125f, false)
DIRECT_AND_WINDOW(iq4_xs, 136, 0, 1, false)

#ifdef WITHOUT_GATHERS
void cpu_set_direct_i_avx2_loads(struct cpu_matmul *m)
#else
void cpu_set_direct_i_avx2(struct cpu_matmul *m)
#endif
{
    m->direct[TYPE_IQ2_XXS] = direct_iq2_xxs;
    m->window[TYPE_IQ2_XXS] = window_iq2_xxs;
    m->direct[TYPE_IQ2_XS] = direct_iq2_xs;
    m->window[TYPE_IQ2_XS] = window_iq2_xs;
    m->direct[TYPE_IQ2_S] = direct_iq2_s;
    m->window[TYPE_IQ2_S] = window_iq2_s;
    m->direct[TYPE_IQ3_XXS] = direct_iq3_xxs;
    m->window[TYPE_IQ3_XXS] = window_iq3_xxs;
    m->direct[TYPE_IQ3_S] = direct_iq3_s;
    m->window[TYPE_IQ3_S] = window_iq3_s;
    m->direct[TYPE_IQ1_S] = direct_iq1_s;
    m->window[TYPE_IQ1_S] = window_iq1_s;
    m->direct[TYPE_IQ1_M] = direct_iq1_m;
    m->window[TYPE_IQ1_M] = window_iq1_m;
    m->direct[TYPE_IQ4_XS] = direct_iq4_xs;
    m->window[TYPE_IQ4_XS] = window_iq4_xs;
}
