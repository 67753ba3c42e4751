/* SPDX-License-Identifier: Apache-2.0 */
/* What the engines of this folder share. io.c owns files, queues and lanes and decides what is read
 * next; an engine takes requests, reads and hands them back.
 *
 *     submit --> lane --io_take--> in flight --io_finish--> done list of its queue --> wait, poll
 *                  \--cancel--> free
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
    size_t bytes; /* result, written by the engine that took it */
    int error;
    struct io_request *before, *after; /* in a lane or done list; `after` alone among the spare */
};

struct io_list {
    struct io_request *first, *last;
};

struct io_engine {
    const char *name;
    /* `settings` is what follows the colon in the engine's text, or NULL. */
    bool (*start)(struct io *io, const char *settings, struct err *e);
    void (*stop)(struct io *io);
};

struct io_threads;
struct io_drive;

struct io {
    struct io_options options; /* defaults filled in */
    struct io_file *file;
    int files;
    size_t align;
    const struct io_engine *engine;
    struct io_threads *threads;
    struct io_drive *drive; /* of the engine `sim` */

    pthread_mutex_t lock;
    pthread_cond_t work; /* something may be taken, or the engine stops */
    struct io_list lane[IO_LANES];
    int in_flight[IO_LANES];
    bool stopping;
};

extern const struct io_engine io_engine_pread, io_engine_sim;

/* Waits for a request that may start now and marks it as in flight. NULL when the engine stops. */
struct io_request *io_take(struct io *io);
/* The request's `bytes` and `error` are set: the completion is published. */
void io_finish(struct io *io, struct io_request *r);

/* `o` with its defaults filled in. */
struct io_options io_options_filled(const struct io_options *o);

/* Threads that take, read and finish. `hold`, unless NULL, is called between reading and finishing. */
bool io_threads_start(struct io *io, void (*hold)(struct io *io, const struct io_request *r),
                      struct err *e);
void io_threads_stop(struct io *io);

#endif
