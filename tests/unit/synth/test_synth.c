/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic models: blocks have the deviation that was asked for, encoding comes back, greedy text
 * walks along the chain, and every architecture has the tensors of its release. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "quant/quant.h"
#include "synth/blocks.h"
#include "synth/synth.h"
#include "synth/tokens.h"

static double rms(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

static void test_drawn_blocks_have_the_deviation(void **state)
{
    (void)state;
    static const enum tensor_type types[] = {TYPE_Q4_0,  TYPE_Q5_0,   TYPE_Q8_0,    TYPE_Q4_K,
                                             TYPE_Q5_K,  TYPE_Q6_K,   TYPE_IQ2_XXS, TYPE_IQ2_XS,
                                             TYPE_IQ1_S, TYPE_IQ4_NL, TYPE_IQ3_S,   TYPE_Q2_0};
    enum { BLOCKS = 500 };
    static uint8_t blocks[BLOCKS * 256];
    static float x[BLOCKS * 256];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct synth_random r = random_stream(7, i);
        size_t n = BLOCKS * (size_t)tensor_type_info(types[i])->block_values;
        blocks_draw(types[i], BLOCKS, 0.02, &r, blocks);
        quant_decode(types[i], blocks, x, n);
        double got = rms(x, n) / 0.02, mean = 0;
        for (size_t j = 0; j < n; j++)
            mean += (double)x[j] / (double)n;
        if (got < 0.9 || got > 1.1 || fabs(mean) > 0.004)
            fail_msg("%s: deviation %.3f of what was asked, mean %.5f",
                     tensor_type_info(types[i])->name, got, mean);
    }
}

static void test_encoded_values_come_back(void **state)
{
    (void)state;
    static const struct {
        enum tensor_type type;
        double error; /* largest mean error that rounding gives, deviation 1 */
    } kinds[] = {
        {TYPE_F32, 0}, {TYPE_BF16, 0.003}, {TYPE_Q8_0, 0.01}, {TYPE_Q6_K, 0.03}, {TYPE_Q4_K, 0.1}};
    enum { N = 4096 };
    static float x[N], y[N];
    static uint8_t blocks[N * 4];
    struct synth_random r = random_stream(1, 2);
    random_normal(&r, x, N, 1);
    assert_true(fabs(rms(x, N) - 1) < 0.05);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        blocks_encode(kinds[i].type, x, N, blocks);
        quant_decode(kinds[i].type, blocks, y, N);
        for (int j = 0; j < N; j++)
            y[j] -= x[j];
        if (rms(y, N) > kinds[i].error)
            fail_msg("%s: error %f", tensor_type_info(kinds[i].type)->name, rms(y, N));
    }
}

static double product(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void test_the_head_answers_with_the_next_of_the_chain(void **state)
{
    (void)state;
    enum { VOCAB = 2560, EMBD = 2048 };
    struct tokens t;
    struct err e;
    err_clear(&e);
    assert_true(tokens_create(&t, synth_shape_of("qwen3moe"), 4, VOCAB, 3, &e));
    int32_t text[40];
    tokens_text(&t, 40, text);
    static float x[EMBD], head[EMBD];
    for (int i = 0; i < 3; i++) {
        int64_t id = text[i], next = (id * t.back + 1) % t.n * t.step % t.n;
        tokens_embed(&t, id, x);
        assert_true(fabs(rms(x, EMBD) - 1) < 0.35);
        double best = -1e9;
        int64_t chosen = -1;
        for (int64_t c = 0; c < VOCAB; c++) {
            tokens_head(&t, c, head);
            double logit = product(head, x, EMBD);
            if (logit > best) {
                best = logit;
                chosen = c;
            }
        }
        assert_int_equal(chosen, next);
        assert_true(best > 6 && best < 25);
    }
    int followed = 0;
    for (int i = 0; i + 1 < 40; i++)
        followed += text[i + 1] == ((int64_t)text[i] * t.back + 1) % t.n * t.step % t.n;
    assert_true(followed > 30);
    tokens_free(&t);
}

static void test_router_logits_have_their_parts(void **state)
{
    (void)state;
    enum { EXPERTS = 200, EMBD = 2048 };
    struct tokens t;
    struct err e;
    err_clear(&e);
    assert_true(tokens_create(&t, synth_shape_of("qwen3moe"), 4, 2560, 3, &e));
    static float x[EMBD], row[EMBD], logits[EXPERTS];
    tokens_embed(&t, 17, x);
    for (int i = 0; i < EXPERTS; i++) {
        tokens_router(&t, 0, 0, i, row);
        logits[i] = (float)product(row, x, EMBD);
    }
    double all = sqrt(SYNTH_R_POPULAR * SYNTH_R_POPULAR + SYNTH_R_TOPIC * SYNTH_R_TOPIC +
                      SYNTH_R_NOISE * SYNTH_R_NOISE);
    assert_true(rms(logits, EXPERTS) > 0.6 * all && rms(logits, EXPERTS) < 1.6 * all);
    tokens_free(&t);
}

enum { TRIES = 100, NARROW = 512 };

enum { TEXT = 1024, EXPERTS = 512, USED = 10, SLOTS = EXPERTS / 5, WIDE = 2560 };

/* Most of the work of the test: sanitizers, which make it ten times as much, need not see it. */
__attribute__((no_sanitize_address, no_sanitize_thread)) static float logit_of(const float *router,
                                                                               const float *x)
{
    float sum[8] = {0};
    for (int j = 0; j < WIDE; j += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += router[j + k] * x[j + k];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* The `USED` best experts of every token of a text, as the first layer's router has them. */
static void choose_experts(const struct tokens *t, int chosen[TEXT][USED])
{
    static float routers[EXPERTS][WIDE], x[WIDE];
    static int32_t text[TEXT];
    for (int i = 0; i < EXPERTS; i++)
        tokens_router(t, 0, 0, i, routers[i]);
    tokens_text(t, TEXT, text);
    for (int n = 0; n < TEXT; n++) {
        float logit[EXPERTS];
        tokens_embed(t, text[n], x);
        for (int i = 0; i < EXPERTS; i++)
            logit[i] = logit_of(routers[i], x);
        for (int k = 0; k < USED; k++) {
            int best = 0;
            for (int i = 1; i < EXPERTS; i++)
                best = logit[i] > logit[best] ? i : best;
            chosen[n][k] = best;
            logit[best] = -1e9f;
        }
    }
}

/* What published traces of the large model say (shape.h): it is what these models are made for. */
static void test_experts_are_chosen_as_in_published_traces(void **state)
{
    (void)state;
    static int chosen[TEXT][USED], used_at[EXPERTS];
    struct tokens t;
    struct err e;
    err_clear(&e);
    const struct synth_shape *s = synth_shape_of("qwen4exp");
    assert_true(s->experts == EXPERTS && s->used == USED && s->embd == WIDE);
    assert_true(tokens_create(&t, s, 8, 8192, 1, &e));
    choose_experts(&t, chosen);
    tokens_free(&t);
    int shared = 0, distinct = 0, hits = 0, all = 0;
    for (int n = 0; n < TEXT; n++)
        for (int k = 0; k < USED; k++) {
            int at = used_at[chosen[n][k]], newer = 0; /* at: the token after its last use, 0: none */
            for (int i = 0; i < EXPERTS; i++)
                newer += used_at[i] > at;
            distinct += !at;
            shared += at && at == n;
            hits += n >= 200 && at && newer < SLOTS;
            all += n >= 200;
            used_at[chosen[n][k]] = n + 1;
        }
    double with_previous = (double)shared / (USED * (TEXT - 1)), hit_rate = (double)hits / all;
    print_message("shared with the token before %.2f, %d distinct, hits of a fifth %.2f\n",
                  with_previous, distinct, hit_rate);
    assert_true(with_previous > 0.28 && with_previous < 0.42);
    assert_in_range(distinct, 390, 470);
    assert_true(hit_rate > 0.72 && hit_rate < 0.86);
}

/* Guesses of a draft layer that were right: its input as tokens_join makes it of a token and of
 * another one before it, without attention and experts. */
static int right_guesses(const struct tokens *t, double right)
{
    static float input[TRIES][NARROW], embed[TRIES][2 * NARROW], row[2 * NARROW];
    double kept = tokens_draft_kept(t, right), best[TRIES];
    int64_t chosen[TRIES];
    for (int i = 0; i < TRIES; i++) {
        tokens_embed(t, 3 + 7 * i, embed[i]);
        tokens_embed(t, 1 + 11 * i, embed[i] + NARROW);
        best[i] = -1e9;
    }
    for (int j = 0; j < NARROW; j++) {
        tokens_join(t, kept, j, row);
        for (int i = 0; i < TRIES; i++)
            input[i][j] = (float)product(row, embed[i], 2 * NARROW);
    }
    for (int64_t c = 0; c < t->n + SYNTH_SPECIAL; c++) {
        tokens_head(t, c, row);
        for (int i = 0; i < TRIES; i++) {
            double logit = product(row, input[i], NARROW);
            chosen[i] = logit > best[i] ? c : chosen[i];
            best[i] = logit > best[i] ? logit : best[i];
        }
    }
    int n = 0;
    for (int64_t i = 0; i < TRIES; i++) {
        assert_true(fabs(rms(input[i], NARROW) - 1) < 0.35);
        n += chosen[i] == ((3 + 7 * i) * t->back + 1) % t->n * t->step % t->n;
    }
    return n;
}

static void test_a_draft_layer_guesses_right_as_often_as_asked(void **state)
{
    (void)state;
    struct tokens t;
    struct err e;
    err_clear(&e);
    struct synth_shape narrow = *synth_shape_of("qwen35moe");
    narrow.embd = NARROW;
    assert_true(tokens_create(&t, &narrow, 4, 2048, 3, &e));
    static const struct {
        double right;
        int least, most; /* of TRIES */
    } shares[] = {{0, 0, 1}, {0.3, 20, 40}, {0.8, 70, 90}, {1, 100, 100}};
    double before = -1;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        double kept = tokens_draft_kept(&t, shares[i].right);
        assert_true(kept > before);
        before = kept;
        int n = right_guesses(&t, shares[i].right);
        print_message("%.1f: %d of %d\n", shares[i].right, n, TRIES);
        assert_in_range(n, shares[i].least, shares[i].most);
    }
    /* The more tokens there are, the more of it must arrive. */
    struct tokens more = t;
    more.n = 200000;
    assert_true(tokens_draft_kept(&more, 0.5) > tokens_draft_kept(&t, 0.5));
    tokens_free(&t);
}

static struct synth *create(const char *arch, int layers, int vocab, struct err *e)
{
    struct synth_options o = {.arch = arch,
                              .mix = "iq2xs",
                              .layers = layers,
                              .vocab = vocab,
                              .ngram_base = 20000000,
                              .seed = 1};
    return synth_create(&o, e);
}

/* Sizes of the whole releases: tensors as other-archs.md 2.1 counts them, and bytes of qwen4exp as
 * the script that it follows prints them. */
static void test_releases_have_their_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        int layers, vocab, tensors;
        double least_gb, most_gb;
    } releases[] = {{"qwen4exp", 48, 248320, 0, 69.4, 69.5},
                    {"qwen3moe", 48, 151936, 579, 8, 10},
                    {"qwen3next", 48, 151936, 843, 20, 27},
                    {"qwen35moe", 40, 248320, 733, 9, 13}};
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        struct err e;
        err_clear(&e);
        struct synth *s = create(releases[i].arch, releases[i].layers, releases[i].vocab, &e);
        if (!s)
            fail_msg("%s", e.text);
        double gb = (double)synth_bytes(s) * 1e-9;
        if (gb < releases[i].least_gb || gb > releases[i].most_gb)
            fail_msg("%s: %.3f GB", releases[i].arch, gb);
        synth_free(s);
        struct synth_list list = {0};
        struct synth_parts parts = {.shape = synth_shape_of(releases[i].arch),
                                    .layers = releases[i].layers,
                                    .vocab = releases[i].vocab,
                                    .ngram_rows = 128,
                                    .has_model = true};
        assert_true(synth_list_tensors(&parts, &list, &e));
        if (releases[i].tensors)
            assert_int_equal(list.n, releases[i].tensors);
        mem_free(list.tensor);
    }
}

/* Tensors of a file; freed by the caller. */
static struct synth_list list_of(const char *arch, bool has_model, bool has_draft)
{
    struct synth_list list = {0};
    struct err e;
    err_clear(&e);
    struct synth_parts parts = {.shape = synth_shape_of(arch),
                                .layers = 6,
                                .vocab = 2560,
                                .ngram_rows = 128,
                                .has_model = has_model,
                                .has_draft = has_draft};
    assert_true(synth_list_tensors(&parts, &list, &e));
    return list;
}

/* The first of that name; its shape has to be this one. */
static void assert_shape(const struct synth_list *list, const char *name, uint64_t n0, uint64_t n1,
                         uint64_t n2)
{
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->tensor[i].name, name)) {
            assert_int_equal(list->tensor[i].ne[0], n0);
            assert_int_equal(list->tensor[i].ne[1], n1);
            assert_int_equal(list->tensor[i].ne[2], n2);
            return;
        }
    fail_msg("%s is missing", name);
}

/* Tensors of the draft layer as the specifications count them, alone and behind a model's, which
 * stay what they are. */
static void test_a_draft_layer_has_its_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        int tensors;
    } archs[] = {{"qwen4exp", 32}, {"qwen3next", 20}, {"qwen35moe", 20}};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        const struct synth_shape *s = synth_shape_of(archs[i].arch);
        uint64_t d = (uint64_t)s->embd, streams = s->streams ? (uint64_t)s->streams : 1;
        struct synth_list plain = list_of(archs[i].arch, true, false);
        struct synth_list both = list_of(archs[i].arch, true, true);
        struct synth_list alone = list_of(archs[i].arch, false, true);
        assert_int_equal(alone.n, archs[i].tensors);
        assert_int_equal(both.n, plain.n + alone.n);
        for (int t = 0; t < both.n; t++) {
            const struct synth_tensor *own =
                t < plain.n ? &plain.tensor[t] : &alone.tensor[t - plain.n];
            assert_memory_equal(&both.tensor[t], own, sizeof *own);
            assert_int_equal(own->group == GROUP_DRAFT, t >= plain.n);
            assert_int_equal(!strncmp(own->name, "blk.6.", 6), t >= plain.n);
        }
        assert_shape(&alone, "blk.6.nextn.eh_proj.weight", 2 * d, d, 1);
        assert_shape(&alone, "blk.6.nextn.enorm.weight", d, 1, 1);
        assert_shape(&alone, "blk.6.nextn.hnorm.weight", streams * d, 1, 1);
        assert_shape(&alone,
                     s->streams ? "blk.6.nextn.hc_head_norm.weight"
                                : "blk.6.nextn.shared_head_norm.weight",
                     streams * d, 1, 1);
        assert_shape(&alone, "blk.6.attn_q.weight", d, (uint64_t)(2 * s->heads * s->head), 1);
        assert_shape(&alone, "blk.6.ffn_down_exps.weight", (uint64_t)s->width, d,
                     (uint64_t)s->experts);
        mem_free(plain.tensor);
        mem_free(both.tensor);
        mem_free(alone.tensor);
    }
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        int layers, vocab;
        const char *word;
    } bad[] = {{"llama", 8, 0, "--arch llama"},
               {"qwen4exp", 3, 0, "--layers 3"},
               {"qwen35moe", 41, 0, "--layers 41"},
               {"qwen4exp", 8, 2047, "--vocab 2047"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e;
        err_clear(&e);
        assert_null(create(bad[i].arch, bad[i].layers, bad[i].vocab, &e));
        if (!strstr(e.text, bad[i].word))
            fail_msg("'%s' lacks '%s'", e.text, bad[i].word);
    }
    struct err e;
    err_clear(&e);
    assert_null(synth_create(
        &(struct synth_options){
            .arch = "qwen3moe", .mix = "q8", .layers = 4, .ngram_base = 9, .mtp = SYNTH_MTP_IN},
        &e));
    assert_non_null(strstr(e.text, "qwen3moe have no draft layer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_blocks_have_the_deviation),
        cmocka_unit_test(test_encoded_values_come_back),
        cmocka_unit_test(test_the_head_answers_with_the_next_of_the_chain),
        cmocka_unit_test(test_a_draft_layer_guesses_right_as_often_as_asked),
        cmocka_unit_test(test_router_logits_have_their_parts),
        cmocka_unit_test(test_experts_are_chosen_as_in_published_traces),
        cmocka_unit_test(test_releases_have_their_tensors),
        cmocka_unit_test(test_a_draft_layer_has_its_tensors),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
