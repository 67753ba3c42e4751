/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the trunk: several threads, each with one read under way, since a drive reaches its rate
 * only with some. Reads go past the page cache where they can, so that the trunk does not fill what
 * the plan gave away. Runs of matrices are read straight to their place where memory is the
 * backend's; vectors, and matrices whose rows change places, by way of a piece of each thread's. */
#include <math.h>
#include <pthread.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "base/thread.h"
#include "model/weights.h"
#include "quant/quant.h"

enum { LOADERS = 8 };
#define PIECE_BYTES ((size_t)1 << 20) /* one read, */
#define ALIGN_MOST ((size_t)64 << 10) /* but for what it is too long at both ends */

/* What a loader takes at once: a piece of a run, a vector, or rows of a matrix that lie together in
 * the file. */
struct job {
    uint64_t number; /* in the order they are taken */
    const struct weight_run *run;
    uint64_t from, to; /* bytes of the file that are the run's */
    const struct weight_request *q; /* NULL: of a run */
    int64_t row, rows; /* of the matrix in memory */
};

struct loading {
    struct weights *w;
    pthread_mutex_t lock; /* over all below */
    size_t next_run;
    uint64_t next_byte;   /* of it, from its first on */
    size_t next;          /* request that is in no run */
    int64_t next_row;     /* of it */
    uint64_t jobs, done;  /* taken; bytes loaded */
    bool stop;
    uint64_t failed; /* the first job, in order, that failed */
    struct err error;
};

struct loader {
    struct loading *all;
    pthread_t thread;
    int part; /* whose direct descriptor is open, -1: none */
    int fd;   /* -1: buffered */
    size_t align;
    char *piece; /* PIECE_BYTES + 2 * ALIGN_MOST bytes, aligned */
};

/* A piece of the next run: all but the first begin with a page. */
static void take_piece(struct loading *a, struct job *j)
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

static void take_request(struct loading *a, struct job *j)
{
    const struct weight_request *q = &a->w->requests[a->next];
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

static bool take_job(struct loading *a, struct job *j)
{
    pthread_mutex_lock(&a->lock);
    *j = (struct job){.number = a->jobs};
    if (!a->stop && a->next_run < a->w->n_runs) {
        take_piece(a, j);
    } else if (!a->stop) {
        while (a->next < a->w->n && weight_is_in_run(&a->w->requests[a->next]))
            a->next++;
        if (a->next < a->w->n)
            take_request(a, j);
    }
    bool is_there = j->run || j->q;
    a->jobs += is_there;
    pthread_mutex_unlock(&a->lock);
    return is_there;
}

/* Bytes loaded by all so far. */
static uint64_t note_done(struct loading *a, size_t bytes)
{
    pthread_mutex_lock(&a->lock);
    uint64_t done = a->done += bytes;
    pthread_mutex_unlock(&a->lock);
    return done;
}

/* Nobody begins another job. All jobs before this one were taken, so which error is told does not
 * depend on which thread was faster. */
static void note_failure(struct loading *a, uint64_t number, const struct err *e)
{
    pthread_mutex_lock(&a->lock);
    if (!a->stop || number < a->failed) {
        a->error = *e;
        a->failed = number;
    }
    a->stop = true;
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
    uint64_t rows = q->count / t->ne[0], row_bytes = t->bytes / rows;
    float *values = mem_alloc_array(q->count, sizeof *values, t->name, e);
    bool ok = values != NULL;
    if (ok && row_bytes > PIECE_BYTES)
        ok = err_set(e, ERR_FORMAT, "%s: tensor \"%s\": a row of %llu bytes is too long for a vector",
                     path_of(r, t), t->name, (unsigned long long)row_bytes);
    uint64_t at_once = ok ? PIECE_BYTES / row_bytes : 1;
    for (uint64_t i = 0; ok && i < rows; i += at_once) {
        uint64_t n = rows - i < at_once ? rows - i : at_once;
        const char *piece;
        ok = read_piece(r, t->part, t->offset + i * row_bytes, (size_t)(n * row_bytes), &piece, e);
        if (ok)
            quant_decode(t->type, piece, values + i * t->ne[0], n * t->ne[0]);
    }
    for (size_t i = 0; ok && i < q->count; i++)
        if (!isfinite(values[i]))
            ok = err_set(e, ERR_FORMAT, "%s: tensor \"%s\": value %zu is not finite", path_of(r, t),
                         t->name, i);
    ok = ok && w->backend->write(w->backend, to, values, q->count * sizeof *values, e);
    mem_free(values);
    return ok;
}

static uint64_t job_bytes(const struct job *j)
{
    if (j->run)
        return j->to - j->from;
    const struct gguf_tensor *t = j->q->file;
    return j->q->matrix ? (uint64_t)j->rows * (t->bytes / t->ne[1]) : j->q->count * sizeof(float);
}

/* Does jobs until none is left. The calling thread tells `progress`, which may end it. */
static void load_jobs(struct loader *r, model_progress *progress, void *ctx)
{
    struct loading *a = r->all;
    struct job j;
    while (take_job(a, &j)) {
        struct err e;
        err_clear(&e);
        bool ok = j.run         ? load_piece(r, &j, &e)
                  : j.q->matrix ? load_rows(r, &j, &e)
                                : load_vector(r, j.q, &e);
        uint64_t done = ok ? note_done(a, job_bytes(&j)) : 0;
        if (ok && progress && !progress(ctx, done, a->w->block_bytes))
            ok = err_set(&e, ERR_INTERRUPTED, "%s: loading was interrupted",
                         gguf_part_path(a->w->file, 0));
        if (!ok)
            note_failure(a, j.number, &e);
    }
}

static void *loader_main(void *arg)
{
    load_jobs(arg, NULL, NULL);
    return NULL;
}

bool weights_load(struct weights *w, struct backend *b, model_progress *progress, void *ctx,
                  struct err *e)
{
    w->backend = b;
    w->block = b->alloc(b, w->block_bytes, "the trunk's weights", e);
    size_t each = PIECE_BYTES + 2 * ALIGN_MOST;
    char *pieces = w->block ? mem_map(LOADERS * each, "reading the trunk", e) : NULL;
    if (!pieces)
        return false;
    struct loading all = {.w = w};
    err_clear(&all.error);
    pthread_mutex_init(&all.lock, NULL);
    struct loader loader[LOADERS];
    int started = 0;
    for (int i = 0; i < LOADERS; i++)
        loader[i] = (struct loader){.all = &all, .part = -1, .fd = -1, .piece = pieces + i * each};
    while (started < LOADERS - 1 && /* fewer are slower, not wrong */
           !thread_start(&loader[1 + started].thread, NULL, loader_main, &loader[1 + started]))
        started++;
    load_jobs(&loader[0], progress, ctx);
    for (int i = 0; i < started; i++)
        pthread_join(loader[1 + i].thread, NULL);
    for (int i = 0; i < LOADERS; i++)
        if (loader[i].fd >= 0)
            file_close(loader[i].fd);
    pthread_mutex_destroy(&all.lock);
    mem_unmap(pieces, LOADERS * each);
    if (all.stop) {
        *e = all.error;
        return false;
    }
    for (size_t i = 0; i < w->n; i++) {
        struct weight_request *q = &w->requests[i];
        if (q->matrix)
            q->matrix->data = (char *)w->block + q->at;
        else
            *q->vector = (float *)((char *)w->block + q->at);
    }
    if (progress && !progress(ctx, all.done, w->block_bytes))
        return err_set(e, ERR_INTERRUPTED, "%s: loading was interrupted", gguf_part_path(w->file, 0));
    return b->finish(b, e);
}
