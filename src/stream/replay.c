/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "stream/arena.h"

#define FAKE_BYTES ((uint64_t)1 << 50)

struct replay {
    const struct trace *trace;
    const struct trace_head *head;
    const struct replay_config *config;
    const struct replay_drive *drive;
    struct io *io;
    struct stream *stream;
    int32_t *ids, *guess;     /* [rows][used], [rows][ranks] of the largest turn */
    double wait_ms, drive_ms; /* of the tokens so far: waited; that the drive needed in all */
    uint64_t windows_tokens, bands_tokens;
    double window_wait_ms, window_drive_ms;
};

/* ---- the arena ---- */

/* Layers as the stream sees them: one part a record, in whole pages. Freed with mem_free. */
static bool make_layers(const struct trace *t, int window_rows, struct stream_config *c,
                        struct err *e)
{
    const struct trace_head *h = trace_head(t);
    struct stream_layer *layer = mem_alloc_array((size_t)h->layers, sizeof *layer, "layers", e);
    uint64_t at = 0;
    for (int l = 0; layer && l < h->layers; l++) {
        uint64_t bytes = h->layer[l].record_bytes;
        if (bytes)
            layer[l] = (struct stream_layer){
                .experts = h->experts, .parts = 1, .part[0] = {.offset = at, .bytes = bytes}};
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
    if (!make_layers(t, window_rows, &c, &ignored))
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
    *out = (struct stream_ahead){0};
    if (!strcmp(text, "auto"))
        return true;
    if (!strcmp(text, "off"))
        out->is_off = true;
    else
        out->ranks = (int)strtol(text, &end, 10);
    return true;
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

/* ---- the drive ---- */

double replay_read_ms(const struct probe *p, uint64_t bytes, double n)
{
    const struct probe_point *below = NULL, *above = NULL;
    double floor_us = 0; /* no read is faster than a small one alone */
    for (int i = 0; i < p->points; i++) {
        const struct probe_point *at = &p->point[i];
        if (at->bytes < 64 << 10 && at->depth == 1)
            floor_us = at->p50_us;
        if (at->parts != 1 || at->bytes < 64 << 10)
            continue;
        if (at->depth <= n && (!below || at->depth > below->depth))
            below = at;
        if (at->depth >= n && (!above || at->depth < above->depth))
            above = at;
    }
    if (!below && !above)
        return 0;
    double us;
    if (!below || !above || below == above) {
        const struct probe_point *only = below ? below : above;
        us = only->p50_us * (n > only->depth ? n / only->depth : 1);
        us *= (double)bytes / (double)only->bytes;
    } else {
        double part = (n - below->depth) / (above->depth - below->depth);
        us = (below->p50_us * (1 - part) + above->p50_us * part) * (double)bytes /
             (double)below->bytes;
    }
    return (us > floor_us ? us : floor_us) * 1e-3;
}

/* What the turn cost: `unread` records were waited for, `all` were read. */
static void note_time(struct replay *p, bool is_band, int layer, uint64_t unread, uint64_t all)
{
    if (!p->drive->probe)
        return;
    uint64_t bytes = p->head->layer[layer].record_bytes;
    double rate = probe_gb_s(p->drive->probe) * 1e6; /* bytes a millisecond */
    double wait = unread ? replay_read_ms(p->drive->probe, bytes, (double)unread) : 0;
    double drive = rate > 0 ? (double)(all * bytes) / rate : 0;
    *(is_band ? &p->wait_ms : &p->window_wait_ms) += wait;
    *(is_band ? &p->drive_ms : &p->window_drive_ms) += drive;
}

/* ---- turns ---- */

static int layer_beside(const struct trace_head *h, int layer, int step)
{
    for (layer += step; layer >= 0 && layer < h->layers; layer += step)
        if (h->layer[layer].record_bytes)
            return layer;
    return -1;
}

/* The guess at the next layer that the trace has: as many ranks as the stream wants. */
static int take_guess(struct replay *p, const struct trace_record *r, int layer, int ranks)
{
    int32_t guess[256];
    ranks = ranks < p->head->ranks ? ranks : p->head->ranks;
    for (int row = 0; row < r->rows && ranks; row++) {
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

static bool run_layer(struct replay *p, const struct trace_record *r, int layer, struct err *e)
{
    bool is_band = r->kind == TRACE_BAND;
    int used = p->head->used, next = layer + 1 < p->head->layers ? layer + 1 : -1;
    if (next >= 0 && !p->head->layer[next].record_bytes)
        next = -1;
    int before = layer_beside(p->head, layer, -1);
    for (int row = 0; row < r->rows; row++) {
        trace_row(p->trace, r, layer, row, p->ids + row * used, NULL, NULL);
        if (p->config->moce > 0 && !is_band)
            prefer_residents(p, r, layer, before, row, p->ids + row * used);
    }
    int ranks = next >= 0 ? stream_guess_ranks(p->stream, next, is_band) : 0;
    struct stream_stats was, is;
    stream_get_stats(p->stream, &was);
    if (!stream_begin(p->stream, layer, p->ids, r->rows * used, is_band, e))
        return false;
    ranks = ranks ? take_guess(p, r, layer, ranks) : 0;
    if (ranks)
        stream_guess(p->stream, next, p->guess, NULL, r->rows, ranks, is_band);
    struct stream_record out[64];
    int n;
    do
        n = stream_next(p->stream, out, 64, e);
    while (n > 0);
    stream_end(p->stream);
    stream_get_stats(p->stream, &is);
    uint64_t misses = is.misses - was.misses;
    uint64_t staged = is.ahead_useful + is.ahead_late - was.ahead_useful - was.ahead_late;
    note_time(p, is_band, layer, misses > staged ? misses - staged : 0,
              misses + is.ahead_wasted - was.ahead_wasted);
    return n == 0;
}

static bool run_turn(struct replay *p, const struct trace_record *r, struct err *e)
{
    *(r->kind == TRACE_BAND ? &p->bands_tokens : &p->windows_tokens) += (uint64_t)r->rows;
    for (int l = 0; l < p->head->layers; l++)
        if (p->head->layer[l].record_bytes && !run_layer(p, r, l, e))
            return false;
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

/* A token waits for what it must; and where the drive is slower than everything else, for the
 * drive. */
static void finish_times(const struct replay *p, struct replay_result *out)
{
    bool has_windows = p->windows_tokens > 0;
    double tokens = (double)(has_windows ? p->windows_tokens : p->bands_tokens);
    if (tokens <= 0)
        return;
    double wait = (has_windows ? p->window_wait_ms : p->wait_ms) / tokens;
    double drive = (has_windows ? p->window_drive_ms : p->drive_ms) / tokens,
           compute = p->drive->compute_ms;
    out->wait_ms_per_token = compute > 0 && drive - compute > wait ? drive - compute : wait;
    if (has_windows && compute > 0)
        out->tok_s = 1000 / (compute + out->wait_ms_per_token);
}

static bool run_policy(struct replay *p, struct stream_config *c, struct replay_result *out,
                       struct err *e)
{
    const char *const name = "trace";
    struct io_options io_options = {.engine = "fake", .fake_bytes = FAKE_BYTES};
    c->policy = p->config->policy;
    c->ahead = p->config->ahead;
    c->no_look_ahead = p->config->no_look_ahead;
    p->io = io_create(&name, 1, &io_options, e);
    p->stream = p->io ? stream_create(c, p->io, e) : NULL;
    if (!p->stream || !allocate(p, e) || !run_records(p, e))
        return false;
    struct stream_stats s;
    stream_get_stats(p->stream, &s);
    out->hits = s.hits;
    out->misses = s.misses;
    out->useful = s.ahead_useful + s.ahead_late;
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
    ok = ok && replay_bound(p->trace, slots, a.classes, class_of, out, e);
    mem_free(class_of);
    return ok;
}

bool replay_run(const struct trace *t, const struct replay_config *config,
                const struct replay_drive *d, struct replay_result *out, struct err *e)
{
    struct replay p = {.trace = t, .head = trace_head(t), .config = config, .drive = d};
    struct stream_config c;
    *out = (struct replay_result){0};
    if (!make_layers(t, config->window_rows, &c, e))
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
