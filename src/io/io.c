/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/engine.h"

struct io_queue {
    struct io *io;
    struct io_request *request; /* [most] */
    int most;
    struct io_request **by_tag; /* [tags] outstanding requests, guarded by io->lock; or NULL */
    size_t tags;
    pthread_cond_t done_wake;
    struct io_list done;      /* guarded by io->lock */
    struct io_request *spare; /* guarded by io->lock */
    bool is_closing;          /* guarded by io->lock */
    int outstanding;          /* of the owner's thread alone */
};

/* ---- lists ---- */

void io_list_append(struct io_list *l, struct io_request *r)
{
    r->before = l->last;
    r->after = NULL;
    *(l->last ? &l->last->after : &l->first) = r;
    l->last = r;
}

void io_list_remove(struct io_list *l, struct io_request *r)
{
    *(r->before ? &r->before->after : &l->first) = r->after;
    *(r->after ? &r->after->before : &l->last) = r->before;
}

/* ---- files ---- */

/* Some file systems open for direct I/O and then refuse to read. */
static bool direct_works(int fd, size_t align)
{
    void *block = mem_map(align, "one block", NULL);
    ssize_t r = block ? pread(fd, block, align, 0) : -1;
    mem_unmap(block, align);
    return r >= 0;
}

static bool open_file(struct io *io, struct io_file *f, const char *path, struct err *e)
{
    f->path = mem_copy_text(path, strlen(path), e);
    if (f->path && io->options.fake_bytes) {
        f->bytes = io->options.fake_bytes;
        f->align = (size_t)sysconf(_SC_PAGESIZE);
        return true;
    }
    f->fd = f->path ? file_open(path, &f->bytes, e) : -1;
    if (f->fd < 0)
        return false;
    f->align = (size_t)sysconf(_SC_PAGESIZE); /* whole pages, so that they can be dropped */
    if (io->options.buffered)
        return true;
    size_t align;
    f->direct_fd = file_open_direct(path, &align);
    if (f->direct_fd >= 0 &&
        (!direct_works(f->direct_fd, align) || !file_is_same(f->direct_fd, f->fd))) {
        close(f->direct_fd);
        f->direct_fd = -1;
    }
    if (f->direct_fd >= 0)
        f->align = align;
    return true;
}

static const char *path_of(const struct io *io, const char *const *paths, int i)
{
    return i < io->files ? paths[i] : io->options.copy_paths[i - io->files];
}

/* A copy must be as long as the file; its bytes are believed to be the same. */
static bool check_copy(const struct io *io, int i, struct err *e)
{
    const struct io_file *f = &io->file[i], *original = &io->file[i % io->files];
    return f->bytes == original->bytes ||
           err_set(e, ERR_FORMAT,
                   "%s: %llu bytes, but the file it is to be a copy of, %s, has %llu", f->path,
                   (unsigned long long)f->bytes, original->path,
                   (unsigned long long)original->bytes);
}

static bool open_files(struct io *io, const char *const *paths, int n, struct err *e)
{
    io->files = n;
    io->copies = 1 + io->options.copies;
    if (io->copies > IO_COPIES)
        return err_set(e, ERR_USAGE, "%d copies of the model; at most %d can be used",
                       io->options.copies, IO_COPIES - 1);
    static atomic_bool said;
    int all = n * io->copies;
    io->file = mem_alloc_array((size_t)all, sizeof *io->file, "files", e);
    if (!io->file)
        return false;
    for (int i = 0; i < all; i++) {
        struct io_file *f = &io->file[i];
        f->fd = f->direct_fd = -1;
        io->opened = i + 1; /* what is half open is closed with the rest */
        if (!open_file(io, f, path_of(io, paths, i), e) || !check_copy(io, i, e))
            return false;
        io->align = f->align > io->align ? f->align : io->align;
        if (f->direct_fd < 0 && !io->options.buffered && !io->options.fake_bytes)
            log_note_once(&said,
                          "%s: no direct I/O on this file system; experts pass through the page "
                          "cache, which is slower: keep the model on a local drive",
                          f->path);
    }
    return true;
}

static void close_files(struct io *io)
{
    for (int i = 0; i < io->opened; i++) {
        struct io_file *f = &io->file[i];
        if (f->fd >= 0)
            close(f->fd);
        if (f->direct_fd >= 0)
            close(f->direct_fd);
        mem_free(f->path);
    }
    mem_free(io->file);
}

size_t io_align(const struct io *io)
{
    return io->align;
}

uint64_t io_file_bytes(const struct io *io, int file)
{
    assert(file >= 0 && file < io->files);
    return io->file[file].bytes;
}

const char *io_file_path(const struct io *io, int file)
{
    assert(file >= 0 && file < io->files);
    return io->file[file].path;
}

bool io_is_direct(const struct io *io, int file)
{
    assert(file >= 0 && file < io->files);
    return io->file[file].direct_fd >= 0;
}

bool io_is_of_file(const struct io *io, int file, int fd)
{
    assert(file >= 0 && file < io->files);
    return io->file[file].fd < 0 || file_is_same(io->file[file].fd, fd);
}

/* ---- creation ---- */

struct io_options io_options_filled(const struct io_options *o)
{
    struct io_options d = o ? *o : (struct io_options){0};
    if (!d.engine || d.drive)
        d.engine = d.drive ? "virtual" : d.pread ? "pread" : "uring";
    if (d.depth <= 0)
        d.depth = 8;
    if (d.ahead_kept <= 0)
        d.ahead_kept = 2;
    if (d.ahead_kept >= d.depth)
        d.ahead_kept = d.depth - 1;
    if (d.rows_depth <= 0)
        d.rows_depth = 24;
    return d;
}

static bool start_engine(struct io *io, struct err *e)
{
    static const struct io_engine *const engines[] = {&io_engine_uring, &io_engine_pread,
                                                      &io_engine_sim, &io_engine_fake};
    const char *text = io->options.engine, *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (io->options.drive) {
        io->engine = &io_engine_virtual;
        return io->engine->start(io, NULL, e);
    }
    if (io->options.fake_bytes && strcmp(text, "fake"))
        return err_set(e, ERR_USAGE, "the I/O engine %s cannot read from files that are not there",
                       text);
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (strlen(engines[i]->name) == n && !memcmp(engines[i]->name, text, n)) {
            io->engine = engines[i];
            return io->engine->start(io, colon ? colon + 1 : NULL, e);
        }
    return err_set(e, ERR_USAGE, "--io: \"%s\" is not one of uring, pread, sim and fake", text);
}

void io_drive_through(const struct io *io, struct io_drive *d)
{
    if (io->engine == &io_engine_fake)
        *d = (struct io_drive){0};
    else if (io->engine == &io_engine_sim)
        io_sim_slow_down(io, d);
}

struct io *io_create(const char *const *paths, int n, const struct io_options *o, struct err *e)
{
    struct io *io = mem_alloc(sizeof *io, "I/O", e);
    if (!io)
        return NULL;
    io->options = io_options_filled(o);
    io->align = 1;
    pthread_mutex_init(&io->lock, NULL);
    pthread_cond_init(&io->work, NULL);
    if (!open_files(io, paths, n, e) || !start_engine(io, e)) {
        io_close(io);
        return NULL;
    }
    io->options.engine = NULL; /* the caller's */
    io->options.copy_paths = NULL;
    io->options.drive = NULL;
    return io;
}

void io_close(struct io *io)
{
    if (!io)
        return;
    if (io->engine)
        io->engine->stop(io);
    close_files(io);
    pthread_cond_destroy(&io->work);
    pthread_mutex_destroy(&io->lock);
    mem_free(io);
}

struct io_queue *io_queue_create(struct io *io, int most, struct err *e)
{
    struct io_queue *q = mem_alloc(sizeof *q, "I/O queue", e);
    if (!q)
        return NULL;
    q->request = mem_alloc_array((size_t)most, sizeof *q->request, "I/O requests", e);
    if (!q->request) {
        mem_free(q);
        return NULL;
    }
    q->io = io;
    q->most = most;
    for (int i = most - 1; i >= 0; i--) {
        q->request[i].after = q->spare;
        q->spare = &q->request[i];
    }
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&q->done_wake, &clock);
    pthread_condattr_destroy(&clock);
    return q;
}

bool io_queue_index_tags(struct io_queue *q, size_t tags, struct err *e)
{
    q->by_tag = mem_alloc_array(tags, sizeof *q->by_tag, "I/O requests", e);
    q->tags = tags;
    return q->by_tag;
}

size_t io_queue_memory(int most, size_t tags)
{
    return sizeof(struct io_queue) + (size_t)most * sizeof(struct io_request) +
           tags * sizeof(struct io_request *) + 384;
}

int64_t io_now_us(const struct io *io)
{
    return io->engine && io->engine->now_us ? io->engine->now_us(io) : clock_us();
}

const char *io_engine_name(const struct io *io)
{
    return io->engine->name;
}

void io_remember_memory(struct io *io, void *memory, size_t bytes)
{
    if (io->engine->remember)
        io->engine->remember(io, memory, bytes);
}

void io_forget_memory(struct io *io, void *memory, size_t bytes)
{
    if (io->engine->forget)
        io->engine->forget(io, memory, bytes);
}

bool io_expect_memory(struct io *io, size_t bytes)
{
    return !io->engine->expect || io->engine->expect(io, bytes);
}

/* ---- the engine's side ---- */

void io_publish(struct io_request *r)
{
    io_list_append(&r->queue->done, r);
    pthread_cond_signal(&r->queue->done_wake);
}

bool io_is_given_up(const struct io_request *r)
{
    return r->queue->is_closing;
}

/* ---- the owner's side ---- */

void io_submit(struct io_queue *q, enum io_lane lane, int file, uint64_t offset, size_t length,
               void *to, uint64_t tag)
{
    struct io *io = q->io;
    assert(file >= 0 && file < io->files && q->outstanding < q->most && length);
    assert(!((offset | length | (uintptr_t)to) & (io->align - 1)));
    q->outstanding++;
    pthread_mutex_lock(&io->lock);
    struct io_request *r = q->spare;
    q->spare = r->after;
    *r = (struct io_request){.queue = q,
                             .lane = lane,
                             .file = file,
                             .offset = offset,
                             .length = length,
                             .to = to,
                             .tag = tag,
                             .is_waiting = true};
    assert(!q->by_tag || (tag < q->tags && !q->by_tag[tag]));
    if (q->by_tag)
        q->by_tag[tag] = r;
    io_list_append(&io->lane[lane], r);
    io_note_wanted(io);
    io->engine->kick(io);
    if (io->engine->asked)
        io->engine->asked(io, length);
    pthread_mutex_unlock(&io->lock);
}

/* A request of q that has not started; the lock is held. */
static struct io_request *find_waiting(struct io_queue *q, uint64_t tag)
{
    if (q->by_tag)
        return q->by_tag[tag] && q->by_tag[tag]->is_waiting ? q->by_tag[tag] : NULL;
    for (int lane = 0; lane < IO_LANES; lane++)
        for (struct io_request *r = q->io->lane[lane].first; r; r = r->after)
            if (r->queue == q && r->tag == tag)
                return r;
    return NULL;
}

bool io_is_waiting(struct io_queue *q, uint64_t tag)
{
    pthread_mutex_lock(&q->io->lock);
    bool is_waiting = find_waiting(q, tag);
    pthread_mutex_unlock(&q->io->lock);
    return is_waiting;
}

static void make_spare(struct io_queue *q, struct io_request *r)
{
    if (q->by_tag)
        q->by_tag[r->tag] = NULL;
    r->after = q->spare;
    q->spare = r;
    q->outstanding--;
}

bool io_hurry(struct io_queue *q, uint64_t tag)
{
    struct io *io = q->io;
    pthread_mutex_lock(&io->lock);
    struct io_request *r = find_waiting(q, tag);
    if (r) {
        io_list_remove(&io->lane[r->lane], r);
        r->lane = IO_URGENT;
        io_list_append(&io->lane[IO_URGENT], r);
        io->engine->kick(io);
    }
    pthread_mutex_unlock(&io->lock);
    return r;
}

bool io_cancel(struct io_queue *q, uint64_t tag)
{
    pthread_mutex_lock(&q->io->lock);
    struct io_request *r = find_waiting(q, tag);
    if (r) {
        io_list_remove(&q->io->lane[r->lane], r);
        make_spare(q, r);
        io_note_wanted(q->io);
    }
    pthread_mutex_unlock(&q->io->lock);
    return r;
}

/* The time `ms` milliseconds from now on the clock of done_wake. */
static struct timespec after_ms(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ms % 1000 * 1000000L;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Waits for a completion for `ms` milliseconds, without an end if negative. */
static int collect(struct io_queue *q, struct io_completion *out, int most, int ms)
{
    if (!q->outstanding)
        return 0;
    struct timespec until = ms > 0 ? after_ms(ms) : (struct timespec){0};
    int n = 0, error = 0;
    bool (*wait_virtually)(struct io * io, int ms) = q->io->engine->wait;
    pthread_mutex_lock(&q->io->lock);
    while (ms && wait_virtually && !q->done.first && wait_virtually(q->io, ms))
        ;
    while (ms && !wait_virtually && !q->done.first && !error)
        error = ms < 0 ? pthread_cond_wait(&q->done_wake, &q->io->lock)
                       : pthread_cond_timedwait(&q->done_wake, &q->io->lock, &until);
    while (n < most && q->done.first) {
        struct io_request *r = q->done.first;
        io_list_remove(&q->done, r);
        out[n++] = (struct io_completion){.tag = r->tag,
                                          .file = r->copy * q->io->files + r->file,
                                          .offset = r->offset,
                                          .bytes = r->bytes,
                                          .error = r->error};
        make_spare(q, r);
    }
    pthread_mutex_unlock(&q->io->lock);
    return n;
}

int io_poll(struct io_queue *q, struct io_completion *out, int most)
{
    return collect(q, out, most, 0);
}

int io_wait(struct io_queue *q, struct io_completion *out, int most)
{
    return collect(q, out, most, -1);
}

int io_wait_for(struct io_queue *q, struct io_completion *out, int most, int ms)
{
    return collect(q, out, most, ms > 0 ? ms : 0);
}

int io_outstanding(const struct io_queue *q)
{
    return q->outstanding;
}

void io_queue_close(struct io_queue *q)
{
    if (!q)
        return;
    struct io *io = q->io;
    pthread_mutex_lock(&io->lock);
    q->is_closing = true;
    for (int lane = 0; lane < IO_LANES; lane++)
        for (struct io_request *r = io->lane[lane].first, *after; r; r = after) {
            after = r->after;
            if (r->queue == q) {
                io_list_remove(&io->lane[lane], r);
                make_spare(q, r);
            }
        }
    io_note_wanted(io);
    if (io->engine->let_go)
        io->engine->let_go(io);
    pthread_mutex_unlock(&io->lock);
    struct io_completion c;
    while (io_wait(q, &c, 1))
        ;
    pthread_cond_destroy(&q->done_wake);
    mem_free(q->by_tag);
    mem_free(q->request);
    mem_free(q);
}

bool io_explain(const struct io *io, const struct io_completion *c, struct err *e)
{
    const struct io_file *f = &io->file[c->file];
    if (c->error == IO_SHORT)
        return err_set(
            e, ERR_IO,
            "%s: reading at %llu: the file ends after %zu bytes; it had %llu in all when "
            "it was opened",
            f->path, (unsigned long long)c->offset, c->bytes, (unsigned long long)f->bytes);
    return err_set(e, ERR_IO, "%s: reading at %llu: %s", f->path, (unsigned long long)c->offset,
                   strerror(c->error));
}
