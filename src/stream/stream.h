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

/* The turn of `layer` needs the distinct experts of ids[0..n-1] (repeats allowed; counted, the most
 * wanted are read first in a band). See struct expert_source in model/moe.h for begin, next, end:
 * same contract. In a window all are pinned until end; in a band a record may be evicted after the
 * next call that follows the one that handed it out, so a band may need more records than slots. */
bool stream_begin(struct stream *s, int layer, const int32_t *ids, int n, bool is_band,
                  struct err *e);
int stream_next(struct stream *s, struct stream_record *out, int most, struct err *e);
void stream_end(struct stream *s);

void stream_get_stats(const struct stream *s, struct stream_stats *out);
uint64_t stream_slots(const struct stream *s);   /* all classes */
/* Least arena that works for these layers, and the bytes that hold everything. */
uint64_t stream_least_bytes(const struct stream_config *c, size_t io_align);
uint64_t stream_all_bytes(const struct stream_config *c, size_t io_align);
/* Bytes of all routed experts as they lie in the files (what N% of --arena refers to). */
uint64_t stream_expert_bytes(const struct stream_config *c);

/* Rows of a table on the drive, read one by one (n-gram embedding). */
struct stream_rows;
struct stream_rows *stream_rows_create(struct io *io, int file, uint64_t table_offset, uint64_t rows,
                                       size_t row_bytes, int most_rows, struct err *e);
size_t stream_rows_memory(size_t row_bytes, int most_rows, size_t io_align);
void stream_rows_free(struct stream_rows *r);
bool stream_rows_begin(struct stream_rows *r, const uint64_t *rows, int n, struct err *e);
bool stream_rows_wait(struct stream_rows *r, const void **bytes, struct err *e);

#endif
