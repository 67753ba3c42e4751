/* SPDX-License-Identifier: Apache-2.0 */
/* A few activation rows times weight rows, straight from the file's bytes with NEON (matmul.h,
 * cpu_direct_fn): the activations as bytes; weights are taken apart once for all rows. */
#ifndef STRATA_CPU_ARM_DIRECT_NEON_H
#define STRATA_CPU_ARM_DIRECT_NEON_H

#include "cpu/arm/rows_neon.h"

/* FEW_MOST: most activation rows of these kernels, as many as windows ask for. */
#ifdef __ARM_FEATURE_DOTPROD
#define FEW_MOST 2
#define FEW(name) cpu_few_##name##_neon_dot
#else
#define FEW_MOST 3
#define FEW(name) cpu_few_##name##_neon
#endif

/* The kernel of a type for 1 to FEW_MOST rows, for windows. */
#define DECLARE_FEW(name, ...) extern cpu_window_fn FEW(name);

/* One row. What is beyond x->n, up to a multiple of 256 values, is zero. */
struct activations {
    _Alignas(16) int8_t q[CPU_DIRECT_MOST_N];
    const int16_t *bsum;
    const float *d;
};

INLINE void take_activations(struct activations *out, const struct quant_act *x, int t)
{
    const int16_t *q = codes_of(x, t);
    out->bsum = sums_of(x, t);
    out->d = scales_of(x, t);
    for (int i = 0; i < x->n; i += 128)
        for (int j = 0; j < 128; j += 16)
            vst1q_s8(out->q + i + j, narrow(q + i + j));
}

/* Asks for the lines of a block that lies 2 KiB further. */
INLINE void prefetch_ahead(const uint8_t *b, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)b + 2048 + (uintptr_t)i));
}

/* The functions of a type, by its few_NAME(.., rows), whose `rows` is constant: direct_NAME for one row
 * of activations and the kernel for windows. */
#define DIRECT_FUNCTIONS(name)                                                             \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t, \
                              float *y)                                                    \
    {                                                                                      \
        few_##name(w, w_rows, x, t, y, 0, 1);                                              \
    }                                                                                      \
    void FEW(name)(const void *w, int w_rows, const struct quant_act *x, int t, int rows,  \
                   float *y, size_t y_stride)                                              \
    {                                                                                      \
        if (rows == 1)                                                                     \
            direct_##name(w, w_rows, x, t, y);                                             \
        else if (FEW_MOST == 2 || rows == 2)                                               \
            few_##name(w, w_rows, x, t, y, y_stride, 2);                                   \
        else                                                                               \
            few_##name(w, w_rows, x, t, y, y_stride, FEW_MOST);                            \
    }

#endif
