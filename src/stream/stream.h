/* SPDX-License-Identifier: Apache-2.0 */
/* Which expert is where, and when it is read (docs/streaming.md). Experts live in files; a bounded
 * arena of slots holds some. A turn (one layer of one window or band) says what it needs, gets
 * residents first and missing records as they arrive.
 *
 * Program order decides everything: victims, admissions and pins depend on the history of turns
 * alone, never on clocks or completion order. One thread drives a stream; the reads run elsewhere.
 */
#ifndef STRATA_STREAM_STREAM_H
#define STRATA_STREAM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/io.h"
#include "stream/policy.h"

#define STREAM_PARTS 3
#define STREAM_SPLIT_MOST 8  /* parallel reads of one part of a record */
#define STREAM_RANKS_MOST 64 /* ranks of a guess that are told apart */

/* Part p of expert e lies in file `file` at offset + e * bytes. */
struct stream_part {
    int file; /* index into the files of the io engine */
    uint64_t offset, bytes;
};

struct stream_layer {
    int experts; /* 0: the layer has none */
    int parts;
    struct stream_part part[STREAM_PARTS];
};

/* Where guesses come from. The first is the model's: the next layer's router on this layer's input.
 * The others need no router: what the layer's last window selected; what has followed most often on
 * the experts of the layer before. */
enum stream_guess_kind { STREAM_GUESS_ROUTER, STREAM_GUESS_PREVIOUS, STREAM_GUESS_TABLE };

/* Read-ahead while decoding. */
struct stream_ahead {
    bool is_off;
    int ranks; /* of a guess that are read, best first; 0: as many as have been worth it, a layer */
    float margin; /* a guess must have this much more weight than the best that is not selected */
    enum stream_guess_kind kind;
    int distance; /* layers ahead; 0: 1. With a router it is the caller's who guesses */
    bool has_guard; /* less of it while the drive has no idle time */
};

/* Cache-aware routing: residents get a bonus in the selection (docs/streaming.md). */
struct stream_moce {
    float lambda; /* of the spread of the logits; 0: exact, unless `budget` is given */
    float
        budget; /* above 0: lambda is set so that the displaced mass is at most this in the mean */
    int keep;   /* the best experts that are selected in any case */
    bool for_prompts; /* bands too */
};

struct stream_config {
    int layers;
    const struct stream_layer *layer; /* [layers], copied */
    uint64_t arena_bytes;             /* for all slots, staging included */
    int window_rows, experts_used;    /* largest decode window and top-k: the least that must fit */
    enum policy_kind policy;
    struct stream_ahead ahead;
    bool no_look_ahead; /* bands read nothing before its layer's turn */
    bool no_overlap;    /* a window's turn begins when all that it wants has arrived: to measure what
                           working meanwhile is worth */
    int split;          /* pieces that an urgent part is read in, at the same time; 0: 1 */
    bool gives_back; /* slots while the system is short of memory, where routing is exact */
    bool gives_back_bent; /* and where it is cache-aware, which then depends on it */
    bool lock;       /* the arena is locked in memory, where the system lets us */
    bool has_no_memory; /* the arena is addresses only: with the engine "fake", to replay turns */
};

struct stream_record {
    int expert;
    bool is_new; /* read since it was handed out last */
    const void *part[STREAM_PARTS];
};

/* Counters since creation (or the last stream_reset_stats); names as in streaming.md section 12.
 * Of the misses, `ahead_useful` were staged and whole, `ahead_late` staged and still to come; the
 * turn read the others itself. */
struct stream_stats {
    uint64_t hits, misses;               /* distinct records a turn */
    uint64_t window_hits, window_misses; /* of these, in windows */
    uint64_t ahead_useful, ahead_late, ahead_wasted, ahead_cancelled;
    uint64_t bytes_read, bytes_urgent, bytes_ahead, bytes_rows;
    uint64_t wait_us; /* time in which the caller waited for a read */
    uint64_t turns;
    uint64_t drive_busy_us;   /* an urgent or ahead read was in flight */
    uint64_t drive_wanted_us; /* one was wanted and had not come, whether it could begin or not */
    uint64_t staging_empty; /* passes at whose start no guess was staged */
    uint64_t row_cache_hits;
    uint64_t major_faults; /* of the process: pages that the system had taken away */
    double displaced;      /* mean displaced mass a row of cache-aware routing */
};

/* Why a turn had to wait for a record. Ranks count from 0. */
enum stream_why {
    STREAM_NEVER_SEEN,
    STREAM_EVICTED, /* detail: turns ago */
    STREAM_RANK,    /* guessed, but at a rank (detail) that is not read ahead */
    STREAM_CROWDED, /* guessed at a rank (detail) that is, but no slot was idle to read it into */
    STREAM_LATE,    /* read ahead and not there yet; detail: rank, STREAM_RANKS_MOST: no guess's */
    STREAM_CANCELLED, /* guessed and given up, or lost by a turn that was cut short */
    STREAM_NO_SLOT,   /* no record: a slot was waited for, whose dropped read had not ended */
    STREAM_CUT_SHORT, /* no record: the wait ended by an error or the caller's wish */
    STREAM_WHYS,
};
struct stream_wait {
    int layer, expert; /* expert -1: no record */
    uint64_t us;       /* that the caller waited until this record came */
    enum stream_why why;
    uint32_t detail;
};
/* Called for every wait, by the thread that drives the stream: the sum of their times is the
 * wait_us of the statistics. */
struct stream_watch {
    void *ctx;
    void (*waited)(void *ctx, const struct stream_wait *w);
};

struct stream;

/* ---- life ---- */

/* Slots of size classes inside one block of page-aligned memory. `io` must outlive it. */
struct stream *stream_create(const struct stream_config *c, struct io *io, struct err *e);
void stream_free(struct stream *s);

/* ---- turns ---- */

/* The turn of `layer` needs the distinct experts of ids[0..n-1] (repeats allowed; they are counted,
 * and the most wanted are read first). Every read that has a slot is under way when it returns; it
 * does not wait for them (but with `no_overlap`). False, and no turn, when an id is not an expert of the layer or a window
 * wants more than the arena was made for. A turn must have been ended before the next begins.
 *
 * In a window every record stays until the end of the turn. In a band a record is the caller's
 * until its next call of stream_next, so a band may need more records than there are slots. */
bool stream_begin(struct stream *s, int layer, const int32_t *ids, int n, bool is_band,
                  struct err *e);
/* Hands out up to `most` records that are there, each exactly once a turn: residents first, then
 * the missing ones as they arrive; waits when none is there. Returns how many (of a band's, perhaps
 * fewer than there are), 0 when all have been handed out, -1 when a read has failed (the error
 * names expert, layer, file and offset) or the wait was cancelled. */
int stream_next(struct stream *s, struct stream_record *out, int most, struct err *e);
/* Ends the turn, finished or not, also after an error; it does not wait. What has not started to be
 * read is not read. Without a turn it does nothing. */
void stream_end(struct stream *s);

/* While *cancel is true, stream_next gives up waiting (ERR_INTERRUPTED) within 50 ms. NULL: never.
 */
void stream_set_cancel(struct stream *s, const _Atomic bool *cancel);

/* ---- guesses ---- */

/* Ranks that a guess at `layer` should have: 0 when nobody wants one. */
int stream_guess_ranks(const struct stream *s, int layer, bool is_band);
/* A guess at what `layer` will select, made while a turn of an earlier layer is under way (after
 * its stream_begin, before its first stream_next): for each row the ids best first and their
 * weights, [rows][ranks]. Of a window's guess the best ranks are read, of a band's everything, most
 * rows first. Ids that are no experts of the layer are an error of the caller. */
void stream_guess(struct stream *s, int layer, const int32_t *ids, const float *weights, int rows,
                  int ranks, bool is_band);

/* ---- prompts ---- */

/* A prompt of `rows` rows begins (or a part of one): its bands borrow places of the cache for what
 * is read ahead, and reading begins with what the first layer has used most. Without these calls
 * bands work too, with less read ahead. */
void stream_prompt_begin(struct stream *s, int rows);
/* Gives back the places that the last band has not: it does so layer by layer, and leaves in them
 * what its rows used most. A window's turn does it too. */
void stream_prompt_end(struct stream *s);

/* ---- cache-aware routing ---- */

void stream_set_moce(struct stream *s, const struct stream_moce *m);
/* What is added to the logits of `layer`'s experts for the selection: [experts], valid until the
 * next turn; NULL: routing is exact. *keep as in struct stream_moce. */
const float *stream_bonus(struct stream *s, int layer, bool is_band, int *keep);
/* What routing with that bonus was like, before the turn of the layer begins: for each row the
 * displaced mass, and the difference of the largest and the smallest logit. */
void stream_note_routing(struct stream *s, int layer, const float *displaced, const float *spread,
                         int rows);

/* ---- warm starts ---- */

/* Tokens that used each record since creation or the last stream_set_counts, layer after layer,
 * expert after expert: [stream_records]; and how many tokens were counted. */
int stream_records(const struct stream *s);
const uint32_t *stream_counts(const struct stream *s, uint64_t *tokens);
/* Replaces the counts by older ones (copied): what this run adds comes on top. */
void stream_set_counts(struct stream *s, const uint32_t *counts, uint64_t tokens);
/* Starts reading the most used records into places that no resident takes. They stay staged until
 * they are selected, so outputs never depend on them. */
void stream_fill(struct stream *s);

struct stream_name {
    int32_t layer, expert;
};
/* Residents, the last used first, and behind them what was filled and not yet selected, what is worth
 * most first; returns how many (at most `most`, which stream_records always suffices for). */
int stream_hot_list(const struct stream *s, struct stream_name *out, int most);
/* As stream_fill, for the records of a hot list, the first being worth most; what was filled before
 * goes first when places run out. Names that do not exist are passed over. */
void stream_fill_names(struct stream *s, const struct stream_name *names, int n);

/* ---- memory ---- */

/* Gives `slots` of the slots that are worth least back to the system, or (negative) takes as many
 * again; returns by how many it changed. Never below what a window needs. Between turns. */
int stream_resize(struct stream *s, int slots);

/* ---- reports ---- */

void stream_set_watch(struct stream *s, const struct stream_watch *w);
void stream_get_stats(const struct stream *s, struct stream_stats *out);
void stream_reset_stats(struct stream *s);

/* Whether the record is logically resident: from the turn in which it was selected until it is
 * evicted, a function of the history of turns alone. */
bool stream_is_resident(const struct stream *s, int layer, int expert);
uint64_t stream_slots(const struct stream *s); /* places for residents, all classes; not staging */

/* ---- sizes, for the plan ---- */

/* Least arena_bytes that works for these layers: what one window of the largest layer may need, and
 * staging. Then: that holds what one token of every layer needs; that holds everything. */
uint64_t stream_least_bytes(const struct stream_config *c, size_t io_align);
uint64_t stream_cycle_bytes(const struct stream_config *c, size_t io_align);
uint64_t stream_all_bytes(const struct stream_config *c, size_t io_align);
/* Of any arena, what is staging at most. */
uint64_t stream_staging_bytes(const struct stream_config *c, size_t io_align);
/* Places that c->arena_bytes gives; 0 when it is too small. */
uint64_t stream_count_slots(const struct stream_config *c, size_t io_align);
/* Bytes of all routed experts as they lie in the files (what N% of --arena refers to). */
uint64_t stream_expert_bytes(const struct stream_config *c);
/* What a stream holds besides its arena, at most, however large that is: tables, requests. */
uint64_t stream_table_bytes(const struct stream_config *c, size_t io_align);

/* ---- rows of a table on the drive, read one by one (n-gram embedding) ---- */

struct stream_rows;

/* A table of `rows` rows of row_bytes that begins at table_offset of `file`; at most most_rows are
 * asked for at once. `io` must outlive it. */
struct stream_rows *stream_rows_create(struct io *io, int file, uint64_t table_offset,
                                       uint64_t rows, size_t row_bytes, int most_rows,
                                       struct err *e);
/* What it holds, for the plan. The rows read last are kept (a small cache of exact rows). */
size_t stream_rows_memory(size_t row_bytes, int most_rows, size_t io_align);
void stream_rows_free(struct stream_rows *r);

/* Starts reading rows[0..n-1], in any order, repeats allowed; each distinct row is read once. What
 * an earlier request left unread is given up. False when a row is not of the table. */
bool stream_rows_begin(struct stream_rows *r, const uint64_t *rows, int n, struct err *e);
/* Waits for them. *bytes: [n][row_bytes] in the order asked, valid until the next begin. An error
 * names row, file and offset; the next begin works. */
bool stream_rows_wait(struct stream_rows *r, const void **bytes, struct err *e);
/* While *cancel is true, both give up waiting (ERR_INTERRUPTED) within 50 ms. NULL: never. */
void stream_rows_set_cancel(struct stream_rows *r, const _Atomic bool *cancel);
/* Adds what the rows read and waited to `out`. */
void stream_rows_add_stats(const struct stream_rows *r, struct stream_stats *out);

#endif
