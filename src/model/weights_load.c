/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the trunk: several threads, each with one read under way, since a drive reaches its rate
 * only with some. What a pass needs first is read first, so that it can begin before the last is
 * there. Reads go past the page cache where they can, so that the trunk does not fill what the plan
 * gave away. Runs of matrices are read straight to their place where memory is the host's; vectors,
 * and matrices whose rows change places, by way of a piece of each thread's. */
#include <errno.h>
#include <math.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "base/thread.h"
#include "model/weights.h"
#include "quant/quant.h"

enum { LOADERS = 8 };
#define PIECE_BYTES ((size_t)1 << 20) /* one read, */
#define ALIGN_MOST ((size_t)64 << 10) /* but for what it is too long at both ends */
#define PIECE_ROOM (PIECE_BYTES + 2 * ALIGN_MOST)
#define VALUES_AT_ONCE ((size_t)1 << 16) /* of a vector; a multiple of all blocks */
#define LOOK_US 20000 /* how often who waits looks whether that is still wanted */

/* What a loader takes at once: a piece of a run, a vector, or rows of a matrix that lie together in
 * the file. All of one stage. */
struct job {
    uint64_t number; /* in the order they are taken */
    const struct weight_run *run;
    uint64_t from, to; /* bytes of the file that are the run's */
    const struct weight_request *q; /* NULL: of a run */
    int64_t row, rows; /* of the matrix in memory */
};

struct loader {
    struct weights_loading *all;
    pthread_t thread;
    int part; /* whose direct descriptor is open, -1: none */
    int fd;   /* -1: buffered */
    size_t align;
    char *piece; /* PIECE_ROOM bytes, aligned, of which few are touched; behind them */
    float *values; /* [VALUES_AT_ONCE] */
};

struct weights_loading {
    struct weights *w;
    model_progress *progress; /* called by who waits */
    void *ctx;
    struct loader loader[LOADERS];
    int started;
    int64_t began_us;
    pthread_mutex_t lock; /* over all below, */
    pthread_cond_t told;  /* when a stage is there or nothing more will be */
    size_t next_run;
    uint64_t next_byte;  /* of it, from its first on */
    size_t next;         /* of what is in no run */
    int64_t next_row;    /* of it */
    uint64_t jobs, done; /* taken; bytes loaded */
    uint64_t *left;      /* [stages] bytes that are not loaded */
    int there;           /* stages before this one are loaded */
    bool stop;
    uint64_t failed; /* the first job, in order, that failed */
    struct err error;
};

#define MEMORY_EACH (PIECE_ROOM + VALUES_AT_ONCE * sizeof(float))

/* A piece of the next run: all but the first begin with a page. */
static void take_piece(struct weights_loading *a, struct job *j)
{
    const struct weight_run *run = &a->w->runs[a->next_run];
    j->run = run;
    j->from = run->from + a->next_byte;
    uint64_t most = PIECE_BYTES - j->from % WEIGHT_PAGE_BYTES;
    j->to = run->to - j->from > most ? j->from + most : run->to;
    a->next_byte = j->to - run->from;
    if (j->to == run->to) {
        a->next_run++;
        a->next_byte = 0;
    }
}

static void take_request(struct weights_loading *a, struct job *j)
{
    const struct weight_request *q = a->w->rest[a->next];
    j->q = q;
    j->row = a->next_row;
    if (q->matrix) {
        int64_t most = (int64_t)(PIECE_BYTES / (q->file->bytes / q->file->ne[1]));
        int64_t left = q->rows - j->row;
        most = most < 1 ? 1 : most < left ? most : left;
        for (j->rows = 1; j->rows < most; j->rows++)
            if (q->row_of[j->row + j->rows] != q->row_of[j->row] + j->rows)
                break;
    }
    a->next_row += j->rows;
    if (!q->matrix || a->next_row == q->rows) {
        a->next++;
        a->next_row = 0;
    }
}

static bool take_job(struct weights_loading *a, struct job *j)
{
    const struct weights *w = a->w;
    pthread_mutex_lock(&a->lock);
    *j = (struct job){.number = a->jobs};
    bool has_run = a->next_run < w->n_runs, has_rest = a->next < w->n_rest;
    if (!a->stop && has_run && (!has_rest || w->runs[a->next_run].stage <= w->rest[a->next]->stage))
        take_piece(a, j);
    else if (!a->stop && has_rest)
        take_request(a, j);
    bool is_there = j->run || j->q;
    a->jobs += is_there;
    pthread_mutex_unlock(&a->lock);
    return is_there;
}

static uint64_t request_bytes(const struct weight_request *q, int64_t rows)
{
    return q->matrix ? (uint64_t)rows * (q->file->bytes / q->file->ne[1]) : q->count * sizeof(float);
}

static void note_done(struct weights_loading *a, const struct job *j)
{
    uint64_t bytes = j->run ? j->to - j->from : request_bytes(j->q, j->rows);
    pthread_mutex_lock(&a->lock);
    a->done += bytes;
    a->left[j->run ? j->run->stage : j->q->stage] -= bytes;
    int before = a->there;
    while (a->there < a->w->stages && !a->left[a->there])
        a->there++;
    if (a->there > before)
        pthread_cond_broadcast(&a->told);
    if (a->there > before && a->there == a->w->stages)
        a->w->read_us = (uint64_t)(clock_us() - a->began_us);
    pthread_mutex_unlock(&a->lock);
}

/* Nobody begins another job. All jobs before this one were taken, so which error is told does not
 * depend on which thread was faster. */
static void note_failure(struct weights_loading *a, uint64_t number, const struct err *e)
{
    pthread_mutex_lock(&a->lock);
    if (!a->stop || number < a->failed) {
        a->error = *e;
        a->failed = number;
    }
    a->stop = true;
    pthread_cond_broadcast(&a->told);
    pthread_mutex_unlock(&a->lock);
}

static const char *path_of(const struct loader *r, const struct gguf_tensor *t)
{
    return gguf_part_path(r->all->w->file, t->part);
}

/* Opens the descriptor of a part; r->fd stays -1 where there is no direct I/O, and where another file
 * has taken the part's name. */
static void open_part(struct loader *r, int part)
{
    if (part == r->part)
        return;
    if (r->fd >= 0)
        file_close(r->fd);
    const struct gguf_file *g = r->all->w->file;
    r->fd = file_open_direct(gguf_part_path(g, part), &r->align);
    if (r->fd >= 0 && (r->align > ALIGN_MOST || !file_is_same(r->fd, gguf_part_fd(g, part)))) {
        file_close(r->fd);
        r->fd = -1;
    }
    r->part = part;
}

/* The bytes from `from` to `to` of the part that is open; before and after them what else lies in
 * the first and last multiple of the alignment. What does not come past the page cache (the file is
 * shorter now, or the system opens files for it and then does not read so) is read the ordinary way. */
static bool read_direct(struct loader *r, uint64_t from, uint64_t to, char *first, struct err *e)
{
    const struct gguf_file *g = r->all->w->file;
    uint64_t begin = from & ~(uint64_t)(r->align - 1);
    size_t skip = (size_t)(from - begin), need = (size_t)(to - begin);
    return file_read_direct(r->fd, begin, first - skip, mem_round_up(need, r->align), need) ||
           file_read_at(gguf_part_fd(g, r->part), gguf_part_path(g, r->part), from, first,
                        (size_t)(to - from), e);
}

/* `n` <= PIECE_BYTES bytes at `offset` of part `part`; *out points into the piece. */
static bool read_piece(struct loader *r, int part, uint64_t offset, size_t n, const char **out,
                       struct err *e)
{
    const struct gguf_file *g = r->all->w->file;
    open_part(r, part);
    if (r->fd < 0) {
        *out = r->piece;
        return file_read_at(gguf_part_fd(g, part), gguf_part_path(g, part), offset, r->piece, n, e);
    }
    char *first = r->piece + (offset & (r->align - 1));
    *out = first;
    return read_direct(r, offset, offset + n, first, e);
}

static bool load_piece(struct loader *r, const struct job *j, struct err *e)
{
    struct weights *w = r->all->w;
    int part = j->run->part;
    char *to = (char *)w->block + j->run->at + (j->from - j->run->from);
    open_part(r, part);
    const char *piece;
    if (!w->backend->host_visible || (r->fd >= 0 && r->align > WEIGHT_PAGE_BYTES))
        return read_piece(r, part, j->from, (size_t)(j->to - j->from), &piece, e) &&
               w->backend->write(w->backend, to, piece, (size_t)(j->to - j->from), e);
    if (r->fd >= 0) /* at both ends it writes where nothing else is: a run has its pages alone */
        return read_direct(r, j->from, j->to, to, e);
    return file_read_at(gguf_part_fd(w->file, part), gguf_part_path(w->file, part), j->from, to,
                        (size_t)(j->to - j->from), e);
}

static bool load_rows(struct loader *r, const struct job *j, struct err *e)
{
    struct weights *w = r->all->w;
    const struct weight_request *q = j->q;
    const struct gguf_tensor *t = q->file;
    uint64_t row_bytes = t->bytes / t->ne[1], n = (uint64_t)j->rows * row_bytes;
    uint64_t from = (uint64_t)q->row_of[j->row] * row_bytes;
    char *to = (char *)w->block + q->at + (uint64_t)j->row * row_bytes;
    const char *piece;
    for (uint64_t at = 0; at < n;) { /* once, unless a row is longer than a piece */
        size_t part = n - at < PIECE_BYTES ? (size_t)(n - at) : PIECE_BYTES;
        if (!read_piece(r, t->part, t->offset + from + at, part, &piece, e) ||
            !w->backend->write(w->backend, to + at, piece, part, e))
            return false;
        at += part;
    }
    return true;
}

static bool load_vector(struct loader *r, const struct weight_request *q, struct err *e)
{
    struct weights *w = r->all->w;
    const struct gguf_tensor *t = q->file;
    float *to = (float *)((char *)w->block + q->at);
    for (size_t at = 0; at < q->count; at += VALUES_AT_ONCE) {
        size_t n = q->count - at < VALUES_AT_ONCE ? q->count - at : VALUES_AT_ONCE;
        const char *piece;
        if (!read_piece(r, t->part, t->offset + tensor_row_bytes(t->type, at),
                        (size_t)tensor_row_bytes(t->type, n), &piece, e))
            return false;
        quant_decode(t->type, piece, r->values, n);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(r->values[i]))
                return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": value %zu is not finite",
                               path_of(r, t), t->name, at + i);
        if (!w->backend->write(w->backend, to + at, r->values, n * sizeof *to, e))
            return false;
    }
    return true;
}

/* An error of reading says whose weights they are, as that of a vector's value does. */
static void name_stage(const struct weights_loading *a, const struct job *j, struct err *e)
{
    int stage = j->run ? j->run->stage : j->q->stage;
    struct err why = *e;
    if (e->code != ERR_IO)
        return;
    err_clear(e);
    if (stage == WEIGHTS_FIRST)
        err_set(e, why.code, "weights before layer 0: %s", why.text);
    else if (stage == a->w->stages - 1)
        err_set(e, why.code, "weights of the head: %s", why.text);
    else
        err_set(e, why.code, "weights of layer %d: %s", stage - weights_stage_of_layer(0), why.text);
}

/* Does jobs until none is left. */
static void *load_jobs(void *loader)
{
    struct loader *r = loader;
    struct job j;
    while (take_job(r->all, &j)) {
        struct err e;
        err_clear(&e);
        bool ok = j.run         ? load_piece(r, &j, &e)
                  : j.q->matrix ? load_rows(r, &j, &e)
                                : load_vector(r, j.q, &e);
        if (ok) {
            note_done(r->all, &j);
        } else {
            name_stage(r->all, &j, &e);
            note_failure(r->all, j.number, &e);
        }
    }
    return NULL;
}

/* ---- Beginning, waiting, ending -------------------------------------------------------------- */

static void count_left(struct weights_loading *a)
{
    const struct weights *w = a->w;
    for (size_t i = 0; i < w->n_runs; i++)
        a->left[w->runs[i].stage] += w->runs[i].to - w->runs[i].from;
    for (size_t i = 0; i < w->n_rest; i++)
        a->left[w->rest[i]->stage] += request_bytes(w->rest[i], w->rest[i]->rows);
    while (a->there < w->stages && !a->left[a->there])
        a->there++;
}

/* Where everything will be. */
static void point_at_places(struct weights *w)
{
    for (size_t i = 0; i < w->n; i++) {
        struct weight_request *q = &w->requests[i];
        if (q->matrix)
            q->matrix->data = (char *)w->block + q->at;
        else
            *q->vector = (float *)((char *)w->block + q->at);
    }
}

static struct weights_loading *create(struct weights *w, struct err *e)
{
    struct weights_loading *a = mem_alloc(sizeof *a, "reading the trunk", e);
    if (!a)
        return NULL;
    a->w = w;
    err_clear(&a->error);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* that of clock_us */
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->told, &clock);
    pthread_condattr_destroy(&clock);
    for (int i = 0; i < LOADERS; i++)
        a->loader[i] = (struct loader){.all = a, .part = -1, .fd = -1};
    return a;
}

static bool take_memory(struct weights_loading *a, struct err *e)
{
    a->left = mem_alloc_array((size_t)a->w->stages, sizeof *a->left, "reading the trunk", e);
    for (int i = 0; a->left && i < LOADERS; i++) {
        char *memory = mem_map(MEMORY_EACH, "reading the trunk", e);
        if (!memory)
            return false;
        a->loader[i].piece = memory;
        a->loader[i].values = (float *)(memory + PIECE_ROOM);
    }
    return a->left;
}

bool weights_load(struct weights *w, struct backend *b, model_progress *progress, void *ctx,
                  struct err *e)
{
    w->backend = b;
    w->block = b->alloc(b, w->block_bytes, "the trunk's weights", e);
    struct weights_loading *a = w->loading = w->block ? create(w, e) : NULL;
    if (!a || !take_memory(a, e))
        return false;
    a->progress = progress;
    a->ctx = ctx;
    a->began_us = clock_us();
    count_left(a);
    point_at_places(w);
    while (a->started < LOADERS && /* fewer are slower, not wrong */
           !thread_start(&a->loader[a->started].thread, NULL, load_jobs, &a->loader[a->started]))
        a->started++;
    if (!a->started)
        load_jobs(&a->loader[0]);
    return weights_wait(w, -1, NULL, e);
}

/* Until no thread reads any more. */
static void join(struct weights_loading *a)
{
    for (int i = 0; i < a->started; i++)
        pthread_join(a->loader[i].thread, NULL);
    a->started = 0;
    for (int i = 0; i < LOADERS; i++) {
        if (a->loader[i].fd >= 0)
            file_close(a->loader[i].fd);
        a->loader[i].fd = -1;
    }
}

void weights_stop(struct weights *w)
{
    struct weights_loading *a = w->loading;
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_mutex_unlock(&a->lock);
    join(a);
    pthread_cond_destroy(&a->told);
    pthread_mutex_destroy(&a->lock);
    for (int i = 0; i < LOADERS; i++)
        mem_unmap(a->loader[i].piece, MEMORY_EACH);
    mem_free(a->left);
    mem_free(a);
    w->loading = NULL;
}

/* Sleeps until something was told, or it is time to look around. The lock is held. */
static void sleep_a_little(struct weights_loading *a)
{
    int64_t until = clock_us() + LOOK_US;
    struct timespec t = {.tv_sec = until / 1000000, .tv_nsec = until % 1000000 * 1000};
    pthread_cond_timedwait(&a->told, &a->lock, &t);
}

/* Whether those who wait and those who see the progress still want it. */
static bool is_wanted(struct weights_loading *a, uint64_t done, const atomic_bool *cancel,
                      struct err *e)
{
    if (cancel && atomic_load(cancel))
        return err_set(e, ERR_INTERRUPTED, "interrupted");
    if (!a->progress || a->progress(a->ctx, done, a->w->block_bytes))
        return true;
    err_set(e, ERR_INTERRUPTED, "%s: loading was interrupted", gguf_part_path(a->w->file, 0));
    note_failure(a, UINT64_MAX, e);
    return true; /* what a loader found counts more */
}

bool weights_wait(struct weights *w, int stage, const atomic_bool *cancel, struct err *e)
{
    struct weights_loading *a = w->loading;
    if (!a)
        return true;
    int64_t began = clock_us();
    bool wanted = true, is_late = false;
    stage = stage < w->stages ? stage : w->stages - 1;
    pthread_mutex_lock(&a->lock);
    do {
        uint64_t done = a->done;
        if (is_late)
            sleep_a_little(a);
        pthread_mutex_unlock(&a->lock);
        wanted = is_wanted(a, done, cancel, e);
        pthread_mutex_lock(&a->lock);
        is_late = true;
    } while (wanted && !a->stop && a->there <= stage);
    bool failed = a->stop, is_all = a->there == w->stages;
    pthread_mutex_unlock(&a->lock);
    w->waited_us += (uint64_t)(clock_us() - began);
    if (!wanted)
        return false;
    if (failed) {
        join(a);
        *e = a->error;
        return false;
    }
    if (!is_all)
        return true;
    weights_stop(w);
    return w->backend->finish(w->backend, e);
}
