/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of float weights, from what an instruction set has: included once, after `enum kind`,
 * dot (some rows of activations with one weight row), struct chains with add_values (W_AT_ONCE weight
 * rows times 1 to 3 rows of x), add_tail (the last n mod 32 values of one of both) and store_sums (of
 * W_ROWS weight rows and one row of x), and widen (one weight row to float32). */
#include "cpu/matmul.h"

/* At most W_ROWS x X_ROWS results. In place of weight rows that are not there the last is taken
 * again. */
static void tile_rows(const float *w, size_t w_stride, int w_rows, const float *x, size_t x_stride,
                      int n, int rows, float *y, size_t y_stride)
{
    struct chains chain[W_ROWS][X_ROWS];
    const float *w_row[W_ROWS], *x_row[X_ROWS];
    int whole = n / 32 * 32;
    for (int j = 0; j < W_ROWS; j++)
        w_row[j] = w + (size_t)(j < w_rows ? j : w_rows - 1) * w_stride;
    for (int r = 0; r < rows; r++)
        x_row[r] = x + (size_t)r * x_stride;
    for (int from = 0; from == 0 || from < whole; from += VALUES) {
        int to = whole - from < VALUES ? whole : from + VALUES;
        for (int j = 0; j < w_rows; j += W_AT_ONCE) {
            for (int r = 0, some; r < rows; r += some) {
                struct chains(*at)[X_ROWS] = (struct chains(*)[X_ROWS]) & chain[j][r];
                some = rows - r == 4 ? 2 : rows - r < 3 ? rows - r : 3; /* one alone is slow */
                if (some == 3)
                    add_values(w_row + j, x_row + r, from, to, 3, at);
                else if (some == 2)
                    add_values(w_row + j, x_row + r, from, to, 2, at);
                else
                    add_values(w_row + j, x_row + r, from, to, 1, at);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int j = 0; whole < n && j < w_rows; j++)
            add_tail(w_row[j] + whole, x_row[r] + whole, n - whole, &chain[j][r]);
        store_sums(chain, w_rows, r, y + (size_t)r * y_stride);
    }
}

static void tile(const float *w, size_t w_stride, int w_rows, const float *x, size_t x_stride, int n,
                 int rows, float *y, size_t y_stride)
{
    for (int j = 0; j < w_rows; j += W_ROWS) {
        for (int r = 0; r < rows; r += X_ROWS)
            tile_rows(w + (size_t)j * w_stride, w_stride,
                      w_rows - j < W_ROWS ? w_rows - j : W_ROWS, x + (size_t)r * x_stride, x_stride,
                      n, rows - r < X_ROWS ? rows - r : X_ROWS, y + (size_t)r * y_stride + j,
                      y_stride);
    }
}

#define DOT(name, kind)                                                                            \
    static void dot_##name(const void *w, const float *x, size_t x_stride, int n, int rows,        \
                           float *y, size_t y_stride)                                              \
    {                                                                                              \
        dot(w, x, x_stride, n, rows, y, y_stride, kind);                                           \
    }

#define WIDEN(name, kind)                                                                          \
    static void widen_##name(const void *w, int n, float *out)                                     \
    {                                                                                              \
        widen(w, n, out, kind);                                                                    \
    }

DOT(f32, KIND_F32)
DOT(f16, KIND_F16)
DOT(bf16, KIND_BF16)
WIDEN(f16, KIND_F16)
WIDEN(bf16, KIND_BF16)

static void set_kernels(struct cpu_matmul *m)
{
    m->dot_float[TYPE_F32] = dot_f32;
    m->dot_float[TYPE_F16] = dot_f16;
    m->dot_float[TYPE_BF16] = dot_bf16;
    m->widen[TYPE_F16] = widen_f16;
    m->widen[TYPE_BF16] = widen_bf16;
    m->tile_float = tile;
}
