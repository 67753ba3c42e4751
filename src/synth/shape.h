/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of the releases, types of the mixes, and the list of tensors that follows from both. */
#ifndef STRATA_SYNTH_SHAPE_H
#define STRATA_SYNTH_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/tensor_type.h"
#include "gguf/writer.h"

/* The text and the routing. The token embedding is c + U z(t) + n(t): a constant direction, a point
 * in a space of topics, and a vector of the token's own, with these shares of the energy. The logit
 * of an expert is popularity + topic + noise, with these standard deviations. Fitted to published
 * traces: an LRU arena of 20 % of the experts of a layer hits 70 to 80 %, 410 of 512 experts are
 * seen in 1,024 tokens, two consecutive tokens share 30 to 40 % of theirs. */
#define SYNTH_TOPICS 32
#define SYNTH_TOPIC_LENGTH 12.0 /* tokens over which topics correlate */
#define SYNTH_E_CONST 0.10
#define SYNTH_E_TOPIC 0.20
#define SYNTH_E_TOKEN 0.70
#define SYNTH_R_POPULAR 0.5
#define SYNTH_R_TOPIC 1.0
#define SYNTH_R_NOISE 0.5
#define SYNTH_BLOCK_OUT 0.10 /* RMS of a block's output, the embedding having 1 */
#define SYNTH_SPECIAL 512    /* ids at the end that no text uses */

enum {
    SYNTH_NGRAM = 3,
    SYNTH_NGRAM_HEADS = 8,
    SYNTH_NGRAM_TABLES = 16,
    SYNTH_NGRAM_DIM = 160,
    SYNTH_NGRAM_LAYER = 1,
    SYNTH_NGRAM_TAPS = 4
};
enum {
    SYNTH_INDEX_HEADS = 4,
    SYNTH_INDEX_DIM = 128,
    SYNTH_INDEX_BUDGET = 2048,
    SYNTH_INDEX_RATIO = 4
};

struct synth_shape {
    const char *arch;
    int embd, heads, kv_heads, head;          /* attention */
    int key_heads, value_heads, linear, taps; /* delta net; 0: none */
    int experts, used, width, shared;         /* shared: width of the shared expert, 0: none */
    int interval;                             /* every n-th layer is attention; 1: all */
    int streams, rank;                        /* hyper-connections; 0: one residual stream */
    int rotated;                              /* elements of a head */
    bool has_sections, has_gate;              /* rope sections; attn_q holds a gate too */
    float rope_base;
    int layers, vocab, context; /* of the release */
    int eos, image;             /* at the release's vocabulary */
    bool has_draft;             /* releases have a draft (MTP) layer */
    const char *pre;            /* the tokenizer's splitting rule */
    double x_rms;               /* of what enters a block */
    double head_norm;           /* of a row of the head, for a best logit of about 12 */
};

enum synth_group {
    GROUP_EMBEDDING,
    GROUP_NGRAM_TABLE,
    GROUP_HYPER,
    GROUP_DELTA,
    GROUP_ROUTER,
    GROUP_EXPERTS,
    GROUP_SHARED,
    GROUP_NGRAM,
    GROUP_ATTENTION,
    GROUP_NORMS,
    GROUP_HEAD,
    GROUP_DRAFT,
    SYNTH_GROUPS,
};
extern const char *const synth_group_names[SYNTH_GROUPS];

enum synth_fill {
    FILL_ONES,
    FILL_UNIFORM,
    FILL_RANDOM,
    FILL_ROUTER,
    FILL_EXPERTS,
    FILL_EMBED,
    FILL_HEAD,
    FILL_JOIN
};

struct synth_tensor {
    char name[64];
    uint32_t n_dims;
    uint64_t ne[3];
    enum tensor_type type;
    enum synth_group group;
    enum synth_fill fill;
    double a, b; /* RANDOM, EXPERTS: a is the deviation; UNIFORM: from a to b; ROUTER: a is the
                  * layer, b how many layers add to what enters it */
};

struct synth_list {
    struct synth_tensor *tensor;
    int n, room;
};

/* NULL when there is none of that name. */
const struct synth_shape *synth_shape_of(const char *arch);

/* Names and indexes of the mixes; -1: no such mix. */
int synth_mix_of(const char *name);

/* The tensors of a file in file order; freed by mem_free(list->tensor). */
struct synth_parts {
    const struct synth_shape *shape;
    int mix, layers, vocab;
    uint64_t ngram_rows;
    bool has_model, has_draft; /* what is in the file; the draft layer is layer number `layers` */
};
bool synth_list_tensors(const struct synth_parts *p, struct synth_list *out, struct err *e);
uint64_t synth_tensor_bytes(const struct synth_tensor *t);

/* ---- metadata.c ---- */

struct synth_about {
    const struct synth_shape *shape;
    const char *mix;
    int layers, vocab;
    bool has_model, has_draft;
    const uint64_t *tables; /* [SYNTH_NGRAM_TABLES] sizes of the tables of n-grams */
};
/* All keys of the file. */
bool synth_put_keys(const struct synth_about *a, struct gguf_writer *w, struct err *e);

#endif
