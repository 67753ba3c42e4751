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

static void direct_iq2_xxs(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, order_of_file, (struct direct_layout){66, 0, 0.125f, false},
                block_iq2_xxs);
}

static void direct_iq2_xs(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, order_of_file, (struct direct_layout){74, 0, 0.125f, false},
                block_iq2_xs);
}

static void direct_iq2_s(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, order_of_file, (struct direct_layout){82, 0, 0.125f, false},
                block_iq2_s);
}

static void direct_iq3_xxs(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, order_of_file, (struct direct_layout){98, 0, 0.25f, false},
                block_iq3_xxs);
}

static void direct_iq3_s(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, order_of_file, (struct direct_layout){110, 0, 1, false},
                block_iq3_s);
}

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
}
