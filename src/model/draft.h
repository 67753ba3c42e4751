/* SPDX-License-Identifier: Apache-2.0 */
/* The draft (MTP) layer of a file (qwen4exp.md 2.9, other-archs.md section 5): what its tensors are
 * called, and how a token and the residual before it become its input. The layer itself is one of
 * attention and experts like the others. */
#ifndef STRATA_MODEL_DRAFT_H
#define STRATA_MODEL_DRAFT_H

#include "base/carve.h"
#include "model/weights.h"

struct draft_weights {
    const float *enorm;               /* [D] of the token's embedding */
    const float *hnorm;               /* [streams][D] of the residual */
    struct tensor eh_proj;            /* 2 D -> D, the embedding's half first */
    struct tensor own_embd, own_head; /* data NULL: those of the model */
};

struct draft_scratch {
    float *normed; /* [tile][D] */
    float *both;   /* [tile][streams][2 D] */
};

/* Asks for blk.LAYER.nextn.* but for what is normed before the head. */
bool draft_bind(struct weights *w, struct draft_weights *out, int streams, int embd, int vocab,
                int layer, struct err *e);
void draft_carve(struct draft_scratch *t, int streams, int embd, int tile, struct carve *device);

/* x[r][s] = eh_proj (norm(embedding[r]), norm(x[r][s])), in place. embedding [rows][D],
 * x [rows][streams][D]; rows up to a tile. */
void draft_join(struct backend *b, const struct draft_weights *w, const struct draft_scratch *t,
                const float *embedding, float *x, int rows, int streams, int embd, int tile,
                float eps);

#endif
