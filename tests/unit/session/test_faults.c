/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong below a session: reads that fail or come short, files that shrink, memory that
 * runs out at any point of opening. An error in words, nothing lost, and the next request right. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "fixture.h"
#include "model/arch.h"
#include "session/session.h"

#define PATH MODEL("q4e_ngram")

enum { N = 160 }; /* more than a session goes without a snapshot */

/* A drive that goes wrong at its n-th read, in one of several ways. */
enum fault { NO_FAULT, FAILS, ENDS, COMES_SHORT };

struct drive {
    atomic_int reads, at;
    enum fault fault;
};

static ssize_t drive_read(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    struct drive *d = ctx;
    int read = atomic_fetch_add(&d->reads, 1);
    if (d->fault == COMES_SHORT && n > 512)
        return pread(fd, to, n / 1024 * 512, offset);
    if (read == atomic_load(&d->at) && d->fault == FAILS) {
        errno = EIO;
        return -1;
    }
    if (read == atomic_load(&d->at) && d->fault == ENDS)
        return 0;
    return pread(fd, to, n, offset);
}

static struct fixture open_on(struct drive *d, const struct strata_options *o)
{
    struct strata_error e = {0};
    struct fixture f = {0};
    f.model = strata_model_open(PATH, o, &e);
    fixture_ok(f.model != NULL, &e);
    f.model->pread = drive_read;
    f.model->pread_ctx = d;
    fixture_ok(strata_model_load(f.model, &e), &e);
    f.session = strata_session_create(f.model, &e);
    fixture_ok(f.session != NULL, &e);
    f.vocab = f.session->vocab;
    return f;
}

static float *expected(int32_t *ids, int *vocab)
{
    struct fixture f = fixture_open(PATH, &(struct strata_options){.ctx = 256});
    fixture_ids(ids, N, f.vocab);
    *vocab = f.vocab;
    float *logits = fixture_logits(&f, ids, N, 0);
    fixture_close(&f);
    return logits;
}

static void reads_that_come_short_are_continued(void **unused)
{
    int32_t ids[N];
    int vocab;
    float *wanted = expected(ids, &vocab);
    struct drive d = {.fault = COMES_SHORT};
    struct fixture f = open_on(&d, &(struct strata_options){.ctx = 256, .arena = "min"});
    float *got = fixture_logits(&f, ids, N, 2);
    assert_memory_equal(got, wanted, (size_t)N * (size_t)vocab * sizeof *got);
    assert_true(atomic_load(&d.reads) > 0);
    free(got);
    free(wanted);
    fixture_close(&f);
}

/* Feeds N ids with a fault at the `at`-th read; when that is an error, goes on as if nothing had
 * been. Returns whether the fault was met. */
static bool goes_on_after(enum fault fault, int at, int window, const char *read_ahead,
                          const int32_t *ids, const float *wanted)
{
    struct drive d = {.fault = fault, .at = at};
    struct fixture f = open_on(&d, &(struct strata_options){.ctx = 256, .arena = "min", .band = 8,
                                                            .read_ahead = read_ahead});
    struct strata_error e = {0};
    bool met = false;
    while (strata_position(f.session) < N) {
        int position = strata_position(f.session);
        bool ok = window ? strata_step(f.session, ids + position,
                                       N - position < window ? N - position : window, NULL, &e)
                         : strata_feed(f.session, ids + position, (size_t)(N - position), NULL, &e);
        if (!ok) {
            assert_false(met);
            met = true;
            assert_int_equal(e.code, STRATA_IO);
            assert_non_null(strstr(e.text, "q4e_ngram.gguf"));
            assert_true(window ? strata_position(f.session) == position
                               : strata_position(f.session) % 8 == 0);
        }
    }
    assert_memory_equal(strata_logits(f.session), wanted + (size_t)(N - 1) * (size_t)f.vocab,
                        (size_t)f.vocab * sizeof *wanted);
    fixture_close(&f);
    return met;
}

static void a_failed_read_is_an_error_and_the_next_request_is_right(void **unused)
{
    /* A read that was asked for ahead of time and that nobody wants may fail unseen. */
    static const struct {
        int window;
        const char *read_ahead;
        int met;
    } ways[] = {{0, "auto", 4}, {1, "auto", 4}, {5, "auto", 4}, {1, "off", 8}, {5, "off", 8}};
    int32_t ids[N];
    int vocab;
    float *wanted = expected(ids, &vocab);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        int met = 0;
        for (int at = 0; at < 2500; at += at < 20 ? 3 : 1 + at / 2)
            met += goes_on_after(at % 2 ? ENDS : FAILS, at, ways[w].window, ways[w].read_ahead, ids,
                                 wanted);
        assert_true(met >= ways[w].met);
    }
    free(wanted);
}

static void a_file_truncated_while_open_is_an_error_each_time(void **unused)
{
    static const char path[] = "session-test-truncated.gguf";
    size_t bytes;
    char *data = fixture_read(PATH, &bytes);
    fixture_write(path, data, bytes);
    struct fixture f = fixture_open(path, &(struct strata_options){.ctx = 256, .arena = "min"});
    struct strata_error e = {0};
    int32_t ids[N];
    fixture_ids(ids, N, f.vocab);
    fixture_ok(strata_feed(f.session, ids, 4, NULL, &e), &e);
    assert_int_equal(truncate(path, 4096), 0);
    for (int i = 0; i < 3; i++) {
        assert_false(strata_feed(f.session, ids, N, NULL, &e));
        assert_int_equal(e.code, STRATA_IO);
        assert_int_equal(strata_position(f.session), 4);
        assert_false(strata_step(f.session, ids, 8, NULL, &e));
        assert_int_equal(strata_position(f.session), 4);
    }
    /* Whole again: the session goes on. */
    fixture_write(path, data, bytes);
    fixture_ok(strata_feed(f.session, ids + 4, N - 4, NULL, &e), &e);
    int vocab;
    float *wanted = expected(ids, &vocab);
    assert_memory_equal(strata_logits(f.session), wanted + (size_t)(N - 1) * (size_t)vocab,
                        (size_t)vocab * sizeof *wanted);
    free(wanted);
    fixture_close(&f);
    free(data);
    remove(path);
}

static void a_model_replaced_between_opening_and_loading_is_an_error(void **unused)
{
    static const char path[] = "session-test-replaced.gguf", other[] = "session-test-other.gguf";
    struct strata_error e = {0};
    size_t bytes;
    char *data = fixture_read(PATH, &bytes);
    fixture_write(path, data, bytes);
    fixture_write(other, data, bytes);
    struct strata_model *m = strata_model_open(path, &(struct strata_options){.ctx = 64}, &e);
    fixture_ok(m != NULL, &e);
    assert_int_equal(rename(other, path), 0);
    for (int i = 0; i < 2; i++) {
        e = (struct strata_error){0};
        assert_false(strata_model_load(m, &e));
        assert_int_equal(e.code, STRATA_IO);
        assert_non_null(strstr(e.text, "session-test-replaced.gguf: another file has taken its name"));
    }
    strata_model_free(m);
    free(data);
    remove(path);
}

/* A device that takes the trunk's weights when it is let, or at the latest after a minute, so that who
 * waits for them against expectation fails and does not hang. */
static struct {
    bool (*write)(struct backend *b, void *to, const void *host, size_t bytes, struct err *e);
    const struct weights *w;
    atomic_bool is_open;
} device;

static bool write_when_open(struct backend *b, void *to, const void *host, size_t bytes, struct err *e)
{
    const char *block = device.w->block;
    bool is_weight = (char *)to >= block && (char *)to < block + device.w->block_bytes;
    for (int i = 0; is_weight && !atomic_load(&device.is_open); i++) {
        usleep(1000);
        if (i == 60000)
            atomic_store(&device.is_open, true);
    }
    return device.write(b, to, host, bytes, e);
}

static struct fixture begin_slowly(const struct strata_options *o)
{
    struct strata_error e = {0};
    struct strata_plan plan;
    struct fixture f = {.model = strata_model_open(PATH, o, &e)};
    fixture_ok(f.model && strata_plan_get(f.model, &plan, &e), &e);
    device.w = &f.model->network->weights;
    device.write = f.model->backend->write;
    atomic_store(&device.is_open, false);
    f.model->backend->write = write_when_open;
    f.model->backend->host_visible = false;
    fixture_ok(strata_model_load(f.model, &e), &e);
    f.session = strata_session_create(f.model, &e);
    fixture_ok(f.session != NULL, &e);
    f.vocab = f.session->vocab;
    return f;
}

/* Nothing but a pass and a state's derived parts needs weights, and both can be called off. */
static void a_session_is_of_use_before_the_trunk_is_there(void **unused)
{
    static const char path[] = "session-test-start.strses", other[] = "session-test-start2.strses";
    int32_t ids[N];
    int vocab;
    float *wanted = expected(ids, &vocab);
    const struct strata_options o = {.ctx = 256, .snapshots = 1};
    struct strata_error e = {0};
    struct fixture f = fixture_open(PATH, &o);
    fixture_ok(strata_feed(f.session, ids, N - 1, NULL, &e) && strata_save(f.session, path, &e), &e);
    fixture_close(&f);
    atomic_bool cancel;
    atomic_init(&cancel, true);
    const struct strata_pass off = {.cancel = &cancel};
    f = begin_slowly(&o);
    fixture_ok(strata_snapshot(f.session, &e) && strata_save(f.session, other, &e) &&
                   strata_session_reset(f.session, &e), &e);
    assert_false(strata_feed(f.session, ids, N, &off, &e));
    assert_int_equal(e.code, STRATA_INTERRUPTED);
    assert_false(strata_load(f.session, path, &off, &e));
    assert_int_equal(e.code, STRATA_INTERRUPTED);
    assert_int_equal(strata_position(f.session), 0);
    assert_false(atomic_load(&device.is_open));
    atomic_store(&device.is_open, true);
    e = (struct strata_error){0};
    fixture_ok(strata_load(f.session, path, NULL, &e) && strata_step(f.session, ids + N - 1, 1, NULL, &e), &e);
    assert_memory_equal(strata_logits(f.session), wanted + (size_t)(N - 1) * (size_t)vocab,
                        (size_t)vocab * sizeof *wanted);
    fixture_close(&f);
    free(wanted);
    remove(path);
    remove(other);
}

/* One round of everything that allocates. */
static bool use_all(struct strata_error *e)
{
    static const char path[] = "session-test-memory.strses";
    struct strata_options o = {.ctx = 64, .threads = 2, .snapshots = 1, .arena = "min", .band = 16};
    const int32_t ids[] = {1, 2, 3, 4, 5};
    struct strata_model *m = strata_model_open(PATH, &o, e);
    bool ok = m && strata_model_load(m, e);
    struct strata_session *s = ok ? strata_session_create(m, e) : NULL;
    ok = s && strata_feed(s, ids, 5, NULL, e) && strata_messages_set(s, "[]", e) &&
         strata_save(s, path, e) && strata_load(s, path, NULL, e);
    strata_session_free(s);
    strata_model_free(m);
    remove(path);
    return ok;
}

static void memory_that_runs_out_anywhere_is_an_error_without_a_leak(void **unused)
{
    struct strata_error e = {0};
    fixture_ok(use_all(&e), &e);
    size_t before = mem_in_use();
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 5000);
        e = (struct strata_error){0};
        mem_fail_at(n);
        done = use_all(&e);
        mem_fail_at(0);
        if (!done && (e.code != STRATA_MEMORY || !e.text[0]))
            fail_msg("allocation %d: code %d, '%s'", (int)n, e.code, e.text);
        if (mem_in_use() != before)
            fail_msg("allocation %d leaks %ld bytes", (int)n, (long)(mem_in_use() - before));
    }
}

static void feeding_and_stepping_allocate_nothing(void **unused)
{
    struct fixture f = fixture_open(PATH, &(struct strata_options){.ctx = 256, .snapshots = 1});
    struct strata_error e = {0};
    int32_t ids[N], id;
    fixture_ids(ids, N, f.vocab);
    struct strata_sampling p;
    fixture_ok(strata_sampling_defaults(f.model, &p, &e), &e);
    mem_fail_at(1);
    bool ok = strata_feed(f.session, ids, N - 10, NULL, &e) && strata_snapshot(f.session, &e) &&
              strata_answer_begin(f.session, &p, &e) && strata_sample(f.session, &id, &e) &&
              strata_step(f.session, &id, 1, NULL, &e) &&
              strata_rewind(f.session, N - 12, NULL, &e);
    mem_fail_at(0);
    fixture_ok(ok, &e);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_that_come_short_are_continued),
        cmocka_unit_test(a_failed_read_is_an_error_and_the_next_request_is_right),
        cmocka_unit_test(a_file_truncated_while_open_is_an_error_each_time),
        cmocka_unit_test(a_model_replaced_between_opening_and_loading_is_an_error),
        cmocka_unit_test(a_session_is_of_use_before_the_trunk_is_there),
        cmocka_unit_test(memory_that_runs_out_anywhere_is_an_error_without_a_leak),
        cmocka_unit_test(feeding_and_stepping_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
