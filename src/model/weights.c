/* SPDX-License-Identifier: Apache-2.0 */
#include "model/weights.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "gguf/join.h"

#define NAME_BYTES 96
#define VOCABULARY_MOST (1 << 24)

void weights_init(struct weights *w, const struct gguf_file *g)
{
    *w = (struct weights){.file = g};
}

void weights_free(struct weights *w)
{
    weights_stop(w);
    if (w->block)
        w->backend->release(w->backend, w->block, w->block_bytes);
    for (size_t i = 0; i < w->n; i++)
        mem_free(w->requests[i].row_of);
    mem_free(w->requests);
    mem_free(w->runs);
    mem_free(w->rest);
    *w = (struct weights){0};
}

void weights_free_scales(struct weight_scales *s)
{
    mem_free(s->values);
    *s = (struct weight_scales){0};
}

static const char *path_of(const struct weights *w, const struct gguf_tensor *t)
{
    return gguf_part_path(w->file, t->part);
}

static const struct gguf_tensor *need(struct weights *w, const char *name, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_find(w->file, name);
    if (!t)
        err_set(e, ERR_FORMAT, "%s: tensor \"%s\" is missing", gguf_home_path(w->file, name), name);
    else if (!tensor_type_info(t->type)->is_weight) {
        err_set(e, ERR_FORMAT, "%s: tensor \"%s\": type %s is no weight type", path_of(w, t), name,
                tensor_type_info(t->type)->name);
        return NULL;
    }
    return t;
}

static bool wrong_shape(const struct weights *w, const struct gguf_tensor *t, const char *wanted,
                        struct err *e)
{
    return err_set(e, ERR_FORMAT,
                   "%s: tensor \"%s\": shape [%llu, %llu, %llu, %llu] does not fit the "
                   "hyper-parameters, expected %s",
                   path_of(w, t), t->name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                   (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], wanted);
}

/* "blk.7.attn_qkv.weight" -> "attn_qkv": the same pointer for all layers. */
static const char *kind_of(struct weights *w, const char *name)
{
    int skip = 0;
    sscanf(name, "blk.%*d.%n", &skip);
    size_t n = strlen(name + skip);
    if (n > 7 && !strcmp(name + skip + n - 7, ".weight"))
        n -= 7;
    if (n >= WEIGHT_KIND_BYTES)
        n = WEIGHT_KIND_BYTES - 1;
    for (int i = 0; i < w->n_kinds; i++)
        if (!strncmp(w->kinds[i], name + skip, n) && !w->kinds[i][n])
            return w->kinds[i];
    if (w->n_kinds == WEIGHT_KINDS_MOST)
        return NULL;
    memcpy(w->kinds[w->n_kinds], name + skip, n);
    return w->kinds[w->n_kinds++];
}

/* A layer looks at routers of the layers behind it, never at anything else of theirs: weights_wait is
 * asked for these too. What no layer's name tells is taken to be needed first. */
static int stage_of(const char *name)
{
    int layer;
    if (sscanf(name, "blk.%d.", &layer) == 1 && layer >= 0)
        return weights_stage_of_layer(layer);
    return strncmp(name, "output", 6) ? WEIGHTS_FIRST : WEIGHTS_ALL;
}

/* Notes a request. */
static struct weight_request *request(struct weights *w, const struct gguf_tensor *t, struct err *e)
{
    if (w->n == w->room) {
        size_t room = w->room ? 2 * w->room : 256;
        struct weight_request *r = mem_grow(w->requests, room * sizeof *r, "tensor list", e);
        if (!r)
            return NULL;
        w->requests = r;
        w->room = room;
    }
    struct weight_request *r = &w->requests[w->n++];
    *r = (struct weight_request){.file = t, .stage = stage_of(t->name)};
    return r;
}

/* Reads NAME.scale (or NAME.weight.scale) of a tensor called NAME.weight: `count` values, or one for
 * all. Leaves *out alone when the file has none. */
static bool read_scales(struct weights *w, const char *name, float *out, int count, bool *found,
                        struct err *e)
{
    char other[NAME_BYTES + 16];
    size_t n = strlen(name), stem = n > 7 && !strcmp(name + n - 7, ".weight") ? n - 7 : n;
    snprintf(other, sizeof other, "%.*s.scale", (int)stem, name);
    const struct gguf_tensor *t = gguf_tensor_find(w->file, other);
    if (!t) {
        snprintf(other, sizeof other, "%s.scale", name);
        t = gguf_tensor_find(w->file, other);
    }
    *found = t != NULL;
    if (!t)
        return true;
    uint64_t values = t->bytes / 4;
    if (t->type != TYPE_F32 || (values != 1 && values != (uint64_t)count))
        return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": expected 1 or %d values of type F32",
                       path_of(w, t), t->name, count);
    if (!file_read_at(gguf_part_fd(w->file, t->part), path_of(w, t), t->offset, out,
                      (size_t)values * 4, e))
        return false;
    for (int i = (int)values; i < count; i++)
        out[i] = out[0];
    for (int i = 0; i < count; i++)
        if (!isfinite(out[i]))
            return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": value %d is not finite", path_of(w, t),
                           t->name, i);
    return true;
}

/* Notes a matrix of `n_out` rows out of a tensor [n_in, file_rows]. */
static struct weight_request *matrix(struct weights *w, struct tensor *out, const char *name,
                                     int64_t n_in, int64_t file_rows, int64_t n_out, struct err *e)
{
    char wanted[64];
    bool found;
    const struct gguf_tensor *t = need(w, name, e);
    if (!t)
        return NULL;
    if (t->ne[0] != (uint64_t)n_in || t->ne[1] != (uint64_t)file_rows || t->ne[2] != 1 ||
        t->ne[3] != 1) {
        snprintf(wanted, sizeof wanted, "[%lld, %lld]", (long long)n_in, (long long)file_rows);
        wrong_shape(w, t, wanted, e);
        return NULL;
    }
    struct weight_request *r = request(w, t, e);
    if (!r)
        return NULL;
    *out = (struct tensor){.type = t->type,
                           .n_in = (int)n_in,
                           .n_out = (int)n_out,
                           .scale = 1,
                           .kind = kind_of(w, name)};
    r->matrix = out;
    r->rows = n_out;
    return read_scales(w, name, &out->scale, 1, &found, e) ? r : NULL;
}

bool weights_matrix(struct weights *w, struct tensor *out, int64_t n_in, int64_t n_out,
                    struct err *e, const char *format, ...)
{
    char name[NAME_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    return matrix(w, out, name, n_in, n_out, n_out, e) != NULL;
}

bool weights_matrix_slice(struct weights *w, struct tensor *out, int64_t n_in, int64_t file_rows,
                          int64_t first, int64_t n_out, struct err *e, const char *format, ...)
{
    char name[NAME_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    struct weight_request *r = matrix(w, out, name, n_in, file_rows, n_out, e);
    if (r)
        r->first = first;
    return r != NULL;
}

bool weights_matrix_rows(struct weights *w, struct tensor *out, int64_t n_in, int64_t file_rows,
                         int64_t n_out, weights_row_of *row_of, const void *ctx, struct err *e,
                         const char *format, ...)
{
    char name[NAME_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    struct weight_request *r = matrix(w, out, name, n_in, file_rows, n_out, e);
    if (!r)
        return false;
    r->row_of = mem_alloc_array((size_t)n_out, sizeof *r->row_of, "order of rows", e);
    for (int64_t i = 0; r->row_of && i < n_out; i++)
        r->row_of[i] = (int32_t)row_of(i, ctx);
    return r->row_of != NULL;
}

bool weights_vector(struct weights *w, const float **out, int64_t count, struct err *e,
                    const char *format, ...)
{
    char name[NAME_BYTES], wanted[64];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    const struct gguf_tensor *t = need(w, name, e);
    if (!t)
        return false;
    if (t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] != (uint64_t)count) { /* rule R19: no wrap */
        snprintf(wanted, sizeof wanted, "%lld values", (long long)count);
        return wrong_shape(w, t, wanted, e);
    }
    struct weight_request *r = request(w, t, e);
    if (!r)
        return false;
    r->vector = out;
    r->count = (size_t)count;
    return true;
}

int weights_vocabulary(struct weights *w, struct err *e)
{
    const struct gguf_tensor *t = need(w, "token_embd.weight", e);
    if (!t)
        return 0;
    if (t->ne[1] > VOCABULARY_MOST) {
        err_set(e, ERR_FORMAT, "%s: tensor \"%s\": %llu rows are no vocabulary", path_of(w, t), t->name,
                (unsigned long long)t->ne[1]);
        return 0;
    }
    return (int)t->ne[1];
}

bool weights_has(const struct weights *w, const char *format, ...)
{
    char name[NAME_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    return gguf_tensor_find(w->file, name) != NULL;
}

bool weights_experts(struct weights *w, struct expert_stack *out, int64_t n_in, int64_t n_out,
                     int64_t experts, struct err *e, const char *format, ...)
{
    char name[NAME_BYTES], wanted[96];
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    *out = (struct expert_stack){0};
    const struct gguf_tensor *t = need(w, name, e);
    if (!t)
        return false;
    if (t->ne[0] != (uint64_t)n_in || t->ne[1] != (uint64_t)n_out || t->ne[2] != (uint64_t)experts ||
        t->ne[3] != 1) {
        snprintf(wanted, sizeof wanted, "[%lld, %lld, %lld]", (long long)n_in, (long long)n_out,
                 (long long)experts);
        return wrong_shape(w, t, wanted, e);
    }
    out->file = t;
    out->one = (struct tensor){.type = t->type,
                               .n_in = (int)n_in,
                               .n_out = (int)n_out,
                               .scale = 1,
                               .kind = kind_of(w, name)};
    out->bytes_each = t->bytes / (uint64_t)experts;
    bool found;
    out->scales.values = mem_alloc_array((size_t)experts, sizeof(float), "expert scales", e);
    if (!out->scales.values ||
        !read_scales(w, name, out->scales.values, (int)experts, &found, e)) {
        weights_free_scales(&out->scales);
        return false;
    }
    if (found)
        out->scales.count = (int)experts;
    else
        weights_free_scales(&out->scales);
    return true;
}

/* ---- Places --------------------------------------------------------------------------------- */

/* Matrices with at most this many bytes between them are read together. */
#define GAP_MOST ((uint64_t)64 << 10)

static uint64_t first_byte(const struct weight_request *r)
{
    const struct gguf_tensor *t = r->file;
    return t->offset + (r->first ? (uint64_t)r->first * (t->bytes / t->ne[1]) : 0);
}

/* Stage by stage, in the order of the file. */
static int by_stage(const void *a, const void *b)
{
    const struct weight_request *x = *(struct weight_request *const *)a;
    const struct weight_request *y = *(struct weight_request *const *)b;
    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    if (x->file->part != y->file->part)
        return x->file->part < y->file->part ? -1 : 1;
    uint64_t i = first_byte(x), j = first_byte(y);
    return i < j ? -1 : i > j;
}

static bool does_not_fit(const struct weights *w, const struct weight_request *r, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": %llu bytes are too many", path_of(w, r->file),
                   r->file->name, (unsigned long long)r->file->bytes);
}

/* A place for `bytes` that begin `skip` bytes after a multiple of `align`, which the next place begins
 * at again. */
static bool take_place(struct weights *w, uint64_t bytes, size_t skip, size_t align, size_t *at)
{
    size_t end;
    if (bytes > SIZE_MAX || !mem_add(w->block_bytes, align - 1, &end))
        return false;
    *at = (end & ~(align - 1)) + skip;
    if (*at < skip || !mem_add(*at, (size_t)bytes, &end) || !mem_add(end, align - 1, &end))
        return false;
    w->block_bytes = end & ~(align - 1);
    return true;
}

/* Makes runs of requests, and gives both their places. */
static bool place_runs(struct weights *w, struct weight_request *const *sorted, size_t n,
                       struct err *e)
{
    for (size_t i = 0, end; i < n; i = end) {
        struct weight_run *run = &w->runs[w->n_runs++];
        *run = (struct weight_run){.stage = sorted[i]->stage,
                                   .part = sorted[i]->file->part,
                                   .from = first_byte(sorted[i])};
        for (end = i; end < n; end++) {
            const struct gguf_tensor *t = sorted[end]->file;
            uint64_t from = first_byte(sorted[end]);
            if (end > i && (sorted[end]->stage != run->stage || t->part != run->part ||
                            from > run->to + GAP_MOST))
                break;
            uint64_t to = from + (uint64_t)sorted[end]->rows * (t->bytes / t->ne[1]);
            run->to = run->to > to ? run->to : to;
        }
        if (!take_place(w, run->to - run->from, run->from % WEIGHT_PAGE_BYTES, WEIGHT_PAGE_BYTES,
                        &run->at))
            return does_not_fit(w, sorted[end - 1], e);
        for (size_t k = i; k < end; k++)
            sorted[k]->at = run->at + (size_t)(first_byte(sorted[k]) - run->from);
    }
    return true;
}

/* Stages as small numbers: those that are asked for follow one another. */
static void count_stages(struct weights *w)
{
    int last = WEIGHTS_FIRST;
    for (size_t i = 0; i < w->n; i++)
        if (w->requests[i].stage != WEIGHTS_ALL && w->requests[i].stage > last)
            last = w->requests[i].stage;
    w->stages = last + 2;
    for (size_t i = 0; i < w->n; i++)
        if (w->requests[i].stage == WEIGHTS_ALL)
            w->requests[i].stage = last + 1;
}

bool weights_place(struct weights *w, struct err *e)
{
    struct weight_request **sorted = mem_alloc_array(w->n, sizeof *sorted, "tensor list", e);
    w->runs = mem_alloc_array(w->n, sizeof *w->runs, "tensor list", e);
    w->rest = mem_alloc_array(w->n, sizeof *w->rest, "tensor list", e);
    bool ok = sorted && w->runs && w->rest;
    size_t n = 0;
    if (ok)
        count_stages(w);
    for (size_t i = 0; ok && i < w->n; i++)
        if (weight_is_in_run(&w->requests[i]))
            sorted[n++] = &w->requests[i];
        else
            w->rest[w->n_rest++] = &w->requests[i];
    if (ok && n)
        qsort(sorted, n, sizeof *sorted, by_stage);
    if (ok && w->n_rest)
        qsort(w->rest, w->n_rest, sizeof *w->rest, by_stage);
    ok = ok && place_runs(w, sorted, n, e);
    for (size_t i = 0; ok && i < w->n_rest; i++) {
        struct weight_request *r = w->rest[i];
        size_t size = r->matrix ? (size_t)(r->file->bytes / r->file->ne[1]) : sizeof(float);
        size_t count = r->matrix ? (size_t)r->rows : r->count, bytes;
        if (!mem_mul(count, size, &bytes) || !take_place(w, bytes, 0, WEIGHT_PLACE_BYTES, &r->at))
            ok = does_not_fit(w, r, e);
    }
    mem_free(sorted);
    return ok;
}
