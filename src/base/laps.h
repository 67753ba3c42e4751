/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a run goes (--profile). Every worker has a stopwatch that always runs for one
 * row; going on to another row reads the clock once. So nothing between the beginning and the end of
 * a pass is left out, and what a worker's rows do not fill it was idle.
 * Rows are the kinds below and one for each kind of matrix and type of number.
 * A worker writes its own times only, within a pool_run; the caller reads them outside of any. */
#ifndef STRATA_BASE_LAPS_H
#define STRATA_BASE_LAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum lap_row {
    LAP_OFF = -1, /* the stopwatch stands */
    LAP_OTHER,    /* the caller between operations */
    LAP_READS,    /* the caller waits for experts, or says which are wanted */
    LAP_BARRIER,  /* the caller waits for the others at the end of a step */
    LAP_EMBED,
    LAP_NORM,
    LAP_ROUND, /* activations to 8 bits */
    LAP_HYPER,
    LAP_CONV,
    LAP_DELTA,
    LAP_ROPE,
    LAP_INDEX,
    LAP_ATTENTION,
    LAP_GATE,
    LAP_ROUTER,
    LAP_ROUTED,
    LAP_SWIGLU,
    LAP_ADD,
    LAP_NGRAM,
    LAP_MATRICES, /* from here on */
};

enum lap_phase { LAP_PROMPT, LAP_ANSWER, LAP_PHASES };

struct laps;

/* For `threads` workers. */
struct laps *laps_create(int threads, struct err *e);
void laps_free(struct laps *l);
size_t laps_memory(int threads); /* bytes that it takes */
void laps_reset(struct laps *l);

/* A pass of `rows` tokens begins and ends, on the caller; times outside of passes do not count. */
void laps_begin(struct laps *l, enum lap_phase phase);
void laps_end(struct laps *l);

/* From now on worker `worker` works for `row`. The caller is worker 0. */
void laps_switch(struct laps *l, int worker, int row);
/* The row that the caller works for. */
int laps_row(const struct laps *l);
/* Caller: the row of matrices called `kind` of number type `type`; `kind` stays valid and is the
 * same pointer for the same kind. */
int laps_matrix(struct laps *l, const char *kind, uint32_t type);
/* Caller: a row moves so many bytes; a step was handed to the workers. */
void laps_add_bytes(struct laps *l, int row, uint64_t bytes);
void laps_count_step(struct laps *l);

struct lap_times {
    const char *kind;
    int type;      /* of numbers; -1: no matrix */
    double ns;     /* of all workers together */
    uint64_t bytes;
};

struct lap_sum {
    uint64_t passes, steps; /* steps: pool_runs that need the others to come and go */
    double pass_ns;
    double idle_ns; /* of all workers together: no work, or the caller alone has some */
};

/* Rows so far; with those without time. */
int laps_rows(const struct laps *l);
void laps_get(const struct laps *l, enum lap_phase phase, int row, struct lap_times *out);
void laps_sum(const struct laps *l, enum lap_phase phase, struct lap_sum *out);

#endif
