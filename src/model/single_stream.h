/* SPDX-License-Identifier: Apache-2.0 */
/* Networks whose residual is one vector, with a norm before the mixer and one before the experts
 * (other-archs.md section 4.1). An architecture's file reads its hyper-parameters, says how its
 * tensors are packed, and takes everything else from here. */
#ifndef STRATA_MODEL_SINGLE_STREAM_H
#define STRATA_MODEL_SINGLE_STREAM_H

#include "model/delta_net.h"
#include "model/draft.h"
#include "model/hparams.h"
#include "model/mixture.h"
#include "model/pass.h"
#include "model/rope.h"
#include "model/sparse_attn.h"

struct single_layer {
    bool recurrent; /* delta net, else attention */
    const float *attn_norm, *ffn_norm; /* [D] before the mixer, before the experts */
    struct delta_net_weights delta;
    struct delta_net_scratch window; /* of a held window */
    struct sparse_attn_weights attn;
    struct mixture_weights moe;
};

struct single_scratch {
    float *x;       /* [band][D] the residual */
    float *y, *out; /* [tile][D] */
    struct delta_net_scratch delta;
    struct sparse_attn_scratch attn;
    struct mixture_scratch moe;
    struct draft_scratch draft;
    struct pass_scratch head;
};

struct single_net {
    int vocab, n_layer, embd;
    float eps;
    struct sparse_attn_params attn;
    struct delta_net_params delta;
    struct mixture_params moe;
    struct tensor token_embd, output;
    bool tied; /* the head is the token embedding */
    const float *output_norm;
    struct single_layer *layer; /* [n_layer], then the draft layer's if it is bound */
    struct draft_weights draft;
    const float *draft_norm; /* [D] before its head */
    struct single_scratch scratch;
};

/* Where architectures differ. */
struct single_kind {
    bool has_delta;       /* delta net layers, a gate in attention, a shared expert */
    bool grouped;         /* value head h uses key head h / (n_v / n_k) */
    const char *ffn_norm; /* name of the norm before the experts */
    enum rope_sections sections;
    bool (*bind_delta)(struct weights *w, struct delta_net_weights *out,
                       const struct delta_net_params *p, int layer, struct err *e);
};

/* What architectures of this kind do; struct arch.kind is a single_kind. */
extern const struct arch_functions single_stream;

#endif
