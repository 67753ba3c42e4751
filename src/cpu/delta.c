/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta net and the causal convolution (qwen4exp.md 2.4 and 2.5). */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "cpu/state.h"

/* Channels of one item of a convolution, and the most taps that a kernel may have. */
#define CHANNELS 256
#define MAX_TAPS 32

struct conv_job {
    const struct cpu_ops *ops;
    const float *in, *kernel, *history;
    float *out;
    int rows, n, taps, dilation;
    float *advanced; /* the history again, when it moves on; NULL: it stays */
};

/* Oldest first: a source is never behind its target. */
static void advance(const float *in, float *history, int rows, size_t width, int past, size_t c0,
                    int n)
{
    for (int h = 0; h < past; h++) {
        int row = h + rows;
        const float *from =
            row < past ? history + (size_t)row * width : in + (size_t)(row - past) * width;
        memcpy(history + (size_t)h * width + c0, from + c0, (size_t)n * sizeof(float));
    }
}

/* The channels c0 .. c0 + n - 1 of all rows; then their part of the history moves on. */
static void conv_channels(const struct conv_job *j, size_t c0, int n)
{
    float kernel[MAX_TAPS * CHANNELS]; /* [taps][CHANNELS] */
    size_t width = (size_t)j->n, taps = (size_t)j->taps;
    j->ops->spread_taps(j->kernel + c0 * taps, j->taps, n, kernel, CHANNELS);
    int past = (j->taps - 1) * j->dilation; /* rows of history */
    for (int t = 0; t < j->rows; t++) {
        const float *in[MAX_TAPS];
        for (int tap = 0; tap < j->taps; tap++) {
            int row = t - (j->taps - 1 - tap) * j->dilation;
            in[tap] = (row >= 0 ? j->in + (size_t)row * width
                                : j->history + (size_t)(past + row) * width) +
                      c0;
        }
        j->ops->conv(in, kernel, CHANNELS, j->taps, n, j->out + (size_t)t * width + c0);
    }
    if (j->advanced)
        advance(j->in, j->advanced, j->rows, width, past, c0, n);
}

static void conv_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct conv_job *j = ctx;
    for (size_t i = first; i < end; i++) {
        int left = j->n - (int)i * CHANNELS;
        conv_channels(j, i * CHANNELS, left < CHANNELS ? left : CHANNELS);
    }
}

static void run_conv(struct cpu_backend *c, struct conv_job *j)
{
    if (j->taps < 1 || j->taps > MAX_TAPS) {
        cpu_problem(c, "a convolution has %d taps, not 1 to %d", j->taps, MAX_TAPS);
        return;
    }
    size_t items = ((size_t)j->n + CHANNELS - 1) / CHANNELS;
    cpu_split(c, items, (double)j->rows * j->n * (j->taps + 8), conv_part, j);
}

void cpu_conv(struct backend *b, const float *in, const float *kernel, float *history, int rows,
              int n, int taps, int dilation, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_CONV);
    struct conv_job j = {&c->ops, in, kernel, history, out, rows, n, taps, dilation, history};
    run_conv(c, &j);
}

void cpu_conv_held(struct backend *b, const float *in, const float *kernel, const float *history,
                   int rows, int n, int taps, int dilation, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_CONV);
    struct conv_job j = {&c->ops, in, kernel, history, out, rows, n, taps, dilation, NULL};
    run_conv(c, &j);
}

void cpu_conv_advance(struct backend *b, const float *in, float *history, int rows, int n, int past)
{
    backend_lap(b, LAP_CONV);
    advance(in, history, rows, (size_t)n, past, 0, n);
}

struct delta_norm_job {
    const struct cpu_ops *ops;
    float *x;
    size_t row_stride;
    int heads, d;
    float eps, divisor;
};

static void delta_norm_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct delta_norm_job *j = ctx;
    size_t heads = (size_t)j->heads;
    for (size_t i = first; i < end; i++) {
        float *x = j->x + i / heads * j->row_stride + i % heads * (size_t)j->d;
        j->ops->divide(x, sqrtf(j->ops->dot(x, x, j->d) + j->eps), j->divisor, j->d);
    }
}

void cpu_delta_norm(struct backend *b, float *x, size_t row_stride, int rows, int heads, int d,
                    float eps, bool scale)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_DELTA);
    struct delta_norm_job j = {&c->ops, x, row_stride, heads, d, eps, scale ? sqrtf((float)d) : 1};
    cpu_split(c, (size_t)rows * (size_t)heads, (double)rows * heads * d * 5, delta_norm_part, &j);
}

struct gates_job {
    float *alpha, *beta;
    const float *a, *dt;
    int heads;
};

static void gates_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct gates_job *j = ctx;
    for (size_t i = first; i < end; i++) {
        size_t h = i % (size_t)j->heads;
        j->alpha[i] = j->a[h] * fmath_softplus(j->alpha[i] + j->dt[h]);
        j->beta[i] = fmath_sigmoid(j->beta[i]);
    }
}

void cpu_delta_gates(struct backend *b, float *alpha, float *beta, const float *a, const float *dt,
                     int rows, int heads)
{
    backend_lap(b, LAP_DELTA);
    struct gates_job j = {alpha, beta, a, dt, heads};
    size_t count = (size_t)rows * (size_t)heads;
    cpu_split(cpu_of(b), count, (double)count * 100, gates_part, &j);
}

struct scan_job {
    const struct cpu_ops *ops;
    const float *q, *k, *v;
    size_t row_stride;
    const float *g, *beta;
    int rows, n_k, n_v, d;
    bool grouped;
    float *state; /* NULL: */
    const float *held; /* read in its place, and left alone */
    struct cpu_backend *backend;
    float *out;
};

static void scan_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct scan_job *j = ctx;
    size_t d = (size_t)j->d, n_v = (size_t)j->n_v;
    for (size_t h = first; h < end; h++) {
        size_t n_k = (size_t)j->n_k, key = (j->grouped ? h / (n_v / n_k) : h % n_k) * d;
        float *state; /* stays in the L2 cache for all rows */
        if (j->state) {
            state = j->state + h * d * d;
        } else {
            state = cpu_worker_area(j->backend, worker);
            memcpy(state, j->held + h * d * d, d * d * sizeof *state);
        }
        for (size_t t = 0; t < (size_t)j->rows; t++) {
            size_t at = t * j->row_stride;
            j->ops->delta_step(state, j->q + at + key, j->k + at + key, j->v + at + h * d,
                               fmath_exp(j->g[t * n_v + h]), j->beta[t * n_v + h], j->d,
                               j->out + (t * n_v + h) * d);
        }
    }
}

void cpu_delta_scan(struct backend *b, const float *q, const float *k, const float *v,
                    size_t row_stride, const float *g, const float *beta, int rows, int n_k,
                    int n_v, int d, bool grouped, float *state, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    struct scan_job j = {&c->ops, q, k,       v,     row_stride, g, beta, rows, n_k,
                         n_v,     d, grouped, state, NULL,       c, out};
    backend_lap_bytes(b, LAP_DELTA, 2 * (uint64_t)n_v * (uint64_t)d * (uint64_t)d * sizeof(float));
    cpu_split(c, (size_t)n_v, (double)rows * n_v * d * d * 2, scan_part, &j);
}

void cpu_delta_held(struct backend *b, const float *q, const float *k, const float *v,
                    size_t row_stride, const float *g, const float *beta, int rows, int n_k,
                    int n_v, int d, bool grouped, const float *state, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    struct scan_job j = {&c->ops, q, k,       v,    row_stride, g, beta, rows, n_k,
                         n_v,     d, grouped, NULL, state,      c, out};
    backend_lap_bytes(b, LAP_DELTA, (uint64_t)n_v * (uint64_t)d * (uint64_t)d * sizeof(float));
    cpu_split(c, (size_t)n_v, (double)rows * n_v * d * d * 2, scan_part, &j);
}

struct gated_norm_job {
    const struct cpu_ops *ops;
    const float *x, *w, *z;
    int d;
    float eps;
    enum gate_kind kind;
    float *out;
};

static void gated_norm_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct gated_norm_job *j = ctx;
    for (size_t i = first; i < end; i++) {
        size_t at = i * (size_t)j->d;
        float *out = j->out + at;
        j->ops->norm(j->x + at, j->w, j->d, j->eps, out);
        if (j->kind == GATE_SIGMOID)
            j->ops->mul_sigmoid(out, out, j->z + at, j->d);
        else
            j->ops->mul_silu(out, out, j->z + at, j->d);
    }
}

void cpu_gated_norm(struct backend *b, const float *x, const float *w, const float *z, int rows,
                    int heads, int d, float eps, enum gate_kind kind, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_GATE);
    struct gated_norm_job j = {&c->ops, x, w, z, d, eps, kind, out};
    cpu_split(c, (size_t)rows * (size_t)heads, (double)rows * heads * d * 12, gated_norm_part, &j);
}
