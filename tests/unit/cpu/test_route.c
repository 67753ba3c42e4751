/* SPDX-License-Identifier: Apache-2.0 */
/* The router's choice with a bonus for experts that are in memory, against plain code in double
 * precision: who is chosen, who is kept in any case, whose weights they are, what was displaced. */
#include <math.h>

#include "ops_fixture.h"

enum { ROWS = 5, N = 40, K = 6 };

static const struct backend_limits limits = {
    .rows = 8, .n_in = 64, .expert_rows = 8, .expert_width = 40, .embd = 64, .ctx = 64, .blocks = 8};

/* The next best by `score`, the lower index of equals, that is not chosen yet. */
static int take_best(const double *score, bool *is_chosen)
{
    int best = -1;
    for (int i = 0; i < N; i++)
        if (!is_chosen[i] && (best < 0 || score[i] > score[best]))
            best = i;
    is_chosen[best] = true;
    return best;
}

static void check_row(const float *z, const float *bonus, int keep, const int32_t *ids,
                      const float *weights, float displaced, float spread)
{
    double exact[N], bent[N], all = 0, mass_exact = 0, mass = 0, least = z[0], most = z[0];
    bool in_exact[N] = {false}, is_chosen[N] = {false};
    for (int i = 0; i < N; i++) {
        exact[i] = z[i];
        bent[i] = (double)(z[i] + bonus[i]);
        all += exp(exact[i]);
        least = exact[i] < least ? exact[i] : least;
        most = exact[i] > most ? exact[i] : most;
    }
    for (int i = 0; i < K; i++) {
        int x = take_best(exact, in_exact);
        mass_exact += exp(exact[x]) / all;
        if (i < keep)
            is_chosen[x] = true;
    }
    for (int i = keep; i < K; i++)
        take_best(bent, is_chosen);
    for (int i = 0; i < N; i++)
        mass += is_chosen[i] ? exp(exact[i]) / all : 0;
    for (int i = 0; i < K; i++) {
        assert_true(ids[i] >= 0 && ids[i] < N && is_chosen[ids[i]]);
        is_chosen[ids[i]] = false; /* none twice */
        assert_close(weights[i], exp(exact[ids[i]]) / all / mass, 3e-6, "weight", (size_t)i);
        assert_true(!i || weights[i] <= weights[i - 1]);
    }
    assert_close(displaced, mass_exact - mass, 3e-6, "displaced mass", 0);
    assert_close(spread, most - least, 3e-6, "spread", 0);
}

static void a_bonus_changes_who_is_chosen_and_no_weight(void **state)
{
    struct err e;
    err_clear(&e);
    struct fixture f = fixture_open(2, cpu_isa_best(), &limits);
    float *z = test_floats(ROWS * N, 3), bonus[N];
    int changed = 0, kept = 0;
    for (int i = 0; i < N; i++)
        bonus[i] = i % 3 ? 0 : 0.8f;
    for (int keep = 0; keep < K; keep++) {
        int32_t ids[ROWS * K];
        float weights[ROWS * K], displaced[ROWS], spread[ROWS];
        struct route_bonus b = {bonus, keep, displaced, spread};
        assert_true(f.b->route(f.b, z, ROWS, N, K, true, &b, ids, weights, &e));
        for (int t = 0; t < ROWS; t++) {
            check_row(z + t * N, bonus, keep, ids + t * K, weights + t * K, displaced[t], spread[t]);
            changed += displaced[t] > 0;
            kept += keep == K - 1 && displaced[t] == 0;
        }
    }
    assert_true(changed > ROWS && kept < ROWS);
    test_free(z);
    fixture_close(&f);
}

static void without_a_bonus_for_anybody_and_where_all_are_kept_it_is_exact(void **state)
{
    struct err e;
    err_clear(&e);
    struct fixture f = fixture_open(1, cpu_isa_best(), &limits);
    float *z = test_floats(ROWS * N, 4), none[N] = {0}, all[N], exact_weights[ROWS * K];
    int32_t exact[ROWS * K];
    for (int i = 0; i < N; i++)
        all[i] = (float)(i % 2);
    assert_true(f.b->route(f.b, z, ROWS, N, K, true, NULL, exact, exact_weights, &e));
    for (int way = 0; way < 2; way++) {
        int32_t ids[ROWS * K];
        float weights[ROWS * K], displaced[ROWS], spread[ROWS];
        struct route_bonus b = {way ? all : none, way ? K : 0, displaced, spread};
        assert_true(f.b->route(f.b, z, ROWS, N, K, true, &b, ids, weights, &e));
        assert_memory_equal(ids, exact, sizeof exact);
        assert_memory_equal(weights, exact_weights, sizeof weights);
        for (int t = 0; t < ROWS; t++)
            assert_true(displaced[t] == 0 && spread[t] > 0);
    }
    test_free(z);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bonus_changes_who_is_chosen_and_no_weight),
        cmocka_unit_test(without_a_bonus_for_anybody_and_where_all_are_kept_it_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
