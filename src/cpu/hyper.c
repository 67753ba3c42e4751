/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-connections: reading from and writing to the residual streams (qwen4exp.md 2.3). */
#include "base/fmath.h"
#include "cpu/state.h"

/* Columns of one item, so that a single row can be split too. */
#define COLUMNS 512

struct hyper_job {
    const struct cpu_ops *ops;
    const float *gate; /* hc_write: the weights [rows][hc] */
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

/* Least and most columns of an item of hc_mix: of each stream so many weight rows. */
#define MIX_LEAST 16
#define MIX_MOST 64

struct mix_job {
    struct cpu_backend *c;
    const struct tensor *up;
    struct cpu_weight weight;
    const struct cpu_acts *low;
    const float *x;
    float *gate, *y;
    int rows, hc, n, columns, lap;
};

/* The gates of some columns of all rows, and at once what they let through. */
static void mix_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct mix_job *j = ctx;
    const struct cpu_ops *ops = &j->c->ops;
    size_t n = (size_t)j->n, row = (size_t)j->hc * n;
    for (size_t i = first; i < end; i++) {
        int c0 = (int)i * j->columns, c1 = c0 + j->columns < j->n ? c0 + j->columns : j->n;
        if (j->c->base.laps)
            laps_switch(j->c->base.laps, worker, j->lap);
        for (int s = 0; s < j->hc; s++) {
            float *gate = j->gate + (size_t)s * n + (size_t)c0;
            cpu_rows(&j->c->linear, worker, &j->weight, s * j->n + c0, s * j->n + c1, j->low, 0,
                     j->rows, gate, row);
            for (size_t t = 0; j->up->scale != 1 && t < (size_t)j->rows; t++)
                ops->scale(gate + t * row, gate + t * row, j->up->scale, c1 - c0);
        }
        if (j->c->base.laps)
            laps_switch(j->c->base.laps, worker, LAP_HYPER);
        for (size_t t = 0; t < (size_t)j->rows; t++) {
            size_t at = t * row + (size_t)c0;
            ops->hc_mix(j->gate + at, j->x + at, n, j->hc, c1 - c0, j->y + t * n + (size_t)c0);
        }
    }
}

void cpu_hc_mix(struct backend *b, const float *low, const struct tensor *up, const float *x,
                int rows, int hc, int n, float *gate, float *y)
{
    struct cpu_backend *c = cpu_of(b);
    struct mix_job j = {.c = c,
                        .up = up,
                        .weight = {up->data, up->type, up->n_in, up->n_out},
                        .hc = hc,
                        .n = n,
                        .lap = b->laps ? cpu_lap_of(b, up) : 0};
    int columns = n / (8 * c->threads) / MIX_LEAST * MIX_LEAST;
    j.columns = columns < MIX_LEAST ? MIX_LEAST : columns > MIX_MOST ? MIX_MOST : columns;
    c->linear.laps = b->laps;
    for (int t = 0; t < rows; t += j.rows) {
        size_t at = (size_t)t * (size_t)hc * (size_t)n;
        struct err e;
        err_clear(&e);
        j.rows = rows - t < c->linear.max_rows ? rows - t : c->linear.max_rows;
        j.x = x + at;
        j.gate = gate + at;
        j.y = y + (size_t)t * (size_t)n;
        j.low = cpu_linear_prepare(&c->linear, low + (size_t)t * (size_t)up->n_in,
                                   (size_t)up->n_in, j.rows, &j.weight, j.lap,
                                   b->exact_activations, &e);
        if (!j.low) {
            cpu_problem(c, "activations are not finite in a matrix product");
            return;
        }
        backend_lap(b, j.lap);
        cpu_split(c, ((size_t)n + (size_t)j.columns - 1) / (size_t)j.columns,
                  (double)j.rows * hc * n * (2 * up->n_in + 8), mix_part, &j);
    }
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
