/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the K types as records for prefill tiles, with AVX-512 VNNI. A register holds 64 codes:
 * two groups of 32, which come from the same bytes in most types. */
#include "base/tensor_type.h"
#include "cpu/x86/tile_avx512.h"

/* The 32 bytes at b, twice. */
INLINE __m512i load_twice(const uint8_t *b)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b));
}

/* Bits of the lower and the upper 32 bytes moved to the right. */
INLINE __m512i shift_halves(__m512i x, int lower, int upper)
{
    return _mm512_srlv_epi64(x, tile_halves(_mm256_set1_epi64x(lower), _mm256_set1_epi64x(upper)));
}

/* A mask of bit `lower` for the lower 32 bytes, `upper` for the others. */
INLINE __m512i bits_of_halves(int lower, int upper)
{
    return tile_halves(_mm256_set1_epi8((char)(1 << lower)), _mm256_set1_epi8((char)(1 << upper)));
}

/* 64 2-bit codes: group `pair` of four pairs of a block, whose bytes start at b. */
INLINE __m512i two_bits(const uint8_t *b, int pair)
{
    int shift = 4 * (pair % 2);
    __m512i x = shift_halves(load_twice(b + 32 * (pair / 2)), shift, shift + 2);
    return _mm512_and_si512(x, _mm512_set1_epi8(3));
}

/* Codes times scales are at most 45 and stay bytes. */
static void unpack_q2_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    const __m512i ones = _mm512_set1_epi8(1);
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    for (int k = 0; k < l->n / 256; k++, b += 84) {
        x86_prefetch_ahead(b, 84);
        tile_d(out, l)[k] = x86_half_at(b + 80);
        tile_dmin(out, l)[k] = x86_half_at(b + 82);
        __m128i head = _mm_loadu_si128((const __m128i *)b), s = _mm_and_si128(head, nibble);
        __m128i mins = _mm_and_si128(_mm_srli_epi16(head, 4), nibble);
        _mm256_storeu_si256((__m256i *)(tile_m(out, l) + 16 * k), _mm256_cvtepu8_epi16(mins));
        /* Dword i: scale i times 0, 1, 2 and 3, a table that the codes look up. */
        __m512i scales = _mm512_cvtepu8_epi32(s);
        __m512i table = _mm512_mullo_epi32(scales, _mm512_set1_epi32(0x03020100));
        __m512i sum = _mm512_setzero_si512();
        for (int j = 0; j < 4; j++) {
            __m512i index = _mm512_add_epi32(lanes, _mm512_set1_epi32(4 * j));
            __m512i values = _mm512_permutexvar_epi32(index, table);
            values = _mm512_shuffle_epi8(values, two_bits(b + 16, j));
            sum = _mm512_dpbusd_epi32(sum, ones, values);
            _mm512_storeu_si512(out + 256 * k + 64 * j, values);
        }
        tile_start(out, l)[k] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

static void unpack_q3_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 110) {
        x86_prefetch_ahead(b, 110);
        tile_d(out, l)[k] = x86_half_at(b + 108);
        __m512i high = load_twice(b), codes[4];
        for (int j = 0; j < 4; j++) {
            __m512i low = two_bits(b + 32, j);
            __mmask64 zero = _mm512_testn_epi8_mask(high, bits_of_halves(2 * j, 2 * j + 1));
            codes[j] = _mm512_mask_sub_epi8(low, zero, low, _mm512_set1_epi8(4));
        }
        tile_put_s16(out, l, k, codes, _mm512_cvtepi8_epi32(x86_q3_k_scales(b + 96)));
    }
}

/* 64 codes of four bits: group j of four, whose bytes start at b. */
INLINE __m512i four_bits(const uint8_t *b, int j)
{
    return _mm512_and_si512(shift_halves(load_twice(b + 32 * j), 0, 4), _mm512_set1_epi8(15));
}

/* Q4_K, Q5_K: everything but the codes. */
INLINE void put_q4_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out, int k,
                     const __m512i codes[4])
{
    tile_d(out, l)[k] = x86_half_at(b);
    tile_dmin(out, l)[k] = x86_half_at(b + 2);
    __m128i scales = x86_q4_k_scales(b);
    __m128i mins = _mm_cvtepu8_epi16(_mm_srli_si128(scales, 8));
    _mm_storeu_si128((__m128i *)(tile_m(out, l) + 8 * k), mins);
    tile_put_s32(out, l, k, codes, _mm256_cvtepu8_epi32(scales));
}

static void unpack_q4_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 144) {
        x86_prefetch_ahead(b, 144);
        __m512i codes[4];
        for (int j = 0; j < 4; j++)
            codes[j] = four_bits(b + 16, j);
        put_q4_k(b, l, out, k, codes);
    }
}

static void unpack_q5_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 176) {
        x86_prefetch_ahead(b, 176);
        __m512i high = load_twice(b + 16), codes[4];
        for (int j = 0; j < 4; j++) {
            __m512i low = four_bits(b + 48, j);
            __mmask64 fifth = _mm512_test_epi8_mask(high, bits_of_halves(2 * j, 2 * j + 1));
            codes[j] = _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
        }
        put_q4_k(b, l, out, k, codes);
    }
}

/* Codes 0..63 stand for -32..31; high: their upper two bits, at bits 4 and 5. */
INLINE __m512i codes_q6_k(__m512i low, __m512i high)
{
    low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    low = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(48)));
    return _mm512_sub_epi8(low, _mm512_set1_epi8(32));
}

static void unpack_q6_k(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    for (int k = 0; k < l->n / 256; k++, b += 210) {
        x86_prefetch_ahead(b, 210);
        tile_d(out, l)[k] = x86_half_at(b + 208);
        __m512i codes[4];
        for (int h = 0; h < 2; h++) {
            __m512i low = _mm512_loadu_si512(b + 64 * h), high = load_twice(b + 128 + 32 * h);
            __m512i first = shift_halves(_mm512_slli_epi64(high, 4), 0, 2);
            codes[2 * h] = codes_q6_k(low, first);
            codes[2 * h + 1] = codes_q6_k(_mm512_srli_epi64(low, 4), shift_halves(high, 0, 2));
        }
        __m128i scales = _mm_loadu_si128((const __m128i *)(b + 192));
        tile_put_s16(out, l, k, codes, _mm512_cvtepi8_epi32(scales));
    }
}

void cpu_set_tile_k_avx512_vnni(struct cpu_matmul *m)
{
    m->tile[TYPE_Q2_K] = (struct cpu_tile){unpack_q2_k, cpu_tile256_min16};
    m->tile[TYPE_Q3_K] = (struct cpu_tile){unpack_q3_k, cpu_tile256_s16};
    m->tile[TYPE_Q4_K] = (struct cpu_tile){unpack_q4_k, cpu_tile256_s32_min32};
    m->tile[TYPE_Q5_K] = (struct cpu_tile){unpack_q5_k, cpu_tile256_s32_min32};
    m->tile[TYPE_Q6_K] = (struct cpu_tile){unpack_q6_k, cpu_tile256_s16};
}
