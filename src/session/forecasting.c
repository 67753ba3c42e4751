/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's forecast: how fast a run with it is expected to be (stream/forecast.h). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "session/engine.h"
#include "stream/forecast.h"

/* One arena, by how many records a token would miss. */
static void by_curve(struct strata_model *m, const struct stream_config *c, uint64_t arena,
                     const struct replay_drive *d, struct plan_range *wait_ms,
                     struct plan_range *tok_s)
{
    struct stream_config at = *c;
    struct forecast_shape f = {
        .records = m->plan.experts, .expert_bytes = m->plan.expert_bytes, .used = c->experts_used};
    for (int l = 0; l < c->layers; l++)
        f.layers += c->layer[l].experts > 0;
    at.arena_bytes = arena + m->plan.staging;
    f.slots = stream_count_slots(&at, io_align(m->io));
    forecast_by_curve(&f, &m->knee, d, wait_ms, tok_s);
}

/* Without a trace. What is expected is the middle of the range. */
static void points_by_curve(struct strata_model *m, const struct stream_config *c,
                            const struct replay_drive *d)
{
    for (int i = 0; i < m->plan.points; i++) {
        struct plan_point *point = &m->plan.point[i];
        by_curve(m, c, point->arena, d, &point->wait_ms, &point->tok_s);
        if (d->compute_ms > 0)
            point->expected_tok_s =
                1000 / (d->compute_ms + (point->wait_ms.least + point->wait_ms.most) / 2);
    }
}

static bool by_trace(struct strata_model *m, const struct stream_config *c, const struct trace *t,
                     const struct replay_drive *d, struct err *e)
{
    uint8_t mine[16];
    struct replay_config own = {.policy = c->policy,
                                .window_rows = c->window_rows,
                                .ahead = c->ahead,
                                .no_look_ahead = c->no_look_ahead,
                                .parts = engine_record_parts(c),
                                .split = c->split,
                                .io_depth = m->options.io_depth,
                                .io_urgent = m->options.io_urgent};
    struct replay_drive with_share = *d;
    with_share.expert_share = engine_expert_share(m);
    if (!gguf_fingerprint(m->file, mine, e))
        return false;
    if (memcmp(mine, trace_head(t)->fingerprint, sizeof mine))
        return err_set(e, ERR_FORMAT, "the trace is of another model than %s", m->path);
    return forecast_by_trace(&m->plan, t, &own, &with_share, e);
}

bool session_forecast(struct strata_model *m, const struct trace *t, const struct replay_drive *d,
                      struct err *e)
{
    struct stream_config c;
    if (!engine_plan(m, e))
        return false;
    if (!m->plan.experts || !d->drive)
        return true;
    if (!engine_stream_config(m, &c, e))
        return false;
    bool ok = true;
    if (t)
        ok = by_trace(m, &c, t, d, e);
    else
        points_by_curve(m, &c, d);
    mem_free((void *)c.layer);
    m->plan.has_forecast = ok;
    return ok;
}

bool session_setup_name(struct strata_model *m, char *out, size_t room, struct err *e)
{
    static const char *const kv_names[KV_TYPES] = {
        [KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8_0] = "q8_0"};
    uint8_t print[16];
    char hex[2 * sizeof print + 1];
    if (!engine_plan(m, e) || !gguf_fingerprint(m->file, print, e))
        return false;
    for (size_t i = 0; i < sizeof print; i++)
        snprintf(hex + 2 * i, 3, "%02x", print[i]);
    int n = snprintf(out, room, "%s-%s-%d-%s", hex, cpu_isa_name(m->isa), pool_threads(m->pool),
                     kv_names[m->options.kv]);
    return (n > 0 && (size_t)n < room) ||
           err_set(e, ERR_USAGE, "the name of this machine's setup has %d bytes", n);
}

double session_compute_ms(const struct strata_model *m)
{
    struct strata_stats s;
    strata_stats_get(m, &s);
    if (s.decode_tokens < OUTLOOK_TOKENS_LEAST || s.decode_s <= s.decode.wait_s)
        return 0;
    return 1e3 * (s.decode_s - s.decode.wait_s) / (double)s.decode_tokens;
}

bool session_forecast_run(struct strata_model *m, const struct io_drive *drive,
                          struct session_outlook *out, struct err *e)
{
    struct stream_config c;
    struct strata_stats s;
    *out = (struct session_outlook){0};
    if (!m->plan.experts || !m->knee.is_counted || m->plan.slots >= m->plan.experts)
        return true;
    struct replay_drive d = {drive, session_compute_ms(m), 0};
    if (d.compute_ms <= 0)
        return true;
    if (!engine_stream_config(m, &c, e))
        return false;
    by_curve(m, &c, m->plan.arena, &d, &out->wait_ms, &out->tok_s);
    strata_stats_get(m, &s);
    out->real_wait_ms = 1e3 * s.decode.wait_s / (double)s.decode_tokens;
    out->real_tok_s = s.decode_tok_s;
    out->is_known = true;
    mem_free((void *)c.layer);
    return true;
}
