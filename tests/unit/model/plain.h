/* SPDX-License-Identifier: Apache-2.0 */
/* Wires a model to plain memory: experts and table rows are read from the file at once. */
#ifndef STRATA_TESTS_PLAIN_H
#define STRATA_TESTS_PLAIN_H

#include "base/pool.h"
#include "cpu/isa.h"
#include "model/model.h"
#include "model/state.h"

struct plain {
    struct gguf_file *file;
    struct pool *pool;
    struct backend *backend;
    struct model *model;
    char *data;       /* the whole first part */
    size_t data_bytes;
    const struct routing *turn;
    int *wanted;      /* experts of the turn, in the order they are handed out */
    int n_wanted, given, at_once;
    void *rows;
    size_t rows_room;
};

struct plain_how {
    int threads, band, tile;
    bool exact;  /* float32 activations */
    int at_once; /* experts that one call of `next` hands out */
    enum cpu_isa isa;
};

/* Called before the model is loaded; NULL: not. */
extern void (*plain_before_loading)(struct plain *p);
bool plain_open(struct plain *p, const char *path, const struct plain_how *how, struct err *e);
void plain_close(struct plain *p);
struct expert_source plain_experts(struct plain *p);
struct row_source plain_rows(struct plain *p);

#endif
