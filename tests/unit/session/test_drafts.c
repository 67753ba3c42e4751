/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses change nothing but the time: ids, logits and saved bytes are those of answers without
 * them, for every kind of model, every length of window and many seeds. And what decides about
 * their number. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../gguf/folder.h"
#include "fixture.h"
#include "session/gate.h"
#include "session/lookup.h"
#include "session/session.h"

#ifdef __SANITIZE_THREAD__
/* It is so slow, and more answers, or longer ones, show it no other threads. Sampled ones come below. */
enum { SEEDS = 1, ANSWER = 30, RIGHT_LEAST = 0, WRONG_LEAST = 9 };
#else
enum { SEEDS = 6, ANSWER = 60, RIGHT_LEAST = 21, WRONG_LEAST = 51 };
#endif
enum { PROMPT = 40 };

static const struct {
    const char *path;
    bool has_layer; /* a draft layer */
} models[] = {{MODEL("q4e_ngram"), false}, {MODEL("q4e_sparse"), false},
              {MODEL("q4e_odd"), false},   {MODEL("q4e_fused"), true},
              {MODEL("q3m_plain"), false}, {MODEL("q3n_legacy"), true},
              {MODEL("q35_plain"), true},  {SHIPPED "/strata-demo.gguf", false}};
enum { MODELS = sizeof models / sizeof *models };

/* Where guesses come from, and the rows of a window; 0: by the gate. */
static const struct {
    enum strata_draft draft;
    int rows;
} ways[] = {{STRATA_DRAFT_LOOKUP, 2}, {STRATA_DRAFT_LOOKUP, 3}, {STRATA_DRAFT_LOOKUP, 8},
            {STRATA_DRAFT_AUTO, 0},   {STRATA_DRAFT_MTP, 4},    {STRATA_DRAFT_MTP, 8},
            {STRATA_DRAFT_MTP, 0}};
enum { WAYS = sizeof ways / sizeof *ways };

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
    char *x = fixture_read_state(a, &bytes_a), *y = fixture_read_state(b, &bytes_b);
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

/* One answer by guesses, its ids and its saved state against those without. */
static void answer_again(struct fixture *f, const struct strata_sampling *p,
                         const struct answer *want, const char *plain, const char *drafted)
{
    struct strata_error e = {0};
    struct answer got = {.most = want->most, .end = -1};
    begin(f, p);
    fixture_ok(strata_answer(f->session, (size_t)got.most, take, &got, NULL, &e), &e);
    assert_int_equal(got.n, want->n);
    assert_memory_equal(got.ids, want->ids, (size_t)got.n * sizeof *got.ids);
    fixture_ok(strata_save(f->session, drafted, &e), &e);
    assert_same_file(plain, drafted); /* ids, logits, keys, recurrent state */
}

static void answers_and_states_are_those_without_guesses(void **unused)
{
    static const char plain[] = "drafts-plain.strses", drafted[] = "drafts-drafted.strses";
    uint64_t right[2] = {0}, wrong[2] = {0};
    for (int m = 0; m < MODELS; m++) {
        struct strata_options o = {.ctx = 128, .draft = STRATA_DRAFT_OFF};
        struct fixture without = fixture_open(models[m].path, &o), with[WAYS];
        int n = 0;
        for (; n < WAYS && (models[m].has_layer || ways[n].draft != STRATA_DRAFT_MTP); n++) {
            o.draft = ways[n].draft;
            o.draft_rows = ways[n].rows;
            o.arena = n % 2 ? "min" : NULL;
            with[n] = fixture_open(models[m].path, &o);
        }
        uint64_t tokens = 0;
        for (int seed = 0; seed < SEEDS; seed++) {
            struct strata_sampling p = sampling_of(seed);
            struct answer want = {.most = seed % 2 ? ANSWER : ANSWER - seed, .end = -1};
            tokens += (uint64_t)want.most - 1;
            answer_plainly(&without, &p, &want, plain);
            for (int w = 0; w < n; w++)
                answer_again(&with[w], &p, &want, plain, drafted);
        }
        struct strata_stats s;
        strata_stats_get(without.model, &s);
        assert_int_equal(s.drafted, 0);
        for (int w = 0; w < n; w++) {
            strata_stats_get(with[w].model, &s);
            right[ways[w].draft == STRATA_DRAFT_MTP] += s.accepted;
            wrong[ways[w].draft == STRATA_DRAFT_MTP] += s.drafted - s.accepted;
            assert_int_equal(s.decode_tokens, tokens);
            fixture_close(&with[w]);
        }
        fixture_close(&without);
    }
    for (int k = 0; k < 2; k++) { /* it was put to the test */
        print_message("%s: %llu guesses were right, %llu wrong\n", k ? "draft layer" : "lookup",
                      (unsigned long long)right[k], (unsigned long long)wrong[k]);
        assert_true(right[k] + 1 > RIGHT_LEAST && wrong[k] >= WRONG_LEAST);
    }
    remove(plain);
    remove(drafted);
}

/* Rows of the draft layer's logits, one after the other. */
struct rows {
    float *values;
    size_t n, vocab;
};

static void take_draft(void *ctx, const char *name, enum strata_element type, const void *data,
                       int rows, int n_dims, const int *dims)
{
    struct rows *r = ctx;
    if (strcmp(name, "draft"))
        return;
    assert_true(n_dims == 1 && (size_t)dims[0] == r->vocab);
    memcpy(r->values + r->n * r->vocab, data, (size_t)rows * r->vocab * sizeof(float));
    r->n += (size_t)rows;
}

static void a_draft_layer_has_the_same_bits_however_it_is_fed(void **unused)
{
    static const int bands[] = {64, 1, 3, 7}, tiles[] = {64, 1, 2, 3};
    for (int m = 0; m < MODELS; m++) {
        if (!models[m].has_layer)
            continue;
        float *first = NULL;
        for (int w = 0; w < 4; w++) {
            struct strata_error e = {0};
            struct strata_options o = {
                .ctx = 128, .draft = STRATA_DRAFT_MTP, .band = bands[w], .tile = tiles[w]};
            struct fixture f = fixture_open(models[m].path, &o);
            struct rows r = {.vocab = (size_t)f.vocab};
            r.values = calloc(PROMPT * r.vocab, sizeof *r.values);
            int32_t ids[PROMPT];
            fixture_ids(ids, PROMPT, f.vocab);
            struct strata_pass pass = {.ctx = &r, .dump = take_draft};
            fixture_ok(strata_feed(f.session, ids, PROMPT, &pass, &e), &e);
            assert_int_equal(r.n, PROMPT - 1);
            if (!first)
                first = r.values;
            else
                assert_memory_equal(first, r.values, r.n * r.vocab * sizeof *first);
            if (r.values != first)
                free(r.values);
            fixture_close(&f);
        }
        free(first);
    }
}

static void a_draft_layer_that_is_not_there_is_refused(void **unused)
{
    struct strata_error e = {0};
    struct strata_options o = {.draft = STRATA_DRAFT_MTP};
    struct strata_model *m = strata_model_open(models[0].path, &o, &e);
    assert_non_null(m);
    assert_false(strata_model_load(m, &e));
    assert_int_equal(e.code, STRATA_USAGE);
    assert_non_null(strstr(e.text, "no draft layer"));
    strata_model_free(m);
}

/* An answer may end in the middle of a window, at any id, and where the context does. */
static void an_answer_ends_at_the_same_place(void **unused)
{
    static const char plain[] = "drafts-end.strses", drafted[] = "drafts-end-2.strses";
    struct strata_sampling p = sampling_of(0);
    for (int m = 0; m < MODELS; m++) {
        struct strata_options o = {.ctx = PROMPT + 20, .draft_rows = 6};
        struct fixture f = fixture_open(models[m].path, &o);
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

/* A drive whose reads from number `at` on fail, `many` of them. */
struct drive {
    atomic_int reads;
    int at, many;
};

static ssize_t drive_read(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    struct drive *d = ctx;
    int read = atomic_fetch_add(&d->reads, 1);
    if (read < d->at || read >= d->at + d->many)
        return pread(fd, to, n, offset);
    errno = EIO;
    return -1;
}

static struct fixture open_on(struct drive *d, const char *path, const struct strata_options *o)
{
    struct strata_error e = {0};
    struct fixture f = {0};
    f.model = strata_model_open(path, o, &e);
    fixture_ok(f.model != NULL, &e);
    f.model->pread = drive_read;
    f.model->pread_ctx = d;
    fixture_ok(strata_model_load(f.model, &e), &e);
    f.session = strata_session_create(f.model, &e);
    fixture_ok(f.session != NULL, &e);
    f.vocab = f.session->vocab;
    return f;
}

/* Where reads fail: what was taken stays, and the answer goes on with the same ids. Returns how
 * many errors there were. */
static int answer_on(struct drive *d, int m, const struct strata_options *o,
                     const struct strata_sampling *p, const struct answer *want, const char *plain)
{
    struct fixture f = open_on(d, models[m].path, o);
    struct answer got = {.most = want->most, .end = -1};
    struct strata_error e = {0};
    int errors = 0, at = d->at;
    d->at = INT_MAX - d->many; /* the prompt is read in peace */
    begin(&f, p);
    d->at = atomic_load(&d->reads) + at;
    for (;;) {
        int fed = strata_position(f.session) - PROMPT;
        bool ok = fed == got.n || strata_step(f.session, &got.ids[fed], 1, NULL, &e);
        ok = ok && strata_answer(f.session, (size_t)(got.most - got.n), take, &got, NULL, &e);
        if (ok)
            break;
        assert_int_equal(e.code, STRATA_IO);
        assert_true(errors++ < 2 * d->many);
        e = (struct strata_error){0};
    }
    assert_int_equal(got.n, want->n);
    assert_memory_equal(got.ids, want->ids, (size_t)got.n * sizeof *got.ids);
    fixture_ok(strata_save(f.session, "drafts-faults-2.strses", &e), &e);
    assert_same_file(plain, "drafts-faults-2.strses");
    fixture_close(&f);
    return errors;
}

static void failing_reads_in_windows_lose_nothing(void **unused)
{
    static const char plain[] = "drafts-faults.strses";
    struct strata_sampling p = sampling_of(1);
    int errors = 0;
    for (int m = 0; m < MODELS; m++) {
        struct strata_options o = {.ctx = 128, .draft = STRATA_DRAFT_OFF};
        struct fixture f = fixture_open(models[m].path, &o);
        struct answer want = {.most = ANSWER, .end = -1};
        answer_plainly(&f, &p, &want, plain);
        fixture_close(&f);
        o.draft = models[m].has_layer ? STRATA_DRAFT_MTP : STRATA_DRAFT_LOOKUP;
        o.draft_rows = 5;
        o.arena = "min";
        for (int at = 0; at < 60; at += 13) {
            struct drive d = {.at = at, .many = 1 + at % 3 * 20};
            errors += answer_on(&d, m, &o, &p, &want, plain);
        }
    }
    print_message("%d errors\n", errors);
    assert_true(errors > 0);
    remove(plain);
    remove("drafts-faults-2.strses");
}

static void an_interrupted_answer_goes_on_with_the_same_ids(void **unused)
{
    struct strata_sampling p = sampling_of(1);
    struct fixture f =
        fixture_open(models[0].path, &(struct strata_options){.ctx = 128, .draft_rows = 5});
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

    static const double dear[] = {0, 100, 190, 280, 370, 460, 550, 640, 730};
    gate_init(&g); /* the first step took ten times as long as the others will */
    gate_learn(&g, GUESS_LONG_MATCH, 1, 0, 0, 10 * dear[1]);
    assert_true(simulate(&g, dear, 0.3, 800) > 0.95);
}

/* Guesses that are never right: few are made, so that an answer takes at most 3 % longer than
 * without any, however a machine's windows cost and times vary. No clock: times are given. */
static void useless_guesses_are_soon_left(void **unused)
{
    static const struct {
        int tokens, most_guesses, most_cheap; /* cheap: next to nothing is lost with them */
    } answers[] = {{200, 12, 120}, {1000, 20, 250}, {4000, 45, 450}};
    static const double second_row[] = {0.05, 0.3, 0.5, 0.7, 1}; /* and each one after it */
    enum { MACHINES = sizeof second_row / sizeof *second_row };
    for (int i = 0; i < 3 * MACHINES * GUESS_KINDS; i++) {
        double row = second_row[i % MACHINES];
        enum guess_kind kind = (enum guess_kind)(i / MACHINES % GUESS_KINDS);
        int tokens = answers[i / MACHINES / GUESS_KINDS].tokens, guesses = 0;
        double guess_us = kind == GUESS_MODEL ? 15 : 0, time = 0, plain = 0;
        uint32_t random = 7;
        struct draft_gate g;
        gate_init(&g);
        for (int t = 0; t < tokens; t++) {
            int rows = gate_rows(&g, kind, 7, guess_us);
            random = random * 1664525 + 1013904223;
            double luck = 0.8 + 0.4 * (random >> 8) / 16777216.0;
            double us = 100 * (1 + row * (rows - 1)) * luck;
            guesses += rows - 1;
            time += us + (rows - 1) * guess_us;
            plain += 100 * luck;
            gate_learn(&g, kind, rows, kind != GUESS_MODEL || rows > 1, 0, us);
        }
        int most = row < 0.1 ? answers[i / MACHINES / GUESS_KINDS].most_cheap
                             : answers[i / MACHINES / GUESS_KINDS].most_guesses;
        if (guesses > most || time > 1.03 * plain)
            fail_msg("kind %d, %.2f a row, %d tokens: %d guesses, %.3f of the time without", kind,
                     row, tokens, guesses, time / plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_and_states_are_those_without_guesses),
        cmocka_unit_test(a_draft_layer_has_the_same_bits_however_it_is_fed),
        cmocka_unit_test(a_draft_layer_that_is_not_there_is_refused),
        cmocka_unit_test(an_answer_ends_at_the_same_place),
        cmocka_unit_test(failing_reads_in_windows_lose_nothing),
        cmocka_unit_test(an_interrupted_answer_goes_on_with_the_same_ids),
        cmocka_unit_test(the_longest_latest_match_is_continued),
        cmocka_unit_test(the_gate_finds_what_pays),
        cmocka_unit_test(useless_guesses_are_soon_left),
    };
    struct test_folder states;
    test_folder_begin(&states);
    int failed = chdir(states.folder) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_end(&states);
    return failed;
}
