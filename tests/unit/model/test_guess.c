/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses at later layers: the routers of the next layer and of the one after it, applied to this
 * layer's router input, and nothing else changes by being asked for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plain.h"

#define MODEL TEST_DATA "/fixtures/models/q4e_plain.gguf"
enum { LAYERS = 4, EMBD = 48, EXPERTS = 10, USED = 3, ROWS = 11, NEAR = 4, FAR = 6, SHOWN = 32 };

struct watch {
    struct plain *p;
    struct expert_source inner;
    float in[ROWS][EMBD]; /* of the routers of the layer under way */
    int layer, rows;
    bool may_guess; /* the layer's turn has begun and nobody waits yet */
    int near[LAYERS], far[LAYERS]; /* guesses made in each layer */
};

static void keep_input(void *ctx, const char *name, enum dump_type type, const void *host, int rows,
                       int n_dims, const int *dims)
{
    struct watch *w = ctx;
    char *rest;
    int layer = (int)strtol(name, &rest, 10);
    if (strcmp(rest, ".ffn_in") != 0)
        return;
    assert_true(type == DUMP_F32 && n_dims == 1 && dims[0] == EMBD);
    w->rows = layer == w->layer ? w->rows : 0;
    w->layer = layer;
    assert_true(w->rows + rows <= ROWS);
    memcpy(w->in[w->rows], host, (size_t)rows * sizeof w->in[0]);
    w->rows += rows;
}

static bool watch_begin(void *ctx, const struct routing *r, struct err *e)
{
    struct watch *w = ctx;
    w->may_guess = true;
    return w->inner.begin(w->inner.ctx, r, e);
}

static int watch_next(void *ctx, struct expert_record *out, int most, struct err *e)
{
    struct watch *w = ctx;
    w->may_guess = false;
    return w->inner.next(w->inner.ctx, out, most, e);
}

static void watch_end(void *ctx)
{
    struct watch *w = ctx;
    w->inner.end(w->inner.ctx);
}

static int near_ranks(void *ctx, int layer, bool is_band)
{
    (void)ctx, (void)is_band;
    assert_true(layer >= 1 && layer < LAYERS);
    return NEAR;
}

static int far_ranks(void *ctx, int layer, bool is_band)
{
    (void)ctx, (void)is_band;
    assert_true(layer >= 2 && layer < LAYERS);
    return FAR;
}

/* Experts of the layer, by the products of its router with the row, largest first. */
static void rank_experts(const struct watch *w, int layer, int row, int32_t out[EXPERTS])
{
    char name[64];
    double product[EXPERTS];
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    const struct gguf_tensor *t = gguf_tensor_find(w->p->file, name);
    assert_true(t && t->type == 0 && t->ne[0] == EMBD && t->ne[1] == EXPERTS);
    for (int x = 0; x < EXPERTS; x++) {
        float weight[EMBD];
        memcpy(weight, w->p->data + t->offset + (size_t)x * sizeof weight, sizeof weight);
        product[x] = 0;
        for (int i = 0; i < EMBD; i++)
            product[x] += (double)weight[i] * (double)w->in[row][i];
    }
    for (int i = 0; i < EXPERTS; i++) {
        int best = -1;
        for (int x = 0; x < EXPERTS; x++) {
            bool is_used = false;
            for (int j = 0; j < i; j++)
                is_used = is_used || out[j] == x;
            if (!is_used && (best < 0 || product[x] > product[best]))
                best = x;
        }
        out[i] = best;
    }
}

static void check_guess(void *ctx, const struct guess *g)
{
    struct watch *w = ctx;
    bool is_far = g->layer == w->layer + 2;
    assert_true(is_far || g->layer == w->layer + 1);
    assert_true(w->may_guess); /* its reads are queued before this layer's are waited for */
    assert_int_equal(g->rows, w->rows);
    assert_int_equal(g->ranks, g->is_band ? USED : is_far ? FAR : NEAR);
    if (is_far) /* the nearer one comes first */
        assert_int_equal(w->near[w->layer], w->far[w->layer] + 1);
    for (int row = 0; row < g->rows; row++) {
        int32_t want[EXPERTS];
        rank_experts(w, g->layer, row, want);
        for (int i = 0; i < g->ranks; i++)
            assert_int_equal(g->ids[row * g->ranks + i], want[i]);
        for (int i = 1; i < g->ranks; i++)
            assert_true(g->weights[row * g->ranks + i] <= g->weights[row * g->ranks + i - 1]);
    }
    (is_far ? w->far : w->near)[w->layer]++;
}

static bool take(void *ctx, int first, int rows, const float *values, struct err *e)
{
    (void)first, (void)e;
    assert_int_equal(rows, 1);
    memcpy(ctx, values, SHOWN * sizeof(float));
    return true;
}

/* One pass of a band or a window; the first SHOWN logits of its last row. */
static void pass(int rows, bool is_band, bool asks, float *logits, struct watch *w)
{
    struct err e = {0};
    struct plain p;
    int32_t ids[ROWS];
    if (!plain_open(&p, MODEL, &(struct plain_how){2, ROWS, 4, true, 3, cpu_isa_best()}, &e))
        fail_msg("%s", e.text);
    const struct model_info *info = model_info(p.model);
    assert_true(info->layers == LAYERS && info->experts == EXPERTS && info->experts_used == USED);
    for (int i = 0; i < rows; i++)
        ids[i] = (7 * i + 3) % info->vocab;
    *w = (struct watch){.p = &p, .inner = plain_experts(&p), .layer = -1};
    struct expert_source watched = {.ctx = w,
                                    .begin = watch_begin,
                                    .next = watch_next,
                                    .end = watch_end,
                                    .guess_ranks = near_ranks,
                                    .guess = check_guess,
                                    .far_ranks = far_ranks};
    struct row_source table = plain_rows(&p);
    struct dump_sink sink = {w, keep_input};
    struct batch b = {.ids = ids,
                      .rows = rows,
                      .is_band = is_band,
                      .wanted = LOGITS_LAST,
                      .logits = take,
                      .logits_ctx = logits,
                      .dump = asks ? &sink : NULL};
    struct model_state *s = model_state_create(p.model, 64, KV_F32, &e);
    assert_non_null(s);
    if (!model_forward(p.model, s, &b, asks ? &watched : &w->inner, &table, &e))
        fail_msg("%s", e.text);
    model_state_free(s);
    plain_close(&p);
}

static void guesses_are_the_later_routers_on_the_same_input(void **state)
{
    (void)state;
    static const struct {
        int rows;
        bool is_band;
    } passes[] = {{1, false}, {3, false}, {8, false}, {ROWS, true}}; /* tiles of 4 */
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        float asked[SHOWN], plain[SHOWN];
        struct watch w;
        pass(passes[i].rows, passes[i].is_band, false, plain, &w);
        pass(passes[i].rows, passes[i].is_band, true, asked, &w);
        for (int l = 0; l < LAYERS; l++) {
            assert_int_equal(w.near[l], l + 1 < LAYERS);
            assert_int_equal(w.far[l], l + 2 < LAYERS);
        }
        assert_memory_equal(asked, plain, sizeof plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_are_the_later_routers_on_the_same_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
