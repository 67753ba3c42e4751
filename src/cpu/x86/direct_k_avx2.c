/* SPDX-License-Identifier: Apache-2.0 */
/* One activation row times weight rows of K types, straight from the file's bytes with AVX2
 * (matmul.h, cpu_direct_fn). As direct_avx512.h, with a group of 32 values a register: codes stay
 * unsigned bytes, two products of a code and an activation fit 16 bits (2 * 63 * 127), and the
 * multiplication that widens them to 32 bits applies the scale. */
#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"

/* The activation row as bytes. */
struct activations {
    _Alignas(32) int8_t q[CPU_DIRECT_MOST_N];
    const int16_t *bsum16;
    const float *d;
    int blocks;
};

/* What a block adds to its chain: lanes to be added. */
struct block_sums {
    __m256i sum;
    __m256i min; /* types with minimums */
};

typedef struct block_sums direct_block_fn(const uint8_t *b, const struct activations *x, int k);

static void take_activations(struct activations *out, const struct quant_act *x, int t)
{
    const int16_t *q = codes_of(x, t);
    out->bsum16 = sums_of(x, t);
    out->d = scales_of(x, t);
    out->blocks = x->n / 256;
    for (int i = 0; i < x->n; i += 32) {
        __m256i bytes = _mm256_packs_epi16(load16(q + i), load16(q + i + 16));
        bytes = _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 2, 0));
        _mm256_store_si256((__m256i *)(out->q + i), bytes);
    }
}

/* The block sums of a group. Places without a block keep what they have: their scales are 0. */
struct group_sums {
    __m256i sum[8], min[8];
};

/* One weight row. d_at: where a block has d, and behind it dmin. */
INLINE float direct_row(const uint8_t *row, const struct activations *x, const int block_bytes,
                        const int d_at, const bool with_min, direct_block_fn *block,
                        struct group_sums *sums)
{
    __m256 chain = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8) {
        int count = x->blocks - g < 8 ? x->blocks - g : 8;
        const uint8_t *first = row + g * block_bytes;
        for (int b = 0; b < count; b++) {
            x86_prefetch_ahead(first + b * block_bytes, block_bytes);
            struct block_sums s = block(first + b * block_bytes, x, g + b);
            sums->sum[b] = s.sum;
            if (with_min)
                sums->min[b] = s.min;
        }
        __m256 dx = load_scales(x->d + g, count);
        __m256 dw = x86_load_halves(first + d_at, block_bytes, count);
        __m256 isum = _mm256_cvtepi32_ps(sum_lanes(sums->sum));
        chain = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), isum, chain);
        if (with_min) {
            dw = x86_load_halves(first + d_at + 2, block_bytes, count);
            __m256 msum = _mm256_cvtepi32_ps(sum_lanes(sums->min));
            chain = _mm256_fnmadd_ps(_mm256_mul_ps(dw, dx), msum, chain);
        }
    }
    return add_tree(chain);
}

INLINE void direct_rows(const void *w, int w_rows, const struct quant_act *x, int t, float *y,
                        const int block_bytes, const int d_at, const bool with_min,
                        direct_block_fn *block)
{
    struct activations a;
    struct group_sums sums = {0};
    take_activations(&a, x, t);
    for (int r = 0; r < w_rows; r++)
        y[r] = direct_row((const uint8_t *)w + (size_t)r * (size_t)(a.blocks * block_bytes), &a,
                          block_bytes, d_at, with_min, block, &sums);
}

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

/* Two scales, each for the 16 values of a half of group g. */
INLINE __m256i two_scales(const int32_t pairs[16], int g)
{
    return _mm256_blend_epi32(_mm256_set1_epi32(pairs[2 * g]), _mm256_set1_epi32(pairs[2 * g + 1]),
                              0xf0);
}

/* Scales and minimums of 16 values times the sums of their activations. */
INLINE __m256i times_sums(__m256i words, const struct activations *x, int k)
{
    return _mm256_madd_epi16(words, load16(x->bsum16 + 16 * k));
}

/* The same, 2^log2 times, taken off: codes are stored with 2^log2 added. */
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

static void direct_q2_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, 84, 80, true, block_q2_k);
}

static void direct_q3_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, 110, 108, false, block_q3_k);
}

static void direct_q4_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, 144, 0, true, block_q4_k);
}

static void direct_q5_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, 176, 0, true, block_q5_k);
}

static void direct_q6_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, y, 210, 208, false, block_q6_k);
}

void cpu_set_direct_k_avx2(struct cpu_matmul *m)
{
    m->direct[TYPE_Q2_K] = direct_q2_k;
    m->direct[TYPE_Q3_K] = direct_q3_k;
    m->direct[TYPE_Q4_K] = direct_q4_k;
    m->direct[TYPE_Q5_K] = direct_q5_k;
    m->direct[TYPE_Q6_K] = direct_q6_k;
}
