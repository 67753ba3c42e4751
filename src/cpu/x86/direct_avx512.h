/* SPDX-License-Identifier: Apache-2.0 */
/* Activation rows of a window times weight rows, straight from the file's bytes with AVX-512
 * (matmul.h, cpu_direct_fn): the frame that all types with blocks of 256 values share, for one and
 * two rows; direct_four_avx512.h has that for three and four.
 *
 * Codes stay unsigned bytes: two products of a code and an activation fit 16 bits (2 * 63 * 127),
 * and the multiplication that widens them to 32 bits applies the scale. Eight blocks give eight
 * registers of partial sums, which a tree of unpacks turns into one whose lanes are the chains.
 * Everything up to there is exact, so the bits are those of unpacking. */
#ifndef STRATA_CPU_X86_DIRECT_AVX512_H
#define STRATA_CPU_X86_DIRECT_AVX512_H

#include "cpu/x86/scales.h"
#include "cpu/x86/sums_avx512.h"

#define DIRECT_ROWS 2

/* How a type keeps its blocks. */
struct direct_layout {
    int block_bytes;
    int d_at;       /* of d, and of dmin behind it */
    float d_factor; /* constant power of two in d */
    int offset;     /* activations whose sum a word of the offset multiplies, 16 or 32; 0: none */
    int min;        /* the same of the minimums */
    bool scale_32;  /* 32 values share a scale */
    int bias;       /* signs are kept apart, and codes below this; 0: codes have no signs */
};

/* d_at of IQ1_M: d is spread over the last eight bytes. */
#define D_OF_IQ1_M (-1)

/* A block taken apart. Places of codes are those of the activations, words of offset and min are
 * in the file's order. */
struct wide_block {
    __m512i codes[4];      /* 64 unsigned bytes each */
    __mmask64 negative[4]; /* of which codes, where there is a bias */
    __m512i scales;        /* words in the lower half: of 16 places each */
    __m256i offset, min;   /* words; the products of the offset are part of the sum */
};

typedef void wide_block_fn(const uint8_t *b, struct wide_block *out);

/* The activation row as bytes, with sums as the types want them. */
struct activations {
    _Alignas(64) int8_t q[CPU_DIRECT_MOST_N];
    _Alignas(16) int16_t bsum32[CPU_DIRECT_MOST_N / 32];
    const int16_t *bsum16;
    const float *d;
    int blocks;
};

/* What eight blocks add to the chains of each activation row: lanes to be added. */
struct group_sums {
    __m512i sum[DIRECT_ROWS][8];
    __m128i min[DIRECT_ROWS][8];
};

/* 32 codes of 16 bits to bytes; order[i] is the group of 32 values that stands at place i. */
static inline void take_activations(struct activations *out, const struct quant_act *x, int t,
                                    const int order[8])
{
    const int16_t *q = codes_of(x, t);
    out->bsum16 = sums_of(x, t);
    out->d = scales_of(x, t);
    out->blocks = x->n / 256;
    for (int k = 0; k < x->n; k += 256) {
        for (int i = 0; i < 8; i++) {
            __m512i words = _mm512_loadu_si512(q + k + 32 * order[i]);
            _mm256_store_si256((__m256i *)(out->q + k + 32 * i), _mm512_cvtepi16_epi8(words));
        }
    }
    for (int i = 0; i < x->n / 32; i++)
        out->bsum32[i] = (int16_t)(out->bsum16[2 * i] + out->bsum16[2 * i + 1]);
}

/* Places of the groups in the file's order. */
static const int order_of_file[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Lane i is the sum of the lanes of s[i]. */
INLINE __m256i sum_narrow(const __m128i *s)
{
    __m256i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_set_m128i(s[i + 4], s[i]);
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]), _mm256_hadd_epi32(a[2], a[3]));
}

/* The scales of `count` blocks as x86_load_halves gives them. */
INLINE __m256 load_d(const uint8_t *first, const struct direct_layout l, int count)
{
    if (l.d_at == D_OF_IQ1_M)
        return x86_load_iq1_m_halves(first, l.block_bytes, count);
    return x86_load_halves(first + l.d_at, l.block_bytes, count);
}

/* Four scales from `first` on, each for eight words. */
INLINE __m512i four_scales(__m512i scales, int first)
{
    const __m512i eighths =
        _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002, 0x2000200020002,
                          0x3000300030003, 0x3000300030003);
    __m512i index = _mm512_add_epi16(eighths, _mm512_set1_epi16((short)first));
    return _mm512_permutexvar_epi16(index, scales);
}

/* Words of a block times the sums of 16 or 32 activations. */
INLINE __m256i times_sums(__m256i words, const struct activations *x, int k, const int of)
{
    if (of == 16)
        return _mm256_madd_epi16(words, load16(x->bsum16 + 16 * k));
    __m128i sums = _mm_load_si128((const __m128i *)(x->bsum32 + 8 * k));
    return _mm256_zextsi128_si256(_mm_madd_epi16(_mm256_castsi256_si128(words), sums));
}

/* Sets place `at` of all rows of `out` to what block k of a row adds. A weight's sign goes to its
 * activation. */
INLINE void add_block(const struct wide_block *w, const struct activations *x, int k,
                      const int rows, const struct direct_layout l, struct group_sums *out, int at)
{
    const __m512i zero = _mm512_setzero_si512();
    for (int r = 0; r < rows; r++) {
        __m512i sum = zero;
        if (l.offset)
            sum = _mm512_zextsi256_si512(times_sums(w->offset, &x[r], k, l.offset));
        for (int j = 0; j < 4; j++) {
            __m512i q = _mm512_load_si512(x[r].q + 256 * k + 64 * j);
            if (l.bias)
                q = _mm512_mask_sub_epi8(q, w->negative[j], zero, q);
            __m512i products = _mm512_maddubs_epi16(w->codes[j], q);
            sum = multiply_add(sum, products, four_scales(w->scales, 4 * j));
        }
        out->sum[r][at] = sum;
        if (l.min) {
            __m256i min = times_sums(w->min, &x[r], k, l.min);
            out->min[r][at] = _mm256_castsi256_si128(min);
            if (l.min == 16)
                out->min[r][at] = _mm_add_epi32(out->min[r][at], _mm256_extracti128_si256(min, 1));
        }
    }
}

/* Weight rows that share a group of eight blocks. */
INLINE int rows_together(int blocks)
{
    return blocks <= 4 ? 8 / blocks : 1;
}

/* Eight scales of an activation row from block g on; those of a short row again for each weight
 * row. */
INLINE __m256 scales_for_group(const float *d, int g, int blocks)
{
    static const int32_t lane_of[5][8] = {
        {0}, {0}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 2, 0, 1, 2}, {0, 1, 2, 3, 0, 1, 2, 3}};
    __m256 all = load_scales(d + g, blocks - g);
    if (blocks > 4)
        return all;
    return _mm256_permutevar8x32_ps(all, _mm256_loadu_si256((const __m256i *)lane_of[blocks]));
}

/* Sums `n` rows of `blocks` <= 4 chains that stand one behind another, each as add_tree does with
 * +0 for the chains that are missing. */
INLINE void add_short_trees(__m256 chain, int blocks, int n, float *y)
{
    _Alignas(32) float sum[8];
    __m256 all = _mm256_add_ps(chain, _mm256_setzero_ps()); /* no -0 */
    if (blocks == 3)                                        /* as four, the last is +0 */
        all = _mm256_maskz_permutexvar_ps(0x77, _mm256_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0), all);
    if (blocks > 2)
        all = _mm256_add_ps(all, _mm256_permute_ps(all, 0x4e));
    if (blocks > 1)
        all = _mm256_add_ps(all, _mm256_permute_ps(all, 0xb1));
    _mm256_store_ps(sum, all);
    for (int i = 0, step = blocks == 3 ? 4 : blocks; i < n; i++)
        y[i] = sum[i * step];
}

/* `n` <= rows_together weight rows times `rows` (at most DIRECT_ROWS) activation rows. What `sums`
 * holds where no block is counts for nothing, since d is +0 there. */
INLINE void direct_group(const uint8_t *w, const int n, const struct activations *x, const int rows,
                         const struct direct_layout l, wide_block_fn *take_apart,
                         struct group_sums *sums, float *y, size_t y_stride)
{
    const int blocks = x->blocks;
    __m256 chain[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int g = 0; g < blocks; g += 8) {
        int count = blocks - g < 8 ? blocks - g : 8;
        const uint8_t *first = w + g * l.block_bytes, *at = first;
        for (int i = 0; i < n; i++) {
            for (int b = 0; b < count; b++, at += l.block_bytes) {
                x86_prefetch_ahead(at, l.block_bytes);
                struct wide_block block;
                take_apart(at, &block);
                add_block(&block, x, g + b, rows, l, sums, i * count + b);
            }
        }
        __m256 dw = load_d(first, l, n * count), dmin = dw;
        dw = _mm256_mul_ps(dw, _mm256_set1_ps(l.d_factor)); /* exact */
        if (l.min)
            dmin = x86_load_halves(first + l.d_at + 2, l.block_bytes, n * count);
        for (int r = 0; r < rows; r++) {
            __m256 dx = scales_for_group(x[r].d, g, blocks);
            __m256 isum = _mm256_cvtepi32_ps(sum_wide(sums->sum[r]));
            chain[r] = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), isum, chain[r]);
            if (l.min) {
                __m256 msum = _mm256_cvtepi32_ps(sum_narrow(sums->min[r]));
                chain[r] = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), msum, chain[r]);
            }
        }
    }
    for (int r = 0; r < rows; r++, y += y_stride) {
        if (blocks <= 4)
            add_short_trees(chain[r], blocks, n, y);
        else
            *y = add_tree(chain[r]);
    }
}

INLINE void direct_rows(const void *w, int w_rows, const struct quant_act *x, int t, const int rows,
                        float *y, size_t y_stride, const int order[8], const struct direct_layout l,
                        wide_block_fn *take_apart)
{
    struct activations a[DIRECT_ROWS];
    struct group_sums sums;
    for (int r = 0; r < rows; r++) {
        take_activations(&a[r], x, t + r, order);
        for (int i = 0; i < 8; i++) {
            sums.sum[r][i] = _mm512_setzero_si512();
            sums.min[r][i] = _mm_setzero_si128();
        }
    }
    const size_t bytes = (size_t)(a->blocks * l.block_bytes);
    const uint8_t *first = w;
    if (a->blocks > 4) { /* by itself, since a constant count of rows makes it faster */
        for (int j = 0; j < w_rows; j++, first += bytes)
            direct_group(first, 1, a, rows, l, take_apart, &sums, y + j, y_stride);
        return;
    }
    const int together = rows_together(a->blocks);
    for (int j = 0; j < w_rows; j += together, first += (size_t)together * bytes) {
        int n = w_rows - j < together ? w_rows - j : together;
        direct_group(first, n, a, rows, l, take_apart, &sums, y + j, y_stride);
    }
}

#endif
