/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the KV cache, with its rotary embedding and output gate (qwen4exp.md 2.2, 2.6).
 *
 * For one row and query head: scores = (q . k) / sqrt(d_head) of the visible tokens in ascending
 * position, softmax with the maximum first, out = (sum over tokens of weight * v) / (sum of
 * weights). Token i of the row's list goes to chain i mod 32 in both sums, so a result does not
 * depend on the other rows, heads or threads. */
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/half.h"
#include "base/mem.h"
#include "cpu/rotary.h"
#include "cpu/state.h"

struct norm_rope_job {
    const struct cpu_ops *ops;
    const float *x;
    size_t row_stride, head_stride;
    const float *w;
    const struct rope *rope;
    int heads, d, pos;
    float eps;
    float *out;
};

static void norm_rope_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct norm_rope_job *j = ctx;
    struct rotary turn;
    for (size_t t = first; t < end; t++) {
        rotary_at(&turn, j->rope, j->pos + (int)t);
        for (size_t h = 0; h < (size_t)j->heads; h++) {
            const float *x = j->x + t * j->row_stride + h * j->head_stride;
            float *out = j->out + (t * (size_t)j->heads + h) * (size_t)j->d;
            if (j->w)
                j->ops->norm(x, j->w, j->d, j->eps, out);
            else if (out != x)
                memcpy(out, x, (size_t)j->d * sizeof(float));
            j->ops->rope(out, turn.cosine, turn.sine, j->rope->n_rot / 2);
        }
    }
}

void cpu_norm_rope(struct backend *b, const float *x, size_t row_stride, size_t head_stride,
                   const float *w, const struct rope *rope, int rows, int heads, int d, float eps,
                   int pos, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_ROPE);
    if (!rotary_fits(c, rope))
        return;
    struct norm_rope_job j = {&c->ops, x, row_stride, head_stride, w,  rope,
                              heads,   d, pos,        eps,         out};
    cpu_split(c, (size_t)rows, (double)rows * heads * d * 5, norm_rope_part, &j);
}

struct store_job {
    const struct cpu_ops *ops;
    const float *x;
    int heads, d;
    char *to;
    enum kv_type type;
    _Atomic int bad;
};

/* n values, at most KV_BLOCK. False when one is NaN or the scale does not fit a half float. */
static bool store_block(const float *x, int n, struct kv_block *to)
{
    float top = 0;
    bool is_number = true;
    for (int i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        is_number &= size >= 0;
        top = size > top ? size : top;
    }
    to->scale = half_from_f32(top / 127);
    float scale = half_to_f32(to->scale);
    if (!is_number || !isfinite(scale))
        return false;
    for (int i = 0; i < KV_BLOCK; i++) {
        float q = i < n && scale > 0 ? rintf(x[i] / scale) : 0;
        to->q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
    return true;
}

static bool store_row(const struct store_job *j, const float *x, void *to)
{
    size_t heads = (size_t)j->heads, d = (size_t)j->d, blocks = kv_units(KV_Q8_0, d);
    if (j->type == KV_F16)
        return j->ops->to_f16(x, j->heads * j->d, to);
    if (j->type == KV_F32) {
        memcpy(to, x, heads * d * sizeof *x);
        return true;
    }
    bool fits = true;
    struct kv_block *block = to;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < blocks; i++) {
            int left = j->d - (int)i * KV_BLOCK;
            fits &=
                store_block(x + h * d + i * KV_BLOCK, left < KV_BLOCK ? left : KV_BLOCK, block++);
        }
    return fits;
}

static void store_part(void *ctx, size_t first, size_t end, int worker)
{
    struct store_job *j = ctx;
    size_t heads = (size_t)j->heads, d = (size_t)j->d;
    size_t row_bytes = heads * kv_units(j->type, d) * kv_unit_bytes(j->type);
    for (size_t t = first; t < end; t++)
        if (!store_row(j, j->x + t * heads * d, j->to + t * row_bytes))
            cpu_first_bad(&j->bad, (int)t);
}

void cpu_store(struct backend *b, const float *x, int rows, int heads, int d, void *cache,
               enum kv_type type, int pos)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_ROPE);
    size_t row = (size_t)heads * kv_units(type, (size_t)d);
    struct store_job j = {
        &c->ops, x,      heads, d, (char *)cache + (size_t)pos * row * kv_unit_bytes(type),
        type,    INT_MAX};
    double work = type == KV_Q8_0 ? 8 : 1;
    cpu_split(c, (size_t)rows, work * rows * heads * d, store_part, &j);
    if (j.bad != INT_MAX)
        cpu_problem(c, "a value at position %d does not fit a half float of the cache",
                    pos + j.bad);
}

struct attention_job {
    struct cpu_backend *c;
    const float *q;
    const struct kv_cache *cache;
    const struct block_choice *choice;
    int rows, n_head, pos;
    int together; /* query heads of one item; they share a kv head */
    int pieces;   /* items of one kv head and row */
    float *out;
    _Atomic int bad;
};

/* Number of tokens that row t sees. */
static int visible_tokens(const struct attention_job *j, int t)
{
    const struct block_choice *choice = j->choice;
    int tokens = j->pos + t + 1;
    return choice->ratio ? choice->counts[t] * choice->ratio + tokens % choice->ratio : tokens;
}

/* Their positions, ascending; NULL when they are 0, 1, 2 ... */
static const int32_t *positions_of(const struct attention_job *j, int t, int32_t *list)
{
    const struct block_choice *choice = j->choice;
    if (!choice->ratio)
        return NULL;
    int tokens = j->pos + t + 1, n = 0;
    const int32_t *blocks = choice->blocks + (size_t)t * (size_t)choice->stride;
    for (int b = 0; b < choice->counts[t]; b++)
        for (int i = 0; i < choice->ratio; i++)
            list[n++] = blocks[b] * choice->ratio + i;
    for (int p = tokens - tokens % choice->ratio; p < tokens; p++)
        list[n++] = p;
    return list;
}

/* What heads h0 .. h0 + n - 1 of row t work on; they read one kv head. */
struct reading {
    const char *k, *v;    /* its first row */
    const int32_t *index; /* the rows to read, NULL: 0, 1, 2 ... */
    int count;
    float *scores; /* [n][ctx] */
    size_t ctx;
    float *values; /* a tile of values, then the chains of all heads */
};

/* Keys are taken in tiles that stay in the L1 cache while all heads read them, values in tiles of
 * the L2 cache, gathered first: in place, rows 32 apart would crowd into a few sets of the cache.
 * Which tile an element is in changes nothing in its sum. */
#define KEY_TILE 32

/* Units of a cache's row, which is one token. */
static size_t row_units(const struct kv_cache *cache)
{
    return (size_t)cache->n_kv * kv_units(cache->type, (size_t)cache->d_head);
}

/* Heads of n that one kernel call takes from h on. */
static int heads_at(int h, int n)
{
    return n - h < CPU_OPS_HEADS ? n - h : CPU_OPS_HEADS;
}

static void score_keys(const struct attention_job *j, const struct reading *r, const float *q,
                       int n)
{
    const struct kv_cache *cache = j->cache;
    size_t d = (size_t)cache->d_head, row = row_units(cache);
    for (int i = 0; i < r->count; i += KEY_TILE) {
        int tile = r->count - i < KEY_TILE ? r->count - i : KEY_TILE;
        const char *k = r->index ? r->k : r->k + (size_t)i * row * kv_unit_bytes(cache->type);
        const int32_t *index = r->index ? r->index + i : NULL;
        for (int h = 0; h < n; h += CPU_OPS_HEADS) {
            j->c->ops.dot_rows[cache->type](q + (size_t)h * d, d, heads_at(h, n), k, row, index,
                                            tile, cache->d_head, r->scores + (size_t)h * r->ctx + i,
                                            r->ctx);
        }
    }
}

static void weigh_values(const struct attention_job *j, const struct reading *r, int n, float *out)
{
    const struct kv_cache *cache = j->cache;
    const struct cpu_ops *ops = &j->c->ops;
    size_t d = (size_t)cache->d_head, row = row_units(cache);
    float *tile = r->values, *part = tile + CPU_VALUE_TILE * CPU_VALUE_COLUMNS;
    for (int c = 0; c < cache->d_head; c += CPU_VALUE_COLUMNS) {
        int left = cache->d_head - c;
        int columns = left < CPU_VALUE_COLUMNS ? left : CPU_VALUE_COLUMNS;
        for (int i = 0; i < r->count; i += CPU_VALUE_TILE) {
            int rows = r->count - i < CPU_VALUE_TILE ? r->count - i : CPU_VALUE_TILE;
            size_t at = (r->index ? 0 : (size_t)i * row) + kv_units(cache->type, (size_t)c);
            const char *v = r->v + at * kv_unit_bytes(cache->type);
            ops->gather_rows[cache->type](v, row, r->index ? r->index + i : NULL, rows, columns,
                                          tile);
            for (int h = 0; h < n; h += CPU_OPS_HEADS)
                ops->weigh_tile(r->scores + (size_t)h * r->ctx + i, r->ctx, heads_at(h, n), tile,
                                rows, columns, i == 0, part + (size_t)h * CPU_PART_FLOATS);
        }
        for (int h = 0; h < n; h += CPU_OPS_HEADS)
            ops->sum_chains(part + (size_t)h * CPU_PART_FLOATS, heads_at(h, n), columns,
                            out + (size_t)h * d + c, d);
    }
}

static void attend(struct attention_job *j, int t, int kv, int h0, int n, int worker)
{
    const struct cpu_ops *ops = &j->c->ops;
    const struct kv_cache *cache = j->cache;
    size_t d = (size_t)cache->d_head, ctx = (size_t)j->c->limits.ctx;
    size_t skip = (size_t)kv * kv_units(cache->type, d) * kv_unit_bytes(cache->type);
    float *scores = cpu_worker_area(j->c, worker);
    int32_t *list = (int32_t *)(scores + (size_t)j->c->scratch.attention_heads * ctx);
    struct reading r = {.k = (const char *)cache->k + skip,
                        .v = (const char *)cache->v + skip,
                        .index = positions_of(j, t, list),
                        .count = visible_tokens(j, t),
                        .scores = scores,
                        .ctx = ctx,
                        .values = (float *)list + ctx};
    size_t at = ((size_t)t * (size_t)j->n_head + (size_t)h0) * d;
    score_keys(j, &r, j->q + at, n);
    float sums[CPU_ATTENTION_HEADS];
    for (int h = 0; h < n; h++) {
        sums[h] = ops->softmax(scores + (size_t)h * ctx, r.count, sqrtf((float)cache->d_head));
        if (!isfinite(sums[h]))
            cpu_first_bad(&j->bad, t);
    }
    weigh_values(j, &r, n, j->out + at);
    for (int h = 0; h < n; h++)
        ops->divide(j->out + at + (size_t)h * d, sums[h], 1, cache->d_head);
}

/* Items: kv head, then row, then piece of the kv head's query heads, so that neighbours read the
 * same keys. */
static void attention_part(void *ctx, size_t first, size_t end, int worker)
{
    struct attention_job *j = ctx;
    int group = j->n_head / j->cache->n_kv;
    size_t pieces = (size_t)j->pieces, rows = (size_t)j->rows;
    for (size_t i = first; i < end; i++) {
        int piece = (int)(i % pieces), t = (int)(i / pieces % rows), kv = (int)(i / pieces / rows);
        int h0 = piece * j->together, left = group - h0;
        attend(j, t, kv, kv * group + h0, left < j->together ? left : j->together, worker);
    }
}

static int pieces_of(int heads, int together)
{
    return (heads + together - 1) / together;
}

void cpu_attention(struct backend *b, const float *q, const struct kv_cache *cache,
                   const struct block_choice *choice, int rows, int n_head, int pos, float *out)
{
    struct cpu_backend *c = cpu_of(b);
    struct attention_job j = {c, q,   cache,  choice, rows, n_head, pos, CPU_OPS_HEADS,
                              1, out, INT_MAX};
    double tokens = 0;
    for (int t = 0; t < rows; t++) {
        int count = visible_tokens(&j, t);
        tokens += count;
        if (count > c->limits.ctx) {
            cpu_problem(c, "attention over %d tokens, more than the %d reserved", count,
                        c->limits.ctx);
            return;
        }
    }
    /* Heads share the reading of their keys, but not at the price of an idle thread. */
    int group = n_head / cache->n_kv;
    j.together = group < c->scratch.attention_heads ? group : c->scratch.attention_heads;
    while (j.together > 1 && rows * cache->n_kv * pieces_of(group, j.together) < 2 * c->threads)
        j.together = j.together > CPU_OPS_HEADS ? j.together - CPU_OPS_HEADS : j.together / 2;
    j.pieces = pieces_of(group, j.together);
    size_t items = (size_t)rows * (size_t)cache->n_kv * (size_t)j.pieces;
    backend_lap_bytes(b, LAP_ATTENTION,
                      (uint64_t)tokens * 2 * row_units(cache) * kv_unit_bytes(cache->type));
    cpu_split(c, items, tokens * n_head * (2 * cache->d_head + 16), attention_part, &j);
    if (j.bad != INT_MAX)
        cpu_problem(c, "attention scores at position %d are not finite", pos + j.bad);
}

struct gate_job {
    const struct cpu_ops *ops;
    float *x;
    const float *gate;
    size_t row_stride, head_stride;
    int heads, d;
};

static void gate_part(void *ctx, size_t first, size_t end, int worker)
{
    const struct gate_job *j = ctx;
    size_t heads = (size_t)j->heads;
    for (size_t i = first; i < end; i++) {
        float *x = j->x + i * (size_t)j->d;
        j->ops->mul_sigmoid(x, x, j->gate + i / heads * j->row_stride + i % heads * j->head_stride,
                            j->d);
    }
}

void cpu_gate(struct backend *b, float *x, const float *gate, size_t row_stride, size_t head_stride,
              int rows, int heads, int d)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_GATE);
    struct gate_job j = {&c->ops, x, gate, row_stride, head_stride, heads, d};
    cpu_split(c, (size_t)rows * (size_t)heads, (double)rows * heads * d * 8, gate_part, &j);
}
