/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of the codebook types. */
#include "cpu/x86/amx256.h"
#include "cpu/x86/i_blocks_avx512.h"

/* Values 8, 25 and 43 times a scale up to 31: the lower four bits of a value, with a sign added at bit
 * 2, look up the low byte of the product; the same with bit 3 turned the high byte. */
INLINE void put_iq2(const struct i_block *block, const struct amx_out *out)
{
    const __m512i levels = _mm512_broadcast_i32x4(_mm_setr_epi16(8, 25, 0, 43, -8, -25, 0, -43));
    const __m512i split = _mm512_broadcast_i32x4(
        _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, 0, 2, 4, 6, 8, 10, 12, 14));
    for (int j = 0; j < 4; j++) {
        __m512i table = _mm512_mullo_epi16(levels, amx_scales_of_16(block->scales, j));
        table = _mm512_shuffle_epi8(table, split);
        __m512i index = _mm512_mask_add_epi8(block->rows[j], block->signs[j], block->rows[j],
                                             _mm512_set1_epi8(4));
        amx_put_first(out, j, _mm512_shuffle_epi8(table, index));
        index = _mm512_xor_si512(index, _mm512_set1_epi8(8));
        amx_put_second(out, j, _mm512_shuffle_epi8(table, index));
    }
}

INLINE void block_iq2_xxs(const uint8_t *b, const struct amx_out *out)
{
    struct i_block block;
    i_block_iq2_xxs(b, &block);
    *out->d = x86_half_at(b) * 0.125f;
    put_iq2(&block, out);
}

INLINE void block_iq2_xs(const uint8_t *b, const struct amx_out *out)
{
    struct i_block block;
    i_block_iq2_xs(b, &block);
    *out->d = x86_half_at(b) * 0.125f;
    put_iq2(&block, out);
}

INLINE void block_iq2_s(const uint8_t *b, const struct amx_out *out)
{
    struct i_block block;
    i_block_iq2_s(b, &block);
    *out->d = x86_half_at(b) * 0.125f;
    put_iq2(&block, out);
}

/* x where signs are clear, else -x. */
INLINE __m512i with_signs(__m512i x, __mmask64 signs)
{
    return _mm512_mask_sub_epi8(x, signs, _mm512_setzero_si512(), x);
}

INLINE void block_iq3_xxs(const uint8_t *b, const struct amx_out *out)
{
    struct i_block block;
    i_block_iq3_xxs(b, &block);
    *out->d = x86_half_at(b) * 0.25f;
    __m512i scales = _mm512_slli_epi16(block.scales, 8);
    for (int j = 0; j < 4; j++)
        amx_put_words(out, j, with_signs(block.rows[j], block.signs[j]),
                      amx_scales_of_16(scales, j));
}

/* Values up to 15 times both parts of the scale, its lower two bits and the rest, up to 7. */
INLINE void block_iq3_s(const uint8_t *b, const struct amx_out *out)
{
    struct i_block block;
    i_block_iq3_s(b, &block);
    *out->d = x86_half_at(b);
    __m512i low = _mm512_and_si512(block.scales, _mm512_set1_epi16(3));
    __m512i high = _mm512_srli_epi16(block.scales, 2);
    for (int j = 0; j < 4; j++) {
        __m512i first = _mm512_mullo_epi16(block.rows[j], amx_scales_of_16(low, j));
        __m512i second = _mm512_mullo_epi16(block.rows[j], amx_scales_of_16(high, j));
        amx_put_first(out, j, with_signs(first, block.signs[j]));
        amx_put_second(out, j, with_signs(second, block.signs[j]));
    }
}

/* (2s + 1) * (8 * v +- 1) = (s + 1) * (8 * v +- 1) + s * (8 * v +- 1), bytes both. */
INLINE void block_iq1_s(const uint8_t *b, const struct amx_out *out)
{
    const __m512i eights = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m512i codes[4];
    i_rows_iq1(iq1_s_numbers(b), codes);
    *out->d = x86_half_at(b) * 0.125f;
    /* Quadword g: the word of group g, whose bit 15 says a negative delta, four times. */
    __m512i words = _mm512_cvtepu16_epi64(i_load16(b + 34));
    words = _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                           0, 1, 0, 1, 0, 1, 0, 1, 8, 9, 8, 9, 8, 9, 8, 9)));
    /* 8 * v +- 1 for v & 3 = 0, 1 and 3 */
    __m512i values = _mm512_set1_epi64((int64_t)0xfff8000000080000);
    __m512i delta = _mm512_or_si512(_mm512_srai_epi16(words, 15), _mm512_set1_epi16(1));
    values = _mm512_add_epi16(values, delta);
    __m512i s = _mm512_and_si512(_mm512_srli_epi16(words, 12), _mm512_set1_epi16(7));
    __m512i second = _mm512_mullo_epi16(values, s);
    __m512i first = _mm512_add_epi16(second, values);
    /* Dword g: the table of group g. */
    first = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(first));
    second = _mm512_castsi256_si512(_mm512_cvtepi16_epi8(second));
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_add_epi32(eights, _mm512_set1_epi32(2 * j));
        __m512i code = _mm512_and_si512(codes[j], _mm512_set1_epi8(3));
        amx_put_first(out, j,
                      _mm512_shuffle_epi8(_mm512_permutexvar_epi32(index, first), code));
        amx_put_second(out, j,
                       _mm512_shuffle_epi8(_mm512_permutexvar_epi32(index, second), code));
    }
}

/* The same with a delta for each eight values and a scale for 16, which have a table: first, then
 * second. */
INLINE void block_iq1_m(const uint8_t *b, const struct amx_out *out)
{
    const __m512i levels = _mm512_broadcast_i32x4(_mm_setr_epi16(1, 9, 0, -7, -1, 7, 0, -9));
    __m512i kinds[4], s = _mm512_srli_epi16(iq1_m_scales(b), 1);
    uint64_t words;
    memcpy(&words, b + 48, 8);
    *out->d = x86_iq1_m_d(words);
    iq1_m_kinds(b, kinds);
    for (int j = 0; j < 4; j++) {
        __m512i second = _mm512_mullo_epi16(levels, amx_scales_of_16(s, j));
        __m512i table = _mm512_packs_epi16(_mm512_add_epi16(second, levels), second);
        amx_put_first(out, j, _mm512_shuffle_epi8(table, kinds[j]));
        kinds[j] = _mm512_or_si512(kinds[j], _mm512_set1_epi8(8));
        amx_put_second(out, j, _mm512_shuffle_epi8(table, kinds[j]));
    }
}

/* A table of the low bytes and one of the high bytes of 16 values times the scale of 32 codes. */
INLINE void block_iq4_xs(const uint8_t *b, const struct amx_out *out)
{
    const __m512i values =
        _mm512_broadcast_i64x4(_mm256_cvtepi8_epi16(i_load16(codebook_iq4nl)));
    const __m512i right = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    const __m512i eights = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i lows = _mm512_setr_epi64(
        0x0e0c0a0806040200, 0x1e1c1a1816141210, 0x0e0c0a0806040200, 0x1e1c1a1816141210,
        0x2e2c2a2826242220, 0x3e3c3a3836343230, 0x2e2c2a2826242220, 0x3e3c3a3836343230);
    const __m512i highs = _mm512_add_epi8(lows, _mm512_set1_epi8(1));
    _Alignas(32) int32_t pairs[8];
    *out->d = x86_half_at(b);
    x86_iq4_xs_scale_pairs(b, pairs);
    __m512i scales = _mm512_castsi256_si512(_mm256_load_si256((const __m256i *)pairs));
    for (int j = 0; j < 4; j++) {
        /* 16 bytes: 16 low nibbles, then 16 high ones. */
        __m512i x = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                             _mm512_castsi256_si512(i_load32(b + 8 + 32 * j)));
        x = _mm512_and_si512(_mm512_srlv_epi64(x, right), _mm512_set1_epi8(15));
        __m512i index = _mm512_add_epi32(eights, _mm512_set1_epi32(2 * j));
        __m512i table = _mm512_mullo_epi16(values, _mm512_permutexvar_epi32(index, scales));
        amx_put_first(out, j, _mm512_shuffle_epi8(_mm512_permutexvar_epi8(lows, table), x));
        amx_put_second(out, j, _mm512_shuffle_epi8(_mm512_permutexvar_epi8(highs, table), x));
    }
}

AMX_PANEL(iq2_xxs, .block_bytes = 66, .second = AMX_SHIFTED, .first_unsigned = true, .shift = 8)
AMX_PANEL(iq2_xs, .block_bytes = 74, .second = AMX_SHIFTED, .first_unsigned = true, .shift = 8)
AMX_PANEL(iq2_s, .block_bytes = 82, .second = AMX_SHIFTED, .first_unsigned = true, .shift = 8)
AMX_PANEL(iq3_xxs, .block_bytes = 98, .second = AMX_SHIFTED, .first_unsigned = true, .shift = 8)
AMX_PANEL(iq3_s, .block_bytes = 110, .second = AMX_SHIFTED, .shift = 2)
AMX_PANEL(iq1_s, .block_bytes = 50, .second = AMX_ADDED)
AMX_PANEL(iq1_m, .block_bytes = 56, .second = AMX_ADDED)
AMX_PANEL(iq4_xs, .block_bytes = 136, .second = AMX_SHIFTED, .first_unsigned = true, .shift = 8)

void cpu_set_amx_i(struct cpu_matmul *m)
{
    m->panel[TYPE_IQ2_XXS] = panel_iq2_xxs;
    m->panel[TYPE_IQ2_XS] = panel_iq2_xs;
    m->panel[TYPE_IQ2_S] = panel_iq2_s;
    m->panel[TYPE_IQ3_XXS] = panel_iq3_xxs;
    m->panel[TYPE_IQ3_S] = panel_iq3_s;
    m->panel[TYPE_IQ1_S] = panel_iq1_s;
    m->panel[TYPE_IQ1_M] = panel_iq1_m;
    m->panel[TYPE_IQ4_XS] = panel_iq4_xs;
}
