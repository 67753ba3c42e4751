/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that treat every row or value alike: embedding, products, norms, gates, scales. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "cpu/state.h"

/* Values that a kernel gets at once when a whole array is worked on: fits the L1 cache. */
#define BLOCK 4096
#define MAX_PRODUCTS 16

static size_t blocks_of(size_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

static int block_length(size_t count, size_t block)
{
    size_t left = count - block * BLOCK;
    return (int)(left < BLOCK ? left : BLOCK);
}

struct embed_job {
    const struct tensor *w;
    const int32_t *ids;
    const struct cpu_ops *ops;
    float *out;
};

static void embed_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct embed_job *j = ctx;
    size_t n = (size_t)j->w->n_in, row_bytes = tensor_row_bytes(j->w->type, n);
    for (size_t t = first; t < end; t++) {
        const char *row = (const char *)j->w->data + (size_t)j->ids[t] * row_bytes;
        quant_decode(j->w->type, row, j->out + t * n, n);
        if (j->w->scale != 1)
            j->ops->scale(j->out + t * n, j->out + t * n, j->w->scale, (int)n);
    }
}

void cpu_embed(struct backend *b, const struct tensor *w, const int32_t *ids, int rows, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_EMBED);
    struct embed_job j = {w, ids, &c->ops, out};
    cpu_split(c, (size_t)rows, (double)rows * w->n_in * 4, embed_part, &j);
}

struct repeat_job {
    const float *x;
    int n, times;
    float *out;
};

static void repeat_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct repeat_job *j = ctx;
    size_t n = (size_t)j->n;
    for (size_t t = first; t < end; t++)
        for (size_t s = 0; s < (size_t)j->times; s++)
            memcpy(j->out + (t * (size_t)j->times + s) * n, j->x + t * n, n * sizeof(float));
}

void cpu_repeat(struct backend *b, const float *x, int rows, int n, int times, float *out)
{
    backend_lap(b, LAP_EMBED);
    struct repeat_job j = {x, n, times, out};
    cpu_split(cpu_of(b), (size_t)rows, (double)rows * n * times, repeat_part, &j);
}

/* Work on two arrays of the same length, block by block. */
struct pair_job {
    const struct cpu_ops *ops;
    float *x;
    const float *y;
    float factor;
    size_t count;
};

static void add_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct pair_job *j = ctx;
    for (size_t i = first; i < end; i++)
        j->ops->add(j->x + i * BLOCK, j->y + i * BLOCK, block_length(j->count, i));
}

void cpu_add(struct backend *b, float *x, const float *y, size_t count)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_ADD);
    struct pair_job j = {&c->ops, x, y, 1, count};
    cpu_split(c, blocks_of(count), (double)count, add_part, &j);
}

struct add_row_job {
    const struct cpu_ops *ops;
    float *x;
    const float *v;
    int n;
};

static void add_row_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct add_row_job *j = ctx;
    for (size_t t = first; t < end; t++)
        j->ops->add(j->x + t * (size_t)j->n, j->v, j->n);
}

void cpu_add_row(struct backend *b, float *x, const float *v, int rows, int n)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_ADD);
    struct add_row_job j = {&c->ops, x, v, n};
    cpu_split(c, (size_t)rows, (double)rows * n, add_row_part, &j);
}

static void scale_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct pair_job *j = ctx;
    for (size_t i = first; i < end; i++)
        j->ops->scale(j->x + i * BLOCK, j->x + i * BLOCK, j->factor, block_length(j->count, i));
}

void cpu_linear_op(struct backend *b, const float *x, int rows, int n_in, const struct product *p,
                   int n_products)
{
    struct cpu_backend *c = cpu_of(b);
    c->linear.laps = b->laps;
    for (int done = 0; done < n_products; done += MAX_PRODUCTS) {
        int n = n_products - done < MAX_PRODUCTS ? n_products - done : MAX_PRODUCTS;
        struct cpu_product list[MAX_PRODUCTS];
        for (int i = 0; i < n; i++) {
            const struct tensor *w = p[done + i].w;
            list[i] = (struct cpu_product){.w = {w->data, w->type, w->n_in, w->n_out},
                                           .y = p[done + i].y,
                                           .y_stride = (size_t)w->n_out,
                                           .lap = b->laps ? cpu_lap_of(b, w) : 0};
        }
        struct err e;
        err_clear(&e);
        if (!cpu_linear(&c->linear, x, (size_t)n_in, rows, list, n, b->exact_activations, &e)) {
            cpu_problem(c, "activations are not finite in a matrix product");
            return;
        }
    }
    for (int i = 0; i < n_products; i++) {
        size_t count = (size_t)rows * (size_t)p[i].w->n_out;
        struct pair_job j = {&c->ops, p[i].y, NULL, p[i].w->scale, count};
        if (j.factor != 1)
            cpu_split(c, blocks_of(count), (double)count, scale_part, &j);
    }
}

struct norm_job {
    const struct cpu_ops *ops;
    const float *x, *w;
    int w_groups, n;
    float eps;
    float *out;
};

static void norm_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct norm_job *j = ctx;
    size_t n = (size_t)j->n;
    for (size_t g = first; g < end; g++)
        j->ops->norm(j->x + g * n, j->w + g % (size_t)j->w_groups * n, j->n, j->eps,
                     j->out + g * n);
}

void cpu_norm(struct backend *b, const float *x, const float *w, int w_groups, int count, int n,
              float eps, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_NORM);
    struct norm_job j = {&c->ops, x, w, w_groups, n, eps, out};
    cpu_split(c, (size_t)count, (double)count * n * 2, norm_part, &j); /* 10,240 values: 1.5 us */
}

struct row_job {
    const struct cpu_ops *ops;
    const float *x, *y;
    float *out;
    int hc, n;
};

static void ple_gate_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct row_job *j = ctx;
    size_t n = (size_t)j->n;
    for (size_t g = first; g < end; g++) {
        float d = j->ops->dot(j->x + g * n, j->y + g * n, j->n) / sqrtf((float)j->n);
        float size = fabsf(d);
        float root = sqrtf(size > 1e-6f ? size : 1e-6f);
        j->out[g] = isnan(d) ? d : fmath_sigmoid(d > 0 ? root : d < 0 ? -root : 0);
    }
}

void cpu_ple_gate(struct backend *b, const float *key, const float *query, int rows, int hc, int n,
                  float *a)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_NGRAM);
    struct row_job j = {&c->ops, key, query, a, hc, n};
    size_t groups = (size_t)rows * (size_t)hc;
    cpu_split(c, groups, (double)groups * n, ple_gate_part, &j);
}

static void ple_spread_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct row_job *j = ctx;
    size_t n = (size_t)j->n;
    for (size_t g = first; g < end; g++)
        j->ops->scale(j->out + g * n, j->y + g / (size_t)j->hc * n, j->x[g], j->n);
}

void cpu_ple_spread(struct backend *b, const float *a, const float *v, int rows, int hc, int n,
                    float *u)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_NGRAM);
    struct row_job j = {&c->ops, a, v, u, hc, n};
    size_t groups = (size_t)rows * (size_t)hc;
    cpu_split(c, groups, (double)groups * n, ple_spread_part, &j);
}
