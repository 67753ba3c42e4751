/* SPDX-License-Identifier: Apache-2.0 */
/* K types times one activation row with AVX2 (direct_avx2.h). Codes are unsigned bytes, at most 63. */
#include "cpu/x86/direct_avx2.h"

/* What a block adds to its chain: lanes to be added. */
struct block_sums {
    __m256i sum;
    __m256i min; /* types with minimums */
};

INLINE __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* (a & mask_a) | (b & mask_b) */
INLINE __m256i join(__m256i a, char mask_a, __m256i b, char mask_b)
{
    return _mm256_or_si256(_mm256_and_si256(a, _mm256_set1_epi8(mask_a)),
                           _mm256_and_si256(b, _mm256_set1_epi8(mask_b)));
}

/* Bits of all bytes to the left (or right, negative); what comes from the neighbour is for the
 * caller to mask. */
INLINE __m256i move_bits(__m256i x, int left)
{
    return left >= 0 ? _mm256_sllv_epi32(x, _mm256_set1_epi32(left))
                     : _mm256_srlv_epi32(x, _mm256_set1_epi32(-left));
}

/* sum + scale * code * activation over group g. */
INLINE __m256i add_group(__m256i sum, __m256i codes, const int8_t *q, int g, __m256i scale)
{
    __m256i products = _mm256_maddubs_epi16(codes, load_bytes(q + 32 * g));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(products, scale));
}

/* The sums of activations times scales and 2^log2, taken off: codes are stored with 2^log2 added. */
INLINE __m256i take_off(__m128i scales, const struct activations *x, int k, int log2)
{
    __m256i sum = times_sums(_mm256_cvtepi8_epi16(scales), x, k);
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, log2));
}

INLINE struct block_sums block_q2_k(const uint8_t *b, const struct activations *x, int k)
{
    const __m128i nibble = _mm_set1_epi8(15);
    const int8_t *q = x->q + 256 * k;
    _Alignas(32) int32_t pairs[16];
    __m128i head = _mm_loadu_si128((const __m128i *)b);
    __m128i mins = _mm_and_si128(_mm_srli_epi16(head, 4), nibble);
    struct block_sums s = {_mm256_setzero_si256(), times_sums(_mm256_cvtepu8_epi16(mins), x, k)};
    x86_store_pairs(pairs, _mm_and_si128(head, nibble));
    for (int g = 0; g < 8; g++) {
        __m256i codes = move_bits(load_bytes(b + 16 + 32 * (g / 4)), -2 * (g % 4));
        codes = _mm256_and_si256(codes, _mm256_set1_epi8(3));
        s.sum = add_group(s.sum, codes, q, g, two_scales(pairs, g));
    }
    return s;
}

/* Codes 0..7 stand for -4..3. */
INLINE struct block_sums block_q3_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    _Alignas(32) int32_t pairs[16];
    __m128i scales = x86_q3_k_scales(b + 96);
    __m256i third = load_bytes(b), sum = take_off(scales, x, k, 2);
    x86_store_pairs(pairs, scales);
    for (int g = 0; g < 8; g++) {
        __m256i low = move_bits(load_bytes(b + 32 + 32 * (g / 4)), -2 * (g % 4));
        __m256i codes = join(low, 3, move_bits(third, 2 - g), 4);
        sum = add_group(sum, codes, q, g, two_scales(pairs, g));
    }
    return (struct block_sums){.sum = sum};
}

/* Q4_K and Q5_K: `fifth` holds bit g of group g, zero for Q4_K. */
INLINE struct block_sums block_q45_k(const uint8_t *head, const uint8_t *low, __m256i fifth,
                                     const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    _Alignas(32) int32_t pairs[16];
    __m128i scales = x86_q4_k_scales(head);
    struct block_sums s = {_mm256_setzero_si256(), times_sums(x86_q4_k_mins(scales), x, k)};
    x86_store_pairs(pairs, scales);
    for (int g = 0; g < 8; g++) {
        __m256i codes = load_bytes(low + 32 * (g / 2));
        codes = join(g % 2 ? _mm256_srli_epi16(codes, 4) : codes, 15, move_bits(fifth, 4 - g), 16);
        s.sum = add_group(s.sum, codes, q, g, _mm256_set1_epi32(pairs[g]));
    }
    return s;
}

INLINE struct block_sums block_q4_k(const uint8_t *b, const struct activations *x, int k)
{
    return block_q45_k(b, b + 16, _mm256_setzero_si256(), x, k);
}

INLINE struct block_sums block_q5_k(const uint8_t *b, const struct activations *x, int k)
{
    return block_q45_k(b, b + 48, load_bytes(b + 16), x, k);
}

/* Codes 0..63 stand for -32..31. */
INLINE struct block_sums block_q6_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    _Alignas(32) int32_t pairs[16];
    __m128i scales = _mm_loadu_si128((const __m128i *)(b + 192));
    __m256i sum = take_off(scales, x, k, 5);
    x86_store_pairs(pairs, scales);
    for (int g = 0; g < 8; g++) {
        int h = g / 4, j = g % 4;
        __m256i low = load_bytes(b + 64 * h + 32 * (j % 2));
        __m256i high = move_bits(load_bytes(b + 128 + 32 * h), 4 - 2 * j);
        __m256i codes = join(j < 2 ? low : _mm256_srli_epi16(low, 4), 15, high, 48);
        sum = add_group(sum, codes, q, g, two_scales(pairs, g));
    }
    return (struct block_sums){.sum = sum};
}

/* direct_TYPE from block_TYPE. */
#define DIRECT_K(name, ...)                                                                        \
    INLINE void blocks_##name(const uint8_t *b, const struct activations *x, int k, int rows,      \
                              struct group_sums *out, int at)                                      \
    {                                                                                              \
        struct block_sums s = block_##name(b, x, k);                                               \
        out->sum[0][at] = s.sum;                                                                   \
        out->min[0][at] = s.min;                                                                   \
    }                                                                                              \
    DIRECT(name, __VA_ARGS__)

DIRECT_K(q2_k, 84, 80, 1, true)
DIRECT_K(q3_k, 110, 108, 1, false)
DIRECT_K(q4_k, 144, 0, 1, true)
DIRECT_K(q5_k, 176, 0, 1, true)
DIRECT_K(q6_k, 210, 208, 1, false)

void cpu_set_direct_k_avx2(struct cpu_matmul *m)
{
    m->direct[TYPE_Q2_K] = direct_q2_k;
    m->direct[TYPE_Q3_K] = direct_q3_k;
    m->direct[TYPE_Q4_K] = direct_q4_k;
    m->direct[TYPE_Q5_K] = direct_q5_k;
    m->direct[TYPE_Q6_K] = direct_q6_k;
}
