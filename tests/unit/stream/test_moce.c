/* SPDX-License-Identifier: Apache-2.0 */
/* Cache-aware routing: the bonus is the strength times the layer's mean spread, for residents alone;
 * what is staged has none, prompts have one only where it is asked for, and a budget of displaced mass
 * is kept in the mean. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reference.h"

static struct memory_drive drive;
static struct io *io;
static struct stream *s;

static int open_one(void **state)
{
    io = open_memory(&drive, 4);
    s = open_stream(io, 0.5);
    return 0;
}

static int close_one(void **state)
{
    stream_free(s);
    io_close(io);
    return 0;
}

static void window(int layer, const int32_t ids[4])
{
    struct err e = {0};
    struct stream_record out[4];
    assert_true(stream_begin(s, layer, ids, 4, false, &e));
    while (stream_next(s, out, 4, &e) > 0)
        ;
    stream_end(s);
}

static void note(int layer, float displaced, float spread)
{
    stream_note_routing(s, layer, &displaced, &spread, 1);
}

/* The bonus of residents; nobody else has one. */
static float bonus_of_residents(int layer, bool is_band, int expected_residents)
{
    int keep = -1, residents = 0;
    float found = 0;
    const float *bonus = stream_bonus(s, layer, is_band, &keep);
    assert_non_null(bonus);
    assert_int_equal(keep, 2);
    for (int x = 0; x < layers[layer].experts; x++) {
        bool there = stream_is_resident(s, layer, x);
        residents += there;
        found = there ? bonus[x] : found;
        assert_true(there ? bonus[x] == found : bonus[x] == 0);
    }
    assert_int_equal(residents, expected_residents);
    return found;
}

static void residents_get_the_strength_times_the_mean_spread(void **state)
{
    int keep;
    window(0, (int32_t[]){3, 5, 7, 9});
    stream_set_moce(s, &(struct stream_moce){.lambda = 0, .keep = 2});
    assert_null(stream_bonus(s, 0, false, &keep)); /* exact */
    stream_set_moce(s, &(struct stream_moce){.lambda = 0.5f, .keep = 2});
    assert_true(bonus_of_residents(0, false, 4) == 0); /* no spread is known yet */
    note(0, 0, 2);
    note(0, 0, 4);
    assert_true(bonus_of_residents(0, false, 4) == 0.5f * 3);
    window(1, (int32_t[]){1, 2, 3, 4});
    assert_true(bonus_of_residents(1, false, 4) == 0); /* a layer's own */
    assert_null(stream_bonus(s, 0, true, &keep));
    stream_set_moce(s, &(struct stream_moce){.lambda = 0.5f, .keep = 2, .for_prompts = true});
    assert_true(bonus_of_residents(0, true, 4) == 0.5f * 3);
    for (int i = 0; i < 5000; i++) /* what was long ago is forgotten */
        note(0, 0, 10);
    assert_true(bonus_of_residents(0, false, 4) > 4.99f);
}

static void what_is_staged_has_no_bonus(void **state)
{
    static uint32_t counts[LAYERS * MOST_EXPERTS];
    for (int i = 0; i < stream_records(s); i++)
        counts[i] = 5;
    stream_set_moce(s, &(struct stream_moce){.lambda = 1, .keep = 2});
    note(0, 0, 1);
    stream_set_counts(s, counts, 1000);
    stream_fill(s);
    assert_true(bonus_of_residents(0, false, 0) == 0);
    window(0, (int32_t[]){3, 5, 7, 9});
    stream_guess(s, 1, (int32_t[]){1, 2}, NULL, 1, 2, false);
    assert_true(bonus_of_residents(0, false, 4) == 1);
    note(1, 0, 1);
    assert_true(bonus_of_residents(1, false, 0) == 0);
}

/* A router that displaces in proportion to the bonus that it gets, and now and then much more. */
static void a_budget_is_kept_in_the_mean_and_used(void **state)
{
    enum { TOKENS = 4000 };
    struct stream_stats stats;
    uint64_t random = 5;
    stream_set_moce(s, &(struct stream_moce){.budget = 0.02f, .keep = 2});
    window(0, (int32_t[]){3, 5, 7, 9});
    for (int i = 0; i < TOKENS; i++) {
        float bonus = bonus_of_residents(0, false, 4);
        note(0, bonus * (draw(&random, 10) ? 0.02f : 0.4f), 1);
        stream_get_stats(s, &stats);
        assert_true(i < 200 || stats.displaced <= 0.025);
    }
    assert_true(stats.displaced > 0.01 && stats.displaced <= 0.0205);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(residents_get_the_strength_times_the_mean_spread, open_one,
                                        close_one),
        cmocka_unit_test_setup_teardown(what_is_staged_has_no_bonus, open_one, close_one),
        cmocka_unit_test_setup_teardown(a_budget_is_kept_in_the_mean_and_used, open_one, close_one),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
