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
        cmocka_unit_test(signals_are_left_to_the_main_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
