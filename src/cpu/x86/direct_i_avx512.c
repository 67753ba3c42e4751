/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types times the activation rows of a window with AVX-512 (direct_avx512.h). Compiled
 * twice, with VNNI and without. */
#include "cpu/x86/direct_i_avx512.h"

/* Signed codes: a sign is kept apart here too, and 2 * 127 * 127 fits 16 bits. */
INLINE void take_iq4_xs(const uint8_t *b, struct wide_block *out)
{
    const __m512i table = _mm512_broadcast_i32x4(i_load16(codebook_iq4nl));
    const __m512i right = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i twice = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
    out->scales = _mm512_castsi256_si512(x86_iq4_xs_scales(b));
    for (int j = 0; j < 4; j++) {
        /* 16 bytes: 16 low nibbles, then 16 high ones. */
        __m512i v = _mm512_castsi256_si512(i_load32(b + 8 + 32 * j));
        v = _mm512_srlv_epi64(_mm512_permutexvar_epi64(twice, v), right);
        v = _mm512_shuffle_epi8(table, _mm512_and_si512(v, _mm512_set1_epi8(15)));
        out->negative[j] = _mm512_movepi8_mask(v);
        out->codes[j] = _mm512_abs_epi8(v);
    }
}

DIRECT_I(iq2_xxs, .block_bytes = 66, .d_factor = 0.125f, .scale_32 = true)
DIRECT_I(iq2_xs, .block_bytes = 74, .d_factor = 0.125f)
DIRECT_I(iq2_s, .block_bytes = 82, .d_factor = 0.125f)
DIRECT_I(iq3_xxs, .block_bytes = 98, .d_factor = 0.25f, .scale_32 = true)
DIRECT_I(iq3_s, .block_bytes = 110, .d_factor = 1, .scale_32 = true)
DIRECT(iq4_xs, order_of_file, .block_bytes = 136, .d_factor = 1, .bias = 128, .scale_32 = true)

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
