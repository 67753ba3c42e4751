/* SPDX-License-Identifier: Apache-2.0 */
/* Going back. The fixed part of a state cannot be run backwards (qwen4exp.md section 5), so going
 * back means: restore the latest snapshot at or before the wanted position, then feed the ids from
 * there on again. */
#include "session/session.h"

#include <string.h>

#include "base/mem.h"

static const struct strata_pass no_pass;

bool session_take(struct strata_session *s, struct session_snapshot *to, struct err *e)
{
    to->position = -1;
    if (!model_state_snapshot(s->state, to->fixed, e))
        return false;
    to->position = s->state->position;
    to->order = ++s->snapshots_taken;
    to->has_logits = s->logits_position == to->position;
    if (to->has_logits)
        memcpy(to->logits, s->logits, (size_t)s->vocab * sizeof *s->logits);
    return true;
}

void session_forget_beyond(struct strata_session *s, int position)
{
    for (int i = 0; i < s->n_snapshots; i++)
        if (s->snapshots[i].position > position)
            s->snapshots[i].position = -1;
}

static struct session_snapshot *latest_before(struct strata_session *s, int position)
{
    struct session_snapshot *best = NULL;
    for (int i = 0; i < s->n_snapshots; i++) {
        struct session_snapshot *p = &s->snapshots[i];
        if (p->position >= 0 && p->position <= position && (!best || p->position > best->position))
            best = p;
    }
    return best;
}

bool session_restore(struct strata_session *s, int position, struct err *e)
{
    struct session_snapshot *from = latest_before(s, position);
    if (!from)
        return model_state_reset(s->state, e);
    if (!model_state_rewind(s->state, from->fixed, from->position, e)) {
        from->position = -1;
        struct err second;
        err_clear(&second);
        model_state_reset(s->state, &second);
        return false;
    }
    /* Logits of an earlier position than asked for are of no use; those that are there may be. */
    if (from->has_logits && from->position == position && s->logits_position != position) {
        memcpy(s->logits, from->logits, (size_t)s->vocab * sizeof *s->logits);
        s->logits_position = position;
    }
    return true;
}

/* Brings the state to the nearest place at or before `position` from where ids can be fed, and
 * makes that the end of the session. */
static bool go_back(struct strata_session *s, int position, struct err *e)
{
    if (s->logits_position > position)
        s->logits_position = -1;
    if (position != s->state->position && !session_restore(s, position, e))
        return false;
    s->n_ids = s->state->position;
    if (s->answer_start > s->n_ids)
        s->answer_start = s->n_ids;
    session_forget_beyond(s, s->n_ids);
    return true;
}

/* Where to go back to so that the logits of `position` are there afterwards: a snapshot at that
 * very place without them is of no use. */
static int position_with_logits(struct strata_session *s, int position)
{
    const struct session_snapshot *p = latest_before(s, position);
    return position == 0 || (p && p->position == position && p->has_logits) ? position
                                                                            : position - 1;
}

bool strata_snapshot(struct strata_session *s, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (s->n_snapshots < 2) {
        err_set(&e, ERR_USAGE, "%s: the plan holds no snapshots", s->model->path);
    } else if (session_catch_up(s, &no_pass, &e)) {
        struct session_snapshot *to = &s->snapshots[1];
        for (int i = 1; i < s->n_snapshots; i++) {
            struct session_snapshot *p = &s->snapshots[i];
            if (p->position < 0 ? to->position >= 0 : to->position >= 0 && p->order < to->order)
                to = p;
        }
        session_take(s, to, &e);
    }
    return session_report(error, &e);
}

bool strata_rewind(struct strata_session *s, int position, const struct strata_pass *pass,
                   struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    pass = pass ? pass : &no_pass;
    if (position < 0 || position > s->n_ids) {
        err_set(&e, ERR_USAGE, "%s: a rewind to position %d of a session of %d tokens",
                s->model->path, position, s->n_ids);
    } else if (position < s->n_ids && go_back(s, position_with_logits(s, position), &e)) {
        struct strata_pass quiet = {
            .ctx = pass->ctx, .progress = pass->progress, .cancel = pass->cancel};
        session_run_bands(s, position, position, LOGITS_LAST, &quiet, &e);
    }
    return session_report(error, &e);
}

bool strata_feed_whole(struct strata_session *s, const int32_t *ids, size_t n, size_t *kept,
                       const struct strata_pass *pass, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    pass = pass ? pass : &no_pass;
    int common = 0;
    while (common < s->n_ids && (size_t)common < n && s->ids[common] == ids[common])
        common++;
    if (kept)
        *kept = (size_t)common;
    if (n < 1) {
        err_set(&e, ERR_USAGE, "%s: a prompt of no tokens", s->model->path);
    } else if (session_check_ids(s, ids, n, 0, &e) &&
               !((size_t)common == n && s->n_ids == common && strata_logits(s))) {
        /* The last id is always fed: its logits are wanted. */
        if ((size_t)common == n)
            common--;
        if (go_back(s, common, &e)) {
            if (kept)
                *kept = (size_t)s->n_ids;
            memcpy(s->ids + s->n_ids, ids + s->n_ids, (n - (size_t)s->n_ids) * sizeof *ids);
            session_run_bands(s, (int)n, s->n_ids, pass->logits ? LOGITS_ALL : LOGITS_LAST, pass,
                              &e);
        }
    }
    return session_report(error, &e);
}
