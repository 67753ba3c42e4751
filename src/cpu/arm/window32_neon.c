/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 32, 64 and 128 values times several activation rows (window_neon.h). Compiled
 * twice, with the dot product extension and without. */
#include "cpu/arm/types32_neon.h"
#include "cpu/arm/window_neon.h"

TYPES_32(DECLARE_FEW)

#define LEAST_4 (FEW_MOST + 1)
#define LEAST_8 6

/* Part p of the block at b, block k of the activations. */
INLINE void add_part(const uint8_t *b, int p, const struct window *x, size_t k, const int quads,
                     float32x4_t *chain, const enum scaling scaling, const int most,
                     codes32_fn *codes, d32_fn *d)
{
    const int32x4_t zero = vdupq_n_s32(0);
    const int8_t *q = x->q + 32 * 4 * (size_t)quads * k;
    const float *dx = x->d + 4 * (size_t)quads * k;
    struct codes_32 c = codes(b, p);
    int32x4_t sum[2] = {zero, zero};
    if (scaling == HALVES) {
        sum_16(c.c[0], q, quads, most, sum);
        add_sums(d(b, 2 * p), dx, sum, quads, chain);
        sum[0] = sum[1] = zero;
        sum_16(c.c[1], q + 16 * 4 * quads, quads, most, sum);
        add_sums(d(b, 2 * p + 1), dx, sum, quads, chain);
        return;
    }
    sum_32(c, q, quads, most, sum);
    add_sums(d(b, p), dx, sum, quads, chain);
    if (scaling != WITH_MINIMUM)
        return;
    for (int i = 0; i < quads; i++)
        sum[i] = vmovl_s16(vld1_s16(x->sum + 4 * ((size_t)quads * k + (size_t)i)));
    /* The minimum is subtracted in the product. */
    take_sums(-half_at(b + 2), dx, sum, quads, chain);
}

INLINE void add_block(const uint8_t *b, const struct window *x, size_t k, const int quads,
                      float32x4_t *chains, const int values, const enum scaling scaling,
                      const int most, codes32_fn *codes, d32_fn *d)
{
    for (int p = 0; p < values / 32; p++, k++)
        add_part(b, p, x, k, quads, chains + k % CHAINS * (size_t)quads, scaling, most, codes,
                 d);
}

#define WINDOW(name, TYPE, bytes, values, scaling)                                           \
    INLINE void add_##name(const uint8_t *b, const struct window *x, size_t k, const int quads, \
                           float32x4_t *chains)                                              \
    {                                                                                        \
        add_block(b, x, k, quads, chains, values, scaling, most_##name, codes_##name,        \
                  d_##name);                                                                 \
    }                                                                                        \
    static void window_##name(const void *w, int w_rows, const struct quant_act *x, int t, \
                              int rows, float *y, size_t y_stride)                         \
    {                                                                                      \
        window_rows(w, w_rows, x, t, rows, y, y_stride, bytes, values / 32,                \
                    scaling == WITH_MINIMUM ? 32 : 0, add_##name, LEAST_4, LEAST_8,        \
                    FEW(name));                                                            \
    }
TYPES_32(WINDOW)

#define SET(name, TYPE, bytes, values, scaling) m->window[TYPE_##TYPE] = window_##name;

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_window32_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_window32_neon(struct cpu_matmul *m)
#endif
{
    TYPES_32(SET)
}
