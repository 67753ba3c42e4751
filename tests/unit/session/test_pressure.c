/* SPDX-License-Identifier: Apache-2.0 */
/* A system that runs short of memory: the arena shrinks by steps to the least that works and grows
 * again, and no bit of the output changes. With cache-aware routing it stays as it is, with a note,
 * unless it is asked for. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/stat.h>

#include "fixture.h"
#include "model/arch.h"
#include "session/session.h"
#include "stream/inner.h"

#define PATH SHIPPED "/strata-demo.gguf"
enum { PROMPT = 20, STEPS = 60, N = PROMPT + STEPS };

static char root[] = "./strata-short-XXXXXX";
static int given_back, refused;

static void count_note(void *ctx, enum strata_note_level level, const char *text)
{
    given_back += strstr(text, "slots of the arena are given back") != NULL;
    refused += strstr(text, "the arena gives nothing back") != NULL;
}

static void set_pressure(const char *percent)
{
    char path[128], text[128];
    snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
    snprintf(text, sizeof text, "some avg10=%s avg60=0.00 avg300=0.00 total=1\n", percent);
    fixture_write(path, text, strlen(text));
}

static int make_root(void **state)
{
    char path[128];
    static const char *const folders[] = {"/proc", "/proc/pressure"};
    if (!mkdtemp(root))
        return -1;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        if (mkdir(path, 0700))
            return -1;
    }
    return 0;
}

static int remove_root(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static int capacity(const struct fixture *f)
{
    const struct stream *s = f->model->stream;
    int sum = 0;
    for (int c = 0; c < s->arena.classes; c++)
        sum += s->pool[c].capacity;
    return sum;
}

static void an_arena_shrinks_and_grows_by_steps_and_no_bit_changes(void **state)
{
    struct strata_options o = {.arena = "60%", .ctx = 128, .note = count_note};
    int32_t ids[N];
    struct fixture plain = fixture_open(PATH, &o), f = fixture_open(PATH, &o);
    fixture_ids(ids, N, f.vocab);
    set_pressure("0.00");
    resize_begin(f.model->stream, root, 0, 0); /* looks at every pass, and calm is soon believed */
    free(fixture_logits(&plain, ids, PROMPT, 0));
    free(fixture_logits(&f, ids, PROMPT, 0));
    int all = capacity(&f), before = all, least = all, steps_down = 0, steps_up = 0;
    for (int i = PROMPT; i < N; i++) {
        set_pressure(i < PROMPT + STEPS / 2 ? "35.00" : "0.00");
        float *want = fixture_logits(&plain, ids + i, 1, 1), *got = fixture_logits(&f, ids + i, 1, 1);
        assert_memory_equal(got, want, (size_t)f.vocab * sizeof *got);
        free(want);
        free(got);
        int now = capacity(&f);
        assert_true(abs(now - before) <= all / 8); /* by steps */
        steps_down += now < before;
        steps_up += now > before;
        least = now < least ? now : least;
        before = now;
    }
    assert_true(steps_down >= 5 && steps_up >= 5 && least < all / 2);
    assert_int_equal(capacity(&f), all);
    assert_int_equal(given_back, steps_down);
    fixture_close(&plain);
    fixture_close(&f);
}

static int gone(const struct fixture *f)
{
    const struct stream *s = f->model->stream;
    int sum = 0;
    for (int c = 0; c < s->arena.classes; c++)
        sum += s->pool[c].gone;
    return sum;
}

struct seen {
    const struct fixture *f;
    int most_gone;
};

static void look(void *ctx, size_t done, size_t all, int layer, int layers)
{
    struct seen *seen = ctx;
    int now = gone(seen->f);
    seen->most_gone = now > seen->most_gone ? now : seen->most_gone;
}

static void a_prompt_gives_back_too_and_no_bit_changes(void **state)
{
    enum { LONG = 96 };
    struct strata_options o = {.arena = "60%", .ctx = 128, .band = 16, .note = count_note};
    int32_t ids[LONG];
    struct strata_error e = {0};
    struct fixture plain = fixture_open(PATH, &o), f = fixture_open(PATH, &o);
    struct seen seen = {.f = &f};
    struct strata_pass pass = {.ctx = &seen, .progress = look};
    fixture_ids(ids, LONG, f.vocab);
    set_pressure("0.00");
    resize_begin(f.model->stream, root, 0, 0);
    int all = capacity(&f);
    fixture_ok(strata_feed(plain.session, ids, LONG, NULL, &e), &e);
    set_pressure("35.00");
    fixture_ok(strata_feed(f.session, ids, LONG, &pass, &e), &e);
    assert_memory_equal(strata_logits(f.session), strata_logits(plain.session),
                        (size_t)f.vocab * sizeof(float));
    assert_true(seen.most_gone > 0);
    assert_int_equal(capacity(&f) + gone(&f), all); /* what was borrowed has come back */
    set_pressure("0.00");
    for (int i = 0; i < 30; i++)
        free(fixture_logits(&f, ids + i, 1, 1));
    assert_int_equal(capacity(&f), all);
    fixture_close(&plain);
    fixture_close(&f);
}

/* KiB that the system may take without asking; -1: it does not say. */
static long lent_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "LazyFree: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

/* The system takes all of it, and what comes after the prompt is as it was. */
static void take_the_bands_memory(const char *path, enum strata_draft draft, bool is_large)
{
    enum { LONG = 200, AFTER = 5 };
    struct strata_options o = {.ctx = 256, .band = LONG, .draft = draft};
    int32_t ids[LONG + AFTER];
    struct strata_error e = {0};
    struct fixture plain = fixture_open(path, &o), f = fixture_open(path, &o);
    fixture_ids(ids, LONG + AFTER, f.vocab);
    fixture_ok(strata_feed(plain.session, ids, LONG, NULL, &e), &e);
    long before = lent_kib();
    fixture_ok(strata_feed(f.session, ids, LONG, NULL, &e), &e);
    if (before >= 0 && is_large) /* a row of 256 floats is the least of what it has */
        assert_true(lent_kib() - before > LONG * 4);
    const struct model *m = f.model->network;
    madvise(m->device, m->device_bytes, MADV_DONTNEED);
    for (int i = LONG; i < LONG + AFTER; i += i == LONG ? 1 : 4) { /* a token, then a prompt */
        int n = i == LONG ? 1 : 4;
        float *want = fixture_logits(&plain, ids + i, n, i == LONG), *got = fixture_logits(&f, ids + i, n, i == LONG);
        assert_memory_equal(got, want, (size_t)n * (size_t)f.vocab * sizeof *got);
        free(want);
        free(got);
    }
    fixture_close(&plain);
    fixture_close(&f);
}

static void a_bands_memory_may_be_taken_when_the_prompt_is_over(void **state)
{
    take_the_bands_memory(PATH, STRATA_DRAFT_OFF, true);
#ifndef __SANITIZE_THREAD__ /* it is so slow, and more models show it no other threads */
    take_the_bands_memory(MODEL("q4e_odd"), STRATA_DRAFT_LOOKUP, false);
    take_the_bands_memory(MODEL("q4e_fused"), STRATA_DRAFT_MTP, false);
    take_the_bands_memory(MODEL("q3n_legacy"), STRATA_DRAFT_MTP, false);
    take_the_bands_memory(MODEL("q35_plain"), STRATA_DRAFT_MTP, false);
#endif
}

static void with_cache_aware_routing_it_stays_and_says_so_once(void **state)
{
    struct strata_options o = {.arena = "60%", .ctx = 128, .moce = "0.5", .note = count_note};
    int32_t ids[N];
    struct fixture f = fixture_open(PATH, &o);
    fixture_ids(ids, N, f.vocab);
    set_pressure("0.00");
    resize_begin(f.model->stream, root, 0, 0);
    set_pressure("35.00");
    int before = capacity(&f);
    free(fixture_logits(&f, ids, 8, 1));
    assert_int_equal(capacity(&f), before);
    assert_int_equal(refused, 1);
    fixture_close(&f);

    o.shrink = STRATA_ON; /* unless it is asked for */
    given_back = 0;
    f = fixture_open(PATH, &o);
    set_pressure("0.00");
    resize_begin(f.model->stream, root, 0, 0);
    set_pressure("35.00");
    free(fixture_logits(&f, ids, 8, 1));
    assert_true(capacity(&f) < before && given_back > 0);
    assert_int_equal(refused, 1);
    fixture_close(&f);
}

static void where_it_is_forbidden_nothing_is_given_back(void **state)
{
    struct strata_options o = {.arena = "60%", .ctx = 128, .shrink = STRATA_OFF, .note = count_note};
    int32_t ids[N];
    struct fixture f = fixture_open(PATH, &o);
    fixture_ids(ids, N, f.vocab);
    set_pressure("0.00");
    resize_begin(f.model->stream, root, 0, 0);
    set_pressure("35.00");
    int before = capacity(&f);
    free(fixture_logits(&f, ids, 8, 1));
    assert_int_equal(capacity(&f), before);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_shrinks_and_grows_by_steps_and_no_bit_changes),
        cmocka_unit_test(a_prompt_gives_back_too_and_no_bit_changes),
        cmocka_unit_test(a_bands_memory_may_be_taken_when_the_prompt_is_over),
        cmocka_unit_test(with_cache_aware_routing_it_stays_and_says_so_once),
        cmocka_unit_test(where_it_is_forbidden_nothing_is_given_back),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
