/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation: feeding ids as a prompt (bands) or as decode steps (windows), and what happens
 * when a pass fails in the middle: the state is spoiled then, so the last snapshot is restored. */
#include "session/session.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "text/sample.h"

/* A decode step takes a new snapshot for recovery when the last one is this many tokens old. The
 * copy (113 MB for the real model) is then below 1 % of the time of the steps, and what a failure
 * costs is bounded. */
#define RECOVERY_TOKENS 128

_Static_assert((int)STRATA_F32 == DUMP_F32 && (int)STRATA_I32 == DUMP_I32 &&
                   (int)STRATA_BOOL == DUMP_BOOL,
               "the public element types are the model's");

static const struct strata_pass no_pass;

/* ---- Creation ------------------------------------------------------------------------------- */

size_t session_host_bytes(const struct strata_model *m, int ctx)
{
    return (size_t)ctx * sizeof(int32_t) + (size_t)model_info(m->network)->vocab * sizeof(float) +
           sampler_memory((size_t)model_info(m->network)->vocab);
}

static size_t snapshot_fixed_bytes(const struct strata_model *m)
{
    return mem_round_up(model_state_fixed_bytes(m->network), 64);
}

size_t session_snapshot_bytes(const struct strata_model *m)
{
    return snapshot_fixed_bytes(m) + (size_t)model_info(m->network)->vocab * sizeof(float);
}

static bool create_snapshots(struct strata_session *s, struct err *e)
{
    int n = 1 + s->model->options.snapshots;
    s->snapshots = mem_alloc_array((size_t)n, sizeof *s->snapshots, "snapshots", e);
    if (!s->snapshots)
        return false;
    for (; s->n_snapshots < n; s->n_snapshots++) {
        struct session_snapshot *p = &s->snapshots[s->n_snapshots];
        p->position = -1;
        p->fixed = mem_map(session_snapshot_bytes(s->model), "a snapshot", e);
        if (!p->fixed)
            return false;
        p->logits = (float *)((char *)p->fixed + snapshot_fixed_bytes(s->model));
    }
    return true;
}

static bool create_parts(struct strata_session *s, struct err *e)
{
    struct strata_model *m = s->model;
    s->ids = mem_alloc_array((size_t)s->ctx, sizeof *s->ids, "the ids of a session", e);
    s->logits = mem_alloc_array((size_t)s->vocab, sizeof *s->logits, "logits", e);
    s->sampler = s->ids && s->logits ? sampler_create((size_t)s->vocab, e) : NULL;
    if (!s->sampler || !create_snapshots(s, e))
        return false;
    s->state =
        model_state_create(m->network, s->ctx, (enum kv_type)m->options.kv, e);
    return s->state != NULL;
}

struct strata_session *strata_session_create(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct strata_session *s = NULL;
    if (!m->is_loaded)
        err_set(&e, ERR_USAGE, "%s: a session needs a loaded model", m->path);
    else if (m->sessions == m->options.sessions)
        err_set(&e, ERR_USAGE, "%s: the plan holds %d session%s, all are in use", m->path,
                m->sessions, m->sessions == 1 ? "" : "s");
    else
        s = mem_alloc(sizeof *s, "a session", &e);
    if (s) {
        s->model = m;
        s->ctx = m->ctx;
        s->vocab = model_info(m->network)->vocab;
        s->logits_position = -1;
        gate_init(&s->gate);
        m->sessions++;
        if (!create_parts(s, &e)) {
            strata_session_free(s);
            s = NULL;
        }
    }
    session_report(error, &e);
    return s;
}

void strata_session_free(struct strata_session *s)
{
    if (!s)
        return;
    model_state_free(s->state);
    for (int i = 0; i < s->n_snapshots; i++)
        mem_unmap(s->snapshots[i].fixed, session_snapshot_bytes(s->model));
    mem_free(s->snapshots);
    sampler_free(s->sampler);
    mem_free(s->messages);
    mem_free(s->logits);
    mem_free(s->ids);
    s->model->sessions--;
    mem_free(s);
}

bool session_empty(struct strata_session *s, struct err *e)
{
    s->n_ids = 0;
    s->answer_start = 0;
    s->logits_position = -1;
    session_forget_beyond(s, -1);
    return model_state_reset(s->state, e);
}

bool strata_session_reset(struct strata_session *s, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    mem_free(s->messages);
    s->messages = NULL;
    s->has_sampling = false;
    session_empty(s, &e);
    return session_report(error, &e);
}

int strata_position(const struct strata_session *s)
{
    return s->n_ids;
}

int strata_context(const struct strata_session *s)
{
    return s->ctx;
}

const int32_t *strata_ids(const struct strata_session *s)
{
    return s->ids;
}

const float *strata_logits(const struct strata_session *s)
{
    return s->n_ids > 0 && s->logits_position == s->n_ids ? s->logits : NULL;
}

/* ---- One pass of the network ---------------------------------------------------------------- */

/* What the model's callbacks need to know of the call that they serve. */
struct running {
    struct strata_session *s;
    const struct strata_pass *pass;
    int first;      /* position where the caller's count of rows begins */
    int start, end; /* positions: what the progress is about */
};

static bool take_logits(void *ctx, int first, int rows, const float *logits, struct err *e)
{
    struct running *r = ctx;
    size_t vocab = (size_t)r->s->vocab;
    int position = r->s->state->position + first;
    if (r->pass->logits && position >= r->first &&
        !r->pass->logits(r->pass->ctx, (size_t)(position - r->first), (size_t)rows, logits))
        return err_set(e, ERR_INTERRUPTED, "stopped by the taker of the logits at position %d",
                       position);
    r->s->logits_position = -1;
    memcpy(r->s->logits, logits + (size_t)(rows - 1) * vocab, vocab * sizeof *logits);
    return true;
}

static void take_progress(void *ctx, int layer, int layers)
{
    struct running *r = ctx;
    r->pass->progress(r->pass->ctx, (size_t)(r->s->state->position - r->start),
                      (size_t)(r->end - r->start), layer, layers);
}

static void take_dump(void *ctx, const char *name, enum dump_type type, const void *host, int rows,
                      int n_dims, const int *dims)
{
    const struct strata_pass *pass = ctx;
    pass->dump(pass->ctx, name, (enum strata_element)type, host, rows, n_dims, dims);
}

void session_heed(struct strata_model *m, const _Atomic bool *cancel)
{
    if (m->stream)
        stream_set_cancel(m->stream, cancel);
    if (m->rows)
        stream_rows_set_cancel(m->rows, cancel);
}

bool session_forward(struct strata_session *s, const struct batch *batch, struct err *e)
{
    struct strata_model *m = s->model;
    session_heed(m, batch->cancel);
    int position = s->state->position;
    explaining_pass_begins(m);
    profiling_pass_begins(m, batch->is_band);
    bool ok = tracing_forward(m, s->state, batch, e);
    profiling_pass_ends(m);
    explaining_pass_ends(m, position, batch->rows, batch->is_band);
    session_heed(m, NULL);
    return ok;
}

void session_follow(struct strata_session *s, const struct batch *batch, int rows, bool fills)
{
    struct strata_model *m = s->model;
    if (!model_info(m->network)->has_draft)
        return;
    session_heed(m, batch->cancel);
    model_draft_follow(m->network, s->state, batch, rows, fills, &m->experts);
    session_heed(m, NULL);
}

/* Runs ids[state->position ..] of `rows` rows. */
static bool run_rows(struct running *r, int rows, bool is_band, enum logits_wanted wanted,
                     struct err *e)
{
    struct strata_session *s = r->s;
    struct dump_sink dump = {.ctx = (void *)r->pass, .put = take_dump};
    struct batch batch = {
        .ids = s->ids + s->state->position,
        .rows = rows,
        .is_band = is_band,
        .wanted = wanted,
        .logits = take_logits,
        .logits_ctx = r,
        .dump = r->pass->dump ? &dump : NULL,
        .cancel = r->pass->cancel,
        .progress = is_band && r->pass->progress ? take_progress : NULL,
        .progress_ctx = r,
    };
    if (!session_forward(s, &batch, e))
        return false;
    session_follow(s, &batch, rows, is_band);
    return true;
}

bool session_is_cancelled(const struct strata_pass *pass, struct err *e)
{
    if (pass->cancel && atomic_load(pass->cancel)) {
        err_set(e, ERR_INTERRUPTED, "interrupted");
        return true;
    }
    return false;
}

bool session_run_bands(struct strata_session *s, int end, int first, enum logits_wanted wanted,
                       const struct strata_pass *pass, struct err *e)
{
    int band = s->model->band;
    struct running r = {s, pass, first, s->state->position, end};
    struct stream *stream = s->model->stream;
    int64_t began = session_clock_us(s->model);
    struct stream_stats read_before = stats_of_reads(s->model);
    bool ok = true;
    if (stream) {
        tracing_prompt(s->model, end - s->state->position);
        stream_prompt_begin(stream, end - s->state->position);
    }
    while (ok && s->state->position < end) {
        int before = s->state->position, rows = end - before < band ? end - before : band;
        bool is_last = before + rows == end;
        if (session_is_cancelled(pass, e) || !session_take(s, &s->snapshots[0], e)) {
            ok = false;
        } else if (run_rows(&r, rows, true,
                            wanted == LOGITS_LAST && !is_last ? LOGITS_NONE : wanted, e)) {
            s->model->counters.prefill_tokens += (uint64_t)rows;
            if (s->n_ids < s->state->position)
                s->n_ids = s->state->position;
            if (is_last && wanted != LOGITS_NONE)
                s->logits_position = s->n_ids;
            if (pass->progress)
                take_progress(&r, 0, model_info(s->model->network)->layers);
        } else {
            ok = false;
            struct err second; /* the first error counts; what is behind is caught up later */
            err_clear(&second);
            session_restore(s, before, &second);
        }
    }
    if (stream) {
        stream_prompt_end(stream);
        tracing_prompt(s->model, 0);
    }
    model_lend_scratch(s->model->network);
    stats_note_prompt(s->model, &read_before);
    s->model->counters.prefill_us += session_clock_us(s->model) - began;
    if (ok)
        streaming_fill(s->model);
    return ok;
}

bool session_catch_up(struct strata_session *s, const struct strata_pass *pass, struct err *e)
{
    struct strata_pass quiet = {
        .ctx = pass->ctx, .progress = pass->progress, .cancel = pass->cancel};
    return s->state->position == s->n_ids ||
           session_run_bands(s, s->n_ids, s->n_ids, LOGITS_NONE, &quiet, e);
}

/* ---- Feeding -------------------------------------------------------------------------------- */

bool session_check_ids(const struct strata_session *s, const int32_t *ids, size_t n, int position,
                       struct err *e)
{
    size_t room = (size_t)(s->ctx - position);
    if (n > room)
        return err_set(
            e, ERR_USAGE,
            "%s: a text of %zu token%s does not fit into a context of %d of which %d are used: at "
            "most %zu do",
            s->model->path, n, n == 1 ? "" : "s", s->ctx, position, room);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->vocab)
            return err_set(e, ERR_USAGE, "%s: id %d at index %zu is not one of the %d of the model",
                           s->model->path, ids[i], i, s->vocab);
    return true;
}

static enum logits_wanted wanted_by(const struct strata_pass *pass)
{
    return pass->logits ? LOGITS_ALL : LOGITS_LAST;
}

bool strata_feed(struct strata_session *s, const int32_t *ids, size_t n,
                 const struct strata_pass *pass, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    pass = pass ? pass : &no_pass;
    if (session_check_ids(s, ids, n, s->n_ids, &e) && session_catch_up(s, pass, &e) && n > 0) {
        memcpy(s->ids + s->n_ids, ids, n * sizeof *ids);
        session_run_bands(s, s->n_ids + (int)n, s->n_ids, wanted_by(pass), pass, &e);
    }
    return session_report(error, &e);
}

bool session_before_step(struct strata_session *s, struct err *e)
{
    struct session_snapshot *recovery = &s->snapshots[0];
    return (recovery->position >= 0 && s->n_ids - recovery->position < RECOVERY_TOKENS) ||
           session_take(s, recovery, e);
}

bool session_step(struct strata_session *s, int n, const struct strata_pass *pass, struct err *e)
{
    int64_t began = session_clock_us(s->model);
    if (!session_before_step(s, e))
        return false;
    struct running r = {s, pass, s->n_ids, s->n_ids, s->n_ids + n};
    if (!run_rows(&r, n, false, wanted_by(pass), e)) {
        struct err second;
        err_clear(&second);
        session_restore(s, s->n_ids, &second);
        return false;
    }
    s->n_ids += n;
    s->logits_position = s->n_ids;
    s->model->counters.decode_tokens += (uint64_t)n;
    s->model->counters.decode_us += session_clock_us(s->model) - began;
    streaming_fill(s->model);
    return true;
}

bool strata_step(struct strata_session *s, const int32_t *ids, int n,
                 const struct strata_pass *pass, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    pass = pass ? pass : &no_pass;
    int window = s->model->window;
    if (n < 1 || n > window)
        err_set(&e, ERR_USAGE, "%s: a step of %d tokens, the plan holds 1 to %d", s->model->path, n,
                window);
    else if (session_check_ids(s, ids, (size_t)n, s->n_ids, &e) && !session_is_cancelled(pass, &e) &&
             session_catch_up(s, pass, &e)) {
        memcpy(s->ids + s->n_ids, ids, (size_t)n * sizeof *ids);
        session_step(s, n, pass, &e);
    }
    return session_report(error, &e);
}
