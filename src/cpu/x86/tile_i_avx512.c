/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the codebook types as records for prefill tiles, with AVX-512 VNNI. Compiled twice, with
 * gathers and without (i_blocks_avx512.h). */
#include "cpu/x86/i_blocks_avx512.h"
#include "cpu/x86/tile_avx512.h"

/* d_factor: the constant power of two of the type. wide: a scale for 32 codes; the block has it
 * twice. */
INLINE void unpack_signed(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                          const int block_bytes, const float d_factor, const bool wide,
                          i_block_fn *take_apart)
{
    for (int k = 0; k < l->n / 256; k++, b += block_bytes) {
        struct i_block block;
        __m512i codes[4];
        x86_prefetch_ahead(b, block_bytes);
        take_apart(b, &block);
        tile_d(out, l)[k] = x86_half_at(b) * d_factor;
        for (int j = 0; j < 4; j++)
            codes[j] = _mm512_mask_sub_epi8(block.rows[j], block.signs[j], _mm512_setzero_si512(),
                                            block.rows[j]);
        __m256i scales = _mm512_castsi512_si256(block.scales);
        if (wide)
            tile_put_s32(out, l, k, codes, _mm256_and_si256(scales, _mm256_set1_epi32(0xffff)));
        else
            tile_put_s16(out, l, k, codes, _mm512_cvtepu16_epi32(scales));
    }
}

static void unpack_iq2_xxs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 66, 0.125f, true, i_block_iq2_xxs);
}

static void unpack_iq2_xs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 74, 0.125f, false, i_block_iq2_xs);
}

static void unpack_iq2_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 82, 0.125f, false, i_block_iq2_s);
}

static void unpack_iq3_xxs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 98, 0.25f, true, i_block_iq3_xxs);
}

static void unpack_iq3_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_signed(b, l, out, 110, 1, true, i_block_iq3_s);
}

/* (2s + 1) * (8 * v +- 1): the codes are 8 * v +- 1. */
static void unpack_iq1_s(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m512i eights = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    for (int k = 0; k < l->n / 256; k++, b += 50) {
        x86_prefetch_ahead(b, 50);
        __m512i codes[4];
        i_rows_iq1(iq1_s_numbers(b), codes);
        tile_d(out, l)[k] = x86_half_at(b) * 0.125f;
        __m256i words = _mm256_cvtepi16_epi32(i_load16(b + 34)); /* bit 15: a negative delta */
        /* Dword g: 8 * v +- 1 for v & 3 = 0, 1 and 3. */
        __m256i plus = _mm256_set1_epi32((int)0xf9000901),
                minus = _mm256_set1_epi32((int)0xf70007ff);
        __m512i table =
            _mm512_castsi256_si512(_mm256_blendv_epi8(plus, minus, _mm256_srai_epi32(words, 31)));
        for (int j = 0; j < 4; j++) {
            __m512i index = _mm512_add_epi32(eights, _mm512_set1_epi32(2 * j));
            codes[j] = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(index, table),
                                           _mm512_and_si512(codes[j], _mm512_set1_epi8(3)));
        }
        __m256i scales = _mm256_and_si256(_mm256_srli_epi32(words, 11), _mm256_set1_epi32(14));
        tile_put_s32(out, l, k, codes, _mm256_or_si256(scales, _mm256_set1_epi32(1)));
    }
}

/* The same with a delta for each eight values and a scale for 16. */
static void unpack_iq1_m(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m512i values = _mm512_broadcast_i32x4(
        _mm_setr_epi8(1, 9, 0, -7, -1, 7, 0, -9, 0, 0, 0, 0, 0, 0, 0, 0));
    for (int k = 0; k < l->n / 256; k++, b += 56) {
        x86_prefetch_ahead(b, 56);
        __m512i codes[4];
        uint64_t words;
        memcpy(&words, b + 48, 8);
        tile_d(out, l)[k] = x86_iq1_m_d(words);
        iq1_m_kinds(b, codes);
        for (int j = 0; j < 4; j++)
            codes[j] = _mm512_shuffle_epi8(values, codes[j]);
        __m256i scales = _mm512_castsi512_si256(iq1_m_scales(b));
        tile_put_s16(out, l, k, codes, _mm512_cvtepu16_epi32(scales));
    }
}

static void unpack_iq4_xs(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m512i table = _mm512_broadcast_i32x4(i_load16(codebook_iq4nl));
    const __m512i right = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    _Alignas(32) int32_t pairs[8];
    for (int k = 0; k < l->n / 256; k++, b += 136) {
        x86_prefetch_ahead(b, 136);
        tile_d(out, l)[k] = x86_half_at(b);
        x86_iq4_xs_scale_pairs(b, pairs);
        __m512i codes[4];
        for (int j = 0; j < 4; j++) {
            /* 16 bytes: 16 low nibbles, then 16 high ones. */
            __m256i x = i_load32(b + 8 + 32 * j);
            __m512i v = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                                 _mm512_castsi256_si512(x));
            v = _mm512_and_si512(_mm512_srlv_epi64(v, right), _mm512_set1_epi8(15));
            codes[j] = _mm512_shuffle_epi8(table, v);
        }
        __m256i scales = _mm256_load_si256((const __m256i *)pairs);
        tile_put_s32(out, l, k, codes, _mm256_srai_epi32(scales, 16));
    }
}

#ifdef WITHOUT_GATHERS
void cpu_set_tile_i_avx512_lookup(struct cpu_matmul *m)
#else
void cpu_set_tile_i_avx512_vnni(struct cpu_matmul *m)
#endif
{
    x86_codebooks_init();
    m->tile[TYPE_IQ2_XXS] = (struct cpu_tile){unpack_iq2_xxs, cpu_tile256_s32};
    m->tile[TYPE_IQ2_XS] = (struct cpu_tile){unpack_iq2_xs, cpu_tile256_s16};
    m->tile[TYPE_IQ2_S] = (struct cpu_tile){unpack_iq2_s, cpu_tile256_s16};
    m->tile[TYPE_IQ3_XXS] = (struct cpu_tile){unpack_iq3_xxs, cpu_tile256_s32};
    m->tile[TYPE_IQ3_S] = (struct cpu_tile){unpack_iq3_s, cpu_tile256_s32};
    m->tile[TYPE_IQ1_S] = (struct cpu_tile){unpack_iq1_s, cpu_tile256_s32};
    m->tile[TYPE_IQ1_M] = (struct cpu_tile){unpack_iq1_m, cpu_tile256_s16};
    m->tile[TYPE_IQ4_XS] = (struct cpu_tile){unpack_iq4_xs, cpu_tile256_s32};
}
