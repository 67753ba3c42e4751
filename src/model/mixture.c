/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mixture.h"

#include <string.h>

#include "base/tensor_type.h"
#include "model/dump.h"

#define AT_ONCE 64 /* experts handed to the backend in one operation */
#define BAND_AT_ONCE 16 /* of a band: each has many rows, and a cancel is seen between operations */
#define GUESS_ROWS 8    /* of a window */

bool mixture_bind(struct weights *w, struct mixture_weights *out, const struct mixture_params *p,
                  int layer, struct err *e)
{
    if (!weights_matrix(w, &out->router, p->embd, p->experts, e, "blk.%d.ffn_gate_inp.weight", layer))
        return false;
    out->fused = weights_has(w, "blk.%d.ffn_gate_up_exps.weight", layer);
    bool ok = out->fused ? weights_experts(w, &out->gate, p->embd, 2 * (int64_t)p->width, p->experts,
                                           e, "blk.%d.ffn_gate_up_exps.weight", layer)
                         : weights_experts(w, &out->gate, p->embd, p->width, p->experts, e,
                                           "blk.%d.ffn_gate_exps.weight", layer) &&
                               weights_experts(w, &out->up, p->embd, p->width, p->experts, e,
                                               "blk.%d.ffn_up_exps.weight", layer);
    ok = ok && weights_experts(w, &out->down, p->width, p->embd, p->experts, e,
                               "blk.%d.ffn_down_exps.weight", layer);
    if (!ok || !p->shared_width)
        return ok;
    return weights_matrix(w, &out->shared_gate, p->embd, p->shared_width, e,
                          "blk.%d.ffn_gate_shexp.weight", layer) &&
           weights_matrix(w, &out->shared_up, p->embd, p->shared_width, e,
                          "blk.%d.ffn_up_shexp.weight", layer) &&
           weights_matrix(w, &out->shared_down, p->shared_width, p->embd, e,
                          "blk.%d.ffn_down_shexp.weight", layer) &&
           weights_matrix(w, &out->shared_scale, p->embd, 1, e, "blk.%d.ffn_gate_inp_shexp.weight",
                          layer);
}

void mixture_free(struct mixture_weights *w)
{
    weights_free_scales(&w->gate.scales);
    weights_free_scales(&w->up.scales);
    weights_free_scales(&w->down.scales);
}

void mixture_describe(const struct mixture_weights *w, struct model_experts *out)
{
    const struct expert_stack *split[] = {&w->gate, &w->up, &w->down};
    const struct expert_stack *fused[] = {&w->gate, &w->down};
    *out = (struct model_experts){.parts = w->fused ? 2 : 3};
    for (int i = 0; i < out->parts; i++) {
        const struct expert_stack *s = w->fused ? fused[i] : split[i];
        out->tensor[i] = s->file;
        out->bytes_each[i] = s->bytes_each;
    }
}

void mixture_carve(struct mixture_scratch *t, const struct mixture_params *p, int band, int tile,
                   struct carve *device, struct carve *host)
{
    size_t in_band = (size_t)band * (size_t)p->embd, chosen = (size_t)band * (size_t)p->used;
    size_t rows = (size_t)tile, guesses = GUESS_ROWS * GUESS_RANKS_MOST;
    guesses = chosen > guesses ? chosen : guesses;
    t->in = carve(device, in_band, sizeof *t->in);
    t->shared = carve(device, in_band, sizeof *t->shared);
    t->sum = carve(device, in_band, sizeof *t->sum);
    t->logits = carve(device, rows * (size_t)p->experts, sizeof *t->logits);
    t->next_logits = carve(device, rows * (size_t)p->experts, sizeof *t->next_logits);
    t->ids = carve(host, chosen, sizeof *t->ids);
    t->weights = carve(host, chosen, sizeof *t->weights);
    t->job_rows = carve(host, chosen, sizeof *t->job_rows);
    t->job_weights = carve(host, chosen, sizeof *t->job_weights);
    t->starts = carve(host, (size_t)p->experts + 1, sizeof *t->starts);
    t->guess_ids = carve(host, guesses, sizeof *t->guess_ids);
    t->guess_weights = carve(host, guesses, sizeof *t->guess_weights);
    t->displaced = carve(host, (size_t)band, sizeof *t->displaced);
    t->spread = carve(host, (size_t)band, sizeof *t->spread);
}

void mixture_enter(struct mixture_scratch *t, const struct mixture_params *p,
                   const struct expert_source *source, const struct batch *batch, int layer,
                   bool last, const struct mixture_weights *far)
{
    bool is_band = batch->is_band;
    t->bonus = source->bonus ? source->bonus(source->ctx, layer, is_band, &t->keep) : NULL;
    t->guess_ranks = last || !source->guess_ranks
                         ? 0 : source->guess_ranks(source->ctx, layer + 1, is_band);
    t->far_ranks = far && source->far_ranks ? source->far_ranks(source->ctx, layer + 2, is_band) : 0;
    int most = is_band ? p->used : p->experts < GUESS_RANKS_MOST ? p->experts : GUESS_RANKS_MOST;
    if (!is_band && batch->rows > GUESS_ROWS)
        most = p->used;
    t->guess_ranks = t->guess_ranks < most ? t->guess_ranks : most;
    t->far_ranks = t->far_ranks < most ? t->far_ranks : most;
    t->far_router = t->far_ranks ? &far->router : NULL;
}

bool mixture_route(struct backend *b, const struct mixture_params *p,
                   const struct mixture_weights *w, const struct mixture_weights *next,
                   struct mixture_scratch *t, int first, int rows, const struct batch *batch,
                   int layer, struct err *e)
{
    size_t at = (size_t)first * (size_t)p->used;
    size_t guess = (size_t)first * (size_t)t->guess_ranks;
    struct route_bonus bonus = {t->bonus, t->keep, t->displaced + first, t->spread + first};
    b->linear(b, t->in + (size_t)first * (size_t)p->embd, rows, p->embd,
              (struct product[]){{&w->router, t->logits}, {&next->router, t->next_logits}},
              t->guess_ranks ? 2 : 1);
    if (!b->route(b, t->logits, rows, p->experts, p->used, p->renormalise,
                  t->bonus ? &bonus : NULL, t->ids + at, t->weights + at, e))
        return false;
    dump_rows(batch, b, layer, "router_logits", t->logits, rows, p->experts, 0);
    dump_host_i32(batch, layer, "expert_ids", t->ids + at, rows, p->used);
    if (batch->dump)
        dump_put(batch, layer, "expert_weights", DUMP_F32, t->weights + at, rows, 1, &p->used);
    return !t->guess_ranks || b->route(b, t->next_logits, rows, p->experts, t->guess_ranks, false,
                                       NULL, t->guess_ids + guess, t->guess_weights + guess, e);
}

/* Sorts the band's (row, weight) pairs by expert; rows stay in order within an expert. */
static void group(const struct mixture_params *p, struct mixture_scratch *t, int rows)
{
    int n = rows * p->used;
    memset(t->starts, 0, ((size_t)p->experts + 1) * sizeof *t->starts);
    for (int i = 0; i < n; i++)
        t->starts[t->ids[i] + 1]++;
    for (int x = 0; x < p->experts; x++)
        t->starts[x + 1] += t->starts[x];
    for (int i = 0; i < n; i++) { /* starts[x] moves to its group's end ... */
        int32_t at = t->starts[t->ids[i]]++;
        t->job_rows[at] = i / p->used;
        t->job_weights[at] = t->weights[i];
    }
    for (int x = p->experts; x > 0; x--) /* ... and back */
        t->starts[x] = t->starts[x - 1];
    t->starts[0] = 0;
}

static struct tensor expert_tensor(const struct expert_stack *s, int expert, const void *data)
{
    struct tensor one = s->one;
    one.data = data;
    if (s->scales.count)
        one.scale = s->scales.values[expert];
    return one;
}

static struct expert_job make_job(const struct mixture_params *p, const struct mixture_weights *w,
                                  const struct mixture_scratch *t, const struct expert_record *r)
{
    int x = r->expert;
    struct expert_job job = {
        .gate = expert_tensor(&w->gate, x, r->part[0]),
        .down = expert_tensor(&w->down, x, r->part[w->fused ? 1 : 2]),
        .expert = x,
        .rows = t->job_rows + t->starts[x],
        .weights = t->job_weights + t->starts[x],
        .n = t->starts[x + 1] - t->starts[x],
    };
    if (w->fused) { /* the second half of the rows */
        job.gate.n_out = p->width;
        job.up = job.gate;
        job.up.data = (const char *)r->part[0] +
                      tensor_row_bytes(job.gate.type, (uint64_t)p->embd) * (uint64_t)p->width;
    } else {
        job.up = expert_tensor(&w->up, x, r->part[1]);
    }
    return job;
}

/* The guess at the layer after the next. The nearer one was taken, so its places are free. It decides
 * nothing: where that router's logits are no numbers there is no guess. */
static void guess_far(struct backend *b, const struct mixture_params *p, struct mixture_scratch *t,
                      int tile, const struct expert_source *source, const struct batch *batch,
                      int layer)
{
    struct err ignored;
    err_clear(&ignored);
    struct guess g = {.layer = layer + 2, .rows = batch->rows, .ranks = t->far_ranks,
                      .ids = t->guess_ids, .weights = t->guess_weights, .is_band = batch->is_band};
    for (int at = 0; at < batch->rows; at += tile) {
        int rows = batch->rows - at < tile ? batch->rows - at : tile;
        size_t first = (size_t)at * (size_t)g.ranks;
        b->linear(b, t->in + (size_t)at * (size_t)p->embd, rows, p->embd,
                  &(struct product){t->far_router, t->next_logits}, 1);
        if (!b->route(b, t->next_logits, rows, p->experts, g.ranks, false, NULL,
                      t->guess_ids + first, t->guess_weights + first, &ignored))
            return;
    }
    source->guess(source->ctx, &g);
}

/* Residents and the shared expert are computed while the missing experts are read; each of those is
 * computed when it arrives. The sum does not depend on the order. */
bool mixture_run(struct backend *b, const struct mixture_params *p, const struct mixture_weights *w,
                 struct mixture_scratch *t, int tile, const struct expert_source *source,
                 const struct batch *batch, int layer, struct err *e)
{
    struct routing r = {.layer = layer, .rows = batch->rows, .k = p->used, .ids = t->ids,
                        .weights = t->weights, .is_band = batch->is_band,
                        .displaced = t->bonus ? t->displaced : NULL, .spread = t->spread};
    struct guess g = {.layer = layer + 1, .rows = batch->rows, .ranks = t->guess_ranks,
                      .ids = t->guess_ids, .weights = t->guess_weights, .is_band = batch->is_band};
    backend_lap(b, LAP_OTHER);
    group(p, t, batch->rows);
    backend_lap(b, LAP_READS);
    bool ok = source->begin(source->ctx, &r, e);
    if (ok && g.ranks)
        source->guess(source->ctx, &g); /* its reads start before anything is waited for */
    if (ok && t->far_router)
        guess_far(b, p, t, tile, source, batch, layer);
    for (int at = 0; ok && p->shared_width && at < batch->rows; at += tile) {
        size_t first = (size_t)at * (size_t)p->embd;
        b->shared_expert(b, t->in + first, batch->rows - at < tile ? batch->rows - at : tile, p->embd,
                         &w->shared_gate, &w->shared_up, &w->shared_down, &w->shared_scale,
                         t->shared + first);
        ok = !batch_is_cancelled(batch, e); /* a long band has many tiles */
    }
    while (ok) {
        struct expert_record records[AT_ONCE];
        struct expert_job jobs[AT_ONCE];
        backend_lap(b, LAP_READS);
        int n = source->next(source->ctx, records, batch->is_band ? BAND_AT_ONCE : AT_ONCE, e);
        if (n <= 0) {
            ok = n == 0;
            break;
        }
        for (int i = 0; i < n; i++)
            jobs[i] = make_job(p, w, t, &records[i]);
        b->experts(b, t->in, p->embd, jobs, n, t->sum);
        ok = b->finish(b, e); /* before `next` may take the records away */
        ok = ok && !batch_is_cancelled(batch, e);
    }
    backend_lap(b, LAP_READS);
    source->end(source->ctx);
    backend_lap(b, LAP_OTHER);
    return ok;
}

void mixture_result(struct backend *b, const struct mixture_params *p, struct mixture_scratch *t,
                    int first, int rows, const struct batch *batch, int layer, float *out)
{
    size_t at = (size_t)first * (size_t)p->embd, count = (size_t)rows * (size_t)p->embd;
    b->routed(b, t->sum + at, count, out);
    dump_rows(batch, b, layer, "moe_routed", out, rows, p->embd, 0);
    if (!p->shared_width)
        return;
    dump_rows(batch, b, layer, "moe_shared", t->shared + at, rows, p->embd, 0);
    b->add(b, out, t->shared + at, count);
}
