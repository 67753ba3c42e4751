/* SPDX-License-Identifier: Apache-2.0 */
/* Float rows with AVX2: the 32 chains of numerics.md section 1 are the lanes of four registers. */
#include <immintrin.h>
#include <string.h>

#include "cpu/x86/x86.h"

#define INLINE static inline __attribute__((always_inline))

enum kind { KIND_F32, KIND_F16, KIND_BF16 };

INLINE size_t value_bytes(enum kind kind)
{
    return kind == KIND_F32 ? 4 : 2;
}

INLINE __m256 load8(const uint8_t *w, int i, enum kind kind)
{
    w += (size_t)i * value_bytes(kind);
    if (kind == KIND_F32)
        return _mm256_loadu_ps((const float *)w);
    __m128i h = _mm_loadu_si128((const __m128i *)w);
    if (kind == KIND_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* i with i + 16, + 8, + 4, + 2, + 1. */
INLINE float add_tree(const __m256 *chain)
{
    __m256 a = _mm256_add_ps(_mm256_add_ps(chain[0], chain[2]), _mm256_add_ps(chain[1], chain[3]));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* The last n mod 32 values: chains without one stay as they are. */
INLINE void add_tail(const uint8_t *w, const float *x, int n, enum kind kind, __m256 *chain)
{
    float xs[32] = {0};
    uint8_t ws[32 * 4] = {0};
    memcpy(xs, x, (size_t)n * sizeof *x);
    memcpy(ws, w, (size_t)n * value_bytes(kind));
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int c = 0; c < 4; c++) {
        __m256 sum = _mm256_fmadd_ps(load8(ws, 8 * c, kind), _mm256_loadu_ps(xs + 8 * c), chain[c]);
        __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8 * c), lane);
        chain[c] = _mm256_blendv_ps(chain[c], sum, _mm256_castsi256_ps(mask));
    }
}

/* `rows` (1 or 2) x rows at once share the loads of w. */
INLINE void dot_rows(const uint8_t *w, const float *x, size_t x_stride, int n, float *y,
                     size_t y_stride, enum kind kind, const int rows)
{
    __m256 chain[2][4];
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < 4; c++)
            chain[r][c] = _mm256_setzero_ps();
    }
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int c = 0; c < 4; c++) {
            __m256 v = load8(w, i + 8 * c, kind);
            for (int r = 0; r < rows; r++)
                chain[r][c] = _mm256_fmadd_ps(
                    v, _mm256_loadu_ps(x + (size_t)r * x_stride + i + 8 * c), chain[r][c]);
        }
    }
    for (int r = 0; r < rows; r++) {
        if (i < n)
            add_tail(w + (size_t)i * value_bytes(kind), x + (size_t)r * x_stride + i, n - i, kind,
                     chain[r]);
        y[(size_t)r * y_stride] = add_tree(chain[r]);
    }
}

INLINE void dot(const uint8_t *w, const float *x, size_t x_stride, int n, int rows, float *y,
                size_t y_stride, enum kind kind)
{
    int t = 0;
    for (; t + 2 <= rows; t += 2)
        dot_rows(w, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride, kind,
                 2);
    if (t < rows)
        dot_rows(w, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride, kind,
                 1);
}

/* --- tiles: 2 weight rows times 3 x rows have 12 of the 16 registers for half of their chains --- */

#define W_AT_ONCE 2
#define X_AT_ONCE 3
/* Rows and values that are multiplied before the next: values of both and chains stay in the L1
 * cache. */
#define W_ROWS 16
#define X_ROWS 12
#define VALUES 512

/* Chains of a weight row and an x row, 0 to 15 and 16 to 31. */
struct chains {
    __m256 v[2][2];
};

/* Values `from` to `to` - 1, of them the `half` of each 32; `from` and `to` are multiples of 32.
 * chain[j][r] is of w[j] and x[r]. */
INLINE void add_values(const uint8_t *const *w, const float *const *x, int from, int to,
                       const int half, enum kind kind, struct chains (*chain)[X_ROWS])
{
    __m256 sum[W_AT_ONCE][X_AT_ONCE][2];
    for (int j = 0; j < W_AT_ONCE; j++) {
        for (int r = 0; r < X_AT_ONCE; r++) {
            sum[j][r][0] = chain[j][r].v[half][0];
            sum[j][r][1] = chain[j][r].v[half][1];
        }
    }
    for (int i = from + 16 * half; i < to; i += 32) {
        for (int c = 0; c < 2; c++) {
            __m256 v = load8(w[0], i + 8 * c, kind), u = load8(w[1], i + 8 * c, kind);
            for (int r = 0; r < X_AT_ONCE; r++) {
                __m256 a = _mm256_loadu_ps(x[r] + i + 8 * c);
                sum[0][r][c] = _mm256_fmadd_ps(v, a, sum[0][r][c]);
                sum[1][r][c] = _mm256_fmadd_ps(u, a, sum[1][r][c]);
            }
        }
    }
    for (int j = 0; j < W_AT_ONCE; j++) {
        for (int r = 0; r < X_AT_ONCE; r++) {
            chain[j][r].v[half][0] = sum[j][r][0];
            chain[j][r].v[half][1] = sum[j][r][1];
        }
    }
}

/* At most W_ROWS x X_ROWS results. In place of rows that are not there the last is taken again. */
INLINE void tile_rows(const uint8_t *w, size_t w_bytes, int w_rows, const float *x,
                      size_t x_stride, int n, int rows, float *y, size_t y_stride, enum kind kind)
{
    struct chains chain[W_ROWS][X_ROWS];
    const uint8_t *w_row[W_ROWS];
    const float *x_row[X_ROWS];
    int whole = n / 32 * 32;
    memset(chain, 0, sizeof chain);
    for (int j = 0; j < W_ROWS; j++)
        w_row[j] = w + (size_t)(j < w_rows ? j : w_rows - 1) * w_bytes;
    for (int r = 0; r < X_ROWS; r++)
        x_row[r] = x + (size_t)(r < rows ? r : rows - 1) * x_stride;
    for (int from = 0; from < whole; from += VALUES) {
        int to = whole - from < VALUES ? whole : from + VALUES;
        for (int j = 0; j < w_rows; j += W_AT_ONCE) {
            for (int r = 0; r < rows; r += X_AT_ONCE) {
                struct chains(*at)[X_ROWS] = (struct chains(*)[X_ROWS]) & chain[j][r];
                add_values(w_row + j, x_row + r, from, to, 0, kind, at);
                add_values(w_row + j, x_row + r, from, to, 1, kind, at);
            }
        }
    }
    for (int j = 0; j < w_rows; j++) {
        for (int r = 0; r < rows; r++) {
            __m256 *all = chain[j][r].v[0];
            if (whole < n)
                add_tail(w_row[j] + (size_t)whole * value_bytes(kind), x_row[r] + whole, n - whole,
                         kind, all);
            y[(size_t)r * y_stride + (size_t)j] = add_tree(all);
        }
    }
}

#include "cpu/dot_float.h"

void cpu_set_dot_float_avx2(struct cpu_matmul *m)
{
    set_kernels(m);
}
