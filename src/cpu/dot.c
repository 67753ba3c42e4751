/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products in C: the definition of every matrix product (numerics.md sections 1 and 2).
 * Compiled for the baseline instruction set without automatic vectorization. */
#include "cpu/dot.h"

#include <math.h>

#include "base/bytes.h"
#include "base/half.h"

/* Chains of a float row: element k goes to chain k mod 32, then i with i + 16, + 8, + 4, + 2, + 1.
 */
#define FLOAT_CHAINS 32
/* Chains of an integer row: activation block b goes to chain b mod 8, then i with i + 4, + 2, + 1.
 */
#define INT_CHAINS 8

static float add_tree(float *chain, int chains)
{
    for (int half = chains / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            chain[i] += chain[i + half];
    }
    return chain[0];
}

void cpu_dot_f32_c(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                   size_t y_stride)
{
    const uint8_t *b = w;
    for (int t = 0; t < rows; t++) {
        float chain[FLOAT_CHAINS] = {0};
        for (int k = 0; k < n; k++)
            chain[k % FLOAT_CHAINS] = fmaf(half_bits_f32(bytes_u32(b + 4 * (size_t)k)),
                                           x[t * x_stride + (size_t)k], chain[k % FLOAT_CHAINS]);
        y[t * y_stride] = add_tree(chain, FLOAT_CHAINS);
    }
}

void cpu_dot_f16_c(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                   size_t y_stride)
{
    const uint8_t *b = w;
    for (int t = 0; t < rows; t++) {
        float chain[FLOAT_CHAINS] = {0};
        for (int k = 0; k < n; k++)
            chain[k % FLOAT_CHAINS] = fmaf(half_to_f32(bytes_u16(b + 2 * (size_t)k)),
                                           x[t * x_stride + (size_t)k], chain[k % FLOAT_CHAINS]);
        y[t * y_stride] = add_tree(chain, FLOAT_CHAINS);
    }
}

void cpu_dot_bf16_c(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                    size_t y_stride)
{
    const uint8_t *b = w;
    for (int t = 0; t < rows; t++) {
        float chain[FLOAT_CHAINS] = {0};
        for (int k = 0; k < n; k++)
            chain[k % FLOAT_CHAINS] = fmaf(half_bf16_to_f32(bytes_u16(b + 2 * (size_t)k)),
                                           x[t * x_stride + (size_t)k], chain[k % FLOAT_CHAINS]);
        y[t * y_stride] = add_tree(chain, FLOAT_CHAINS);
    }
}

/* Exact sum of n products of codes. */
static int32_t sum_products(const int16_t *w, const int16_t *q, int n)
{
    int32_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += w[i] * q[i];
    return sum;
}

/* One activation row as the dots below read it. */
struct act_row {
    const int16_t *q;    /* [n] */
    const float *d;      /* [n / block] */
    const int16_t *bsum; /* [n / 16] */
};

static struct act_row act_row(const struct quant_act *x, int t)
{
    size_t start = (size_t)t * (size_t)x->stride;
    return (struct act_row){x->q + start, x->d + start / (size_t)x->block, x->bsum + start / 16};
}

static void dot_blocks(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                       float *y, size_t y_stride, bool with_min)
{
    int block = x->block;
    for (int t = 0; t < rows; t++) {
        struct act_row a = act_row(x, t0 + t);
        float chain[INT_CHAINS] = {0};
        for (int b = 0; b < x->n / block; b++) {
            float *c = &chain[b % INT_CHAINS];
            int32_t isum = sum_products(w->w + b * block, a.q + b * block, block);
            *c = fmaf(w->d[b] * a.d[b], (float)isum, *c);
            if (!with_min)
                continue;
            int parts = block / 16;
            int32_t msum = sum_products(w->m + b * parts, a.bsum + b * parts, parts);
            *c = fmaf(-(w->dmin[b] * a.d[b]), (float)msum, *c);
        }
        y[t * y_stride] = add_tree(chain, INT_CHAINS);
    }
}

void cpu_dot_int_c(const struct quant_row *w, const struct quant_act *x, int t0, int rows, float *y,
                   size_t y_stride)
{
    dot_blocks(w, x, t0, rows, y, y_stride, false);
}

void cpu_dot_int_min_c(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                       float *y, size_t y_stride)
{
    dot_blocks(w, x, t0, rows, y, y_stride, true);
}

void cpu_dot_int_d16_c(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                       float *y, size_t y_stride)
{
    for (int t = 0; t < rows; t++) {
        struct act_row a = act_row(x, t0 + t);
        float chain[INT_CHAINS] = {0};
        for (int h = 0; h < x->n / 16; h++) {
            float *c = &chain[h / 2 % INT_CHAINS];
            int32_t isum = sum_products(w->w + h * 16, a.q + h * 16, 16);
            *c = fmaf(w->d16[h] * a.d[h / 2], (float)isum, *c);
        }
        y[t * y_stride] = add_tree(chain, INT_CHAINS);
    }
}
