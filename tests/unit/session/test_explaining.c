/* SPDX-License-Identifier: Apache-2.0 */
/* Explanations of waits: their times add up to what the statistics say was waited, in all and token
 * by token; the memory for them is in the plan; without them nothing changes. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"
#include "session/session.h"

#define PATH SHIPPED "/strata-demo.gguf"
enum { PROMPT = 100, FAST = 24, SLOW = 2, N = PROMPT + FAST + SLOW };

/* Two reads at a time, one of them ahead, three for each expert. */
static const struct strata_options options = {.arena = "20%",
                                              .ctx = 256,
                                              .io_depth = 2,
                                              .io_urgent = 1,
                                              .read_ahead = "4",
                                              .explain = true};

/* A drive whose reads take as long as it is told, so that it can be slower than any processor. */
static atomic_int read_us;

static ssize_t slow_read(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    int us = atomic_load(&read_us);
    struct timespec t = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&t, NULL);
    return pread(fd, to, n, offset);
}

static struct fixture open_slow(const struct strata_options *o)
{
    struct strata_error e = {0};
    struct fixture f = {.model = strata_model_open(PATH, o, &e)};
    fixture_ok(f.model != NULL, &e);
    f.model->pread = slow_read;
    fixture_ok(strata_model_load(f.model, &e) && strata_model_wait(f.model, &e), &e);
    f.session = strata_session_create(f.model, &e);
    fixture_ok(f.session != NULL, &e);
    f.vocab = f.session->vocab;
    return f;
}

static unsigned long long number_in(const char *text, const char *format)
{
    unsigned long long n = 0;
    if (sscanf(text, format, &n) != 1)
        fail_msg("\"%.40s\" is not like \"%s\"", text, format);
    return n;
}

/* Sum of the times at the beginning of the lines that begin with two spaces, from `*at` on. */
static unsigned long long sum_lines(const char **at)
{
    unsigned long long sum = 0;
    for (; !strncmp(*at, "  ", 2); *at = strchr(*at, '\n') + 1)
        sum += number_in(*at, "%llu us");
    return sum;
}

static char *explain_run(struct fixture *f, struct strata_stats *stats)
{
    struct strata_error e = {0};
    int32_t ids[N];
    fixture_ids(ids, N, f->vocab);
    fixture_ok(strata_explain_begin(f->model, &e), &e);
    free(fixture_logits(f, ids, PROMPT, 0));
    int64_t began = clock_us();
    free(fixture_logits(f, ids + PROMPT, FAST, 1));
    /* What is read ahead takes longer than the layer before it, however slow this machine is. */
    atomic_store(&read_us, 2000 + (int)((clock_us() - began) / FAST / 4));
    free(fixture_logits(f, ids + PROMPT + FAST, SLOW, 1));
    atomic_store(&read_us, 0);
    strata_stats_get(f->model, stats);
    char *text = strata_explain_text(f->model, &e);
    fixture_ok(text != NULL, &e);
    return text;
}

static void every_microsecond_has_a_reason(void **state)
{
    struct fixture f = open_slow(&options);
    struct strata_stats stats;
    char *text = explain_run(&f, &stats);
    double waited = stats.wait_ms_per_token * N * 1e3;
    unsigned long long all = number_in(text, "waited %llu us in all");
    assert_true(waited > 10000 && (double)all > waited - 2 && (double)all < waited + 2);
    const char *at = strchr(text, '\n') + 1;
    assert_true(sum_lines(&at) == all);
    assert_non_null(strstr(text, "evicted "));
    assert_non_null(strstr(text, " turns ago"));
    assert_non_null(strstr(text, "but late by"));
    at = strchr(at, '\n') + 1;
    int tokens = 0;
    for (; *at; tokens++) { /* what a token waited for adds up to what it waited */
        double ms, waited_ms;
        int token;
        assert_int_equal(sscanf(at, "token %d: %lf ms, waited %lf ms", &token, &ms, &waited_ms), 3);
        assert_true(token >= PROMPT && token < N && waited_ms <= ms + 0.1);
        at = strchr(at, '\n') + 1;
        double sum = (double)sum_lines(&at) * 1e-3;
        assert_true(sum > waited_ms - 0.051 && sum < waited_ms + 0.051);
    }
    assert_int_equal(tokens, 5);
    strata_free(text);
    fixture_close(&f);
}

static void their_memory_is_planned(void **state)
{
    struct strata_options o = options;
    struct strata_plan with, without;
    struct strata_error e = {0};
    for (int i = 0; i < 2; i++) {
        o.explain = i == 0;
        struct strata_model *m = strata_model_open(PATH, &o, &e);
        fixture_ok(m && strata_plan_get(m, i ? &without : &with, &e), &e);
        strata_model_free(m);
    }
    assert_true(with.program > without.program && with.program < without.program + (64 << 10));
}

static void a_model_that_was_not_opened_for_it_refuses(void **state)
{
    struct strata_options o = options;
    struct strata_error e = {0};
    o.explain = false;
    struct fixture f = fixture_open(PATH, &o);
    assert_false(strata_explain_begin(f.model, &e));
    assert_int_equal(e.code, STRATA_USAGE);
    assert_null(strata_explain_text(f.model, &e));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_microsecond_has_a_reason),
        cmocka_unit_test(their_memory_is_planned),
        cmocka_unit_test(a_model_that_was_not_opened_for_it_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
