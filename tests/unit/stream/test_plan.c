/* SPDX-License-Identifier: Apache-2.0 */
/* The plan adds up, holds what was asked, and refuses with the number that would work: each number
 * that a refusal names is tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "layers.h"
#include "stream/plan.h"

#define ALIGN 4096

static struct stream_config config;

static struct plan_input small_model(void)
{
    config = config_with(0, ALIGN);
    config.arena_bytes = 0;
    return (struct plan_input){.trunk = 5000000, .session_fixed = 100000, .session_per_token = 1000,
                               .scratch = 300000, .io = 40000, .snapshots = 7, .program = 2000000,
                               .ctx = 4096, .stream = &config, .io_align = ALIGN,
                               .system = UINT64_C(1) << 32};
}

static struct plan must_plan(const struct plan_input *in)
{
    struct plan p;
    struct err e = {0};
    if (!plan_compute(in, &p, &e))
        fail_msg("%s", e.text);
    assert_int_equal(p.plan_total, p.trunk + p.session + p.scratch + p.io + p.staging + p.snapshots +
                                       p.program + p.arena);
    assert_int_equal(p.stream_bytes, p.arena + p.staging);
    return p;
}

/* The number behind `word` in a message. */
static uint64_t number_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    if (!at)
        fail_msg("\"%s\" is not in: %s", word, text);
    char number[32];
    size_t n = strcspn(at + strlen(word), " ,;");
    snprintf(number, sizeof number, "%.*s", (int)n, at + strlen(word));
    uint64_t bytes;
    struct err e = {0};
    if (!plan_parse_size("message", number, &bytes, &e))
        fail_msg("%s", e.text);
    return bytes;
}

static void arenas_are_as_asked(void **state)
{
    struct plan_input in = small_model();
    uint64_t staging = stream_staging_bytes(&config, ALIGN);
    struct plan p = must_plan(&in);
    assert_int_equal(p.slots, p.experts); /* memory for everything: everything */
    assert_int_equal(p.experts, 178);
    in.arena.kind = PLAN_ARENA_MIN;
    p = must_plan(&in);
    assert_int_equal(p.stream_bytes, stream_least_bytes(&config, ALIGN));
    assert_int_equal(p.staging, staging);
    in.arena = (struct plan_arena){.kind = PLAN_ARENA_SHARE, .percent = 100};
    assert_int_equal(must_plan(&in).slots, 178);
    in.arena.percent = 50;
    p = must_plan(&in);
    assert_true(p.slots > 80 && p.slots < 98);
    in.arena = (struct plan_arena){.kind = PLAN_ARENA_BYTES, .bytes = 1200000};
    assert_int_equal(must_plan(&in).arena, 1200000);
    in.arena.kind = PLAN_ARENA_AUTO;
    in.memory = p.plan_total + 12345;
    assert_int_equal(must_plan(&in).plan_total, in.memory);
}

static void refusals_name_the_least_that_works(void **state)
{
    struct plan_input in = small_model();
    struct plan p;
    struct err e = {0};
    in.memory = 1000000;
    assert_false(plan_compute(&in, &p, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_non_null(strstr(e.text, "--memory: 1000000"));
    in.memory = number_after(e.text, "needs at least ");
    assert_int_equal(must_plan(&in).stream_bytes, stream_least_bytes(&config, ALIGN));
    in.memory--;
    err_clear(&e);
    assert_false(plan_compute(&in, &p, &e));

    in.ctx = 8192; /* only the context is too long */
    err_clear(&e);
    assert_false(plan_compute(&in, &p, &e));
    in.ctx = number_after(e.text, "--ctx ");
    must_plan(&in);
    in.ctx++;
    err_clear(&e);
    assert_false(plan_compute(&in, &p, &e));

    in = small_model();
    in.arena = (struct plan_arena){.kind = PLAN_ARENA_BYTES, .bytes = 1000};
    err_clear(&e);
    assert_false(plan_compute(&in, &p, &e));
    in.arena.bytes = number_after(e.text, "needs at least ");
    must_plan(&in);

    in = small_model();
    in.system = 8000000;
    err_clear(&e);
    assert_false(plan_compute(&in, &p, &e));
    assert_non_null(strstr(e.text, "without swapping"));
    in.ctx = UINT64_MAX / 10;
    err_clear(&e);
    assert_false(plan_compute(&in, &p, &e));
}

static void a_model_without_experts_has_a_plan(void **state)
{
    struct plan_input in = small_model();
    in.stream = NULL;
    struct plan p = must_plan(&in);
    assert_int_equal(p.arena + p.staging + p.slots + p.experts, 0);
}

static void points_rise_and_the_ceiling_is_what_memory_gives(void **state)
{
    struct plan_input in = small_model();
    in.arena.kind = PLAN_ARENA_MIN;
    struct plan p = must_plan(&in);
    assert_int_equal(p.points, 5);
    assert_string_equal(p.point[0].name, "floor");
    assert_string_equal(p.point[1].name, "cycle");
    assert_string_equal(p.point[2].name, "knee");
    assert_string_equal(p.point[3].name, "chosen");
    assert_string_equal(p.point[4].name, "ceiling");
    assert_true(p.point[0].arena <= p.point[1].arena && p.point[1].arena <= p.point[4].arena);
    assert_int_equal(p.point[3].arena, p.arena);
    for (int i = 0; i < p.points; i++)
        assert_int_equal(p.point[i].total - p.point[i].arena, p.plan_total - p.arena);
}

static void by_default_the_arena_ends_at_the_knee(void **state)
{
    struct plan_input in = small_model();
    struct plan all = must_plan(&in);
    in.knee = 0.6;
    struct plan p = must_plan(&in);
    assert_int_equal(p.arena, (uint64_t)((double)all.arena * 0.6));
    assert_int_equal(p.point[2].arena, p.arena);
    assert_int_equal(p.point[4].arena, all.arena);
    in.memory = p.plan_total - 1000; /* below the knee: all that there is */
    assert_int_equal(must_plan(&in).plan_total, in.memory);
    in.memory = all.plan_total - 1000; /* a limit is no wish */
    assert_int_equal(must_plan(&in).arena, p.arena);
    in.arena.kind = PLAN_ARENA_MAX;
    assert_int_equal(must_plan(&in).plan_total, in.memory);
    in = small_model();
    in.knee = 1e-9; /* never below what works */
    assert_int_equal(must_plan(&in).stream_bytes, stream_least_bytes(&config, ALIGN));
}

static void the_json_has_the_keys_of_the_commands(void **state)
{
    struct plan_input in = small_model();
    struct plan p = must_plan(&in);
    struct json_out out = {0};
    struct err e = {0};
    plan_write_json(&p, &out);
    struct json_doc *d = json_parse(out.text, out.bytes, "plan", &e);
    if (!d)
        fail_msg("%s", e.text);
    static const char *const keys[] = {"trunk", "session", "scratch", "io", "staging", "snapshots",
                                       "program", "arena", "plan_total", "slots", "experts", "ctx"};
    int64_t v;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_true(json_i64(json_get(json_root(d), keys[i]), &v));
    assert_true(json_i64(json_get(json_root(d), "plan_total"), &v));
    assert_int_equal(v, p.plan_total);
    const struct json *points = json_get(json_root(d), "points");
    assert_int_equal(points->count, p.points);
    assert_true(json_is_text(json_get(&points->items[0], "name"), "floor"));
    assert_int_equal(json_get(&points->items[0], "tok_s")->kind, JSON_NULL);
    json_free(d);
    json_out_free(&out);
    plan_write_table(&p, &out);
    assert_non_null(strstr(out.text, "\narena "));
    assert_non_null(strstr(out.text, "\nceiling "));
    json_out_free(&out);
}

static void arena_arguments_are_read_as_commands_say(void **state)
{
    struct plan_arena a;
    struct err e = {0};
    assert_true(plan_parse_arena("min", &a, &e) && a.kind == PLAN_ARENA_MIN);
    assert_true(plan_parse_arena("max", &a, &e) && a.kind == PLAN_ARENA_MAX);
    assert_true(plan_parse_arena("12.5%", &a, &e) && a.kind == PLAN_ARENA_SHARE);
    assert_true(a.percent == 12.5);
    assert_true(plan_parse_arena("1.5K", &a, &e) && a.kind == PLAN_ARENA_BYTES && a.bytes == 1536);
    static const char *const bad[] = {"", "%", "101%", "-1%", "nan%", "1e1%", "maximum", "5 %", "7GB"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err_clear(&e);
        assert_false(plan_parse_arena(bad[i], &a, &e));
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.text, "--arena"));
    }
    uint64_t bytes;
    err_clear(&e);
    assert_false(plan_parse_size("--memory", "lots", &bytes, &e));
    assert_string_equal(e.text, "--memory: \"lots\" is not a size like 12G, 1.5M or 4096");
}

/* ---- a system made of files ---- */

static char root[] = "./strata-system-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[256];
    int n = snprintf(full, sizeof full, "%s/", root);
    snprintf(full + n, sizeof full - (size_t)n, "%s", path);
    for (char *p = full + n; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void container_limits_are_respected(void **state)
{
    assert_non_null(mkdtemp(root));
    assert_int_equal(plan_system_bytes(root), 0); /* it says nothing */
    put("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
    assert_int_equal(plan_system_bytes(root), 7000 * 1024);
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_int_equal(plan_system_bytes(root), 7000 * 1024);
    put("sys/fs/cgroup/a/memory.max", "4096000\n"); /* the group above ours */
    assert_int_equal(plan_system_bytes(root), 4096000 / 32 * 31);
    put("sys/fs/cgroup/a/memory.current", "2096000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 96000\n");
    assert_int_equal(plan_system_bytes(root), 2096000 / 32 * 31);
    put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/c\n0::/\n");
    put("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1600000\n");
    put("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "800000\n");
    assert_int_equal(plan_system_bytes(root), 800000 / 32 * 31);
    put("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "1600000\n"); /* full, which is no want of a limit */
    assert_int_equal(plan_system_bytes(root), 1);
    assert_int_equal(plan_system_available(root), 1);
    put("sys/fs/cgroup/memory/c/memory.usage_in_bytes", "800000\n");
    put("proc/meminfo", "MemAvailable: 800 kB\n"); /* less than the container's limit allows */
    assert_int_equal(plan_system_bytes(root), 700 * 1024);
    assert_int_equal(plan_system_available(root), 800000);
    put("proc/meminfo", "MemAvailable: 33554432 kB\n");
    put("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "17180669184\n"); /* 16 GiB left */
    assert_int_equal(plan_system_bytes(root), (UINT64_C(16) << 30) - (UINT64_C(256) << 20));
    put("proc/self/cgroup", "");
    assert_int_equal(plan_system_bytes(root), UINT64_C(31) << 30);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    assert_true(plan_system_bytes("") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_are_as_asked),
        cmocka_unit_test(refusals_name_the_least_that_works),
        cmocka_unit_test(a_model_without_experts_has_a_plan),
        cmocka_unit_test(points_rise_and_the_ceiling_is_what_memory_gives),
        cmocka_unit_test(by_default_the_arena_ends_at_the_knee),
        cmocka_unit_test(the_json_has_the_keys_of_the_commands),
        cmocka_unit_test(arena_arguments_are_read_as_commands_say),
        cmocka_unit_test(container_limits_are_respected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
