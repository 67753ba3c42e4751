/* SPDX-License-Identifier: Apache-2.0 */
/* Integer rows on x86: what AVX2 and AVX-512 share, all of it AVX2. Eight blocks make a group, one
 * for each chain (numerics.md section 2).
 *
 * One activation row: the sums of a group are the lanes of one register, lane = chain.
 * Four activation rows: blocks p and p + 4 of a group and four rows make eight sums, the lanes of
 * one register; chain register p holds chain p of four rows and chain p + 4 of four rows, so the
 * final tree needs no sums across lanes, and loads of w are shared by the rows.
 *
 * Blocks that a row does not have are lanes whose scale and sum are +0. Adding their product
 * changes no bit: a chain is never -0, since it starts as +0 and a nonzero scale times a nonzero
 * integer does not vanish. */
#ifndef STRATA_CPU_X86_DOT_INT_H
#define STRATA_CPU_X86_DOT_INT_H

#include <immintrin.h>

#include "cpu/x86/x86.h"

#define INLINE static inline __attribute__((always_inline))

/* First element of row t. */
INLINE const int16_t *codes_of(const struct quant_act *x, int t)
{
    return x->q + (size_t)t * (size_t)x->stride;
}

INLINE const float *scales_of(const struct quant_act *x, int t)
{
    return x->d + (size_t)t * (size_t)(x->stride / x->block);
}

INLINE const int16_t *sums_of(const struct quant_act *x, int t)
{
    return x->bsum + (size_t)t * (size_t)(x->stride / 16);
}

/* Eight floats of which the first `count` exist (8 or more: all); the others are +0. */
INLINE __m256 load_scales(const float *d, int count)
{
    if (count >= 8)
        return _mm256_loadu_ps(d);
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(d, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
}

INLINE __m256i load16(const int16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Lane i is the sum of the lanes of s[i]. */
INLINE __m256i sum_lanes(const __m256i *s)
{
    __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* out[p] = lanes p of v[0..3], then lanes p + 4 of v[0..3]. */
INLINE void transpose(const __m256 *v, __m256 *out)
{
    __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
    __m256 c = _mm256_unpacklo_ps(v[2], v[3]), d = _mm256_unpackhi_ps(v[2], v[3]);
    out[0] = _mm256_shuffle_ps(a, c, 0x44);
    out[1] = _mm256_shuffle_ps(a, c, 0xee);
    out[2] = _mm256_shuffle_ps(b, d, 0x44);
    out[3] = _mm256_shuffle_ps(b, d, 0xee);
}

/* What an instruction set brings: sums of products of a group of which `count` blocks exist (8 or
 * more: all). w and q point to the group's first block; lanes without a block are 0. */
typedef __m256i group_sums_fn(const int16_t *w, const int16_t *q, int count);
/* Lanes: four rows (stride apart) of block p, four rows of block p + 4. */
typedef __m256i pair_sums_fn(const int16_t *w, const int16_t *q, size_t stride, int p, int count);

/* --- one activation row --- */

/* Sums of minimum times block sum for the blocks of a group; lane = block. */
INLINE __m256i group_minimums(const int16_t *m, const int16_t *bsum, int count, const int block)
{
    if (block == 32) /* two of each a block, and the padding of bsum is zero */
        return _mm256_madd_epi16(load16(m), load16(bsum));
    __m256i sum[8];
    for (int b = 0; b < 8; b++)
        sum[b] = b < count ? _mm256_madd_epi16(load16(m + 16 * b), load16(bsum + 16 * b))
                           : _mm256_setzero_si256();
    return sum_lanes(sum);
}

INLINE float add_tree(__m256 chain)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(chain), _mm256_extractf128_ps(chain, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

INLINE float dot_one(const struct quant_row *w, const struct quant_act *x, int t, const int block,
                     const bool with_min, group_sums_fn *group_sums)
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    const float *d = scales_of(x, t);
    __m256 chain = _mm256_setzero_ps();
    int blocks = x->n / block;
    for (int g = 0; g < blocks; g += 8) {
        __m256i sums = group_sums(w->w + g * block, q + g * block, blocks - g);
        __m256 dx = load_scales(d + g, blocks - g), dw = load_scales(w->d + g, blocks - g);
        chain = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(sums), chain);
        if (!with_min)
            continue;
        __m256i msum =
            group_minimums(w->m + g * block / 16, bsum + g * block / 16, blocks - g, block);
        __m256 dmin = load_scales(w->dmin + g, blocks - g);
        chain = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), _mm256_cvtepi32_ps(msum), chain);
    }
    return add_tree(chain);
}

/* --- four activation rows --- */

/* Subtracts the minimums of a group from all chains. */
INLINE void four_minimums(const struct quant_row *w, const struct quant_act *x, int t, int g,
                          int count, const int block, const __m256 *dx, __m256 *chain)
{
    __m256 dmin = load_scales(w->dmin + g, count), product[4], scale[4], msum[4], sums[4];
    for (int r = 0; r < 4; r++) {
        product[r] = _mm256_mul_ps(dmin, dx[r]);
        msum[r] = _mm256_cvtepi32_ps(group_minimums(
            w->m + g * block / 16, sums_of(x, t + r) + g * block / 16, count, block));
    }
    transpose(product, scale);
    transpose(msum, sums);
    for (int p = 0; p < 4; p++)
        chain[p] = _mm256_fnmadd_ps(scale[p], sums[p], chain[p]);
}

/* Chains i with i + 4, + 2, + 1; lanes of the result are rows. */
INLINE __m128 add_four_trees(const __m256 *chain)
{
    __m128 s[4];
    for (int p = 0; p < 4; p++)
        s[p] = _mm_add_ps(_mm256_castps256_ps128(chain[p]), _mm256_extractf128_ps(chain[p], 1));
    return _mm_add_ps(_mm_add_ps(s[0], s[2]), _mm_add_ps(s[1], s[3]));
}

INLINE void dot_four(const struct quant_row *w, const struct quant_act *x, int t, float *y,
                     size_t y_stride, const int block, const bool with_min, pair_sums_fn *pair_sums)
{
    const int16_t *q = codes_of(x, t);
    __m256 chain[4];
    int blocks = x->n / block;
    for (int p = 0; p < 4; p++)
        chain[p] = _mm256_setzero_ps();
    for (int g = 0; g < blocks; g += 8) {
        int count = blocks - g;
        __m256 dw = load_scales(w->d + g, count), dx[4], product[4], scale[4];
        for (int r = 0; r < 4; r++) {
            dx[r] = load_scales(scales_of(x, t + r) + g, count);
            product[r] = _mm256_mul_ps(dw, dx[r]);
        }
        transpose(product, scale);
        for (int p = 0; p < 4; p++) {
            __m256i sums = pair_sums(w->w + g * block, q + g * block, (size_t)x->stride, p, count);
            chain[p] = _mm256_fmadd_ps(scale[p], _mm256_cvtepi32_ps(sums), chain[p]);
        }
        if (with_min)
            four_minimums(w, x, t, g, count, block, dx, chain);
    }
    float results[4];
    _mm_storeu_ps(results, add_four_trees(chain));
    for (int r = 0; r < 4; r++)
        y[(size_t)r * y_stride] = results[r];
}

INLINE void dot(const struct quant_row *w, const struct quant_act *x, int t0, int rows, float *y,
                size_t y_stride, const int block, const bool with_min, group_sums_fn *group_sums,
                pair_sums_fn *pair_sums)
{
    int t = 0;
    for (; t + 4 <= rows; t += 4)
        dot_four(w, x, t0 + t, y + (size_t)t * y_stride, y_stride, block, with_min, pair_sums);
    for (; t < rows; t++)
        y[(size_t)t * y_stride] = dot_one(w, x, t0 + t, block, with_min, group_sums);
}

/* Both kernels of a type, direct_TYPE and window_TYPE, made of rows_TYPE. */
#define KERNELS_OF_ROWS(name)                                                                      \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              float *y)                                                            \
    {                                                                                              \
        rows_##name(w, w_rows, x, t, 1, y, 0);                                                     \
    }                                                                                              \
    static void window_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              int rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        for (; rows >= 4; rows -= 4, t += 4, y += 4 * y_stride)                                    \
            rows_##name(w, w_rows, x, t, 4, y, y_stride);                                          \
        for (; rows >= 2; rows -= 2, t += 2, y += 2 * y_stride)                                    \
            rows_##name(w, w_rows, x, t, 2, y, y_stride);                                          \
        if (rows)                                                                                  \
            rows_##name(w, w_rows, x, t, 1, y, 0);                                                 \
    }

#endif
