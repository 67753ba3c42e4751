/* SPDX-License-Identifier: Apache-2.0 */
/* The mixture of experts of a layer, and the two small interfaces by which a model asks for what is
 * not resident. `session` wires them to src/stream; tests wire them to plain memory. */
#ifndef STRATA_MODEL_MOE_H
#define STRATA_MODEL_MOE_H

#include "backend/backend.h"

#define GUESS_RANKS_MOST 64
#define EXPERT_PARTS 3 /* gate, up, down; fused files have gate_up, down */

/* What a layer's routing decided for all rows that pass it together. */
struct routing {
    int layer;
    int rows, k;
    const int32_t *ids;   /* host [rows][k] best first */
    const float *weights; /* host [rows][k] */
    bool is_band;         /* a prompt's band; else a decode window */
    const float *displaced, *spread; /* host [rows] of a routing with a bonus (backend.h), else NULL */
};

/* What a later layer is guessed to select, from its router and the input of the router before it. */
struct guess {
    int layer;
    int rows, ranks;
    const int32_t *ids;   /* host [rows][ranks] best first */
    const float *weights; /* host [rows][ranks] */
    bool is_band;
};

/* An expert whose bytes are there: addresses of its parts in the order of the file's tensors
 * (gate, up, down or gate_up, down), exactly as in the file. */
struct expert_record {
    int expert;
    bool is_new; /* read since it was handed out last, of a source that reads */
    const void *part[EXPERT_PARTS];
};

struct expert_source {
    void *ctx;
    /* A turn starts: every distinct expert in r->ids is wanted. Reads of missing ones are under way
     * when it returns; it does not wait for them. r stays valid until end. */
    bool (*begin)(void *ctx, const struct routing *r, struct err *e);
    /* Hands out up to `most` experts that are ready, each exactly once a turn; waits when none is.
     * Returns how many, 0 when all have been handed out, -1 on error. Records handed out by
     * earlier calls of this turn may be evicted as soon as it is called again. */
    int (*next)(void *ctx, struct expert_record *out, int most, struct err *e);
    /* The turn is over, also after an error. */
    void (*end)(void *ctx);

    /* The rest may be NULL: a source that guesses nothing, and exact routing. */

    /* Ranks that a guess at `layer` should have; 0: nobody wants one. */
    int (*guess_ranks)(void *ctx, int layer, bool is_band);
    /* The guesses that were asked for, the nearer layer's first, between `begin` of the layer whose
     * input they are made from and the first `next`. */
    void (*guess)(void *ctx, const struct guess *g);
    /* What is added to the logits of the layer's experts when they are chosen: host [experts], valid
     * until `begin`; NULL: nothing, routing is exact. *keep as in struct route_bonus. */
    const float *(*bonus)(void *ctx, int layer, bool is_band, int *keep);
    /* As guess_ranks, of a guess at `layer` that is made two layers before it. */
    int (*far_ranks)(void *ctx, int layer, bool is_band);
};

/* Rows of a table on the drive (n-gram embedding). */
struct row_source {
    void *ctx;
    /* Starts reading rows[0..n-1] (any order, repeats allowed); n at most what the plan holds. */
    bool (*begin)(void *ctx, const uint64_t *rows, int n, struct err *e);
    /* Waits for them. *bytes: host [n][row bytes] in the order asked, valid until the next begin. */
    bool (*wait)(void *ctx, const void **bytes, struct err *e);
};

#endif
