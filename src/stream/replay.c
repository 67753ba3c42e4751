/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "stream/arena.h"

#define FAKE_BYTES ((uint64_t)1 << 50)
#define EXPERT_SHARE 0.4 /* of a token's work, where nothing says how much it is */

struct replay {
    const struct trace *trace;
    const struct trace_head *head;
    const struct replay_config *config;
    const struct replay_drive *drive;
    struct io *io;
    struct stream *stream;
    int32_t *ids, *guess; /* [rows][used], [rows][ranks] of the largest turn */
    /* Of a token in each layer, in nanoseconds: before its experts, and for all of them. */
    int64_t other_ns, experts_ns;
    /* Of windows, and of bands. */
    struct counted {
        uint64_t tokens;
        int64_t us;
        struct stream_stats stats;
    } windows, bands;
};

static bool guesses_far(const struct replay_config *c)
{
    return c->ahead.kind == STREAM_GUESS_ROUTER && c->ahead.distance == 2 && !c->ahead.is_off;
}

/* ---- the arena ---- */

/* A number of the header's lines; 0: they do not say. */
static int said(const struct trace *t, const char *key, int most)
{
    char text[64];
    const char *v = trace_value(t, key, text, sizeof text);
    long n = v ? strtol(v, NULL, 10) : 0;
    return n > 0 && n <= most ? (int)n : 0;
}

/* A record in so many parts of whole pages. */
static void cut_record(struct stream_layer *layer, uint64_t at, uint64_t bytes, int parts)
{
    uint64_t each = bytes / (uint64_t)parts & ~(uint64_t)4095;
    layer->parts = each ? parts : 1;
    for (int p = 0; p < layer->parts; p++) {
        uint64_t before = each * (uint64_t)p;
        layer->part[p].bytes = p + 1 < layer->parts ? each : bytes - before;
        layer->part[p].offset = at;
        at += layer->part[p].bytes * (uint64_t)layer->experts;
    }
}

/* Layers as the stream sees them. Freed with mem_free. */
static bool make_layers(const struct trace *t, int window_rows, int parts, struct stream_config *c,
                        struct err *e)
{
    const struct trace_head *h = trace_head(t);
    struct stream_layer *layer = mem_alloc_array((size_t)h->layers, sizeof *layer, "layers", e);
    uint64_t at = 0;
    for (int l = 0; layer && l < h->layers; l++) {
        uint64_t bytes = h->layer[l].record_bytes;
        layer[l].experts = bytes ? h->experts : 0;
        if (bytes)
            cut_record(&layer[l], at, bytes, parts);
        at += bytes * (uint64_t)h->experts;
    }
    *c = (struct stream_config){.layers = h->layers,
                                .layer = layer,
                                .window_rows = window_rows,
                                .experts_used = h->used,
                                .has_no_memory = true};
    return layer != NULL;
}

int replay_window_rows(const struct trace *t)
{
    int most = 1;
    for (int i = 0; i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        most = r.kind == TRACE_WINDOW && r.rows > most ? r.rows : most;
    }
    return most;
}

uint64_t replay_arena_bytes(const struct trace *t, int window_rows, double share)
{
    struct stream_config c;
    struct err ignored;
    err_clear(&ignored);
    if (!make_layers(t, window_rows, 1, &c, &ignored))
        return 0;
    uint64_t staging = stream_staging_bytes(&c, 4096), all = stream_all_bytes(&c, 4096) - staging;
    uint64_t least = stream_least_bytes(&c, 4096),
             bytes = (uint64_t)((double)all * share + 0.5) + staging;
    mem_free((void *)c.layer);
    return bytes > least ? bytes : least;
}

static bool parse_ahead(const char *text, struct stream_ahead *out)
{
    char *end;
    *out = (struct stream_ahead){.has_guard = !strcmp(text, "auto"), .is_off = !strcmp(text, "off")};
    if (out->has_guard || out->is_off)
        return true;
    long ranks = strtol(text, &end, 10);
    out->ranks = (int)ranks;
    return end > text && !*end && ranks > 0 && ranks <= STREAM_RANKS_MOST;
}

bool replay_own_config(const struct trace *t, struct replay_config *out)
{
    char text[64];
    struct err ignored;
    err_clear(&ignored);
    *out = (struct replay_config){0};
    const char *v = trace_value(t, "policy", text, sizeof text);
    if (!v || !policy_parse(v, &out->policy, &ignored))
        return false;
    if (!(v = trace_value(t, "arena_bytes", text, sizeof text)))
        return false;
    out->arena_bytes = strtoull(v, NULL, 10);
    v = trace_value(t, "window_rows", text, sizeof text);
    out->window_rows = v ? (int)strtol(v, NULL, 10) : 0;
    if (out->window_rows < 1 || out->window_rows > 1024)
        return false;
    v = trace_value(t, "look_ahead", text, sizeof text);
    out->no_look_ahead = v && !strcmp(v, "0");
    v = trace_value(t, "read_ahead", text, sizeof text);
    return v && parse_ahead(v, &out->ahead);
}

bool replay_live(const struct trace *t, uint64_t *hits, uint64_t *misses)
{
    const struct trace_head *h = trace_head(t);
    *hits = *misses = 0;
    if (!h->has_counts)
        return false;
    for (int i = 0; i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        for (int l = 0; r.kind <= TRACE_BAND && l < h->layers; l++) {
            uint32_t counts[TRACE_COUNTS];
            if (!h->layer[l].record_bytes || !trace_counts(t, &r, l, counts))
                continue;
            *hits += counts[TRACE_HITS];
            *misses += counts[TRACE_MISSES];
        }
    }
    return true;
}

/* ---- cache-aware routing ---- */

/* Standard normal quantile of 1 - (rank + 1/2) / n, by a rational approximation (error 0.0005). */
static double expected_logit(int rank, int n)
{
    double p = ((double)rank + 0.5) / n;
    bool is_low = p > 0.5;
    double t = sqrt(-2 * log(is_low ? 1 - p : p));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    return is_low ? -x : x;
}

/* A trace has no logits of what was not selected. They are taken to be normally distributed, with
 * the spread that the weights of the selected ones show, and in the order of the guess. Then the
 * rule is that of runs: residents get strength * spread, the best `keep` are kept. */
static void prefer_residents(struct replay *p, const struct trace_record *r, int layer, int before,
                             int row, int32_t *ids)
{
    const struct trace_head *h = p->head;
    int used = h->used, n = used, candidate[512];
    double score[512];
    float weights[256];
    int32_t guess[256];
    trace_row(p->trace, r, layer, row, NULL, weights, NULL);
    for (int i = 0; i < used; i++)
        candidate[i] = ids[i];
    if (before >= 0)
        trace_row(p->trace, r, before, row, NULL, NULL, guess);
    for (int i = 0; before >= 0 && i < h->ranks && guess[i] >= 0; i++) {
        bool is_new = true;
        for (int j = 0; j < used; j++)
            is_new = is_new && ids[j] != guess[i];
        if (is_new)
            candidate[n++] = guess[i];
    }
    double first = expected_logit(0, h->experts), last = expected_logit(used - 1, h->experts);
    double w0 = (double)weights[0], w1 = (double)weights[used - 1];
    double sigma = used > 1 && w1 > 0 && w0 > w1 ? log(w0 / w1) / (first - last) : 1;
    double bonus =
        (double)p->config->moce * sigma * (first - expected_logit(h->experts - 1, h->experts));
    for (int i = 0; i < n; i++)
        score[i] = sigma * expected_logit(i, h->experts) +
                   (stream_is_resident(p->stream, layer, candidate[i]) ? bonus : 0) +
                   (i < p->config->moce_keep ? 1e9 : 0);
    for (int i = 0; i < used; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++)
            best = score[j] > score[best] ? j : best;
        double s = score[best];
        int c = candidate[best];
        score[best] = score[i];
        candidate[best] = candidate[i];
        score[i] = s;
        candidate[i] = c;
        ids[i] = c;
    }
}

/* ---- turns ---- */

static int layer_beside(const struct trace_head *h, int layer, int step)
{
    for (layer += step; layer >= 0 && layer < h->layers; layer += step)
        if (h->layer[layer].record_bytes)
            return layer;
    return -1;
}

/* The guess that the trace has, at the next layer or the one after it: as many ranks as the stream
 * wants. */
static int take_guess(struct replay *p, const struct trace_record *r, int layer, bool is_far,
                      int ranks)
{
    int32_t guess[256];
    ranks = ranks < p->head->ranks ? ranks : p->head->ranks;
    for (int row = 0; row < r->rows && ranks; row++) {
        if (is_far)
            trace_far_guess(p->trace, r, layer, row, guess);
        else
            trace_row(p->trace, r, layer, row, NULL, NULL, guess);
        int there = 0;
        while (there < ranks && guess[there] >= 0)
            there++;
        if (there < ranks) { /* the same for all rows of a turn */
            ranks = there;
            row = -1;
            continue;
        }
        memcpy(p->guess + (size_t)row * (size_t)ranks, guess, (size_t)ranks * sizeof *guess);
    }
    return ranks;
}

/* Records that turns have wanted so far. */
static uint64_t wanted(const struct replay *p)
{
    struct stream_stats s;
    stream_get_stats(p->stream, &s);
    return s.hits + s.misses;
}

/* As stream_next. Who waited long finds the other threads asleep. */
static int take_records(struct replay *p, struct err *e)
{
    struct stream_record out[64];
    struct stream_stats was, is;
    stream_get_stats(p->stream, &was);
    int n = stream_next(p->stream, out, 64, e);
    stream_get_stats(p->stream, &is);
    if (is.wait_us - was.wait_us > REPLAY_AWAKE_US)
        io_pass_ns(p->io, REPLAY_WAKE_NS);
    return n;
}

static bool run_layer(struct replay *p, const struct trace_record *r, int layer, struct err *e)
{
    bool is_band = r->kind == TRACE_BAND, is_far = !is_band && guesses_far(p->config);
    int used = p->head->used, next = layer + 1 + is_far;
    next = next < p->head->layers ? next : -1;
    if (next >= 0 && !p->head->layer[next].record_bytes)
        next = -1;
    int before = layer_beside(p->head, layer, -1);
    for (int row = 0; row < r->rows; row++) {
        trace_row(p->trace, r, layer, row, p->ids + row * used, NULL, NULL);
        if (p->config->moce > 0 && !is_band)
            prefer_residents(p, r, layer, before, row, p->ids + row * used);
    }
    int ranks = next >= 0 ? stream_guess_ranks(p->stream, next, is_band) : 0;
    if (!is_band)
        io_pass_ns(p->io, p->other_ns * r->rows);
    uint64_t wanted_before = wanted(p);
    if (!stream_begin(p->stream, layer, p->ids, r->rows * used, is_band, e))
        return false;
    ranks = ranks ? take_guess(p, r, layer, is_far, ranks) : 0;
    if (ranks)
        stream_guess(p->stream, next, p->guess, NULL, r->rows, ranks, is_band);
    int64_t distinct = (int64_t)(wanted(p) - wanted_before);
    int n;
    while ((n = take_records(p, e)) > 0)
        if (!is_band)
            io_pass_ns(p->io, p->experts_ns * r->rows * n / distinct);
    stream_end(p->stream);
    return n == 0;
}

static bool run_turn(struct replay *p, const struct trace_record *r, struct err *e)
{
    struct counted *of = r->kind == TRACE_BAND ? &p->bands : &p->windows;
    struct stream_stats was, is;
    int64_t began = io_now_us(p->io);
    stream_get_stats(p->stream, &was);
    for (int l = 0; l < p->head->layers; l++)
        if (p->head->layer[l].record_bytes &&
            (replay_is_cancelled(p->config->cancel, e) || !run_layer(p, r, l, e)))
            return false;
    stream_get_stats(p->stream, &is);
    of->tokens += (uint64_t)r->rows;
    of->us += io_now_us(p->io) - began;
    of->stats.hits += is.hits - was.hits;
    of->stats.misses += is.misses - was.misses;
    of->stats.ahead_useful += is.ahead_useful - was.ahead_useful;
    of->stats.ahead_late += is.ahead_late - was.ahead_late;
    of->stats.ahead_wasted += is.ahead_wasted - was.ahead_wasted;
    of->stats.wait_us += is.wait_us - was.wait_us;
    return true;
}

static bool run_records(struct replay *p, struct err *e)
{
    for (int i = 0; i < trace_records(p->trace); i++) {
        struct trace_record r;
        trace_record_at(p->trace, i, &r);
        if (r.kind == TRACE_PROMPT_BEGIN)
            stream_prompt_begin(p->stream, r.rows);
        else if (r.kind == TRACE_PROMPT_END)
            stream_prompt_end(p->stream);
        else if (r.kind <= TRACE_BAND && !run_turn(p, &r, e))
            return false;
    }
    return true;
}

/* ---- all of it ---- */

static bool allocate(struct replay *p, struct err *e)
{
    int rows = 1;
    for (int i = 0; i < trace_records(p->trace); i++) {
        struct trace_record r;
        trace_record_at(p->trace, i, &r);
        rows = r.kind <= TRACE_BAND && r.rows > rows ? r.rows : rows;
    }
    int ranks = p->head->ranks ? p->head->ranks : 1;
    p->ids = mem_alloc_array((size_t)rows * (size_t)p->head->used, sizeof *p->ids, "a replay", e);
    p->guess = mem_alloc_array((size_t)rows * (size_t)ranks, sizeof *p->guess, "a replay", e);
    return p->ids && p->guess;
}

/* What a token takes besides waiting is divided evenly among the layers. */
static void divide_work(struct replay *p)
{
    char text[64];
    const char *v = trace_value(p->trace, "expert_share", text, sizeof text);
    double share = p->drive->expert_share > 0 ? p->drive->expert_share : v ? strtod(v, NULL) : 0;
    int layers = 0;
    for (int l = 0; l < p->head->layers; l++)
        layers += p->head->layer[l].record_bytes > 0;
    if (!(share > 0 && share <= 1))
        share = EXPERT_SHARE;
    double ns = layers && p->drive->drive ? p->drive->compute_ms * 1e6 / layers : 0;
    p->experts_ns = (int64_t)(ns * share);
    p->other_ns = (int64_t)(ns * (1 - share));
}

static void finish_times(const struct replay *p, struct replay_result *out)
{
    const struct counted *of = p->windows.tokens ? &p->windows : &p->bands;
    double tokens = (double)of->tokens;
    out->tokens = of->tokens;
    if (!of->tokens)
        return;
    out->hits_per_token = (double)of->stats.hits / tokens;
    out->misses_per_token = (double)of->stats.misses / tokens;
    out->useful_per_token = (double)of->stats.ahead_useful / tokens;
    out->late_per_token = (double)of->stats.ahead_late / tokens;
    out->wasted_per_token = (double)of->stats.ahead_wasted / tokens;
    if (!p->drive->drive)
        return;
    out->wait_ms_per_token = (double)of->stats.wait_us * 1e-3 / tokens;
    if (p->windows.tokens && p->drive->compute_ms > 0)
        out->tok_s = tokens * 1e6 / (double)of->us;
}

static bool run_policy(struct replay *p, struct stream_config *c, struct replay_result *out,
                       struct err *e)
{
    const char *const name = "trace";
    const struct replay_config *own = p->config;
    struct io_options io_options = {
        .engine = "fake",
        .fake_bytes = FAKE_BYTES,
        .drive = p->drive->drive,
        .depth = own->io_depth ? own->io_depth : said(p->trace, "io_depth", 4096),
        .ahead_kept = own->io_urgent ? own->io_urgent : said(p->trace, "io_urgent", 4096)};
    c->policy = own->policy;
    c->ahead = own->ahead;
    c->ahead.has_guard &= p->drive->drive != NULL;
    c->no_look_ahead = own->no_look_ahead;
    c->split = own->split ? own->split : said(p->trace, "split", STREAM_SPLIT_MOST);
    p->io = io_create(&name, 1, &io_options, e);
    p->stream = p->io ? stream_create(c, p->io, e) : NULL;
    divide_work(p);
    if (!p->stream || !allocate(p, e) || !run_records(p, e))
        return false;
    struct stream_stats s;
    stream_get_stats(p->stream, &s);
    out->hits = s.hits;
    out->misses = s.misses;
    out->useful = s.ahead_useful;
    out->late = s.ahead_late;
    out->wasted = s.ahead_wasted;
    finish_times(p, out);
    return true;
}

/* The bound has the classes and slots of the arena that a run would have. */
static bool run_bound(struct replay *p, const struct stream_config *c, struct replay_result *out,
                      struct err *e)
{
    struct arena_layout a;
    int slots[ARENA_CLASSES] = {0};
    int *class_of = mem_alloc_array((size_t)c->layers, sizeof *class_of, "a replay", e);
    bool ok = class_of && arena_cut(c, 4096, &a, e);
    for (int i = 0; ok && i < a.classes; i++)
        slots[i] = a.class[i].slots;
    for (int l = 0; ok && l < c->layers; l++) {
        struct arena_layer place = arena_place_layer(&c->layer[l], 4096);
        class_of[l] = place.bytes ? arena_class_of(&a, &place) : 0;
    }
    ok = ok && replay_bound(p->trace, slots, a.classes, class_of, p->config->cancel, out, e);
    mem_free(class_of);
    return ok;
}

bool replay_has_guesses(const struct trace *t, const struct replay_config *c)
{
    return !guesses_far(c) || trace_head(t)->guess_layers == 2;
}

static bool check_asked(const struct replay *p, struct err *e)
{
    double ms = p->drive->compute_ms;
    if (!(ms >= 0 && ms <= REPLAY_COMPUTE_MS_MOST))
        return err_set(e, ERR_USAGE,
                       "a replay: the time of a token besides waiting is %g ms: it must be 0 to %g",
                       ms, REPLAY_COMPUTE_MS_MOST);
    return replay_has_guesses(p->trace, p->config) ||
           err_set(e, ERR_USAGE, "a replay: the trace has no router's guesses two layers ahead");
}

bool replay_run(const struct trace *t, const struct replay_config *config,
                const struct replay_drive *d, struct replay_result *out, struct err *e)
{
    struct replay p = {.trace = t, .head = trace_head(t), .config = config, .drive = d};
    struct stream_config c;
    *out = (struct replay_result){0};
    if (!check_asked(&p, e))
        return false;
    int parts = config->parts ? config->parts : said(t, "parts", STREAM_PARTS);
    if (!make_layers(t, config->window_rows, parts ? parts : 1, &c, e))
        return false;
    c.arena_bytes = config->arena_bytes;
    out->slots = stream_count_slots(&c, 4096);
    for (int l = 0; l < c.layers; l++)
        out->records += (uint64_t)c.layer[l].experts;
    bool ok = config->is_bound ? run_bound(&p, &c, out, e) : run_policy(&p, &c, out, e);
    stream_free(p.stream);
    if (p.io)
        io_close(p.io);
    mem_free(p.ids);
    mem_free(p.guess);
    mem_free((void *)c.layer);
    return ok;
}
