/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the codebook types as records for prefill tiles (tile_madd.h). */
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
            tile_put(out, 8 * k + g, _mm256_add_epi8(block.codes[g], _mm256_set1_epi8(offset)));
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

/* Four rows of -1, 0 and 1 as codes 8 * v +- 1, plus 16. */
INLINE __m256i iq1_codes(__m128i numbers, __m256i delta)
{
    __m256i v = _mm256_slli_epi16(i_gather4(codebook_iq1s, numbers), 3);
    v = _mm256_and_si256(v, _mm256_set1_epi8(-8));
    return _mm256_add_epi8(v, _mm256_add_epi8(delta, _mm256_set1_epi8(16)));
}

/* Row numbers: four low bytes at b, and the lowest three bits of `high` on top. */
INLINE __m128i iq1_numbers(const uint8_t *b, __m128i high)
{
    high = _mm_and_si128(_mm_slli_epi32(high, 8), _mm_set1_epi32(0x700));
    return _mm_or_si128(i_four(b), high);
}

static void unpack_iq1_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 50) {
        x86_prefetch_ahead(b, 50);
        tile_d(out, l)[k] = x86_half_at(b) * 0.125f;
        __m128i words = i_load16(b + 34); /* 12 bits of row numbers, s, bit 15: negative delta */
        __m128i s = _mm_and_si128(_mm_srli_epi16(words, 12), _mm_set1_epi16(7));
        tile_put_scales(out, l, k, i_scales_twice(_mm_packus_epi16(s, s)));
        for (int g = 0; g < 8; g++) {
            uint32_t word = bytes_u16(b + 34 + 2 * g);
            __m128i high = _mm_srlv_epi32(_mm_set1_epi32((int)word), _mm_setr_epi32(0, 3, 6, 9));
            __m256i delta = _mm256_set1_epi8(word >> 15 ? -1 : 1);
            tile_put(out, 8 * k + g, iq1_codes(iq1_numbers(b + 2 + 4 * g, high), delta));
        }
    }
}

/* 16 scales 2s + 1 of three bits, four in each word, as words. */
INLINE __m256i iq1_m_scales(uint64_t words)
{
    const __m256i four_times = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4,
                                                5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)words), four_times);
    x = _mm256_mullo_epi16(x, _mm256_set1_epi64x(1 << 13 | 1ll << 26 | 1ll << 39 | 1ll << 52));
    x = _mm256_and_si256(_mm256_srli_epi16(x, 12), _mm256_set1_epi16(14));
    return _mm256_or_si256(x, _mm256_set1_epi16(1));
}

static void unpack_iq1_m(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m128i right = _mm_setr_epi32(0, 4, 8, 12);
    for (int k = 0; k < l->n / 256; k++, b += 56) {
        x86_prefetch_ahead(b, 56);
        uint64_t words;
        memcpy(&words, b + 48, 8);
        tile_d(out, l)[k] = x86_iq1_m_d(words);
        _mm256_store_si256((__m256i *)(tile_scale(out, l) + 8 * k), iq1_m_scales(words));
        for (int g = 0; g < 8; g++) {
            /* A row's nibble: three bits of its number, and a negative delta. */
            __m128i nibbles = _mm_set1_epi32(bytes_u16(b + 32 + 2 * g));
            nibbles = _mm_srlv_epi32(nibbles, right);
            __m128i negative = _mm_srai_epi32(_mm_slli_epi32(nibbles, 28), 31);
            __m256i delta = _mm256_cvtepi32_epi64(negative);
            delta = _mm256_or_si256(delta, _mm256_set1_epi8(1));
            tile_put(out, 8 * k + g, iq1_codes(iq1_numbers(b + 4 * g, nibbles), delta));
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
