/* SPDX-License-Identifier: Apache-2.0 */
/* Float rows with AVX-512: the 32 chains of numerics.md section 1 are the lanes of two registers.
 */
#include <immintrin.h>
#include <string.h>

#include "cpu/x86/x86.h"

#define INLINE static inline __attribute__((always_inline))

enum kind { KIND_F32, KIND_F16, KIND_BF16 };

/* 16 values from value i on; those not in the mask are neither read nor used. */
INLINE __m512 load16(const uint8_t *w, int i, enum kind kind, __mmask16 mask)
{
    if (kind == KIND_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)w + i);
    __m256i h = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)w + i);
    if (kind == KIND_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* The first `count` of 16 lanes. */
INLINE __mmask16 mask_of(int count)
{
    return count < 16 ? (__mmask16)((1u << count) - 1) : 0xffff;
}

/* i with i + 16, + 8, + 4, + 2, + 1. */
INLINE float add_tree(__m512 low, __m512 high)
{
    __m512 s = _mm512_add_ps(low, high);
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* `rows` (1 to 4) x rows at once share the loads of w. */
INLINE void dot_rows(const uint8_t *w, const float *x, size_t x_stride, int n, float *y,
                     size_t y_stride, enum kind kind, const int rows)
{
    __m512 chain[4][2];
    for (int r = 0; r < rows; r++)
        chain[r][0] = chain[r][1] = _mm512_setzero_ps();
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int c = 0; c < 2; c++) {
            __m512 v = load16(w, i + 16 * c, kind, 0xffff);
            for (int r = 0; r < rows; r++)
                chain[r][c] = _mm512_fmadd_ps(
                    v, _mm512_loadu_ps(x + (size_t)r * x_stride + i + 16 * c), chain[r][c]);
        }
    }
    for (int c = 0; c < 2 && i < n; c++, i += 16) {
        __mmask16 mask = mask_of(n - i);
        __m512 v = load16(w, i, kind, mask);
        for (int r = 0; r < rows; r++) /* chains without a value stay as they are */
            chain[r][c] = _mm512_mask3_fmadd_ps(
                v, _mm512_maskz_loadu_ps(mask, x + (size_t)r * x_stride + i), chain[r][c], mask);
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r][0], chain[r][1]);
}

INLINE void dot(const uint8_t *w, const float *x, size_t x_stride, int n, int rows, float *y,
                size_t y_stride, enum kind kind)
{
    int t = 0;
    for (; t + 4 <= rows; t += 4)
        dot_rows(w, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride, kind,
                 4);
    for (; t < rows; t++)
        dot_rows(w, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride, kind,
                 1);
}

/* --- tiles: 3 weight rows times 4 x rows have 24 of the 32 registers for their chains --- */

#define W_AT_ONCE 3
#define X_AT_ONCE 4
/* Rows and values that are multiplied before the next: values of both and chains stay in the L1
 * cache; the L2 cache alone would feed the multipliers by half. */
#define W_ROWS 15
#define X_ROWS 12
#define VALUES 512

/* Chains of a weight row and an x row. */
struct chains {
    __m512 v[2];
};

/* Values `from` to `to` - 1; `from` is a multiple of 32. chain[j][r] is of w[j] and x[r]. */
INLINE void add_values(const uint8_t *const *w, const float *const *x, int from, int to,
                       enum kind kind, struct chains (*chain)[X_ROWS])
{
    struct chains sum[W_AT_ONCE][X_AT_ONCE];
    for (int j = 0; j < W_AT_ONCE; j++) {
        for (int r = 0; r < X_AT_ONCE; r++)
            sum[j][r] = chain[j][r];
    }
    int i = from;
    for (; i + 32 <= to; i += 32) {
        for (int c = 0; c < 2; c++) {
            __m512 v[W_AT_ONCE];
            for (int j = 0; j < W_AT_ONCE; j++)
                v[j] = load16(w[j], i + 16 * c, kind, 0xffff);
            for (int r = 0; r < X_AT_ONCE; r++) {
                __m512 a = _mm512_loadu_ps(x[r] + i + 16 * c);
                for (int j = 0; j < W_AT_ONCE; j++)
                    sum[j][r].v[c] = _mm512_fmadd_ps(v[j], a, sum[j][r].v[c]);
            }
        }
    }
    for (int c = 0; c < 2 && i < to; c++, i += 16) {
        __mmask16 mask = mask_of(to - i);
        for (int r = 0; r < X_AT_ONCE; r++) {
            __m512 a = _mm512_maskz_loadu_ps(mask, x[r] + i);
            for (int j = 0; j < W_AT_ONCE; j++)
                sum[j][r].v[c] = _mm512_mask3_fmadd_ps(load16(w[j], i, kind, mask), a,
                                                       sum[j][r].v[c], mask);
        }
    }
    for (int j = 0; j < W_AT_ONCE; j++) {
        for (int r = 0; r < X_AT_ONCE; r++)
            chain[j][r] = sum[j][r];
    }
}

/* At most W_ROWS x X_ROWS results. In place of rows that are not there the last is taken again. */
INLINE void tile_rows(const uint8_t *w, size_t w_bytes, int w_rows, const float *x,
                      size_t x_stride, int n, int rows, float *y, size_t y_stride, enum kind kind)
{
    struct chains chain[W_ROWS][X_ROWS];
    const uint8_t *w_row[W_ROWS];
    const float *x_row[X_ROWS];
    memset(chain, 0, sizeof chain);
    for (int j = 0; j < W_ROWS; j++)
        w_row[j] = w + (size_t)(j < w_rows ? j : w_rows - 1) * w_bytes;
    for (int r = 0; r < X_ROWS; r++)
        x_row[r] = x + (size_t)(r < rows ? r : rows - 1) * x_stride;
    for (int from = 0; from < n; from += VALUES) {
        int to = n - from < VALUES ? n : from + VALUES;
        for (int j = 0; j < w_rows; j += W_AT_ONCE) {
            for (int r = 0; r < rows; r += X_AT_ONCE) {
                struct chains(*at)[X_ROWS] = (struct chains(*)[X_ROWS]) & chain[j][r];
                add_values(w_row + j, x_row + r, from, to, kind, at);
            }
        }
    }
    for (int j = 0; j < w_rows; j++) {
        for (int r = 0; r < rows; r++)
            y[(size_t)r * y_stride + (size_t)j] = add_tree(chain[j][r].v[0], chain[j][r].v[1]);
    }
}

#include "cpu/dot_float.h"

void cpu_set_dot_float_avx512(struct cpu_matmul *m)
{
    set_kernels(m);
}
