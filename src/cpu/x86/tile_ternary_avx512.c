/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with three values as records for prefill tiles, with AVX-512 VNNI. */
#include "cpu/x86/ternary_avx512.h"
#include "cpu/x86/tile_avx512.h"

INLINE void unpack(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                   const int block_bytes, ternary_codes_fn *take_apart)
{
    const __m512i ones = _mm512_set1_epi8(1);
    for (int k = 0; k < l->n / 256; k++, b += block_bytes) {
        __m512i codes[4], sum = _mm512_setzero_si512();
        x86_prefetch_ahead(b, block_bytes);
        take_apart(b, codes);
        tile_d(out, l)[k] = x86_half_at(b + block_bytes - 2);
        for (int j = 0; j < 4; j++) {
            __m512i values = _mm512_sub_epi8(codes[j], ones);
            sum = _mm512_dpbusd_epi32(sum, ones, values);
            _mm512_storeu_si512(out + 256 * k + 64 * j, values);
        }
        tile_start(out, l)[k] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

static void unpack_tq1_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack(b, l, out, TQ1_0_BYTES, ternary_codes_tq1_0);
}

static void unpack_tq2_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack(b, l, out, TQ2_0_BYTES, ternary_codes_tq2_0);
}

void cpu_set_tile_ternary_avx512_vnni(struct cpu_matmul *m)
{
    m->tile[TYPE_TQ1_0] = (struct cpu_tile){unpack_tq1_0, cpu_tile256};
    m->tile[TYPE_TQ2_0] = (struct cpu_tile){unpack_tq2_0, cpu_tile256};
}
