/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-connections: reading from and writing to the residual streams (qwen4exp.md 2.3). */
#include "base/fmath.h"
#include "cpu/state.h"

/* Columns of one item, so that a single row can be split too. */
#define COLUMNS 512

struct hyper_job {
    const struct cpu_ops *ops;
    const float *gate; /* hc_mix: [rows][hc][n]; hc_write: the weights [rows][hc] */
    const float *in;
    float *out;
    int hc, n, pieces; /* pieces of COLUMNS a row */
};

static int pieces_of(int n)
{
    return (n + COLUMNS - 1) / COLUMNS;
}

/* Row and first column of an item; returns the number of columns. */
static int item_columns(const struct hyper_job *j, size_t item, size_t *row, size_t *column)
{
    *row = item / (size_t)j->pieces;
    *column = item % (size_t)j->pieces * COLUMNS;
    int left = j->n - (int)*column;
    return left < COLUMNS ? left : COLUMNS;
}

static void low_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct hyper_job *j = ctx;
    for (size_t i = first; i < end; i++) {
        size_t row, column;
        int n = item_columns(j, i, &row, &column);
        j->ops->silu_divided(j->out + column, (float)j->hc, n);
    }
}

void cpu_hc_low(struct backend *b, float *x, size_t count, int hc)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_HYPER);
    /* One "row" of all values. */
    struct hyper_job j = {&c->ops, NULL, NULL, x, hc, (int)count, pieces_of((int)count)};
    cpu_split(c, (size_t)j.pieces, (double)count * 8, low_part, &j);
}

static void mix_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct hyper_job *j = ctx;
    size_t n = (size_t)j->n;
    for (size_t i = first; i < end; i++) {
        size_t row, column;
        int count = item_columns(j, i, &row, &column);
        size_t at = row * (size_t)j->hc * n + column;
        j->ops->hc_mix(j->gate + at, j->in + at, n, j->hc, count, j->out + row * n + column);
    }
}

void cpu_hc_mix(struct backend *b, const float *gate, const float *x, int rows, int hc, int n,
                float *y)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_HYPER);
    struct hyper_job j = {&c->ops, gate, x, y, hc, n, pieces_of(n)};
    cpu_split(c, (size_t)rows * (size_t)j.pieces, (double)rows * hc * n * 8, mix_part, &j);
}

void cpu_hc_weights(struct backend *b, float *w, size_t count, int hc)
{
    backend_lap(b, LAP_HYPER);
    for (size_t i = 0; i < count; i++) /* hc values a row */
        w[i] = 2 * fmath_sigmoid(w[i] / (float)hc);
}

static void write_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct hyper_job *j = ctx;
    size_t n = (size_t)j->n, hc = (size_t)j->hc;
    for (size_t i = first; i < end; i++) {
        size_t row, column;
        int count = item_columns(j, i, &row, &column);
        for (size_t s = 0; s < hc; s++)
            j->ops->add_scaled(j->out + (row * hc + s) * n + column, j->in + row * n + column,
                               j->gate[row * hc + s], count);
    }
}

void cpu_hc_write(struct backend *b, float *x, const float *y, const float *w, int rows, int hc,
                  int n)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_HYPER);
    struct hyper_job j = {&c->ops, w, y, x, hc, n, pieces_of(n)};
    cpu_split(c, (size_t)rows * (size_t)j.pieces, (double)rows * hc * n, write_part, &j);
}
