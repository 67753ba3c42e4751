/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that a network is made of, as one table of function pointers. The CPU backend
 * (src/cpu/backend.c) is complete and is the definition; other backends implement the same table.
 *
 * Addresses. Every pointer parameter without the word "host" is an address in the backend's memory
 * (for the CPU an ordinary pointer): callers do arithmetic on it and never read through it.
 * Arrays are float32, rows one after the other, shapes as [rows][n] in the comments.
 *
 * Execution may be deferred: operations are in order among themselves; `finish` waits for all of
 * them. An operation that meets NaN, inf or a value out of range records it (with `layer`), and
 * finish reports the first. Nothing is allocated by an operation; `reserve` comes first.
 *
 * Results obey design rules in docs/numerics.md: bits do not depend on threads, on how rows are cut
 * into calls, or on the instruction set. */
#ifndef STRATA_BACKEND_BACKEND_H
#define STRATA_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/laps.h"
#include "base/tensor_type.h"

/* A weight in the backend's memory: n_out rows of n_in values. Vectors have n_out = 1. */
struct tensor {
    const void *data;
    uint32_t type; /* enum tensor_type */
    int n_in, n_out;
    float scale; /* the product is multiplied by it unless it is 1 (NVFP4 companions) */
    const char *kind; /* for profiles: its name without the layer, one pointer for all; may be NULL */
};

/* One product of `linear`: y[t][r] = w[r] . x[t]. */
struct product {
    const struct tensor *w;
    float *y; /* [rows][w->n_out] */
};

/* Rotary embedding: pairs (i, i + n_rot/2) of the first n_rot dimensions turn by
 * (float)position * inv_freq[i]; the result of cos and sin is multiplied by mscale (YaRN, else 1). */
struct rope {
    int n_rot;
    float mscale;
    const float *inv_freq; /* [n_rot / 2] */
};

enum kv_type { KV_F16, KV_F32, KV_Q8_0, KV_TYPES };

/* KV_Q8_0 keeps 32 values of a head in a block, value i as q[i] * scale, which is exact in f32. The
 * last block of a head is full, with zeros. scale = max|x| / 127 rounded to a half float, q = x / scale
 * rounded half to even and limited to -127 .. 127 (scale 0: 0), so that a value is off by half a
 * scale at most (where the scale is a denormal: by 127 * 2^-25). */
#define KV_BLOCK 32

struct kv_block {
    uint16_t scale; /* half float, not negative */
    int8_t q[KV_BLOCK];
};

/* A cache is counted in units: a value, or a block. */
static inline size_t kv_unit_bytes(enum kv_type t)
{
    return t == KV_Q8_0 ? sizeof(struct kv_block) : t == KV_F16 ? 2 : 4;
}

/* Units of a head of d values, or where its value d is, which for blocks must be a multiple of 32. */
static inline size_t kv_units(enum kv_type t, size_t d)
{
    return t == KV_Q8_0 ? (d + KV_BLOCK - 1) / KV_BLOCK : d;
}

/* Keys and values of one attention layer, by position. */
struct kv_cache {
    enum kv_type type;
    void *k, *v;      /* [ctx][n_kv][d_head], kv_units(type, d_head) a head */
    int n_kv, d_head;
};

/* Which blocks each row of a tile may read (sparse attention). */
struct block_choice {
    int ratio;       /* tokens a block; 0: everything is visible, the arrays are unused */
    int stride;      /* room per row, budget / ratio */
    int32_t *blocks; /* [rows][stride] chosen blocks, ascending */
    int32_t *counts; /* [rows] */
};

/* One expert for the rows that chose it. */
struct expert_job {
    struct tensor gate, up, down; /* D -> F, D -> F, F -> D */
    int expert;                   /* its number, for messages */
    const int32_t *rows;          /* host [n] rows of x */
    const float *weights;         /* host [n] routing weights */
    int n;
};

/* Cache-aware routing (docs/streaming.md): experts that are resident are preferred a little. */
struct route_bonus {
    const float *bonus; /* host [n]; all 0 chooses exactly as without */
    int keep;           /* the best by logits alone that are chosen in any case */
    float *displaced;   /* host [rows]: mass of the exact choice minus that of this one */
    float *spread;      /* host [rows]: largest logit minus smallest */
};
#define ROUTE_BONUS_MOST 256 /* largest k with a bonus */

enum gate_kind { GATE_SIGMOID, GATE_SILU };

/* Rows of a gated delta net. Channels: the heads of q, those of k, those of v, d values each. Value head
 * h uses key head h mod n_k, or h / (n_v / n_k) if `grouped`. */
struct delta_rows {
    int rows, n_k, n_v, d, taps;
    bool grouped;
    bool is_held;        /* rows some of which may be rejected: history and state stay as they are */
    float l2_eps, eps;
    enum gate_kind gate;
    const float *kernel; /* [channels][taps] */
    const float *a, *dt; /* [n_v] */
    const float *norm;   /* [d] */
    const float *qkv;    /* [rows][channels] as projected */
    const float *z;      /* [rows][n_v][d] */
    float *history;      /* [taps - 1][channels] */
    float *state;        /* [n_v][d (value)][d (key)] */
    float *conv;         /* out [rows][channels]: silu(convolution); then each head x of q and k is
                            x / sqrt(sum(x^2) + l2_eps), of q / sqrt(d) too */
    float *g, *beta;     /* [rows][n_v] as projected; out a * softplus(g + dt), sigmoid(beta) */
    float *out;          /* [rows][n_v][d] norm(o, norm) * gate(z), the norm per head */
    float *conv_shown, *core_shown; /* for dumps, or NULL: conv before it is normed, [rows][channels],
                                       may be qkv; o, [rows][n_v][d], may be z */
};

/* What `reserve` must make room for. */
struct backend_limits {
    int rows;         /* largest tile */
    int n_in;         /* longest row of any product */
    int expert_rows;  /* most rows of one expert job (a band) */
    int expert_width; /* F, the largest, of the shared expert too */
    int embd;         /* D */
    int ctx;          /* tokens visible to dense attention at most */
    int blocks;       /* blocks of a whole context, 0 without sparse attention */
    int delta;        /* head size of a held delta_net, 0: there is none */
};

struct backend {
    const char *name;
    int layer;              /* set by the model, for messages; -1: none */
    struct laps *laps;      /* where operations note their times; NULL: nobody asked */
    bool exact_activations; /* float32 activations with every weight type */
    bool host_visible;      /* addresses may be read and written by the host between finish and the
                               next operation */

    /* Bytes that reserve will take for these limits; the plan counts them. */
    size_t (*reserve_bytes)(const struct backend *b, const struct backend_limits *l);
    bool (*reserve)(struct backend *b, const struct backend_limits *l, struct err *e);
    void (*free)(struct backend *b);

    /* Zeroed memory, page aligned. */
    void *(*alloc)(struct backend *b, size_t bytes, const char *what, struct err *e);
    void (*release)(struct backend *b, void *p, size_t bytes);
    /* Copies from and to the host, in order with the operations; `read` finishes first. Several
     * threads may write at once while a model is loaded, and while operations run that read nothing
     * of what is written. */
    bool (*write)(struct backend *b, void *to, const void *host, size_t bytes, struct err *e);
    bool (*read)(struct backend *b, void *host, const void *from, size_t bytes, struct err *e);
    bool (*finish)(struct backend *b, struct err *e);

    /* out[t] = row ids[t] of w, decoded. ids: host [rows]. */
    void (*embed)(struct backend *b, const struct tensor *w, const int32_t *ids, int rows, float *out);
    /* out[t][s] = x[t] for s in 0..times-1. x [rows][n], out [rows][times][n]. */
    void (*repeat)(struct backend *b, const float *x, int rows, int n, int times, float *out);
    /* x += y, count values. */
    void (*add)(struct backend *b, float *x, const float *y, size_t count);

    /* x[t] += v for every row. x [rows][n], v [n]. */
    void (*add_row)(struct backend *b, float *x, const float *v, int rows, int n);

    /* Products over the same input rows; x [rows][n_in]. The rows are rounded once per block size. */
    void (*linear)(struct backend *b, const float *x, int rows, int n_in, const struct product *p,
                   int n_products);

    /* RMS norm of each group: out = x / sqrt(mean(x^2) + eps) * w. x, out [count][n] (may be the
     * same); group g uses w[g mod w_groups], w [w_groups][n]. */
    void (*norm)(struct backend *b, const float *x, const float *w, int w_groups, int count, int n,
                 float eps, float *out);

    /* Hyper-connections (qwen4exp.md 2.3). */
    /* x = silu(x / hc), count values. */
    void (*hc_low)(struct backend *b, float *x, size_t count, int hc);
    /* gate[t] = up low[t], y[t] = (1/hc) * sum over s, in order, of sigmoid(gate[t][s]) * x[t][s].
     * low [rows][up->n_in], up -> hc * n, gate, x [rows][hc][n], y [rows][n]. */
    void (*hc_mix)(struct backend *b, const float *low, const struct tensor *up, const float *x,
                   int rows, int hc, int n, float *gate, float *y);
    /* w = 2 * sigmoid(w / hc), count values. */
    void (*hc_weights)(struct backend *b, float *w, size_t count, int hc);
    /* x[t][s] += w[t][s] * y[t]; product and sum rounded each. x [rows][hc][n], y [rows][n]. */
    void (*hc_write)(struct backend *b, float *x, const float *y, const float *w, int rows, int hc,
                     int n);

    /* Causal depthwise convolution, dilated, then silu:
     * out[t][c] = silu(sum over taps j = 0..taps-1 of kernel[c][j] * in(t - (taps-1-j) * dilation)[c]),
     * a reduction of the usual shape (tap j in chain j mod 32). Rows before the first come from history
     * [(taps-1)*dilation][n], oldest first, which afterwards holds the last rows of history + in.
     * in and out may not be the same. kernel [n][taps] float32. */
    void (*conv)(struct backend *b, const float *in, const float *kernel, float *history, int rows,
                 int n, int taps, int dilation, float *out);

    /* The same for rows some of which may be rejected: the history stays as it is. conv_advance then
     * moves a history of `past` rows on by the first `rows` of in. */
    void (*conv_held)(struct backend *b, const float *in, const float *kernel, const float *history,
                      int rows, int n, int taps, int dilation, float *out);
    void (*conv_advance)(struct backend *b, const float *in, float *history, int rows, int n,
                         int past);

    /* Gated delta net (qwen4exp.md 2.5), between its projections. */
    void (*delta_net)(struct backend *b, const struct delta_rows *r);
    /* The recurrence alone, row by row, of rows that delta_net has held: S' = exp(g) S, r = S'^T k,
     * e = beta * (v - r), S = fma(k, e, S'), o = S^T q. What is not needed again may be NULL. */
    void (*delta_scan)(struct backend *b, const struct delta_rows *r);

    /* Attention. */
    /* out[t][h] = rope(norm(x[t][h], w), pos + t). Heads of d values at x + t * row_stride +
     * h * head_stride; w [d], NULL: no norm; out [rows][heads][d], which may be x itself when
     * its heads lie one after the other. */
    void (*norm_rope)(struct backend *b, const float *x, size_t row_stride, size_t head_stride,
                      const float *w, const struct rope *rope, int rows, int heads, int d, float eps,
                      int pos, float *out);
    /* cache[pos + t] = x[t], converted (half to even). x [rows][heads][d], cache [ctx][heads][d] of
     * type. */
    void (*store)(struct backend *b, const float *x, int rows, int heads, int d, void *cache,
                  enum kv_type type, int pos);
    /* Index keys of complete blocks first..first+count-1: pooled[j] = rope(norm(mean of the block's
     * raw keys, w), j * ratio). raw [ctx][d] of type (not KV_Q8_0), pooled [ctx / ratio][d]. The mean is the sum in
     * order of position, then / ratio. */
    void (*index_pool)(struct backend *b, const void *raw, enum kv_type type, const float *w,
                       const struct rope *rope, int first, int count, int ratio, int d, float eps,
                       float *pooled);
    /* For row t at position pos + t with B = (pos + t + 1) / ratio complete blocks: score of block j =
     * (sum over heads, in order, of max(0, q[t][h] . pooled[j])) / sqrt(d); the min(choice->stride, B)
     * best, equal scores to the lower block, are written to `choice`. q [rows][heads][d].
     * scores: NULL, or [rows][n_blocks] with NaN where a block is not complete. */
    void (*index_choose)(struct backend *b, const float *q, const float *pooled, int rows, int heads,
                         int d, int pos, struct block_choice *choice, float *scores, int n_blocks);
    /* out[t][h] = softmax(q[t][h] . k / sqrt(d_head)) v over the chosen blocks and the unfinished
     * tail, or over all tokens 0..pos+t when choice->ratio is 0. Query head h uses kv head
     * h / (n_head / n_kv). q, out [rows][n_head][d_head]. The rows' own k and v are in the cache. */
    void (*attention)(struct backend *b, const float *q, const struct kv_cache *cache,
                      const struct block_choice *choice, int rows, int n_head, int pos, float *out);
    /* x *= sigmoid(gate); heads of x [rows][heads][d]; gate heads at row_stride and head_stride. */
    void (*gate)(struct backend *b, float *x, const float *gate, size_t row_stride,
                 size_t head_stride, int rows, int heads, int d);

    /* Mixture of experts (qwen4exp.md 2.7). */
    /* Softmax over n experts, the k best (equal: lower index first), weights divided by their sum if
     * `renormalise`. logits [rows][n]; ids and weights: host [rows][k]; finishes. bonus NULL: exact;
     * else the choice is made by the logits plus the bonus, the weights are those of the logits. */
    bool (*route)(struct backend *b, const float *logits, int rows, int n, int k, bool renormalise,
                  const struct route_bonus *bonus, int32_t *ids, float *weights, struct err *e);
    /* For each job and row: sum[row] += round(weight * down(silu(gate x) * (up x)) * 2^32), as 64-bit
     * integers (order-free, numerics.md section 1). |value| < 2^19 is checked. x [..][D],
     * sum [..][D] int64. The jobs' data may be reused after `finish`. */
    void (*experts)(struct backend *b, const float *x, int n_embd, const struct expert_job *jobs,
                    int n_jobs, int64_t *sum);
    /* out[t] = sigmoid(scale x[t]) * down(silu(gate x[t]) * (up x[t])). x, out [rows][D]; gate and up
     * D -> F, down F -> D, scale D -> 1. */
    void (*shared_expert)(struct backend *b, const float *x, int rows, int n_embd,
                          const struct tensor *gate, const struct tensor *up,
                          const struct tensor *down, const struct tensor *scale, float *out);
    /* out = (float)sum * 2^-32 (one rounding), then sum = 0; count values. */
    void (*routed)(struct backend *b, int64_t *sum, size_t count, float *out);

    /* N-gram embedding (qwen4exp.md 2.4). */
    /* a[t][s] = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))), d = key . query / sqrt(n).
     * key, query [rows][hc][n]. */
    void (*ple_gate)(struct backend *b, const float *key, const float *query, int rows, int hc, int n,
                     float *a);
    /* u[t][s] = a[t][s] * v[t]. v [rows][n], u [rows][hc][n]. */
    void (*ple_spread)(struct backend *b, const float *a, const float *v, int rows, int hc, int n,
                       float *u);
};

/* What the calling thread does from now on, for a profile. */
static inline void backend_lap(const struct backend *b, int row)
{
    if (b->laps)
        laps_switch(b->laps, 0, row);
}

/* The same for an operation on data of so many bytes. */
static inline void backend_lap_bytes(const struct backend *b, int row, uint64_t bytes)
{
    backend_lap(b, row);
    if (b->laps)
        laps_add_bytes(b->laps, row, bytes);
}

#endif
