/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of a band or window through the layers, the same for every architecture: each layer
 * mixes tile by tile over all rows, then runs its experts once for all of them. What happens inside
 * is the architecture's: it gives the steps below. */
#ifndef STRATA_MODEL_PASS_H
#define STRATA_MODEL_PASS_H

#include "model/arch.h"
#include "model/mixture.h"

struct pass {
    struct model *m;
    struct backend *b;
    struct model_state *s;
    const struct batch *batch;
    float *x;     /* the residual, row 0 first */
    int position; /* of row 0 in the keys of attention */
    const struct expert_source *experts;
    const struct row_source *rows;
    const struct pass_steps *steps;
    struct mixture_scratch *moe;
    const char *table_bytes; /* host: rows of the table on the drive, once they are there */
    struct err *e;
};

/* Rows first .. first + rows - 1 of the batch are a tile; row 0 stands at position s->position. */
struct pass_steps {
    const struct mixture_params *moe;
    /* Before the first layer, e.g. reads that can start now. NULL: nothing. */
    bool (*begin)(struct pass *p);
    void (*embed)(struct pass *p, int first, int rows);
    /* Before layer i's tiles. NULL: nothing. */
    bool (*enter)(struct pass *p, int i);
    /* The residual through layer i's mixer, and its routing (mixture_route). */
    bool (*mix)(struct pass *p, int i, int first, int rows);
    const struct mixture_weights *(*mixture)(struct pass *p, int i);
    /* The experts' result (mixture_result) into the residual. */
    void (*write_back)(struct pass *p, int i, int first, int rows);
    /* After the last layer: logits [rows][vocab] at a backend address. */
    void (*head)(struct pass *p, int first, int rows, float *logits);
    /* For dumps: the residual of a tile is shown as `name`, layer -1: no layer. */
    void (*show)(struct pass *p, int layer, const char *name, int first, int rows);
};

/* Logits leave through these; cut with pass_carve. */
struct pass_scratch {
    float *logits;      /* [tile][vocab] */
    float *host_logits; /* host [tile][vocab] */
};
void pass_carve(struct pass_scratch *t, int tile, int vocab, struct carve *device,
                struct carve *host);

bool pass_run(struct pass *p, const struct pass_scratch *t);
/* The draft layer: `embed` joins tokens and residual, then layer number `layers`, then `head`. */
bool pass_draft(struct pass *p, const struct pass_scratch *t);

#endif
