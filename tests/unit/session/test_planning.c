/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a user of the library sees it: what it refuses works with the number that it names,
 * and memory stays under it. */
#include "base/mem.h"
#include "fixture.h"
#include "session/engine.h"
#include "stream/profile.h"

#define DEMO SHIPPED "/strata-demo.gguf"

static bool plan(const char *path, const struct strata_options *o, struct strata_plan *out,
                 struct strata_error *e)
{
    struct strata_model *m = strata_model_open(path, o, e);
    bool ok = m && strata_plan_get(m, out, e);
    strata_model_free(m);
    return ok;
}

/* The number behind `words` in a message. */
static unsigned long long number_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at)
        fail_msg("'%s' does not say '%s'", text, words);
    char *end;
    unsigned long long n = strtoull(at + strlen(words), &end, 10);
    return *end == 'M' ? n << 20 : n;
}

static void too_little_memory_is_refused_with_the_least_that_works(void **unused)
{
    struct strata_options o = {.memory_bytes = 20 << 20, .threads = 2, .ctx = 512};
    struct strata_plan p;
    struct strata_error e = {0};
    assert_false(plan(DEMO, &o, &p, &e));
    assert_int_equal(e.code, STRATA_MEMORY);
    o.memory_bytes = number_after(e.text, "at least ");
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_true(p.plan_total <= o.memory_bytes);
    o.memory_bytes--;
    assert_false(plan(DEMO, &o, &p, &e));
}

static void a_context_too_long_is_refused_with_one_that_fits(void **unused)
{
    struct strata_options o = {.memory_bytes = 100 << 20, .threads = 2, .ctx = 1000000};
    struct strata_plan p;
    struct strata_error e = {0};
    assert_false(plan(DEMO, &o, &p, &e));
    o.ctx = (int)number_after(e.text, "--ctx ");
    assert_true(o.ctx > 1000);
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    o.ctx++;
    assert_false(plan(DEMO, &o, &p, &e));
}

static void an_arena_too_small_is_refused_with_the_least_that_works(void **unused)
{
    struct strata_options o = {.arena = "1%", .threads = 2};
    struct strata_plan p;
    struct strata_error e = {0};
    assert_false(plan(DEMO, &o, &p, &e));
    char least[32];
    snprintf(least, sizeof least, "%llu", number_after(e.text, "at least "));
    o.arena = least;
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_true(p.slots < p.experts);
}

static void options_out_of_range_are_refused_by_name(void **unused)
{
    static const struct {
        struct strata_options o;
        const char *text;
    } cases[] = {
        {{.window = 9}, "window is 9"},     {{.threads = -1}, "threads is -1"},
        {{.ctx = -5}, "ctx is -5"},         {{.band = 1 << 30}, "band is"},
        {{.arena = "a lot"}, "a lot"},      {{.isa = "mmx"}, "mmx"},
        {{.io = "telepathy"}, "telepathy"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strata_plan p;
        struct strata_error e = {0};
        assert_false(plan(DEMO, &cases[i].o, &p, &e));
        assert_int_equal(e.code, STRATA_USAGE);
        if (!strstr(e.text, cases[i].text))
            fail_msg("'%s' does not say '%s'", e.text, cases[i].text);
    }
}

#ifdef __SANITIZE_THREAD__
enum { FED = 80 }; /* it is so slow, and all memory is there before the first id */
#else
enum { FED = 600 };
#endif

static void memory_stays_under_the_plan(void **unused)
{
    static const struct strata_options ways[] = {
        {.arena = "20%", .threads = 2, .ctx = 700, .snapshots = 2},
        {.arena = "min", .threads = 2, .ctx = 700, .band = 16, .tile = 16},
        {.arena = "max", .threads = 2, .ctx = 700, .kv = STRATA_KV_F32},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct fixture f = fixture_open(DEMO, &ways[i]);
        struct strata_error e = {0};
        struct strata_plan p;
        fixture_ok(strata_plan_get(f.model, &p, &e), &e);
        int32_t ids[FED];
        fixture_ids(ids, FED, f.vocab);
        fixture_ok(strata_feed(f.session, ids, FED, NULL, &e), &e);
        for (int at = 0; at < 40; at += 8)
            fixture_ok(strata_step(f.session, ids + at, 8, NULL, &e), &e);
        /* What is allocated, touched or not, and the program beside it. */
        assert_true(mem_in_use() + ((size_t)4 << 20) <= p.plan_total);
        assert_int_equal(p.trunk + p.session + p.scratch + p.io + p.staging + p.snapshots +
                             p.program + p.arena,
                         p.plan_total);
        fixture_close(&f);
    }
}

static void the_plan_as_text_and_as_json_says_the_total(void **unused)
{
    struct strata_error e = {0};
    struct strata_plan p;
    struct strata_options o = {.arena = "20%", .threads = 2};
    struct strata_model *m = strata_model_open(DEMO, &o, &e);
    fixture_ok(m && strata_plan_get(m, &p, &e), &e);
    char *table = strata_plan_text(m, false, &e), *json = strata_plan_text(m, true, &e), total[64];
    snprintf(total, sizeof total, "\"plan_total\": %llu,", (unsigned long long)p.plan_total);
    assert_non_null(strstr(json, total));
    assert_non_null(strstr(table, "total"));
    strata_free(table);
    strata_free(json);
    strata_model_free(m);
}

static void awaited_reads_are_split_as_the_drive_was_measured(void **unused)
{
    static const struct {
        int drive_parts, parts;
        uint64_t bytes; /* of a part */
        int split, copies;
    } cases[] = {{0, 1, 8 << 20, 1, 0},   {1, 1, 8 << 20, 1, 0},   {4, 1, 8 << 20, 4, 0},
                 {4, 3, 8 << 20, 2, 0},   {2, 3, 8 << 20, 1, 0},   {8, 1, 8 << 20, 8, 0},
                 {64, 1, 8 << 20, 8, 0},  {8, 1, 300 << 10, 2, 0}, {8, 3, 1 << 10, 1, 0},
                 {4, 1, 384 << 10, 3, 0}, {0, 3, 8 << 20, 2, 1},   {1, 1, 8 << 20, 3, 2},
                 {8, 1, 8 << 20, 8, 1},   {0, 3, 384 << 10, 3, 7}, {0, 3, 36 << 10, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strata_model m = {
            .options = {.drive_parts = cases[i].drive_parts, .n_replicas = cases[i].copies}};
        struct stream_layer layers[2] = {{0}, {.experts = 4, .parts = cases[i].parts}};
        for (int p = 0; p < cases[i].parts; p++)
            layers[1].part[p].bytes = cases[i].bytes;
        struct stream_config c = {.layers = 2, .layer = layers};
        assert_int_equal(streaming_split(&m, &c), cases[i].split);
    }
}

/* A quarter of the demo model's experts has done nearly everything. */
static void write_skewed_profile(const char *path, uint64_t tokens)
{
    struct strata_error e = {0};
    struct strata_model *m = strata_model_open(DEMO, NULL, &e);
    struct strata_plan p;
    struct err low = {0};
    fixture_ok(m && strata_plan_get(m, &p, &e), &e);
    const struct model_info *info = model_info(m->network);
    static uint32_t counts[4096];
    static int experts[64];
    int n = info->layers * info->experts;
    for (int l = 0; l < info->layers; l++)
        experts[l] = info->experts;
    for (int i = 0; i < n; i++)
        counts[i] = i % 4 ? 0 : 1000;
    struct profile profile = {
        .layers = info->layers, .experts = experts, .counts = counts, .tokens = tokens};
    assert_true(gguf_fingerprint(m->file, profile.fingerprint, &low));
    assert_true(profile_write(path, &profile, &low));
    strata_model_free(m);
}

static void by_default_the_arena_ends_where_more_experts_buy_nothing(void **unused)
{
    static const char path[] = "planning-test.strata-pop";
    struct strata_options o = {.threads = 2, .ctx = 512, .popularity = path};
    struct strata_plan all, p;
    struct strata_error e = {0};
    fixture_ok(plan(DEMO, &o, &all, &e), &e); /* nothing is known */
    assert_int_equal(all.slots, all.experts);
    assert_string_equal(all.point[2].name, "knee");
    write_skewed_profile(path, KNEE_TOKENS_LEAST - 1); /* too little to go by */
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_int_equal(p.arena, all.arena);
    write_skewed_profile(path, KNEE_TOKENS_LEAST);
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_int_equal(p.arena, all.arena / 4);
    assert_int_equal(p.point[2].arena, p.arena);
    uint64_t knee = p.arena;
    int band = p.band;
    o.memory_bytes = p.plan_total - 1000; /* bands get less before the arena does */
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_true(p.arena == knee && p.band < band);
    o.band = 64;
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    o.band = 0;
    o.memory_bytes = p.plan_total - 1000; /* below the knee: all that there is */
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_int_equal(p.plan_total, o.memory_bytes);
    assert_true(p.arena < knee);
    o.memory_bytes = 0;
    o.arena = "max";
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_int_equal(p.slots, p.experts);
    o.arena = NULL;
    o.moce = "0.5"; /* what was learned must change no output */
    fixture_ok(plan(DEMO, &o, &p, &e), &e);
    assert_int_equal(p.slots, p.experts);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_memory_is_refused_with_the_least_that_works),
        cmocka_unit_test(a_context_too_long_is_refused_with_one_that_fits),
        cmocka_unit_test(an_arena_too_small_is_refused_with_the_least_that_works),
        cmocka_unit_test(options_out_of_range_are_refused_by_name),
        cmocka_unit_test(awaited_reads_are_split_as_the_drive_was_measured),
        cmocka_unit_test(by_default_the_arena_ends_where_more_experts_buy_nothing),
        cmocka_unit_test(memory_stays_under_the_plan),
        cmocka_unit_test(the_plan_as_text_and_as_json_says_the_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
