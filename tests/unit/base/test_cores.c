/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores a process takes: affinity mask, quotas of control groups, kinds of cores; and where the
 * workers of a pool stay. */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cores.h"
#include "base/pool.h"

/* ---- A root of our own ---------------------------------------------------------------------- */

static char root[64];

static int begin(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/strata-cores-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* A file under the root, with its folders. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* ---- Quotas --------------------------------------------------------------------------------- */

static void no_group_is_no_quota(void **state)
{
    (void)state;
    assert_int_equal(cores_quota(root), 0);
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(cores_quota(root), 0);
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(cores_quota(root), 0);
}

static void quota_of_version_2_is_the_tightest_up_to_the_root(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/outer/inner of it\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/outer/inner of it/cpu.max", "650000 100000\n");
    assert_int_equal(cores_quota(root), 7); /* rounded up */
    put("/sys/fs/cgroup/outer/cpu.max", "150000 50000\n");
    assert_int_equal(cores_quota(root), 3);
    put("/sys/fs/cgroup/outer/inner of it/cpu.max", "1000 100000\n");
    assert_int_equal(cores_quota(root), 1); /* less than one is one */
    put("/sys/fs/cgroup/outer/inner of it/cpu.max", "max 100000\n");
    assert_int_equal(cores_quota(root), 3);
}

/* In a container: the name is the host's, the limit is at the mount. */
static void quota_of_a_group_that_is_not_seen_is_that_of_the_mount(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/1234\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(cores_quota(root), 2);
}

static void quota_of_version_1_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:cpuset:/\n4:cpu,cpuacct:/jobs/7\n1:name=systemd:/\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1\n"); /* not its place */
    put("/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "1\n");
    assert_int_equal(cores_quota(root), 0);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_quota(root), 4);
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(cores_quota(root), 2);
}

/* ---- Kinds of cores ------------------------------------------------------------------------- */

/* Six processors: one fast core with two threads, one fast without, three slow ones. */
static void put_processor(int cpu, int core, const char *siblings, const char *capacity)
{
    char folder[64], name[160], text[16];
    snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu%d", cpu);
    const char *const all[] = {"core_siblings", "package_cpus"}, *const same[] = {"thread_siblings", "core_cpus"};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/topology/%s", folder, all[i]);
        put(name, "3f\n");
        snprintf(name, sizeof name, "%s/topology/%s", folder, same[i]);
        put(name, siblings);
    }
    snprintf(text, sizeof text, "%d\n", core);
    snprintf(name, sizeof name, "%s/topology/core_id", folder);
    put(name, text);
    snprintf(name, sizeof name, "%s/topology/physical_package_id", folder);
    put(name, "0\n");
    snprintf(name, sizeof name, "%s/online", folder);
    put(name, "1\n");
    snprintf(name, sizeof name, "%s/cpu_capacity", folder);
    put(name, capacity);
}

static void of_a_hybrid_processor_the_fast_cores_are_taken(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/online", "0-5\n");
    put("/sys/devices/system/cpu/possible", "0-5\n");
    put_processor(0, 0, "3\n", "1024\n");
    put_processor(1, 0, "3\n", "1024\n");
    put_processor(2, 1, "4\n", "1024\n");
    put_processor(3, 2, "8\n", "400\n");
    put_processor(4, 3, "10\n", "400\n");
    put_processor(5, 4, "20\n", "400\n");
    setenv("HWLOC_FSROOT", root, 1);
    setenv("HWLOC_COMPONENTS", "linux,stop", 1);
    struct cores c;
    cores_find(&c);
    unsetenv("HWLOC_FSROOT");
    unsetenv("HWLOC_COMPONENTS");
    if (c.n == 0)
        skip(); /* no /sys here at all */
    assert_int_equal(c.n, 2);
    assert_int_equal(c.cpu[0], 0);
    assert_int_equal(c.cpu[1], 2);
    assert_true(c.are_chosen);
}

/* ---- The mask ------------------------------------------------------------------------------- */

static void mask_is_respected(void **state)
{
    (void)state;
    cpu_set_t before, one;
    struct cores c;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    cores_find(&c);
    assert_true(c.n <= CPU_COUNT(&before) && cores_default_threads() <= CPU_COUNT(&before));
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &before))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    cores_find(&c);
    assert_int_equal(cores_default_threads(), 1);
    assert_true(c.n <= 1 && (c.n == 0 || c.cpu[0] == last));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* ---- Where workers stay --------------------------------------------------------------------- */

struct places {
    int threads;
    atomic_int here;
    cpu_set_t mask[CORES_MOST];
};

/* Returns when every worker holds a chunk, so that each has one. */
static void note_place(void *ctx, int chunk, int worker)
{
    (void)chunk;
    struct places *p = ctx;
    sched_getaffinity(0, sizeof p->mask[worker], &p->mask[worker]);
    atomic_fetch_add(&p->here, 1);
    while (atomic_load(&p->here) < p->threads)
        sched_yield();
}

static void find_places(int threads, bool is_pass, struct places *p)
{
    *p = (struct places){.threads = threads};
    struct pool *pool = pool_create(threads, NULL);
    assert_non_null(pool);
    if (is_pass)
        pool_begin_pass(pool);
    pool_run(pool, note_place, p, threads);
    if (is_pass)
        pool_end_pass(pool);
    pool_free(pool);
}

static void as_many_workers_as_cores_have_one_each(void **state)
{
    (void)state;
    static struct places p;
    struct cores c;
    cpu_set_t mine;
    cores_find(&c);
    if (c.n < 2) {
        print_message("SKIP: there is one core\n");
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    find_places(c.n, false, &p);
    for (int i = 1; i < c.n; i++)
        assert_true(CPU_COUNT(&p.mask[i]) == 1 && CPU_ISSET(c.cpu[i], &p.mask[i]));
    assert_true(CPU_EQUAL(&p.mask[0], &mine)); /* the caller is not ours */
    /* More than there are cores: the system knows better. */
    find_places(c.n + 1, true, &p);
    for (int i = 0; i <= c.n; i++)
        assert_true(CPU_EQUAL(&p.mask[i], &mine));
    /* In a pass the caller has the core that is left, and afterwards its own mask again. */
    cpu_set_t after;
    find_places(c.n, true, &p);
    assert_true(CPU_COUNT(&p.mask[0]) == 1 && CPU_ISSET(c.cpu[0], &p.mask[0]));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&after, &mine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_group_is_no_quota, begin, end),
        cmocka_unit_test_setup_teardown(quota_of_version_2_is_the_tightest_up_to_the_root, begin, end),
        cmocka_unit_test_setup_teardown(quota_of_a_group_that_is_not_seen_is_that_of_the_mount, begin,
                                        end),
        cmocka_unit_test_setup_teardown(quota_of_version_1_counts, begin, end),
        cmocka_unit_test_setup_teardown(of_a_hybrid_processor_the_fast_cores_are_taken, begin, end),
        cmocka_unit_test(mask_is_respected),
        cmocka_unit_test(as_many_workers_as_cores_have_one_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
