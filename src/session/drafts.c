/* SPDX-License-Identifier: Apache-2.0 */
/* Answers with guesses: ids that may come next are fed in one window together with the one that
 * surely does. Each row's scores are those that it would have alone, and the draw for a position
 * depends on seed and position alone: so the id chosen after a row is what it would have been, and
 * the guesses that it proves wrong are dropped before they are part of the state (model_commit). */
#include <string.h>

#include "base/clock.h"
#include "session/lookup.h"
#include "session/session.h"

struct answering {
    struct strata_session *s;
    strata_take *take;
    void *take_ctx;
    struct strata_pass pass; /* what of the caller's serves here */
    size_t left;             /* ids that are wanted after the last one taken, at least 1 */
    bool has_drafts;
    int32_t next; /* chosen and taken, not fed */
    bool goes_on;
};

/* The guesses after the id that is fed next. */
struct guesses {
    enum guess_kind kind;
    int n;
    int32_t ids[GATE_ROWS_MOST];
};

/* Chooses what follows the first `n` ids of the session, and asks whether to go on. */
static bool choose_and_take(struct answering *a, const float *logits, int n, struct err *e)
{
    a->goes_on = false;
    if (!session_choose(a->s, logits, n, &a->next, e))
        return false;
    a->left -= a->left > 1;
    a->goes_on = a->take(a->take_ctx, a->next);
    return true;
}

/* ---- One window ----------------------------------------------------------------------------- */

struct window {
    struct answering *a;
    int kept;          /* rows that are true: 0 until they are judged */
    struct err choice; /* why no id could be chosen after them */
};

/* Takes the logits of all rows of a window. */
static bool judge(void *ctx, int first, int rows, const float *logits, struct err *e)
{
    struct window *w = ctx;
    struct strata_session *s = w->a->s;
    size_t vocab = (size_t)s->vocab;
    bool is_right = true;
    for (int r = 0; r < rows && is_right; r++) {
        int end = s->n_ids + r + 1;
        w->kept = r + 1;
        is_right = choose_and_take(w->a, logits + (size_t)r * vocab, end, &w->choice) &&
                   w->a->goes_on && (r + 1 == rows || s->ids[end] == w->a->next);
    }
    s->logits_position = -1;
    memcpy(s->logits, logits + (size_t)(w->kept - 1) * vocab, vocab * sizeof *logits);
    return true;
}

/* Feeds ids[n_ids .. n_ids + rows - 1], of which the first one is true. False with w->kept 0: the
 * session is as before. */
static bool run_window(struct window *w, int rows, struct err *e)
{
    struct strata_session *s = w->a->s;
    struct strata_model *m = s->model;
    int64_t began = session_clock_us(m);
    struct batch batch = {.ids = s->ids + s->n_ids,
                          .rows = rows,
                          .is_held = true,
                          .wanted = LOGITS_ALL,
                          .logits = judge,
                          .logits_ctx = w,
                          .cancel = w->a->pass.cancel};
    if (!session_before_step(s, e) || !session_forward(s, &batch, e))
        return false;
    if (!model_commit(m->network, s->state, w->kept, e)) {
        struct err second;
        err_clear(&second);
        session_restore(s, s->n_ids, &second);
        return false;
    }
    session_follow(s, &batch, w->kept, true);
    s->n_ids += w->kept;
    s->logits_position = s->n_ids;
    m->counters.decode_tokens += (uint64_t)w->kept;
    m->counters.decode_us += session_clock_us(m) - began;
    m->counters.drafted += (uint64_t)(rows - 1);
    m->counters.accepted += (uint64_t)(w->kept - 1);
    if (!w->choice.code)
        return true;
    return err_set(e, w->choice.code, "%s", w->choice.text);
}

/* ---- The loop ------------------------------------------------------------------------------- */

/* Guesses of the draft layer, for a window of as many rows as pay. */
static int ask_model(struct answering *a, int most, struct guesses *g)
{
    struct strata_session *s = a->s;
    struct strata_model *m = s->model;
    int forced = m->options.draft_rows;
    int rows = forced ? forced : gate_rows(&s->gate, GUESS_MODEL, most - 1, s->guess_us);
    rows = rows < most ? rows : most;
    int64_t began = clock_us();
    g->kind = GUESS_MODEL;
    session_heed(m, a->pass.cancel);
    g->n = model_draft_guess(m->network, s->state, a->next, rows - 1, g->ids, &m->experts,
                             a->pass.cancel);
    session_heed(m, NULL);
    if (g->n) {
        double us = (double)(clock_us() - began) / g->n;
        s->guess_us += s->guess_us > 0 ? 0.2 * (us - s->guess_us) : us;
    }
    return g->n + 1;
}

/* Guesses what follows a->next, and decides how many rows the next window has. */
static int plan_window(struct answering *a, struct guesses *g)
{
    struct strata_session *s = a->s;
    const struct strata_model *m = s->model;
    int most = m->draft_rows, matched;
    most = a->left < (size_t)most ? (int)a->left : most;
    most = s->ctx - s->n_ids < most ? s->ctx - s->n_ids : most;
    g->n = 0;
    if (!a->has_drafts || most < 2)
        return 1;
    g->n = lookup_guess(s->ids, s->n_ids + 1, most - 1, g->ids, &matched);
    g->kind = matched < LOOKUP_ENOUGH ? GUESS_SHORT_MATCH : GUESS_LONG_MATCH;
    if (model_info(m->network)->has_draft && g->kind == GUESS_SHORT_MATCH)
        return ask_model(a, most, g);
    int forced = m->options.draft_rows;
    if (forced)
        return g->n + 1 < forced ? g->n + 1 : forced;
    return gate_rows(&s->gate, g->kind, g->n, 0);
}

/* Feeds a->next, with guesses or without, and chooses what follows. */
static bool answer_step(struct answering *a, struct err *e)
{
    struct strata_session *s = a->s;
    struct guesses g = {0};
    s->ids[s->n_ids] = a->next;
    int before = s->n_ids, rows = plan_window(a, &g);
    int64_t began = clock_us();
    if (rows > 1) {
        memcpy(s->ids + before + 1, g.ids, (size_t)(rows - 1) * sizeof *g.ids);
        struct window w = {.a = a};
        struct err failure;
        err_clear(&failure);
        if (!run_window(&w, rows, &failure)) {
            if (w.kept || failure.code == ERR_INTERRUPTED)
                return err_set(e, failure.code, "%s", failure.text);
            /* A wrong guess must not end an answer: from here on without. */
            a->has_drafts = false;
            rows = 1;
            g.n = 0;
            began = clock_us();
        }
    }
    if (rows == 1 &&
        (!session_step(s, 1, &a->pass, e) || !choose_and_take(a, s->logits, s->n_ids, e)))
        return false;
    int right = s->n_ids - before - 1; /* so far, then the one after the rows that were kept */
    int judged = right < g.n ? right + 1 : g.n;
    if (judged > right && a->next == g.ids[right])
        right++;
    gate_learn(&s->gate, g.kind, rows, judged, right, (double)(clock_us() - began));
    return true;
}

bool strata_answer(struct strata_session *s, size_t most, strata_take *take, void *ctx,
                   const struct strata_pass *pass, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct answering a = {.s = s,
                          .take = take,
                          .take_ctx = ctx,
                          .left = most ? most : 1,
                          .has_drafts = s->model->draft_rows > 1};
    if (pass)
        a.pass.cancel = pass->cancel;
    bool ok = !session_is_cancelled(&a.pass, &e) && session_catch_up(s, &a.pass, &e) &&
              session_can_choose(s, &e) && choose_and_take(&a, s->logits, s->n_ids, &e);
    while (ok && a.goes_on && s->n_ids < s->ctx)
        ok = !session_is_cancelled(&a.pass, &e) && answer_step(&a, &e);
    return session_report(error, &e);
}
