/* SPDX-License-Identifier: Apache-2.0 */
/* Model files of true shape without the model: tensors, names, keys and number formats of a public
 * release, a chosen number of layers, weights that are drawn. It is how anyone measures a model of
 * 36 GB without having it.
 *
 * What is real: shapes, names, metadata, block layouts, types of each group of tensors.
 * What is drawn so that it looks real: the routing. Tokens lie on a chain along which topics drift,
 * experts have popularity and topic, so that hits, distinct experts and their overlap from token to
 * token are those of published traces of the large model (shape.h gives the strengths).
 * What is not real: the text has no statistics of a language, and nothing can be said about
 * quality. A draft layer does the work of a real one, but guesses right as often as it is told to.
 *
 * The same options give the same bytes on every machine. */
#ifndef STRATA_SYNTH_SYNTH_H
#define STRATA_SYNTH_SYNTH_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/json.h"
#include "base/pool.h"

enum synth_mtp { SYNTH_MTP_NO, SYNTH_MTP_IN, SYNTH_MTP_ONLY };

struct synth_options {
    const char *arch; /* "qwen4exp", "qwen3moe", "qwen3next", "qwen35moe" */
    const char *mix;  /* types of the tensors: "iq2xs", "ud1", "ud-q4", "q8" */
    int layers;       /* 4 .. those of the release */
    int vocab;        /* from 2048; 0: as many as give the head its share of the bytes */
    uint64_t
        ngram_base; /* least size of a table of n-grams (qwen4exp); the release's: 20,000,000 */
    int ids_len;    /* tokens of the text beside the model */
    uint64_t seed;
    enum synth_mtp mtp; /* the draft (MTP) layer: none, in the model's file, or it alone, as the
                           file that goes with a model of the same options without one */
    double mtp_right;   /* its share of right guesses in greedy answers, 0 to 1 */
};

struct synth; /* what a file will hold */

/* Checks the options and lists the tensors; nothing is drawn. Freed with synth_free. */
struct synth *synth_create(const struct synth_options *o, struct err *e);
void synth_free(struct synth *s);

/* Size of the file; bytes that one token reads of it, without guesses. */
uint64_t synth_bytes(const struct synth *s);
uint64_t synth_bytes_per_token(const struct synth *s);
/* A table for people: groups of tensors with what they store, what a token reads, their types. */
void synth_table(const struct synth *s, struct json_out *out);

struct synth_progress {
    void *ctx;
    void (*wrote)(void *ctx, uint64_t done, uint64_t all); /* NULL: nobody wants to know */
    const atomic_bool *cancel;                             /* NULL: never */
};

/* Writes the model to `path` and a text for it to PATH.ids (one id a line; none for a draft layer
 * alone), each atomically. A disk
 * with too little room is refused before anything is written. */
bool synth_write(struct synth *s, const char *path, struct pool *workers,
                 const struct synth_progress *p, struct err *e);

#endif
