/* SPDX-License-Identifier: Apache-2.0 */
/* The first pass while weights are still being read: whatever of them comes last, it waits for it and
 * gives the same bits; who waits may be called off, and a model may be freed before it is read. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cpu/backend.h"
#include "model/arch.h"
#include "plain.h"

enum { TOKENS = 6, CTX = 64, VOCAB_MOST = 4096 };

/* A device to which nothing of one stage comes before it is let. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct weights *w;
    int stage;
    bool is_open, is_met, is_over; /* somebody stands before it; the pass is over */
    bool is_broken;                /* what stands before it does not come through */
    bool (*write)(struct backend *b, void *to, const void *host, size_t bytes, struct err *e);
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static int stage_at(const struct weights *w, size_t at)
{
    for (size_t i = 0; i < w->n_runs; i++)
        if (at >= w->runs[i].at && at - w->runs[i].at < w->runs[i].to - w->runs[i].from)
            return w->runs[i].stage;
    for (size_t i = 0; i < w->n_rest; i++) {
        const struct weight_request *q = w->rest[i];
        size_t bytes = q->matrix ? (size_t)q->rows * (size_t)(q->file->bytes / q->file->ne[1])
                                 : q->count * sizeof(float);
        if (at >= q->at && at - q->at < bytes)
            return q->stage;
    }
    return -1;
}

static bool write_when_let(struct backend *b, void *to, const void *host, size_t bytes, struct err *e)
{
    const char *block = gate.w->block;
    bool is_held = (char *)to >= block && (char *)to < block + gate.w->block_bytes &&
                   stage_at(gate.w, (size_t)((char *)to - block)) == gate.stage;
    pthread_mutex_lock(&gate.lock);
    while (is_held && !gate.is_open) {
        gate.is_met = true;
        pthread_cond_broadcast(&gate.change);
        pthread_cond_wait(&gate.change, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
    if (is_held && gate.is_broken)
        return err_set(e, ERR_IO, "a broken device");
    return gate.write(b, to, host, bytes, e);
}

static void stand_between(struct plain *p)
{
    gate.w = &p->model->weights;
    gate.stage = gate.stage < 0 ? gate.w->stages - 1 : gate.stage;
    gate.write = p->backend->write;
    gate.is_open = gate.is_met = gate.is_over = false;
    p->backend->host_visible = false;
    p->backend->write = write_when_let;
}

static void wait_until_met(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.is_met)
        pthread_cond_wait(&gate.change, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void open_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.is_open = true;
    pthread_cond_broadcast(&gate.change);
    pthread_mutex_unlock(&gate.lock);
}

/* Opens the gate when a pass has had ample time to be over without what is behind it. */
static void *open_late(void *unused)
{
    wait_until_met();
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&gate.lock);
        bool is_over = gate.is_over;
        pthread_mutex_unlock(&gate.lock);
        if (is_over)
            break;
    }
    open_gate();
    return NULL;
}

static struct {
    float values[TOKENS * VOCAB_MOST];
    int vocab;
} logits;

static bool take(void *ctx, int first, int rows, const float *values, struct err *e)
{
    (void)ctx;
    (void)e;
    memcpy(logits.values + (size_t)first * (size_t)logits.vocab, values,
           (size_t)rows * (size_t)logits.vocab * sizeof *values);
    return true;
}

static const char *path_of(const char *model)
{
    static char path[512];
    snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", model);
    return path;
}

static void open_plain(struct plain *p, const char *model)
{
    struct err e = {0};
    const struct plain_how how = {2, 64, 64, false, 64, cpu_isa_best()};
    if (!plain_open(p, path_of(model), &how, &e))
        fail_msg("%s", e.text);
}

static bool forward(struct plain *p, struct model_state *s, const atomic_bool *cancel, struct err *e)
{
    int32_t ids[TOKENS];
    struct expert_source experts = plain_experts(p);
    struct row_source rows = plain_rows(p);
    logits.vocab = model_info(p->model)->vocab;
    assert_true(logits.vocab <= VOCAB_MOST);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (7 + 31 * i) % logits.vocab;
    struct batch b = {.ids = ids, .rows = TOKENS, .is_band = true, .wanted = LOGITS_ALL,
                      .logits = take, .cancel = cancel};
    return model_forward(p->model, s, &b, &experts, &rows, e);
}

static void first_pass(struct plain *p)
{
    struct err e = {0};
    struct model_state *s = model_state_create(p->model, CTX, KV_F16, &e);
    if (!s || !forward(p, s, NULL, &e))
        fail_msg("%s", e.text);
    model_state_free(s);
}

static bool has_bytes(const struct weights *w, int stage)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->requests[i].stage == stage)
            return true;
    return false;
}

/* Whatever comes last: the pass waits for it. */
static void wait_for_stage(const char *model, int stage, const float *wanted)
{
    struct plain p;
    pthread_t opener;
    gate.stage = stage;
    plain_before_loading = stand_between;
    open_plain(&p, model);
    plain_before_loading = NULL;
    assert_int_equal(pthread_create(&opener, NULL, open_late, NULL), 0);
    first_pass(&p);
    pthread_mutex_lock(&gate.lock);
    bool was_open = gate.is_open;
    gate.is_over = true;
    pthread_mutex_unlock(&gate.lock);
    pthread_join(opener, NULL);
    if (!was_open)
        fail_msg("%s: the pass did not wait for stage %d", model, stage);
    assert_null(p.model->weights.loading);
    assert_memory_equal(logits.values, wanted, TOKENS * (size_t)logits.vocab * sizeof *wanted);
    plain_close(&p);
}

static void the_pass_waits_for_what_it_needs(void **state)
{
    static const char *const models[] = {"q4e_ngram", "q4e_fused", "q3m_mix", "q3m_tied", "q3n_legacy",
                                         "q35_fused"};
    static float wanted[TOKENS * VOCAB_MOST];
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct plain p;
        open_plain(&p, models[i]);
        struct err e = {0};
        if (!model_wait(p.model, NULL, &e))
            fail_msg("%s", e.text);
        first_pass(&p);
        memcpy(wanted, logits.values, sizeof wanted);
        int stages = p.model->weights.stages, tried = 0;
        bool has[64] = {false};
        assert_true(stages <= 64);
        for (int k = 0; k < stages; k++)
            has[k] = has_bytes(&p.model->weights, k);
        plain_close(&p);
        for (int k = 0; k < stages; k++)
            if (has[k]) {
                wait_for_stage(models[i], k, wanted);
                tried++;
            }
        assert_true(tried >= 3);
    }
}

/* Layer by layer, and the head is not there yet. */
static void layers_are_there_before_the_head(void **state)
{
    struct plain p;
    struct err e = {0};
    atomic_bool cancel;
    atomic_init(&cancel, false);
    gate.stage = -1; /* the last, see stand_between */
    plain_before_loading = stand_between;
    open_plain(&p, "q4e_ngram");
    plain_before_loading = NULL;
    struct weights *w = &p.model->weights;
    for (int i = 0; i < model_info(p.model)->layers; i++)
        assert_true(weights_wait(w, weights_stage_of_layer(i), &cancel, &e));
    assert_non_null(w->loading);
    atomic_store(&cancel, true); /* ends the pass, not the reading */
    struct model_state *s = model_state_create(p.model, CTX, KV_F16, &e);
    assert_false(forward(&p, s, &cancel, &e));
    assert_int_equal(e.code, ERR_INTERRUPTED);
    assert_false(model_wait(p.model, &cancel, &e));
    assert_int_equal(e.code, ERR_INTERRUPTED);
    open_gate();
    e = (struct err){0};
    assert_true(model_wait(p.model, NULL, &e));
    assert_null(w->loading);
    assert_true(model_waited_us(p.model) > 0);
    model_state_free(s);
    plain_close(&p);
}

/* In the pass, in who waits, in whoever comes afterwards. */
static void an_error_says_whose_weights_are_missing(void **state)
{
    gate.is_broken = true;
    for (int k = 0, stages = 1; k < stages; k++) {
        struct plain p;
        struct err e = {0}, again = {0};
        char wanted[64] = "weights before layer 0: a broken device";
        gate.stage = k;
        plain_before_loading = stand_between;
        open_plain(&p, "q4e_ngram");
        plain_before_loading = NULL;
        stages = p.model->weights.stages;
        if (k == stages - 1)
            snprintf(wanted, sizeof wanted, "weights of the head: a broken device");
        else if (k)
            snprintf(wanted, sizeof wanted, "weights of layer %d: a broken device", k - 1);
        open_gate();
        struct model_state *s = model_state_create(p.model, CTX, KV_F16, &e);
        assert_false(forward(&p, s, NULL, &e));
        assert_false(model_wait(p.model, NULL, &again));
        if (strcmp(e.text, wanted) || strcmp(again.text, wanted))
            fail_msg("stage %d: %s, then %s", k, e.text, again.text);
        model_state_free(s);
        plain_close(&p);
    }
    gate.is_broken = false;
}

static void it_can_be_freed_while_it_is_read(void **state)
{
    struct plain p;
    size_t before = mem_in_use();
    gate.stage = 1;
    plain_before_loading = stand_between;
    open_plain(&p, "q4e_ngram");
    plain_before_loading = NULL;
    wait_until_met();
    assert_non_null(p.model->weights.loading);
    open_gate();
    plain_close(&p);
    assert_int_equal(mem_in_use(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pass_waits_for_what_it_needs),
        cmocka_unit_test(layers_are_there_before_the_head),
        cmocka_unit_test(an_error_says_whose_weights_are_missing),
        cmocka_unit_test(it_can_be_freed_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
