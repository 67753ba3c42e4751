/* SPDX-License-Identifier: Apache-2.0 */
/* Gated delta net (qwen4exp.md 2.5), as its recurrence. */
#ifndef STRATA_MODEL_DELTA_NET_H
#define STRATA_MODEL_DELTA_NET_H

#include "model/arch.h"
#include "model/state.h"
#include "model/weights.h"

struct delta_net_params {
    int embd;
    int n_k, n_v, d; /* key heads, value heads, head size of q, k and v */
    int taps;        /* width of the convolution */
    float eps;       /* of the output norm */
    enum gate_kind gate;
    bool grouped;    /* value head h uses key head h / (n_v / n_k), else h mod n_k */
};

struct delta_net_weights {
    struct tensor qkv;          /* embd -> channels: q heads, k heads, v heads */
    struct tensor gate;         /* embd -> n_v * d */
    struct tensor alpha, beta;  /* embd -> n_v */
    const float *conv;          /* [channels][taps] */
    const float *dt, *a, *norm; /* [n_v], [n_v], [d] */
    struct tensor out;          /* n_v * d -> embd */
};

struct delta_net_scratch {
    float *qkv, *conv; /* [tile][channels] */
    float *z, *core;   /* [tile][n_v][d] */
    float *g, *beta;   /* [tile][n_v] */
};

void delta_net_carve(struct delta_net_scratch *t, const struct delta_net_params *p, int tile,
                     struct carve *device);
/* What a held window leaves for its commit: qkv, conv, g and beta of `rows` rows, for one layer. */
void delta_net_carve_window(struct delta_net_scratch *window, const struct delta_net_params *p,
                            int rows, struct carve *device);
/* Adds the layer's items to a state. */
void delta_net_state(struct state_builder *b, const struct delta_net_params *p, int layer,
                     struct layer_state *out);

static inline int delta_net_channels(const struct delta_net_params *p)
{
    return (2 * p->n_k + p->n_v) * p->d;
}

/* attn_qkv, attn_gate, ssm_alpha, ssm_beta and what delta_net_bind_rest asks for. */
bool delta_net_bind(struct weights *w, struct delta_net_weights *out,
                    const struct delta_net_params *p, int layer, struct err *e);

/* Convolution, vectors and output projection alone. */
bool delta_net_bind_rest(struct weights *w, struct delta_net_weights *out,
                         const struct delta_net_params *p, int layer, struct err *e);

/* out [rows][embd] = delta_net(y); advances conv history and state, unless the batch is held: then
 * `window` takes what delta_net_commit needs. y [rows][embd]. */
void delta_net(struct backend *b, const struct delta_net_params *p,
               const struct delta_net_weights *w, struct layer_state *s, const float *y, int rows,
               const struct delta_net_scratch *t, const struct delta_net_scratch *window,
               const struct batch *batch, int layer, float *out);
/* Advances conv history and state by the first `rows` rows of the window. */
void delta_net_commit(struct backend *b, const struct delta_net_params *p, struct layer_state *s,
                      int rows, const struct delta_net_scratch *t,
                      const struct delta_net_scratch *window);

#endif
