/* SPDX-License-Identifier: Apache-2.0 */
/* Which expert is where, and when it is read (docs/streaming.md). Experts live in files; a bounded
 * arena of slots holds some. A turn (one layer of one window or band) says what it needs, gets
 * residents first and missing records as they arrive.
 *
 * Program order decides everything: victims, admissions and pins depend on the history of turns
 * alone, never on clocks or completion order. One thread drives a stream; the reads run elsewhere. */
#ifndef STRATA_STREAM_STREAM_H
#define STRATA_STREAM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "io/io.h"

#define STREAM_PARTS 3

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

struct stream_config {
    int layers;
    const struct stream_layer *layer; /* [layers], copied */
    uint64_t arena_bytes;             /* for all slots, staging included */
    int window_rows, experts_used;    /* largest decode window and top-k: the least that must fit */
};

struct stream_record {
    int expert;
    const void *part[STREAM_PARTS];
};

/* Counters since creation (or the last stream_reset_stats); names as in streaming.md section 12. */
struct stream_stats {
    uint64_t hits, misses;          /* distinct records a turn */
    uint64_t bytes_read, bytes_urgent, bytes_rows;
    uint64_t wait_us;               /* time in which the caller waited for a read */
    uint64_t turns;
};

struct stream;

/* Slots of size classes inside one block of page-aligned memory. `io` must outlive it. */
struct stream *stream_create(const struct stream_config *c, struct io *io, struct err *e);
void stream_free(struct stream *s);

/* The turn of `layer` needs the distinct experts of ids[0..n-1] (repeats allowed; they are counted,
 * and the most wanted are read first). Every read that has a slot is under way when it returns; it
 * does not wait. False, and no turn, when an id is not an expert of the layer or a window wants more
 * than the arena was made for. A turn must have been ended before the next begins.
 *
 * In a window every record stays until the end of the turn. In a band a record is the caller's until
 * its next call of stream_next, so a band may need more records than there are slots. */
bool stream_begin(struct stream *s, int layer, const int32_t *ids, int n, bool is_band,
                  struct err *e);
/* Hands out up to `most` records that are there, each exactly once a turn: residents first, then the
 * missing ones as they arrive; waits when none is there. Returns how many (of a band's, perhaps
 * fewer than there are), 0 when all have been handed out, -1 when a read has failed: the error names
 * expert, layer, file and offset. */
int stream_next(struct stream *s, struct stream_record *out, int most, struct err *e);
/* Ends the turn, finished or not, also after an error. What has not started to be read is not read;
 * what is being read is waited for. Without a turn it does nothing. */
void stream_end(struct stream *s);

void stream_get_stats(const struct stream *s, struct stream_stats *out);
void stream_reset_stats(struct stream *s);

/* Whether the record is logically resident: from the turn in which it was selected until it is
 * evicted, a function of the history of turns alone. */
bool stream_is_resident(const struct stream *s, int layer, int expert);
uint64_t stream_slots(const struct stream *s); /* that hold residents, all classes; not staging */

/* ---- sizes, for the plan ---- */

/* Least arena_bytes that works for these layers: what one window of the largest layer may need, and
 * staging. Then: that holds what one token of every layer needs; that holds everything. */
uint64_t stream_least_bytes(const struct stream_config *c, size_t io_align);
uint64_t stream_cycle_bytes(const struct stream_config *c, size_t io_align);
uint64_t stream_all_bytes(const struct stream_config *c, size_t io_align);
/* Of any arena, what is staging at most. */
uint64_t stream_staging_bytes(const struct stream_config *c, size_t io_align);
/* Cache slots that c->arena_bytes gives; 0 when it is too small. */
uint64_t stream_count_slots(const struct stream_config *c, size_t io_align);
/* Bytes of all routed experts as they lie in the files (what N% of --arena refers to). */
uint64_t stream_expert_bytes(const struct stream_config *c);
/* What a stream holds besides its arena, at most, however large that is: tables, requests. */
uint64_t stream_table_bytes(const struct stream_config *c, size_t io_align);

/* ---- rows of a table on the drive, read one by one (n-gram embedding) ---- */

struct stream_rows;

/* A table of `rows` rows of row_bytes that begins at table_offset of `file`; at most most_rows are
 * asked for at once. `io` must outlive it. */
struct stream_rows *stream_rows_create(struct io *io, int file, uint64_t table_offset, uint64_t rows,
                                       size_t row_bytes, int most_rows, struct err *e);
/* What it holds, for the plan. */
size_t stream_rows_memory(size_t row_bytes, int most_rows, size_t io_align);
void stream_rows_free(struct stream_rows *r);

/* Starts reading rows[0..n-1], in any order, repeats allowed; each distinct row is read once. What
 * an earlier request left unread is given up. False when a row is not of the table. */
bool stream_rows_begin(struct stream_rows *r, const uint64_t *rows, int n, struct err *e);
/* Waits for them. *bytes: [n][row_bytes] in the order asked, valid until the next begin. An error
 * names row, file and offset; the next begin works. */
bool stream_rows_wait(struct stream_rows *r, const void **bytes, struct err *e);
/* Adds what the rows read and waited to `out`. */
void stream_rows_add_stats(const struct stream_rows *r, struct stream_stats *out);

#endif
