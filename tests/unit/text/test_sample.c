/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler chooses what its options say, the same token for the same seed and position, and
 * refuses logits that are none. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/sample.h"

#define VOCAB 50

static const struct sampling neutral = {.temp = 1, .top_p = 1, .repetition_penalty = 1};
static struct sampler *sampler;

static int create(void **state)
{
    (void)state;
    sampler = sampler_create(VOCAB, NULL);
    return sampler ? 0 : -1;
}

static int destroy(void **state)
{
    (void)state;
    sampler_free(sampler);
    return 0;
}

/* Chooses at a position with an empty history. */
static int32_t choose_at(const struct sampling *p, const float *logits, size_t position)
{
    static int32_t nothing[1 << 16]; /* id 0 everywhere, harmless without penalties */
    struct err e;
    int32_t id = -1;
    err_clear(&e);
    if (!sampler_choose(sampler, p, logits, nothing, position, position, &id, &e))
        fail_msg("%s", e.text);
    assert_in_range(id, 0, VOCAB - 1);
    return id;
}

/* Logits whose probabilities, at temperature 1, are in proportion to VOCAB - (rank), with the ranks
 * spread over the ids. */
static void spread(float *logits, double *probability)
{
    double total = VOCAB * (VOCAB + 1) / 2;
    for (int rank = 0; rank < VOCAB; rank++) {
        int id = rank * 7 % VOCAB;
        probability[id] = (VOCAB - rank) / total;
        logits[id] = logf((float)(VOCAB - rank));
    }
}

static void test_greedy_takes_the_lowest_of_the_largest(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    struct sampling p = neutral;
    p.temp = 0;
    assert_int_equal(choose_at(&p, logits, 3), 0);
    logits[40] = logits[20] = 1;
    assert_int_equal(choose_at(&p, logits, 3), 20);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -INFINITY;
    logits[13] = -FLT_MAX;
    assert_int_equal(choose_at(&p, logits, 3), 13);
}

static void test_frequencies_are_the_probabilities(void **state)
{
    (void)state;
    float logits[VOCAB];
    double probability[VOCAB], chi = 0;
    int counts[VOCAB] = {0}, n = 50000;
    spread(logits, probability);
    for (int i = 0; i < n; i++)
        counts[choose_at(&neutral, logits, (size_t)i)]++;
    for (int i = 0; i < VOCAB; i++)
        chi += pow(counts[i] - n * probability[i], 2) / (n * probability[i]);
    assert_true(chi < 85); /* 49 degrees of freedom: one in a thousand is above */
}

static void test_temperature_sharpens(void **state)
{
    (void)state;
    float logits[VOCAB];
    double probability[VOCAB];
    struct sampling p = neutral;
    int best = 0;
    spread(logits, probability);
    p.temp = 0.01f;
    for (int i = 0; i < 1000; i++)
        best += choose_at(&p, logits, (size_t)i) == 0;
    assert_true(best > 800); /* weights (49/50)^100 = 0.13, (48/50)^100 = 0.02 ... of the best */
    p.temp = FLT_MIN;
    for (int i = 0; i < 100; i++)
        assert_int_equal(choose_at(&p, logits, (size_t)i), 0);
}

/* Which tokens come at all. */
static int seen(const struct sampling *p, const float *logits, bool *which)
{
    int n = 0;
    memset(which, 0, VOCAB);
    for (int i = 0; i < 20000; i++)
        which[choose_at(p, logits, (size_t)i)] = true;
    for (int i = 0; i < VOCAB; i++)
        n += which[i];
    return n;
}

static void test_filters_keep_exactly_the_best(void **state)
{
    (void)state;
    float logits[VOCAB];
    double probability[VOCAB];
    bool which[VOCAB];
    struct sampling p = neutral;
    spread(logits, probability);
    p.top_k = 5;
    assert_int_equal(seen(&p, logits, which), 5);
    for (int rank = 0; rank < 5; rank++)
        assert_true(which[rank * 7 % VOCAB]);
    p.top_k = 1;
    assert_int_equal(seen(&p, logits, which), 1);
    p.top_k = 1000;
    assert_int_equal(seen(&p, logits, which), VOCAB);
    p.top_k = 0;
    p.top_p = 0.1f; /* 50 + 49 of 1275 are 7.8 %, with 48 it is 11.5 % */
    assert_int_equal(seen(&p, logits, which), 3);
    p.top_p = FLT_MIN;
    assert_int_equal(seen(&p, logits, which), 1);
    p.top_p = 1;
    p.min_p = 0.89f; /* 50 to 45 of 50 */
    assert_int_equal(seen(&p, logits, which), 6);
    p.top_k = 10;
    p.top_p =
        0.5f; /* of the ten best, whose sum is 455: 50 + 49 + 48 + 47 are 43 %, 46 more 53 % */
    assert_int_equal(seen(&p, logits, which), 5);
    p.min_p = 1;
    assert_int_equal(seen(&p, logits, which), 1);
}

static void test_equal_scores_are_cut_from_the_higher_index(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    bool which[VOCAB];
    struct sampling p = neutral;
    logits[3] = -0.0f; /* equals 0 */
    p.top_k = 5;
    assert_int_equal(seen(&p, logits, which), 5);
    for (int i = 0; i < 5; i++)
        assert_true(which[i]);
}

static void test_the_draw_depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    float logits[VOCAB];
    double probability[VOCAB];
    struct sampling a = neutral, b = neutral;
    int32_t first[200];
    int same = 0;
    spread(logits, probability);
    a.seed = 1;
    b.seed = 2;
    for (int i = 0; i < 200; i++)
        first[i] = choose_at(&a, logits, (size_t)i);
    for (int i = 199; i >= 0; i--) { /* in another order, with other draws between */
        same += choose_at(&b, logits, (size_t)i) == first[i];
        assert_int_equal(choose_at(&a, logits, (size_t)i), first[i]);
    }
    assert_true(same < 20);
    /* pinned: the same text for a seed on every machine and in every version */
    assert_true(sampling_draw(0, 0) == 0x1.8821662a8ad78p-3);
    assert_true(sampling_draw(42, 1000) == 0x1.85887167aa945p-1);
    assert_true(sampling_draw(UINT64_MAX, 1) == 0x1.cfdd78224301p-2);
}

static void test_draws_are_even_and_independent(void **state)
{
    (void)state;
    int cells[16][16] = {{0}}, n = 1 << 16;
    double chi = 0;
    for (int i = 0; i < n; i++) { /* a draw against its neighbour in seed */
        int x = (int)(sampling_draw(7, (uint64_t)i) * 16);
        int y = (int)(sampling_draw(8, (uint64_t)i) * 16);
        cells[x][y]++;
    }
    for (int x = 0; x < 16; x++)
        for (int y = 0; y < 16; y++)
            chi += pow(cells[x][y] - n / 256.0, 2) / (n / 256.0);
    assert_true(chi > 180 && chi < 340); /* 255 degrees of freedom */
}

static void penalized(const struct sampling *p, const int32_t *ids, size_t n, size_t answer,
                      int32_t want)
{
    float logits[VOCAB] = {0};
    int32_t id;
    logits[1] = 4;
    logits[2] = 3;
    logits[3] = 2;
    assert_true(sampler_choose(sampler, p, logits, ids, n, answer, &id, NULL));
    assert_int_equal(id, want);
}

static void test_penalties(void **state)
{
    (void)state;
    struct sampling p = neutral;
    int32_t long_ago[100] = {1}, recent[100] = {0};
    const int32_t some[] = {1, 2, 1, -1, VOCAB};
    p.temp = 0;
    recent[40] = 1;
    p.repetition_penalty = 1.5f; /* 4 -> 2.67, 3 -> 2 */
    penalized(&p, some, 0, 0, 1);
    penalized(&p, some, 1, 1, 2); /* the prompt counts */
    penalized(&p, some, 5, 5, 1); /* both, once each, however often they came */
    penalized(&p, long_ago, 100, 0, 1);
    penalized(&p, recent, 100, 0, 2);
    p.repetition_penalty = FLT_MIN; /* no infinity */
    penalized(&p, some, 2, 2, 1);
    p.repetition_penalty = 1;
    p.presence_penalty = 1.5f;
    penalized(&p, some, 1, 1, 1); /* the prompt does not count */
    penalized(&p, some, 1, 0, 2);
    penalized(&p, some, 3, 0, 1); /* 2.5, 1.5 */
    p.presence_penalty = 0;
    p.frequency_penalty = 0.8f;
    penalized(&p, some, 1, 0, 1); /* 3.2 */
    penalized(&p, some, 3, 0, 1); /* 2.4, 2.2 */
    p.frequency_penalty = 1.2f;
    penalized(&p, some, 5, 0, 3); /* 1.6, 1.8, 2 */
}

static void test_logits_that_are_none(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    int32_t id;
    struct err e;
    err_clear(&e);
    logits[33] = NAN;
    assert_false(sampler_choose(sampler, &neutral, logits, NULL, 0, 0, &id, &e));
    assert_int_equal(e.code, ERR_NUMERIC);
    assert_string_equal(e.text, "the logit of token 33 is NaN");
    logits[33] = INFINITY;
    assert_false(sampler_choose(sampler, &neutral, logits, NULL, 0, 0, &id, NULL));
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -INFINITY;
    assert_false(sampler_choose(sampler, &neutral, logits, NULL, 0, 0, &id, NULL));
    logits[7] = 0; /* the only one that can come */
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(choose_at(&neutral, logits, i), 7);
    /* Nor one that is given infinitely much. */
    struct sampling p = neutral;
    p.presence_penalty = p.frequency_penalty = -FLT_MAX;
    err_clear(&e);
    for (int32_t given = 0; given < 2; given++) {
        assert_true(sampler_choose(sampler, &p, logits, &given, 1, 0, &id, &e));
        assert_int_equal(id, 7);
    }
}

static void test_nothing_is_allocated(void **state)
{
    (void)state;
    float logits[VOCAB];
    double probability[VOCAB];
    spread(logits, probability);
    size_t before = mem_in_use();
    mem_fail_at(1);
    choose_at(&neutral, logits, 0);
    assert_int_equal(mem_in_use(), before);
    assert_null(mem_alloc(1, "the one that fails", NULL));
}

static void test_options_are_checked(void **state)
{
    (void)state;
    static const struct sampling bad[] = {
        {.temp = -1, .top_p = 1, .repetition_penalty = 1},
        {.temp = NAN, .top_p = 1, .repetition_penalty = 1},
        {.temp = INFINITY, .top_p = 1, .repetition_penalty = 1},
        {.top_k = -1, .top_p = 1, .repetition_penalty = 1},
        {.top_p = 0, .repetition_penalty = 1},
        {.top_p = 1.5f, .repetition_penalty = 1},
        {.top_p = 1, .min_p = -1, .repetition_penalty = 1},
        {.top_p = 1, .min_p = NAN, .repetition_penalty = 1},
        {.top_p = 1, .repetition_penalty = 0},
        {.top_p = 1, .repetition_penalty = 1, .presence_penalty = NAN},
        {.top_p = 1, .repetition_penalty = 1, .frequency_penalty = INFINITY},
    };
    assert_true(sampling_check(&neutral, NULL));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e;
        err_clear(&e);
        assert_false(sampling_check(&bad[i], &e));
        assert_int_equal(e.code, ERR_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_of_the_largest),
        cmocka_unit_test(test_frequencies_are_the_probabilities),
        cmocka_unit_test(test_temperature_sharpens),
        cmocka_unit_test(test_filters_keep_exactly_the_best),
        cmocka_unit_test(test_equal_scores_are_cut_from_the_higher_index),
        cmocka_unit_test(test_the_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(test_draws_are_even_and_independent),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_logits_that_are_none),
        cmocka_unit_test(test_nothing_is_allocated),
        cmocka_unit_test(test_options_are_checked),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
