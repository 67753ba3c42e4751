/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses change nothing but the time: ids, logits and saved bytes are those of answers without
 * them, for every kind of model, every length of window and many seeds. And what decides about
 * their number. */
#include "fixture.h"

#include <unistd.h>

#include "session/gate.h"
#include "session/lookup.h"

enum { PROMPT = 40, ANSWER = 60, SEEDS = 6 };

static const char *const models[] = {
    MODEL("q4e_ngram"),  MODEL("q4e_sparse"), MODEL("q4e_odd"),           MODEL("q3m_plain"),
    MODEL("q3n_legacy"), MODEL("q35_plain"),  SHIPPED "/strata-demo.gguf"};
enum { MODELS = sizeof models / sizeof *models };

/* An answer of so many ids, or until one of those that end it. */
struct answer {
    int32_t ids[ANSWER];
    int n, most;
    int32_t end;
};

static bool take(void *ctx, int32_t id)
{
    struct answer *a = ctx;
    a->ids[a->n++] = id;
    return a->n < a->most && id != a->end;
}

/* A prompt that repeats itself, as an answer that quotes does. */
static void repeat_ids(int32_t *ids, int n, int vocab)
{
    fixture_ids(ids, n, vocab);
    for (int i = 0; i < n; i++)
        ids[i] = ids[i % 13];
}

static void begin(struct fixture *f, const struct strata_sampling *p)
{
    int32_t ids[PROMPT];
    struct strata_error e = {0};
    repeat_ids(ids, PROMPT, f->vocab);
    fixture_ok(strata_session_reset(f->session, &e), &e);
    fixture_ok(strata_feed(f->session, ids, PROMPT, NULL, &e), &e);
    fixture_ok(strata_answer_begin(f->session, p, &e), &e);
}

/* The answer by strata_sample and strata_step, and its state in a file. */
static void answer_plainly(struct fixture *f, const struct strata_sampling *p, struct answer *a,
                           const char *path)
{
    struct strata_error e = {0};
    begin(f, p);
    for (bool goes_on = true; goes_on;) {
        int32_t id;
        fixture_ok(strata_sample(f->session, &id, &e), &e);
        goes_on = take(a, id);
        if (goes_on)
            fixture_ok(strata_step(f->session, &id, 1, NULL, &e), &e);
    }
    fixture_ok(strata_save(f->session, path, &e), &e);
}

static void assert_same_file(const char *a, const char *b)
{
    size_t bytes_a, bytes_b;
    char *x = fixture_read(a, &bytes_a), *y = fixture_read(b, &bytes_b);
    assert_int_equal(bytes_a, bytes_b);
    assert_memory_equal(x, y, bytes_a);
    free(x);
    free(y);
}

/* Sampling of a seed: cold, so that the tiny models repeat themselves, but not always. */
static struct strata_sampling sampling_of(int seed)
{
    return (struct strata_sampling){.temp = seed % 3 ? 0.3f * (float)(seed % 3) : 0,
                                    .top_k = 20,
                                    .top_p = 1,
                                    .repetition_penalty = seed % 4 == 3 ? 1.1f : 1,
                                    .frequency_penalty = seed % 5 == 4 ? 0.2f : 0,
                                    .seed = (uint64_t)seed};
}

static void answers_and_states_are_those_without_guesses(void **unused)
{
    static const char plain[] = "drafts-plain.strses", drafted[] = "drafts-drafted.strses";
    static const int windows[] = {2, 3, 8, 0};
    uint64_t right = 0, wrong = 0;
    for (int m = 0; m < MODELS; m++) {
        struct fixture without = fixture_open(
            models[m], &(struct strata_options){.ctx = 128, .draft = STRATA_DRAFT_OFF});
        struct fixture with[4];
        for (int w = 0; w < 4; w++)
            with[w] =
                fixture_open(models[m], &(struct strata_options){.ctx = 128,
                                                                 .draft_rows = windows[w],
                                                                 .arena = w % 2 ? "min" : NULL});
        for (int seed = 0; seed < SEEDS; seed++) {
            struct strata_sampling p = sampling_of(seed);
            struct answer want = {.most = seed % 2 ? ANSWER : ANSWER - seed, .end = -1};
            answer_plainly(&without, &p, &want, plain);
            for (int w = 0; w < 4; w++) {
                struct strata_error e = {0};
                struct answer got = {.most = want.most, .end = -1};
                begin(&with[w], &p);
                fixture_ok(strata_answer(with[w].session, (size_t)got.most, take, &got, NULL, &e),
                           &e);
                assert_int_equal(got.n, want.n);
                assert_memory_equal(got.ids, want.ids, (size_t)got.n * sizeof *got.ids);
                fixture_ok(strata_save(with[w].session, drafted, &e), &e);
                assert_same_file(plain, drafted); /* ids, logits, keys, recurrent state */
            }
        }
        struct strata_stats s;
        strata_stats_get(without.model, &s);
        assert_int_equal(s.drafted, 0);
        for (int w = 0; w < 3; w++) {
            strata_stats_get(with[w].model, &s);
            right += s.accepted;
            wrong += s.drafted - s.accepted;
            assert_int_equal(s.decode_tokens, SEEDS * (ANSWER - 1) - (0 + 2 + 4));
        }
        for (int w = 0; w < 4; w++)
            fixture_close(&with[w]);
        fixture_close(&without);
    }
    print_message("%llu guesses were right, %llu wrong\n", (unsigned long long)right,
                  (unsigned long long)wrong);
    assert_true(right > 50 && wrong > 50); /* it was put to the test */
    remove(plain);
    remove(drafted);
}

/* An answer may end in the middle of a window, at any id, and where the context does. */
static void an_answer_ends_at_the_same_place(void **unused)
{
    static const char plain[] = "drafts-end.strses", drafted[] = "drafts-end-2.strses";
    struct strata_sampling p = sampling_of(0);
    for (int m = 0; m < MODELS; m++) {
        struct strata_options o = {.ctx = PROMPT + 20, .draft_rows = 6};
        struct fixture f = fixture_open(models[m], &o);
        for (int end = 1; end < 20; end += 3) {
            struct strata_error e = {0};
            struct answer want = {.most = end, .end = -1}, got = {.most = ANSWER, .end = -1};
            answer_plainly(&f, &p, &want, plain);
            got.most = end; /* the hint says more than is taken */
            begin(&f, &p);
            fixture_ok(strata_answer(f.session, SIZE_MAX, take, &got, NULL, &e), &e);
            assert_int_equal(got.n, want.n);
            assert_memory_equal(got.ids, want.ids, (size_t)got.n * sizeof *got.ids);
            fixture_ok(strata_save(f.session, drafted, &e), &e);
            assert_same_file(plain, drafted);
        }
        struct strata_error e = {0};
        struct answer full = {.most = ANSWER, .end = -1};
        begin(&f, &p);
        fixture_ok(strata_answer(f.session, SIZE_MAX, take, &full, NULL, &e), &e);
        assert_int_equal(full.n, 21);
        assert_int_equal(strata_position(f.session), PROMPT + 20);
        fixture_close(&f);
    }
    remove(plain);
    remove(drafted);
}

/* A failing drive in the middle of windows, and a cancel: what was taken stays, and the answer goes
 * on with the same ids. */
static void an_interrupted_answer_goes_on_with_the_same_ids(void **unused)
{
    struct strata_sampling p = sampling_of(1);
    struct fixture f =
        fixture_open(models[0], &(struct strata_options){.ctx = 128, .draft_rows = 5});
    struct strata_error e = {0};
    struct answer want = {.most = ANSWER, .end = -1};
    answer_plainly(&f, &p, &want, "drafts-cut.strses");
    remove("drafts-cut.strses");
    atomic_bool cancel = true;
    begin(&f, &p);
    struct answer got = {.most = 25, .end = -1};
    assert_false(
        strata_answer(f.session, 25, take, &got, &(struct strata_pass){.cancel = &cancel}, &e));
    assert_int_equal(e.code, STRATA_INTERRUPTED);
    assert_int_equal(got.n, 0);
    fixture_ok(strata_answer(f.session, 25, take, &got, NULL, &e), &e);
    assert_int_equal(strata_position(f.session), PROMPT + 24);
    fixture_ok(strata_step(f.session, &got.ids[24], 1, NULL, &e), &e);
    got.most = ANSWER;
    fixture_ok(strata_answer(f.session, ANSWER - 25, take, &got, NULL, &e), &e);
    assert_int_equal(got.n, ANSWER);
    assert_memory_equal(got.ids, want.ids, sizeof got.ids);
    fixture_close(&f);
}

static void the_longest_latest_match_is_continued(void **unused)
{
    int32_t out[8];
    int matched;
    static const int32_t ids[] = {1, 2, 3, 9, 8, 1, 2, 3, 7, 6, 5, 2, 3, 7, 4, 1, 2, 3};
    assert_int_equal(lookup_guess(ids, 18, 4, out, &matched), 4); /* the latest 1 2 3 */
    assert_int_equal(matched, 3);
    assert_memory_equal(out, ((int32_t[]){7, 6, 5, 2}), 4 * sizeof *out);
    static const int32_t longer[] = {5, 1, 2, 3, 9, 8, 1, 2, 3, 7, 5, 1, 2, 3};
    assert_int_equal(lookup_guess(longer, 14, 2, out, &matched), 2);
    assert_int_equal(matched, 4);
    assert_memory_equal(out, ((int32_t[]){9, 8}), 2 * sizeof *out);
    static const int32_t period[] = {4, 6, 7, 4, 6, 7};
    assert_int_equal(lookup_guess(period, 6, 8, out, &matched), 8);
    assert_memory_equal(out, ((int32_t[]){4, 6, 7, 4, 6, 7, 4, 6}), sizeof out);
    static const int32_t none[] = {1, 2, 3, 4, 2, 3};
    assert_int_equal(lookup_guess(none, 6, 8, out, &matched), 0);
    assert_int_equal(lookup_guess(none, 1, 8, out, &matched), 0);
    assert_int_equal(lookup_guess(none, 0, 8, out, &matched), 0);
}

/* Ids a time of the last half of `steps` windows, on a machine on which T rows take us[T] and where
 * a guess is right as often as said, as a part of that of the best fixed window. */
static double simulate(struct draft_gate *g, const double *us, double right_share, int steps)
{
    uint32_t random = 99;
    double ids = 0, time = 0, best = 0;
    for (int i = 0; i < steps; i++) {
        int rows = gate_rows(g, GUESS_LONG_MATCH, 7, 0), right = 0;
        assert_true(rows >= 1 && rows <= 8);
        for (; right < rows && right < 7; right++) {
            random = random * 1664525 + 1013904223;
            if ((random >> 8) / 16777216.0 >= right_share)
                break;
        }
        gate_learn(g, GUESS_LONG_MATCH, rows, right < 7 && right < rows ? right + 1 : right, right,
                   us[rows]);
        if (i >= steps / 2) {
            ids += right < rows ? right + 1 : rows;
            time += us[rows];
        }
    }
    double all_right = 1, expected = 0;
    for (int rows = 1; rows <= 8; rows++, all_right *= right_share) {
        expected += all_right;
        best = expected / us[rows] > best ? expected / us[rows] : best;
    }
    return ids / time / best;
}

static void the_gate_finds_what_pays(void **unused)
{
    static const double shares[] = {0.95, 0, 0.7, 0.02, 0.5, 0.98, 0.3};
    double machine[3][9]; /* rows for little, for half, for all of what one takes */
    struct draft_gate g;
    for (int t = 1; t <= 8; t++) {
        machine[0][t] = 100 + 5 * t;
        machine[1][t] = 50 + 50 * t;
        machine[2][t] = 100 * t;
    }
    gate_init(&g);
    for (size_t r = 0; r < sizeof shares / sizeof *shares; r++)
        for (int m = 0; m < 3; m++) { /* from each of them to the next, with what it had learned */
            double part = simulate(&g, machine[m], shares[r], 4000);
            print_message("machine %d, %.2f right: %.3f of the best\n", m, shares[r], part);
            assert_true(part > 0.97);
        }
    gate_init(&g);
    assert_int_equal(gate_rows(&g, GUESS_MODEL, 7, 0), 1); /* the plain step is measured first */
    gate_learn(&g, GUESS_MODEL, 1, 0, 0, 100);
    assert_int_equal(gate_rows(&g, GUESS_MODEL, 0, 0), 1);
    assert_int_equal(gate_rows(&g, GUESS_MODEL, 7, 1000),
                     1); /* guesses that cost more than they bring */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_and_states_are_those_without_guesses),
        cmocka_unit_test(an_answer_ends_at_the_same_place),
        cmocka_unit_test(an_interrupted_answer_goes_on_with_the_same_ids),
        cmocka_unit_test(the_longest_latest_match_is_continued),
        cmocka_unit_test(the_gate_finds_what_pays),
    };
    /* In memory where there is such a place: each file is synced, which a busy drive takes long for. */
    char folder[] = "/dev/shm/strata-drafts-XXXXXX";
    bool is_there = mkdtemp(folder) && !chdir(folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (is_there)
        rmdir(folder);
    return failed;
}
