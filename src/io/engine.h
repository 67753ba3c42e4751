/* SPDX-License-Identifier: Apache-2.0 */
/* What the engines of this folder share. io.c owns files and queues, lanes.c decides what is read
 * next; an engine takes requests, reads and hands them back.
 *
 *     submit --> lane --io_take--> in flight --io_finish--> done list of its queue --> wait, poll
 *                  \--cancel--> free           \--another copy of the file--> lane
 *
 * Everything below `lock` is guarded by it; the rest is fixed after creation. */
#ifndef STRATA_IO_ENGINE_H
#define STRATA_IO_ENGINE_H

#include <pthread.h>

#include "io/io.h"

struct io_file {
    char *path;
    uint64_t bytes; /* when it was opened */
    size_t align;
    int fd, direct_fd; /* direct_fd is -1 without direct I/O */
};

struct io_request {
    struct io_queue *queue;
    enum io_lane lane;
    int file;
    uint64_t offset;
    size_t length;
    void *to;
    uint64_t tag;
    bool is_waiting; /* in a lane */
    int copy;        /* the drive it was sent to */
    unsigned tried;  /* copies that have failed it, a bit each */
    size_t done;     /* bytes so far, of an engine that continues short reads itself */
    bool is_direct;  /* what is left is read past the page cache; likewise */
    size_t bytes;    /* result, written by the engine that took it */
    int error;
    int64_t due_ns;                    /* of a drive in virtual time */
    struct io_request *before, *after; /* in a lane or done list; `after` alone among the spare */
};

struct io_list {
    struct io_request *first, *last;
};

void io_list_append(struct io_list *l, struct io_request *r);
void io_list_remove(struct io_list *l, struct io_request *r);

struct io_engine {
    const char *name;
    /* `settings` is what follows the colon in the engine's text, or NULL. */
    bool (*start)(struct io *io, const char *settings, struct err *e);
    void (*stop)(struct io *io);
    /* Something may be startable. The lock is held. */
    void (*kick)(struct io *io);
    /* Reads are given up (io_is_given_up). The lock is held. NULL: they end by themselves. */
    void (*let_go)(struct io *io);
    /* NULL: memory is not registered. */
    bool (*expect)(struct io *io, size_t bytes);
    void (*remember)(struct io *io, void *memory, size_t bytes);
    void (*forget)(struct io *io, void *memory, size_t bytes);
    /* Of an engine whose time is virtual: passes it until a read ends, for `ms` at most (negative:
     * without an end); false: none did. The lock is held. Then: its time. NULL: that of clocks. */
    bool (*wait)(struct io *io, int ms);
    void (*asked)(struct io *io, size_t bytes); /* a read was submitted */
    int64_t (*now_us)(const struct io *io);
};

struct io_threads;
struct io_drives;
struct io_ring;
struct io_virtual;

struct io {
    struct io_options options; /* defaults filled in */
    struct io_file *file;      /* [copies][files] */
    int files, copies;         /* copies: the files themselves included */
    int opened;                /* of copies * files */
    size_t align;
    const struct io_engine *engine;
    struct io_threads *threads;
    struct io_drives *drives;      /* of the engine `sim` */
    struct io_ring *ring;          /* of the engine `uring` */
    struct io_virtual *in_virtual; /* of the engine `virtual` */

    pthread_mutex_t lock;
    pthread_cond_t work; /* threads: something may be taken, or the engine stops */
    struct io_list lane[IO_LANES];
    int in_flight[IO_COPIES][IO_LANES];
    uint64_t bytes_in_flight[IO_COPIES], bytes_sent[IO_COPIES];
    bool has_failed[IO_COPIES]; /* not used any more */
    bool is_prompt, stopping;
    int large_in_flight;
    int64_t busy_since, wanted_since;
    uint64_t busy_us, wanted_us;
    uint64_t reads_of_registered_files, reads_to_registered_memory;
    bool is_wanting, was_wanted; /* io_set_wanting; something is wanted since wanted_since */
};

/* The engine `sim` alone. */
void io_sim_slow_down(const struct io *io, struct io_drive *d);

extern const struct io_engine io_engine_pread, io_engine_sim, io_engine_fake, io_engine_uring,
    io_engine_virtual;

static inline const struct io_file *io_file_of(const struct io *io, const struct io_request *r)
{
    return &io->file[r->copy * io->files + r->file];
}

/* Bytes of the request that the file had when it was opened. */
static inline size_t io_request_want(const struct io *io, const struct io_request *r)
{
    const struct io_file *f = io_file_of(io, r);
    uint64_t left = r->offset < f->bytes ? f->bytes - r->offset : 0;
    return left < r->length ? (size_t)left : r->length;
}

/* ---- lanes.c; the lock is held ---- */

/* Whether anything may start now. */
bool io_may_start(const struct io *io);
/* Takes the request that is to start now and marks it as in flight on its drive. NULL: none may. */
struct io_request *io_take(struct io *io);
/* The request's `bytes` and `error` are set: the completion is published, or it goes back into its
 * lane for another copy of the file. The caller kicks the engine afterwards. */
void io_finish(struct io *io, struct io_request *r);

/* The lanes have changed: whether anything is wanted may have too. */
void io_note_wanted(struct io *io);

/* ---- pread.c ---- */

/* Threads that take, read and finish. `hold`, unless NULL, is called between the last two. */
bool io_threads_start(struct io *io, void (*hold)(struct io *io, const struct io_request *r),
                      struct err *e);
/* Reads it; bytes and error are set. */
void io_read_request(const struct io *io, struct io_request *r);
void io_threads_stop(struct io *io);
void io_threads_kick(struct io *io);

/* ---- io.c ---- */

/* Puts a finished request on its queue's list and wakes the queue's owner. The lock is held. */
void io_publish(struct io_request *r);
/* Whether the queue of the request is being closed. The lock is held. */
bool io_is_given_up(const struct io_request *r);

#endif
