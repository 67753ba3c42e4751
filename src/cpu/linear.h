/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on all threads: y = W x for one or many rows of x and weights of any type.
 * The bits of a result depend on nothing but its weight row and its x row (numerics.md). Nothing
 * is allocated after cpu_linear_ctx_init.
 *
 * Two levels: cpu_linear does everything for weights that share the same x; an operation with
 * another plan (routed experts) rounds rows itself and calls cpu_rows from its own pool_run. */
#ifndef STRATA_CPU_LINEAR_H
#define STRATA_CPU_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/pool.h"
#include "cpu/matmul.h"

/* A matrix: n_out rows of tensor_row_bytes(type, n_in) bytes, one after the other. */
struct cpu_weight {
    const void *data;
    uint32_t type; /* a weight type */
    int n_in, n_out;
};

struct cpu_product {
    struct cpu_weight w;
    float *y;        /* [rows][y_stride], n_out values used */
    size_t y_stride; /* in floats */
    int lap;         /* its row in a profile, if there is one */
};

/* Rows of activations in the forms that weights ask for. cpu_act_block says which rounded form a
 * type needs; a form that nobody needs may stay without memory (q == NULL). */
struct cpu_acts {
    const float *x;  /* [rows][x_stride]; for QUANT_FLOAT types and exact activations */
    size_t x_stride; /* in floats */
    bool exact;      /* float32 activations for all types (--exact-activations) */
    struct quant_act block32, block256;
    bool packed; /* runs that start at a multiple of CPU_TILE_ROWS went through cpu_act_pack, in the
                    forms that weights read packed (cpu_reads_packed) */
};

struct cpu_linear_ctx {
    struct pool *pool;
    const struct cpu_matmul *table;
    struct laps *laps; /* NULL: there is no profile */
    int max_rows, max_n, threads;
    struct cpu_acts acts;            /* rounded forms of cpu_linear's x, [max_rows][max_n] */
    struct cpu_row_scratch *scratch; /* [threads] unpacked weight rows */
    void *memory;
};

/* Where the parts of a record of a row of n values lie, and bytes of CPU_TILE_ROWS packed
 * activation rows (matmul.h); cpu_act_place and cpu_act_pack do that for all rows. */
struct cpu_tile_layout cpu_tile_layout(int n);
size_t cpu_tile_acts_bytes(int n);
/* Bytes of scratch of a panel (matmul.h) of weight rows of n values. */
size_t cpu_panel_bytes(int n);
/* memory: 64-byte aligned, of cpu_tile_acts_bytes(n); owned by the caller. */
void cpu_tile_acts_place(struct cpu_tile_acts *a, void *memory, int n);

/* Bytes that cpu_linear_ctx_init allocates. The sizes must be sane (checked by the plan). */
size_t cpu_linear_scratch_bytes(int max_rows, int max_n, int threads);

/* max_rows: x rows that are rounded at once (more are done in slices); max_n: longest weight row.
 * pool and table belong to the caller and outlive the context. */
bool cpu_linear_ctx_init(struct cpu_linear_ctx *ctx, struct pool *pool,
                         const struct cpu_matmul *table, int max_rows, int max_n, struct err *e);
void cpu_linear_ctx_free(struct cpu_linear_ctx *ctx);

/* y_i[t][r] = W_i[r] . x[t] for all products, which share x: [rows][x_stride], n_in values used.
 * Inf or NaN in x is ERR_NUMERIC "activations: not a finite number" (not looked at where no product
 * rounds: F32, F16, BF16, exact). */
bool cpu_linear(struct cpu_linear_ctx *ctx, const float *x, size_t x_stride, int rows,
                const struct cpu_product *p, int n_products, bool exact_activations, struct err *e);

/* --- pieces for operations with their own plan --- */

/* Rounds and packs up to max_rows rows of x as `w` needs them, for cpu_rows; valid until the next
 * product. NULL and an error as of cpu_linear. `lap`: the row of the profile that its bytes count
 * for. */
const struct cpu_acts *cpu_linear_prepare(struct cpu_linear_ctx *ctx, const float *x,
                                          size_t x_stride, int rows, const struct cpu_weight *w,
                                          int lap, bool exact_activations, struct err *e);

/* Block of the rounded activations that a weight type takes: 32, 256, or 0 for float32. */
int cpu_act_block(uint32_t type);

/* Memory of one quant_act for `rows` rows of n values, and laying one out in such memory (aligned
 * to 64). Rows are filled by cpu_act_round, in any order, by any thread. */
size_t cpu_act_bytes(int rows, int n, int block);
void cpu_act_place(struct quant_act *a, void *memory, int rows, int n, int block);

/* Rounds one row of a->n floats into row `row`. False when x holds inf or NaN. */
bool cpu_act_round(const struct cpu_linear_ctx *ctx, const float *x, struct quant_act *a, int row);

/* Whether the product of `rows` activation rows with rows of w, none of it exact, reads them packed. */
bool cpu_reads_packed(const struct cpu_linear_ctx *ctx, const struct cpu_weight *w, int rows);

/* Packs rows t0..t0+rows-1, which are rounded; t0 is a multiple of CPU_TILE_ROWS. No other rows of
 * their tiles may be packed apart from them. Any thread. Does nothing without kernels for tiles. */
void cpu_act_pack(const struct cpu_linear_ctx *ctx, const struct quant_act *a, int t0, int rows);

/* Weight rows r0..r1-1 times activation rows t0..t0+rows-1, on the calling thread; `worker` picks
 * the scratch. y[(t - t0) * y_stride + (r - r0)]: the caller adds r0 or t0 where its y starts
 * elsewhere. w->n_in <= ctx->max_n. x must hold the form that w->type needs. */
void cpu_rows(const struct cpu_linear_ctx *ctx, int worker, const struct cpu_weight *w, int r0,
              int r1, const struct cpu_acts *x, int t0, int rows, float *y, size_t y_stride);

#endif
