/* SPDX-License-Identifier: Apache-2.0 */
/* Types with three values times the activation rows of a window with AVX-512 (direct_avx512.h).
 * Compiled twice, with VNNI and without. */
#include "cpu/x86/direct_four_avx512.h"
#include "cpu/x86/ternary_avx512.h"

INLINE void take_tq1_0(const uint8_t *b, struct wide_block *out)
{
    ternary_codes_tq1_0(b, out->codes);
    out->offset = _mm256_set1_epi16(-1);
}

/* A register of codes has group j of the lower and of the upper 128 values. */
static const int order_tq2_0[8] = {0, 4, 1, 5, 2, 6, 3, 7};

INLINE void take_tq2_0(const uint8_t *b, struct wide_block *out)
{
    __m512i v = _mm512_loadu_si512(b);
    out->offset = _mm256_set1_epi16(-1);
    for (int j = 0; j < 4; j++)
        out->codes[j] = _mm512_and_si512(_mm512_srli_epi16(v, 2 * j), _mm512_set1_epi8(3));
}

DIRECT(tq1_0, order_of_file, .block_bytes = TQ1_0_BYTES, .d_at = TQ1_0_BYTES - 2, .d_factor = 1,
       .offset = 32, .scaled = true)
DIRECT(tq2_0, order_tq2_0, .block_bytes = TQ2_0_BYTES, .d_at = TQ2_0_BYTES - 2, .d_factor = 1,
       .offset = 32, .scaled = true)

#ifdef __AVX512VNNI__
void cpu_set_direct_ternary_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_direct_ternary_avx512(struct cpu_matmul *m)
#endif
{
    m->direct[TYPE_TQ1_0] = direct_tq1_0;
    m->window[TYPE_TQ1_0] = window_tq1_0;
    m->direct[TYPE_TQ2_0] = direct_tq2_0;
    m->window[TYPE_TQ2_0] = window_tq2_0;
}
