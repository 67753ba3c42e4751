/* SPDX-License-Identifier: Apache-2.0 */
/* A network: hyper-parameters and weights of one GGUF file, and its forward pass. It knows nothing
 * of threads, instruction sets or drives: operations come from a backend, experts from an
 * expert_source, rows of tables on the drive from a row_source.
 *
 * Life: model_open (metadata only: sizes for the memory plan are known) -> model_load (the trunk
 * begins to come into the backend's memory) -> any number of states -> model_forward.
 * One thread at a time uses a model. */
#ifndef STRATA_MODEL_MODEL_H
#define STRATA_MODEL_MODEL_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "gguf/gguf.h"
#include "model/moe.h"

struct model;
struct model_state; /* state.h */

/* What others need to know of a model. Fixed after model_open. */
struct model_info {
    const char *arch;
    int layers, embd, vocab, context; /* context: the length the model was made for */
    int experts, experts_used;
    bool has_draft; /* a draft layer is bound; it is layer number `layers` */
    uint64_t trunk_bytes;  /* backend memory that model_load will take */
    uint64_t expert_bytes; /* all routed experts as they lie in the file */
};

/* Where the routed experts of a layer lie: expert e of part p is the byte range
 * tensor->offset + e * bytes_each of part file tensor->part. */
struct model_experts {
    int parts; /* 0: the layer has no routed experts */
    const struct gguf_tensor *tensor[EXPERT_PARTS];
    uint64_t bytes_each[EXPERT_PARTS];
};

/* A table that is read row by row (n-gram embedding); tensor NULL: the model has none. */
struct model_row_table {
    const struct gguf_tensor *tensor;
    uint64_t rows;
    size_t row_bytes;
    int rows_per_token;
};

/* Reads and checks hyper-parameters and shapes; `g` must outlive the model. Refuses a general.type
 * that is not "model", unknown architectures (listing the known ones), missing or ill-shaped
 * tensors. NULL on error. */
struct model *model_open(const struct gguf_file *g, struct err *e);
/* The same, with the file's draft layer: an error where it has none. */
struct model *model_open_with_draft(const struct gguf_file *g, struct err *e);
void model_free(struct model *m);

const struct model_info *model_info(const struct model *m);
void model_experts_of_layer(const struct model *m, int layer, struct model_experts *out);
void model_row_table(const struct model *m, struct model_row_table *out);

/* Called while somebody waits for the trunk; done and all in bytes. Returns false to stop loading. */
typedef bool model_progress(void *ctx, uint64_t done, uint64_t all);

/* Begins to read the trunk into the backend's memory; the backend must outlive the model. A pass waits
 * for what its next layers need, so that the first tokens are computed while the rest is read; an
 * error of reading is that of the pass. */
bool model_load(struct model *m, struct backend *b, model_progress *progress, void *ctx,
                struct err *e);
/* Until all of the trunk is there. `cancel`: as in a batch. */
bool model_wait(struct model *m, const atomic_bool *cancel, struct err *e);
/* Microseconds that were waited for the trunk, here and in passes. */
uint64_t model_waited_us(const struct model *m);
/* Bytes a microsecond at which the trunk was read; 0: not all of it is there. */
double model_trunk_rate(const struct model *m);

/* From now on the working memory has room for held windows of at most `rows` rows, but never more
 * than a tile; 0: none. Before the memory is counted or allocated. */
void model_hold_windows(struct model *m, int rows);

/* Working memory for bands of at most `band` rows in tiles of at most `tile` rows. The bytes are
 * backend memory; `limits` is what the backend must reserve besides. */
size_t model_scratch_bytes(const struct model *m, int band, int tile);
void model_backend_limits(const struct model *m, int band, int tile, int ctx,
                          struct backend_limits *out);
bool model_scratch_alloc(struct model *m, int band, int tile, struct err *e);
/* Until the next pass the system may take the pages of the backend's working memory, which holds
 * nothing then: a long prompt has used far more of it than an answer does. Not between a held window
 * and its commit. */
void model_lend_scratch(struct model *m);

enum dump_type { DUMP_F32, DUMP_I32, DUMP_BOOL };

/* Takes intermediates, named as qwen4exp.md section 7 does, tile by tile: `rows` more rows of
 * dims[0] * .. values (rows = 0: an array without rows, as N.gdn_state). */
struct dump_sink {
    void *ctx;
    void (*put)(void *ctx, const char *name, enum dump_type type, const void *host, int rows,
                int n_dims, const int *dims);
};

enum logits_wanted { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL };

/* Rows to run: ids[0..rows-1] at positions state->position on. */
struct batch {
    const int32_t *ids; /* host */
    int rows;           /* at most the band of model_scratch_alloc */
    bool is_band;       /* rows of a prompt; else a decode window */
    bool is_held;       /* a window some of whose rows may be rejected: see model_commit */
    int end;      /* position after the last row; model_forward sets it */
    enum logits_wanted wanted;
    /* Takes logits, host [rows][vocab], of rows first.. of this batch; LAST: once with one row. */
    bool (*logits)(void *ctx, int first, int rows, const float *logits, struct err *e);
    void *logits_ctx;
    const struct dump_sink *dump; /* NULL: none */
    /* Checked between layers: when true the pass ends with ERR_INTERRUPTED. NULL: never. */
    const atomic_bool *cancel;
    /* After every layer of a band; layers in all. NULL: not wanted. */
    void (*progress)(void *ctx, int layer, int layers);
    void *progress_ctx;
};

static inline bool batch_is_cancelled(const struct batch *batch, struct err *e)
{
    return batch->cancel && atomic_load(batch->cancel) &&
           !err_set(e, ERR_INTERRUPTED, "interrupted");
}

/* The forward pass. On success the state holds `rows` more tokens. After an error the state is
 * spoiled (parts are ahead of others): restore a snapshot. Errors name the layer. */
bool model_forward(struct model *m, struct model_state *s, const struct batch *batch,
                   const struct expert_source *experts, const struct row_source *rows,
                   struct err *e);

/* After a forward pass with batch->is_held, which left the state as it was: the first `rows` rows of
 * that window become part of it, with the same bits as if only they had been run. Nothing else may
 * have used the model in between. A held window of which nothing is wanted needs no commit. After an
 * error the state is spoiled. */
bool model_commit(struct model *m, struct model_state *s, int rows, struct err *e);

/* ---- The draft layer: nothing here changes a result, so nothing here is an error. ---- */

/* After every pass (and its commit), which left the state `rows` rows further: the draft layer takes
 * in what was true. `fills`: runs it for its keys, from which guesses come; else they have a gap. Of
 * `batch` is_band, dump and cancel are used; a dump gets its logits as "draft". */
void model_draft_follow(struct model *m, struct model_state *s, const struct batch *batch, int rows,
                        bool fills, const struct expert_source *experts);
/* Guesses what follows `id`, which is to come at the state's position. Returns how many, up to
 * `most`: 0 when model_draft_follow has not been called or guesses have been made at this position. */
int model_draft_guess(struct model *m, struct model_state *s, int32_t id, int most, int32_t *out,
                      const struct expert_source *experts, const atomic_bool *cancel);

#endif
