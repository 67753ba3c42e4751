/* SPDX-License-Identifier: Apache-2.0 */
/* K types to their integer form with AVX2 and F16C. A register holds 16 words. */
#include "base/tensor_type.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/x86.h"

/* 16 values from value i on: code * scale. */
static inline void put(int16_t *w, int i, __m256i codes, int32_t scale_pair)
{
    __m256i product = _mm256_mullo_epi16(codes, _mm256_set1_epi32(scale_pair));
    _mm256_store_si256((__m256i *)(w + i), product);
}

static inline __m256i load_words(const uint8_t *b)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)b));
}

static inline __m256i load_bytes(const uint8_t *b)
{
    return _mm256_loadu_si256((const __m256i *)b);
}

static void unpack_q2_k(const uint8_t *b, int n, struct quant_row *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    const __m256i three = _mm256_set1_epi16(3);
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 84) {
        x86_prefetch_ahead(b, 84);
        out->d[k] = x86_half_at(b + 80);
        out->dmin[k] = x86_half_at(b + 82);
        __m128i head = _mm_loadu_si128((const __m128i *)b);
        __m128i mins = _mm_and_si128(_mm_srli_epi16(head, 4), nibble);
        x86_store_pairs(pairs, _mm_and_si128(head, nibble));
        _mm256_store_si256((__m256i *)(out->m + 16 * k), _mm256_cvtepu8_epi16(mins));
        for (int part = 0; part < 4; part++) { /* 16 of the 32 bytes of half part / 2 */
            int first = 128 * (part / 2) + 16 * (part % 2);
            int16_t *w = out->w + 256 * k + first;
            const int32_t *scale = pairs + first / 16;
            __m256i x = load_words(b + 16 + 16 * part);
            put(w, 0, _mm256_and_si256(x, three), scale[0]);
            put(w, 32, _mm256_and_si256(_mm256_srli_epi16(x, 2), three), scale[2]);
            put(w, 64, _mm256_and_si256(_mm256_srli_epi16(x, 4), three), scale[4]);
            put(w, 96, _mm256_srli_epi16(x, 6), scale[6]);
        }
    }
}

/* The 32 bytes so that an unpack of the low halves of the lanes gives the first 16 in order and an
 * unpack of the high halves the others. */
static inline __m256i interleave(__m256i x)
{
    return _mm256_permute4x64_epi64(x, _MM_SHUFFLE(3, 1, 2, 0));
}

/* 32 interleaved signed codes with two scales. Codes and scales in the upper bytes of words: the
 * upper half of the product is code * scale. */
static inline void put_signed(int16_t *w, int g, __m256i codes, const int32_t *high_pairs)
{
    const __m256i zero = _mm256_setzero_si256();
    for (int half = 0; half < 2; half++) {
        __m256i code = half ? _mm256_unpackhi_epi8(zero, codes) : _mm256_unpacklo_epi8(zero, codes);
        __m256i scale = _mm256_set1_epi32(high_pairs[2 * g + half]);
        __m256i product = _mm256_mulhi_epi16(code, scale);
        _mm256_store_si256((__m256i *)(w + 32 * g + 16 * half), product);
    }
}

/* Scales as x86_store_pairs writes them, moved to the upper bytes of the words. */
static inline void store_high_pairs(int32_t pairs[16], __m128i bytes)
{
    __m256i low = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes));
    __m256i high = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(bytes, bytes));
    _mm256_store_si256((__m256i *)pairs, _mm256_slli_epi16(low, 8));
    _mm256_store_si256((__m256i *)pairs + 1, _mm256_slli_epi16(high, 8));
}

/* Two bits of each byte, less 4 where `high` has not the bit 1 << group. */
static inline __m256i code_q3_k(__m256i x, __m256i high, int group)
{
    __m256i low = _mm256_and_si256(x, _mm256_set1_epi8(3));
    __m256i bit = _mm256_set1_epi8((char)(1 << group));
    __m256i is_zero = _mm256_cmpeq_epi8(_mm256_andnot_si256(high, bit), bit);
    return _mm256_or_si256(low, _mm256_and_si256(is_zero, _mm256_set1_epi8(-4)));
}

static void unpack_q3_k(const uint8_t *b, int n, struct quant_row *out)
{
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 110) {
        x86_prefetch_ahead(b, 110);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b + 108);
        store_high_pairs(pairs, x86_q3_k_scales(b + 96));
        __m256i high = interleave(load_bytes(b));
        for (int h = 0; h < 2; h++) {
            __m256i x = interleave(load_bytes(b + 32 + 32 * h));
            int g = 4 * h;
            put_signed(w, g, code_q3_k(x, high, g), pairs);
            put_signed(w, g + 1, code_q3_k(_mm256_srli_epi16(x, 2), high, g + 1), pairs);
            put_signed(w, g + 2, code_q3_k(_mm256_srli_epi16(x, 4), high, g + 2), pairs);
            put_signed(w, g + 3, code_q3_k(_mm256_srli_epi16(x, 6), high, g + 3), pairs);
        }
    }
}

static void unpack_q4_k(const uint8_t *b, int n, struct quant_row *out)
{
    const __m256i nibble = _mm256_set1_epi16(15);
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 144) {
        x86_prefetch_ahead(b, 144);
        out->d[k] = x86_half_at(b);
        out->dmin[k] = x86_half_at(b + 2);
        __m128i scales = x86_q4_k_scales(b);
        x86_store_pairs(pairs, scales);
        _mm256_store_si256((__m256i *)(out->m + 16 * k), x86_q4_k_mins(scales));
        for (int part = 0; part < 8; part++) { /* 16 of the 32 bytes of groups 2j and 2j + 1 */
            int j = part / 2;
            int16_t *w = out->w + 256 * k + 64 * j + 16 * (part % 2);
            __m256i x = load_words(b + 16 + 16 * part);
            put(w, 0, _mm256_and_si256(x, nibble), pairs[2 * j]);
            put(w, 32, _mm256_srli_epi16(x, 4), pairs[2 * j + 1]);
        }
    }
}

/* (a & mask_a) | (b & mask_b) */
static inline __m256i join(__m256i a, char mask_a, __m256i b, char mask_b)
{
    return _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi8(mask_a)),
                           _mm256_and_si256(b, _mm256_set1_epi8(mask_b)));
}

/* 32 interleaved codes with one scale. */
static inline void put_q5_k(int16_t *w, int g, __m256i codes, const int32_t *pairs)
{
    const __m256i zero = _mm256_setzero_si256();
    put(w, 32 * g, _mm256_unpacklo_epi8(codes, zero), pairs[g]);
    put(w, 32 * g + 16, _mm256_unpackhi_epi8(codes, zero), pairs[g]);
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
        /* Bit g goes to bit 4 of its byte. */
        __m256i fifth = interleave(load_bytes(b + 16));
        __m256i x = interleave(load_bytes(b + 48));
        put_q5_k(w, 0, join(x, 15, _mm256_slli_epi16(fifth, 4), 16), pairs);
        x = _mm256_srli_epi16(x, 4);
        put_q5_k(w, 1, join(x, 15, _mm256_slli_epi16(fifth, 3), 16), pairs);
        x = interleave(load_bytes(b + 80));
        put_q5_k(w, 2, join(x, 15, _mm256_slli_epi16(fifth, 2), 16), pairs);
        x = _mm256_srli_epi16(x, 4);
        put_q5_k(w, 3, join(x, 15, _mm256_slli_epi16(fifth, 1), 16), pairs);
        x = interleave(load_bytes(b + 112));
        put_q5_k(w, 4, join(x, 15, fifth, 16), pairs);
        x = _mm256_srli_epi16(x, 4);
        put_q5_k(w, 5, join(x, 15, _mm256_srli_epi16(fifth, 1), 16), pairs);
        x = interleave(load_bytes(b + 144));
        put_q5_k(w, 6, join(x, 15, _mm256_srli_epi16(fifth, 2), 16), pairs);
        x = _mm256_srli_epi16(x, 4);
        put_q5_k(w, 7, join(x, 15, _mm256_srli_epi16(fifth, 3), 16), pairs);
    }
}

static void unpack_q6_k(const uint8_t *b, int n, struct quant_row *out)
{
    const __m256i offset = _mm256_set1_epi8(32);
    _Alignas(64) int32_t pairs[16];
    for (int k = 0; k < n / 256; k++, b += 210) {
        x86_prefetch_ahead(b, 210);
        int16_t *w = out->w + 256 * k;
        out->d[k] = x86_half_at(b + 208);
        store_high_pairs(pairs, _mm_loadu_si128((const __m128i *)(b + 192)));
        for (int h = 0; h < 2; h++) {
            /* The two bits of group k, at 2k, go to 4. */
            __m256i high = interleave(load_bytes(b + 128 + 32 * h));
            __m256i x = interleave(load_bytes(b + 64 * h));
            __m256i y = interleave(load_bytes(b + 64 * h + 32));
            __m256i code0 = join(x, 15, _mm256_slli_epi16(high, 4), 48);
            __m256i code1 = join(y, 15, _mm256_slli_epi16(high, 2), 48);
            __m256i code2 = join(_mm256_srli_epi16(x, 4), 15, high, 48);
            __m256i code3 = join(_mm256_srli_epi16(y, 4), 15, _mm256_srli_epi16(high, 2), 48);
            put_signed(w, 4 * h, _mm256_sub_epi8(code0, offset), pairs);
            put_signed(w, 4 * h + 1, _mm256_sub_epi8(code1, offset), pairs);
            put_signed(w, 4 * h + 2, _mm256_sub_epi8(code2, offset), pairs);
            put_signed(w, 4 * h + 3, _mm256_sub_epi8(code3, offset), pairs);
        }
    }
}

void cpu_set_unpack_k_avx2(struct cpu_matmul *m)
{
    m->unpack[TYPE_Q2_K] = unpack_q2_k;
    m->unpack[TYPE_Q3_K] = unpack_q3_k;
    m->unpack[TYPE_Q4_K] = unpack_q4_k;
    m->unpack[TYPE_Q5_K] = unpack_q5_k;
    m->unpack[TYPE_Q6_K] = unpack_q6_k;
}
