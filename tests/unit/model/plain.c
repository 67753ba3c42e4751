/* SPDX-License-Identifier: Apache-2.0 */
#include "plain.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cpu/backend.h"

void (*plain_before_loading)(struct plain *p);

bool plain_open(struct plain *p, const char *path, const struct plain_how *how, struct err *e)
{
    *p = (struct plain){.at_once = how->at_once};
    struct backend_limits limits;
    p->file = gguf_open(path, e);
    p->data = p->file ? file_read_all(path, (size_t)1 << 30, &p->data_bytes, e) : NULL;
    p->model = p->data ? model_open(p->file, e) : NULL;
    p->pool = p->model ? pool_create(how->threads, e) : NULL;
    p->backend = p->pool ? cpu_backend_create(p->pool, how->isa, how->exact, e) : NULL;
    if (!p->backend) {
        plain_close(p);
        return false;
    }
    model_hold_windows(p->model, 8);
    p->wanted = mem_alloc_array((size_t)model_info(p->model)->experts, sizeof(int), "experts", e);
    model_backend_limits(p->model, how->band, how->tile, 1024, &limits);
    if (plain_before_loading)
        plain_before_loading(p);
    bool ok = p->wanted && p->backend->reserve(p->backend, &limits, e) &&
              model_load(p->model, p->backend, NULL, NULL, e) &&
              model_scratch_alloc(p->model, how->band, how->tile, e);
    if (!ok)
        plain_close(p);
    return ok;
}

void plain_close(struct plain *p)
{
    model_free(p->model);
    if (p->backend)
        p->backend->free(p->backend);
    pool_free(p->pool);
    gguf_close(p->file);
    mem_free(p->data);
    mem_free(p->wanted);
    mem_free(p->rows);
    *p = (struct plain){0};
}

static bool begin(void *ctx, const struct routing *r, struct err *e)
{
    (void)e;
    struct plain *p = ctx;
    int experts = model_info(p->model)->experts;
    p->turn = r;
    p->n_wanted = p->given = 0;
    for (int x = experts - 1; x >= 0; x--) /* from the last: not the order of any list */
        for (int i = 0; i < r->rows * r->k; i++)
            if (r->ids[i] == x) {
                p->wanted[p->n_wanted++] = x;
                break;
            }
    return true;
}

static int next(void *ctx, struct expert_record *out, int most, struct err *e)
{
    (void)e;
    struct plain *p = ctx;
    struct model_experts where;
    model_experts_of_layer(p->model, p->turn->layer, &where);
    int n = 0;
    while (p->given < p->n_wanted && n < most && n < p->at_once) {
        int x = p->wanted[p->given++];
        out[n].expert = x;
        for (int i = 0; i < where.parts; i++)
            out[n].part[i] = p->data + where.tensor[i]->offset + (uint64_t)x * where.bytes_each[i];
        n++;
    }
    return n;
}

static void end(void *ctx)
{
    (void)ctx;
}

static bool rows_begin(void *ctx, const uint64_t *rows, int n, struct err *e)
{
    struct plain *p = ctx;
    struct model_row_table t;
    model_row_table(p->model, &t);
    size_t need = (size_t)n * t.row_bytes;
    if (need > p->rows_room) {
        mem_free(p->rows);
        p->rows = mem_alloc(need, "rows", e);
        p->rows_room = p->rows ? need : 0;
    }
    for (int i = 0; p->rows && i < n; i++)
        memcpy((char *)p->rows + (size_t)i * t.row_bytes,
               p->data + t.tensor->offset + rows[i] * t.row_bytes, t.row_bytes);
    return p->rows != NULL;
}

static bool rows_wait(void *ctx, const void **bytes, struct err *e)
{
    (void)e;
    *bytes = ((struct plain *)ctx)->rows;
    return true;
}

struct expert_source plain_experts(struct plain *p)
{
    return (struct expert_source){.ctx = p, .begin = begin, .next = next, .end = end};
}

struct row_source plain_rows(struct plain *p)
{
    return (struct row_source){p, rows_begin, rows_wait};
}
