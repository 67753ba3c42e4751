/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types to their integer form with AVX-512 F, BW, VL, DQ. */
#include "cpu/x86/i_blocks_avx512.h"
#include "cpu/x86/x86.h"

/* The scales of group g, two of 16 words. */
static inline __m512i scale_of(int g, __m512i scales)
{
    __m512i halves = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);
    __m512i index = _mm512_add_epi16(halves, _mm512_set1_epi16((short)(2 * g)));
    return _mm512_permutexvar_epi16(index, scales);
}

static inline void put_block(int16_t *w, const struct i_block *block)
{
    for (int j = 0; j < 4; j++, w += 64) {
        __m512i values = block->rows[j];
        values = _mm512_mask_sub_epi8(values, block->signs[j], _mm512_setzero_si512(), values);
        __m512i first = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(values));
        __m512i second = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(values, 1));
        first = _mm512_mullo_epi16(first, scale_of(2 * j, block->scales));
        second = _mm512_mullo_epi16(second, scale_of(2 * j + 1, block->scales));
        _mm512_store_si512(w, first);
        _mm512_store_si512(w + 32, second);
    }
}

/* d_factor: the constant power of two of the type. */
static inline __attribute__((always_inline)) void
unpack_row(const uint8_t *b, int n, struct quant_row *out, const int block_bytes,
           const float d_factor, i_block_fn *take_apart)
{
    for (int k = 0; k < n / 256; k++, b += block_bytes) {
        struct i_block block;
        x86_prefetch_ahead(b, block_bytes);
        take_apart(b, &block);
        out->d[k] = x86_half_at(b) * d_factor;
        put_block(out->w + 256 * k, &block);
    }
}

static void unpack_iq2_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_row(b, n, out, 66, 0.125f, i_block_iq2_xxs);
}

static void unpack_iq2_xs(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_row(b, n, out, 74, 0.125f, i_block_iq2_xs);
}

static void unpack_iq2_s(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_row(b, n, out, 82, 0.125f, i_block_iq2_s);
}

static void unpack_iq3_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_row(b, n, out, 98, 0.25f, i_block_iq3_xxs);
}

static void unpack_iq3_s(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_row(b, n, out, 110, 1, i_block_iq3_s);
}

/* Group g of the rows: each value's code in the lower two bits of its word; above them others. */
static inline __m512i iq1_codes(const __m512i rows[2], int g)
{
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m128i shifts = _mm_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14);
    __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(4 * (g % 4)));
    __m512i spread = _mm512_permutexvar_epi32(index, rows[g / 4]);
    return _mm512_srlv_epi16(spread, _mm512_broadcast_i32x4(shifts));
}

static void unpack_iq1_s(const uint8_t *b, int n, struct quant_row *out)
{
    __m512i rows[2];
    for (int k = 0; k < n / 256; k++, b += 50) {
        x86_prefetch_ahead(b, 50);
        gather_iq1_words(iq1_s_numbers(b), rows);
        out->d[k] = x86_half_at(b) * 0.125f;
        for (int g = 0; g < 8; g++) {
            /* All 32 values share scale and delta, so a code's value is looked up. The lookup takes
             * five bits, of which the upper three belong to other codes: the table repeats. */
            int64_t levels;
            memcpy(&levels, x86_iq1.levels[b[34 + 2 * g + 1] >> 4], 8);
            __m512i table = _mm512_set1_epi64(levels);
            __m512i values = _mm512_permutexvar_epi16(iq1_codes(rows, g), table);
            _mm512_store_si512(out->w + 256 * k + 32 * g, values);
        }
    }
}

static void unpack_iq1_m(const uint8_t *b, int n, struct quant_row *out)
{
    const __m512i lane = _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002,
                                           0x2000200020002, 0x3000300030003, 0x3000300030003);
    __m512i rows[2];
    for (int k = 0; k < n / 256; k++, b += 56) {
        x86_prefetch_ahead(b, 56);
        __mmask32 negative;
        gather_iq1_words(iq1_m_numbers(b, &negative), rows);
        __m512i scales = iq1_m_scales(b);
        uint64_t words;
        memcpy(&words, b + 48, 8);
        /* 8 * v +- 1 is 8 * (v + 1) and -7 or -9. */
        __m512i delta = _mm512_mask_set1_epi16(_mm512_set1_epi16(-7), negative, -9);
        out->d[k] = x86_iq1_m_d(words);
        for (int g = 0; g < 8; g++) {
            __m512i codes = _mm512_and_si512(iq1_codes(rows, g), _mm512_set1_epi16(3));
            __m512i t = _mm512_add_epi16(lane, _mm512_set1_epi16((short)(4 * g)));
            __m512i values =
                _mm512_add_epi16(_mm512_slli_epi16(codes, 3), _mm512_permutexvar_epi16(t, delta));
            values = _mm512_mullo_epi16(values, scale_of(g, scales));
            _mm512_store_si512(out->w + 256 * k + 32 * g, values);
        }
    }
}

static void unpack_iq4_xs(const uint8_t *b, int n, struct quant_row *out)
{
    const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    /* The lookup takes five bits: the table repeats, so the fifth does not matter. */
    const __m512i table = _mm512_broadcast_i64x4(_mm256_cvtepi8_epi16(i_load16(codebook_iq4nl)));
    _Alignas(32) int32_t pairs[8];
    for (int k = 0; k < n / 256; k++, b += 136) {
        x86_prefetch_ahead(b, 136);
        out->d[k] = x86_half_at(b);
        x86_iq4_xs_scale_pairs(b, pairs);
        for (int g = 0; g < 8; g++) {
            __m256i twice = _mm256_broadcastsi128_si256(i_load16(b + 8 + 16 * g));
            __m512i codes = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(twice), right);
            __m512i values = _mm512_permutexvar_epi16(codes, table);
            values = _mm512_mullo_epi16(values, _mm512_set1_epi32(pairs[g]));
            _mm512_store_si512(out->w + 256 * k + 32 * g, values);
        }
    }
}

void cpu_set_unpack_i_avx512(struct cpu_matmul *m)
{
    x86_codebooks_init();
    m->unpack[TYPE_IQ2_XXS] = unpack_iq2_xxs;
    m->unpack[TYPE_IQ2_XS] = unpack_iq2_xs;
    m->unpack[TYPE_IQ2_S] = unpack_iq2_s;
    m->unpack[TYPE_IQ3_XXS] = unpack_iq3_xxs;
    m->unpack[TYPE_IQ3_S] = unpack_iq3_s;
    m->unpack[TYPE_IQ1_S] = unpack_iq1_s;
    m->unpack[TYPE_IQ1_M] = unpack_iq1_m;
    m->unpack[TYPE_IQ4_XS] = unpack_iq4_xs;
}
