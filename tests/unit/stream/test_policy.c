/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of the policies, and what the system says about pressure on memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "stream/policy.h"
#include "stream/pressure.h"

static void expect_order(struct policy *p, const int *slots, int n)
{
    int at = -1;
    for (int i = 0; i < n; i++) {
        at = policy_victim(p, 0, at);
        assert_int_equal(at, slots[i]);
    }
    assert_int_equal(policy_victim(p, 0, at), -1);
}

#define EXPECT_ORDER(p, ...)                                                                       \
    expect_order(p, (const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / sizeof(int))

static struct policy *make(enum policy_kind kind)
{
    struct err e = {0};
    size_t before = mem_in_use();
    struct policy *p = policy_create(kind, 2, 8, 4, 8, &e);
    assert_non_null(p);
    assert_true(mem_in_use() - before <= policy_memory(2, 8, 4, 8));
    return p;
}

static void lru_orders_by_the_last_use(void **state)
{
    struct policy *p = make(POLICY_LRU);
    for (int i = 0; i < 4; i++)
        policy_admit(p, 0, i, i, i);
    policy_admit(p, 1, 5, 0, 5); /* another class */
    policy_touch(p, 0, 1);
    EXPECT_ORDER(p, 0, 2, 3, 1);
    policy_remove(p, 0, 2);
    EXPECT_ORDER(p, 0, 3, 1);
    policy_free(p);
}

/* A turn of layer 0 that uses a record, which lies in the slot of the same number. */
static void use(struct policy *p, int record, int rows)
{
    policy_begin_turn(p, 0, rows);
    policy_use(p, record, (uint32_t)rows);
    policy_touch(p, 0, record);
}

static void lfu_orders_by_uses_which_age(void **state)
{
    struct policy *p = make(POLICY_LFU);
    for (int i = 0; i < 4; i++)
        policy_admit(p, 0, i, 0, i);
    for (int i = 0; i < 3; i++)
        use(p, 0, 1);
    use(p, 2, 1);
    use(p, 1, 1);
    use(p, 3, 1);
    EXPECT_ORDER(p, 2, 1, 3, 0); /* of equal uses the older goes first */
    policy_remove(p, 0, 0);
    EXPECT_ORDER(p, 2, 1, 3);
    policy_admit(p, 0, 0, 0, 0); /* its uses are remembered */
    EXPECT_ORDER(p, 2, 1, 3, 0);
    for (int i = 0; i < 60; i++)
        use(p, 3, 1);
    use(p, 1, 1);
    EXPECT_ORDER(p, 2, 0, 1, 3); /* what was used often, but long ago, is worth less than one use */
    policy_free(p);
}

static void lfu_counts_a_band_by_its_share_of_rows(void **state)
{
    struct policy *p = make(POLICY_LFU);
    for (int i = 0; i < 3; i++)
        policy_admit(p, 0, i, 0, i);
    policy_begin_turn(p, 0, 1000); /* in one band: half of the rows, all of them, a few */
    static const uint32_t rows[] = {500, 1000, 8};
    for (int i = 2; i >= 0; i--) {
        policy_use(p, i, rows[i]);
        policy_touch(p, 0, i);
    }
    EXPECT_ORDER(p, 2, 0, 1);
    for (int i = 0; i < 3; i++)
        use(p, 2, 1); /* the band's uses are worth what they are at its end: these do not outdo them */
    EXPECT_ORDER(p, 2, 0, 1);
    policy_free(p);
}

/* Of two that were used as often, at the same time, that of the layer that is farther away. */
static void lfu_knows_the_order_of_layers(void **state)
{
    struct policy *p = make(POLICY_LFU);
    for (int l = 0; l < 4; l++) {
        policy_begin_turn(p, l, 1);
        policy_use(p, l, 1);
        policy_admit(p, 0, l, l, l);
    }
    EXPECT_ORDER(p, 3, 2, 1, 0);
    policy_begin_turn(p, 1, 1); /* a new pass */
    EXPECT_ORDER(p, 1, 0, 3, 2);
    policy_free(p);
}

static void layer_evicts_what_comes_up_last(void **state)
{
    struct policy *p = make(POLICY_LAYER);
    for (int l = 0; l < 4; l++) { /* slot l belongs to layer l */
        policy_begin_turn(p, l, 1);
        policy_admit(p, 0, l, l, l);
    }
    EXPECT_ORDER(p, 3, 2, 1, 0); /* after layer 3 comes layer 0 */
    policy_begin_turn(p, 0, 1);
    policy_touch(p, 0, 0);
    EXPECT_ORDER(p, 0, 3, 2, 1);
    policy_begin_turn(p, 1, 1); /* passed over */
    EXPECT_ORDER(p, 1, 0, 3, 2);
    policy_free(p);
}

static void names_are_read(void **state)
{
    struct err e = {0};
    enum policy_kind kind;
    static const char *const names[] = {"lru", "lfu", "layer"};
    for (int i = 0; i < 3; i++) {
        assert_true(policy_parse(names[i], &kind, &e));
        assert_string_equal(policy_name(kind), names[i]);
    }
    assert_false(policy_parse("best", &kind, &e));
}

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void pressure_is_the_larger_of_system_and_group(void **state)
{
    char root[] = "./strata-pressure-XXXXXX", path[256];
    static const char *const folders[] = {"",     "/proc",   "/proc/pressure", "/proc/self",
                                          "/sys", "/sys/fs", "/sys/fs/cgroup", "/sys/fs/cgroup/a"};
    assert_non_null(mkdtemp(root));
    struct pressure p = pressure_read(root);
    assert_true(!p.has_percent && p.percent == 0 && !p.events);
    for (size_t i = 1; i < 8; i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
    put_file(path, "some avg10=12.50 avg60=1.00 avg300=0.00 total=176\nfull avg10=99.00\n");
    p = pressure_read(root);
    assert_true(p.has_percent && p.percent == 12.5);
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    put_file(path, "1:cpu:/b\n0::/a\n");
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/a/memory.pressure", root);
    put_file(path, "some avg10=40.00 avg60=1.00 avg300=0.00 total=176\n");
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/a/memory.events", root);
    put_file(path, "low 5\nhigh 20\nmax 3\noom 7\noom_kill 0\n");
    p = pressure_read(root);
    assert_true(p.percent == 40);
    assert_int_equal(p.events, 23);
    snprintf(path, sizeof path, "rm -r %s", root);
    assert_int_equal(system(path), 0);
}

static void events_count_with_waits_and_alone_only_where_those_are_not_measured(void **state)
{
    static const struct {
        struct pressure before, now;
        bool is_high;
    } cases[] = {{{0}, {0}, false},
                 {{0}, {true, 9, 0}, false},
                 {{0}, {true, 11, 0}, true},
                 {{true, 2, 7}, {true, 2, 7}, false},
                 {{true, 2, 7}, {true, 2, 8}, true},
                 {{true, 0, 7}, {true, 0.5, 900}, false}, /* full of file pages */
                 {{false, 0, 7}, {false, 0, 8}, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(pressure_is_high(&cases[i].now, &cases[i].before), cases[i].is_high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_orders_by_the_last_use),
        cmocka_unit_test(lfu_orders_by_uses_which_age),
        cmocka_unit_test(lfu_counts_a_band_by_its_share_of_rows),
        cmocka_unit_test(lfu_knows_the_order_of_layers),
        cmocka_unit_test(layer_evicts_what_comes_up_last),
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(pressure_is_the_larger_of_system_and_group),
        cmocka_unit_test(events_count_with_waits_and_alone_only_where_those_are_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
