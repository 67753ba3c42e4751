/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that every system has: threads that read and sleep in the read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "io/engine.h"

#define STACK_BYTES ((size_t)128 << 10)

struct io_threads {
    void (*hold)(struct io *io, const struct io_request *r);
    int count; /* that run */
    pthread_t thread[];
};

static ssize_t read_some(const struct io *io, int fd, void *to, size_t n, uint64_t offset)
{
    for (;;) {
        ssize_t r = io->options.pread
                        ? io->options.pread(io->options.pread_ctx, fd, to, n, (off_t)offset)
                        : pread(fd, to, n, (off_t)offset);
        if (r >= 0 || (errno != EINTR && errno != EAGAIN))
            return r;
        if (errno == EAGAIN)
            sched_yield();
    }
}

/* Reads until everything that the file had when it was opened is there. A direct read may be
 * continued at whole blocks only: where one stops elsewhere, the rest is read the ordinary way. */
void io_read_request(const struct io *io, struct io_request *r)
{
    const struct io_file *f = io_file_of(io, r);
    size_t want = io_request_want(io, r), done = 0;
    bool direct = r->is_direct;
    while (done < want) {
        size_t n = direct ? r->length - done : want - done;
        ssize_t got =
            read_some(io, direct ? f->direct_fd : f->fd, (char *)r->to + done, n, r->offset + done);
        if (got < 0) {
            r->error = errno;
            break;
        }
        if (got == 0)
            break;
        done += (size_t)got;
        if (done & (f->align - 1))
            direct = false;
    }
    r->bytes = done < want ? done : want;
    if (!r->error && (done < want || !want))
        r->error = IO_SHORT;
    if (!direct)
        posix_fadvise(f->fd, (off_t)r->offset, (off_t)r->length, POSIX_FADV_DONTNEED);
}

static void *thread_main(void *arg)
{
    struct io *io = arg;
    const struct io_threads *t = io->threads;
    pthread_mutex_lock(&io->lock);
    while (!io->stopping) {
        struct io_request *r = io_take(io);
        if (!r) {
            pthread_cond_wait(&io->work, &io->lock);
            continue;
        }
        if (io_may_start(io)) /* one waking is enough for many submissions */
            pthread_cond_signal(&io->work);
        pthread_mutex_unlock(&io->lock);
        io_read_request(io, r);
        if (t->hold)
            t->hold(io, r);
        pthread_mutex_lock(&io->lock);
        io_finish(io, r);
        io_threads_kick(io);
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

void io_threads_kick(struct io *io)
{
    if (io_may_start(io))
        pthread_cond_signal(&io->work);
}

static int thread_count(const struct io_options *o)
{
    return (o->depth + o->rows_depth) * (o->copies + 1);
}

bool io_threads_start(struct io *io, void (*hold)(struct io *io, const struct io_request *r),
                      struct err *e)
{
    int n = thread_count(&io->options);
    struct io_threads *t = mem_alloc(sizeof *t + (size_t)n * sizeof *t->thread, "I/O threads", e);
    if (!t)
        return false;
    t->hold = hold;
    io->threads = t;

    /* Signals are the program's: none is delivered to these threads. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int error = 0;
    while (t->count < n && !(error = thread_start(&t->thread[t->count], &attr, thread_main, io)))
        t->count++;
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error && t->count)
        log_note("only %d of %d I/O threads can be started (%s): reads take longer", t->count, n,
                 strerror(error));
    return t->count || err_set(e, ERR_MEMORY, "no I/O thread can be started: %s", strerror(error));
}

void io_threads_stop(struct io *io)
{
    struct io_threads *t = io->threads;
    if (!t)
        return;
    pthread_mutex_lock(&io->lock);
    io->stopping = true;
    pthread_cond_broadcast(&io->work);
    pthread_mutex_unlock(&io->lock);
    for (int i = 0; i < t->count; i++)
        pthread_join(t->thread[i], NULL);
    mem_free(t);
    io->threads = NULL;
}

size_t io_memory(const struct io_options *o)
{
    struct io_options d = io_options_filled(o);
    return (size_t)thread_count(&d) * STACK_BYTES;
}

static bool start(struct io *io, const char *settings, struct err *e)
{
    if (settings)
        return err_set(e, ERR_USAGE, "--io: pread takes no settings, not \"%s\"", settings);
    return io_threads_start(io, NULL, e);
}

const struct io_engine io_engine_pread = {
    .name = "pread", .start = start, .stop = io_threads_stop, .kick = io_threads_kick};
