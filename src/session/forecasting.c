/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's forecast: how fast a run with it is expected to be (stream/forecast.h). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "session/engine.h"
#include "stream/forecast.h"

/* Of one read, where the drive was not probed: that of common solid-state drives. */
#define DELAY_US 100

static struct forecast_shape shape_of(struct strata_model *m, const struct stream_config *c,
                                      uint64_t arena)
{
    struct stream_config at = *c;
    struct forecast_shape f = {
        .records = m->plan.experts, .expert_bytes = m->plan.expert_bytes, .used = c->experts_used};
    for (int l = 0; l < c->layers; l++)
        f.layers += c->layer[l].experts > 0;
    at.arena_bytes = arena + m->plan.staging;
    f.slots = stream_count_slots(&at, io_align(m->io));
    return f;
}

/* Without a trace, each by how many records a token would miss. What is expected is the middle of
 * the range. */
static void points_by_curve(struct strata_model *m, const struct stream_config *c,
                            const struct replay_drive *d)
{
    for (int i = 0; i < m->plan.points; i++) {
        struct plan_point *point = &m->plan.point[i];
        struct forecast_shape f = shape_of(m, c, point->arena);
        forecast_by_curve(&f, &m->knee, d, &point->wait_ms, &point->tok_s);
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

/* Of the run so far, however few its tokens; 0: none. */
static double own_compute_ms(const struct strata_stats *s)
{
    if (!s->decode_tokens || s->decode_s <= s->decode.wait_s)
        return 0;
    return 1e3 * (s->decode_s - s->decode.wait_s) / (double)s->decode_tokens;
}

double session_compute_ms(const struct strata_model *m)
{
    struct strata_stats s;
    strata_stats_get(m, &s);
    return s.decode_tokens < OUTLOOK_TOKENS_LEAST ? 0 : own_compute_ms(&s);
}

/* A drive that was not probed, by how fast it gave the trunk. */
static struct io_drive trunk_drive(const struct strata_model *m)
{
    return (struct io_drive){.bytes_us = model_trunk_rate(m->network), .delay_us = DELAY_US};
}

/* The records that were read before the answer, as many as fit. */
static uint64_t held_before(const struct strata_model *m, const struct strata_stats *s,
                            const struct forecast_shape *f)
{
    uint64_t each = m->plan.expert_bytes / m->plan.experts;
    uint64_t held = (s->bytes_read - s->decode.read_bytes) / (each ? each : 1);
    return held < f->slots ? held : f->slots;
}

static bool expect_waits(struct strata_model *m, const struct strata_stats *s,
                         const struct io_drive *probed, double compute_ms,
                         struct session_outlook *out, struct err *e)
{
    struct stream_config c;
    struct io_drive drive = probed ? *probed : trunk_drive(m);
    struct replay_drive d = {&drive, compute_ms, 0};
    if (!engine_stream_config(m, &c, e))
        return false;
    drive.bytes_us *= 1 + m->options.n_replicas;
    io_drive_through(m->io, &drive);
    struct forecast_shape f = shape_of(m, &c, m->plan.arena);
    forecast_filling(&f, held_before(m, s, &f), s->decode_tokens, &m->knee, &d, &out->wait_ms,
                     &out->tok_s);
    out->reads = out->wait_ms.most > 0;
    out->by_trunk = !probed;
    out->by_profile = m->knee.is_counted;
    mem_free((void *)c.layer);
    return true;
}

bool session_forecast_run(struct strata_model *m, const struct io_drive *probed, double compute_ms,
                          struct session_outlook *out, struct err *e)
{
    struct strata_stats s;
    strata_stats_get(m, &s);
    *out = (struct session_outlook){.by_itself = compute_ms <= 0};
    if (out->by_itself)
        compute_ms = own_compute_ms(&s);
    if (compute_ms <= 0 || !s.decode_tokens)
        return true;
    out->tok_s = (struct plan_range){1000 / compute_ms, 1000 / compute_ms};
    if (m->plan.experts && !expect_waits(m, &s, probed, compute_ms, out, e))
        return false;
    out->is_known = true;
    return true;
}
