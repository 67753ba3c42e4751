/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of routing (docs/formats.md, "Trace"): which experts every token selected in every layer,
 * with weights and with the guess that could be made before. STRTRC02 says besides what arena the
 * run had and what it counted, so that a replay can prove itself; STRTRC03 has the guesses two layers
 * ahead too; STRTRC01 is the older form without.
 *
 * Unlike other files of ours a trace is written as it comes, under its name: what a killed run
 * leaves is read up to its last whole turn. */
#ifndef STRATA_STREAM_TRACE_H
#define STRATA_STREAM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define TRACE_CLASSES 8
#define TRACE_NO_EXPERT 65535 /* a rank of a guess that was not made */

struct trace_layer {
    uint64_t record_bytes; /* in the arena, whole pages; 0: the layer has no experts */
    uint32_t class_index;
};

struct trace_head {
    int layers, experts, used, ranks; /* experts of a layer, of a token; ranks of the guesses */
    int guess_layers; /* 2: of two layers ahead there are guesses too; else of one */
    uint8_t fingerprint[16];
    struct trace_layer *layer; /* [layers] */
    int classes;
    uint32_t slots[TRACE_CLASSES]; /* places for residents */
    char *text; /* lines key=value: arena, policy and options of the run */
    bool has_counts;
};

enum trace_count { TRACE_HITS, TRACE_MISSES, TRACE_USEFUL, TRACE_LATE, TRACE_WASTED, TRACE_COUNTS };

/* Records of a trace, in order. */
enum trace_kind {
    TRACE_WINDOW,       /* a turn through all layers: one window */
    TRACE_BAND,         /* one band */
    TRACE_PROMPT_BEGIN, /* a prompt of `rows` tokens begins */
    TRACE_PROMPT_END,
    TRACE_TEXT, /* lines key=value of `rows` bytes: what is known at the end of the run */
    TRACE_KINDS,
};

/* ---- writing ---- */

struct trace_writer;

/* The header is written at once; `h` is copied as far as it is needed. */
struct trace_writer *trace_create(const char *path, const struct trace_head *h, struct err *e);
/* The first failure of these is kept; trace_close reports it. */
void trace_mark(struct trace_writer *w, enum trace_kind kind, uint32_t session, uint32_t rows);
void trace_turn(struct trace_writer *w, bool is_band, uint32_t session, int rows,
                const int32_t *tokens);
/* A guess that was made in a layer: ids [rows][ranks], best first; 0 .. ranks of the header. */
struct trace_guess {
    const uint16_t *ids;
    int ranks;
};
/* One layer of the turn, in the order of layers: [rows][used] ids and weights, the guesses at the
 * next layer and (if the header has guess_layers 2) at the one after it, and counts or NULL. */
void trace_layer_rows(struct trace_writer *w, int rows, const int32_t *ids, const float *weights,
                      const struct trace_guess guess[], const uint32_t counts[TRACE_COUNTS]);
/* The turn ends; one that was cut short is taken back. */
void trace_turn_end(struct trace_writer *w, bool is_whole);
/* Writes `text` (lines key=value, may be NULL) and the end; without guesses two layers ahead a
 * plain decode or one prompt of a model with less than 256 experts becomes a STRTRC01. Frees the writer
 * in any case. */
bool trace_close(struct trace_writer *w, const char *text, struct err *e);

/* ---- reading ---- */

struct trace;

struct trace_record {
    enum trace_kind kind;
    uint32_t session;
    int rows;
    const uint8_t *at; /* of turns: what the functions below read; of text: its bytes */
};

/* Reads and checks the whole file. *is_cut, unless NULL: it has no end, and what is not whole was
 * left out. NULL when it is no trace, or one that is damaged. */
struct trace *trace_open(const char *path, bool *is_cut, struct err *e);
void trace_free(struct trace *t);
const struct trace_head *trace_head(const struct trace *t);
int trace_version(const struct trace *t);
int trace_records(const struct trace *t);
void trace_record_at(const struct trace *t, int i, struct trace_record *out);
/* Value of a key of the header's lines, or of those at the end; NULL: none. `room`: where to. */
const char *trace_value(const struct trace *t, const char *key, char *room, size_t bytes);

uint32_t trace_token(const struct trace *t, const struct trace_record *r, int row);
/* Row of a turn in a layer that has experts. ids: [used]; weights: [used]; guess: [ranks]. NULL:
 * not wanted. */
void trace_row(const struct trace *t, const struct trace_record *r, int layer, int row,
               int32_t *ids, float *weights, int32_t *guess);
/* The guess that the row made in that layer at the layer after the next: [ranks], -1: none. False
 * when the trace has no such guesses. */
bool trace_far_guess(const struct trace *t, const struct trace_record *r, int layer, int row,
                     int32_t *guess);
/* False when the trace has none. */
bool trace_counts(const struct trace *t, const struct trace_record *r, int layer,
                  uint32_t counts[TRACE_COUNTS]);

#endif
