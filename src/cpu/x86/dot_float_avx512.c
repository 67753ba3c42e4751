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

/* gcc takes a value from memory again for each of its uses; this keeps it in a register. */
INLINE __m512 held(__m512 v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* chain[c] of each weight row and x row += 16 values from value i on, or with is_tail those of the
 * mask: others are not read, and chains without a value stay as they are. */
INLINE void add_16(const uint8_t *w, size_t w_bytes, const int w_rows, const float *x,
                   size_t x_stride, const int rows, int i, const bool is_tail, __mmask16 mask,
                   const enum kind kind, const int c, __m512 (*chain)[4][2])
{
    __m512 v[2];
    for (int j = 0; j < w_rows; j++)
        v[j] = load16(w + (size_t)j * w_bytes, i, kind, mask);
    for (int r = 0; r < rows; r++) {
        __m512 a = _mm512_maskz_loadu_ps(mask, x + (size_t)r * x_stride + i);
        if (w_rows > 1)
            a = held(a);
        for (int j = 0; j < w_rows; j++)
            chain[j][r][c] = is_tail ? _mm512_mask3_fmadd_ps(v[j], a, chain[j][r][c], mask)
                                     : _mm512_fmadd_ps(v[j], a, chain[j][r][c]);
    }
}

/* `rows` (1 to 4) x rows at once share the loads of w, and `w_rows` (1 or 2) weight rows those of
 * x. */
INLINE void dot_rows(const uint8_t *w, size_t w_bytes, const int w_rows, const float *x,
                     size_t x_stride, int n, float *y, size_t y_stride, const enum kind kind,
                     const int rows)
{
    __m512 chain[2][4][2];
    int i = 0;
    for (int j = 0; j < w_rows; j++)
        for (int r = 0; r < rows; r++)
            chain[j][r][0] = chain[j][r][1] = _mm512_setzero_ps();
    for (; i + 32 <= n; i += 32) {
        for (int c = 0; c < 2; c++)
            add_16(w, w_bytes, w_rows, x, x_stride, rows, i + 16 * c, false, 0xffff, kind, c,
                   chain);
    }
    for (int c = 0; c < 2 && i < n; c++, i += 16)
        add_16(w, w_bytes, w_rows, x, x_stride, rows, i, true, mask_of(n - i), kind, c, chain);
    for (int j = 0; j < w_rows; j++)
        for (int r = 0; r < rows; r++)
            y[(size_t)r * y_stride + (size_t)j] = add_tree(chain[j][r][0], chain[j][r][1]);
}

INLINE void dot(const uint8_t *w, const float *x, size_t x_stride, int n, int rows, float *y,
                size_t y_stride, enum kind kind)
{
    int t = 0;
    for (; t + 4 <= rows; t += 4)
        dot_rows(w, 0, 1, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride,
                 kind, 4);
    for (; t < rows; t++)
        dot_rows(w, 0, 1, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride,
                 kind, 1);
}

/* Weight rows of 16-bit floats, two at a time. */
INLINE void window_of(const uint8_t *w, int w_rows, const float *x, size_t x_stride, int n, float *y,
                      size_t y_stride, const enum kind kind, const int rows)
{
    size_t bytes = 2 * (size_t)n;
    int j = 0;
    for (; j + 2 <= w_rows; j += 2)
        dot_rows(w + (size_t)j * bytes, bytes, 2, x, x_stride, n, y + j, y_stride, kind, rows);
    if (j < w_rows)
        dot_rows(w + (size_t)j * bytes, bytes, 1, x, x_stride, n, y + j, y_stride, kind, rows);
}

INLINE void window(const uint8_t *w, int w_rows, const float *x, size_t x_stride, int n, int rows,
                   float *y, size_t y_stride, const enum kind kind)
{
    if (rows == 4)
        window_of(w, w_rows, x, x_stride, n, y, y_stride, kind, 4);
    else if (rows == 3)
        window_of(w, w_rows, x, x_stride, n, y, y_stride, kind, 3);
    else if (rows == 2)
        window_of(w, w_rows, x, x_stride, n, y, y_stride, kind, 2);
    else
        window_of(w, w_rows, x, x_stride, n, y, y_stride, kind, 1);
}

static void window_f16(const void *w, int w_rows, const float *x, size_t x_stride, int n, int rows,
                       float *y, size_t y_stride)
{
    window(w, w_rows, x, x_stride, n, rows, y, y_stride, KIND_F16);
}

static void window_bf16(const void *w, int w_rows, const float *x, size_t x_stride, int n, int rows,
                        float *y, size_t y_stride)
{
    window(w, w_rows, x, x_stride, n, rows, y, y_stride, KIND_BF16);
}

/* --- tiles: 4 weight rows times 3 x rows have 24 of the 32 registers for their chains --- */

#define W_AT_ONCE 4
#define X_AT_ONCE 3
/* Rows and values that are multiplied before the next: values of both and chains stay in the L1
 * cache; the L2 cache alone would feed the multipliers by half. */
#define W_ROWS 16
#define X_ROWS 12
#define VALUES 512

/* Chains of a weight row and an x row. They are loaded and stored one by one: gcc 12 keeps in memory
 * what is copied as a whole. */
struct chains {
    __m512 v[2];
};

/* Values `from` to `to` - 1, a multiple of 32; the first ones start the chains. chain[j][r] is of w[j]
 * and x[r], r < rows. */
INLINE void add_values(const float *const *w, const float *const *x, int from, int to,
                       const int rows, struct chains (*chain)[X_ROWS])
{
    __m512 sum[W_AT_ONCE][X_AT_ONCE][2];
#pragma GCC unroll 4
    for (int j = 0; j < W_AT_ONCE; j++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++)
                sum[j][r][c] = from ? chain[j][r].v[c] : _mm512_setzero_ps();
    for (int i = from; i < to; i += 32) {
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            __m512 a[X_AT_ONCE];
#pragma GCC unroll 3
            for (int r = 0; r < rows; r++)
                a[r] = held(_mm512_loadu_ps(x[r] + i + 16 * c));
#pragma GCC unroll 4
            for (int j = 0; j < W_AT_ONCE; j++) {
                __m512 v = held(_mm512_loadu_ps(w[j] + i + 16 * c));
#pragma GCC unroll 3
                for (int r = 0; r < rows; r++)
                    sum[j][r][c] = _mm512_fmadd_ps(v, a[r], sum[j][r][c]);
            }
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < W_AT_ONCE; j++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++)
                chain[j][r].v[c] = sum[j][r][c];
}

/* The last values, fewer than 32: chains without a value stay as they are. */
INLINE void add_tail(const float *w, const float *x, int left, struct chains *chain)
{
    for (int c = 0; c < 2; c++, left -= 16) {
        __mmask16 mask = mask_of(left < 0 ? 0 : left);
        chain->v[c] = _mm512_mask3_fmadd_ps(_mm512_maskz_loadu_ps(mask, w + 16 * c),
                                            _mm512_maskz_loadu_ps(mask, x + 16 * c), chain->v[c],
                                            mask);
    }
}

/* Lanes i and i + 8 added: of a in the lower half, of b in the upper. */
INLINE __m512 fold_8(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* Lanes i and i + 4 of each half added: four sums of 4 lanes. */
INLINE __m512 fold_4(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* Lane j is the sum of chain[j][r], in the order of add_tree. */
INLINE __m512 add_trees(struct chains (*chain)[X_ROWS], int r)
{
    __m512 q[4];
    for (int j = 0; j < 4; j++) {
        __m512 s[4];
        for (int i = 0; i < 4; i++)
            s[i] = _mm512_add_ps(chain[4 * i + j][r].v[0], chain[4 * i + j][r].v[1]);
        q[j] = fold_4(fold_8(s[0], s[1]), fold_8(s[2], s[3]));
    }
    for (int j = 0; j < 4; j += 2)
        q[j] = _mm512_add_ps(
            _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(q[j]), _mm512_castps_pd(q[j + 1]))),
            _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(q[j]), _mm512_castps_pd(q[j + 1]))));
    return _mm512_add_ps(_mm512_shuffle_ps(q[0], q[2], 0x88), _mm512_shuffle_ps(q[0], q[2], 0xdd));
}

INLINE void store_sums(struct chains (*chain)[X_ROWS], int w_rows, int r, float *y)
{
    _mm512_mask_storeu_ps(y, mask_of(w_rows), add_trees(chain, r));
}

INLINE void widen(const uint8_t *w, int n, float *out, enum kind kind)
{
    int i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, load16(w, i, kind, 0xffff));
    if (i < n)
        _mm512_mask_storeu_ps(out + i, mask_of(n - i), load16(w, i, kind, mask_of(n - i)));
}

#include "cpu/dot_float.h"

void cpu_set_dot_float_avx512(struct cpu_matmul *m)
{
    set_kernels(m);
    m->window_float[TYPE_F16] = window_f16;
    m->window_float[TYPE_BF16] = window_bf16;
}
