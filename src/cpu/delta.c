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

static bool taps_fit(struct cpu_backend *c, int taps)
{
    if (taps >= 1 && taps <= MAX_TAPS)
        return true;
    cpu_problem(c, "a convolution has %d taps, not 1 to %d", taps, MAX_TAPS);
    return false;
}

static void run_conv(struct cpu_backend *c, struct conv_job *j)
{
    if (!taps_fit(c, j->taps))
        return;
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

/* ---- The net between its projections --------------------------------------------------------- */

struct delta_job {
    struct cpu_backend *c;
    const struct delta_rows *r;
    struct conv_job conv;
    atomic_int keys_done; /* of the first items */
};

static uint64_t state_bytes(const struct delta_rows *r)
{
    return (uint64_t)r->n_v * (uint64_t)r->d * (uint64_t)r->d * sizeof(float);
}

static size_t channels_of(const struct delta_rows *r)
{
    return (size_t)(2 * r->n_k + r->n_v) * (size_t)r->d;
}

/* The convolution of the d channels of one head, of all rows. */
static void conv_head(const struct delta_job *j, size_t c0)
{
    const struct delta_rows *r = j->r;
    size_t width = channels_of(r), d = (size_t)r->d;
    for (int c = 0; c < r->d; c += CHANNELS)
        conv_channels(&j->conv, c0 + (size_t)c, r->d - c < CHANNELS ? r->d - c : CHANNELS);
    for (size_t t = 0; r->conv_shown && t < (size_t)r->rows; t++)
        memcpy(r->conv_shown + t * width + c0, r->conv + t * width + c0, d * sizeof(float));
}

static void key_head(const struct delta_job *j, size_t head)
{
    const struct delta_rows *r = j->r;
    const struct cpu_ops *ops = &j->c->ops;
    size_t width = channels_of(r), d = (size_t)r->d;
    for (int part = 0; part < 2; part++) { /* q, k */
        size_t c0 = ((size_t)part * (size_t)r->n_k + head) * d;
        float divisor = part == 0 ? sqrtf((float)r->d) : 1;
        conv_head(j, c0);
        for (size_t t = 0; t < (size_t)r->rows; t++) {
            float *x = r->conv + t * width + c0;
            ops->divide(x, sqrtf(ops->dot(x, x, r->d) + r->l2_eps), divisor, r->d);
        }
    }
}

static void gates(const struct delta_rows *r, size_t head)
{
    for (size_t t = 0; t < (size_t)r->rows; t++) {
        size_t i = t * (size_t)r->n_v + head;
        r->g[i] = r->a[head] * fmath_softplus(r->g[i] + r->dt[head]);
        r->beta[i] = fmath_sigmoid(r->beta[i]);
    }
}

/* The recurrence of a value head; the state stays in the L2 cache for all rows. */
static void scan_head(const struct delta_job *j, size_t head, int worker)
{
    const struct delta_rows *r = j->r;
    size_t width = channels_of(r), d = (size_t)r->d, n_v = (size_t)r->n_v, n_k = (size_t)r->n_k;
    size_t key = (r->grouped ? head / (n_v / n_k) : head % n_k) * d;
    float *state = r->state + head * d * d;
    if (r->is_held) {
        float *copy = cpu_worker_area(j->c, worker);
        memcpy(copy, state, d * d * sizeof *state);
        state = copy;
    }
    for (size_t t = 0; t < (size_t)r->rows; t++) {
        const float *x = r->conv + t * width;
        size_t at = t * n_v + head;
        j->c->ops.delta_step(state, x + key, x + n_k * d + key, x + (2 * n_k + head) * d,
                             fmath_exp(r->g[at]), r->beta[at], r->d, r->out + at * d);
    }
}

static void gate_head(const struct delta_job *j, size_t head, int worker)
{
    const struct delta_rows *r = j->r;
    const struct cpu_ops *ops = &j->c->ops;
    size_t d = (size_t)r->d;
    float *core = cpu_worker_area(j->c, worker);
    for (size_t t = 0; t < (size_t)r->rows; t++) {
        size_t at = (t * (size_t)r->n_v + head) * d;
        float *out = r->out + at;
        if (r->core_shown)
            memcpy(core, out, d * sizeof *core);
        ops->norm(out, r->norm, r->d, r->eps, out);
        (r->gate == GATE_SIGMOID ? ops->mul_sigmoid : ops->mul_silu)(out, out, r->z + at, r->d);
        if (r->core_shown)
            memcpy(r->core_shown + at, core, d * sizeof *core);
    }
}

static void delta_lap(const struct delta_job *j, int worker, int row)
{
    if (j->c->base.laps)
        laps_switch(j->c->base.laps, worker, row);
}

/* Items: the key heads, then the value heads, which wait for them. */
static void delta_part(void *ctx, size_t first, size_t end, int worker)
{
    struct delta_job *j = ctx;
    const struct delta_rows *r = j->r;
    size_t n_k = (size_t)r->n_k;
    for (size_t i = first; i < end; i++) {
        delta_lap(j, worker, LAP_CONV);
        if (i < n_k) {
            key_head(j, i);
            pool_count(&j->keys_done);
            continue;
        }
        conv_head(j, i * (size_t)r->d + n_k * (size_t)r->d);
        gates(r, i - n_k);
        delta_lap(j, worker, LAP_BARRIER);
        pool_wait(&j->keys_done, r->n_k);
        delta_lap(j, worker, LAP_DELTA);
        scan_head(j, i - n_k, worker);
        delta_lap(j, worker, LAP_GATE);
        gate_head(j, i - n_k, worker);
    }
}

static double scan_work(const struct delta_rows *r)
{
    return (double)r->rows * r->n_v * r->d * r->d * 2;
}

void cpu_delta_net(struct backend *b, const struct delta_rows *r)
{
    struct cpu_backend *c = cpu_of(b);
    int channels = (int)channels_of(r);
    struct delta_job j = {.c = c, .r = r};
    j.conv = (struct conv_job){&c->ops, r->qkv, r->kernel, r->history, r->conv,
                               r->rows, channels, r->taps, 1, r->is_held ? NULL : r->history};
    if (!taps_fit(c, r->taps))
        return;
    backend_lap(b, LAP_CONV);
    if (b->laps)
        laps_add_bytes(b->laps, LAP_DELTA, (r->is_held ? 1 : 2) * state_bytes(r));
    cpu_split(c, (size_t)(r->n_k + r->n_v),
              scan_work(r) + (double)r->rows * channels * (r->taps + 16), delta_part, &j);
}

static void scan_part(void *ctx, size_t first, size_t end, int worker)
{
    for (size_t h = first; h < end; h++)
        scan_head(ctx, h, worker);
}

void cpu_delta_scan(struct backend *b, const struct delta_rows *r)
{
    struct cpu_backend *c = cpu_of(b);
    struct delta_job j = {.c = c, .r = r};
    backend_lap_bytes(b, LAP_DELTA, 2 * state_bytes(r));
    cpu_split(c, (size_t)r->n_v, scan_work(r), scan_part, &j);
}
