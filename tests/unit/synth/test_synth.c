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
        tokens_router(&t, 0, i, row);
        logits[i] = (float)product(row, x, EMBD);
    }
    double all = sqrt(SYNTH_R_POPULAR * SYNTH_R_POPULAR + SYNTH_R_TOPIC * SYNTH_R_TOPIC +
                      SYNTH_R_NOISE * SYNTH_R_NOISE);
    assert_true(rms(logits, EXPERTS) > 0.6 * all && rms(logits, EXPERTS) < 1.6 * all);
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
        assert_true(synth_list_tensors(synth_shape_of(releases[i].arch), 0, releases[i].layers,
                                       releases[i].vocab, 128, &list, &e));
        if (releases[i].tensors)
            assert_int_equal(list.n, releases[i].tensors);
        mem_free(list.tensor);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_blocks_have_the_deviation),
        cmocka_unit_test(test_encoded_values_come_back),
        cmocka_unit_test(test_the_head_answers_with_the_next_of_the_chain),
        cmocka_unit_test(test_router_logits_have_their_parts),
        cmocka_unit_test(test_releases_have_their_tensors),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
