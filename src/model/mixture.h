/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts of one layer (qwen4exp.md 2.7): router, routed experts as they become ready,
 * shared expert. All rows of a band pass it together, so that each expert is needed once a band. */
#ifndef STRATA_MODEL_MIXTURE_H
#define STRATA_MODEL_MIXTURE_H

#include "base/carve.h"
#include "model/weights.h"

struct mixture_params {
    int embd;
    int experts, used; /* E, k */
    int width;         /* F of a routed expert */
    int shared_width;  /* F of the shared expert, 0: there is none */
    bool renormalise;  /* the chosen weights are divided by their sum */
};

struct mixture_weights {
    struct tensor router; /* embd -> experts */
    bool fused;           /* gate_up holds gate's rows, then up's rows */
    struct expert_stack gate, up, down; /* fused: `gate` is gate_up, `up` is unused */
    struct tensor shared_gate, shared_up, shared_down;
    struct tensor shared_scale; /* embd -> 1, its gate */
};

struct mixture_scratch {
    /* of a band */
    float *in;         /* [band][embd] input of router and experts */
    float *shared;     /* [band][embd] result of the shared expert */
    int64_t *sum;      /* [band][embd] order-free sum of the routed experts, zero between layers */
    int32_t *ids;      /* host [band][used] best first */
    float *weights;    /* host [band][used] */
    int32_t *job_rows; /* host [band * used] rows, grouped by expert */
    float *job_weights; /* host, beside job_rows */
    int32_t *starts;   /* host [experts + 1] where an expert's group starts */
    int32_t *guess_ids; /* host [band][used], and at least [GUESS_ROWS][GUESS_RANKS_MOST] */
    float *guess_weights;
    float *displaced, *spread; /* host [band] of a routing with a bonus */
    /* of a tile */
    float *logits;     /* [tile][experts] */
    float *next_logits; /* [tile][experts] of the next layer's router */
    /* of the layer that runs (mixture_enter) */
    const float *bonus; /* NULL: exact routing */
    int keep;
    int guess_ranks;    /* of the guess at the next layer; 0: none */
    const struct tensor *far_router; /* of the layer after that, NULL: nobody wants a guess at it */
    int far_ranks;
};

bool mixture_bind(struct weights *w, struct mixture_weights *out, const struct mixture_params *p,
                  int layer, struct err *e);
void mixture_free(struct mixture_weights *w);
void mixture_describe(const struct mixture_weights *w, struct model_experts *out);
void mixture_carve(struct mixture_scratch *t, const struct mixture_params *p, int band, int tile,
                   struct carve *device, struct carve *host);

/* Before the layer's tiles: asks the source how to route, and whether to guess the next layer's
 * experts (`last`: there is none), and those of the layer after that (`far`; NULL: there is none). */
void mixture_enter(struct mixture_scratch *t, const struct mixture_params *p,
                   const struct expert_source *source, const struct batch *batch, int layer,
                   bool last, const struct mixture_weights *far);

/* Routes rows first..first+rows-1 of the band, whose inputs are in t->in, and guesses, if wanted, what
 * the next layer, whose weights are given, will select for them. */
bool mixture_route(struct backend *b, const struct mixture_params *p,
                   const struct mixture_weights *w, const struct mixture_weights *next,
                   struct mixture_scratch *t, int first, int rows, const struct batch *batch,
                   int layer, struct err *e);

/* Runs all experts for the band's rows: the sums of the routed ones and the shared one are then in
 * the scratch. */
bool mixture_run(struct backend *b, const struct mixture_params *p, const struct mixture_weights *w,
                 struct mixture_scratch *t, int tile, const struct expert_source *source,
                 const struct batch *batch, int layer, struct err *e);

/* out [rows][embd] = routed + shared of rows first.. */
void mixture_result(struct backend *b, const struct mixture_params *p, struct mixture_scratch *t,
                    int first, int rows, const struct batch *batch, int layer, float *out);

#endif
