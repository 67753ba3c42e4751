/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of tokens and experts. Tokens lie on a chain: the token at place p has the id p * step
 * mod n. Along the chain topics drift as an AR(1) process. The head's row of a token is the own
 * vector of its predecessor, so that greedy decoding walks along the chain with a wide margin: it
 * neither loops nor depends on rounding. The draft layer sees less of that vector than the model,
 * so that it guesses right as often as is asked. */
#ifndef STRATA_SYNTH_TOKENS_H
#define STRATA_SYNTH_TOKENS_H

#include "synth/random.h"
#include "synth/shape.h"

struct tokens {
    const struct synth_shape *shape;
    uint64_t seed;
    int64_t n, step, back; /* step * back mod n is 1 */
    float head_norm;
    float *basis;   /* [1 + SYNTH_TOPICS][embd], orthonormal: the constant direction, the topics */
    float *topic;   /* [n][SYNTH_TOPICS] by place */
    float *own;     /* [TOKENS_POOL][embd] unit vectors, which ids share in rotated form */
    float *special; /* [SYNTH_SPECIAL][embd] */
};

bool tokens_create(struct tokens *t, const struct synth_shape *s, int layers, int vocab,
                   uint64_t seed, struct err *e);
void tokens_free(struct tokens *t);

/* Rows of the tables: [embd]. */
void tokens_embed(const struct tokens *t, int64_t id, float *out);
void tokens_head(const struct tokens *t, int64_t id, float *out);
/* Row of the router of `layer` for an expert: [embd]. before: layers that have added to what enters
 * it. */
void tokens_router(const struct tokens *t, int layer, int before, int expert, float *out);
/* The part of a token's own vector that a draft layer has to keep, outside the space of topics, to
 * guess the next token with the probability `right`; the rest is noise. At most 1; a little below 0
 * for 0. */
double tokens_draft_kept(const struct tokens *t, double right);
/* Row of the matrix that joins a token's embedding with the residual before it: [2 embd]. What all
 * tokens share and their topics go through as they are. */
void tokens_join(const struct tokens *t, double kept, int row, float *out);
/* A text of n ids: each the next on the chain, but that 1.5 % jump back by up to 50. */
void tokens_text(const struct tokens *t, int n, int32_t *out);

#endif
