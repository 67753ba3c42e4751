/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pass.h"

#include <math.h>

#include "model/dump.h"

void pass_carve(struct pass_scratch *t, int tile, int vocab, struct carve *device,
                struct carve *host)
{
    size_t count = (size_t)tile * (size_t)vocab;
    t->logits = carve(device, count, sizeof(float));
    t->host_logits = carve(host, count, sizeof(float));
}

/* Rows of the tile that starts at `first`. */
static int tile_rows(const struct pass *p, int first)
{
    int left = p->batch->rows - first;
    return left < p->m->tile ? left : p->m->tile;
}

/* Weights of these stages are there. While the trunk is still being read this may take a while. */
static bool have_weights(struct pass *p, int stage)
{
    if (!p->m->weights.loading)
        return true;
    backend_lap(p->b, LAP_READS);
    return weights_wait(&p->m->weights, stage, p->batch->cancel, p->e);
}

/* Layers whose routers a layer may look at: its own, and as many for guesses. */
enum { ROUTERS_AHEAD = 2 };

static bool run_layer(struct pass *p, int i)
{
    const struct pass_steps *steps = p->steps;
    int rows = p->batch->rows, tile = p->m->tile;
    bool last = i + 1 >= p->m->info.layers;
    p->b->layer = i;
    mixture_enter(p->moe, steps->moe, p->experts, p->batch, i, last,
                  i + 2 < p->m->info.layers ? steps->mixture(p, i + 2) : NULL);
    if (steps->enter && !steps->enter(p, i))
        return false;
    for (int at = 0; at < rows; at += tile) {
        if (p->batch->dump)
            steps->show(p, i, "in", at, tile_rows(p, at));
        if (batch_is_cancelled(p->batch, p->e) || !steps->mix(p, i, at, tile_rows(p, at)))
            return false;
    }
    if (!mixture_run(p->b, steps->moe, steps->mixture(p, i), p->moe, tile, p->experts, p->batch, i,
                     p->e))
        return false;
    for (int at = 0; at < rows; at += tile) {
        if (batch_is_cancelled(p->batch, p->e))
            return false;
        steps->write_back(p, i, at, tile_rows(p, at));
    }
    return p->b->finish(p->b, p->e);
}

/* The head, for the rows whose logits are wanted (for a dump, all). */
static bool give_logits(struct pass *p, const struct pass_scratch *t)
{
    int rows = p->batch->rows, vocab = p->m->info.vocab;
    enum logits_wanted wanted = p->batch->wanted;
    int first = wanted == LOGITS_ALL ? 0 : wanted == LOGITS_LAST ? rows - 1 : rows;
    for (int at = p->batch->dump ? 0 : first; at < rows; at += p->m->tile) {
        int r = tile_rows(p, at), skip = at < first ? first - at : 0;
        size_t count = (size_t)r * (size_t)vocab;
        p->steps->head(p, at, r, t->logits);
        backend_lap(p->b, LAP_OTHER);
        if (batch_is_cancelled(p->batch, p->e) || !p->b->finish(p->b, p->e) ||
            !p->b->read(p->b, t->host_logits, t->logits, count * sizeof(float), p->e))
            return false;
        for (size_t j = 0; j < count; j++)
            if (!isfinite(t->host_logits[j]))
                return err_set(p->e, ERR_NUMERIC, "head: logit %zu at position %d is not finite",
                               j % (size_t)vocab, p->s->position + at + (int)(j / (size_t)vocab));
        if (skip < r && !p->batch->logits(p->batch->logits_ctx, at + skip, r - skip,
                                          t->host_logits + (size_t)skip * (size_t)vocab, p->e))
            return false;
    }
    return true;
}

/* After a failure: the sums must be zero between layers. */
static void clean_up(struct pass *p)
{
    size_t count = (size_t)p->batch->rows * (size_t)p->m->info.embd;
    p->b->routed(p->b, p->moe->sum, count, p->moe->in);
    p->b->finish(p->b, NULL);
}

bool pass_run(struct pass *p, const struct pass_scratch *t)
{
    int rows = p->batch->rows, tile = p->m->tile, layers = p->m->info.layers;
    bool ok = (!p->steps->begin || p->steps->begin(p)) && have_weights(p, WEIGHTS_FIRST);
    for (int at = 0; ok && at < rows; at += tile)
        p->steps->embed(p, at, tile_rows(p, at));
    for (int i = 0; ok && i < layers; i++) {
        ok = !batch_is_cancelled(p->batch, p->e) &&
             have_weights(p, weights_stage_of_layer(i + ROUTERS_AHEAD)) && run_layer(p, i);
        if (ok && p->batch->progress)
            p->batch->progress(p->batch->progress_ctx, i + 1, layers);
    }
    p->b->layer = -1;
    ok = ok && have_weights(p, WEIGHTS_ALL);
    for (int at = 0; ok && p->batch->dump && at < rows; at += tile)
        p->steps->show(p, -1, "out", at, tile_rows(p, at));
    ok = ok && give_logits(p, t);
    if (!ok)
        clean_up(p);
    return ok;
}

/* Logits of a draft layer for a dump: host [rows][vocab], tile by tile. */
static bool dump_draft(struct pass *p, const struct pass_scratch *t)
{
    int rows = p->batch->rows, vocab = p->m->info.vocab;
    for (int at = 0; at < rows; at += p->m->tile) {
        p->steps->head(p, at, tile_rows(p, at), t->logits);
        dump_rows(p->batch, p->b, -1, "draft", t->logits, tile_rows(p, at), vocab, 0);
    }
    return p->b->finish(p->b, p->e);
}

bool pass_draft(struct pass *p, const struct pass_scratch *t)
{
    int rows = p->batch->rows;
    const struct batch *asked = p->batch;
    struct batch quiet = *asked; /* of a dump only the logits are shown */
    quiet.dump = NULL;
    p->batch = &quiet;
    for (int at = 0; at < rows; at += p->m->tile)
        p->steps->embed(p, at, tile_rows(p, at));
    bool ok = !batch_is_cancelled(p->batch, p->e) && run_layer(p, p->m->info.layers);
    p->b->layer = -1;
    ok = ok && (asked->wanted == LOGITS_NONE || give_logits(p, t));
    p->batch = asked;
    if (ok && asked->dump)
        ok = dump_draft(p, t);
    if (!ok)
        clean_up(p);
    return ok;
}
