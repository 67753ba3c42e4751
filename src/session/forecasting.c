/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's forecast: how fast a run with it is expected to be (stream/forecast.h). */
#include <string.h>

#include "base/mem.h"
#include "session/engine.h"
#include "stream/forecast.h"

/* Without a trace: every point by the share of records that it holds. */
static void by_share(struct strata_model *m, const struct stream_config *c,
                     const struct replay_drive *d)
{
    struct plan *p = &m->plan;
    struct stream_config at = *c;
    struct forecast_shape f = {
        .records = p->experts, .expert_bytes = p->expert_bytes, .used = c->experts_used};
    for (int l = 0; l < c->layers; l++)
        f.layers += c->layer[l].experts > 0;
    for (int i = 0; i < p->points; i++) {
        struct plan_point *point = &p->point[i];
        at.arena_bytes = point->arena + p->staging;
        f.slots = stream_count_slots(&at, io_align(m->io));
        forecast_by_share(&f, d, &point->wait_ms, &point->tok_s);
    }
}

static bool by_trace(struct strata_model *m, const struct stream_config *c, const struct trace *t,
                     const struct replay_drive *d, struct err *e)
{
    uint8_t mine[16];
    struct replay_config own = {.policy = c->policy,
                                .window_rows = c->window_rows,
                                .ahead = c->ahead,
                                .no_look_ahead = c->no_look_ahead};
    if (!gguf_fingerprint(m->file, mine, e))
        return false;
    if (memcmp(mine, trace_head(t)->fingerprint, sizeof mine))
        return err_set(e, ERR_FORMAT, "the trace is of another model than %s", m->path);
    return forecast_by_trace(&m->plan, t, &own, d, e);
}

bool session_forecast(struct strata_model *m, const struct trace *t, const struct replay_drive *d,
                      struct err *e)
{
    struct stream_config c;
    if (!engine_plan(m, e))
        return false;
    if (!m->plan.experts || !d->probe)
        return true;
    if (!engine_stream_config(m, &c, e))
        return false;
    bool ok = true;
    if (t)
        ok = by_trace(m, &c, t, d, e);
    else
        by_share(m, &c, d);
    mem_free((void *)c.layer);
    m->plan.has_forecast = ok;
    return ok;
}
