/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: the same bits however ids are fed, saved, restored or rewound; errors leave a session
 * that goes on with the same bits. */
#include "fixture.h"

enum { N = 70 };

static const char *const models[] = {MODEL("q4e_ngram"), MODEL("q4e_sparse"), MODEL("q4e_odd")};
enum { MODELS = sizeof models / sizeof *models };

/* Logits of N ids fed as one prompt. */
static float *expected(const char *path, int32_t *ids, int *vocab)
{
    struct fixture f = fixture_open(path, &(struct strata_options){.ctx = 128});
    fixture_ids(ids, N, f.vocab);
    *vocab = f.vocab;
    float *logits = fixture_logits(&f, ids, N, 0);
    fixture_close(&f);
    return logits;
}

static void assert_same_row(const float *logits, const float *wanted, int row, int vocab)
{
    assert_non_null(logits);
    assert_memory_equal(logits, wanted + (size_t)row * (size_t)vocab,
                        (size_t)vocab * sizeof *logits);
}

static void feeding_in_bands_tiles_windows_gives_the_same_bits(void **unused)
{
    static const struct {
        struct strata_options o;
        int window;
    } ways[] = {
        {{.band = 1, .tile = 1, .arena = "min"}, 0},
        {{.band = 3, .tile = 3, .threads = 1}, 0},
        {{.band = 64, .tile = 300, .threads = 3, .arena = "max"}, 0},
        {{.arena = "50%", .isa = "c"}, 0},
        {{.arena = "min"}, 1},
        {{.threads = 2}, 2},
        {{.window = 5}, 5},
        {{.arena = "min", .threads = 3}, 8},
    };
    for (int m = 0; m < MODELS; m++) {
        int32_t ids[N];
        int vocab;
        float *wanted = expected(models[m], ids, &vocab);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct strata_options o = ways[w].o;
            o.ctx = 128;
            struct fixture f = fixture_open(models[m], &o);
            float *got = fixture_logits(&f, ids, N, ways[w].window);
            assert_memory_equal(got, wanted, (size_t)N * (size_t)vocab * sizeof *got);
            assert_int_equal(strata_position(f.session), N);
            assert_memory_equal(strata_ids(f.session), ids, sizeof ids);
            assert_same_row(strata_logits(f.session), wanted, N - 1, vocab);
            free(got);
            fixture_close(&f);
        }
        free(wanted);
    }
}

static void a_saved_session_goes_on_with_the_same_bits(void **unused)
{
    static const char path[] = "session-test.strses", again[] = "session-test-2.strses";
    static const int cuts[] = {0, 1, 2, 15, 16, 17, 63, N - 1};
    for (int m = 0; m < MODELS; m++) {
        int32_t ids[N];
        int vocab;
        float *wanted = expected(models[m], ids, &vocab);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            int cut = cuts[c];
            struct strata_error e = {0};
            struct strata_options o = {.ctx = 128, .arena = "min"};
            struct fixture f = fixture_open(models[m], &o);
            fixture_ok(strata_feed(f.session, ids, (size_t)cut, NULL, &e), &e);
            fixture_ok(strata_messages_set(f.session, "[{\"role\": \"user\"}]", &e), &e);
            struct strata_sampling sampling;
            fixture_ok(strata_sampling_defaults(f.model, &sampling, &e), &e);
            fixture_ok(strata_answer_begin(f.session, &sampling, &e), &e);
            fixture_ok(strata_save(f.session, path, &e), &e);
            fixture_close(&f);

            f = fixture_open(models[m], &o);
            fixture_ok(strata_load(f.session, path, NULL, &e), &e);
            assert_int_equal(strata_position(f.session), cut);
            assert_string_equal(strata_messages(f.session), "[{\"role\": \"user\"}]");
            struct strata_sampling restored = {0};
            assert_true(strata_sampling_get(f.session, &restored));
            assert_true(restored.temp == sampling.temp && restored.top_k == sampling.top_k &&
                        restored.top_p == sampling.top_p && restored.seed == sampling.seed);
            if (cut)
                assert_same_row(strata_logits(f.session), wanted, cut - 1, vocab);
            else
                assert_null(strata_logits(f.session));

            fixture_ok(strata_save(f.session, again, &e), &e);
            size_t bytes, bytes_again;
            char *first = fixture_read(path, &bytes), *second = fixture_read(again, &bytes_again);
            assert_int_equal(bytes, bytes_again);
            assert_memory_equal(first, second, bytes);
            free(first);
            free(second);

            float *rest = fixture_logits(&f, ids + cut, N - cut, c % 3 ? (int)(c % 3) : 0);
            assert_memory_equal(rest, wanted + (size_t)cut * (size_t)vocab,
                                (size_t)(N - cut) * (size_t)vocab * sizeof *rest);
            free(rest);
            fixture_close(&f);
        }
        free(wanted);
    }
    remove(path);
    remove(again);
}

static void saved_with(enum strata_kv kv)
{
    static const char path[] = "session-test-kv.strses";
    int32_t ids[N];
    int vocab;
    float *wanted = expected(models[0], ids, &vocab);
    struct strata_error e = {0};
    struct fixture f = fixture_open(models[0], &(struct strata_options){.ctx = 128, .kv = kv});
    fixture_ok(strata_feed(f.session, ids, 40, NULL, &e), &e);
    fixture_ok(strata_save(f.session, path, &e), &e);
    fixture_close(&f);

    f = fixture_open(models[0], &(struct strata_options){.ctx = 100});
    fixture_ok(strata_load(f.session, path, NULL, &e), &e);
    assert_int_equal(strata_position(f.session), 40);
    assert_same_row(strata_logits(f.session), wanted, 39, vocab);
    struct strata_stats stats;
    strata_stats_get(f.model, &stats);
    assert_int_equal(stats.prefill_tokens, 40);
    fixture_close(&f);
    remove(path);
    free(wanted);
}

static void a_session_saved_with_other_bits_is_fed_again(void **unused)
{
    saved_with(STRATA_KV_F32);
    saved_with(STRATA_KV_Q8_0);
}

/* With keys and values in blocks: on from a file, back by a rewind, forward again, the same bits, and
 * the file again the same bytes. */
static void keys_of_a_byte_are_saved_and_rewound_as_they_are(void **unused)
{
    static const char path[] = "session-test-q8.strses", again[] = "session-test-q8-2.strses";
    for (int m = 0; m < MODELS; m++) {
        struct strata_options o = {.ctx = 128, .kv = STRATA_KV_Q8_0, .snapshots = 1, .band = 16};
        struct fixture f = fixture_open(models[m], &o);
        struct strata_error e = {0};
        int32_t ids[N];
        int vocab = f.vocab;
        fixture_ids(ids, N, vocab);
        float *wanted = fixture_logits(&f, ids, N, 0);
        fixture_ok(strata_rewind(f.session, 37, NULL, &e), &e);
        assert_same_row(strata_logits(f.session), wanted, 36, vocab);
        fixture_ok(strata_save(f.session, path, &e), &e);
        fixture_close(&f);

        f = fixture_open(models[m], &o);
        fixture_ok(strata_load(f.session, path, NULL, &e), &e);
        struct strata_stats stats;
        strata_stats_get(f.model, &stats);
        assert_int_equal(stats.prefill_tokens, 0); /* not fed again */
        fixture_ok(strata_save(f.session, again, &e), &e);
        size_t bytes, bytes_again;
        char *first = fixture_read(path, &bytes), *second = fixture_read(again, &bytes_again);
        assert_int_equal(bytes, bytes_again);
        assert_memory_equal(first, second, bytes);
        free(first);
        free(second);
        float *rest = fixture_logits(&f, ids + 37, N - 37, 3);
        assert_memory_equal(rest, wanted + (size_t)37 * (size_t)vocab,
                            (size_t)(N - 37) * (size_t)vocab * sizeof *rest);
        free(rest);
        free(wanted);
        fixture_close(&f);
    }
    remove(path);
    remove(again);
}

static void a_rewind_gives_the_bits_of_a_session_that_was_never_further(void **unused)
{
    static const int positions[] = {69, 50, 33, 32, 20, 1, 0};
    int32_t ids[N];
    int vocab;
    float *wanted = expected(models[0], ids, &vocab);
    for (int snapshots = 0; snapshots <= 2; snapshots++) {
        struct fixture f = fixture_open(
            models[0], &(struct strata_options){.ctx = 128, .band = 16, .snapshots = snapshots});
        struct strata_error e = {0};
        fixture_ok(strata_feed(f.session, ids, 20, NULL, &e), &e);
        for (int i = 0; i < snapshots; i++) { /* at 20 and 32, with others of no use before */
            fixture_ok(strata_snapshot(f.session, &e), &e);
            if (i == 0)
                fixture_ok(strata_feed(f.session, ids + 20, 12, NULL, &e), &e);
        }
        int at = strata_position(f.session);
        fixture_ok(strata_feed(f.session, ids + at, (size_t)(N - at), NULL, &e), &e);
        for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
            int p = positions[i];
            fixture_ok(strata_rewind(f.session, p, NULL, &e), &e);
            assert_int_equal(strata_position(f.session), p);
            if (p)
                assert_same_row(strata_logits(f.session), wanted, p - 1, vocab);
            else
                assert_null(strata_logits(f.session));
            /* On by one token, and back. */
            int32_t other = (ids[p] + 1) % vocab;
            fixture_ok(strata_step(f.session, &other, 1, NULL, &e), &e);
            fixture_ok(strata_rewind(f.session, p, NULL, &e), &e);
            fixture_ok(strata_step(f.session, &ids[p], 1, NULL, &e), &e);
            assert_same_row(strata_logits(f.session), wanted, p, vocab);
        }
        fixture_close(&f);
    }
    free(wanted);
}

static void a_whole_prompt_keeps_what_it_has_in_common(void **unused)
{
    int32_t ids[N];
    int vocab;
    float *wanted = expected(models[0], ids, &vocab);
    struct fixture f =
        fixture_open(models[0], &(struct strata_options){.ctx = 128, .band = 16, .snapshots = 1});
    struct strata_error e = {0};
    size_t kept;
    int32_t other[60];
    memcpy(other, ids, sizeof other);
    other[45] = (other[45] + 1) % vocab;
    fixture_ok(strata_feed(f.session, other, 40, NULL, &e), &e);
    fixture_ok(strata_snapshot(f.session, &e), &e);
    fixture_ok(strata_feed_whole(f.session, other, 60, &kept, NULL, &e), &e);
    assert_int_equal(kept, 40);
    fixture_ok(strata_feed_whole(f.session, ids, N, &kept, NULL, &e), &e);
    assert_int_equal(kept, 40);
    assert_same_row(strata_logits(f.session), wanted, N - 1, vocab);
    fixture_ok(strata_feed_whole(f.session, ids, N, &kept, NULL, &e), &e);
    assert_int_equal(kept, N);
    assert_same_row(strata_logits(f.session), wanted, N - 1, vocab);
    fixture_ok(strata_feed_whole(f.session, ids, N - 9, &kept, NULL, &e), &e);
    assert_true(kept < N - 9);
    assert_int_equal(strata_position(f.session), N - 9);
    assert_same_row(strata_logits(f.session), wanted, N - 10, vocab);
    fixture_close(&f);
    free(wanted);
}

static void requests_that_make_no_sense_are_refused_before_any_work(void **unused)
{
    struct fixture f = fixture_open(models[0], &(struct strata_options){.ctx = 32});
    struct strata_error e = {0};
    int32_t ids[40];
    fixture_ids(ids, 40, f.vocab);
    assert_false(strata_feed(f.session, ids, 33, NULL, &e));
    assert_int_equal(e.code, STRATA_USAGE);
    assert_non_null(strstr(e.text, "at most 32"));
    fixture_ok(strata_feed(f.session, ids, 30, NULL, &e), &e);
    assert_false(strata_feed(f.session, ids, 3, NULL, &e));
    assert_non_null(strstr(e.text, "at most 2"));
    assert_false(strata_step(f.session, ids, 3, NULL, &e));
    assert_false(strata_step(f.session, ids, 0, NULL, &e));
    assert_false(strata_step(f.session, ids, 9, NULL, &e));
    int32_t bad = f.vocab;
    assert_false(strata_step(f.session, &bad, 1, NULL, &e));
    assert_non_null(strstr(e.text, "id "));
    bad = -1;
    assert_false(strata_feed(f.session, &bad, 1, NULL, &e));
    assert_false(strata_rewind(f.session, 31, NULL, &e));
    assert_false(strata_snapshot(f.session, &e));
    assert_null(strata_session_create(f.model, &e));
    assert_int_equal(strata_position(f.session), 30);
    fixture_ok(strata_step(f.session, ids, 2, NULL, &e), &e);
    fixture_close(&f);
}

static void states_of_other_models_and_of_longer_contexts_are_refused(void **unused)
{
    static const char path[] = "session-test-other.strses";
    struct strata_error e = {0};
    int32_t ids[40];
    struct fixture f = fixture_open(models[0], &(struct strata_options){.ctx = 64});
    fixture_ids(ids, 40, f.vocab);
    fixture_ok(strata_feed(f.session, ids, 40, NULL, &e), &e);
    fixture_ok(strata_save(f.session, path, &e), &e);
    fixture_close(&f);

    f = fixture_open(models[1], &(struct strata_options){.ctx = 64});
    fixture_ok(strata_feed(f.session, ids, 3, NULL, &e), &e);
    assert_false(strata_load(f.session, path, NULL, &e));
    assert_non_null(strstr(e.text, "another model"));
    assert_int_equal(strata_position(f.session), 3);
    fixture_close(&f);

    f = fixture_open(models[0], &(struct strata_options){.ctx = 39});
    assert_false(strata_load(f.session, path, NULL, &e));
    assert_non_null(strstr(e.text, "at least 40"));
    fixture_close(&f);
    remove(path);
}

/* ---- Interruptions -------------------------------------------------------------------------- */

struct brake {
    atomic_bool cancel;
    int calls, after;
};

static void brake_after(void *ctx, size_t done, size_t all, int layer, int layers)
{
    struct brake *b = ctx;
    if (++b->calls == b->after)
        atomic_store(&b->cancel, true);
}

static void a_cancelled_prompt_ends_at_its_last_whole_band(void **unused)
{
    int32_t ids[N];
    int vocab;
    float *wanted = expected(models[0], ids, &vocab);
    struct fixture f = fixture_open(models[0], &(struct strata_options){.ctx = 128, .band = 16});
    struct strata_error e = {0};
    for (int after = 1; after < 24; after += 3) {
        struct brake brake = {.after = after};
        struct strata_pass pass = {.ctx = &brake, .progress = brake_after, .cancel = &brake.cancel};
        fixture_ok(strata_session_reset(f.session, &e), &e);
        assert_false(strata_feed(f.session, ids, N, &pass, &e));
        assert_int_equal(e.code, STRATA_INTERRUPTED);
        int at = strata_position(f.session);
        assert_int_equal(at % 16, 0);
        float *rest = fixture_logits(&f, ids + at, N - at, after % 2 ? 0 : 4);
        assert_memory_equal(rest, wanted + (size_t)at * (size_t)vocab,
                            (size_t)(N - at) * (size_t)vocab * sizeof *rest);
        free(rest);
    }
    fixture_close(&f);
    free(wanted);
}

static void a_cancelled_step_or_load_is_an_error_and_no_more(void **unused)
{
    int32_t ids[N];
    int vocab;
    float *wanted = expected(models[0], ids, &vocab);
    struct strata_error e = {0};
    atomic_bool cancel;
    atomic_init(&cancel, true);
    struct strata_options o = {.ctx = 128, .cancel = &cancel};
    struct strata_model *m = strata_model_open(models[0], &o, &e);
    fixture_ok(m != NULL, &e);
    assert_false(strata_model_load(m, &e));
    assert_int_equal(e.code, STRATA_INTERRUPTED);
    strata_model_free(m);

    struct strata_pass pass = {.cancel = &cancel};
    struct fixture f = fixture_open(models[0], &(struct strata_options){.ctx = 128});
    for (int at = 0; at < N; at += 7) {
        assert_false(strata_step(f.session, ids + at, 7, &pass, &e));
        assert_int_equal(e.code, STRATA_INTERRUPTED);
        assert_int_equal(strata_position(f.session), at);
        fixture_ok(strata_step(f.session, ids + at, 7, NULL, &e), &e);
        assert_same_row(strata_logits(f.session), wanted, at + 6, vocab);
    }
    fixture_close(&f);
    free(wanted);
}

static void a_seed_gives_the_same_answer_also_after_saving(void **unused)
{
    static const char path[] = "session-test-seed.strses";
    struct strata_options o = {.ctx = 128};
    struct strata_error e = {0};
    struct strata_sampling p = {.temp = 1.5f,
                                .top_p = 1,
                                .repetition_penalty = 1.3f,
                                .presence_penalty = 0.5f,
                                .frequency_penalty = 0.25f,
                                .seed = 7};
    int32_t ids[N], answer[40];
    struct fixture f = fixture_open(models[0], &o);
    fixture_ids(ids, 10, f.vocab);
    fixture_ok(strata_feed(f.session, ids, 10, NULL, &e), &e);
    fixture_ok(strata_answer_begin(f.session, &p, &e), &e);
    for (int i = 0; i < 40; i++) {
        if (i == 20)
            fixture_ok(strata_save(f.session, path, &e), &e);
        fixture_ok(strata_sample(f.session, &answer[i], &e), &e);
        fixture_ok(strata_step(f.session, &answer[i], 1, NULL, &e), &e);
    }
    fixture_close(&f);

    f = fixture_open(models[0], &o);
    fixture_ok(strata_load(f.session, path, NULL, &e), &e);
    for (int i = 20; i < 40; i++) {
        int32_t id;
        fixture_ok(strata_sample(f.session, &id, &e), &e);
        assert_int_equal(id, answer[i]);
        fixture_ok(strata_step(f.session, &id, 1, NULL, &e), &e);
    }
    fixture_close(&f);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feeding_in_bands_tiles_windows_gives_the_same_bits),
        cmocka_unit_test(a_saved_session_goes_on_with_the_same_bits),
        cmocka_unit_test(a_session_saved_with_other_bits_is_fed_again),
        cmocka_unit_test(keys_of_a_byte_are_saved_and_rewound_as_they_are),
        cmocka_unit_test(a_rewind_gives_the_bits_of_a_session_that_was_never_further),
        cmocka_unit_test(a_whole_prompt_keeps_what_it_has_in_common),
        cmocka_unit_test(requests_that_make_no_sense_are_refused_before_any_work),
        cmocka_unit_test(states_of_other_models_and_of_longer_contexts_are_refused),
        cmocka_unit_test(a_cancelled_prompt_ends_at_its_last_whole_band),
        cmocka_unit_test(a_cancelled_step_or_load_is_an_error_and_no_more),
        cmocka_unit_test(a_seed_gives_the_same_answer_also_after_saving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
