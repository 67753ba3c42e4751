/* SPDX-License-Identifier: Apache-2.0 */
/* K types times one to four activation rows with AVX-512 (direct_avx512.h). Compiled twice, with VNNI and
 * without. */
#include "cpu/x86/direct_avx512.h"

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

/* --- Q2_K, Q3_K: a register of codes has group j of the lower and of the upper 128 values --- */

static const int order_q2_k[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* For such a register: scales 2j, 2j + 1, 8 + 2j and 9 + 2j, each for eight words. */
INLINE __m512i scales_of_both(__m512i scales, int j)
{
    const __m512i eighths =
        _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x8000800080008, 0x8000800080008,
                          0x9000900090009, 0x9000900090009);
    __m512i index = _mm512_add_epi16(eighths, _mm512_set1_epi16((short)(2 * j)));
    return _mm512_permutexvar_epi16(index, scales);
}

INLINE struct block_sums block_q2_k(const uint8_t *b, const struct activations *x, int k)
{
    const __m128i nibble = _mm_set1_epi8(15);
    const int8_t *q = x->q + 256 * k;
    __m128i head = _mm_loadu_si128((const __m128i *)b);
    __m256i mins = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(head, 4), nibble));
    __m256i scale_words = _mm256_cvtepu8_epi16(_mm_and_si128(head, nibble));
    __m512i scales = _mm512_castsi256_si512(scale_words);
    __m512i w = _mm512_loadu_si512(b + 16),
            sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    mins = _mm256_madd_epi16(mins, load16(x->bsum16 + 16 * k));
    for (int j = 0; j < 4; j++) {
        __m512i codes = _mm512_srlv_epi64(w, _mm512_set1_epi64(2 * j));
        codes = _mm512_and_si512(codes, _mm512_set1_epi8(3));
        codes = _mm512_maddubs_epi16(codes, _mm512_load_si512(q + 64 * j));
        sum[j % 2] = multiply_add(sum[j % 2], codes, scales_of_both(scales, j));
    }
    return (struct block_sums){
        .sum = _mm512_add_epi32(sum[0], sum[1]),
        .min = _mm_add_epi32(_mm256_castsi256_si128(mins), _mm256_extracti128_si256(mins, 1))};
}

/* 2^log2_factor times each scale times the sum of its 16 activations, taken off: codes are stored
 * with that much added. */
INLINE __m512i take_off(__m256i scale_words, const struct activations *x, int k, int log2_factor)
{
    __m256i offset = _mm256_madd_epi16(scale_words, load16(x->bsum16 + 16 * k));
    offset = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(offset, log2_factor));
    return _mm512_zextsi256_si512(offset);
}

/* Codes 0..7 stand for -4..3. */
INLINE struct block_sums block_q3_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    __m256i scale_words = _mm256_cvtepi8_epi16(x86_q3_k_scales(b + 96));
    __m512i scales = _mm512_castsi256_si512(scale_words);
    __m512i w = _mm512_loadu_si512(b + 32), third = load_twice(b);
    __m512i sum[2] = {take_off(scale_words, x, k, 2), _mm512_setzero_si512()};
    for (int j = 0; j < 4; j++) {
        /* Bit j of the lower half and bit j + 4 of the upper go to bit 2. */
        __m512i bits = rotate_halves(third, (66 - j) % 64, 62 - j);
        __m512i codes = join(_mm512_srlv_epi64(w, _mm512_set1_epi64(2 * j)), 3, bits, 4);
        codes = _mm512_maddubs_epi16(codes, _mm512_load_si512(q + 64 * j));
        sum[j % 2] = multiply_add(sum[j % 2], codes, scales_of_both(scales, j));
    }
    return (struct block_sums){.sum = _mm512_add_epi32(sum[0], sum[1])};
}

/* --- Q4_K, Q5_K: a register of codes has groups j and j + 2 --- */

static const int order_q4_k[8] = {0, 2, 1, 3, 4, 6, 5, 7};

/* Scales as words 0..7; the minimums' part of the sums. */
INLINE __m512i scales_and_min(const uint8_t *b, const struct activations *x, int k, __m128i *min)
{
    __m256i words = _mm256_cvtepu8_epi16(x86_q4_k_scales(b));
    __m128i sums = _mm_load_si128((const __m128i *)(x->bsum32 + 8 * k));
    *min = _mm_madd_epi16(_mm256_extracti128_si256(words, 1), sums);
    return _mm512_castsi256_si512(words);
}

INLINE struct block_sums block_q4_k(const uint8_t *b, const struct activations *x, int k)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const int8_t *q = x->q + 256 * k;
    struct block_sums s = {.sum = _mm512_setzero_si512()};
    __m512i scales = scales_and_min(b, x, k, &s.min), other = s.sum;
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 16 + 64 * h);
        __m512i low = _mm512_and_si512(w, nibble);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
        low = _mm512_maddubs_epi16(low, _mm512_load_si512(q + 128 * h));
        high = _mm512_maddubs_epi16(high, _mm512_load_si512(q + 128 * h + 64));
        s.sum = multiply_add(s.sum, low, two_scales(scales, 4 * h, 4 * h + 2));
        other = multiply_add(other, high, two_scales(scales, 4 * h + 1, 4 * h + 3));
    }
    s.sum = _mm512_add_epi32(s.sum, other);
    return s;
}

INLINE struct block_sums block_q5_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    struct block_sums s = {.sum = _mm512_setzero_si512()};
    __m512i scales = scales_and_min(b, x, k, &s.min), other = s.sum;
    __m512i fifth = load_twice(b + 16); /* bit g goes to bit 4 */
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 48 + 64 * h);
        __m512i bits = h ? rotate_halves(fifth, 0, 62) : rotate_halves(fifth, 4, 2);
        __m512i low = join(w, 15, bits, 16);
        bits = h ? rotate_halves(fifth, 63, 61) : rotate_halves(fifth, 3, 1);
        __m512i high = join(_mm512_srli_epi16(w, 4), 15, bits, 16);
        low = _mm512_maddubs_epi16(low, _mm512_load_si512(q + 128 * h));
        high = _mm512_maddubs_epi16(high, _mm512_load_si512(q + 128 * h + 64));
        s.sum = multiply_add(s.sum, low, two_scales(scales, 4 * h, 4 * h + 2));
        other = multiply_add(other, high, two_scales(scales, 4 * h + 1, 4 * h + 3));
    }
    s.sum = _mm512_add_epi32(s.sum, other);
    return s;
}

/* --- Q6_K --- */

/* Codes 0..63 stand for -32..31. */
INLINE struct block_sums block_q6_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 192)));
    __m512i scales = _mm512_castsi256_si512(words);
    struct block_sums s = {.sum = take_off(words, x, k, 5)};
    __m512i other = _mm512_setzero_si512();
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 64 * h);
        __m512i high_bits = load_twice(b + 128 + 32 * h); /* those of group j, at 2j, go to 4 */
        __m512i low = join(w, 15, rotate_halves(high_bits, 4, 2), 48);
        __m512i high = join(_mm512_srli_epi16(w, 4), 15, rotate_halves(high_bits, 0, 62), 48);
        low = _mm512_maddubs_epi16(low, _mm512_load_si512(q + 128 * h));
        high = _mm512_maddubs_epi16(high, _mm512_load_si512(q + 128 * h + 64));
        s.sum = multiply_add(s.sum, low, four_scales(scales, 8 * h));
        other = multiply_add(other, high, four_scales(scales, 8 * h + 4));
    }
    s.sum = _mm512_add_epi32(s.sum, other);
    return s;
}

BLOCKS(q2_k)
BLOCKS(q3_k)
BLOCKS(q4_k)
BLOCKS(q5_k)
BLOCKS(q6_k)

DIRECT(q2_k, order_q2_k, 84, 80, 1, true)
DIRECT(q3_k, order_q2_k, 110, 108, 1, false)
DIRECT(q4_k, order_q4_k, 144, 0, 1, true)
DIRECT(q5_k, order_q4_k, 176, 0, 1, true)
DIRECT(q6_k, order_of_file, 210, 208, 1, false)

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
