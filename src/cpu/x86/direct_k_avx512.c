/* SPDX-License-Identifier: Apache-2.0 */
/* K types times the activation rows of a window with AVX-512 (direct_avx512.h). Compiled twice,
 * with VNNI and without. */
#include "cpu/x86/direct_four_avx512.h"

/* (a & mask_a) | (b & mask_b) */
INLINE __m512i join(__m512i a, char mask_a, __m512i b, char mask_b)
{
    __m512i masked = _mm512_and_si512(a, _mm512_set1_epi8(mask_a));
    return _mm512_ternarylogic_epi64(masked, b, _mm512_set1_epi8(mask_b), 0xf8);
}

/* Bits rotated to the left, by `first` in the lower half and by `second` in the upper. */
INLINE __m512i rotate_halves(__m512i bits, int first, int second)
{
    __m512i counts = _mm512_inserti64x4(_mm512_set1_epi64(first), _mm256_set1_epi64x(second), 1);
    return _mm512_rolv_epi64(bits, counts);
}

INLINE __m512i load_twice(const uint8_t *b)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b));
}

/* 16 bytes as words, byte i from order[i]. */
INLINE __m512i words_in_order(__m128i bytes, const __m128i order)
{
    return _mm512_castsi256_si512(_mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, order)));
}

/* --- Q2_K, Q3_K: a register of codes has group j of the lower and of the upper 128 values --- */

static const int order_q2_k[8] = {0, 4, 1, 5, 2, 6, 3, 7};

INLINE __m512i scales_of_both(__m128i bytes)
{
    return words_in_order(bytes,
                          _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
}

/* A code times its scale is at most 45: a quarter of a register looks its products up in a table
 * with the four multiples of each of its four scales. */
INLINE void take_q2_k(const uint8_t *b, struct wide_block *out)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i head = _mm_loadu_si128((const __m128i *)b);
    __m512i w = _mm512_loadu_si512(b + 16);
    out->min = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(head, 4), nibble));
    /* Words: the scale of codes[j] twice, 0 and 1 times it and 2 and 3 times it. */
    const __m512i twice = _mm512_setr_epi64(
        (int64_t)0x8002800280008000, (int64_t)0x8006800680048004, (int64_t)0x8003800380018001,
        (int64_t)0x8007800780058005, (int64_t)0x800a800a80088008, (int64_t)0x800e800e800c800c,
        (int64_t)0x800b800b80098009, (int64_t)0x800f800f800d800d);
    __m512i heads = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)b));
    heads = _mm512_and_si512(heads, _mm512_set1_epi8(15));
    __m512i table =
        _mm512_mullo_epi16(_mm512_shuffle_epi8(heads, twice), _mm512_set1_epi32(0x03020100));
    for (int j = 0; j < 4; j++) {
        __m512i index = _mm512_ternarylogic_epi64(_mm512_srli_epi16(w, 2 * j), _mm512_set1_epi8(3),
                                                  _mm512_set1_epi8((char)(4 * j)), 0xea);
        out->codes[j] = _mm512_shuffle_epi8(table, index);
    }
}

/* -2^log2_factor times each scale: codes are stored with that much added. */
INLINE __m256i take_off(__m128i scales, int log2_factor)
{
    __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(scales), log2_factor);
    return _mm256_sub_epi16(_mm256_setzero_si256(), words);
}

/* Codes 0..7 stand for -4..3. */
INLINE void take_q3_k(const uint8_t *b, struct wide_block *out)
{
    __m128i scales = x86_q3_k_scales(b + 96);
    __m512i w = _mm512_loadu_si512(b + 32), third = load_twice(b);
    out->scales = scales_of_both(scales);
    out->offset = take_off(scales, 2);
    for (int j = 0; j < 4; j++) {
        /* Bit j of the lower half and bit j + 4 of the upper go to bit 2. */
        __m512i bits = rotate_halves(third, (66 - j) % 64, 62 - j);
        out->codes[j] = join(_mm512_srli_epi16(w, 2 * j), 3, bits, 4);
    }
}

/* --- Q4_K, Q5_K: a register of codes has groups j and j + 2 --- */

static const int order_q4_k[8] = {0, 2, 1, 3, 4, 6, 5, 7};

INLINE void take_scales_and_min(const uint8_t *b, struct wide_block *out)
{
    __m128i bytes = x86_q4_k_scales(b);
    out->scales =
        words_in_order(bytes, _mm_setr_epi8(0, 0, 2, 2, 1, 1, 3, 3, 4, 4, 6, 6, 5, 5, 7, 7));
    out->min = _mm256_castsi128_si256(_mm_cvtepu8_epi16(_mm_unpackhi_epi64(bytes, bytes)));
}

INLINE void take_q4_k(const uint8_t *b, struct wide_block *out)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    take_scales_and_min(b, out);
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 16 + 64 * h);
        out->codes[2 * h] = _mm512_and_si512(w, nibble);
        out->codes[2 * h + 1] = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
    }
}

INLINE void take_q5_k(const uint8_t *b, struct wide_block *out)
{
    __m512i fifth = load_twice(b + 16); /* bit g goes to bit 4 */
    take_scales_and_min(b, out);
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 48 + 64 * h);
        __m512i bits = h ? rotate_halves(fifth, 0, 62) : rotate_halves(fifth, 4, 2);
        out->codes[2 * h] = join(w, 15, bits, 16);
        bits = h ? rotate_halves(fifth, 63, 61) : rotate_halves(fifth, 3, 1);
        out->codes[2 * h + 1] = join(_mm512_srli_epi16(w, 4), 15, bits, 16);
    }
}

/* --- Q6_K --- */

/* Codes 0..63 stand for -32..31. */
INLINE void take_q6_k(const uint8_t *b, struct wide_block *out)
{
    __m128i scales = _mm_loadu_si128((const __m128i *)(b + 192));
    out->scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(scales));
    out->offset = take_off(scales, 5);
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 64 * h);
        __m512i high_bits = load_twice(b + 128 + 32 * h); /* those of group j, at 2j, go to 4 */
        out->codes[2 * h] = join(w, 15, rotate_halves(high_bits, 4, 2), 48);
        out->codes[2 * h + 1] =
            join(_mm512_srli_epi16(w, 4), 15, rotate_halves(high_bits, 0, 62), 48);
    }
}

DIRECT(q2_k, order_q2_k, .block_bytes = 84, .d_at = 80, .d_factor = 1, .min = 16, .scaled = true)
DIRECT(q3_k, order_q2_k, .block_bytes = 110, .d_at = 108, .d_factor = 1, .offset = 16)
DIRECT(q4_k, order_q4_k, .block_bytes = 144, .d_factor = 1, .min = 32, .scale_32 = true)
DIRECT(q5_k, order_q4_k, .block_bytes = 176, .d_factor = 1, .min = 32, .scale_32 = true)
DIRECT(q6_k, order_of_file, .block_bytes = 210, .d_at = 208, .d_factor = 1, .offset = 16)

#ifdef __AVX512VNNI__
void cpu_set_direct_k_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_direct_k_avx512(struct cpu_matmul *m)
#endif
{
    m->direct[TYPE_Q2_K] = direct_q2_k;
    m->window[TYPE_Q2_K] = window_q2_k;
    m->direct[TYPE_Q3_K] = direct_q3_k;
    m->window[TYPE_Q3_K] = window_q3_k;
    m->direct[TYPE_Q4_K] = direct_q4_k;
    m->window[TYPE_Q4_K] = window_q4_k;
    m->direct[TYPE_Q5_K] = direct_q5_k;
    m->window[TYPE_Q5_K] = window_q5_k;
    m->direct[TYPE_Q6_K] = direct_q6_k;
    m->window[TYPE_Q6_K] = window_q6_k;
}
