/* SPDX-License-Identifier: Apache-2.0 */
/* From names in the file to tensors. While a model is opened it asks for each tensor it needs,
 * which checks type and shape and notes it; threads then read them all into one block, most of them
 * straight to their place, in the order in which a pass needs them (weights_load.c). */
#ifndef STRATA_MODEL_WEIGHTS_H
#define STRATA_MODEL_WEIGHTS_H

#include <limits.h>

#include "backend/backend.h"
#include "gguf/gguf.h"
#include "model/model.h"

struct weight_request {
    const struct gguf_tensor *file; /* where it is */
    struct tensor *matrix;          /* filled by loading; NULL: a vector */
    const float **vector;           /* float32 array of `count` values, NULL: a matrix */
    size_t count;                   /* values of a vector */
    int64_t rows;                   /* of a matrix: those that are read, */
    int64_t first;                  /* from this one of the file on, */
    int32_t *row_of;                /* or where each comes from; NULL: one after the other */
    int stage;                      /* when a pass needs it first: weights_stage_of_layer */
    size_t at;                      /* offset in the block, set by weights_place */
};

/* A matrix that is in memory as in the file. */
static inline bool weight_is_in_run(const struct weight_request *r)
{
    return r->matrix && !r->row_of;
}

/* Bytes of the file that come into the block as they are, with what little lies between the matrices
 * of them. */
#define WEIGHT_PAGE_BYTES ((size_t)4096)
#define WEIGHT_PLACE_BYTES ((size_t)64) /* every other place is a multiple of it */
struct weight_run {
    int stage;         /* of all its matrices */
    int part;          /* of the file */
    uint64_t from, to; /* in it, */
    size_t at;         /* where `from` comes to: as far after a page's begin as it is */
};

/* Factors that the products of a tensor are multiplied by (`NAME.scale` beside `NAME.weight`). */
struct weight_scales {
    float *values; /* host [count], 1.0 where the file has none */
    int count;
};

/* Names of a matrix without its layer, for profiles ("attn_qkv"). */
#define WEIGHT_KINDS_MOST 96
#define WEIGHT_KIND_BYTES 32

struct weights {
    const struct gguf_file *file;
    char kinds[WEIGHT_KINDS_MOST][WEIGHT_KIND_BYTES];
    int n_kinds;
    struct weight_request *requests;
    size_t n, room;
    struct weight_run *runs; /* stage by stage, in the order of the file */
    size_t n_runs;
    struct weight_request **rest; /* what is in no run, stage by stage */
    size_t n_rest;
    int stages;                   /* the last one is the head's */
    size_t block_bytes;
    void *block;        /* backend memory once loaded */
    struct backend *backend;
    struct weights_loading *loading; /* NULL: nothing is read any more */
    uint64_t waited_us;              /* by weights_wait */
    uint64_t read_us;                /* from the first read until all was there; 0: not all is */
};

/* Structure: init -> requests -> place -> load -> wait -> free. */
void weights_init(struct weights *w, const struct gguf_file *g);
void weights_free(struct weights *w);

/* The formatted name ("blk.%d.attn_q.weight") of all functions names one tensor. They return false
 * and set the error when it is missing, of another shape, or of a type that is no weight. `out`
 * must stay where it is until loading is done. */

/* A matrix of n_in values a row and n_out rows (n_out 1 also matches a vector). Keeps its type. */
bool weights_matrix(struct weights *w, struct tensor *out, int64_t n_in, int64_t n_out,
                    struct err *e, const char *name, ...) __attribute__((format(printf, 6, 7)));
/* `n_out` rows of a matrix that has `file_rows`: row r is row_of(r, ctx) of the file. */
typedef int64_t weights_row_of(int64_t r, const void *ctx);
bool weights_matrix_rows(struct weights *w, struct tensor *out, int64_t n_in, int64_t file_rows,
                         int64_t n_out, weights_row_of *row_of, const void *ctx, struct err *e,
                         const char *name, ...) __attribute__((format(printf, 9, 10)));
/* The same for rows first .. first + n_out - 1. */
bool weights_matrix_slice(struct weights *w, struct tensor *out, int64_t n_in, int64_t file_rows,
                          int64_t first, int64_t n_out, struct err *e, const char *name, ...)
    __attribute__((format(printf, 8, 9)));
/* `count` values in any shape, decoded to float32; NaN and inf are refused when loaded. */
bool weights_vector(struct weights *w, const float **out, int64_t count, struct err *e,
                    const char *name, ...) __attribute__((format(printf, 5, 6)));
bool weights_has(const struct weights *w, const char *name, ...)
    __attribute__((format(printf, 2, 3)));

/* Rows of token_embd.weight: the vocabulary. 0 and an error when there is none. */
int weights_vocabulary(struct weights *w, struct err *e);

/* A stack of experts [n_in, n_out, experts]: not loaded, only described. */
struct expert_stack {
    const struct gguf_tensor *file;
    struct tensor one;    /* type and shape of one expert; data NULL */
    uint64_t bytes_each;
    struct weight_scales scales; /* count 0: none; freed with weights_free_scales */
};
bool weights_experts(struct weights *w, struct expert_stack *out, int64_t n_in, int64_t n_out,
                     int64_t experts, struct err *e, const char *name, ...)
    __attribute__((format(printf, 7, 8)));
void weights_free_scales(struct weight_scales *s);

/* Gives every request its place in the block, once all are known. */
bool weights_place(struct weights *w, struct err *e);

/* Stages of a pass: WEIGHTS_FIRST needs the embeddings and all that belongs to no layer, a layer what
 * is called "blk.N.", WEIGHTS_ALL the head as well ("output"). */
enum { WEIGHTS_FIRST = 0, WEIGHTS_ALL = INT_MAX };
static inline int weights_stage_of_layer(int layer)
{
    return layer < WEIGHTS_ALL - 1 ? layer + 1 : WEIGHTS_ALL;
}

/* Takes the block and begins to read into it, on threads of its own. `progress` is called by those
 * who wait, here once: when it returns false the loading ends with ERR_INTERRUPTED. */
bool weights_load(struct weights *w, struct backend *b, model_progress *progress, void *ctx,
                  struct err *e);
/* Returns when all weights of the stages up to `stage` are there. `cancel`, where it is not NULL and
 * becomes true, ends the waiting with ERR_INTERRUPTED, not the loading. After an error of loading
 * every call gives that error. */
bool weights_wait(struct weights *w, int stage, const atomic_bool *cancel, struct err *e);
/* Ends the reading, whether all is read or not. */
void weights_stop(struct weights *w);

#endif
