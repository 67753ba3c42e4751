/* SPDX-License-Identifier: Apache-2.0 */
/* Attention. Qwen sparse attention (qwen4exp.md 2.6): an indexer chooses whole blocks of tokens,
 * attention reads those and the unfinished tail. With ratio 0 it is dense (other-archs.md 4.2). */
#ifndef STRATA_MODEL_SPARSE_ATTN_H
#define STRATA_MODEL_SPARSE_ATTN_H

#include "base/carve.h"
#include "model/arch.h"
#include "model/state.h"
#include "model/weights.h"

struct sparse_attn_params {
    int embd;
    int n_head, n_kv, d_head;
    bool gated; /* attn_q holds a gate for the output beside each query head */
    float eps;
    struct rope rope;
    int index_heads, index_d;
    int ratio;  /* tokens a block; 0: dense, the indexer's tensors are unused */
    int budget; /* tokens chosen from complete blocks, a multiple of ratio */
};

struct sparse_attn_weights {
    struct tensor q;             /* embd -> n_head * 2 * d_head: query, then gate, per head; not
                                    gated: embd -> n_head * d_head */
    struct tensor k, v;          /* embd -> n_kv * d_head */
    struct tensor out;           /* n_head * d_head -> embd */
    const float *q_norm, *k_norm; /* [d_head] */
    const float *q_bias, *k_bias, *v_bias; /* as the outputs; NULL: none */
    struct tensor index_q;       /* embd -> index_heads * index_d */
    struct tensor index_k;       /* embd -> index_d */
    const float *index_q_norm, *index_k_norm; /* [index_d] */
};

struct sparse_attn_scratch {
    float *q_gate;             /* [tile][n_head][2 * d_head], or [d_head] each */
    float *q, *core;           /* [tile][n_head][d_head] */
    float *k, *v;              /* [tile][n_kv][d_head] */
    float *index_q, *index_q_raw; /* [tile][index_heads][index_d] */
    float *index_k;            /* [tile][index_d] */
    int32_t *blocks, *counts;  /* [tile][budget / ratio], [tile] */
};

/* attn_q, attn_k, attn_v, or one attn_qkv with their rows in this order. */
bool sparse_attn_bind(struct weights *w, struct sparse_attn_weights *out,
                      const struct sparse_attn_params *p, int layer, struct err *e);

/* Adds the layer's items to a state. */
void sparse_attn_state(struct state_builder *b, const struct sparse_attn_params *p, int layer,
                       struct layer_state *out);
void sparse_attn_carve(struct sparse_attn_scratch *t, const struct sparse_attn_params *p, int tile,
                       int most_blocks, struct carve *device);

/* out [rows][embd] = attention(y) for rows at positions pos..; y [rows][embd]. */
void sparse_attn(struct backend *b, const struct sparse_attn_params *p,
                 const struct sparse_attn_weights *w, struct layer_state *s, const float *y,
                 int rows, int pos, const struct sparse_attn_scratch *t, const struct batch *batch,
                 int layer, float *out);

/* The items of a draft layer with dense attention: its keys and values, and what it takes of the last
 * row, [width], which is returned. They are no part of a session's saved state. */
float *draft_state(struct state_builder *b, const struct sparse_attn_params *p, int layer, int width,
                   struct layer_state *out);

#endif
