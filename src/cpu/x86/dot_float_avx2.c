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
INLINE void add_last(const uint8_t *w, const float *x, int n, enum kind kind, __m256 *chain)
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
            add_last(w + (size_t)i * value_bytes(kind), x + (size_t)r * x_stride + i, n - i, kind,
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

/* --- tiles: 4 weight rows times 3 x rows have 12 of the 16 registers for a quarter of their
 * chains --- */

#define W_AT_ONCE 4
#define X_AT_ONCE 3
/* Rows and values that are multiplied before the next: values of both and chains stay in the L1
 * cache. */
#define W_ROWS 16
#define X_ROWS 12
#define VALUES 512

/* Chains of a weight row and an x row. */
struct chains {
    __m256 v[4];
};

/* The first `count` of 8 lanes. */
INLINE __m256i mask_of(int count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* gcc takes a value from memory again for each of its uses; this keeps it in a register. */
INLINE __m256 held(__m256 v)
{
    __asm__("" : "+x"(v));
    return v;
}

INLINE void add_quarter(const float *const *w, const float *const *x, int from, int to,
                        const int quarter, const int rows, struct chains (*chain)[X_ROWS])
{
    __m256 sum[W_AT_ONCE][X_AT_ONCE];
#pragma GCC unroll 4
    for (int j = 0; j < W_AT_ONCE; j++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            sum[j][r] = from ? chain[j][r].v[quarter] : _mm256_setzero_ps();
    for (int i = from + 8 * quarter; i < to; i += 32) {
        __m256 a[X_AT_ONCE];
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            a[r] = held(_mm256_loadu_ps(x[r] + i));
#pragma GCC unroll 4
        for (int j = 0; j < W_AT_ONCE; j++) {
            __m256 v = held(_mm256_loadu_ps(w[j] + i));
#pragma GCC unroll 3
            for (int r = 0; r < rows; r++)
                sum[j][r] = _mm256_fmadd_ps(v, a[r], sum[j][r]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < W_AT_ONCE; j++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            chain[j][r].v[quarter] = sum[j][r];
}

/* Values `from` to `to` - 1, a multiple of 32; the first ones start the chains. chain[j][r] is of w[j]
 * and x[r], r < rows. */
INLINE void add_values(const float *const *w, const float *const *x, int from, int to,
                       const int rows, struct chains (*chain)[X_ROWS])
{
    add_quarter(w, x, from, to, 0, rows, chain);
    add_quarter(w, x, from, to, 1, rows, chain);
    add_quarter(w, x, from, to, 2, rows, chain);
    add_quarter(w, x, from, to, 3, rows, chain);
}

/* Lanes i and i + 4 added: of a in the lower half, of b in the upper. */
INLINE __m256 fold_4(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* The same with i and i + 2 of each half, lanes of a and b in turn. */
INLINE __m256 fold_2(__m256 a, __m256 b)
{
    __m256d p = _mm256_castps_pd(a), q = _mm256_castps_pd(b);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(p, q)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(p, q)));
}

/* Lane j is the sum of chain[j][r], in the order of add_tree. */
INLINE __m256 add_trees(struct chains (*chain)[X_ROWS], int r)
{
    __m256 q[4];
    for (int j = 0; j < 4; j++) {
        __m256 *a = chain[j][r].v, *b = chain[4 + j][r].v;
        q[j] = fold_4(_mm256_add_ps(_mm256_add_ps(a[0], a[2]), _mm256_add_ps(a[1], a[3])),
                      _mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3])));
    }
    __m256 low = fold_2(q[0], q[1]), high = fold_2(q[2], q[3]);
    return _mm256_add_ps(_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd));
}

/* The last values, fewer than 32. */
INLINE void add_tail(const float *w, const float *x, int left, struct chains *chain)
{
    add_last((const uint8_t *)w, x, left, KIND_F32, chain->v);
}

INLINE void store_sums(struct chains (*chain)[X_ROWS], int w_rows, int r, float *y)
{
    for (int j = 0; j < w_rows; j += 8)
        _mm256_maskstore_ps(y + j, mask_of(w_rows - j), add_trees(chain + j, r));
}

INLINE void widen(const uint8_t *w, int n, float *out, enum kind kind)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, load8(w, i, kind));
    if (i < n) {
        uint16_t last[8] = {0};
        memcpy(last, w + (size_t)i * sizeof *last, (size_t)(n - i) * sizeof *last);
        _mm256_maskstore_ps(out + i, mask_of(n - i), load8((const uint8_t *)last, 0, kind));
    }
}

#include "cpu/dot_float.h"

void cpu_set_dot_float_avx2(struct cpu_matmul *m)
{
    set_kernels(m);
}
