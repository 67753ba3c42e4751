/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool: every chunk is done once, and its threads leave signals to the program. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

#define CHUNKS 257

static void count(void *ctx, int chunk, int worker)
{
    (void)worker;
    atomic_fetch_add((atomic_int *)ctx + chunk, 1);
}

static void every_chunk_is_done_once(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        struct pool *p = pool_create(threads[i], NULL);
        assert_int_equal(pool_threads(p), threads[i]);
        for (int n = 0; n <= CHUNKS; n += 32) {
            atomic_int done[CHUNKS] = {0};
            pool_run(p, count, done, n);
            for (int c = 0; c < CHUNKS; c++)
                assert_int_equal(done[c], c < n);
        }
        pool_free(p);
    }
    assert_int_equal(mem_in_use(), 0);
}

static void switch_rows(void *ctx, int chunk, int worker)
{
    laps_switch(ctx, worker, chunk % 2 ? LAP_NORM : LAP_MATRICES);
    for (volatile int i = 0; i < 2000; i = i + 1)
        ;
}

/* The times of all rows and of idle threads are those of the pass: nothing is lost or counted twice. */
static void laps_add_up(void **state)
{
    (void)state;
    static const char kind[] = "attn_q";
    struct pool *p = pool_create(3, NULL);
    struct laps *l = laps_create(3, NULL);
    pool_set_laps(p, l);
    pool_run(p, switch_rows, l, CHUNKS); /* outside of a pass: nothing */
    for (int pass = 0; pass < 4; pass++) {
        laps_begin(l, LAP_ANSWER);
        int row = laps_matrix(l, kind, 7);
        assert_int_equal(row, LAP_MATRICES);
        assert_int_equal(laps_matrix(l, kind, 7), row);
        laps_switch(l, 0, LAP_ATTENTION);
        laps_add_bytes(l, LAP_ATTENTION, 100);
        pool_run(p, switch_rows, l, CHUNKS);
        assert_int_equal(laps_row(l), LAP_ATTENTION);
        laps_end(l);
    }
    struct lap_sum sum;
    laps_sum(l, LAP_ANSWER, &sum);
    assert_int_equal(sum.passes, 4);
    assert_int_equal(sum.steps, 4);
    double all = sum.idle_ns;
    for (int r = 0; r < laps_rows(l); r++) {
        struct lap_times t;
        laps_get(l, LAP_ANSWER, r, &t);
        all += t.ns;
        assert_int_equal(t.bytes, r == LAP_ATTENTION ? 400 : 0);
        assert_int_equal(t.type, r == LAP_MATRICES ? 7 : -1);
        if (r == LAP_NORM || r == LAP_MATRICES)
            assert_true(t.ns > 0);
    }
    assert_true(all > 0.999999 * 3 * sum.pass_ns && all < 1.000001 * 3 * sum.pass_ns);
    laps_sum(l, LAP_PROMPT, &sum);
    assert_true(sum.passes == 0 && sum.pass_ns == 0 && sum.idle_ns == 0);
    laps_reset(l);
    laps_sum(l, LAP_ANSWER, &sum);
    assert_true(sum.passes == 0 && sum.steps == 0 && sum.pass_ns == 0);
    pool_free(p);
    laps_free(l);
    assert_int_equal(mem_in_use(), 0);
}

static atomic_int caught;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&caught, 1);
}

/* Else a Ctrl-C that comes while the main thread holds it back is taken by a worker, and a wait of
 * the main thread is not woken. */
static void signals_are_left_to_the_main_thread(void **state)
{
    (void)state;
    sigset_t held, pending;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    signal(SIGINT, on_signal);
    struct pool *p = pool_create(4, NULL);
    sigprocmask(SIG_BLOCK, &held, NULL);
    kill(getpid(), SIGINT);
    atomic_int done[CHUNKS] = {0};
    pool_run(p, count, done, CHUNKS);
    usleep(20000);
    assert_int_equal(caught, 0);
    assert_int_equal(sigpending(&pending), 0);
    assert_true(sigismember(&pending, SIGINT));
    sigprocmask(SIG_UNBLOCK, &held, NULL);
    assert_int_equal(caught, 1);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_is_done_once),
        cmocka_unit_test(laps_add_up),
        cmocka_unit_test(signals_are_left_to_the_main_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
