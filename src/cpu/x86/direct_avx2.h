/* SPDX-License-Identifier: Apache-2.0 */
/* One to four activation rows times weight rows, straight from the file's bytes with AVX2 (matmul.h,
 * cpu_direct_fn): the frame that all types with blocks of 256 values share. As direct_avx512.h, with a
 * group of 32 values a register: weights are unsigned bytes, two products of one and an activation fit
 * 16 bits, and the multiplication that widens them to 32 bits applies the scale. */
#ifndef STRATA_CPU_X86_DIRECT_AVX2_H
#define STRATA_CPU_X86_DIRECT_AVX2_H

#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"

#define DIRECT_ROWS 4

/* The activation row as bytes. */
struct activations {
    _Alignas(32) int8_t q[CPU_DIRECT_MOST_N];
    _Alignas(32) int16_t bsum8[CPU_DIRECT_MOST_N / 8]; /* of a block: of even eights, of odd ones */
    const int16_t *bsum16;
    const float *d;
    int blocks;
};

/* What eight blocks add to their chains for each activation row: lanes to be added. Places without a
 * block keep what they have: their scales are 0. */
struct group_sums {
    __m256i sum[DIRECT_ROWS][8];
    __m256i min[DIRECT_ROWS][8]; /* types with minimums */
};

/* Sets element `at` of all rows of `out` for block k of a row, whose bytes are at b. */
typedef void direct_block_fn(const uint8_t *b, const struct activations *x, int k, int rows,
                             struct group_sums *out, int at);

/* The lower half: the sums of the even eights of 128 values, the upper one: of the odd ones. */
INLINE __m256i sums_of_eights(const int16_t *q)
{
    __m256i fours[8];
    for (int i = 0; i < 8; i++)
        fours[i] = _mm256_madd_epi16(load16(q + 16 * i), _mm256_set1_epi16(1));
    for (int i = 0; i < 8; i += 4)
        fours[i] = _mm256_hadd_epi32(_mm256_hadd_epi32(fours[i], fours[i + 1]),
                                     _mm256_hadd_epi32(fours[i + 2], fours[i + 3]));
    return _mm256_packs_epi32(fours[0], fours[4]);
}

INLINE void take_activations(struct activations *out, const struct quant_act *x, int t,
                             const bool with_bsum8)
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
    for (int i = 0; i < x->n && with_bsum8; i += 256) {
        __m256i a = sums_of_eights(q + i), b = sums_of_eights(q + i + 128);
        __m256i *sums = (__m256i *)(out->bsum8 + i / 8);
        _mm256_store_si256(sums, _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_store_si256(sums + 1, _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* Where a type keeps its scales. */
struct direct_layout {
    int block_bytes;
    int d_at;       /* of d, and of dmin behind it */
    float d_factor; /* constant power of two in d */
    bool with_min;
};

/* d_at of IQ1_M: d is spread over the last eight bytes. It alone needs sums of eights. */
#define D_OF_IQ1_M (-1)

/* One weight row times `rows` (at most DIRECT_ROWS) activation rows. */
INLINE void direct_row(const uint8_t *row, const struct activations *x, const int rows,
                       const struct direct_layout l, direct_block_fn *block,
                       struct group_sums *sums, float *y, size_t y_stride)
{
    __m256 chain[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8) {
        int count = x->blocks - g < 8 ? x->blocks - g : 8;
        const uint8_t *first = row + g * l.block_bytes;
        for (int b = 0; b < count; b++) {
            x86_prefetch_ahead(first + b * l.block_bytes, l.block_bytes);
            block(first + b * l.block_bytes, x, g + b, rows, sums, b);
        }
        __m256 dw = l.d_at == D_OF_IQ1_M
                        ? x86_load_iq1_m_halves(first, l.block_bytes, count)
                        : x86_load_halves(first + l.d_at, l.block_bytes, count);
        __m256 dmin = dw;
        dw = _mm256_mul_ps(dw, _mm256_set1_ps(l.d_factor)); /* exact */
        if (l.with_min)
            dmin = x86_load_halves(first + l.d_at + 2, l.block_bytes, count);
        for (int r = 0; r < rows; r++) {
            __m256 dx = load_scales(x[r].d + g, count);
            __m256 isum = _mm256_cvtepi32_ps(sum_lanes(sums->sum[r]));
            chain[r] = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), isum, chain[r]);
            if (l.with_min) {
                __m256 msum = _mm256_cvtepi32_ps(sum_lanes(sums->min[r]));
                chain[r] = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), msum, chain[r]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r]);
}

INLINE void direct_rows(const void *w, int w_rows, const struct quant_act *x, int t, const int rows,
                        float *y, size_t y_stride, const struct direct_layout l,
                        direct_block_fn *block)
{
    struct activations a[DIRECT_ROWS];
    struct group_sums sums = {0};
    for (int r = 0; r < rows; r++)
        take_activations(&a[r], x, t + r, l.d_at == D_OF_IQ1_M);
    for (int j = 0; j < w_rows; j++)
        direct_row((const uint8_t *)w + (size_t)j * (size_t)(a->blocks * l.block_bytes), a, rows, l,
                   block, &sums, y + j, y_stride);
}

/* direct_TYPE from blocks_TYPE. */
#define DIRECT(name, ...)                                                                          \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              float *y)                                                            \
    {                                                                                              \
        direct_rows(w, w_rows, x, t, 1, y, 0, (struct direct_layout){__VA_ARGS__},                 \
                    blocks_##name);                                                                \
    }

/* direct_TYPE and window_TYPE. */
#define DIRECT_AND_WINDOW(name, ...)                                                               \
    DIRECT(name, __VA_ARGS__)                                                                      \
    static void window_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              int rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        for (; rows >= 4; rows -= 4, t += 4, y += 4 * y_stride)                                    \
            direct_rows(w, w_rows, x, t, 4, y, y_stride, (struct direct_layout){__VA_ARGS__},      \
                        blocks_##name);                                                            \
        for (; rows >= 2; rows -= 2, t += 2, y += 2 * y_stride)                                    \
            direct_rows(w, w_rows, x, t, 2, y, y_stride, (struct direct_layout){__VA_ARGS__},      \
                        blocks_##name);                                                            \
        if (rows)                                                                                  \
            direct_##name(w, w_rows, x, t, y);                                                     \
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

#endif
