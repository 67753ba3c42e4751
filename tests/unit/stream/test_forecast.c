/* SPDX-License-Identifier: Apache-2.0 */
/* Forecasts: more arena never makes them slower, a slower drive never faster, ends of ranges are in
 * order; the knee lies between floor and ceiling, and moves only when times are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "stream/forecast.h"

static struct io_drive drive_of(double gb_s)
{
    return (struct io_drive){.bytes_us = gb_s * 1e3};
}

static void by_curve_the_ends_are_in_order_and_more_is_never_slower(void **state)
{
    struct knee_curve curve;
    knee_assume(&curve);
    struct io_drive slow = drive_of(0.2), fast = drive_of(2);
    struct replay_drive d = {&slow, 10, 0}, faster = {&fast, 10, 0};
    struct plan_range before = {0, 0};
    for (uint64_t slots = 0; slots <= 1000; slots += 100) {
        struct forecast_shape f = {1000, slots, 1000 << 18, 10, 6};
        struct plan_range wait, tok_s, wait_fast, tok_s_fast;
        forecast_by_curve(&f, &curve, &d, &wait, &tok_s);
        forecast_by_curve(&f, &curve, &faster, &wait_fast, &tok_s_fast);
        assert_true(wait.least <= wait.most && tok_s.least <= tok_s.most);
        assert_true(wait_fast.most <= wait.most && tok_s_fast.most >= tok_s.most);
        assert_true(tok_s.least >= before.least && tok_s.most >= before.most);
        before = tok_s;
    }
    assert_true(before.least == 100 && before.most == 100); /* everything is there: compute alone */
    struct forecast_shape all = {1000, 0, 1000 << 18, 10, 6};
    struct plan_range wait, tok_s;
    d.compute_ms = 0;
    forecast_by_curve(&all, &curve, &d, &wait, &tok_s);
    assert_true(wait.most >= 78 && wait.most < 80); /* 60 records of 256 KiB at 200 MB/s: 78.6 ms */
    assert_true(tok_s.most == 0 && tok_s.least == 0); /* not known */
}

static void an_arena_that_fills_misses_less_and_less(void **state)
{
    struct knee_curve curve;
    knee_assume(&curve);
    struct io_drive drive = drive_of(0.2);
    struct replay_drive d = {&drive, 10, 0};
    struct forecast_shape f = {1000, 500, 1000 << 18, 10, 6}, empty = f;
    struct plan_range wait, tok_s, full, full_s, first, first_s;
    empty.slots = 0;
    forecast_by_curve(&f, &curve, &d, &full, &full_s);
    forecast_by_curve(&empty, &curve, &d, &first, &first_s);
    forecast_filling(&f, 500, 20, &curve, &d, &wait, &tok_s);
    assert_true(fabs(wait.most - full.most) < 1e-9 && fabs(tok_s.most - full_s.most) < 1e-9);
    forecast_filling(&f, 0, 1, &curve, &d, &wait, &tok_s);
    assert_true(wait.most == first.most && wait.least == first.least && tok_s.least == first_s.least);
    double before = first.most;
    for (uint64_t tokens = 2; tokens <= 2048; tokens *= 2) {
        forecast_filling(&f, 0, tokens, &curve, &d, &wait, &tok_s);
        assert_true(wait.most < before && wait.most > full.most && tok_s.least <= tok_s.most);
        before = wait.most;
    }
    assert_true(wait.most < full.most * 1.02); /* 60 misses a token fill it in some 12 tokens */
}

/* Golden figures: a model that nothing is known of, even use, and one expert in ten that does all.
 */
static void the_knee_follows_what_is_used(void **state)
{
    struct knee_curve c;
    knee_assume(&c);
    assert_false(c.is_counted);
    assert_true(fabs(knee_missed(&c, 0.2) - 0.7317) < 1e-3 && knee_missed(&c, 1) == 0);
    assert_true(knee_missed(&c, -1) == 1 && knee_missed(&c, 2) == 0);
    assert_true(knee_share(&c, 1, 10, 0) == 1);      /* the drive counts: everything */
    assert_true(knee_share(&c, 1, 0.1, 0) == 0);     /* it does not: nothing */
    assert_true(knee_share(&c, 1, 0.1, 0.3) == 0.3); /* but what has to be */
    assert_true(fabs(knee_share(&c, 1, 0.5, 0) - 0.7) < 1e-9);
    static uint32_t counts[1000];
    for (int i = 0; i < 1000; i++)
        counts[i] = 7;
    assert_true(knee_count(&c, counts, 1000) && c.is_counted);
    for (int i = 0; i <= 20; i++)
        assert_true(fabs(c.missed[i] - (1 - i / 20.0)) < 1e-9);
    for (int i = 0; i < 1000; i++)
        counts[i] = i % 10 ? 1 : 1000;
    assert_true(knee_count(&c, counts, 1000));
    assert_true(fabs(knee_missed(&c, 0.1) - 900.0 / 100900) < 1e-9);
    assert_true(fabs(knee_share(&c, 1, 10, 0) - 0.1) < 1e-9);
    for (int i = 0; i < 1000; i++)
        counts[i] = 0; /* nothing was used: as even as can be */
    assert_true(knee_count(&c, counts, 1000) && fabs(knee_missed(&c, 0.5) - 0.5) < 1e-9);
}

static struct plan plan_for(const struct trace *t, uint64_t arena)
{
    uint64_t all = replay_arena_bytes(t, 1, 1), least = replay_arena_bytes(t, 1, 0);
    const struct trace_head *h = trace_head(t);
    struct plan p = {.arena = arena, .plan_total = arena + 1000, .points = 4};
    for (int l = 0; l < h->layers; l++)
        p.expert_bytes += h->layer[l].record_bytes * (uint64_t)h->experts;
    p.point[0] = (struct plan_point){.name = "floor", .arena = least};
    p.point[1] = (struct plan_point){.name = "knee", .arena = all};
    p.point[2] = (struct plan_point){.name = "chosen", .arena = arena};
    p.point[3] = (struct plan_point){.name = "ceiling", .arena = all};
    return p;
}

static void a_trace_gives_points_and_a_knee(void **state)
{
    struct err e = {0};
    struct trace *t = trace_open(TEST_DATA "/traces/gen-1.trc", NULL, &e);
    assert_non_null(t);
    struct io_drive drive = drive_of(0.2);
    struct replay_drive d = {&drive, 0.2, 0}; /* records of this old form count as one page */
    struct replay_config own = {.policy = POLICY_LAYER, .window_rows = 1};
    struct plan p = plan_for(t, replay_arena_bytes(t, 1, 0.3));
    assert_true(forecast_by_trace(&p, t, &own, &d, &e));
    assert_int_equal(p.points, 4);
    assert_string_equal(p.point[1].name, "knee");
    assert_string_equal(p.point[2].name, "chosen");
    const struct plan_point *floor = &p.point[0], *knee = &p.point[1], *ceiling = &p.point[3];
    assert_true(knee->arena > floor->arena && knee->arena <= ceiling->arena);
    assert_int_equal(knee->total, 1000 + knee->arena);
    assert_true(floor->expected_tok_s < knee->expected_tok_s);
    assert_true(knee->expected_tok_s <= ceiling->expected_tok_s);
    for (int i = 0; i < p.points; i++) {
        const struct plan_point *at = &p.point[i];
        assert_true(at->tok_s.least > 0 && at->tok_s.least <= at->expected_tok_s &&
                    at->expected_tok_s <= at->tok_s.most && at->wait_ms.least <= at->wait_ms.most);
    }
    d.compute_ms = 0;
    p = plan_for(t, replay_arena_bytes(t, 1, 0.3));
    assert_true(forecast_by_trace(&p, t, &own, &d, &e));
    assert_int_equal(p.point[1].arena, p.point[3].arena); /* as it was */
    assert_true(p.point[0].expected_tok_s == 0 && p.point[0].wait_ms.most > 0);
    trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_curve_the_ends_are_in_order_and_more_is_never_slower),
        cmocka_unit_test(an_arena_that_fills_misses_less_and_less),
        cmocka_unit_test(the_knee_follows_what_is_used),
        cmocka_unit_test(a_trace_gives_points_and_a_knee),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
