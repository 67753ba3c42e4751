/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CPU backend share: its state, its scratch, how work is split over threads,
 * how a problem is recorded, and the operations that backend.c puts into the table. Private. */
#ifndef STRATA_CPU_STATE_H
#define STRATA_CPU_STATE_H

#include <limits.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "base/pool.h"
#include "cpu/linear.h"
#include "cpu/matmul.h"
#include "cpu/ops.h"

/* Output columns of a down product that a worker keeps at once, for all entries of a batch. */
#define EXPERT_COLUMNS 64

/* Most query heads of one kv head that a worker attends with at once. */
#define CPU_ATTENTION_HEADS 16

/* Rows of values that are gathered together, and the floats of the chains of one head. */
#define CPU_VALUE_TILE 1024
#define CPU_PART_FLOATS (CPU_CHAINS * CPU_VALUE_COLUMNS)

/* A part of an expert job that is in a batch (experts.c). */
struct expert_task {
    const struct expert_job *job;
    int from, n; /* job->rows[from .. from + n - 1] */
    int slot;    /* rounded rows of x start here */
    int entry;   /* intermediate rows start here */
    atomic_int pieces_done; /* of its gate and up products */
};

/* Scratch, all in one block. Laid out by scratch_layout in backend.c. */
struct cpu_scratch {
    /* One area a worker, used by one operation at a time: attention's scores
     * [attention_heads][ctx], list of positions [ctx], tile of values [CPU_VALUE_TILE]
     * [CPU_VALUE_COLUMNS] and chains [attention_heads][CPU_PART_FLOATS]; or the tile of a down
     * product [entries][EXPERT_COLUMNS]; or a head's state of a held delta net [d][d]. */
    float *worker;
    size_t worker_floats;
    int attention_heads; /* query heads that one worker may attend with at once */

    float *index_scores; /* [threads][blocks] */

    int entries;               /* (job, row) pairs of one batch of experts */
    float *rows;               /* [entries][D] rows of x, gathered for float products */
    float *gate, *up;          /* [entries][F] */
    void *acts32, *acts256;    /* rounded rows of x, [entries][D] */
    void *mid32, *mid256;      /* rounded rows of gate, [entries][F] */
    int32_t *slot_rows;        /* [entries] the row of x in each slot */
    int *tile_task;            /* [entries / CPU_TILE_ROWS] 1 + the task whose rows start the tile, 0: none */
    int32_t *all_rows;         /* [entries] 0, 1, 2 .. */
    float *shared_scale;       /* [entries] of the shared expert */
    struct expert_task *tasks; /* [entries] */
};

/* Row of a matrix in the profile, of which there is one. Only from the calling thread. */
static inline int cpu_lap_of(const struct backend *b, const struct tensor *w)
{
    return laps_matrix(b->laps, w->kind, w->type);
}

struct cpu_backend {
    struct backend base; /* first: operations get a pointer to it */
    struct pool *pool;
    int threads;
    struct cpu_ops ops;
    struct cpu_matmul matmul;
    struct cpu_linear_ctx linear;
    bool reserved;
    struct backend_limits limits;
    struct cpu_scratch scratch;
    void *scratch_memory;
    size_t scratch_bytes;
    struct err problem; /* the first since the last finish */
};

static inline struct cpu_backend *cpu_of(struct backend *b)
{
    return (struct cpu_backend *)b;
}

static inline float *cpu_worker_area(const struct cpu_backend *c, int worker)
{
    return c->scratch.worker + (size_t)worker * c->scratch.worker_floats;
}

/* Records a problem of the current layer, unless there is one. Only from the calling thread. */
void cpu_problem(struct cpu_backend *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Does items first..end-1. */
typedef void cpu_part_fn(void *ctx, size_t first, size_t end, int worker);

/* Does items 0..items-1 in parts on all threads, or at once on the caller when `work`, the float
 * operations of all items together, is so small that waking others costs more. */
void cpu_split(struct cpu_backend *c, size_t items, double work, cpu_part_fn *fn, void *ctx);

/* Lowers *first to `at`: the first item with a problem, whichever thread meets it. */
static inline void cpu_first_bad(_Atomic int *first, int at)
{
    int seen = atomic_load_explicit(first, memory_order_relaxed);
    while (at < seen && !atomic_compare_exchange_weak(first, &seen, at))
        ;
}

/* The operations, with the contracts of backend/backend.h. */
void cpu_embed(struct backend *b, const struct tensor *w, const int32_t *ids, int rows, float *out);
void cpu_repeat(struct backend *b, const float *x, int rows, int n, int times, float *out);
void cpu_add(struct backend *b, float *x, const float *y, size_t count);
void cpu_add_row(struct backend *b, float *x, const float *v, int rows, int n);
void cpu_linear_op(struct backend *b, const float *x, int rows, int n_in, const struct product *p,
                   int n_products);
void cpu_norm(struct backend *b, const float *x, const float *w, int w_groups, int count, int n,
              float eps, float *out);
void cpu_ple_gate(struct backend *b, const float *key, const float *query, int rows, int hc, int n,
                  float *a);
void cpu_ple_spread(struct backend *b, const float *a, const float *v, int rows, int hc, int n,
                    float *u);

void cpu_hc_low(struct backend *b, float *x, size_t count, int hc);
void cpu_hc_mix(struct backend *b, const float *low, const struct tensor *up, const float *x,
                int rows, int hc, int n, float *gate, float *y);
void cpu_hc_weights(struct backend *b, float *w, size_t count, int hc);
void cpu_hc_write(struct backend *b, float *x, const float *y, const float *w, int rows, int hc,
                  int n);

void cpu_conv(struct backend *b, const float *in, const float *kernel, float *history, int rows,
              int n, int taps, int dilation, float *out);
void cpu_conv_held(struct backend *b, const float *in, const float *kernel, const float *history,
                   int rows, int n, int taps, int dilation, float *out);
void cpu_conv_advance(struct backend *b, const float *in, float *history, int rows, int n,
                      int past);
void cpu_delta_net(struct backend *b, const struct delta_rows *r);
void cpu_delta_scan(struct backend *b, const struct delta_rows *r);

void cpu_norm_rope(struct backend *b, const float *x, size_t row_stride, size_t head_stride,
                   const float *w, const struct rope *rope, int rows, int heads, int d, float eps,
                   int pos, float *out);
void cpu_store(struct backend *b, const float *x, int rows, int heads, int d, void *cache,
               enum kv_type type, int pos);
void cpu_attention(struct backend *b, const float *q, const struct kv_cache *cache,
                   const struct block_choice *choice, int rows, int n_head, int pos, float *out);
void cpu_gate(struct backend *b, float *x, const float *gate, size_t row_stride, size_t head_stride,
              int rows, int heads, int d);

void cpu_index_pool(struct backend *b, const void *raw, enum kv_type type, const float *w,
                    const struct rope *rope, int first, int count, int ratio, int d, float eps,
                    float *pooled);
void cpu_index_choose(struct backend *b, const float *q, const float *pooled, int rows, int heads,
                      int d, int pos, struct block_choice *choice, float *scores, int n_blocks);

bool cpu_route(struct backend *b, const float *logits, int rows, int n, int k, bool renormalise,
               const struct route_bonus *bonus, int32_t *ids, float *weights, struct err *e);
void cpu_experts(struct backend *b, const float *x, int n_embd, const struct expert_job *jobs,
                 int n_jobs, int64_t *sum);
void cpu_shared_expert(struct backend *b, const float *x, int rows, int n_embd,
                       const struct tensor *gate, const struct tensor *up,
                       const struct tensor *down, const struct tensor *scale, float *out);
void cpu_routed(struct backend *b, int64_t *sum, size_t count, float *out);

#endif
