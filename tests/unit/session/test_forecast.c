/* SPDX-License-Identifier: Apache-2.0 */
/* Forecasts against runs: the model itself runs on a drive in virtual time, its work takes virtual
 * time too, and the plan made from its trace and from what a probe would have measured must expect
 * what the run had. No clock is read, so it is the same figures everywhere. */
#include <math.h>

#include "fixture.h"
#include "io/probe.h"
#include "session/engine.h"
#include "stream/replay.h"
#include "stream/trace.h"

#define PATH SHIPPED "/strata-demo.gguf"
#define TRACE "./forecast-test.trc"
enum { PROMPT = 20, STEPS = 40, N = PROMPT + STEPS };

/* Work of a token: more in later layers, more for the first record of a turn than for the next. */
struct work {
    struct expert_source inner;
    struct io *io;
    bool is_window;
    int64_t ns; /* of windows, so far */
};

static void pass(struct work *w, int64_t ns)
{
    if (!w->is_window)
        return;
    io_pass_ns(w->io, ns);
    w->ns += ns;
}

static bool work_begin(void *ctx, const struct routing *r, struct err *e)
{
    struct work *w = ctx;
    w->is_window = !r->is_band;
    pass(w, 200000 + 20000 * r->layer);
    return w->inner.begin(w->inner.ctx, r, e);
}

static int work_next(void *ctx, struct expert_record *out, int most, struct err *e)
{
    struct work *w = ctx;
    int64_t began = io_now_us(w->io);
    int n = w->inner.next(w->inner.ctx, out, most, e);
    if (w->is_window && io_now_us(w->io) - began > REPLAY_AWAKE_US)
        io_pass_ns(w->io, REPLAY_WAKE_NS);
    if (n > 0)
        pass(w, 10000 + 20000 * n);
    return n;
}

static void work_end(void *ctx)
{
    struct work *w = ctx;
    w->inner.end(w->inner.ctx);
}

static int work_ranks(void *ctx, int layer, bool is_band)
{
    struct work *w = ctx;
    return w->inner.guess_ranks(w->inner.ctx, layer, is_band);
}

static void work_guess(void *ctx, const struct guess *g)
{
    struct work *w = ctx;
    w->inner.guess(w->inner.ctx, g);
}

static const float *work_bonus(void *ctx, int layer, bool is_band, int *keep)
{
    struct work *w = ctx;
    return w->inner.bonus(w->inner.ctx, layer, is_band, keep);
}

/* What `strata probe` would print of such a drive. */
static struct io_drive probed(const struct io_drive *d)
{
    static const struct {
        uint64_t bytes;
        int depth;
    } shapes[] = {{98304, 1}, {98304, 8}, {4096, 1}};
    struct probe p = {.points = 3};
    for (int i = 0; i < 3; i++) {
        double us = io_drive_us(d, shapes[i].bytes, shapes[i].depth);
        p.point[i] = (struct probe_point){
            .bytes = shapes[i].bytes,
            .depth = shapes[i].depth,
            .parts = 1,
            .gb_s = i == 1 ? d->bytes_us * 1e-3 : (double)shapes[i].bytes / us * 1e-3,
            .p50_us = us,
            .p99_us = us,
            .cpu_us = d->cpu_us + d->cpu_byte_us * (double)shapes[i].bytes};
    }
    return probe_drive(&p);
}

static void feed(struct fixture *f, const int32_t *ids, int n, struct strata_error *e)
{
    fixture_ok(strata_feed(f->session, ids, (size_t)n, NULL, e), e);
}

/* Tokens a second of the run's decode steps; its work a token in milliseconds. */
static double run(const struct io_drive *drive, const struct strata_options *o, double *work_ms,
                  struct strata_reading *decode)
{
    struct strata_error e = {0};
    struct fixture f = {.model = strata_model_open(PATH, o, &e)};
    assert_non_null(f.model);
    f.model->drive = drive;
    fixture_ok(strata_model_load(f.model, &e), &e);
    struct work w = {.inner = f.model->experts, .io = f.model->io};
    f.model->experts = (struct expert_source){&w,         work_begin, work_next, work_end,
                                              work_ranks, work_guess, work_bonus, NULL};
    fixture_ok(strata_trace_begin(f.model, TRACE, 1, &e), &e);
    f.session = strata_session_create(f.model, &e);
    assert_non_null(f.session);
    int32_t ids[N];
    struct strata_model_info info;
    fixture_ok(strata_model_info(f.model, &info, &e), &e);
    fixture_ids(ids, N, info.vocab);
    feed(&f, ids, PROMPT, &e);
    w.ns = 0;
    int64_t began = io_now_us(f.model->io);
    for (int i = PROMPT; i < N; i++)
        fixture_ok(strata_step(f.session, &ids[i], 1, NULL, &e), &e);
    double us = (double)(io_now_us(f.model->io) - began);
    struct strata_stats s;
    strata_stats_get(f.model, &s);
    *decode = s.decode;
    *work_ms = (double)w.ns * 1e-6 / STEPS;
    fixture_ok(strata_trace_end(f.model, &e), &e);
    f.model->experts = w.inner;
    fixture_close(&f);
    return STEPS * 1e6 / us;
}

/* What the plan expects of the same. */
static double forecast(const struct io_drive *drive, const struct strata_options *o, double work_ms)
{
    struct strata_error error = {0};
    struct err e = {0};
    struct strata_model *m = strata_model_open(PATH, o, &error);
    struct trace *t = trace_open(TRACE, NULL, &e);
    assert_true(m && t);
    struct io_drive like = probed(drive);
    struct replay_drive d = {&like, work_ms, 0};
    assert_true(session_forecast(m, t, &d, &e));
    double tok_s = 0;
    for (int i = 0; i < m->plan.points; i++)
        if (!strcmp(m->plan.point[i].name, "chosen"))
            tok_s = m->plan.point[i].expected_tok_s;
    trace_free(t);
    strata_model_free(m);
    return tok_s;
}

static void plans_expect_what_runs_have_on_a_slow_and_on_a_fast_drive(void **state)
{
    static const double rates[] = {100, 400};
    static const char *const arenas[] = {"20%", "75%"};
    for (int i = 0; i < 4; i++) {
        struct io_drive drive = {
            .bytes_us = rates[i / 2], .delay_us = 60, .delay_byte_us = 0.001, .cpu_us = 20};
        struct strata_options o = {.arena = arenas[i % 2], .ctx = 128, .draft = STRATA_DRAFT_OFF};
        double work_ms;
        struct strata_reading decode;
        double real = run(&drive, &o, &work_ms, &decode), expected = forecast(&drive, &o, work_ms);
        print_message(
            "%.0f MB/s, %s: %.1f tokens a second, expected %.1f (%+.0f %%); %.1f ms of work\n",
            rates[i / 2], arenas[i % 2], real, expected, 100 * (expected / real - 1), work_ms);
        assert_true(decode.misses > 0 && real < 0.95e3 / work_ms); /* the drive matters */
        if (fabs(expected / real - 1) > 0.15)
            fail_msg("expected %.1f tokens a second, the run had %.1f", expected, real);
    }
    remove(TRACE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_expect_what_runs_have_on_a_slow_and_on_a_fast_drive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
