/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/state.h"

/* Entries of a batch of experts are at least this many, so that the experts of a decoded token or
 * window go together whatever the tile. */
#define ENTRIES_AT_LEAST 64

/* Work of one part: below twice this nothing is split. About 5 us of vector code; waking the other
 * threads costs about 1 us. */
#define PART_WORK 16384.0
#define PARTS_PER_THREAD 8

void cpu_problem(struct cpu_backend *c, const char *fmt, ...)
{
    if (c->problem.code)
        return;
    char text[512], where[32] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (c->base.layer >= 0)
        snprintf(where, sizeof where, "layer %d: ", c->base.layer);
    err_set(&c->problem, ERR_NUMERIC, "%s%s", where, text);
}

struct split {
    cpu_part_fn *fn;
    void *ctx;
    size_t items;
    int parts;
};

static void do_part(void *ctx, int part, int worker)
{
    const struct split *s = ctx;
    size_t parts = (size_t)s->parts, p = (size_t)part;
    size_t first = s->items / parts * p + s->items % parts * p / parts;
    size_t end = s->items / parts * (p + 1) + s->items % parts * (p + 1) / parts;
    s->fn(s->ctx, first, end, worker);
}

void cpu_split(struct cpu_backend *c, size_t items, double work, cpu_part_fn *fn, void *ctx)
{
    if (!items)
        return;
    if (c->threads == 1 || items == 1 || work < 2 * PART_WORK) {
        fn(ctx, 0, items, 0);
        return;
    }
    double parts = work / PART_WORK;
    double most = (double)c->threads * PARTS_PER_THREAD;
    parts = parts < c->threads ? c->threads : parts > most ? most : parts;
    struct split s = {fn, ctx, items, (size_t)parts < items ? (int)parts : (int)items};
    pool_run(c->pool, do_part, &s, s.parts);
}

/* Up to here a worker attends with CPU_ATTENTION_HEADS at once: their scores are about 1 MiB. */
#define ATTENTION_CTX 16384

static void *take(char *base, size_t *used, size_t bytes)
{
    size_t at = *used;
    *used = mem_round_up(at + bytes, 64);
    return base ? base + at : NULL;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Places every area from `base` on (NULL: only counts) and returns the bytes of all. The limits
 * come from a checked plan: their products fit. */
static size_t scratch_layout(const struct backend_limits *l, int threads, char *base,
                             struct cpu_scratch *s)
{
    size_t used = 0, workers = (size_t)threads;
    s->entries = l->rows > ENTRIES_AT_LEAST ? l->rows : ENTRIES_AT_LEAST;
    size_t entries = (size_t)s->entries, embd = (size_t)l->embd, width = (size_t)l->expert_width;
    s->attention_heads = l->ctx <= ATTENTION_CTX ? CPU_ATTENTION_HEADS : CPU_OPS_HEADS;
    size_t heads = (size_t)s->attention_heads;
    size_t attention =
        (heads + 1) * (size_t)l->ctx + CPU_VALUE_TILE * CPU_VALUE_COLUMNS + heads * CPU_PART_FLOATS;
    s->worker_floats = largest(attention, entries * EXPERT_COLUMNS);
    s->worker_floats = largest(s->worker_floats, (size_t)l->delta * (size_t)l->delta);
    s->worker_floats = mem_round_up(s->worker_floats, 16);
    s->worker = take(base, &used, workers * s->worker_floats * sizeof(float));
    s->index_scores = take(base, &used, workers * (size_t)l->blocks * sizeof(float));
    if (!width) /* a model without experts */
        return used;
    s->rows = take(base, &used, entries * embd * sizeof(float));
    s->gate = take(base, &used, entries * width * sizeof(float));
    s->up = take(base, &used, entries * width * sizeof(float));
    s->acts32 = take(base, &used, cpu_act_bytes(s->entries, l->embd, 32));
    s->acts256 = take(base, &used, cpu_act_bytes(s->entries, l->embd, 256));
    s->mid32 = take(base, &used, cpu_act_bytes(s->entries, l->expert_width, 32));
    s->mid256 = take(base, &used, cpu_act_bytes(s->entries, l->expert_width, 256));
    s->slot_rows = take(base, &used, entries * sizeof *s->slot_rows);
    s->tile_task = take(base, &used, (entries / CPU_TILE_ROWS + 1) * sizeof *s->tile_task);
    s->all_rows = take(base, &used, entries * sizeof *s->all_rows);
    s->shared_scale = take(base, &used, entries * sizeof *s->shared_scale);
    s->tasks = take(base, &used, entries * sizeof *s->tasks);
    return used;
}

/* Longest row that a product meets. */
static int longest_row(const struct backend_limits *l)
{
    int n = l->n_in > l->embd ? l->n_in : l->embd;
    return n > l->expert_width ? n : l->expert_width;
}

static size_t reserve_bytes(const struct backend *b, const struct backend_limits *l)
{
    const struct cpu_backend *c = (const struct cpu_backend *)b;
    struct cpu_scratch s = {0};
    return scratch_layout(l, c->threads, NULL, &s) +
           cpu_linear_scratch_bytes(l->rows, longest_row(l), c->threads);
}

static void unreserve(struct cpu_backend *c)
{
    if (c->reserved)
        cpu_linear_ctx_free(&c->linear);
    mem_unmap(c->scratch_memory, c->scratch_bytes);
    c->scratch_memory = NULL;
    c->scratch_bytes = 0;
    c->reserved = false;
}

static bool reserve(struct backend *b, const struct backend_limits *l, struct err *e)
{
    struct cpu_backend *c = cpu_of(b);
    unreserve(c);
    memset(&c->scratch, 0, sizeof c->scratch);
    size_t bytes = scratch_layout(l, c->threads, NULL, &c->scratch);
    c->scratch_memory = mem_map(bytes, "scratch of the CPU backend", e);
    if (!c->scratch_memory)
        return false;
    c->scratch_bytes = bytes;
    scratch_layout(l, c->threads, c->scratch_memory, &c->scratch);
    for (int i = 0; c->scratch.all_rows && i < c->scratch.entries; i++)
        c->scratch.all_rows[i] = i;
    if (!cpu_linear_ctx_init(&c->linear, c->pool, &c->matmul, l->rows, longest_row(l), e)) {
        unreserve(c);
        return false;
    }
    c->limits = *l;
    c->reserved = true;
    return true;
}

static void free_backend(struct backend *b)
{
    if (!b)
        return;
    unreserve(cpu_of(b));
    mem_free(b);
}

static void *alloc(struct backend *b, size_t bytes, const char *what, struct err *e)
{
    return mem_map(bytes, what, e);
}

static void release(struct backend *b, void *p, size_t bytes)
{
    mem_unmap(p, bytes);
}

static bool write_from_host(struct backend *b, void *to, const void *host, size_t bytes,
                            struct err *e)
{
    memcpy(to, host, bytes);
    return true;
}

static bool finish(struct backend *b, struct err *e)
{
    struct cpu_backend *c = cpu_of(b);
    if (!c->problem.code)
        return true;
    err_set(e, c->problem.code, "%s", c->problem.text);
    err_clear(&c->problem);
    return false;
}

static bool read_to_host(struct backend *b, void *host, const void *from, size_t bytes,
                         struct err *e)
{
    if (!finish(b, e))
        return false;
    memcpy(host, from, bytes);
    return true;
}

static const struct backend table = {
    .name = "cpu",
    .layer = -1,
    .host_visible = true,
    .reserve_bytes = reserve_bytes,
    .reserve = reserve,
    .free = free_backend,
    .alloc = alloc,
    .release = release,
    .write = write_from_host,
    .read = read_to_host,
    .finish = finish,
    .embed = cpu_embed,
    .repeat = cpu_repeat,
    .add = cpu_add,
    .add_row = cpu_add_row,
    .linear = cpu_linear_op,
    .norm = cpu_norm,
    .hc_low = cpu_hc_low,
    .hc_mix = cpu_hc_mix,
    .hc_weights = cpu_hc_weights,
    .hc_write = cpu_hc_write,
    .conv = cpu_conv,
    .conv_held = cpu_conv_held,
    .conv_advance = cpu_conv_advance,
    .delta_net = cpu_delta_net,
    .delta_scan = cpu_delta_scan,
    .norm_rope = cpu_norm_rope,
    .store = cpu_store,
    .index_pool = cpu_index_pool,
    .index_choose = cpu_index_choose,
    .attention = cpu_attention,
    .gate = cpu_gate,
    .route = cpu_route,
    .experts = cpu_experts,
    .shared_expert = cpu_shared_expert,
    .routed = cpu_routed,
    .ple_gate = cpu_ple_gate,
    .ple_spread = cpu_ple_spread,
};

struct backend *cpu_backend_create(struct pool *pool, enum cpu_isa isa, bool exact_activations,
                                   struct err *e)
{
    struct cpu_backend *c = mem_alloc(sizeof *c, "CPU backend", e);
    if (!c)
        return NULL;
    c->base = table;
    c->base.exact_activations = exact_activations;
    c->pool = pool;
    c->threads = pool_threads(pool);
    cpu_ops_init(&c->ops, isa);
    cpu_matmul_init(&c->matmul, isa);
    return &c->base;
}
