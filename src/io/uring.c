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
    log_note("io_uring cannot be used here (%s); threads read instead", why);
    io->engine = &io_engine_pread;
    return io->engine->start(io, NULL, e);
}

#ifdef STRATA_URING
#include <liburing.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGISTERED_MOST 512
#define REGISTERED_BYTES ((size_t)128 << 20) /* pinned at once, with the lock held */
#define TOUCHED_BYTES ((size_t)8 << 20)
#define STACK_BYTES ((size_t)128 << 10)

struct registered {
    const char *memory; /* NULL: the place is unused */
    size_t bytes;
};

struct io_ring {
    struct io_uring ring; /* its submission side is guarded by io->lock */
    pthread_t reaper;
    bool is_reaping, has_files, has_buffers, was_noted;
    struct registered buffer[REGISTERED_MOST]; /* guarded by io->lock */
    /* Registers memory beside the work; one block at a time. */
    pthread_t registrar;
    bool is_registering;
    atomic_bool stop_registering;
    char *memory;
    size_t bytes;
};

/* ---- submission; the lock is held ---- */

static int buffer_of(const struct io_ring *u, const struct io_request *r)
{
    const char *to = r->to;
    for (int i = 0; u->has_buffers && i < REGISTERED_MOST; i++)
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

/* Whether the system lets `bytes` more be pinned. Asking by trying would pin them first. */
static bool may_pin(const struct io_ring *u, size_t bytes)
{
    struct rlimit limit;
    for (int i = 0; i < REGISTERED_MOST; i++)
        bytes += u->buffer[i].memory ? u->buffer[i].bytes : 0;
    return !getrlimit(RLIMIT_MEMLOCK, &limit) && bytes <= limit.rlim_cur;
}

static void set_buffer(struct io_ring *u, int i, const char *memory, size_t bytes)
{
    struct iovec v = {(void *)memory, bytes};
    if (io_uring_register_buffers_update_tag(&u->ring, (unsigned)i, &v, NULL, 1) != 1 && memory)
        return;
    u->buffer[i] = (struct registered){memory, bytes};
}

/* Has the system find the pages, whose clearing takes far longer than registering them. False when
 * it is to stop. */
static bool touch(struct io_ring *u, char *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += TOUCHED_BYTES) {
        if (atomic_load(&u->stop_registering))
            return false;
#ifdef MADV_POPULATE_WRITE
        size_t n = bytes - at < TOUCHED_BYTES ? bytes - at : TOUCHED_BYTES;
        madvise(memory + at, n, MADV_POPULATE_WRITE); /* an old system: registering does it */
#else
        (void)memory;
#endif
    }
    return true;
}

static void *register_memory(void *arg)
{
    struct io *io = arg;
    struct io_ring *u = io->ring;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19); /* reading comes first */
    char *memory = u->memory;
    size_t left = u->bytes;
    for (int i = 0; left && i < REGISTERED_MOST; i++) {
        size_t n = left < REGISTERED_BYTES ? left : REGISTERED_BYTES;
        if (!touch(u, memory, n))
            break;
        pthread_mutex_lock(&io->lock);
        while (i < REGISTERED_MOST && u->buffer[i].memory)
            i++;
        if (i < REGISTERED_MOST)
            set_buffer(u, i, memory, n);
        pthread_mutex_unlock(&io->lock);
        memory += n;
        left -= n;
    }
    return NULL;
}

/* Waits for the thread that registers; with `stop` it leaves the rest. */
static void end_registering(struct io_ring *u, bool stop)
{
    if (!u->is_registering)
        return;
    atomic_store(&u->stop_registering, stop);
    pthread_join(u->registrar, NULL);
    u->is_registering = false;
}

static void remember(struct io *io, void *memory, size_t bytes)
{
    struct io_ring *u = io->ring;
    end_registering(u, false);
    pthread_mutex_lock(&io->lock);
    bool may = u->has_buffers && may_pin(u, bytes);
    bool note = !may && !u->was_noted;
    u->was_noted |= note;
    pthread_mutex_unlock(&io->lock);
    if (note)
        log_detail("the limit of locked memory is too low to register the arena for reading");
    if (!may || !bytes)
        return;
    u->memory = memory;
    u->bytes = bytes;
    atomic_store(&u->stop_registering, false);
    u->is_registering = !thread_start(&u->registrar, NULL, register_memory, io);
}

/* The pieces of one block lie one after the other. */
static void forget(struct io *io, void *memory)
{
    struct io_ring *u = io->ring;
    end_registering(u, true);
    pthread_mutex_lock(&io->lock);
    for (int i = 0; i < REGISTERED_MOST; i++)
        if (u->buffer[i].memory && u->buffer[i].memory == (const char *)memory) {
            memory = (char *)memory + u->buffer[i].bytes;
            set_buffer(u, i, NULL, 0);
        }
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
    end_registering(u, true);
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
        return read_with_threads(io, strerror(error), e);
    }
    io->ring = u;
    register_files(io);
    u->has_buffers = !io_uring_register_buffers_sparse(&u->ring, REGISTERED_MOST);
    error = start_reaper(io);
    u->is_reaping = !error;
    return !error || err_set(e, ERR_MEMORY, "the thread of the I/O ring cannot be started: %s",
                             strerror(error));
}

const struct io_engine io_engine_uring = {.name = "uring",
                                          .start = start,
                                          .stop = stop,
                                          .kick = kick,
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
