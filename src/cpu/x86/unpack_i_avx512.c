/* SPDX-License-Identifier: Apache-2.0 */
/* Codebook types to their integer form with AVX-512 F, BW, VL, DQ. The rows of a block are gathered
 * as bytes, 64 values a register; signs are mask registers. All gathers of a block come before its
 * other work: on the Xeon this was written on, gathers between mask instructions took half as long
 * again. */
#include "base/tensor_type.h"
#include "cpu/x86/iq1_rows.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/x86.h"
#include "quant/codebooks.h"

static inline __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline uint64_t u64_at(const void *p)
{
    uint64_t u;
    memcpy(&u, p, 8);
    return u;
}

/* Two vectors of dwords from the 32 words of x. */
static inline void widen(__m512i x, __m512i out[2])
{
    out[0] = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(x));
    out[1] = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(x, 1));
}

/* All 32 rows of a block, eight values each, for row numbers as dwords. */
static inline void gather_rows(const uint64_t *grid, const __m512i numbers[2], __m512i rows[4])
{
    for (int i = 0; i < 2; i++) {
        __m256i low = _mm512_castsi512_si256(numbers[i]);
        __m256i high = _mm512_extracti64x4_epi64(numbers[i], 1);
        rows[2 * i] = _mm512_i32gather_epi64(low, grid, 8);
        rows[2 * i + 1] = _mm512_i32gather_epi64(high, grid, 8);
    }
}

/* Groups 2j and 2j + 1: values, negative where a bit of signs is 1, times the groups' scales. */
static inline void put_two(int16_t *w, int j, __m512i values, uint64_t signs, __m512i scale0,
                           __m512i scale1)
{
    values = _mm512_mask_sub_epi8(values, signs, _mm512_setzero_si512(), values);
    __m512i first = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(values));
    __m512i second = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(values, 1));
    _mm512_store_si512(w + 64 * j, _mm512_mullo_epi16(first, scale0));
    _mm512_store_si512(w + 64 * j + 32, _mm512_mullo_epi16(second, scale1));
}

/* The scales of group g, two of the 16 words of `scales`. */
static inline __m512i scale_of(int g, __m512i scales)
{
    __m512i halves = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);
    __m512i index = _mm512_add_epi16(halves, _mm512_set1_epi16((short)(2 * g)));
    return _mm512_permutexvar_epi16(index, scales);
}

/* Sign bytes of seven bits with the eighth bit that makes the number of ones even. */
static inline __m256i complete_signs(__m256i bits)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i folded = _mm256_xor_si256(bits, _mm256_srli_epi16(bits, 4));
    folded = _mm256_and_si256(folded, _mm256_set1_epi8(15));
    return _mm256_or_si256(bits, _mm256_shuffle_epi8(parity, folded));
}

/* IQ2_XXS, IQ3_XXS: what the words w of the eight groups say. */
struct word_parts {
    _Alignas(32) uint64_t signs[4];
    _Alignas(32) int32_t scale[8]; /* 2s + 1, in both halves */
};

/* a | (b & mask) */
static inline __m256i or_masked(__m256i a, __m256i b, int mask)
{
    return _mm256_ternarylogic_epi32(a, b, _mm256_set1_epi32(mask), 0xf8);
}

static inline void split_words(__m256i w, struct word_parts *out)
{
    __m256i bits = _mm256_and_si256(w, _mm256_set1_epi32(0x7f));
    bits = or_masked(bits, _mm256_slli_epi32(w, 1), 0x7f00);
    bits = or_masked(bits, _mm256_slli_epi32(w, 2), 0x7f0000);
    bits = or_masked(bits, _mm256_slli_epi32(w, 3), 0x7f000000);
    _mm256_store_si256((__m256i *)out->signs, complete_signs(bits));
    __m256i scale = _mm256_or_si256(_mm256_srli_epi32(w, 27), _mm256_set1_epi32(1));
    scale = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
    _mm256_store_si256((__m256i *)out->scale, scale);
}

static inline void put_word_groups(int16_t *w, const __m512i rows[4], const struct word_parts *p)
{
    for (int j = 0; j < 4; j++)
        put_two(w, j, rows[j], p->signs[j], _mm512_set1_epi32(p->scale[2 * j]),
                _mm512_set1_epi32(p->scale[2 * j + 1]));
}

static void unpack_iq2_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    struct word_parts parts;
    __m512i rows[4], numbers[2];
    for (int k = 0; k < n / 256; k++, b += 66) {
        x86_prefetch_ahead(b, 66);
        __m512i groups = _mm512_loadu_si512(b + 2); /* four row numbers and w, eight times */
        widen(_mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(groups)), numbers);
        gather_rows(codebook_iq2xxs, numbers, rows);
        split_words(_mm512_cvtepi64_epi32(_mm512_srli_epi64(groups, 32)), &parts);
        out->d[k] = x86_half_at(b) * 0.125f;
        put_word_groups(out->w + 256 * k, rows, &parts);
    }
}

/* IQ2_XS, IQ2_S: 16 scales 2s + 1 as words from eight bytes. */
static inline __m512i scales_iq2(const uint8_t *b)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)b);
    x = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4)); /* byte v: scale v in its lower half */
    x = _mm_and_si128(x, _mm_set1_epi8(15));
    x = _mm_or_si128(_mm_add_epi8(x, x), _mm_set1_epi8(1));
    return _mm512_castsi256_si512(_mm256_cvtepu8_epi16(x));
}

static inline void put_scaled_groups(int16_t *w, const __m512i rows[4], const uint8_t *signs,
                                     __m512i scales)
{
    for (int j = 0; j < 4; j++)
        put_two(w, j, rows[j], u64_at(signs + 8 * j), scale_of(2 * j, scales),
                scale_of(2 * j + 1, scales));
}

static void unpack_iq2_xs(const uint8_t *b, int n, struct quant_row *out)
{
    _Alignas(32) uint8_t signs[32];
    __m512i rows[4], numbers[2];
    for (int k = 0; k < n / 256; k++, b += 74) {
        x86_prefetch_ahead(b, 74);
        __m512i q = _mm512_loadu_si512(b + 2);
        widen(_mm512_and_si512(q, _mm512_set1_epi16(511)), numbers);
        gather_rows(codebook_iq2xs, numbers, rows);
        __m256i bits = _mm512_cvtepi16_epi8(_mm512_srli_epi16(q, 9));
        _mm256_store_si256((__m256i *)signs, complete_signs(bits));
        out->d[k] = x86_half_at(b) * 0.125f;
        put_scaled_groups(out->w + 256 * k, rows, signs, scales_iq2(b + 66));
    }
}

/* Lane t of 32 words: word t / 4 of x. */
static inline __m512i each_four_times(__m512i x)
{
    const __m512i index =
        _mm512_setr_epi32(0, 0, 0x10001, 0x10001, 0x20002, 0x20002, 0x30003, 0x30003, 0x40004,
                          0x40004, 0x50005, 0x50005, 0x60006, 0x60006, 0x70007, 0x70007);
    return _mm512_permutexvar_epi16(index, x);
}

/* Row numbers from 32 low bytes and, at bit 8 and above, the bits of `high` under `mask`. */
static inline void row_numbers(const uint8_t *low, __m512i high, short mask, __m512i numbers[2])
{
    __m512i words = _mm512_cvtepu8_epi16(load32(low));
    words = _mm512_ternarylogic_epi32(words, high, _mm512_set1_epi16(mask), 0xf8);
    widen(words, numbers);
}

static void unpack_iq2_s(const uint8_t *b, int n, struct quant_row *out)
{
    const __m512i left = _mm512_set1_epi64(0x0002000400060008); /* bits 2(t % 4) go to 8 */
    __m512i rows[4], numbers[2];
    for (int k = 0; k < n / 256; k++, b += 82) {
        x86_prefetch_ahead(b, 82);
        __m128i high = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(b + 66)));
        __m512i spread = each_four_times(_mm512_castsi128_si512(high));
        row_numbers(b + 2, _mm512_sllv_epi16(spread, left), 0x300, numbers);
        gather_rows(codebook_iq2s, numbers, rows);
        out->d[k] = x86_half_at(b) * 0.125f;
        put_scaled_groups(out->w + 256 * k, rows, b + 34, scales_iq2(b + 74));
    }
}

static void unpack_iq3_xxs(const uint8_t *b, int n, struct quant_row *out)
{
    struct word_parts parts;
    __m512i rows[4];
    for (int k = 0; k < n / 256; k++, b += 98) {
        x86_prefetch_ahead(b, 98);
        for (int j = 0; j < 4; j++) {
            __m512i numbers = _mm512_cvtepu8_epi32(load16(b + 2 + 16 * j));
            rows[j] = _mm512_i32gather_epi32(numbers, codebook_iq3xxs, 4);
        }
        split_words(load32(b + 66), &parts);
        out->d[k] = x86_half_at(b) * 0.25f;
        put_word_groups(out->w + 256 * k, rows, &parts);
    }
}

static void unpack_iq3_s(const uint8_t *b, int n, struct quant_row *out)
{
    const __m512i bit8 = _mm512_set1_epi32(256);
    __m512i rows[4];
    for (int k = 0; k < n / 256; k++, b += 110) {
        x86_prefetch_ahead(b, 110);
        uint64_t high = u64_at(b + 66);
        for (int j = 0; j < 4; j++) {
            __m512i numbers = _mm512_cvtepu8_epi32(load16(b + 2 + 16 * j));
            __mmask16 has_bit8 = (__mmask16)(high >> 16 * j);
            numbers = _mm512_mask_add_epi32(numbers, has_bit8, numbers, bit8);
            rows[j] = _mm512_i32gather_epi32(numbers, codebook_iq3s, 4);
        }
        out->d[k] = x86_half_at(b);
        for (int j = 0; j < 4; j++) {
            uint8_t c = b[106 + j];
            put_two(out->w + 256 * k, j, rows[j], u64_at(b + 74 + 8 * j),
                    _mm512_set1_epi16((short)(2 * (c & 15) + 1)),
                    _mm512_set1_epi16((short)(2 * (c >> 4) + 1)));
        }
    }
}

/* All 32 rows of an IQ1 block, two bits a value, twice in each dword. */
static inline void gather_iq1_rows(const __m512i numbers[2], __m512i rows[2])
{
    rows[0] = _mm512_i32gather_epi32(numbers[0], x86_iq1.rows, 4);
    rows[1] = _mm512_i32gather_epi32(numbers[1], x86_iq1.rows, 4);
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

/* Lane t: bits 3(t % 4) of the word, the lowest of them at 0. */
static inline __m512i shift_threes(__m512i words)
{
    return _mm512_srlv_epi16(words, _mm512_set1_epi64(0x0009000600030000));
}

static void unpack_iq1_s(const uint8_t *b, int n, struct quant_row *out)
{
    __m512i rows[2], numbers[2];
    for (int k = 0; k < n / 256; k++, b += 50) {
        x86_prefetch_ahead(b, 50);
        __m512i high = shift_threes(each_four_times(_mm512_castsi128_si512(load16(b + 34))));
        row_numbers(b + 2, _mm512_slli_epi16(high, 8), 0x700, numbers);
        gather_iq1_rows(numbers, rows);
        out->d[k] = x86_half_at(b) * 0.125f;
        for (int g = 0; g < 8; g++) {
            /* All 32 values share scale and delta, so a code's value is looked up. The lookup takes
             * five bits, of which the upper three belong to other codes: the table repeats. */
            uint64_t levels = u64_at(x86_iq1.levels[b[34 + 2 * g + 1] >> 4]);
            __m512i table = _mm512_set1_epi64((int64_t)levels);
            __m512i values = _mm512_permutexvar_epi16(iq1_codes(rows, g), table);
            _mm512_store_si512(out->w + 256 * k + 32 * g, values);
        }
    }
}

static void unpack_iq1_m(const uint8_t *b, int n, struct quant_row *out)
{
    const __m512i lane = _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002,
                                           0x2000200020002, 0x3000300030003, 0x3000300030003);
    __m512i rows[2], numbers[2];
    for (int k = 0; k < n / 256; k++, b += 56) {
        x86_prefetch_ahead(b, 56);
        /* Nibble t to word t, at bit 8: three bits of the row number, and the sign of delta. */
        __m128i x = load16(b + 32), upper = _mm_srli_epi16(x, 4);
        __m256i nibbles =
            _mm256_set_m128i(_mm_unpackhi_epi8(x, upper), _mm_unpacklo_epi8(x, upper));
        __m512i high = _mm512_slli_epi16(_mm512_cvtepu8_epi16(nibbles), 8);
        row_numbers(b, high, 0x700, numbers);
        gather_iq1_rows(numbers, rows);
        /* 16 scales 2s + 1. */
        uint64_t words = u64_at(b + 48);
        __m512i scales = shift_threes(each_four_times(_mm512_set1_epi64((int64_t)words)));
        scales = _mm512_and_si512(scales, _mm512_set1_epi16(7));
        scales = _mm512_or_si512(_mm512_add_epi16(scales, scales), _mm512_set1_epi16(1));
        /* 8 * v +- 1 is 8 * (v + 1) and -7 or -9. */
        __m512i delta = _mm512_and_si512(_mm512_srli_epi16(high, 10), _mm512_set1_epi16(2));
        delta = _mm512_sub_epi16(_mm512_set1_epi16(-7), delta);
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
    const __m512i table = _mm512_broadcast_i64x4(_mm256_cvtepi8_epi16(load16(codebook_iq4nl)));
    _Alignas(32) int32_t pairs[8];
    for (int k = 0; k < n / 256; k++, b += 136) {
        x86_prefetch_ahead(b, 136);
        out->d[k] = x86_half_at(b);
        x86_iq4_xs_scale_pairs(b, pairs);
        for (int g = 0; g < 8; g++) {
            __m256i twice = _mm256_broadcastsi128_si256(load16(b + 8 + 16 * g));
            __m512i codes = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(twice), right);
            __m512i values = _mm512_permutexvar_epi16(codes, table);
            values = _mm512_mullo_epi16(values, _mm512_set1_epi32(pairs[g]));
            _mm512_store_si512(out->w + 256 * k + 32 * g, values);
        }
    }
}

void cpu_set_unpack_i_avx512(struct cpu_matmul *m)
{
    x86_iq1_init();
    m->unpack[TYPE_IQ2_XXS] = unpack_iq2_xxs;
    m->unpack[TYPE_IQ2_XS] = unpack_iq2_xs;
    m->unpack[TYPE_IQ2_S] = unpack_iq2_s;
    m->unpack[TYPE_IQ3_XXS] = unpack_iq3_xxs;
    m->unpack[TYPE_IQ3_S] = unpack_iq3_s;
    m->unpack[TYPE_IQ1_S] = unpack_iq1_s;
    m->unpack[TYPE_IQ1_M] = unpack_iq1_m;
    m->unpack[TYPE_IQ4_XS] = unpack_iq4_xs;
}
