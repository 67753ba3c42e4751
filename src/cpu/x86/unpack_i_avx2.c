/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types to their integer form with AVX2 and F16C. The rows of a group of 32 values are
 * bytes, which fill a register. Compiled twice, with gathers and without (i_blocks_avx2.h). */
#include "cpu/x86/codebook_words.h"
#include "cpu/x86/i_blocks_avx2.h"
#include "cpu/x86/x86.h"

/* Group g: the values times the scales of its halves. */
static inline void put(int16_t *w, int g, __m256i values, __m256i scale0, __m256i scale1)
{
    __m256i first = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(values));
    __m256i second = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(values, 1));
    __m256i *out = (__m256i *)(w + 32 * g);
    _mm256_store_si256(out, _mm256_mullo_epi16(first, scale0));
    _mm256_store_si256(out + 1, _mm256_mullo_epi16(second, scale1));
}

/* d_factor: the constant power of two of the type. */
static inline void unpack_signed(const uint8_t *b, int n, struct quant_row *out,
                                 const int block_bytes, const float d_factor,
                                 i_block_fn *take_apart)
{
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += block_bytes) {
        struct i_block block;
        x86_prefetch_ahead(b, block_bytes);
        out->d[k] = x86_half_at(b) * d_factor;
        take_apart(b, &block);
        x86_store_pairs(pairs, block.scales);
        for (int g = 0; g < 8; g++)
            put(out->w + 256 * k, g, i_codes(&block, g), _mm256_set1_epi32(pairs[2 * g]),
                _mm256_set1_epi32(pairs[2 * g + 1]));
    }
}

static void unpack_iq2_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_signed(b, n, out, 66, 0.125f, i_block_iq2_xxs);
}

static void unpack_iq2_xs(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_signed(b, n, out, 74, 0.125f, i_block_iq2_xs);
}

static void unpack_iq2_s(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_signed(b, n, out, 82, 0.125f, i_block_iq2_s);
}

static void unpack_iq3_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_signed(b, n, out, 98, 0.25f, i_block_iq3_xxs);
}

static void unpack_iq3_s(const uint8_t *b, int n, struct quant_row *out)
{
    unpack_signed(b, n, out, 110, 1, i_block_iq3_s);
}

/* Eight IQ1 rows, two bits a value, twice in each dword. low: eight bytes; high: bits 8..10. */
static inline __m256i iq1_words(const uint8_t *low, __m256i high)
{
    return i_rows8(x86_iq1.rows, iq1_numbers(low, high));
}

/* Dwords 2v and 2v + 1, each in a whole lane. */
static inline __m256i lanes_of(__m256i x, int v)
{
    const __m256i lane = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    return _mm256_permutevar8x32_epi32(x, _mm256_add_epi32(lane, _mm256_set1_epi32(2 * v)));
}

/* The two bits of value j, in each word of the row, to the top. */
static inline __m256i codes_to_top(__m256i rows)
{
    const __m128i factors = _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 4, 1);
    return _mm256_mullo_epi16(rows, _mm256_broadcastsi128_si256(factors));
}

/* With a code v + 1, (2s + 1) * (8 * v +- 1) is 8 * (2s + 1) * code + (2s + 1) * (-8 +- 1). For the
 * eight words of a block: eight factors, then eight addends. */
static inline void iq1_s_lines(const uint8_t *b, int32_t lines[16])
{
    __m128i words = i_load16(b);
    __m128i factor = _mm_and_si128(_mm_srli_epi16(words, 8), _mm_set1_epi16(0x70));
    factor = _mm_or_si128(factor, _mm_set1_epi16(8));
    __m128i negative = _mm_srai_epi16(words, 15), one = _mm_srli_epi16(factor, 3);
    one = _mm_sub_epi16(_mm_xor_si128(one, negative), negative);
    i_store_twice(lines, _mm256_set_m128i(_mm_sub_epi16(one, factor), factor));
}

static void unpack_iq1_s(const uint8_t *b, int n, struct quant_row *out)
{
    const __m256i right = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
    _Alignas(32) int32_t lines[16];
    for (int k = 0; k < n / 256; k++, b += 50) {
        x86_prefetch_ahead(b, 50);
        out->d[k] = x86_half_at(b) * 0.125f;
        iq1_s_lines(b + 34, lines);
        for (int pair = 0; pair < 4; pair++) { /* of groups */
            __m256i words = _mm256_set1_epi32((int)bytes_u32(b + 34 + 4 * pair));
            __m256i rows = iq1_words(b + 2 + 8 * pair, _mm256_srlv_epi32(words, right));
            for (int v = 0; v < 4; v++) {
                int g = 2 * pair + v / 2;
                __m256i codes = _mm256_srli_epi16(codes_to_top(lanes_of(rows, v)), 14);
                codes = _mm256_mullo_epi16(codes, _mm256_set1_epi32(lines[g]));
                codes = _mm256_add_epi16(codes, _mm256_set1_epi32(lines[8 + g]));
                _mm256_store_si256((__m256i *)(out->w + 256 * k + 64 * pair + 16 * v), codes);
            }
        }
    }
}

static void unpack_iq1_m(const uint8_t *b, int n, struct quant_row *out)
{
    const __m256i right = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i eight = _mm256_set1_epi32(8);
    _Alignas(32) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 56) {
        x86_prefetch_ahead(b, 56);
        uint64_t words;
        memcpy(&words, b + 48, 8);
        out->d[k] = x86_iq1_m_d(words);
        i_store_twice(pairs, iq1_m_scales(words));
        for (int pair = 0; pair < 4; pair++) { /* of groups */
            __m256i nibbles = _mm256_set1_epi32((int)bytes_u32(b + 32 + 4 * pair));
            nibbles = _mm256_srlv_epi32(nibbles, right);
            __m256i rows = iq1_words(b + 8 * pair, nibbles);
            /* 8 * v +- 1 is 8 * (v + 1) and -7 or -9. */
            __m256i delta = _mm256_cmpeq_epi32(_mm256_and_si256(nibbles, eight), eight);
            delta = _mm256_sub_epi16(_mm256_slli_epi16(delta, 1), _mm256_set1_epi16(7));
            for (int v = 0; v < 4; v++) {
                __m256i codes = _mm256_srli_epi16(codes_to_top(lanes_of(rows, v)), 11);
                codes = _mm256_and_si256(codes, _mm256_set1_epi16(24));
                codes = _mm256_add_epi16(codes, lanes_of(delta, v));
                codes = _mm256_mullo_epi16(codes, _mm256_set1_epi32(pairs[4 * pair + v]));
                _mm256_store_si256((__m256i *)(out->w + 256 * k + 64 * pair + 16 * v), codes);
            }
        }
    }
}

static void unpack_iq4_xs(const uint8_t *b, int n, struct quant_row *out)
{
    const __m128i table = i_load16(codebook_iq4nl), nibble = _mm_set1_epi8(15);
    _Alignas(32) int32_t pairs[8];
    for (int k = 0; k < n / 256; k++, b += 136) {
        x86_prefetch_ahead(b, 136);
        out->d[k] = x86_half_at(b);
        x86_iq4_xs_scale_pairs(b, pairs);
        for (int g = 0; g < 8; g++) {
            __m256i *w = (__m256i *)(out->w + 256 * k + 32 * g);
            __m128i x = i_load16(b + 8 + 16 * g);
            __m128i low = _mm_and_si128(x, nibble);
            __m128i high = _mm_and_si128(_mm_srli_epi16(x, 4), nibble);
            __m256i first = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(table, low));
            __m256i second = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(table, high));
            __m256i scale = _mm256_set1_epi32(pairs[g]);
            _mm256_store_si256(w, _mm256_mullo_epi16(first, scale));
            _mm256_store_si256(w + 1, _mm256_mullo_epi16(second, scale));
        }
    }
}

#ifdef WITHOUT_GATHERS
void cpu_set_unpack_i_avx2_loads(struct cpu_matmul *m)
#else
void cpu_set_unpack_i_avx2(struct cpu_matmul *m)
#endif
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
