/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen sparse attention (qwen4exp.md 2.6): an indexer chooses whole blocks of tokens, attention
 * reads those and the unfinished tail. With ratio 0 it is dense. */
#ifndef STRATA_MODEL_SPARSE_ATTN_H
#define STRATA_MODEL_SPARSE_ATTN_H

#include "model/state.h"
#include "model/weights.h"

struct sparse_attn_params {
    int embd;
    int n_head, n_kv, d_head;
    float eps;
    struct rope rope;
    int index_heads, index_d;
    int ratio;  /* tokens a block; 0: dense, the indexer's tensors are unused */
    int budget; /* tokens chosen from complete blocks, a multiple of ratio */
};

struct sparse_attn_weights {
    struct tensor q;             /* embd -> n_head * 2 * d_head: query, then gate, per head */
    struct tensor k, v;          /* embd -> n_kv * d_head */
    struct tensor out;           /* n_head * d_head -> embd */
    const float *q_norm, *k_norm; /* [d_head] */
    struct tensor index_q;       /* embd -> index_heads * index_d */
    struct tensor index_k;       /* embd -> index_d */
    const float *index_q_norm, *index_k_norm; /* [index_d] */
};

struct sparse_attn_scratch {
    float *q_gate;             /* [tile][n_head][2 * d_head] */
    float *q, *core;           /* [tile][n_head][d_head] */
    float *k, *v;              /* [tile][n_kv][d_head] */
    float *index_q, *index_q_raw; /* [tile][index_heads][index_d] */
    float *index_k;            /* [tile][index_d] */
    int32_t *blocks, *counts;  /* [tile][budget / ratio], [tile] */
};

bool sparse_attn_bind(struct weights *w, struct sparse_attn_weights *out,
                      const struct sparse_attn_params *p, int layer, struct err *e);

/* out [rows][embd] = attention(y) for rows at positions pos..; y [rows][embd]. */
void sparse_attn(struct backend *b, const struct sparse_attn_params *p,
                 const struct sparse_attn_weights *w, struct layer_state *s, const float *y,
                 int rows, int pos, const struct sparse_attn_scratch *t, const struct batch *batch,
                 int layer, float *out);

#endif
