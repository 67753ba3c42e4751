/* SPDX-License-Identifier: Apache-2.0 */
/* Float rows with NEON: the 32 chains of numerics.md section 1 are the lanes of eight registers. */
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

enum kind { KIND_F32, KIND_F16, KIND_BF16 };

INLINE size_t value_bytes(enum kind kind)
{
    return kind == KIND_F32 ? 4 : 2;
}

/* Values i .. i + 3 of a weight row, of which `left` exist. */
INLINE float32x4_t load_weights(const uint8_t *w, int i, enum kind kind, int left)
{
    uint8_t part[16] = {0};
    w += (size_t)i * value_bytes(kind);
    if (left < 4) {
        memcpy(part, w, (size_t)left * value_bytes(kind));
        w = part;
    }
    if (kind == KIND_F32)
        return vreinterpretq_f32_u8(vld1q_u8(w));
    uint16x4_t half = vreinterpret_u16_u8(vld1_u8(w));
    if (kind == KIND_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* `rows` (1 or 2) x rows at once share the loads of w. */
INLINE void dot_rows(const uint8_t *w, const float *x, size_t x_stride, int n, float *y,
                     size_t y_stride, enum kind kind, const int rows)
{
    struct chains_4 s[2] = {chains_4_zero(), chains_4_zero()};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int c = 0; c < 8; c++) {
            float32x4_t v = load_weights(w, i + 4 * c, kind, 4);
            for (int r = 0; r < rows; r++)
                s[r].c[c] =
                    vfmaq_f32(s[r].c[c], v, vld1q_f32(x + (size_t)r * x_stride + i + 4 * c));
        }
    for (int c = 0; c < 8 && i + 4 * c < n; c++) {
        int left = n - i - 4 * c;
        float32x4_t v = load_weights(w, i + 4 * c, kind, left);
        for (int r = 0; r < rows; r++)
            chains_4_fma(&s[r], c, v, load_4(x + (size_t)r * x_stride + i + 4 * c, left), left);
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = chains_4_sum(&s[r]);
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

/* --- tiles: 4 weight rows times 3 x rows have 24 of the 32 registers for a quarter of their
 * chains, two registers of each --- */

#define W_AT_ONCE 4
#define W_ROWS 8
#define X_ROWS 12
#define X_AT_ONCE 3
/* Values that are multiplied before the next: those of both and chains stay in the L1 cache. */
#define VALUES 256

/* Chains of a weight row and an x row. */
struct chains {
    struct chains_4 all;
};

INLINE void add_quarter(const float *const *w, const float *const *x, int from, int to,
                        const int quarter, const int rows, struct chains (*chain)[X_ROWS])
{
    float32x4_t sum[W_AT_ONCE][X_AT_ONCE][2];
#pragma GCC unroll 4
    for (int j = 0; j < W_AT_ONCE; j++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 2; c++)
                sum[j][r][c] = from ? chain[j][r].all.c[2 * quarter + c] : vdupq_n_f32(0);
    for (int i = from + 8 * quarter; i < to; i += 32) {
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            float32x4_t a[X_AT_ONCE];
#pragma GCC unroll 3
            for (int r = 0; r < rows; r++)
                a[r] = vld1q_f32(x[r] + i + 4 * c);
#pragma GCC unroll 4
            for (int j = 0; j < W_AT_ONCE; j++) {
                float32x4_t v = vld1q_f32(w[j] + i + 4 * c);
#pragma GCC unroll 3
                for (int r = 0; r < rows; r++)
                    sum[j][r][c] = vfmaq_f32(sum[j][r][c], v, a[r]);
            }
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < W_AT_ONCE; j++)
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < 2; c++)
                chain[j][r].all.c[2 * quarter + c] = sum[j][r][c];
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

/* The last values, fewer than 32. */
INLINE void add_tail(const float *w, const float *x, int left, struct chains *chain)
{
    for (int c = 0; left > 0; c++, w += 4, x += 4, left -= 4)
        chains_4_fma(&chain->all, c, load_4(w, left), load_4(x, left), left);
}

INLINE void store_sums(struct chains (*chain)[X_ROWS], int w_rows, int r, float *y)
{
    for (int j = 0; j < w_rows; j++)
        y[j] = chains_4_sum(&chain[j][r].all);
}

INLINE void widen(const uint8_t *w, int n, float *out, enum kind kind)
{
    int i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, load_weights(w, i, kind, 4));
    if (i < n) {
        float32x4_t last = load_weights(w, i, kind, n - i);
        memcpy(out + i, &last, (size_t)(n - i) * sizeof *out);
    }
}

#include "cpu/dot_float.h"

void cpu_set_dot_float_neon(struct cpu_matmul *m)
{
    set_kernels(m);
}
