/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/forecast.h"

#include <string.h>

static double per_second(double compute_ms, double wait_ms)
{
    return compute_ms > 0 ? 1000 / (compute_ms + wait_ms) : 0;
}

void forecast_by_curve(const struct forecast_shape *f, const struct knee_curve *c,
                       const struct replay_drive *d, struct plan_range *wait_ms,
                       struct plan_range *tok_s)
{
    double held = f->records ? (double)f->slots / (double)f->records : 1;
    double missed = knee_missed(c, held), of_layer = missed * f->used;
    uint64_t bytes = f->records ? f->expert_bytes / f->records : 0;
    double rate = d->drive->bytes_us * 1e3; /* bytes a millisecond */
    double a_token = (double)f->layers * f->used * (double)bytes;
    double alone_us = of_layer < 1 ? of_layer * io_drive_us(d->drive, bytes, 1)
                                   : io_drive_us(d->drive, bytes, of_layer);
    double alone = f->layers * alone_us * 1e-3;
    double busy = rate > 0 ? missed * a_token / rate : 0;
    wait_ms->most = alone > busy ? alone : busy;
    wait_ms->least = busy > d->compute_ms ? busy - d->compute_ms : 0;
    tok_s->least = per_second(d->compute_ms, wait_ms->most);
    tok_s->most = per_second(d->compute_ms, wait_ms->least);
}

void forecast_filling(const struct forecast_shape *f, uint64_t held, uint64_t tokens,
                      const struct knee_curve *c, const struct replay_drive *d,
                      struct plan_range *wait_ms, struct plan_range *tok_s)
{
    double has = (double)held, room = (double)f->slots, used = (double)f->layers * f->used;
    struct plan_range all = {0};
    for (uint64_t t = 0, same; t < tokens; t += same) {
        struct forecast_shape now = *f;
        now.slots = has < room ? (uint64_t)has : f->slots;
        double missed = f->records ? knee_missed(c, (double)now.slots / (double)f->records) * used : 0;
        same = has < room && missed > 0 ? 1 : tokens - t;
        has += missed;
        forecast_by_curve(&now, c, d, wait_ms, tok_s);
        all.least += wait_ms->least * (double)same;
        all.most += wait_ms->most * (double)same;
    }
    *wait_ms = (struct plan_range){all.least / (double)tokens, all.most / (double)tokens};
    *tok_s = (struct plan_range){per_second(d->compute_ms, wait_ms->most),
                                 per_second(d->compute_ms, wait_ms->least)};
}

/* The trace once more with an arena of that size. */
static bool replay_with(const struct plan *p, uint64_t arena, const struct trace *t,
                        const struct replay_config *own, const struct replay_drive *d,
                        bool no_ahead, struct replay_result *out, struct err *e)
{
    struct replay_config c = *own;
    uint64_t least = replay_arena_bytes(t, c.window_rows, 0);
    c.arena_bytes = arena + p->staging > least ? arena + p->staging : least;
    c.ahead.is_off |= no_ahead;
    c.no_look_ahead |= no_ahead;
    return replay_run(t, &c, d, out, e);
}

static bool forecast_point(const struct plan *p, struct plan_point *at, const struct trace *t,
                           const struct replay_config *own, const struct replay_drive *d,
                           struct err *e)
{
    struct replay_result with, without;
    if (!replay_with(p, at->arena, t, own, d, false, &with, e) ||
        !replay_with(p, at->arena, t, own, d, true, &without, e))
        return false;
    bool is_better = with.wait_ms_per_token <= without.wait_ms_per_token;
    const struct replay_result *fast = is_better ? &with : &without,
                               *slow = is_better ? &without : &with;
    at->wait_ms = (struct plan_range){fast->wait_ms_per_token, slow->wait_ms_per_token};
    at->tok_s = (struct plan_range){slow->tok_s, fast->tok_s};
    at->expected_tok_s = with.tok_s;
    return true;
}

/* Arena bytes of the knee between floor and ceiling. */
static bool find_knee(const struct plan *p, const struct trace *t, const struct replay_config *own,
                      const struct replay_drive *d, uint64_t *knee, struct err *e)
{
    uint64_t first = p->point[0].arena, last = p->point[p->points - 1].arena;
    uint64_t step = p->expert_bytes / KNEE_STEPS;
    double before = 0;
    *knee = first;
    for (uint64_t arena = first;; arena = last - arena > step ? arena + step : last) {
        struct replay_result r;
        if (!replay_with(p, arena, t, own, d, false, &r, e))
            return false;
        if (before > 0 && r.tok_s >= before * (1 + KNEE_GAIN))
            *knee = arena;
        before = r.tok_s;
        if (arena >= last || !step)
            return true;
    }
}

static struct plan_point *knee_of(struct plan *p)
{
    for (int i = 0; i < p->points; i++)
        if (!strcmp(p->point[i].name, "knee"))
            return &p->point[i];
    return NULL;
}

bool forecast_by_trace(struct plan *p, const struct trace *t, const struct replay_config *own,
                       const struct replay_drive *d, struct err *e)
{
    struct plan_point *knee = knee_of(p);
    if (d->drive && d->compute_ms > 0 && knee) {
        if (!find_knee(p, t, own, d, &knee->arena, e))
            return false;
        knee->total = p->plan_total - p->arena + knee->arena;
    }
    for (int i = 0; d->drive && i < p->points; i++)
        if (!forecast_point(p, &p->point[i], t, own, d, e))
            return false;
    return true;
}
