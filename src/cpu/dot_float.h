/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of float weights, from what an instruction set has: included once, after `enum kind`,
 * dot (some rows of activations with one weight row) and tile_rows (at most W_ROWS x X_ROWS). */
#include "cpu/matmul.h"

INLINE void tile(const uint8_t *w, size_t w_bytes, int w_rows, const float *x, size_t x_stride,
                 int n, int rows, float *y, size_t y_stride, enum kind kind)
{
    for (int j = 0; j < w_rows; j += W_ROWS) {
        for (int r = 0; r < rows; r += X_ROWS)
            tile_rows(w + (size_t)j * w_bytes, w_bytes, w_rows - j < W_ROWS ? w_rows - j : W_ROWS,
                      x + (size_t)r * x_stride, x_stride, n, rows - r < X_ROWS ? rows - r : X_ROWS,
                      y + (size_t)r * y_stride + j, y_stride, kind);
    }
}

#define KERNELS(name, kind)                                                                        \
    static void dot_##name(const void *w, const float *x, size_t x_stride, int n, int rows,        \
                           float *y, size_t y_stride)                                              \
    {                                                                                              \
        dot(w, x, x_stride, n, rows, y, y_stride, kind);                                           \
    }                                                                                              \
    static void tile_##name(const void *w, size_t w_bytes, int w_rows, const float *x,             \
                            size_t x_stride, int n, int rows, float *y, size_t y_stride)           \
    {                                                                                              \
        tile(w, w_bytes, w_rows, x, x_stride, n, rows, y, y_stride, kind);                         \
    }

KERNELS(f32, KIND_F32)
KERNELS(f16, KIND_F16)
KERNELS(bf16, KIND_BF16)

static void set_kernels(struct cpu_matmul *m)
{
    m->dot_float[TYPE_F32] = dot_f32;
    m->dot_float[TYPE_F16] = dot_f16;
    m->dot_float[TYPE_BF16] = dot_bf16;
    m->tile_float[TYPE_F32] = tile_f32;
    m->tile_float[TYPE_F16] = tile_f16;
    m->tile_float[TYPE_BF16] = tile_bf16;
}
