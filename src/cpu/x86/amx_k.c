/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of the K types. */
#include "cpu/x86/amx256.h"

/* The 32 bytes at b, twice. */
INLINE __m512i load_twice(const uint8_t *b)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b));
}

/* Each byte becomes the eight bits of its quadword that begin at bit `low` of the byte (in the lower
 * 32 bytes) or `high` (in the upper). */
INLINE __m512i bits_from(__m512i x, int low, int high)
{
    const __m512i bytes = _mm512_set1_epi64(0x3830282018100800);
    __m512i from = _mm512_add_epi8(
        bytes, _mm512_inserti64x4(_mm512_set1_epi8((char)low), _mm256_set1_epi8((char)high), 1));
    return _mm512_multishift_epi64_epi8(from, x);
}

/* (a & mask_a) | (b & mask_b) */
INLINE __m512i join(__m512i a, int mask_a, __m512i b, int mask_b)
{
    __m512i masked = _mm512_and_si512(a, _mm512_set1_epi8((char)mask_a));
    return _mm512_ternarylogic_epi64(masked, b, _mm512_set1_epi8((char)mask_b), 0xf8);
}

/* 64 2-bit codes, group j of four whose bytes start at b; above the code are others. */
INLINE __m512i two_bits(const uint8_t *b, int j)
{
    return bits_from(load_twice(b + 32 * (j / 2)), j % 2 * 4, j % 2 * 4 + 2);
}

/* Codes times scales are at most 45. */
INLINE void block_q2_k(const uint8_t *b, const struct amx_out *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    *out->d = x86_half_at(b + 80);
    *out->dmin = x86_half_at(b + 82);
    __m128i head = _mm_loadu_si128((const __m128i *)b), s = _mm_and_si128(head, nibble);
    __m128i mins = _mm_and_si128(_mm_srli_epi16(head, 4), nibble);
    _mm256_storeu_si256((__m256i *)out->m, _mm256_cvtepu8_epi16(mins));
    /* Dword i: scale i times 0, 1, 2 and 3, a table that the codes look up. */
    __m512i table =
        _mm512_mullo_epi32(_mm512_cvtepu8_epi32(s), _mm512_set1_epi32(0x03020100));
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_add_epi32(lanes, _mm512_set1_epi32(4 * j));
        __m512i codes = _mm512_and_si512(two_bits(b + 16, j), _mm512_set1_epi8(3));
        amx_put_first(out, j, _mm512_shuffle_epi8(_mm512_permutexvar_epi32(index, table), codes));
    }
}

/* Minus code times scale is -128 to 124. */
INLINE void block_q3_k(const uint8_t *b, const struct amx_out *out)
{
    const __m512i minus = _mm512_broadcast_i32x4(_mm_setr_epi16(4, 3, 2, 1, 0, -1, -2, -3));
    const __m512i even = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14));
    *out->d = x86_half_at(b + 108);
    __m512i scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(x86_q3_k_scales(b + 96)));
    __m512i high = load_twice(b);
    for (int j = 0; j < 4; j++) {
        __m512i table = _mm512_mullo_epi16(minus, amx_scales_of_16(scales, j));
        __m512i codes = join(two_bits(b + 32, j), 3, bits_from(high, 2 * j - 2, 2 * j - 1), 4);
        amx_put_first(out, j, _mm512_shuffle_epi8(_mm512_shuffle_epi8(table, even), codes));
    }
}

/* Q4_K, Q5_K: everything but the codes, 0 to 31. A scale is its lower three bits and eight times the
 * upper three: products of both with codes stay bytes, so that a word's product is that of both of
 * its bytes. */
INLINE void put_q4_k(const uint8_t *b, const __m512i codes[4], const struct amx_out *out)
{
    *out->d = x86_half_at(b);
    *out->dmin = x86_half_at(b + 2);
    __m128i scales = x86_q4_k_scales(b);
    _mm_storeu_si128((__m128i *)out->m, _mm_cvtepu8_epi16(_mm_srli_si128(scales, 8)));
    __m128i words = _mm_cvtepu8_epi16(scales);
    __m512i low = _mm512_castsi128_si512(_mm_and_si128(words, _mm_set1_epi16(7)));
    __m512i high = _mm512_castsi128_si512(_mm_srli_epi16(words, 3));
    for (int j = 0; j < 4; j++) {
        amx_put_first(out, j, _mm512_mullo_epi16(codes[j], amx_scales_of_32(low, j)));
        amx_put_second(out, j, _mm512_mullo_epi16(codes[j], amx_scales_of_32(high, j)));
    }
}

INLINE void block_q4_k(const uint8_t *b, const struct amx_out *out)
{
    __m512i codes[4];
    for (int j = 0; j < 4; j++)
        codes[j] = _mm512_and_si512(bits_from(load_twice(b + 16 + 32 * j), 0, 4),
                                    _mm512_set1_epi8(15));
    put_q4_k(b, codes, out);
}

INLINE void block_q5_k(const uint8_t *b, const struct amx_out *out)
{
    __m512i codes[4], high = load_twice(b + 16);
    for (int j = 0; j < 4; j++)
        codes[j] = join(bits_from(load_twice(b + 48 + 32 * j), 0, 4), 15,
                        bits_from(high, 2 * j - 4, 2 * j - 3), 16);
    put_q4_k(b, codes, out);
}

/* Codes 0..63 stand for -32..31. */
INLINE void block_q6_k(const uint8_t *b, const struct amx_out *out)
{
    *out->d = x86_half_at(b + 208);
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 192)));
    __m512i scales = _mm512_castsi256_si512(_mm256_slli_epi16(words, 8));
    for (int h = 0; h < 2; h++) {
        __m512i low = _mm512_loadu_si512(b + 64 * h), high = load_twice(b + 128 + 32 * h);
        __m512i codes[2] = {
            join(low, 15, bits_from(high, -4, -2), 48),
            join(_mm512_srli_epi64(low, 4), 15, bits_from(high, 0, 2), 48),
        };
        for (int j = 2 * h; j < 2 * h + 2; j++)
            amx_put_words(out, j, _mm512_sub_epi8(codes[j % 2], _mm512_set1_epi8(32)),
                          amx_scales_of_16(scales, j));
    }
}

AMX_PANEL(q2_k, .block_bytes = 84, .mins = 16)
AMX_PANEL(q3_k, .block_bytes = 110, .negative = true)
AMX_PANEL(q4_k, .block_bytes = 144, .second = AMX_SHIFTED, .first_unsigned = true,
          .second_unsigned = true, .shift = 3, .mins = 8)
AMX_PANEL(q5_k, .block_bytes = 176, .second = AMX_SHIFTED, .first_unsigned = true,
          .second_unsigned = true, .shift = 3, .mins = 8)
AMX_PANEL(q6_k, .block_bytes = 210, .second = AMX_SHIFTED, .first_unsigned = true, .shift = 8)

void cpu_set_amx_k(struct cpu_matmul *m)
{
    m->panel[TYPE_Q2_K] = panel_q2_k;
    m->panel[TYPE_Q3_K] = panel_q3_k;
    m->panel[TYPE_Q4_K] = panel_q4_k;
    m->panel[TYPE_Q5_K] = panel_q5_k;
    m->panel[TYPE_Q6_K] = panel_q6_k;
}
