/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with three values as records for prefill tiles (tile_madd.h). */
#include "cpu/x86/ternary_avx2.h"
#include "cpu/x86/tile_madd.h"

/* Codes stand for one less, and are stored plus 16. */
INLINE void unpack(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                   const int block_bytes, ternary_codes_fn *take_apart)
{
    for (int k = 0; k < l->n / 256; k++, b += block_bytes) {
        __m256i codes[8];
        x86_prefetch_ahead(b, block_bytes);
        take_apart(b, codes);
        tile_d(out, l)[k] = x86_half_at(b + block_bytes - 2);
        tile_put_scales(out, l, k, _mm_set1_epi8(1));
        for (int g = 0; g < 8; g++)
            tile_put(out, 8 * k + g, _mm256_add_epi8(codes[g], _mm256_set1_epi8(16 - 1)));
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

#ifdef __AVX512BW__
void cpu_set_tile_ternary_avx512(struct cpu_matmul *m)
#else
void cpu_set_tile_ternary_avx2(struct cpu_matmul *m)
#endif
{
    m->tile[TYPE_TQ1_0] = (struct cpu_tile){unpack_tq1_0, TILE(256)};
    m->tile[TYPE_TQ2_0] = (struct cpu_tile){unpack_tq2_0, TILE(256)};
}
