/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types to their integer form with AVX2 and F16C. A register holds 16 words: two rows of
 * eight or four rows of four, loaded as words together with their signs (grids.h). */
#include "base/tensor_type.h"
#include "cpu/x86/grids.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/x86.h"
#include "quant/codebooks.h"

static inline __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline uint16_t u16_at(const uint8_t *b)
{
    uint16_t u;
    memcpy(&u, b, 2);
    return u;
}

static inline uint32_t u32_at(const uint8_t *b)
{
    uint32_t u;
    memcpy(&u, b, 4);
    return u;
}

/* Eight words from each of two places. */
static inline __m256i load_two(const int16_t *low, const int16_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(low)), load16(high), 1);
}

/* Four words of a row in all quadwords. */
static inline __m256i broadcast_row(const int16_t row[4])
{
    int64_t value;
    memcpy(&value, row, 8);
    return _mm256_set1_epi64x(value);
}

static inline __m256i load_four(const int16_t *r0, const int16_t *r1, const int16_t *r2,
                                const int16_t *r3)
{
    __m256i low = _mm256_blend_epi32(broadcast_row(r0), broadcast_row(r1), 0x0c);
    __m256i high = _mm256_blend_epi32(broadcast_row(r2), broadcast_row(r3), 0xc0);
    return _mm256_blend_epi32(low, high, 0xf0);
}

static inline void put(int16_t *w, __m256i values, __m256i signs, int scale)
{
    __m256i product =
        _mm256_mullo_epi16(_mm256_sign_epi16(values, signs), _mm256_set1_epi16((short)scale));
    _mm256_store_si256((__m256i *)w, product);
}

/* Eight words 1 or -1 for the lowest seven bits of signs. */
static inline const int16_t *ksign(uint32_t signs)
{
    return x86_grids.ksign[signs & 127];
}

static void unpack_iq2_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    int16_t(*grid)[8] = x86_grids.iq2xxs;
    for (int k = 0; k < n / 256; k++, b += 66) {
        out->d[k] = x86_half_at(b) * 0.125f;
        for (int g = 0; g < 8; g++) {
            int16_t *w = out->w + 256 * k + 32 * g;
            const uint8_t *r = b + 2 + 8 * g;
            uint32_t word = u32_at(r + 4);
            int scale = (int)(2 * (word >> 28) + 1);
            put(w, load_two(grid[r[0]], grid[r[1]]), load_two(ksign(word), ksign(word >> 7)),
                scale);
            put(w + 16, load_two(grid[r[2]], grid[r[3]]),
                load_two(ksign(word >> 14), ksign(word >> 21)), scale);
        }
    }
}

/* Scale v of the nibbles at b. */
static inline int scale_iq2(const uint8_t *b, int v)
{
    return 2 * (b[v / 2] >> 4 * (v % 2) & 15) + 1;
}

static void unpack_iq2_xs(const uint8_t *b, int n, struct quant_row *out)
{
    int16_t(*grid)[8] = x86_grids.iq2xs;
    for (int k = 0; k < n / 256; k++, b += 74) {
        out->d[k] = x86_half_at(b) * 0.125f;
        for (int v = 0; v < 16; v++) {
            uint16_t q0 = u16_at(b + 2 + 4 * v), q1 = u16_at(b + 2 + 4 * v + 2);
            put(out->w + 256 * k + 16 * v, load_two(grid[q0 & 511], grid[q1 & 511]),
                load_two(ksign(q0 >> 9), ksign(q1 >> 9)), scale_iq2(b + 66, v));
        }
    }
}

static void unpack_iq2_s(const uint8_t *b, int n, struct quant_row *out)
{
    int16_t(*grid)[8] = x86_grids.iq2s, (*sign)[8] = x86_grids.sign;
    for (int k = 0; k < n / 256; k++, b += 82) {
        out->d[k] = x86_half_at(b) * 0.125f;
        for (int v = 0; v < 16; v++) {
            int t = 2 * v, high = b[66 + t / 4] >> 2 * (t % 4);
            int r0 = b[2 + t] | (high & 3) << 8, r1 = b[2 + t + 1] | (high & 12) << 6;
            put(out->w + 256 * k + 16 * v, load_two(grid[r0], grid[r1]),
                load_two(sign[b[34 + t]], sign[b[34 + t + 1]]), scale_iq2(b + 74, v));
        }
    }
}

static void unpack_iq3_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    int16_t(*grid)[4] = x86_grids.iq3xxs;
    for (int k = 0; k < n / 256; k++, b += 98) {
        out->d[k] = x86_half_at(b) * 0.25f;
        for (int v = 0; v < 16; v++) {
            uint32_t word = u32_at(b + 66 + 4 * (v / 2));
            uint32_t signs = v % 2 ? word >> 14 : word;
            const uint8_t *r = b + 2 + 4 * v;
            put(out->w + 256 * k + 16 * v,
                load_four(grid[r[0]], grid[r[1]], grid[r[2]], grid[r[3]]),
                load_two(ksign(signs), ksign(signs >> 7)), (int)(2 * (word >> 28) + 1));
        }
    }
}

static void unpack_iq3_s(const uint8_t *b, int n, struct quant_row *out)
{
    int16_t(*grid)[4] = x86_grids.iq3s, (*sign)[8] = x86_grids.sign;
    for (int k = 0; k < n / 256; k++, b += 110) {
        out->d[k] = x86_half_at(b);
        for (int v = 0; v < 16; v++) {
            const uint8_t *r = b + 2 + 4 * v;
            int high = b[66 + v / 2] >> 4 * (v % 2);
            __m256i rows = load_four(grid[r[0] | (high & 1) << 8], grid[r[1] | (high & 2) << 7],
                                     grid[r[2] | (high & 4) << 6], grid[r[3] | (high & 8) << 5]);
            put(out->w + 256 * k + 16 * v, rows,
                load_two(sign[b[74 + 2 * v]], sign[b[74 + 2 * v + 1]]), scale_iq2(b + 106, v / 2));
        }
    }
}

/* The codes of two IQ1 rows: the two bits of value j move to the top of their word and down. */
static inline __m256i iq1_codes(int r0, int r1)
{
    const __m256i to_top = _mm256_broadcastsi128_si256(
        _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1));
    const uint32_t *grid = x86_grids.iq1s;
    __m256i rows = _mm256_blend_epi32(_mm256_set1_epi32((int)grid[r0]),
                                      _mm256_set1_epi32((int)grid[r1]), 0xf0);
    return _mm256_srli_epi16(_mm256_mullo_epi16(rows, to_top), 14);
}

/* With a code v + 1, (2s + 1) * (8 * v +- 1) is 8 * (2s + 1) * code plus the level of v = -1. */
static void unpack_iq1_s(const uint8_t *b, int n, struct quant_row *out)
{
    for (int k = 0; k < n / 256; k++, b += 50) {
        out->d[k] = x86_half_at(b) * 0.125f;
        for (int g = 0; g < 8; g++) {
            const uint8_t *r = b + 2 + 4 * g;
            int word = u16_at(b + 34 + 2 * g);
            __m256i lowest = _mm256_set1_epi16(x86_grids.iq1s_levels[word >> 12][0]);
            __m256i step = _mm256_set1_epi16((short)(8 * (2 * (word >> 12 & 7) + 1)));
            __m256i first = iq1_codes(r[0] | (word & 7) << 8, r[1] | (word & 7 << 3) << 5);
            __m256i second = iq1_codes(r[2] | (word & 7 << 6) << 2, r[3] | (word & 7 << 9) >> 1);
            __m256i *w = (__m256i *)(out->w + 256 * k + 32 * g);
            _mm256_store_si256(w, _mm256_add_epi16(_mm256_mullo_epi16(first, step), lowest));
            _mm256_store_si256(w + 1, _mm256_add_epi16(_mm256_mullo_epi16(second, step), lowest));
        }
    }
}

static void unpack_iq1_m(const uint8_t *b, int n, struct quant_row *out)
{
    for (int k = 0; k < n / 256; k++, b += 56) {
        uint64_t words;
        memcpy(&words, b + 48, 8);
        out->d[k] = x86_iq1_m_d(words);
        for (int v = 0; v < 16; v++) {
            int t = 2 * v, nibbles = b[32 + v];
            int scale = 2 * (int)(words >> (16 * (v / 4) + 3 * (v % 4)) & 7) + 1;
            __m256i codes =
                iq1_codes(b[t] | (nibbles & 7) << 8, b[t + 1] | (nibbles & 7 << 4) << 4);
            /* 8 * v +- 1 is 8 * code and -7 or -9. */
            __m256i delta = _mm256_set_m128i(_mm_set1_epi16((short)(nibbles & 128 ? -9 : -7)),
                                             _mm_set1_epi16((short)(nibbles & 8 ? -9 : -7)));
            __m256i values = _mm256_add_epi16(_mm256_slli_epi16(codes, 3), delta);
            values = _mm256_mullo_epi16(values, _mm256_set1_epi16((short)scale));
            _mm256_store_si256((__m256i *)(out->w + 256 * k + 16 * v), values);
        }
    }
}

static void unpack_iq4_xs(const uint8_t *b, int n, struct quant_row *out)
{
    const __m128i table = load16(codebook_iq4nl), nibble = _mm_set1_epi8(15);
    _Alignas(32) int32_t pairs[8];
    for (int k = 0; k < n / 256; k++, b += 136) {
        out->d[k] = x86_half_at(b);
        x86_iq4_xs_scale_pairs(b, pairs);
        for (int g = 0; g < 8; g++) {
            __m256i *w = (__m256i *)(out->w + 256 * k + 32 * g);
            __m128i x = load16(b + 8 + 16 * g);
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

void cpu_set_unpack_i_avx2(struct cpu_matmul *m)
{
    x86_grids_init();
    m->unpack[TYPE_IQ2_XXS] = unpack_iq2_xxs;
    m->unpack[TYPE_IQ2_XS] = unpack_iq2_xs;
    m->unpack[TYPE_IQ2_S] = unpack_iq2_s;
    m->unpack[TYPE_IQ3_XXS] = unpack_iq3_xxs;
    m->unpack[TYPE_IQ3_S] = unpack_iq3_s;
    m->unpack[TYPE_IQ1_S] = unpack_iq1_s;
    m->unpack[TYPE_IQ1_M] = unpack_iq1_m;
    m->unpack[TYPE_IQ4_XS] = unpack_iq4_xs;
}
