/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of Linux: io_uring. Requests are submitted by whoever may start them, under the lock
 * of the engine; one thread reaps completions. Files are registered, and memory that is read into
 * often, where the system's limits allow.
 *
 * Where io_uring is switched off or filtered, a note says so and threads read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "io/engine.h"

static bool read_with_threads(struct io *io, const char *why, struct err *e)
{
    static atomic_bool said;
    log_note_once(&said,
                  "io_uring cannot be used here (%s); threads read instead, with more of the "
                  "processors' time",
                  why);
    io->engine = &io_engine_pread;
    return io->engine->start(io, NULL, e);
}

#ifdef STRATA_URING
#include <liburing.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGISTERED_MOST 512
#define REGISTERED_BYTES ((size_t)128 << 20) /* pinned at once, with the lock held */
#define STACK_BYTES ((size_t)128 << 10)

struct registered {
    const char *memory; /* NULL: the place is unused */
    size_t bytes;
};

struct io_ring {
    struct io_uring ring; /* its submission side is guarded by io->lock */
    pthread_t reaper;
    bool is_reaping, has_files, has_buffers;
    /* Guarded by io->lock: */
    struct registered buffer[REGISTERED_MOST];
    int buffers;    /* places up to the last that was ever used */
    bool is_exempt; /* the limit of locked memory does not count for this program */
    bool is_full;   /* the system has refused to pin more */
};

/* ---- submission; the lock is held ---- */

static int buffer_of(const struct io_ring *u, const struct io_request *r)
{
    const char *to = r->to;
    for (int i = 0; i < u->buffers; i++)
        if (u->buffer[i].memory && to >= u->buffer[i].memory &&
            to + r->length <= u->buffer[i].memory + u->buffer[i].bytes)
            return i;
    return -1;
}

/* Registered files: those for direct I/O behind the ordinary ones. */
static int file_index(const struct io *io, const struct io_request *r)
{
    return r->copy * io->files + r->file + (r->is_direct ? io->copies * io->files : 0);
}

/* What is left of the request. A direct read ends at a whole block, perhaps behind the file's end.
 */
static void prepare(struct io *io, struct io_request *r)
{
    struct io_ring *u = io->ring;
    const struct io_file *f = io_file_of(io, r);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    size_t n = (r->is_direct ? r->length : io_request_want(io, r)) - r->done;
    n = n < INT_MAX ? n : (size_t)INT_MAX & ~(io->align - 1);
    int fd = u->has_files ? file_index(io, r) : r->is_direct ? f->direct_fd : f->fd;
    int buffer = buffer_of(u, r);
    char *to = (char *)r->to + r->done;
    if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, to, (unsigned)n, r->offset + r->done, buffer);
    else
        io_uring_prep_read(sqe, fd, to, (unsigned)n, r->offset + r->done);
    if (u->has_files)
        sqe->flags |= IOSQE_FIXED_FILE;
    io->reads_of_registered_files += u->has_files;
    io->reads_to_registered_memory += buffer >= 0;
    io_uring_sqe_set_data(sqe, r);
}

static void submit(struct io_ring *u)
{
    while (io_uring_sq_ready(&u->ring) && io_uring_submit(&u->ring) < 0)
        sched_yield(); /* EINTR, EAGAIN, EBUSY: the entries are still there */
}

static void kick(struct io *io)
{
    struct io_request *r;
    while ((r = io_take(io))) {
        if (!io_request_want(io, r)) { /* nothing of it lies in the file */
            r->error = IO_SHORT;
            io_finish(io, r);
            continue;
        }
        prepare(io, r);
    }
    submit(io->ring);
}

/* ---- completion ---- */

/* The request has got `result` bytes or an error: goes on or is finished. */
static void note_result(struct io *io, struct io_request *r, int result)
{
    const struct io_file *f = io_file_of(io, r);
    size_t want = io_request_want(io, r);
    if (result > 0)
        r->done += (size_t)result;
    if (r->done & (f->align - 1))
        r->is_direct = false;
    if ((result > 0 && r->done < want) || result == -EINTR || result == -EAGAIN) {
        prepare(io, r);
        return;
    }
    r->bytes = r->done < want ? r->done : want;
    r->error = result < 0 ? -result : r->done < want ? IO_SHORT : 0;
    if (!r->is_direct)
        posix_fadvise(f->fd, (off_t)r->offset, (off_t)r->length, POSIX_FADV_DONTNEED);
    io_finish(io, r);
}

/* The system had no thread to read with (its limit of processes): this one reads, meanwhile without
 * the lock. */
static void read_here(struct io *io, struct io_request *r)
{
    pthread_mutex_unlock(&io->lock);
    io_read_request(io, r);
    pthread_mutex_lock(&io->lock);
    io_finish(io, r);
}

static void *reap(void *arg)
{
    struct io *io = arg;
    struct io_uring *ring = &io->ring->ring;
    for (bool stop = false; !stop;) {
        struct io_uring_cqe *cqe;
        if (io_uring_wait_cqe(ring, &cqe))
            continue;
        pthread_mutex_lock(&io->lock);
        while (!io_uring_peek_cqe(ring, &cqe)) {
            struct io_request *r = io_uring_cqe_get_data(cqe);
            int result = cqe->res;
            io_uring_cqe_seen(ring, cqe);
            if (r && result == -ECANCELED)
                read_here(io, r);
            else if (r)
                note_result(io, r, result);
            else
                stop = true;
        }
        kick(io);
        pthread_mutex_unlock(&io->lock);
    }
    return NULL;
}

/* ---- registered memory ---- */

/* Whether the program may pin memory beyond the limit. In a namespace of its own it may look so and
 * be refused. */
static bool is_exempt(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    return !syscall(SYS_capget, &head, data) && data[0].effective >> CAP_IPC_LOCK & 1;
}

/* Of `bytes` those that the limit leaves room for. Asking by trying would pin them first. */
static size_t may_pin(const struct io_ring *u, size_t bytes)
{
    struct rlimit limit;
    size_t pinned = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    if (u->is_exempt)
        return bytes;
    for (int i = 0; i < u->buffers; i++)
        pinned += u->buffer[i].bytes;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur <= pinned)
        return 0;
    return limit.rlim_cur - pinned < bytes ? (limit.rlim_cur - pinned) & ~(page - 1) : bytes;
}

/* `memory` NULL: the place is free again. */
static bool set_buffer(struct io_ring *u, int i, const char *memory, size_t bytes)
{
    struct iovec v = {(void *)memory, bytes};
    if (io_uring_register_buffers_update_tag(&u->ring, (unsigned)i, &v, NULL, 1) != 1 && memory)
        return false;
    u->buffer[i] = (struct registered){memory, bytes};
    u->buffers = i < u->buffers ? u->buffers : i + 1;
    return true;
}

static bool expect(struct io *io, size_t bytes)
{
    struct io_ring *u = io->ring;
    pthread_mutex_lock(&io->lock);
    size_t n = u->has_buffers ? may_pin(u, bytes) : bytes; /* without, no limit would help */
    pthread_mutex_unlock(&io->lock);
    return n == bytes;
}

/* Registers what it can of `bytes` in a free place: 0 bytes, or fewer than the limit has room for where
 * other things count too (on some systems the ring itself). Less than asked for is the end. */
static size_t register_some(struct io_ring *u, const char *memory, size_t bytes)
{
    size_t n = may_pin(u, bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    int i = 0;
    while (i < REGISTERED_MOST && u->buffer[i].memory)
        i++;
    if (i < REGISTERED_MOST && u->is_exempt && set_buffer(u, i, memory, n))
        return n;
    u->is_exempt = false;
    n = may_pin(u, n);
    while (n && i < REGISTERED_MOST && !set_buffer(u, i, memory, n))
        n = n / 2 & ~(page - 1);
    n = i < REGISTERED_MOST ? n : 0;
    u->is_full = n < bytes;
    return n;
}

static void remember(struct io *io, void *memory, size_t bytes)
{
    struct io_ring *u = io->ring;
    size_t n;
    for (size_t at = 0; at < bytes && u->has_buffers; at += n) {
        pthread_mutex_lock(&io->lock);
        n = bytes - at < REGISTERED_BYTES ? bytes - at : REGISTERED_BYTES;
        n = u->is_full ? 0 : register_some(u, (char *)memory + at, n);
        pthread_mutex_unlock(&io->lock);
        if (!n)
            return;
    }
}

static void forget(struct io *io, void *memory, size_t bytes)
{
    struct io_ring *u = io->ring;
    const char *from = memory;
    pthread_mutex_lock(&io->lock);
    for (int i = 0; i < u->buffers; i++)
        if (u->buffer[i].memory && u->buffer[i].memory >= from &&
            u->buffer[i].memory < from + bytes)
            set_buffer(u, i, NULL, 0);
    u->is_full = false;
    pthread_mutex_unlock(&io->lock);
}

/* ---- start and stop ---- */

static void register_files(struct io *io)
{
    int n = io->copies * io->files;
    int *fd = mem_alloc_array(2 * (size_t)n, sizeof *fd, "files", NULL);
    if (!fd)
        return;
    for (int i = 0; i < n; i++) {
        fd[i] = io->file[i].fd;
        fd[n + i] = io->file[i].direct_fd;
    }
    io->ring->has_files = !io_uring_register_files(&io->ring->ring, fd, 2 * (unsigned)n);
    mem_free(fd);
}

static int start_reaper(struct io *io)
{
    sigset_t all, old;
    sigfillset(&all); /* signals are the program's: none is delivered to this thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int error = thread_start(&io->ring->reaper, &attr, reap, io);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

static void stop(struct io *io)
{
    struct io_ring *u = io->ring;
    if (!u)
        return;
    if (u->is_reaping) {
        pthread_mutex_lock(&io->lock);
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        io_uring_prep_nop(sqe);
        io_uring_sqe_set_data(sqe, NULL);
        submit(u);
        pthread_mutex_unlock(&io->lock);
        pthread_join(u->reaper, NULL);
    }
    io_uring_queue_exit(&u->ring);
    mem_free(u);
    io->ring = NULL;
}

static unsigned ring_entries(const struct io_options *o)
{
    unsigned most = (unsigned)((o->depth + o->rows_depth) * (o->copies + 1)) + 1, n = 8;
    while (n < most)
        n *= 2;
    return n;
}

static bool start(struct io *io, const char *settings, struct err *e)
{
    if (settings)
        return err_set(e, ERR_USAGE, "--io: uring takes no settings, not \"%s\"", settings);
    if (io->options.pread)
        return read_with_threads(io, "reads are replaced", e);
    struct io_ring *u = mem_alloc(sizeof *u, "I/O ring", e);
    if (!u)
        return false;
    int error = -io_uring_queue_init(ring_entries(&io->options), &u->ring, 0);
    if (error) {
        mem_free(u);
        return read_with_threads(io,
                                 error == EPERM ? "forbidden by the system; kernel.io_uring_disabled "
                                                  "and a container's seccomp profile may allow it"
                                 : error == ENOMEM ? "the limit of locked memory, `ulimit -l`, or "
                                                     "memory itself is too low"
                                                   : strerror(error),
                                 e);
    }
    io->ring = u;
    register_files(io);
    u->has_buffers = !io_uring_register_buffers_sparse(&u->ring, REGISTERED_MOST);
    u->is_exempt = is_exempt();
    error = start_reaper(io);
    u->is_reaping = !error;
    return !error || err_set(e, ERR_MEMORY, "the thread of the I/O ring cannot be started: %s",
                             strerror(error));
}

const struct io_engine io_engine_uring = {.name = "uring",
                                          .start = start,
                                          .stop = stop,
                                          .kick = kick,
                                          .expect = expect,
                                          .remember = remember,
                                          .forget = forget};
#else
static bool start(struct io *io, const char *settings, struct err *e)
{
    (void)settings;
    return read_with_threads(io, "the program was built without it", e);
}

const struct io_engine io_engine_uring = {.name = "uring", .start = start};
#endif
