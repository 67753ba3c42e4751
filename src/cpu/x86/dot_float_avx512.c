/* SPDX-License-Identifier: Apache-2.0 */
/* Float rows with AVX-512: the 32 chains of numerics.md section 1 are the lanes of two registers.
 */
#include <immintrin.h>

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
        __mmask16 mask = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : 0xffff;
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

static void dot_f32(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                    size_t y_stride)
{
    dot(w, x, x_stride, n, rows, y, y_stride, KIND_F32);
}

static void dot_f16(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                    size_t y_stride)
{
    dot(w, x, x_stride, n, rows, y, y_stride, KIND_F16);
}

static void dot_bf16(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                     size_t y_stride)
{
    dot(w, x, x_stride, n, rows, y, y_stride, KIND_BF16);
}

void cpu_set_dot_float_avx512(struct cpu_matmul *m)
{
    m->dot_float[TYPE_F32] = dot_f32;
    m->dot_float[TYPE_F16] = dot_f16;
    m->dot_float[TYPE_BF16] = dot_bf16;
}
