/* SPDX-License-Identifier: Apache-2.0 */
/* Hashed n-gram embedding (PLE, qwen4exp.md 2.4): rows of a huge table on the drive, named by hashes
 * of the last tokens, are added to the residual of one layer. */
#ifndef STRATA_MODEL_NGRAM_H
#define STRATA_MODEL_NGRAM_H

#include "model/state.h"
#include "model/weights.h"

#define NGRAM_LONGEST 8
#define NGRAM_HEADS_MOST 256

struct ngram_params {
    int embd, hc;
    int longest;        /* n: longest n-gram, also the dilation of the convolution */
    int heads_each;     /* heads for each length 2..n */
    int row_values;     /* d_p; heads * d_p = embd */
    int taps;
    int32_t eos;        /* the token that separates documents in the hash */
    float eps;
    uint64_t multiplier[NGRAM_LONGEST];
    uint64_t size[NGRAM_HEADS_MOST], offset[NGRAM_HEADS_MOST];
};

struct ngram_weights {
    const struct gguf_tensor *table; /* not loaded */
    struct tensor key;               /* embd -> hc * embd */
    struct tensor value;             /* embd -> embd */
    const float *norm_key, *norm_query, *norm_conv; /* [hc][embd] */
    const float *conv;               /* [hc * embd][taps] */
};

struct ngram_scratch {
    void *rows_bytes;     /* backend: table rows of a tile, [tile][heads] as in the file */
    int32_t *numbers;     /* host [tile * heads] 0, 1, 2, ... */
    float *embedding;     /* [tile][embd] rows of all heads end to end */
    float *key, *query;   /* [tile][hc][embd] */
    float *value;         /* [tile][embd] */
    float *gate;          /* [tile][hc] */
    float *spread, *normed; /* [tile][hc][embd] */
};

static inline int ngram_heads(const struct ngram_params *p)
{
    return (p->longest - 1) * p->heads_each;
}

bool ngram_bind(struct weights *w, struct ngram_weights *out, const struct ngram_params *p,
                int layer, struct err *e);

/* Table rows of the token ids[at] for all heads; ids[0..at] is the whole sequence so far. */
void ngram_rows(const struct ngram_params *p, const int32_t *ids, int at, uint64_t *rows);

/* x [rows][hc][embd] += ple(x) for table rows given as bytes, host [rows][heads]. The history of the
 * convolution stays when the batch is held: what it takes in then is t->normed. */
bool ngram_add(struct backend *b, const struct ngram_params *p, const struct ngram_weights *w,
               struct layer_state *s, float *x, int rows, const void *table_rows,
               const struct ngram_scratch *t, const struct batch *batch, int layer, struct err *e);

/* Moves the history on by the first `rows` rows of a held window. */
void ngram_commit(struct backend *b, const struct ngram_params *p, struct layer_state *s, int rows,
                  const struct ngram_scratch *t);

#endif
