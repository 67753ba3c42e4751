/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the K types as records for prefill tiles (tile_madd.h). A register holds a group of 32
 * codes. */
#include "cpu/x86/tile_madd.h"

/* Bits of all bytes to the left (or right, negative); what comes from the neighbour is for the
 * caller to mask. */
INLINE __m256i move_bits(__m256i x, const int left)
{
    return left >= 0 ? _mm256_slli_epi32(x, left) : _mm256_srli_epi32(x, -left);
}

INLINE __m256i masked(__m256i x, char mask)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(mask));
}

/* Group g of the 2-bit codes at b. */
INLINE __m256i two_bits(const uint8_t *b, const int g)
{
    return masked(move_bits(load_bytes(b + 32 * (g / 4)), -2 * (g % 4)), 3);
}

/* Group g of the 4-bit codes at b. */
INLINE __m256i four_bits(const uint8_t *b, const int g)
{
    return masked(move_bits(load_bytes(b + 32 * (g / 2)), -4 * (g % 2)), 15);
}

static void unpack_q2_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    for (int k = 0; k < l->n / 256; k++, b += 84) {
        x86_prefetch_ahead(b, 84);
        tile_d(out, l)[k] = x86_half_at(b + 80);
        tile_dmin(out, l)[k] = x86_half_at(b + 82);
        __m128i head = _mm_loadu_si128((const __m128i *)b);
        __m128i mins = _mm_and_si128(_mm_srli_epi16(head, 4), nibble);
        _mm256_storeu_si256((__m256i *)(tile_m(out, l) + 16 * k), _mm256_cvtepu8_epi16(mins));
        tile_put_scales(out, l, k, _mm_and_si128(head, nibble));
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            tile_put(out, 8 * k + g, two_bits(b + 16, g));
    }
}

/* Codes 0..7 stand for -4..3. */
static void unpack_q3_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 110) {
        x86_prefetch_ahead(b, 110);
        tile_d(out, l)[k] = x86_half_at(b + 108);
        tile_put_scales(out, l, k, x86_q3_k_scales(b + 96));
        __m256i third = load_bytes(b);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            __m256i codes =
                _mm256_or_si256(two_bits(b + 32, g), masked(move_bits(third, 2 - g), 4));
            tile_put(out, 8 * k + g, _mm256_add_epi8(codes, _mm256_set1_epi8(16 - 4)));
        }
    }
}

/* Q4_K, Q5_K: everything but the codes. */
INLINE void put_q45_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out, int k)
{
    tile_d(out, l)[k] = x86_half_at(b);
    tile_dmin(out, l)[k] = x86_half_at(b + 2);
    __m128i scales = x86_q4_k_scales(b);
    __m128i mins = _mm_cvtepu8_epi16(_mm_srli_si128(scales, 8));
    _mm_storeu_si128((__m128i *)(tile_m(out, l) + 8 * k), mins);
    tile_put_eight_scales(out, l, k, scales);
}

static void unpack_q4_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 144) {
        x86_prefetch_ahead(b, 144);
        put_q45_k(b, l, out, k);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            tile_put(out, 8 * k + g, four_bits(b + 16, g));
    }
}

static void unpack_q5_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 176) {
        x86_prefetch_ahead(b, 176);
        put_q45_k(b, l, out, k);
        __m256i fifth = load_bytes(b + 16);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            tile_put(out, 8 * k + g,
                     _mm256_or_si256(four_bits(b + 48, g), masked(move_bits(fifth, 4 - g), 16)));
    }
}

/* Codes 0..63 stand for -32..31. */
static void unpack_q6_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 210) {
        x86_prefetch_ahead(b, 210);
        tile_d(out, l)[k] = x86_half_at(b + 208);
        tile_put_scales(out, l, k, _mm_loadu_si128((const __m128i *)(b + 192)));
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            const int h = g / 4, j = g % 4;
            __m256i low = move_bits(load_bytes(b + 64 * h + 32 * (j % 2)), -4 * (j / 2));
            __m256i high = move_bits(load_bytes(b + 128 + 32 * h), 4 - 2 * j);
            tile_put(out, 8 * k + g, _mm256_or_si256(masked(low, 15), masked(high, 48)));
        }
    }
}

#ifdef __AVX512BW__
void cpu_set_tile_k_avx512(struct cpu_matmul *m)
#else
void cpu_set_tile_k_avx2(struct cpu_matmul *m)
#endif
{
    m->tile[TYPE_Q2_K] = (struct cpu_tile){unpack_q2_k, TILE(256_min16)};
    m->tile[TYPE_Q3_K] = (struct cpu_tile){unpack_q3_k, TILE(256)};
    m->tile[TYPE_Q4_K] = (struct cpu_tile){unpack_q4_k, TILE(256_min32)};
    m->tile[TYPE_Q5_K] = (struct cpu_tile){unpack_q5_k, TILE(256_min32_31)};
    m->tile[TYPE_Q6_K] = (struct cpu_tile){unpack_q6_k, TILE(256_32)};
}
