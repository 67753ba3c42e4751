/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass against the golden models: logits, greedy continuation, and the same bits
 * however the rows are cut and the experts arrive. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../check/npy.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "plain.h"

static const char *const models[] = {"q4e_plain", "q4e_sparse", "q4e_ngram", "q4e_odd", "q4e_fused",
                                     "q3m_plain", "q3m_tied", "q3m_yarn", "q3n_plain", "q3n_legacy",
                                     "q35_plain", "q35_fused",
                                     /* quantized: float32 activations against `logits` */
                                     "q3m_mix", "q3n_q8", "q35_q4km"};
#define MODELS (sizeof models / sizeof *models)
#ifdef __SANITIZE_THREAD__
enum { MODELS_STEP = 2 }; /* it is so slow, and more models show it no other threads */
#else
enum { MODELS_STEP = 1 };
#endif

struct logits {
    float *values; /* [rows][vocab] of all rows so far */
    int vocab, at;
};

static bool take(void *ctx, int first, int rows, const float *values, struct err *e)
{
    (void)e;
    struct logits *l = ctx;
    memcpy(l->values + (size_t)(l->at + first) * (size_t)l->vocab, values,
           (size_t)rows * (size_t)l->vocab * sizeof(float));
    return true;
}

/* Feeds n ids in pieces of `piece` and keeps the logits of all rows. */
static void feed(struct plain *p, struct model_state *s, const int32_t *ids, int n, int piece,
                 bool is_band, struct logits *l)
{
    struct err e = {0};
    struct expert_source x = plain_experts(p);
    struct row_source r = plain_rows(p);
    l->at = 0;
    for (int at = 0; at < n; at += piece) {
        int rows = n - at < piece ? n - at : piece;
        struct batch b = {.ids = ids + at, .rows = rows, .is_band = is_band, .wanted = LOGITS_ALL,
                          .logits = take, .logits_ctx = l};
        if (!model_forward(p->model, s, &b, &x, &r, &e))
            fail_msg("%s", e.text);
        l->at += rows;
    }
}

static struct json_doc *read_case(const char *name)
{
    char path[512];
    struct err e = {0};
    size_t n;
    snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.json", name);
    char *text = file_read_all(path, 1 << 22, &n, &e);
    struct json_doc *d = text ? json_parse(text, n, path, &e) : NULL;
    if (!d)
        fail_msg("%s", e.text);
    mem_free(text);
    return d;
}

static int ints(const struct json *list, int32_t *out)
{
    for (size_t i = 0; list && i < list->count; i++) {
        int64_t v;
        assert_true(json_i64(&list->items[i], &v));
        out[i] = (int32_t)v;
    }
    return list ? (int)list->count : 0;
}

static int best(const float *x, int n)
{
    int b = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[b])
            b = i;
    return b;
}

static void check_prompt(struct plain *p, const struct json *root, const struct json *prompt)
{
    char path[512];
    struct err e = {0};
    int32_t ids[512], positions[512], greedy[64];
    double tolerance, most;
    int n = ints(json_get(prompt, "tokens"), ids);
    int n_positions = ints(json_get(prompt, "positions"), positions);
    int n_greedy = ints(json_get(prompt, "greedy"), greedy);
    json_f64(json_get(json_get(root, "tolerance"), "value"), &tolerance);
    json_f64(json_get(prompt, "max_abs_logit"), &most);
    int vocab = model_info(p->model)->vocab;
    struct npy_file gold;
    snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s", json_get(prompt, "logits")->text);
    if (!npy_open(&gold, path, &e))
        fail_msg("%s", e.text);
    const float *want = gold.members[0].array.data;

    struct logits l = {.vocab = vocab};
    l.values = calloc((size_t)n * (size_t)vocab, sizeof(float));
    struct model_state *s = model_state_create(p->model, 1024, KV_F32, &e);
    assert_non_null(s);
    feed(p, s, ids, n, n, true, &l);
    double worst = 0;
    for (int i = 0; i < n_positions; i++)
        for (int v = 0; v < vocab; v++) {
            float got = l.values[(size_t)positions[i] * (size_t)vocab + (size_t)v];
            worst = fmax(worst, fabs(got - (double)want[i * vocab + v]));
        }
    print_message("%s: largest difference %.2g, allowed %.2g\n",
                  json_get(prompt, "logits")->text, worst, tolerance * most);
    assert_true(worst <= tolerance * most);
    struct logits step = {.vocab = vocab, .values = calloc((size_t)vocab, sizeof(float))};
    int32_t id = best(l.values + (size_t)(n - 1) * (size_t)vocab, vocab);
    for (int i = 0; i < n_greedy; i++) {
        assert_int_equal(id, greedy[i]);
        feed(p, s, &id, 1, 1, false, &step);
        id = best(step.values, vocab);
    }
    free(step.values);
    free(l.values);
    model_state_free(s);
    npy_close(&gold);
}

static void logits_and_greedy_ids_are_golden(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m += MODELS_STEP) {
        char path[512];
        struct err e = {0};
        struct plain p;
        struct json_doc *d = read_case(models[m]);
        snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", models[m]);
        if (!plain_open(&p, path, &(struct plain_how){2, 256, 64, true, 3, cpu_isa_best()}, &e))
            fail_msg("%s", e.text);
        const struct json *prompts = json_get(json_root(d), "prompts");
        for (size_t i = 0; i < prompts->count; i++)
            check_prompt(&p, json_root(d), &prompts->items[i]);
        plain_close(&p);
        json_free(d);
    }
}

/* Ways to run the same ids; where the machine lacks an instruction set its lines are left out. */
static const struct way {
    struct plain_how how;
    int piece;
    bool is_band;
} ways[] = {
    {{1, 256, 256, false, 64, CPU_ISA_C}, 160, true},
    {{2, 5, 4, false, 64, CPU_ISA_C}, 5, false},
    {{2, 256, 64, false, 1, CPU_ISA_AVX2}, 160, true},
    {{1, 1, 1, false, 64, CPU_ISA_AVX2}, 1, false},
    {{2, 200, 7, false, 2, CPU_ISA_AVX2}, 200, true},
    {{2, 256, 64, false, 1, CPU_ISA_AVX512_PLAIN}, 160, true},
    {{2, 64, 3, false, 5, CPU_ISA_AVX512_PLAIN}, 64, true},
    {{1, 1, 1, false, 64, CPU_ISA_AVX512_PLAIN}, 1, false},
    {{2, 256, 64, false, 1, CPU_ISA_AVX512}, 160, true},
    {{3, 3, 1, false, 2, CPU_ISA_AVX512}, 3, true},
    {{2, 8, 8, false, 1, CPU_ISA_AVX512}, 8, false},
    {{1, 1, 1, false, 64, CPU_ISA_AVX512}, 1, false},
    {{2, 256, 64, false, 1, CPU_ISA_NEON_PLAIN}, 160, true},
    {{1, 1, 1, false, 64, CPU_ISA_NEON_PLAIN}, 1, false},
    {{2, 256, 64, false, 1, CPU_ISA_NEON}, 160, true},
    {{2, 8, 3, false, 1, CPU_ISA_NEON}, 8, false},
    {{1, 1, 1, false, 64, CPU_ISA_NEON}, 1, false},
};
#define WAYS (sizeof ways / sizeof *ways)

/* The logits of all n ids, run in one way. */
static float *run(const char *model, const struct way *way, bool exact, const int32_t *ids, int n,
                  size_t *count)
{
    char path[512];
    struct err e = {0};
    struct plain p;
    struct plain_how how = way->how;
    how.exact = exact;
    snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", model);
    if (!plain_open(&p, path, &how, &e))
        fail_msg("%s", e.text);
    struct logits l = {.vocab = model_info(p.model)->vocab};
    *count = (size_t)n * (size_t)l.vocab;
    l.values = calloc(*count, sizeof(float));
    struct model_state *s = model_state_create(p.model, 1024, KV_F16, &e);
    assert_non_null(s);
    feed(&p, s, ids, n, way->piece, way->is_band, &l);
    model_state_free(s);
    plain_close(&p);
    return l.values;
}

static void compare_ways(const char *model, bool exact, const int32_t *ids, int n)
{
    size_t count, same_count;
    float *first = run(model, &ways[0], exact, ids, n, &count);
    for (size_t w = 1; w < WAYS; w++) {
        const struct plain_how *h = &ways[w].how;
        if (!cpu_isa_available(h->isa))
            continue;
        float *other = run(model, &ways[w], exact, ids, n, &same_count);
        if (same_count != count || memcmp(first, other, count * sizeof(float)))
            fail_msg("%s: other bits with %s, threads %d, band %d, tile %d, pieces of %d%s", model,
                     cpu_isa_name(h->isa), h->threads, h->band, h->tile, ways[w].piece,
                     exact ? ", exact activations" : "");
        free(other);
    }
    free(first);
}

static void bits_do_not_depend_on_cuts_threads_arrival_or_instruction_set(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODELS; m += MODELS_STEP) {
        int32_t ids[512];
        struct json_doc *d = read_case(models[m]);
        const struct json *prompts = json_get(json_root(d), "prompts");
        int n = ints(json_get(json_get(prompts, "long"), "tokens"), ids);
        compare_ways(models[m], false, ids, n);
        n = ints(json_get(json_get(prompts, "text"), "tokens"), ids);
        compare_ways(models[m], true, ids, n);
        json_free(d);
    }
}

static void rewind_model(const char *model)
{
    char path[512];
    struct plain p;
    struct err e = {0};
    int32_t ids[512];
    struct json_doc *d = read_case(model);
    int n = ints(json_get(json_get(json_get(json_root(d), "prompts"), "long"), "tokens"), ids);
    snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", model);
    const struct plain_how how = {2, 256, 64, false, 64, cpu_isa_best()};
    assert_true(plain_open(&p, path, &how, &e));
    int vocab = model_info(p.model)->vocab, cut = 37;
    size_t tail = (size_t)(n - cut) * (size_t)vocab * sizeof(float);
    struct logits a = {.vocab = vocab, .values = calloc((size_t)n * (size_t)vocab, sizeof(float))};
    struct logits b = {.vocab = vocab, .values = calloc((size_t)n * (size_t)vocab, sizeof(float))};
    struct model_state *s = model_state_create(p.model, 512, KV_F16, &e);
    void *snapshot = malloc(model_state_fixed_bytes(p.model) + 1); /* may be nothing */
    feed(&p, s, ids, cut, cut, true, &a);
    assert_true(model_state_snapshot(s, snapshot, &e));
    feed(&p, s, ids + cut, n - cut, 50, true, &a);
    feed(&p, s, ids, 20, 20, true, &b); /* something else */
    assert_true(model_state_rewind(s, snapshot, cut, &e));
    feed(&p, s, ids + cut, n - cut, 7, false, &b);
    assert_memory_equal(a.values, b.values, tail);
    assert_true(model_state_reset(s, &e));
    feed(&p, s, ids, n, n, true, &b);
    assert_memory_equal(a.values, b.values + (size_t)cut * (size_t)vocab, tail);
    free(snapshot);
    free(a.values);
    free(b.values);
    model_state_free(s);
    plain_close(&p);
    json_free(d);
}

static void a_state_can_be_rewound_to_a_snapshot(void **state)
{
    (void)state;
    static const char *const one_each[] = {"q4e_ngram", "q3m_plain", "q3n_legacy", "q35_plain"};
    for (size_t m = 0; m < sizeof one_each / sizeof *one_each; m++)
        rewind_model(one_each[m]);
}

/* Every item of two states at the same position has the same bytes. */
static void assert_same_state(const struct model_state *a, const struct model_state *b)
{
    assert_int_equal(a->position, b->position);
    assert_int_equal(a->n_items, b->n_items);
    assert_memory_equal(a->ids, b->ids, (size_t)a->position * sizeof *a->ids);
    for (int i = 0; i < a->n_items; i++) {
        struct err e = {0};
        size_t bytes = state_item_bytes(a, &a->items[i]);
        char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
        assert_true(model_state_read_item(a, i, x, &e) && model_state_read_item(b, i, y, &e));
        if (memcmp(x, y, bytes))
            fail_msg("%s differs at position %d", a->items[i].name, a->position);
        free(x);
        free(y);
    }
}

/* Windows of 1 to 8 rows, of which a part is true and the rest is nonsense that is rejected. */
static void rejected_rows_of_a_window_leave_no_trace(void **state)
{
    (void)state;
    enum { PROMPT = 11, MOST = 8 };
    for (size_t m = 0; m < MODELS; m += MODELS_STEP) {
        char path[512];
        struct err e = {0};
        struct plain p;
        int32_t ids[512], window[MOST];
        struct json_doc *d = read_case(models[m]);
        int n = ints(json_get(json_get(json_get(json_root(d), "prompts"), "long"), "tokens"), ids);
        snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", models[m]);
        struct plain_how how = {.threads = 2, .band = 256, .tile = 64, .at_once = 3, .isa = cpu_isa_best()};
        if (!plain_open(&p, path, &how, &e))
            fail_msg("%s", e.text);
        int vocab = model_info(p.model)->vocab;
        size_t row = (size_t)vocab * sizeof(float);
        struct logits want = {.vocab = vocab, .values = calloc((size_t)n, row)};
        struct logits got = {.vocab = vocab, .values = calloc((size_t)(n + MOST), row)};
        struct model_state *a = model_state_create(p.model, 512, KV_F16, &e);
        struct model_state *b = model_state_create(p.model, 512, KV_F16, &e);
        assert_true(a && b);
        feed(&p, a, ids, PROMPT, PROMPT, true, &want);
        feed(&p, b, ids, PROMPT, PROMPT, true, &got);
        struct expert_source x = plain_experts(&p);
        struct row_source r = plain_rows(&p);
        uint32_t random = 7;
        for (int at = PROMPT; at < n;) {
            random = random * 1664525 + 1013904223;
            int rows = 1 + (int)(random >> 8) % MOST, kept = 1 + (int)(random >> 16) % rows;
            kept = kept < n - at ? kept : n - at;
            for (int i = 0; i < rows; i++)
                window[i] = i < kept ? ids[at + i] : (int32_t)((random >> 5) + (uint32_t)i * 17) % vocab;
            struct batch held = {.ids = window, .rows = rows, .is_held = true, .wanted = LOGITS_ALL,
                                 .logits = take, .logits_ctx = &got};
            got.at = at;
            if (!model_forward(p.model, b, &held, &x, &r, &e) || b->position != at ||
                !model_commit(p.model, b, kept, &e))
                fail_msg("%s", e.text);
            feed(&p, a, ids + at, kept, 1, false,
                 &(struct logits){want.values + (size_t)at * (size_t)vocab, vocab, 0});
            assert_memory_equal(want.values + (size_t)at * (size_t)vocab,
                                got.values + (size_t)at * (size_t)vocab, (size_t)kept * row);
            assert_same_state(a, b);
            at += kept;
        }
        free(want.values);
        free(got.values);
        model_state_free(a);
        model_state_free(b);
        plain_close(&p);
        json_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_greedy_ids_are_golden),
        cmocka_unit_test(bits_do_not_depend_on_cuts_threads_arrival_or_instruction_set),
        cmocka_unit_test(rejected_rows_of_a_window_leave_no_trace),
        cmocka_unit_test(a_state_can_be_rewound_to_a_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
