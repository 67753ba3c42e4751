/* SPDX-License-Identifier: Apache-2.0 */
/* What an architecture gives to model.c and state.c. One file per architecture implements it and
 * holds the whole forward pass, top to bottom. */
#ifndef STRATA_MODEL_ARCH_H
#define STRATA_MODEL_ARCH_H

#include "base/carve.h"
#include "model/state.h"
#include "model/weights.h"

struct model {
    const struct arch *arch;
    const struct gguf_file *file;
    struct model_info info;
    struct weights weights;
    struct backend *backend; /* after model_load */
    void *net;               /* the architecture's own: hyper-parameters, weights, scratch */

    /* Working memory, after model_scratch_alloc. */
    int band, tile;
    int held;                /* rows of a held window */
    bool wants_draft;        /* the draft layer is to be bound */
    bool has_draft_file;     /* it came with a file of its own */
    int draft_width;         /* values of a row of its residual */
    void *device, *host;     /* backend block, host block */
    size_t device_bytes, host_bytes;
};

/* Lists the items of a state: counts them, or makes them. */
struct state_builder {
    struct carve carve;
    struct model_state *state; /* NULL: only count */
    int items;
    size_t fixed_bytes; /* of the items that go into a snapshot */
    int ctx;
    enum kv_type kv;
};

/* Adds an item `LAYER.NAME`; dims (ended by 0) are those of one unit. Returns its address. */
void *state_add(struct state_builder *b, int layer, const char *name, enum state_element element,
                bool derived, int tokens_per_unit /* 0: one unit, not per token */, ...);

struct arch_functions {
    /* Reads hyper-parameters, asks m->weights for tensors, fills m->info and m->net. */
    bool (*open)(struct model *m, struct err *e);
    void (*close)(struct model *m);
    void (*experts)(const struct model *m, int layer, struct model_experts *out);
    void (*row_table)(const struct model *m, struct model_row_table *out);
    void (*limits)(const struct model *m, struct backend_limits *out); /* n_in, widths, blocks of ctx */
    /* Cuts the scratch of bands and tiles; counts while the blocks are NULL. */
    void (*scratch)(struct model *m, int band, int tile, struct carve *device, struct carve *host);
    void (*list_state)(const struct model *m, struct state_builder *b);
    bool (*restored)(struct model *m, struct model_state *s, struct err *e);
    bool (*forward)(struct model *m, struct model_state *s, const struct batch *batch,
                    const struct expert_source *experts, const struct row_source *rows,
                    struct err *e);
    /* Takes the first rows of the held window that was just run into the fixed items. */
    bool (*commit)(struct model *m, struct model_state *s, int rows, struct err *e);
    /* What the draft layer takes of the last pass: its first rows, [rows][draft_width]. */
    float *(*draft_input)(struct model *m, int rows);
    /* The draft layer over x [batch->rows][draft_width], in place; keys from `entry` on. */
    bool (*draft)(struct model *m, struct model_state *s, const struct batch *batch, float *x,
                  int entry, const struct expert_source *experts, struct err *e);
};

struct arch {
    const char *name;
    const struct arch_functions *does;
    const void *kind; /* what architectures with the same functions differ in; NULL: nothing */
};

/* Rows of a held window that scratch with such a tile has room for. */
static inline int model_held_rows(const struct model *m, int tile)
{
    return m->held < tile ? m->held : tile;
}

extern const struct arch arch_qwen4exp, arch_qwen3moe, arch_qwen3next, arch_qwen35moe;

#endif
