/* SPDX-License-Identifier: Apache-2.0 */
#include "model/draft.h"

#include <math.h>

#include "model/arch.h"

bool draft_bind(struct weights *w, struct draft_weights *out, int streams, int embd, int vocab,
                int layer, struct err *e)
{
    return weights_vector(w, &out->enorm, embd, e, "blk.%d.nextn.enorm.weight", layer) &&
           weights_vector(w, &out->hnorm, (int64_t)streams * embd, e, "blk.%d.nextn.hnorm.weight",
                          layer) &&
           weights_matrix(w, &out->eh_proj, 2 * (int64_t)embd, embd, e,
                          "blk.%d.nextn.eh_proj.weight", layer) &&
           (!weights_has(w, "blk.%d.nextn.embed_tokens.weight", layer) ||
            weights_matrix(w, &out->own_embd, embd, vocab, e, "blk.%d.nextn.embed_tokens.weight",
                           layer)) &&
           (!weights_has(w, "blk.%d.nextn.shared_head_head.weight", layer) ||
            weights_matrix(w, &out->own_head, embd, vocab, e,
                           "blk.%d.nextn.shared_head_head.weight", layer));
}

void draft_carve(struct draft_scratch *t, int streams, int embd, int tile, struct carve *device)
{
    size_t rows = (size_t)tile, d = (size_t)embd;
    t->normed = carve(device, rows * d, sizeof *t->normed);
    t->both = carve(device, rows * (size_t)streams * 2 * d, sizeof *t->both);
}

void draft_join(struct backend *b, const struct draft_weights *w, const struct draft_scratch *t,
                const float *embedding, float *x, int rows, int streams, int embd, int tile,
                float eps)
{
    size_t d = (size_t)embd;
    int groups = rows * streams;
    b->norm(b, embedding, w->enorm, 1, rows, embd, eps, t->normed);
    for (int g = 0; g < groups; g++) {
        size_t at = (size_t)g, stream = at % (size_t)streams;
        float *both = t->both + at * 2 * d;
        b->repeat(b, t->normed + at / (size_t)streams * d, 1, embd, 1, both);
        b->norm(b, x + at * d, w->hnorm + stream * d, 1, 1, embd, eps, both + d);
    }
    for (int g = 0; g < groups; g += tile) { /* a product has at most a tile of rows */
        int n = groups - g < tile ? groups - g : tile;
        size_t at = (size_t)g;
        b->linear(b, t->both + at * 2 * d, n, 2 * embd, &(struct product){&w->eh_proj, x + at * d},
                  1);
    }
}

/* ---- model.h -------------------------------------------------------------------------------- */

/* The draft layer over rows of x, in place; entry: where their keys go. */
static bool run(struct model *m, struct model_state *s, float *x, const int32_t *ids, int rows,
                int entry, const struct batch *like, const struct expert_source *experts,
                bool (*logits)(void *ctx, int first, int rows, const float *logits, struct err *e),
                void *logits_ctx)
{
    struct err ignored; /* without guesses it works too */
    err_clear(&ignored);
    struct batch batch = {.ids = ids,
                          .rows = rows,
                          .is_band = like->is_band,
                          .end = entry + rows,
                          .wanted = logits ? LOGITS_LAST : LOGITS_NONE,
                          .logits = logits,
                          .logits_ctx = logits_ctx,
                          .dump = like->dump,
                          .cancel = like->cancel};
    return m->arch->does->draft(m, s, &batch, x, entry, experts, &ignored);
}

static void copy_row(struct backend *b, const float *from, int n, float *to)
{
    b->repeat(b, from, 1, n, 1, to);
}

void model_draft_follow(struct model *m, struct model_state *s, const struct batch *batch, int rows,
                        bool fills, const struct expert_source *experts)
{
    int start = s->position - rows, width = m->draft_width;
    float *x = m->arch->does->draft_input(m, rows);
    bool ok = fills;
    if (ok && start > 0 && s->draft_at == start - 1) {
        ok = run(m, s, s->draft_x, s->ids + start, 1, s->draft_entries, batch, experts, NULL, NULL);
        s->draft_entries += ok;
    }
    copy_row(m->backend, x + (size_t)(rows - 1) * (size_t)width, width, s->draft_x);
    s->draft_at = s->position - 1;
    if (ok && rows > 1 &&
        run(m, s, x, s->ids + start + 1, rows - 1, s->draft_entries, batch, experts, NULL, NULL))
        s->draft_entries += rows - 1;
}

struct best {
    int vocab;
    int32_t id;
};

static bool take_best(void *ctx, int first, int rows, const float *logits, struct err *e)
{
    (void)first, (void)rows, (void)e;
    struct best *best = ctx;
    best->id = 0;
    for (int v = 1; v < best->vocab; v++)
        if (logits[v] > logits[best->id])
            best->id = v;
    return true;
}

int model_draft_guess(struct model *m, struct model_state *s, int32_t id, int most, int32_t *out,
                      const struct expert_source *experts, const atomic_bool *cancel)
{
    struct best best = {.vocab = m->info.vocab};
    struct batch like = {.cancel = cancel};
    int n = 0;
    if (!most || !m->info.has_draft || s->draft_at < 0 || s->draft_at != s->position - 1)
        return 0;
    s->draft_at = -1; /* the residual is used up */
    while (n < most && s->draft_entries + n < s->ctx &&
           run(m, s, s->draft_x, &id, 1, s->draft_entries + n, &like, experts, take_best, &best))
        out[n++] = id = best.id;
    s->draft_entries += n > 0; /* the others are written again when they are true */
    return n;
}
