/* SPDX-License-Identifier: Apache-2.0 */
/* K types to their integer form with AVX-512 F, BW, VL, DQ. A register holds 32 words, which is the
 * group that the types are made of; see x86.h. */
#include "base/tensor_type.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/x86.h"

/* Which two of 16 scales belong to group g of 32 values. */
static inline __m512i pair_index(int g)
{
    __m512i halves = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);
    return _mm512_add_epi16(halves, _mm512_set1_epi16((short)(2 * g)));
}

/* Group g of the block: code * scale, scales being 16 words. */
static inline void put(int16_t *w, int g, __m512i codes, __m256i scales)
{
    __m512i scale = _mm512_permutexvar_epi16(pair_index(g), _mm512_castsi256_si512(scales));
    _mm512_store_si512(w + 32 * g, _mm512_mullo_epi16(codes, scale));
}

static inline __m512i load_words(const uint8_t *b)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)b));
}

static void unpack_q2_k(const uint8_t *b, int n, struct quant_row *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    const __m512i three = _mm512_set1_epi16(3);
    for (int k = 0; k < n / 256; k++, b += 84) {
        x86_prefetch_ahead(b, 84);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b + 80);
        out->dmin[k] = x86_half_at(b + 82);
        __m128i head = _mm_loadu_si128((const __m128i *)b);
        __m128i mins = _mm_and_si128(_mm_srli_epi16(head, 4), nibble);
        __m256i scales = _mm256_cvtepu8_epi16(_mm_and_si128(head, nibble));
        _mm256_store_si256((__m256i *)(out->m + 16 * k), _mm256_cvtepu8_epi16(mins));
        for (int h = 0; h < 2; h++) {
            __m512i x = load_words(b + 16 + 32 * h);
            put(w, 4 * h, _mm512_and_si512(x, three), scales);
            put(w, 4 * h + 1, _mm512_and_si512(_mm512_srli_epi16(x, 2), three), scales);
            put(w, 4 * h + 2, _mm512_and_si512(_mm512_srli_epi16(x, 4), three), scales);
            put(w, 4 * h + 3, _mm512_srli_epi16(x, 6), scales);
        }
    }
}

/* Two bits of a code, less 4 where the bit of `group` in `high` is 0. */
static inline __m512i code_q3_k(__m512i x, __m512i high, int group)
{
    __m512i low = _mm512_and_si512(x, _mm512_set1_epi16(3));
    __mmask32 is_zero = _mm512_testn_epi16_mask(high, _mm512_set1_epi16((short)(1 << group)));
    return _mm512_mask_sub_epi16(low, is_zero, low, _mm512_set1_epi16(4));
}

static void unpack_q3_k(const uint8_t *b, int n, struct quant_row *out)
{
    for (int k = 0; k < n / 256; k++, b += 110) {
        x86_prefetch_ahead(b, 110);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b + 108);
        __m256i scales = _mm256_cvtepi8_epi16(x86_q3_k_scales(b + 96));
        __m512i high = load_words(b);
        for (int h = 0; h < 2; h++) {
            __m512i x = load_words(b + 32 + 32 * h);
            int g = 4 * h;
            put(w, g, code_q3_k(x, high, g), scales);
            put(w, g + 1, code_q3_k(_mm512_srli_epi16(x, 2), high, g + 1), scales);
            put(w, g + 2, code_q3_k(_mm512_srli_epi16(x, 4), high, g + 2), scales);
            put(w, g + 3, code_q3_k(_mm512_srli_epi16(x, 6), high, g + 3), scales);
        }
    }
}

static void unpack_q4_k(const uint8_t *b, int n, struct quant_row *out)
{
    const __m512i nibble = _mm512_set1_epi16(15);
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 144) {
        x86_prefetch_ahead(b, 144);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b);
        out->dmin[k] = x86_half_at(b + 2);
        __m128i scales = x86_q4_k_scales(b);
        x86_store_pairs(pairs, scales);
        _mm256_store_si256((__m256i *)(out->m + 16 * k), x86_q4_k_mins(scales));
        for (int j = 0; j < 4; j++) {
            __m512i x = load_words(b + 16 + 32 * j);
            __m512i low = _mm512_and_si512(x, nibble), high = _mm512_srli_epi16(x, 4);
            low = _mm512_mullo_epi16(low, _mm512_set1_epi32(pairs[2 * j]));
            high = _mm512_mullo_epi16(high, _mm512_set1_epi32(pairs[2 * j + 1]));
            _mm512_store_si512(w + 64 * j, low);
            _mm512_store_si512(w + 64 * j + 32, high);
        }
    }
}

/* Two groups of 32 bytes, eight bytes of each in turn: an unpack of the low halves of the lanes
 * then gives the first group in order, an unpack of the high halves the second. */
static inline __m512i interleave(__m512i x)
{
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), x);
}

/* The 32 bytes at b for both groups of `interleave`. */
static inline __m512i load_for_both(const uint8_t *b)
{
    return interleave(_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b)));
}

/* For both groups of `interleave`: bits rotated into place, `first` and `second` to the left. */
static inline __m512i rotate_both(__m512i bits, int first, int second)
{
    return _mm512_rolv_epi64(
        bits, _mm512_setr_epi64(first, second, first, second, first, second, first, second));
}

/* (a & mask_a) | (b & mask_b) */
static inline __m512i join(__m512i a, char mask_a, __m512i b, char mask_b)
{
    __m512i masked = _mm512_and_si512(a, _mm512_set1_epi8(mask_a));
    return _mm512_ternarylogic_epi64(masked, b, _mm512_set1_epi8(mask_b), 0xf8);
}

static inline void put_two_q5_k(int16_t *w, int g, __m512i codes, const int32_t *pairs)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i first = _mm512_unpacklo_epi8(codes, zero), second = _mm512_unpackhi_epi8(codes, zero);
    first = _mm512_mullo_epi16(first, _mm512_set1_epi32(pairs[g]));
    second = _mm512_mullo_epi16(second, _mm512_set1_epi32(pairs[g + 2]));
    _mm512_store_si512(w + 32 * g, first);
    _mm512_store_si512(w + 32 * (g + 2), second);
}

static void unpack_q5_k(const uint8_t *b, int n, struct quant_row *out)
{
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 176) {
        x86_prefetch_ahead(b, 176);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b);
        out->dmin[k] = x86_half_at(b + 2);
        __m128i scales = x86_q4_k_scales(b);
        x86_store_pairs(pairs, scales);
        _mm256_store_si256((__m256i *)(out->m + 16 * k), x86_q4_k_mins(scales));
        __m512i fifth = load_for_both(b + 16);
        /* Bit g goes to bit 4: by 4 - g to the left. */
        __m512i x = interleave(_mm512_loadu_si512(b + 48));
        put_two_q5_k(w, 0, join(x, 15, rotate_both(fifth, 4, 2), 16), pairs);
        x = _mm512_srli_epi16(x, 4);
        put_two_q5_k(w, 1, join(x, 15, rotate_both(fifth, 3, 1), 16), pairs);
        x = interleave(_mm512_loadu_si512(b + 112));
        put_two_q5_k(w, 4, join(x, 15, rotate_both(fifth, 0, 62), 16), pairs);
        x = _mm512_srli_epi16(x, 4);
        put_two_q5_k(w, 5, join(x, 15, rotate_both(fifth, 63, 61), 16), pairs);
    }
}

/* Codes 0..63 stand for -32..31. A code and its scale go to the upper bytes of words, where the
 * upper half of their product is code * scale. */
static inline void put_two_q6_k(int16_t *w, int g, __m512i codes, __m512i scales)
{
    const __m512i zero = _mm512_setzero_si512();
    codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(32));
    __m512i first = _mm512_unpacklo_epi8(zero, codes), second = _mm512_unpackhi_epi8(zero, codes);
    first = _mm512_mulhi_epi16(first, _mm512_permutexvar_epi16(pair_index(g), scales));
    second = _mm512_mulhi_epi16(second, _mm512_permutexvar_epi16(pair_index(g + 1), scales));
    _mm512_store_si512(w + 32 * g, first);
    _mm512_store_si512(w + 32 * (g + 1), second);
}

static void unpack_q6_k(const uint8_t *b, int n, struct quant_row *out)
{
    for (int k = 0; k < n / 256; k++, b += 210) {
        x86_prefetch_ahead(b, 210);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b + 208);
        __m128i bytes = _mm_loadu_si128((const __m128i *)(b + 192));
        __m256i words = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
        __m512i scales = _mm512_castsi256_si512(words);
        for (int h = 0; h < 2; h++) {
            /* The two bits of group k, at 2k, go to 4. */
            __m512i high = load_for_both(b + 128 + 32 * h);
            __m512i x = interleave(_mm512_loadu_si512(b + 64 * h));
            put_two_q6_k(w, 4 * h, join(x, 15, rotate_both(high, 4, 2), 48), scales);
            x = _mm512_srli_epi16(x, 4);
            put_two_q6_k(w, 4 * h + 2, join(x, 15, rotate_both(high, 0, 62), 48), scales);
        }
    }
}

void cpu_set_unpack_k_avx512(struct cpu_matmul *m)
{
    m->unpack[TYPE_Q2_K] = unpack_q2_k;
    m->unpack[TYPE_Q3_K] = unpack_q3_k;
    m->unpack[TYPE_Q4_K] = unpack_q4_k;
    m->unpack[TYPE_Q5_K] = unpack_q5_k;
    m->unpack[TYPE_Q6_K] = unpack_q6_k;
}
