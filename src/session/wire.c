/* SPDX-License-Identifier: Apache-2.0 */
/* The network asks for experts and rows through two small interfaces; here they meet the stream. */
#include "session/session.h"

_Static_assert(EXPERT_PARTS == STREAM_PARTS, "a record has the same parts on both sides");
_Static_assert(GUESS_RANKS_MOST == STREAM_RANKS_MOST, "a guess has the same ranks on both sides");

enum { MOST_AT_ONCE = 64 };

static bool experts_begin(void *ctx, const struct routing *r, struct err *e)
{
    if (r->displaced)
        stream_note_routing(ctx, r->layer, r->displaced, r->spread, r->rows);
    return stream_begin(ctx, r->layer, r->ids, r->rows * r->k, r->is_band, e);
}

static int experts_next(void *ctx, struct expert_record *out, int most, struct err *e)
{
    struct stream_record ready[MOST_AT_ONCE];
    int n = stream_next(ctx, ready, most < MOST_AT_ONCE ? most : MOST_AT_ONCE, e);
    for (int i = 0; i < n; i++) {
        out[i].expert = ready[i].expert;
        out[i].is_new = ready[i].is_new;
        for (int p = 0; p < EXPERT_PARTS; p++)
            out[i].part[p] = ready[i].part[p];
    }
    return n;
}

static void experts_end(void *ctx)
{
    stream_end(ctx);
}

static int experts_guess_ranks(void *ctx, int layer, bool is_band)
{
    return stream_guess_ranks(ctx, layer, is_band);
}

static void experts_guess(void *ctx, const struct guess *g)
{
    stream_guess(ctx, g->layer, g->ids, g->weights, g->rows, g->ranks, g->is_band);
}

static const float *experts_bonus(void *ctx, int layer, bool is_band, int *keep)
{
    return stream_bonus(ctx, layer, is_band, keep);
}

void wire_experts(struct expert_source *out, struct stream *s)
{
    *out = (struct expert_source){.ctx = s,
                                  .begin = experts_begin,
                                  .next = experts_next,
                                  .end = experts_end,
                                  .guess_ranks = experts_guess_ranks,
                                  .guess = experts_guess,
                                  .bonus = experts_bonus};
}

static bool rows_begin(void *ctx, const uint64_t *rows, int n, struct err *e)
{
    return stream_rows_begin(ctx, rows, n, e);
}

static bool rows_wait(void *ctx, const void **bytes, struct err *e)
{
    return stream_rows_wait(ctx, bytes, e);
}

void wire_rows(struct row_source *out, struct stream_rows *r)
{
    *out = (struct row_source){r, rows_begin, rows_wait};
}
