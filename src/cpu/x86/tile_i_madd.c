/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the codebook types as records for prefill tiles (tile_madd.h). Compiled for AVX2 with gathers and
 * without (i_blocks_avx2.h), and for AVX-512. */
#include "cpu/x86/i_blocks_avx2.h"
#include "cpu/x86/tile_madd.h"
#include "cpu/x86/unpack_small.h"

/* d_factor: the constant power of two of the type. */
INLINE void unpack_signed(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                          const int block_bytes, const float d_factor, const char offset,
                          i_block_fn *take_apart)
{
    for (int k = 0; k < l->n / 256; k++, b += block_bytes) {
        struct i_block block;
        x86_prefetch_ahead(b, block_bytes);
        take_apart(b, &block);
        tile_d(out, l)[k] = x86_half_at(b) * d_factor;
        tile_put_scales(out, l, k, block.scales);
        for (int g = 0; g < 8; g++)
            tile_put(out, 8 * k + g, _mm256_add_epi8(i_codes(&block, g), _mm256_set1_epi8(offset)));
    }
}

static void unpack_iq2_xxs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 66, 0.125f, 64, i_block_iq2_xxs);
}

static void unpack_iq2_xs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 74, 0.125f, 64, i_block_iq2_xs);
}

static void unpack_iq2_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 82, 0.125f, 64, i_block_iq2_s);
}

static void unpack_iq3_xxs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 98, 0.25f, 64, i_block_iq3_xxs);
}

static void unpack_iq3_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 110, 1, 16, i_block_iq3_s);
}

/* Codes 8 * v + 1 or - 1, plus 16. */
INLINE __m256i iq1_codes(__m256i rows, __m256i delta)
{
    __m256i codes = _mm256_and_si256(_mm256_slli_epi16(rows, 3), _mm256_set1_epi8(-8));
    return _mm256_add_epi8(codes, _mm256_add_epi8(delta, _mm256_set1_epi8(16)));
}

static void unpack_iq1_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 50) {
        x86_prefetch_ahead(b, 50);
        tile_d(out, l)[k] = x86_half_at(b) * 0.125f;
        __m128i words = i_load16(b + 34); /* 12 bits of row numbers, s, bit 15: negative delta */
        __m128i s = _mm_and_si128(_mm_srli_epi16(words, 12), _mm_set1_epi16(7));
        tile_put_scales(out, l, k, i_scales_twice(_mm_packus_epi16(s, s)));
        for (int p = 0; p < 4; p++) {
            __m256i rows[2];
            iq1_s_rows(b, p, rows);
            for (int i = 0; i < 2; i++) {
                __m256i delta = _mm256_set1_epi8(b[35 + 4 * p + 2 * i] >> 7 ? -1 : 1);
                tile_put(out, 8 * k + 2 * p + i, iq1_codes(rows[i], delta));
            }
        }
    }
}

static void unpack_iq1_m(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 56) {
        x86_prefetch_ahead(b, 56);
        uint64_t words;
        memcpy(&words, b + 48, 8);
        tile_d(out, l)[k] = x86_iq1_m_d(words);
        _mm256_store_si256((__m256i *)(tile_scale(out, l) + 8 * k), iq1_m_scales(words));
        for (int p = 0; p < 4; p++) {
            __m256i rows[2];
            __m256i negative = _mm256_slli_epi32(iq1_m_nibbles(b, p), 28);
            negative = _mm256_srai_epi32(negative, 31);
            iq1_m_rows(b, p, rows);
            for (int i = 0; i < 2; i++) {
                __m256i delta = _mm256_cvtepi32_epi64(
                    i ? _mm256_extracti128_si256(negative, 1) : _mm256_castsi256_si128(negative));
                delta = _mm256_or_si256(delta, _mm256_set1_epi8(1));
                tile_put(out, 8 * k + 2 * p + i, iq1_codes(rows[i], delta));
            }
        }
    }
}

static void unpack_iq4_xs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m256i table = _mm256_broadcastsi128_si256(i_load16(codebook_iq4nl));
    for (int k = 0; k < l->n / 256; k++, b += 136) {
        x86_prefetch_ahead(b, 136);
        tile_d(out, l)[k] = x86_half_at(b);
        x86_iq4_xs_scale_pairs(b, tile_scale(out, l) + 8 * k);
        for (int g = 0; g < 8; g++)
            tile_put(out, 8 * k + g, _mm256_shuffle_epi8(table, nibbles(b + 8 + 16 * g)));
    }
}

#ifdef __AVX512BW__
void cpu_set_tile_i_avx512(struct cpu_matmul *m)
#elif defined(WITHOUT_GATHERS)
void cpu_set_tile_i_avx2_loads(struct cpu_matmul *m)
#else
void cpu_set_tile_i_avx2(struct cpu_matmul *m)
#endif
{
    m->tile[TYPE_IQ2_XXS] = (struct cpu_tile){unpack_iq2_xxs, TILE(256_64)};
    m->tile[TYPE_IQ2_XS] = (struct cpu_tile){unpack_iq2_xs, TILE(256_64)};
    m->tile[TYPE_IQ2_S] = (struct cpu_tile){unpack_iq2_s, TILE(256_64)};
    m->tile[TYPE_IQ3_XXS] = (struct cpu_tile){unpack_iq3_xxs, TILE(256_64)};
    m->tile[TYPE_IQ3_S] = (struct cpu_tile){unpack_iq3_s, TILE(256)};
    m->tile[TYPE_IQ1_S] = (struct cpu_tile){unpack_iq1_s, TILE(256)};
    m->tile[TYPE_IQ1_M] = (struct cpu_tile){unpack_iq1_m, TILE(256)};
    m->tile[TYPE_IQ4_XS] = (struct cpu_tile){unpack_iq4_xs, TILE(256_wide)};
}
