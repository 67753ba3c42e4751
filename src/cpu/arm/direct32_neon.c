/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 32, 64 and 128 values times a few activation rows (direct_neon.h): four parts
 * at a time, which are four chains. Compiled twice, with the dot product extension and without. */
#include "cpu/arm/direct_neon.h"
#include "cpu/arm/types32_neon.h"

TYPES_32(DECLARE_FEW)

/* Bytes of four parts of any type, at most. */
#define FOUR_BYTES 136

/* Lane i of the next chains takes d times the sum of the lanes of sum[i]. */
INLINE void add_sums(float32x4_t *chains, float32x4_t d, const int32x4_t sum[4])
{
    *chains = vfmaq_f32(*chains, d, vcvtq_f32_s32(sum_lanes(sum)));
}

/* Four parts, from the block at b on, to four chains of each row; those of the next four come next. */
INLINE void add_four(const uint8_t *b, const struct activations *a, int part,
                     struct chains_8 *chains, const int rows, const int bytes, const int values,
                     const enum scaling scaling, const int most, codes32_fn *codes,
                     four_d32_fn *four_d)
{
    const int parts = values / 32;
    int32x4_t sum[FEW_MOST][4], second[FEW_MOST][4]; /* HALVES have two */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        struct codes_32 x = codes(b + i / parts * bytes, i % parts);
        for (int r = 0; r < rows; r++) {
            const int8_t *q = a[r].q + 32 * (part + i);
            int8x16_t q0 = vld1q_s8(q), q1 = vld1q_s8(q + 16);
            if (scaling == HALVES) {
                sum[r][i] = sum_of_16(x.c[0], q0);
                second[r][i] = sum_of_16(x.c[1], q1);
            } else {
                sum[r][i] = sum_of_32(x.c[0], x.c[1], q0, q1, most);
            }
        }
    }
    struct four_d d = four_d(b);
    for (int r = 0; r < rows; r++) {
        float32x4_t dx = vld1q_f32(a[r].d + part), next = chains[r].c[0];
        add_sums(&next, vmulq_f32(d.d, dx), sum[r]);
        if (scaling == HALVES)
            add_sums(&next, vmulq_f32(d.second, dx), second[r]);
        if (scaling == WITH_MINIMUM) { /* it is subtracted in the product */
            int32x4_t of_parts = vpaddlq_s16(vld1q_s16(a[r].bsum + 2 * part));
            next = vfmaq_f32(next, vmulq_f32(d.second, dx), vcvtq_f32_s32(of_parts));
        }
        chains[r].c[0] = chains[r].c[1];
        chains[r].c[1] = next;
    }
}

INLINE void few(const uint8_t *b, int w_rows, const struct quant_act *x, int t, float *y,
                size_t y_stride, const int rows, const int bytes, const int values,
                const enum scaling scaling, const int most, codes32_fn *codes, four_d32_fn *four_d)
{
    const int parts = values / 32, step = 4 / parts * bytes;
    struct activations a[FEW_MOST];
    int blocks = x->n / 32;
    for (int r = 0; r < rows; r++)
        take_activations(&a[r], x, t + r);
    for (int i = 0; i < w_rows; i++) {
        struct chains_8 chains[FEW_MOST];
        for (int r = 0; r < rows; r++)
            chains[r] = chains_8_zero();
        for (int part = 0; part < blocks; part += 4) {
            uint8_t last[FOUR_BYTES];
            const uint8_t *from = b;
            b += step;
            prefetch_ahead(from, step);
            if (blocks - part < 4) { /* the others are zero, and so are their activations */
                b = from + (blocks - part) / parts * bytes;
                memset(last, 0, sizeof last);
                memcpy(last, from, (size_t)(b - from));
                from = last;
            }
            add_four(from, a, part, chains, rows, bytes, values, scaling, most, codes, four_d);
        }
        for (int r = 0; r < rows; r++)
            y[(size_t)r * y_stride + (size_t)i] = chains_8_sum(&chains[r]);
    }
}

#define DIRECT(name, TYPE, bytes, values, scaling)                                                \
    INLINE void few_##name(const void *w, int w_rows, const struct quant_act *x, int t, float *y, \
                           size_t y_stride, const int rows)                                       \
    {                                                                                             \
        few(w, w_rows, x, t, y, y_stride, rows, bytes, values, scaling, most_##name,              \
            codes_##name, four_d_##name);                                                         \
    }                                                                                             \
    DIRECT_FUNCTIONS(name)
TYPES_32(DIRECT)

#define SET(name, TYPE, bytes, values, scaling) m->direct[TYPE_##TYPE] = direct_##name;

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_direct32_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_direct32_neon(struct cpu_matmul *m)
#endif
{
    TYPES_32(SET)
}
