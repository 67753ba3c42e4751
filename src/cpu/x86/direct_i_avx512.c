/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types times one to four activation rows with AVX-512 (direct_avx512.h). Compiled twice,
 * with VNNI and without. A weight's sign goes to its activation, since the values of a grid are
 * unsigned. */
#include "cpu/x86/direct_avx512.h"
#include "cpu/x86/i_blocks_avx512.h"

INLINE void blocks_i(const uint8_t *b, const struct activations *x, int k, int rows,
                     struct group_sums *out, int at, i_block_fn *take_apart)
{
    const __m512i zero = _mm512_setzero_si512();
    struct i_block block;
    __m512i scales[4];
    __mmask64 negative[4];
    take_apart(b, &block);
    for (int j = 0; j < 4; j++) {
        scales[j] = four_scales(block.scales, 4 * j);
        negative[j] = block.signs[j];
    }
    for (int r = 0; r < rows; r++) {
        __m512i sum[2] = {zero, zero};
        for (int j = 0; j < 4; j++) {
            __m512i q = _mm512_load_si512(x[r].q + 256 * k + 64 * j);
            q = _mm512_mask_sub_epi8(q, negative[j], zero, q);
            __m512i products = _mm512_maddubs_epi16(block.rows[j], q);
            sum[j % 2] = multiply_add(sum[j % 2], products, scales[j]);
        }
        out->sum[r][at] = _mm512_add_epi32(sum[0], sum[1]);
    }
}

/* blocks_TYPE, direct_TYPE and window_TYPE. */
#define DIRECT_I(name, ...)                                                                        \
    INLINE void blocks_##name(const uint8_t *b, const struct activations *x, int k, int rows,      \
                              struct group_sums *out, int at)                                      \
    {                                                                                              \
        blocks_i(b, x, k, rows, out, at, i_block_##name);                                          \
    }                                                                                              \
    DIRECT(name, order_of_file, __VA_ARGS__)

/* Signed codes: a weight's sign goes to its activation here too, and 2 * 127 * 127 fits 16 bits. */
INLINE void blocks_iq4_xs(const uint8_t *b, const struct activations *x, int k, int rows,
                          struct group_sums *out, int at)
{
    const __m512i table = _mm512_broadcast_i32x4(i_load16(codebook_iq4nl));
    const __m512i right = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i twice = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), zero = _mm512_setzero_si512();
    _Alignas(32) int32_t pairs[8];
    __m512i sum[DIRECT_ROWS][2];
    x86_iq4_xs_scale_pairs(b, pairs);
    for (int j = 0; j < 4; j++) {
        /* 16 bytes: 16 low nibbles, then 16 high ones. */
        __m512i v = _mm512_castsi256_si512(i_load32(b + 8 + 32 * j));
        v = _mm512_srlv_epi64(_mm512_permutexvar_epi64(twice, v), right);
        v = _mm512_shuffle_epi8(table, _mm512_and_si512(v, _mm512_set1_epi8(15)));
        __m512i scales = _mm512_inserti64x4(_mm512_set1_epi32(pairs[2 * j]),
                                            _mm256_set1_epi32(pairs[2 * j + 1]), 1);
        __mmask64 negative = _mm512_movepi8_mask(v);
        v = _mm512_abs_epi8(v);
        for (int r = 0; r < rows; r++) {
            __m512i q = _mm512_load_si512(x[r].q + 256 * k + 64 * j);
            q = _mm512_mask_sub_epi8(q, negative, zero, q);
            __m512i before = j < 2 ? zero : sum[r][j % 2];
            sum[r][j % 2] = multiply_add(before, _mm512_maddubs_epi16(v, q), scales);
        }
    }
    for (int r = 0; r < rows; r++)
        out->sum[r][at] = _mm512_add_epi32(sum[r][0], sum[r][1]);
}

DIRECT_I(iq2_xxs, 66, 0, 0.125f, false)
DIRECT_I(iq2_xs, 74, 0, 0.125f, false)
DIRECT_I(iq2_s, 82, 0, 0.125f, false)
DIRECT_I(iq3_xxs, 98, 0, 0.25f, false)
DIRECT_I(iq3_s, 110, 0, 1, false)
DIRECT(iq4_xs, order_of_file, 136, 0, 1, false)

#ifdef __AVX512VNNI__
void cpu_set_direct_i_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_direct_i_avx512(struct cpu_matmul *m)
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
    m->direct[TYPE_IQ4_XS] = direct_iq4_xs;
    m->window[TYPE_IQ4_XS] = window_iq4_xs;
}
