/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of the types with three values. */
#include "cpu/x86/amx256.h"
#include "cpu/x86/ternary_avx512.h"

INLINE void put_ternary(const uint8_t *b, const int block_bytes, const struct amx_out *out,
                        ternary_codes_fn *take_apart)
{
    __m512i codes[4];
    *out->d = x86_half_at(b + block_bytes - 2);
    take_apart(b, codes);
    for (int j = 0; j < 4; j++)
        amx_put_first(out, j, _mm512_sub_epi8(codes[j], _mm512_set1_epi8(1)));
}

INLINE void block_tq1_0(const uint8_t *b, const struct amx_out *out)
{
    put_ternary(b, TQ1_0_BYTES, out, ternary_codes_tq1_0);
}

INLINE void block_tq2_0(const uint8_t *b, const struct amx_out *out)
{
    put_ternary(b, TQ2_0_BYTES, out, ternary_codes_tq2_0);
}

AMX_PANEL(tq1_0, .block_bytes = TQ1_0_BYTES)
AMX_PANEL(tq2_0, .block_bytes = TQ2_0_BYTES)

void cpu_set_amx_ternary(struct cpu_matmul *m)
{
    m->panel[TYPE_TQ1_0] = panel_tq1_0;
    m->panel[TYPE_TQ2_0] = panel_tq2_0;
}
