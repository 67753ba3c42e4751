/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one session: every line of the table in qwen4exp.md section 5, as a list of named
 * items, so that saving, restoring and snapshots need not know the architecture. */
#ifndef STRATA_MODEL_STATE_H
#define STRATA_MODEL_STATE_H

#include "backend/backend.h"
#include "model/model.h"

enum state_element { STATE_F32, STATE_F16, STATE_Q8_0 };

struct state_item {
    char name[32];              /* "3.k", "0.delta", ... */
    enum state_element element;
    bool per_token;             /* one unit a token, `position` of them in use; else one unit */
    bool derived;               /* can be rebuilt from other items: not saved, not in snapshots */
    int tokens_per_unit;        /* of per_token items: 1, or the block length for pooled keys */
    int n_dims;
    uint32_t dims[4];           /* of one unit */
    size_t unit_bytes;
    void *data;                 /* backend address */
};

/* Per layer, what the layer's kind uses; the rest is NULL. Backend addresses. */
struct layer_state {
    float *conv;       /* [taps - 1][channels] delta net: inputs of the convolution, oldest first */
    float *delta;      /* [n_v][d (value)][d (key)] */
    struct kv_cache kv;
    void *index_raw;   /* [ctx][d_i] of the index type (index_type) */
    float *index_pool; /* [ctx / ratio][d_i] keys of complete blocks (derived) */
    float *ngram_conv; /* [(taps - 1) * n][hc * D] */
};

/* Index keys decide what is read: they are not rounded further than to a half float. */
static inline enum kv_type index_type(enum kv_type kv)
{
    return kv == KV_Q8_0 ? KV_F16 : kv;
}

struct model_state {
    struct model *model;
    struct backend *backend;
    int ctx;             /* tokens it has room for */
    enum kv_type kv;
    int position;        /* tokens so far */
    int32_t *ids;        /* host [ctx] all of them */
    struct layer_state *layer; /* [layers], and the draft layer's if there is one */
    float *draft_x;      /* backend [draft_width]: what the draft layer takes of position draft_at */
    int draft_at;        /* -1: used up, or nothing yet */
    int draft_entries;   /* keys of the draft layer; fewer than positions where it was left out */
    struct state_item *items;
    int n_items;
    void *block;         /* backend memory that all items are cut from */
    size_t block_bytes;
};

/* Bytes of backend and host memory a state takes; 0 when the sizes overflow. */
size_t model_state_bytes(const struct model *m, int ctx, enum kv_type kv);
/* Bytes of a snapshot: the items that are not per token. */
size_t model_state_fixed_bytes(const struct model *m);

struct model_state *model_state_create(struct model *m, int ctx, enum kv_type kv, struct err *e);
void model_state_free(struct model_state *s);

/* Empties the state: position 0, all fixed items zero. */
bool model_state_reset(struct model_state *s, struct err *e);

/* A snapshot of the fixed items into host memory of model_state_fixed_bytes; together with the
 * position and the per-token items, which only ever grow, it is the whole state. */
bool model_state_snapshot(const struct model_state *s, void *to, struct err *e);
/* Back to a snapshot taken at `position` (which the state has passed through). */
bool model_state_rewind(struct model_state *s, const void *snapshot, int position, struct err *e);

/* Copies an item's used units to or from the host (save and restore). */
size_t state_item_bytes(const struct model_state *s, const struct state_item *item);
bool model_state_read_item(const struct model_state *s, int item, void *host, struct err *e);
bool model_state_write_item(struct model_state *s, int item, const void *host, struct err *e);
/* After all items were written and position and ids set: rebuilds what is derived, when the weights
 * for it are there (model_wait). */
bool model_state_restored(struct model_state *s, const atomic_bool *cancel, struct err *e);

#endif
