/* SPDX-License-Identifier: Apache-2.0 */
/* How experts are streamed never changes a bit: arenas, engines, delays, policies, read-ahead,
 * copies, profiles, threads. Cache-aware routing changes them, and always in the same way. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

#define PATH SHIPPED "/strata-demo.gguf"
#define PROFILE "./streaming-test.strata-pop"
#ifdef __SANITIZE_THREAD__
enum { PROMPT = 70, STEPS = 10 }; /* it is so slow, and longer texts show it no other threads */
#else
enum { PROMPT = 120, STEPS = 24 };
#endif
enum { N = PROMPT + STEPS };

struct way {
    const char *name;
    struct strata_options options;
    int window;
};

/* Logits of a prompt and of decode steps after it: [N][vocab]. */
static float *logits_of(const struct strata_options *o, int window, struct strata_stats *stats)
{
    int32_t ids[N];
    struct strata_options options = *o;
    options.ctx = 256;
    struct fixture f = fixture_open(PATH, &options);
    fixture_ids(ids, N, f.vocab);
    float *prompt = fixture_logits(&f, ids, PROMPT, 0);
    float *steps = fixture_logits(&f, ids + PROMPT, STEPS, window);
    float *all = calloc((size_t)N * (size_t)f.vocab, sizeof *all);
    memcpy(all, prompt, (size_t)PROMPT * (size_t)f.vocab * sizeof *all);
    memcpy(all + (size_t)PROMPT * (size_t)f.vocab, steps,
           (size_t)STEPS * (size_t)f.vocab * sizeof *all);
    strata_stats_get(f.model, stats);
    all = realloc(all, (size_t)N * (size_t)f.vocab * sizeof *all);
    free(prompt);
    free(steps);
    fixture_close(&f);
    return all;
}

static size_t bytes_of_logits(void)
{
    struct strata_error e = {0};
    struct strata_model_info info;
    struct strata_model *m = strata_model_open(PATH, NULL, &e);
    fixture_ok(strata_model_info(m, &info, &e), &e);
    strata_model_free(m);
    return (size_t)N * (size_t)info.vocab * sizeof(float);
}

/* All ways give the same logits; returns them. */
static float *expect_equal(const struct way *ways, size_t n)
{
    float *first = NULL;
    for (size_t i = 0; i < n; i++) {
        struct strata_stats s;
        float *got = logits_of(&ways[i].options, ways[i].window, &s);
        print_message("%s: %llu hits, %llu misses, %llu useful, %llu late, displaced %.4f\n",
                      ways[i].name, (unsigned long long)s.hits, (unsigned long long)s.misses,
                      (unsigned long long)s.ahead_useful, (unsigned long long)s.ahead_late,
                      s.moce_displaced);
        if (first && memcmp(first, got, bytes_of_logits()))
            fail_msg("%s: other bits", ways[i].name);
        if (first)
            free(got);
        else
            first = got;
    }
    return first;
}

static void streaming_never_changes_a_bit(void **state)
{
    static const char *const copies[] = {PATH, PATH};
    const struct way ways[] = {
        {"everything fits", {.arena = "100%"}, 1},
        {"least arena", {.arena = "min"}, 1},
        {"20 %", {.arena = "20%"}, 1},
        {"half", {.arena = "50%", .threads = 4}, 3},
        {"threads that read", {.arena = "20%", .io = "pread", .threads = 1}, 8},
        {"erratic drive", {.arena = "20%", .io = "sim:delay=0-30ms,seed=7", .io_depth = 32}, 4},
        {"slow drive", {.arena = "30%", .io = "sim:rate=200M", .threads = 2}, 1},
        {"nothing ahead", {.arena = "20%", .read_ahead = "off"}, 1},
        {"nothing computed meanwhile", {.arena = "20%", .no_overlap = true}, 2},
        {"many ranks", {.arena = "20%", .read_ahead = "20", .io_urgent = 1}, 2},
        {"only sure guesses", {.arena = "20%", .read_ahead = "4", .ahead_margin = 0.05f}, 1},
        {"in pieces", {.arena = "20%", .io_split = 4, .io_depth = 3}, 1},
        {"copies", {.arena = "20%", .replicas = copies, .n_replicas = 2}, 1},
        {"lru", {.arena = "20%", .policy = "lru", .band = 7, .tile = 3}, 1},
        {"lfu", {.arena = "20%", .policy = "lfu", .band = 64, .tile = 64}, 5},
        {"no preference", {.arena = "20%", .moce = "0"}, 1},
    };
    free(expect_equal(ways, sizeof ways / sizeof *ways));
}

static void cache_aware_routing_is_a_function_of_the_history(void **state)
{
    const struct way fixed[] = {
        {"moce", {.arena = "20%", .moce = "0.85", .moce_keep = 1}, 1},
        {"moce, erratic",
         {.arena = "20%",
          .moce = "0.85",
          .moce_keep = 1,
          .io = "sim:delay=0-10ms,seed=1",
          .threads = 4},
         1},
        {"moce, threads",
         {.arena = "20%",
          .moce = "0.85",
          .moce_keep = 1,
          .io = "pread",
          .read_ahead = "off",
          .threads = 1},
         1},
        {"moce, many ranks",
         {.arena = "20%", .moce = "0.85", .moce_keep = 1, .read_ahead = "24"},
         1},
    };
    const struct way budget[] = {
        {"auto", {.arena = "30%", .band = 16, .moce = "auto:0.02", .prompt_moce = true}, 2},
        {"auto, erratic",
         {.arena = "30%",
          .band = 16,
          .moce = "auto:0.02",
          .prompt_moce = true,
          .io = "sim:delay=0-10ms,seed=2"},
         2},
        {"auto, pread",
         {.arena = "30%", .band = 16, .moce = "auto:0.02", .prompt_moce = true, .io = "pread"},
         2},
    };
    struct strata_stats exact_stats, stats;
    float *exact = logits_of(&(struct strata_options){.arena = "20%"}, 1, &exact_stats);
    float *a = expect_equal(fixed, 4), *b = expect_equal(budget, 3);
    size_t bytes = bytes_of_logits(), prompt = bytes / N * PROMPT;
    assert_memory_equal(exact, a, prompt); /* prompts are exact unless asked for */
    assert_true(memcmp(exact, a, bytes) && memcmp(exact, b, prompt));
    free(logits_of(&fixed[0].options, 1, &stats));
    assert_true(stats.misses < exact_stats.misses && stats.moce_displaced > 0);
    free(logits_of(&budget[0].options, 2, &stats));
    assert_true(stats.moce_displaced > 0 && stats.moce_displaced <= 0.02);
    free(exact);
    free(a);
    free(b);
}

/* ---- the profile ---- */

static int notes;

static void count_note(void *ctx, enum strata_note_level level, const char *text)
{
    notes += level == STRATA_NOTE && strstr(text, "popularity") != NULL;
}

static void a_profile_is_learned_and_changes_no_bit(void **state)
{
    struct strata_stats first, second, third;
    struct strata_options o = {.arena = "50%", .popularity = PROFILE, .note = count_note};
    unlink(PROFILE);
    float *a = logits_of(&o, 1, &first), *b = logits_of(&o, 1, &second);
    size_t bytes, size = bytes_of_logits();
    assert_memory_equal(a, b, size);
    assert_int_equal(first.hits, second.hits);
    print_message("useful without a profile %llu, with one %llu\n",
                  (unsigned long long)first.ahead_useful, (unsigned long long)second.ahead_useful);
    char *profile = fixture_read(PROFILE, &bytes);
    assert_memory_equal(profile, "STRPOP01", 8);
    profile[100] ^= 1;
    fixture_write(PROFILE, profile, bytes);
    struct strata_error e = {0};
    struct strata_model *m = strata_model_open(PATH, &o, &e);
    assert_false(strata_model_load(m, &e)); /* it was named, so it must be good */
    assert_non_null(strstr(e.text, PROFILE));
    strata_model_free(m);
    free(profile);
    unlink(PROFILE);
    o.moce = "0.5"; /* what is staged from a profile counts as missing */
    float *c = logits_of(&o, 1, &third), *d = logits_of(&o, 1, &third);
    assert_memory_equal(c, d, size);
    unlink(PROFILE);
    free(a);
    free(b);
    free(c);
    free(d);
}

static void a_profile_beside_the_model_is_ignored_with_a_note_when_it_is_not_its_own(void **state)
{
    size_t bytes;
    struct strata_error e = {0};
    char *model = fixture_read(PATH, &bytes);
    fixture_write("./streaming-test-00001-of-00001.gguf", model, bytes);
    fixture_write(PROFILE, "STRPOP01 and nothing else", 25);
    notes = 0;
    struct strata_model *m = strata_model_open(
        "./streaming-test-00001-of-00001.gguf",
        &(struct strata_options){.ctx = 64, .popularity = "auto", .note = count_note}, &e);
    assert_non_null(m);
    assert_true(strata_model_load(m, &e));
    assert_int_equal(notes, 1);
    strata_model_free(m);
    unlink("./streaming-test-00001-of-00001.gguf");
    unlink(PROFILE);
    free(model);
}

/* ---- hot lists ---- */

#define STATE "./streaming-test.strses"

/* Goes on from the state in a new model; logits of the steps, and how many of the records that they
 * needed nobody had read ahead of them. */
static float *resume(const struct strata_options *o, const int32_t *ids, uint64_t *unforeseen)
{
    struct strata_error e = {0};
    struct strata_stats s;
    struct fixture f = fixture_open(PATH, o);
    fixture_ok(strata_load(f.session, STATE, NULL, &e), &e);
    float *steps = fixture_logits(&f, ids, STEPS, 1);
    strata_stats_get(f.model, &s);
    *unforeseen = s.misses - s.ahead_useful - s.ahead_late;
    fixture_close(&f);
    return steps;
}

static void a_resumed_conversation_starts_warm_with_the_same_bits(void **state)
{
    int32_t ids[N];
    struct strata_error e = {0};
    static const char *const routing[] = {NULL, "0.5"};
    for (int i = 0; i < 2; i++) {
        struct strata_options o = {
            .ctx = 256, .arena = "60%", .popularity = "off", .read_ahead = "off", .moce = routing[i]};
        struct fixture f = fixture_open(PATH, &o);
        fixture_ids(ids, N, f.vocab);
        fixture_ok(strata_feed(f.session, ids, PROMPT, NULL, &e), &e);
        fixture_ok(strata_save(f.session, STATE, &e), &e);
        size_t bytes, bytes_with, steps = (size_t)STEPS * (size_t)f.vocab * sizeof(float);
        fixture_close(&f);
        uint64_t warm, cold;
        float *with = resume(&o, ids + PROMPT, &warm);
        char *bare = fixture_read_state(STATE, &bytes), *whole = fixture_read(STATE, &bytes_with);
        assert_true(bytes < bytes_with);
        fixture_write(STATE, bare, bytes);
        float *without = resume(&o, ids + PROMPT, &cold);
        assert_memory_equal(with, without, steps);
        print_message("records that nobody had read: %llu with the list, %llu without\n",
                      (unsigned long long)warm, (unsigned long long)cold);
        assert_true(warm < cold * 2 / 3);
        free(bare);
        free(whole);
        free(with);
        free(without);
        unlink(STATE);
    }
}

/* What cache-aware routing has chosen is in a state's bits: where routing is exact, or prefers what is
 * in memory by other options, its ids are fed again. */
static void a_state_of_other_routing_is_fed_again(void **state)
{
    static const struct {
        const char *moce;
        int keep;
        uint64_t fed_again;
    } loads[] = {{NULL, 0, STEPS}, {"0", 0, STEPS}, {"0.85", 0, 0}, {"0.8", 0, STEPS}, {"0.85", 1, STEPS}};
#ifdef __SANITIZE_THREAD__
    skip(); /* it is so slow, and this shows it no other threads than the tests above */
#endif
    int32_t ids[STEPS];
    struct strata_error e = {0};
    struct strata_options o = {.ctx = 256, .arena = "20%", .moce = "0.85"};
    struct fixture f = fixture_open(PATH, &o), exact = fixture_open(PATH, &(struct strata_options){.ctx = 256});
    size_t row = (size_t)f.vocab * sizeof(float);
    fixture_ids(ids, STEPS, f.vocab);
    free(fixture_logits(&exact, ids, STEPS, 1));
    free(fixture_logits(&f, ids, STEPS, 1));
    assert_memory_not_equal(strata_logits(f.session), strata_logits(exact.session), row);
    fixture_ok(strata_save(f.session, STATE, &e), &e);
    fixture_close(&f);
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        struct strata_stats s;
        o.moce = loads[i].moce;
        o.moce_keep = loads[i].keep;
        f = fixture_open(PATH, &o);
        fixture_ok(strata_load(f.session, STATE, NULL, &e), &e);
        strata_stats_get(f.model, &s);
        assert_int_equal(s.prefill_tokens, loads[i].fed_again);
        if (loads[i].fed_again) /* prompts are exact unless it is said */
            assert_memory_equal(strata_logits(f.session), strata_logits(exact.session), row);
        fixture_close(&f);
    }
    fixture_close(&exact);
    unlink(STATE);
}

/* ---- cancelling, and what is refused ---- */

struct canceller {
    atomic_bool cancel;
    int after_ms;
};

static void *cancel_later(void *arg)
{
    struct canceller *c = arg;
    struct timespec t = {0, c->after_ms * 1000000L};
    nanosleep(&t, NULL);
    atomic_store(&c->cancel, true);
    return NULL;
}

static void a_prompt_on_a_very_slow_drive_can_be_cancelled_and_goes_on(void **state)
{
    enum { LONG = 144 }; /* longer than its reads take */
    int32_t ids[LONG];
    struct strata_error e = {0};
    struct fixture f = fixture_open(
        PATH,
        &(struct strata_options){
            .ctx = 256, .arena = "20%", .band = 16, .io = "sim:rate=30M", .popularity = "off"});
    fixture_ids(ids, LONG, f.vocab);
    for (int round = 0; round < 4; round++) {
        struct canceller c = {.after_ms = 20 + 70 * round};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
        int position = strata_position(f.session);
        struct strata_pass pass = {.cancel = &c.cancel};
        bool ok = strata_feed(f.session, ids + position, (size_t)(LONG - position), &pass, &e);
        pthread_join(thread, NULL);
        assert_false(ok);
        assert_int_equal(e.code, STRATA_INTERRUPTED);
        assert_true(strata_position(f.session) % 16 == 0); /* whole bands are kept */
        e = (struct strata_error){0};
    }
    int position = strata_position(f.session);
    fixture_ok(strata_feed(f.session, ids + position, (size_t)(LONG - position), NULL, &e), &e);
    struct fixture g = fixture_open(PATH, &(struct strata_options){.ctx = 256});
    fixture_ok(strata_feed(g.session, ids, LONG, NULL, &e), &e);
    assert_memory_equal(strata_logits(f.session), strata_logits(g.session),
                        (size_t)f.vocab * sizeof(float));
    fixture_close(&f);
    fixture_close(&g);
}

static void words_that_make_no_sense_are_refused(void **state)
{
    static const char *const other[] = {DATA "/fixtures/models/q4e_plain.gguf"};
    const struct strata_options bad[] = {
        {.read_ahead = "much"}, {.read_ahead = "65"},
        {.read_ahead = "-1"},   {.moce = "auto:"},
        {.moce = "auto:2"},     {.moce = "-0.1"},
        {.moce = "x"},          {.policy = "best"},
        {.io_split = 9},        {.io_depth = 100000},
        {.ahead_margin = -0.1f}, {.ahead_margin = 1.5f},
        {.moce_keep = -1},      {.io = "fast"},
        {.n_replicas = 8},      {.replicas = other, .n_replicas = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct strata_error e = {0};
        struct strata_plan plan;
        struct strata_model *m = strata_model_open(PATH, &bad[i], &e);
        if (m && strata_plan_get(m, &plan, &e))
            fail_msg("options %zu were taken", i);
        assert_true(e.code && e.text[0]);
        strata_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streaming_never_changes_a_bit),
        cmocka_unit_test(cache_aware_routing_is_a_function_of_the_history),
        cmocka_unit_test(a_profile_is_learned_and_changes_no_bit),
        cmocka_unit_test(a_profile_beside_the_model_is_ignored_with_a_note_when_it_is_not_its_own),
        cmocka_unit_test(a_resumed_conversation_starts_warm_with_the_same_bits),
        cmocka_unit_test(a_state_of_other_routing_is_fed_again),
        cmocka_unit_test(a_prompt_on_a_very_slow_drive_can_be_cancelled_and_goes_on),
        cmocka_unit_test(words_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
