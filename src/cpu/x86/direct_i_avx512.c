/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types times one activation row with AVX-512 (direct_avx512.h). Compiled twice, with VNNI
 * and without. A weight's sign goes to its activation, since the values of a grid are unsigned. */
#include "cpu/x86/direct_avx512.h"
#include "cpu/x86/i_blocks_avx512.h"

INLINE struct block_sums block_i(const uint8_t *b, const struct activations *x, int k,
                                 i_block_fn *take_apart)
{
    const __m512i zero = _mm512_setzero_si512();
    struct i_block block;
    __m512i sum[2] = {zero, zero};
    take_apart(b, &block);
    for (int j = 0; j < 4; j++) {
        __m512i q = _mm512_load_si512(x->q + 256 * k + 64 * j);
        q = _mm512_mask_sub_epi8(q, block.signs[j], zero, q);
        __m512i products = _mm512_maddubs_epi16(block.rows[j], q);
        sum[j % 2] = multiply_add(sum[j % 2], products, four_scales(block.scales, 4 * j));
    }
    return (struct block_sums){.sum = _mm512_add_epi32(sum[0], sum[1])};
}

INLINE struct block_sums block_iq2_xxs(const uint8_t *b, const struct activations *x, int k)
{
    return block_i(b, x, k, i_block_iq2_xxs);
}

INLINE struct block_sums block_iq2_xs(const uint8_t *b, const struct activations *x, int k)
{
    return block_i(b, x, k, i_block_iq2_xs);
}

INLINE struct block_sums block_iq2_s(const uint8_t *b, const struct activations *x, int k)
{
    return block_i(b, x, k, i_block_iq2_s);
}

INLINE struct block_sums block_iq3_xxs(const uint8_t *b, const struct activations *x, int k)
{
    return block_i(b, x, k, i_block_iq3_xxs);
}

INLINE struct block_sums block_iq3_s(const uint8_t *b, const struct activations *x, int k)
{
    return block_i(b, x, k, i_block_iq3_s);
}

/* Signed codes: a weight's sign goes to its activation here too, and 2 * 127 * 127 fits 16 bits. */
INLINE struct block_sums block_iq4_xs(const uint8_t *b, const struct activations *x, int k)
{
    const __m512i table = _mm512_broadcast_i32x4(i_load16(codebook_iq4nl));
    const __m512i right = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i twice = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), zero = _mm512_setzero_si512();
    _Alignas(32) int32_t pairs[8];
    __m512i sum[2] = {zero, zero};
    x86_iq4_xs_scale_pairs(b, pairs);
    for (int j = 0; j < 4; j++) {
        /* 16 bytes: 16 low nibbles, then 16 high ones. */
        __m512i v = _mm512_castsi256_si512(i_load32(b + 8 + 32 * j));
        v = _mm512_srlv_epi64(_mm512_permutexvar_epi64(twice, v), right);
        v = _mm512_shuffle_epi8(table, _mm512_and_si512(v, _mm512_set1_epi8(15)));
        __m512i q = _mm512_load_si512(x->q + 256 * k + 64 * j);
        q = _mm512_mask_sub_epi8(q, _mm512_movepi8_mask(v), zero, q);
        __m512i scales = _mm512_inserti64x4(_mm512_set1_epi32(pairs[2 * j]),
                                            _mm256_set1_epi32(pairs[2 * j + 1]), 1);
        sum[j % 2] =
            multiply_add(sum[j % 2], _mm512_maddubs_epi16(_mm512_abs_epi8(v), q), scales);
    }
    return (struct block_sums){.sum = _mm512_add_epi32(sum[0], sum[1])};
}

DIRECT(iq2_xxs, order_of_file, 66, 0, 0.125f, false)
DIRECT(iq2_xs, order_of_file, 74, 0, 0.125f, false)
DIRECT(iq2_s, order_of_file, 82, 0, 0.125f, false)
DIRECT(iq3_xxs, order_of_file, 98, 0, 0.25f, false)
DIRECT(iq3_s, order_of_file, 110, 0, 1, false)
DIRECT(iq4_xs, order_of_file, 136, 0, 1, false)

#ifdef __AVX512VNNI__
void cpu_set_direct_i_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_direct_i_avx512(struct cpu_matmul *m)
#endif
{
    m->direct[TYPE_IQ2_XXS] = direct_iq2_xxs;
    m->direct[TYPE_IQ2_XS] = direct_iq2_xs;
    m->direct[TYPE_IQ2_S] = direct_iq2_s;
    m->direct[TYPE_IQ3_XXS] = direct_iq3_xxs;
    m->direct[TYPE_IQ3_S] = direct_iq3_s;
    m->direct[TYPE_IQ4_XS] = direct_iq4_xs;
}
