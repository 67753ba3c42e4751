/* SPDX-License-Identifier: Apache-2.0 */
/* A band that is cancelled at any moment ends after the operations of a tile or two, however many
 * tiles it has, and leaves the working memory fit for the next pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plain.h"

#define MODEL(name) TEST_DATA "/fixtures/models/" name ".gguf"
enum { ROWS = 120, TILE = 2, SHOWN = 32, AFTER_MOST = 24 };

/* The flag is raised in the operation number `at`; `after` counts those that follow. */
static struct backend whole;
static int calls, at, after;
static atomic_bool cancel;

static void note(void)
{
    calls++;
    after += atomic_load(&cancel);
    if (calls == at)
        atomic_store(&cancel, true);
}

static void noted_linear(struct backend *b, const float *x, int rows, int n_in,
                         const struct product *p, int n_products)
{
    note();
    whole.linear(b, x, rows, n_in, p, n_products);
}

static void noted_norm(struct backend *b, const float *x, const float *w, int w_groups, int count,
                       int n, float eps, float *out)
{
    note();
    whole.norm(b, x, w, w_groups, count, n, eps, out);
}

static void noted_shared(struct backend *b, const float *x, int rows, int n_embd,
                         const struct tensor *gate, const struct tensor *up,
                         const struct tensor *down, const struct tensor *scale, float *out)
{
    note();
    whole.shared_expert(b, x, rows, n_embd, gate, up, down, scale, out);
}

static void noted_experts(struct backend *b, const float *x, int n_embd,
                          const struct expert_job *jobs, int n_jobs, int64_t *sum)
{
    note();
    whole.experts(b, x, n_embd, jobs, n_jobs, sum);
}

static void noted_routed(struct backend *b, int64_t *sum, size_t count, float *out)
{
    note();
    whole.routed(b, sum, count, out);
}

static bool take(void *ctx, int first, int rows, const float *values, struct err *e)
{
    (void)first, (void)rows, (void)e;
    memcpy(ctx, values, SHOWN * sizeof(float));
    return true;
}

/* A prompt of one band from an empty state. */
static bool pass(struct plain *p, float *logits, struct err *e)
{
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++)
        ids[i] = (7 * i + 3) % model_info(p->model)->vocab;
    struct expert_source x = plain_experts(p);
    struct row_source r = plain_rows(p);
    struct batch b = {.ids = ids, .rows = ROWS, .is_band = true, .wanted = LOGITS_LAST, .logits = take,
                      .logits_ctx = logits, .cancel = &cancel};
    struct model_state *s = model_state_create(p->model, ROWS, KV_F32, e);
    bool ok = s && model_forward(p->model, s, &b, &x, &r, e);
    model_state_free(s);
    return ok;
}

static void a_cancelled_band_ends_after_a_tile(void **state)
{
    static const char *const models[] = {MODEL("q4e_ngram"), MODEL("q3n_plain"), MODEL("q3m_plain")};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct err e = {0};
        struct plain p;
        float want[SHOWN], got[SHOWN];
        int most = 0;
        if (!plain_open(&p, models[m], &(struct plain_how){1, ROWS, TILE, true, 3, cpu_isa_best()}, &e))
            fail_msg("%s", e.text);
        whole = *p.backend;
        p.backend->linear = noted_linear;
        p.backend->norm = noted_norm;
        p.backend->shared_expert = noted_shared;
        p.backend->experts = noted_experts;
        p.backend->routed = noted_routed;
        calls = at = 0;
        assert_true(pass(&p, want, &e));
        int all = calls;
        assert_true(all > 20 * AFTER_MOST);
        for (int moment = 1; moment < all; moment += 1 + all / 61) {
            calls = after = 0;
            at = moment;
            assert_false(pass(&p, got, &e));
            assert_int_equal(e.code, ERR_INTERRUPTED);
            err_clear(&e);
            atomic_store(&cancel, false);
            most = after > most ? after : most;
        }
        print_message("%s: %d operations, at most %d after the wish\n", models[m], all, most);
        assert_in_range(most, 0, AFTER_MOST);
        at = 0;
        assert_true(pass(&p, got, &e));
        assert_memory_equal(got, want, sizeof want);
        plain_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_band_ends_after_a_tile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
