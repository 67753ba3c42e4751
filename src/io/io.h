/* SPDX-License-Identifier: Apache-2.0 */
/* Reading bytes from drives (docs/streaming.md): requests go in by lanes, are read by an engine
 * with a bounded number in flight, and come back as completions in any order.
 *
 * Reads go past the page cache where the file system allows it. Where it does not, they are
 * ordinary reads whose pages are dropped afterwards, and a note says so once.
 *
 * A user of the engine owns a queue: what it submits comes back there and nowhere else. Queues may
 * be driven by different threads, one thread a queue. Nothing is allocated after creation. */
#ifndef STRATA_IO_IO_H
#define STRATA_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum io_lane {
    IO_URGENT, /* somebody waits for it; always taken first */
    IO_ROWS,   /* small reads (n-gram rows); with a depth of their own */
    IO_AHEAD,  /* a guess; taken when neither of the others has anything to do */
    IO_LANES
};

/* The engine holds at most `depth` urgent and ahead reads in flight on each drive, and besides
 * `rows_depth` rows. Outside prompts (io_set_prompt) ahead reads are `ahead_kept` fewer, and that
 * many on all drives together. Fields left 0 take the default in brackets. */
struct io_options {
    /* "uring" (default where the system has it): io_uring. "pread": threads. "fake": completes at
     * once and reads nothing. "sim:rate=200M,delay=0-30ms,seed=7": really reads, then holds each
     * completion back as a slower drive (rate, bytes a second) or an erratic one (delay) would. */
    const char *engine;
    int depth;      /* [8]: random reads of one expert reach the drive's rate from 4 on */
    int ahead_kept; /* [2], less where depth is below 3 */
    int rows_depth; /* [24]: rows are bound by latency, not by bandwidth */
    bool buffered;  /* never direct I/O */
    /* Copies of all the files on other drives, copy after copy: [copies][files]. A read goes to the
     * drive that has the least to do; a copy that fails is noted and used no more. */
    const char *const *copy_paths;
    int copies;          /* besides the files themselves; at most IO_COPIES - 1 */
    uint64_t fake_bytes; /* no file is opened, each has this size, and nothing is read: with the
                          * engine "fake" or a `drive`; 0: as opened */
    /* In place of an engine: reads take as long as this drive would need, in a time of their own,
     * which passes in io_pass_ns and while somebody waits. One thread alone may use it. */
    const struct io_drive *drive;
    /* Replaces pread(2), for tests that want it to fail or to come short. Called by many threads.
     */
    ssize_t (*pread)(void *ctx, int fd, void *to, size_t n, off_t offset);
    void *pread_ctx;
};

/* `o` with its defaults filled in. */
struct io_options io_options_filled(const struct io_options *o);

#define IO_COPIES 8

/* A drive that moves the bytes of one read after the other, and delays the end of each besides. */
struct io_drive {
    double bytes_us;                /* rate: bytes a microsecond; 0: without an end */
    double delay_us, delay_byte_us; /* of a read, whatever its size; of each of its bytes besides */
    /* Likewise, time of a processor: who works while the read ends goes without it. */
    double cpu_us, cpu_byte_us;
};
struct io;
/* What the engine makes of the drive: `sim` slows it down, `fake` needs no time. */
void io_drive_through(const struct io *io, struct io_drive *d);
/* Microseconds until `reads` reads of so many bytes, submitted at once, are all there. */
double io_drive_us(const struct io_drive *d, uint64_t bytes, double reads);

struct io_completion {
    uint64_t tag;
    int file;
    uint64_t offset;
    size_t bytes; /* that were read: all that was asked, unless the file ends before */
    int error;    /* 0, an errno, or IO_SHORT: the file is shorter than it was when it was opened */
};
#define IO_SHORT (-1)

struct io_queue;

/* Opens the files (index in `paths` = file number) and starts the engine. The paths are copied.
 * NULL on error, which names the file, or the engine's text and what is wrong with it. */
struct io *io_create(const char *const *paths, int n, const struct io_options *o, struct err *e);
/* Stops the engine and closes the files. All queues must have been closed. */
void io_close(struct io *io);

/* What offset, length and destination of every request must be multiples of: a power of two. */
size_t io_align(const struct io *io);
uint64_t io_file_bytes(const struct io *io, int file);
const char *io_file_path(const struct io *io, int file);
bool io_is_direct(const struct io *io, int file);
/* Whether file number `file` is the one that `fd` is open on. */
bool io_is_of_file(const struct io *io, int file, int fd);

/* A queue for at most `most` requests that are submitted and not yet collected. */
struct io_queue *io_queue_create(struct io *io, int most, struct err *e);
/* Tags will be 0 .. tags - 1: with an index of them io_cancel, io_hurry and io_is_waiting need no
 * search, however many requests are outstanding. Before the first request. */
bool io_queue_index_tags(struct io_queue *q, size_t tags, struct err *e);
/* Cancels what has not started and waits for the rest. */
void io_queue_close(struct io_queue *q);

/* Asks for `length` bytes at `offset` of `file`, to lie at `to`; the request may reach over the end
 * of the file, whose bytes then come short. `to` belongs to the engine until the completion.
 * At most `most` requests may be outstanding. Inside a lane the order is that of submission. */
void io_submit(struct io_queue *q, enum io_lane lane, int file, uint64_t offset, size_t length,
               void *to, uint64_t tag);
/* Takes back a request that has not started: true, and no completion comes. False when it has
 * started (or is done): its completion comes as ever. Tags of outstanding requests must differ. */
bool io_cancel(struct io_queue *q, uint64_t tag);
/* A request that has not started goes to the end of the urgent lane: somebody waits for it now.
 * False when it has started or is done. */
bool io_hurry(struct io_queue *q, uint64_t tag);
/* Whether the request is outstanding and has not started. */
bool io_is_waiting(struct io_queue *q, uint64_t tag);

/* Up to `most` completions. io_wait waits until there is one; 0 when nothing is outstanding. */
int io_poll(struct io_queue *q, struct io_completion *out, int most);
int io_wait(struct io_queue *q, struct io_completion *out, int most);
/* As io_wait, but 0 also when none came within `ms` milliseconds. */
int io_wait_for(struct io_queue *q, struct io_completion *out, int most, int ms);
/* Requests submitted and not yet collected. */
int io_outstanding(const struct io_queue *q);

/* Microseconds that only grow: of the clock, or the virtual time of options.drive. */
int64_t io_now_us(const struct io *io);
/* Virtual time passes in which the caller works; without a drive it does nothing. */
void io_pass_ns(struct io *io, int64_t ns_passed);

/* While a prompt is read, guesses may use the whole depth (urgent reads first all the same). */
void io_set_prompt(struct io *io, bool is_prompt);
/* Time in which an urgent or ahead read was in flight, since creation. */
uint64_t io_busy_us(struct io *io);
/* Time in which an urgent or ahead read was submitted and not done, or the caller wanted more than
 * it could submit (io_set_wanting): what the drive should have been busy in. Never below the other.
 */
uint64_t io_wanted_us(struct io *io);
/* The caller has more to read, but no memory to read it into. */
void io_set_wanting(struct io *io, bool is_wanting);
/* Name of the engine that runs: "uring", "pread", "sim", "fake", "virtual". */
const char *io_engine_name(const struct io *io);

/* `memory`, which has its pages, will be read into often: the engine may register it with the system,
 * which pins it, as far as limits allow. Until it is forgotten, its pages must not be given back.
 * Any thread may call it. */
void io_remember_memory(struct io *io, void *memory, size_t bytes);
/* The opposite, of all that was remembered from `memory` on for `bytes`: before pages are given back
 * or the memory is freed. */
void io_forget_memory(struct io *io, void *memory, size_t bytes);
/* So many bytes will be remembered, piece by piece. False: the limit of locked memory is too low for
 * all of them. */
bool io_expect_memory(struct io *io, size_t bytes);

/* Sets `e` to "PATH: reading at OFFSET: why". Returns false. */
bool io_explain(const struct io *io, const struct io_completion *c, struct err *e);

/* Bytes that an engine with these options holds besides queues (stacks of its threads). */
size_t io_memory(const struct io_options *o);
/* Bytes of a queue, with an index of `tags` tags. */
size_t io_queue_memory(int most, size_t tags);

#endif
