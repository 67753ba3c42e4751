/* SPDX-License-Identifier: Apache-2.0 */
/* What threads do beside another busy process, told of it by counts that are written here. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "base/pool.c"

#include <cmocka.h>

static int only_core_of(pthread_t thread)
{
    cpu_set_t set;
    assert_int_equal(pthread_getaffinity_np(thread, sizeof set, &set), 0);
    int cpu = -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cpu = cpu == -1 ? i : -2;
    return cpu;
}

/* A pass of a caller that waited so long for its core since it last looked, and the first worker so long;
 * others waited a minute more. */
static void pass(struct pool *p, int64_t caller_us, int64_t workers_us, bool had_company, const int *expected)
{
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    p->looked_us = clock_us() - LOOK_US;
    p->has_company = had_company;
    p->workers[0].waited_us = time_waited_us(gettid()) - caller_us;
    for (int i = 1; i < p->threads; i++)
        p->workers[i].waited_us = time_waited_us(p->workers[i].tid) - workers_us - (i > 1) * 60000000;
    pool_begin_pass(p);
    assert_int_equal(only_core_of(pthread_self()), expected[0]);
    for (int i = 1; i < p->threads; i++)
        assert_int_equal(only_core_of(p->workers[i].thread), expected[i]);
    pool_end_pass(p);
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
}

static void nothing(void *ctx, int chunk, int worker)
{
}

static void a_caller_with_company_changes_places_with_a_worker_that_has_none(void **unused)
{
    struct cores c;
    cores_find(&c);
    struct pool *p = c.n > 1 ? pool_create(c.n, NULL) : NULL;
    for (int i = 1; p && i < p->threads; i++)
        while (!atomic_load(&p->workers[i].tid))
            pool_run(p, nothing, NULL, 2);
    if (!p || !p->has_core_each || time_waited_us(gettid()) < 0) {
        pool_free(p);
        skip();
    }
    /* An hour is longer than a thread waits while this runs. */
    const int64_t hour = INT64_C(3600) * 1000000;
    pass(p, -hour, hour, true, c.cpu);
    pass(p, hour, hour, true, c.cpu);
    pass(p, hour, -hour, false, c.cpu); /* once is not enough */
    int changed[CORES_MOST];
    memcpy(changed, c.cpu, sizeof changed);
    changed[0] = c.cpu[1];
    changed[1] = c.cpu[0];
    pass(p, hour, -hour, true, changed);
    pass(p, hour, hour, true, changed);
    pass(p, hour, -hour, true, c.cpu); /* and back */
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_with_company_changes_places_with_a_worker_that_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
