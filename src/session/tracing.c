/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of a run: stands between the network and the stream, and writes down what passes. Nothing
 * that is decided depends on it; it only asks for more ranks of each guess than the stream wants,
 * and for guesses two layers ahead. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "session/engine.h"
#include "stream/arena.h"
#include "stream/trace.h"

struct tracing {
    struct trace_writer *writer;
    struct expert_source inner; /* the stream's */
    struct stream *stream;
    int ranks, inner_ranks; /* of the trace; that the stream asked for, of the turn under way */
    int32_t *few;           /* [rows][inner_ranks] what it gets; likewise the weights */
    float *few_weights;
    struct kept_guess {
        uint16_t *ids; /* [rows][ranks] */
        int ranks;     /* 0: none was made */
        size_t room;   /* values */
    } guess[2];        /* at the next layer, at the one after it */
    size_t room; /* values that few and few_weights can hold */
    struct routing routing;
    struct stream_stats before;
    int64_t compute_before_us;
    struct err failure; /* of memory; such a trace ends here */
};

/* ---- The network's side --------------------------------------------------------------------- */

static bool trace_begin(void *ctx, const struct routing *r, struct err *e)
{
    struct tracing *t = ctx;
    t->routing = *r;
    t->guess[0].ranks = t->guess[1].ranks = 0;
    stream_get_stats(t->stream, &t->before);
    return t->inner.begin(t->inner.ctx, r, e);
}

static int trace_next(void *ctx, struct expert_record *out, int most, struct err *e)
{
    struct tracing *t = ctx;
    return t->inner.next(t->inner.ctx, out, most, e);
}

static void trace_end(void *ctx)
{
    struct tracing *t = ctx;
    const struct routing *r = &t->routing;
    struct stream_stats now;
    t->inner.end(t->inner.ctx);
    stream_get_stats(t->stream, &now);
    const uint32_t counts[TRACE_COUNTS] = {
        [TRACE_HITS] = (uint32_t)(now.hits - t->before.hits),
        [TRACE_MISSES] = (uint32_t)(now.misses - t->before.misses),
        [TRACE_USEFUL] = (uint32_t)(now.ahead_useful - t->before.ahead_useful),
        [TRACE_LATE] = (uint32_t)(now.ahead_late - t->before.ahead_late),
        [TRACE_WASTED] = (uint32_t)(now.ahead_wasted - t->before.ahead_wasted),
    };
    const struct trace_guess guess[2] = {{t->guess[0].ids, t->guess[0].ranks},
                                         {t->guess[1].ids, t->guess[1].ranks}};
    trace_layer_rows(t->writer, r->rows, r->ids, r->weights, guess, counts);
}

static int trace_guess_ranks(void *ctx, int layer, bool is_band)
{
    struct tracing *t = ctx;
    t->inner_ranks = t->inner.guess_ranks(t->inner.ctx, layer, is_band);
    return t->inner_ranks > t->ranks ? t->inner_ranks : t->ranks;
}

/* The stream wants none of them. */
static int trace_far_ranks(void *ctx, int layer, bool is_band)
{
    (void)layer, (void)is_band;
    return ((struct tracing *)ctx)->ranks;
}

static void keep_guess(struct tracing *t, struct kept_guess *k, const struct guess *g)
{
    size_t values = (size_t)g->rows * (size_t)g->ranks;
    if (values > k->room) {
        mem_free(k->ids);
        k->ids = mem_alloc_array(values, sizeof *k->ids, "a trace", &t->failure);
        k->room = k->ids ? values : 0;
    }
    k->ranks = k->ids ? (g->ranks < t->ranks ? g->ranks : t->ranks) : 0;
    for (int row = 0; row < g->rows; row++)
        for (int i = 0; i < k->ranks; i++)
            k->ids[row * k->ranks + i] = (uint16_t)g->ids[(size_t)row * (size_t)g->ranks + (size_t)i];
}

static bool make_room(struct tracing *t, size_t values)
{
    if (values <= t->room)
        return true;
    mem_free(t->few);
    mem_free(t->few_weights);
    t->few = mem_alloc_array(values, sizeof *t->few, "a trace", &t->failure);
    t->few_weights = mem_alloc_array(values, sizeof *t->few_weights, "a trace", &t->failure);
    t->room = t->few && t->few_weights ? values : 0;
    return t->room > 0;
}

/* The stream gets the ranks that it asked for, the trace the others too. */
static void trace_guess(void *ctx, const struct guess *g)
{
    struct tracing *t = ctx;
    bool is_far = g->layer > t->routing.layer + 1;
    keep_guess(t, &t->guess[is_far], g);
    int few = t->inner_ranks < g->ranks ? t->inner_ranks : g->ranks;
    if (is_far || !few || !make_room(t, (size_t)g->rows * (size_t)few))
        return;
    for (int row = 0; row < g->rows; row++) {
        const int32_t *ids = g->ids + (size_t)row * (size_t)g->ranks;
        const float *weights = g->weights + (size_t)row * (size_t)g->ranks;
        for (int i = 0; i < few; i++) {
            t->few[row * few + i] = ids[i];
            t->few_weights[row * few + i] = weights[i];
        }
    }
    struct guess less = *g;
    less.ranks = few;
    less.ids = t->few;
    less.weights = t->few_weights;
    t->inner.guess(t->inner.ctx, &less);
}

static const float *trace_bonus(void *ctx, int layer, bool is_band, int *keep)
{
    struct tracing *t = ctx;
    return t->inner.bonus(t->inner.ctx, layer, is_band, keep);
}

/* ---- The session's side --------------------------------------------------------------------- */

void tracing_prompt(struct strata_model *m, int rows)
{
    if (m->tracing)
        trace_mark(m->tracing->writer, rows ? TRACE_PROMPT_BEGIN : TRACE_PROMPT_END, 0,
                   (uint32_t)rows);
}

bool tracing_forward(struct strata_model *m, struct model_state *state, const struct batch *batch,
                     struct err *e)
{
    struct trace_writer *w = m->tracing ? m->tracing->writer : NULL;
    if (w)
        trace_turn(w, batch->is_band, 0, batch->rows, batch->ids);
    pool_begin_pass(m->pool);
    bool ok = model_forward(m->network, state, batch, &m->experts, &m->row_source, e);
    pool_end_pass(m->pool);
    if (w)
        trace_turn_end(w, ok);
    return ok;
}

/* ---- Beginning and end ---------------------------------------------------------------------- */

static bool describe_arena(struct strata_model *m, struct trace_head *h, struct json_out *text,
                           struct err *e)
{
    struct stream_config c;
    struct arena_layout a;
    if (!engine_stream_config(m, &c, e))
        return false;
    c.arena_bytes = m->plan.stream_bytes;
    bool ok = arena_cut(&c, io_align(m->io), &a, e);
    h->classes = ok ? a.classes : 0;
    for (int i = 0; i < h->classes; i++)
        h->slots[i] = (uint32_t)a.class[i].slots;
    for (int l = 0; ok && l < h->layers; l++) {
        struct arena_layer place = arena_place_layer(&c.layer[l], io_align(m->io));
        h->layer[l].record_bytes = place.bytes;
        if (place.bytes)
            h->layer[l].class_index = (uint32_t)arena_class_of(&a, &place);
    }
    json_putf(text, "policy=%s\nwindow_rows=%d\narena_bytes=%llu\nstaging=%d\n",
              policy_name(c.policy), c.window_rows, (unsigned long long)c.arena_bytes,
              ok && a.classes ? a.class[0].staging : 0);
    json_putf(text, "read_ahead=%s\nlook_ahead=%d\n",
              c.ahead.is_off          ? "off"
              : m->options.read_ahead ? m->options.read_ahead
                                      : "auto",
              !c.no_look_ahead);
    json_putf(text, "moce=%s\nmoce_keep=%d\nprompt_moce=%d\n",
              m->options.moce ? m->options.moce : "0", m->options.moce_keep,
              m->options.prompt_moce);
    json_putf(text, "parts=%d\nsplit=%d\nio_depth=%d\nio_urgent=%d\nexpert_share=%.4f\n",
              engine_record_parts(&c), c.split, m->options.io_depth, m->options.io_urgent,
              engine_expert_share(m));
    mem_free((void *)c.layer);
    return ok && (!text->failed || err_set(e, ERR_MEMORY, "out of memory: a trace"));
}

static bool open_writer(struct strata_model *m, struct tracing *t, const char *path,
                        int guess_layers, struct err *e)
{
    const struct model_info *i = model_info(m->network);
    int ranks = i->experts < STREAM_RANKS_MOST ? i->experts : STREAM_RANKS_MOST;
    struct trace_head h = {.layers = i->layers,
                           .experts = i->experts,
                           .used = i->experts_used,
                           .ranks = ranks,
                           .guess_layers = guess_layers,
                           .has_counts = true};
    struct json_out text = {0};
    memcpy(h.fingerprint, m->fingerprint, sizeof h.fingerprint);
    h.layer = mem_alloc_array((size_t)i->layers, sizeof *h.layer, "a trace", e);
    if (h.layer && describe_arena(m, &h, &text, e)) {
        h.text = text.text;
        t->writer = trace_create(path, &h, e);
    }
    json_out_free(&text);
    mem_free(h.layer);
    t->ranks = ranks;
    return t->writer != NULL;
}

bool strata_trace_begin(struct strata_model *m, const char *path, int guess_layers,
                        struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (!m->is_loaded)
        err_set(&e, ERR_USAGE, "%s: a trace needs a loaded model", m->path);
    else if (!m->stream)
        err_set(&e, ERR_USAGE, "%s: has no experts that could be traced", m->path);
    else if (guess_layers != 1 && guess_layers != 2)
        err_set(&e, ERR_USAGE, "guess_layers is %d: it must be 1 or 2", guess_layers);
    else if (m->tracing)
        err_set(&e, ERR_USAGE, "%s: a trace is being written already", m->path);
    else if (model_info(m->network)->has_draft)
        err_set(&e, ERR_USAGE,
                "%s: a trace cannot hold the turns of a draft layer: trace without it", m->path);
    struct tracing *t = e.code ? NULL : mem_alloc(sizeof *t, "a trace", &e);
    if (t && !open_writer(m, t, path, guess_layers, &e)) {
        mem_free(t);
        t = NULL;
    }
    if (t) {
        t->inner = m->experts;
        t->stream = m->stream;
        m->experts = (struct expert_source){
            t,           trace_begin, trace_next, trace_end, trace_guess_ranks,
            trace_guess, trace_bonus, guess_layers == 2 ? trace_far_ranks : NULL};
        m->tracing = t;
    }
    return session_report(error, &e);
}

/* What a token of a window took besides waiting, and how long it waited, in milliseconds. */
static void put_end(const struct strata_model *m, char *out, size_t room)
{
    struct strata_stats s;
    strata_stats_get(m, &s);
    double tokens = s.decode_tokens ? (double)s.decode_tokens : 1;
    double wait = s.decode.wait_s * 1e3 / tokens, all = s.decode_s * 1e3 / tokens;
    snprintf(out, room, "compute_ms=%.4f\nwait_ms=%.4f\ntok_s=%.4f\n", all > wait ? all - wait : 0,
             wait, s.decode_tok_s);
}

bool strata_trace_end(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct tracing *t = m->tracing;
    if (!t)
        return true;
    char text[256];
    put_end(m, text, sizeof text);
    m->experts = t->inner;
    m->tracing = NULL;
    struct err why = t->failure;
    trace_close(t->writer, text, &e);
    if (why.code != ERR_NONE)
        err_set(&e, why.code, "%s", why.text);
    mem_free(t->few);
    mem_free(t->few_weights);
    mem_free(t->guess[0].ids);
    mem_free(t->guess[1].ids);
    mem_free(t);
    return session_report(error, &e);
}
