/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is refused for, in words that name it; keys that mean nothing; memory that runs out
 * while a model is opened and loaded. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../gguf/folder.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "changed.h"
#include "cpu/backend.h"
#include "plain.h"

#define CHANGES 3

static struct test_folder folder;

static int begin(void **state)
{
    test_folder_begin(&folder);
    return 0;
}

static int end(void **state)
{
    test_folder_end(&folder);
    return 0;
}

/* ---- refusals ------------------------------------------------------------------------------- */

static const struct refusal {
    const char *model;
    struct change changes[CHANGES];
    const char *words[2]; /* both stand in the message */
} refusals[] = {
    {"q3m_plain",
     {TEXT("general.architecture", "qwen9")},
     {"\"qwen9\" is not supported", "qwen4exp, qwen3moe, qwen3next, qwen35moe"}},
    {"q3m_plain", {TEXT("general.type", "adapter")}, {"general.type", "\"adapter\""}},
    {"q3m_plain", {NO_KEY("general.architecture")}, {"general.architecture", "missing"}},

    {"q3m_plain", {NO_KEY("qwen3moe.block_count")}, {"qwen3moe.block_count", "missing"}},
    {"q3m_plain", {NO_KEY("qwen3moe.context_length")}, {"qwen3moe.context_length", "missing"}},
    {"q3m_plain",
     {NO_KEY("qwen3moe.attention.layer_norm_rms_epsilon")},
     {"qwen3moe.attention.layer_norm_rms_epsilon", "missing"}},
    {"q3m_plain", {NO_KEY("qwen3moe.attention.head_count")}, {"attention.head_count", "missing"}},
    {"q3m_plain", {NO_KEY("qwen3moe.expert_count")}, {"qwen3moe.expert_count", "missing"}},
    {"q3m_plain", {NO_KEY("qwen3moe.expert_used_count")}, {"expert_used_count", "missing"}},
    {"q35_plain", {NO_KEY("qwen35moe.rope.dimension_sections")}, {"dimension_sections", "missing"}},
    {"q35_plain", {NO_KEY("qwen35moe.ssm.state_size")}, {"qwen35moe.ssm.state_size", "missing"}},
    {"q4e_plain", {NO_KEY("qwen4exp.rope.freq_base")}, {"qwen4exp.rope.freq_base", "missing"}},
    {"q4e_ngram", {NO_KEY("qwen4exp.ple.head_offsets")}, {"ple.head_offsets", "missing"}},

    {"q3m_yarn",
     {TEXT("qwen3moe.rope.scaling.type", "longrope")},
     {"qwen3moe.rope.scaling.type", "\"longrope\" is not supported (known: none, linear, yarn)"}},
    {"q3n_plain",
     {TEXT("qwen3next.rope.scaling.type", "\x1b[2J")},
     {"rope.scaling.type", "\\x1b[2J"}},
    {"q3m_yarn", {FLOAT("qwen3moe.rope.scaling.factor", -2)}, {"rope.scaling.factor", "-2"}},
    {"q4e_plain", {FLOAT("qwen4exp.rope.scaling.factor", 4)}, {"rope.scaling.type", "linear"}},
    {"q4e_plain", {TEXT("qwen4exp.rope.scaling.type", "yarn")}, {"rope.scaling.type", "yarn"}},
    {"q35_plain",
     {INTS("qwen35moe.rope.dimension_sections", 1, 0, 0, 9)},
     {"dimension_sections", "1, 0, 0, 9"}},
    {"q35_plain", {INTS("qwen35moe.rope.dimension_sections", 0)}, {"dimension_sections", "0, 0"}},
    {"q35_plain",
     {INTS("qwen35moe.rope.dimension_sections", -1, 4, 4, 4)},
     {"dimension_sections", "-1"}},
    {"q4e_plain",
     {INTS("qwen4exp.rope.dimension_sections", 0, 0, 0, 4)},
     {"dimension_sections", "0, 0, 0, 4"}},
    {"q3m_plain", {NUMBER("qwen3moe.rope.dimension_count", 2)}, {"rope.dimension_count", "2"}},
    {"q3n_plain", {NUMBER("qwen3next.rope.dimension_count", 3)}, {"rope.dimension_count", "3"}},
    {"q3n_plain",
     {NUMBER("qwen3next.rope.dimension_count", 4096)},
     {"rope.dimension_count", "4096"}},

    {"q3n_plain", {NUMBER("qwen3next.ssm.inner_size", 8)}, {"ssm.inner_size", "8"}},
    {"q35_plain", {NUMBER("qwen35moe.ssm.inner_size", 8)}, {"ssm.inner_size", "8"}},
    {"q4e_plain", {NUMBER("qwen4exp.ssm.inner_size", 8)}, {"ssm.inner_size", "8"}},
    {"q3n_legacy",
     {NUMBER("qwen3next.ssm.group_count", 2)},
     {"ssm.time_step_rank", "not a multiple of 2"}},
    {"q3n_plain", {NUMBER("qwen3next.ssm.conv_kernel", 1000)}, {"ssm.conv_kernel", "1000"}},
    {"q3n_plain", {NUMBER("qwen3next.nextn_predict_layers", 4)}, {"nextn_predict_layers", "4"}},
    {"q3n_plain",
     {NUMBER("qwen3next.full_attention_interval", 0)},
     {"full_attention_interval", "0"}},
    {"q3n_plain",
     {INTS("qwen3next.attention.recurrent_layers", 1, 1, 1, 2)},
     {"attention.recurrent_layers", "2"}},
    {"q3m_plain", {NUMBER("qwen3moe.attention.head_count_kv", 5)}, {"head_count", "5"}},
    {"q3m_plain", {NUMBER("qwen3moe.attention.head_count_kv", 0)}, {"head_count", "0"}},
    {"q3m_plain", {NUMBER("qwen3moe.attention.value_length", 2)}, {"attention.value_length", "2"}},
    {"q3m_plain", {NUMBER("qwen3moe.expert_used_count", 1000)}, {"expert_used_count", "1000"}},
    {"q3m_plain", {NUMBER("qwen3moe.expert_count", 1 << 20)}, {"expert_count", "1048576"}},
    {"q3m_plain", {NUMBER("qwen3moe.block_count", 0)}, {"block_count", "0"}},
    {"q3m_plain", {NUMBER("qwen3moe.block_count", 1u << 31)}, {"block_count", "2147483648"}},
    {"q3m_plain",
     {NUMBER("qwen3moe.embedding_length", 4294967295)},
     {"embedding_length", "4294967295"}},
    {"q3m_plain",
     {NUMBER("qwen3moe.context_length", 4294967295)},
     {"context_length", "4294967295"}},
    {"q3m_plain", {FLOAT("qwen3moe.attention.layer_norm_rms_epsilon", 0)}, {"rms_epsilon", "0"}},
    {"q3m_plain",
     {NO_KEY("qwen3moe.expert_feed_forward_length"), NO_KEY("qwen3moe.feed_forward_length")},
     {"feed_forward_length", "missing"}},
    {"q4e_sparse", {NUMBER("qwen4exp.attention.indexer.top_k", 18)}, {"indexer.top_k", "18"}},
    {"q4e_sparse",
     {NUMBER("qwen4exp.attention.indexer.key_length", 2)},
     {"indexer.key_length", "2"}},
    {"q4e_sparse",
     {INTS("qwen4exp.attention.compress_ratios", 0, -4, 0, 4)},
     {"compress_ratios", "-4"}},
    {"q4e_ngram", {NUMBER("qwen4exp.ple.layers", 400)}, {"ple.layers", "400"}},
    {"q4e_ngram", {INTS("qwen4exp.ple.layers", 0, 1, 2, 3)}, {"ple.layers", "4"}},
    {"q4e_ngram", {NUMBER("qwen4exp.ple.heads_per_ngram", 3)}, {"ple.heads_per_ngram", "heads of"}},
    {"q4e_ngram", {NUMBER("qwen4exp.hyper_connection.count", 1)}, {"hyper_connection.count", "1"}},

    {"q3m_plain", {NO_TENSOR("token_embd.weight")}, {"\"token_embd.weight\"", "missing"}},
    {"q3m_plain",
     {NO_TENSOR("blk.1.ffn_down_exps.weight")},
     {"\"blk.1.ffn_down_exps.weight\"", "missing"}},
    {"q3m_plain", {NO_TENSOR("blk.0.ffn_norm.weight")}, {"\"blk.0.ffn_norm.weight\"", "missing"}},
    {"q3n_plain", {NO_TENSOR("blk.0.ssm_a")}, {"\"blk.0.ssm_a\"", "missing"}},
    {"q3n_plain", {NO_TENSOR("blk.0.ssm_ba.weight")}, {"\"blk.0.ssm_ba.weight\"", "missing"}},
    {"q35_plain", {NO_TENSOR("blk.0.ssm_beta.weight")}, {"\"blk.0.ssm_beta.weight\"", "missing"}},
    {"q35_plain",
     {NO_TENSOR("blk.2.ffn_gate_inp_shexp.weight")},
     {"ffn_gate_inp_shexp", "missing"}},
    {"q4e_plain", {NO_TENSOR("blk.3.hc_ffn_inject.weight")}, {"blk.3.hc_ffn_inject", "missing"}},
    {"q4e_ngram", {NO_TENSOR("per_layer_token_embd.weight")}, {"per_layer_token_embd", "missing"}},
    {"q3m_plain", {SHAPE("output_norm.weight", 3)}, {"\"output_norm.weight\"", "[3, 1, 1, 1]"}},
    {"q3m_plain", {SHAPE("blk.0.ffn_gate_inp.weight", 2, 2)}, {"ffn_gate_inp", "[2, 2, 1, 1]"}},
    {"q3n_plain", {SHAPE("blk.0.ssm_conv1d.weight", 3, 4)}, {"ssm_conv1d", "[3, 4, 1, 1]"}},
    {"q3m_plain", {SHAPE("blk.0.ffn_up_exps.weight", 2, 2, 2)}, {"ffn_up_exps", "[2, 2, 2, 1]"}},
    {"q4e_ngram", {SHAPE("per_layer_token_embd.weight", 4, 2)}, {"per_layer_token_embd", "4"}},
    {"q3m_plain", {TYPE("output_norm.weight", TYPE_I32)}, {"output_norm", "I32"}},
    {"q4e_ngram", {TYPE("per_layer_token_embd.weight", TYPE_I8)}, {"per_layer_token_embd", "I8"}},
    {"q3m_plain",
     {SCALES("blk.1.ffn_up_exps.scale", 3, 1, 1, 1, 1)},
     {"\"blk.1.ffn_up_exps.scale\"", "1 or 6 values"}},
    {"q3m_plain", {SCALES("output.scale", 1, -1)}, {"\"output.scale\"", "not finite"}},
};

static void what_cannot_be_run_is_refused_in_words(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct err e = {0};
        const char *path = test_folder_name(&folder, "refused.gguf");
        changed_write(r->model, r->changes, path);
        size_t before = mem_in_use();
        struct gguf_file *g = gguf_open(path, &e);
        if (!g)
            fail_msg("%s: %s", r->model, e.text);
        if (model_open(g, &e))
            fail_msg("%s with another %s was opened", r->model, r->changes[0].name);
        if (strncmp(e.text, path, strlen(path)) || !strstr(e.text, r->words[0]) ||
            !strstr(e.text, r->words[1]) || strchr(e.text, '\n'))
            fail_msg("%s with another %s: %s", r->model, r->changes[0].name, e.text);
        gguf_close(g);
        assert_int_equal(mem_in_use(), before);
    }
}

/* ---- loading ------------------------------------------------------------------------------------ */

static void spoil(const char *path, const char *tensor, int value)
{
    struct err e = {0};
    struct gguf_file *g = gguf_open(path, &e);
    assert_non_null(g);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    float nan = NAN;
    long at = (long)gguf_tensor_find(g, tensor)->offset + value * (long)sizeof nan;
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&nan, sizeof nan, 1, f), 1);
    fclose(f);
    gguf_close(g);
}

/* Threads load; of several faults the first in the order of a pass is told, whoever meets one first,
 * by the call that loads or by the one that waits. */
static void loading_tells_the_first_fault(void **state)
{
    const char *path = test_folder_name(&folder, "spoiled.gguf");
    changed_write("q3m_plain", (const struct change[]){NO_CHANGE}, path);
    spoil(path, "output_norm.weight", 2);
    spoil(path, "blk.1.ffn_norm.weight", 3);
    spoil(path, "blk.0.ffn_norm.weight", 5);
    const struct plain_how how = {2, 64, 64, true, 64, cpu_isa_best()};
    for (int i = 0; i < 20; i++) {
        struct plain p;
        struct err e = {0};
        size_t before = mem_in_use();
        if (plain_open(&p, path, &how, &e)) {
            assert_false(model_wait(p.model, NULL, &e));
            plain_close(&p);
        }
        if (!strstr(e.text, "\"blk.0.ffn_norm.weight\": value 5 is not finite"))
            fail_msg("%s", e.text);
        assert_int_equal(mem_in_use(), before);
    }
}

/* ---- keys without a meaning, and what a missing key stands for ------------------------------ */

struct row {
    float *values;
    int vocab;
};

static bool take(void *ctx, int first, int rows, const float *values, struct err *e)
{
    struct row *r = ctx;
    memcpy(r->values, values, (size_t)r->vocab * sizeof *values);
    return true;
}

/* The logits after a few ids. */
static struct row logits_of(const char *model, const struct change *changes)
{
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
    struct plain p;
    struct err e = {0};
    const char *path = test_folder_name(&folder, "changed.gguf");
    changed_write(model, changes, path);
    if (!plain_open(&p, path, &(struct plain_how){2, 64, 64, true, 64, cpu_isa_best()}, &e))
        fail_msg("%s: %s", model, e.text);
    struct row r = {.vocab = model_info(p.model)->vocab};
    r.values = calloc((size_t)r.vocab, sizeof *r.values);
    struct model_state *s = model_state_create(p.model, 64, KV_F32, &e);
    struct expert_source x = plain_experts(&p);
    struct row_source rows = plain_rows(&p);
    struct batch b = {.ids = ids,
                      .rows = sizeof ids / sizeof *ids,
                      .is_band = true,
                      .wanted = LOGITS_LAST,
                      .logits = take,
                      .logits_ctx = &r};
    if (!model_forward(p.model, s, &b, &x, &rows, &e))
        fail_msg("%s: %s", model, e.text);
    model_state_free(s);
    plain_close(&p);
    return r;
}

static bool same_logits(const char *model, const struct change *a, const struct change *b)
{
    struct row x = logits_of(model, a), y = logits_of(model, b);
    bool same = !memcmp(x.values, y.values, (size_t)x.vocab * sizeof(float));
    free(x.values);
    free(y.values);
    return same;
}

static void keys_without_a_meaning_change_nothing(void **state)
{
    static const struct change none[] = {NO_CHANGE};
    static const struct change qwen3moe[] = {
        FLOAT("qwen3moe.expert_weights_scale", 3),
        NUMBER("qwen3moe.expert_weights_norm", 0),
        NUMBER("qwen3moe.expert_gating_func", 2),
        FLOAT("qwen3moe.attention.scale", 7),
        NUMBER("qwen3moe.vocab_size", 1),
        NUMBER("qwen3moe.nextn_predict_layers", 1),
        INTS("qwen3moe.rope.dimension_sections", 0),
        FLOAT("qwen3moe.rope.scaling.yarn_ext_factor", 3),
        FLOAT("qwen3moe.rope.scaling.yarn_beta_fast", 3),
        FLOAT("qwen3moe.rope.scaling.yarn_attn_factor", 3),
        NO_CHANGE,
    };
    static const struct change qwen3next[] = {INTS("qwen3next.rope.dimension_sections", 0),
                                              NO_CHANGE};
    assert_true(same_logits("q3m_plain", none, qwen3moe));
    assert_true(same_logits("q3m_yarn", none, qwen3moe));
    assert_true(same_logits("q3n_plain", none, qwen3next));
}

static void scaling_by_nothing_is_no_scaling(void **state)
{
#define KIND "qwen3moe.rope.scaling.type"
#define FACTOR "qwen3moe.rope.scaling.factor"
    static const struct change plain[] = {NO_KEY(KIND), NO_KEY(FACTOR), NO_CHANGE};
    static const struct change none[] = {TEXT(KIND, "none"), NO_CHANGE};
    static const struct change zero[] = {NO_KEY(KIND), FLOAT(FACTOR, 0), NO_CHANGE};
    static const struct change old[] = {NO_KEY(KIND), NO_KEY(FACTOR),
                                        FLOAT("qwen3moe.rope.scale_linear", 4), NO_CHANGE};
    static const struct change linear[] = {TEXT(KIND, "linear"), FLOAT(FACTOR, 4),
                                           FLOAT("qwen3moe.rope.scale_linear", 9), NO_CHANGE};
    static const struct change bare_yarn[] = {NO_KEY(FACTOR), NO_CHANGE};
    static const struct change yarn_by_1[] = {FLOAT(FACTOR, 1), NO_CHANGE};
    static const struct change as_it_is[] = {NO_CHANGE};
    assert_true(same_logits("q3m_yarn", plain, none));
    assert_true(same_logits("q3m_yarn", plain, zero));
    assert_true(same_logits("q3m_yarn", old, linear));
    assert_true(same_logits("q3m_yarn", bare_yarn, yarn_by_1));
    assert_false(same_logits("q3m_yarn", plain, as_it_is));
    assert_false(same_logits("q3m_yarn", plain, linear));
    assert_false(same_logits("q3m_yarn", linear, as_it_is));
#undef KIND
#undef FACTOR
}

static void counts_of_heads_may_be_given_per_layer(void **state)
{
    static const struct change none[] = {NO_CHANGE};
    static const struct change arrays[] = {INTS("qwen3next.attention.head_count", 0, 0, 0, 3),
                                           INTS("qwen3next.attention.head_count_kv", 0, 0, 0, 1),
                                           NO_CHANGE};
    static const struct change all[] = {INTS("qwen4exp.attention.head_count_kv", 2, 2, 2, 2),
                                        NO_CHANGE};
    assert_true(same_logits("q3n_plain", none, arrays));
    assert_true(same_logits("q4e_plain", none, all));
}

/* Multiplying by powers of two is exact, in the weights or behind the products. */
static void factors_beside_weights_multiply_their_products(void **state)
{
    static const struct change q3m_by_scales[] = {
        SCALES("output.scale", 1, 2),
        SCALES("blk.0.attn_k.scale", 1, 4),
        SCALES("blk.0.ffn_gate_inp.weight.scale", 1, 2),
        SCALES("blk.1.ffn_gate_exps.scale", 1, 2),
        SCALES("blk.1.ffn_up_exps.scale", 6, 1, 2, 4, 8),
        SCALES("blk.2.ffn_down_exps.weight.scale", 6, 8, 4, 2, 1),
        NO_CHANGE,
    };
    static const struct change q3m_by_weights[] = {
        TIMES("output.weight", 2, 2, 2, 2),
        TIMES("blk.0.attn_k.weight", 4, 4, 4, 4),
        TIMES("blk.0.ffn_gate_inp.weight", 2, 2, 2, 2),
        TIMES("blk.1.ffn_gate_exps.weight", 2, 2, 2, 2),
        TIMES("blk.1.ffn_up_exps.weight", 1, 2, 4, 8),
        TIMES("blk.2.ffn_down_exps.weight", 8, 4, 2, 1),
        NO_CHANGE,
    };
    static const struct change q3n_by_scales[] = {
        SCALES("blk.0.ssm_in.scale", 1, 2),
        SCALES("blk.0.ssm_ba.scale", 1, 4),
        SCALES("blk.0.ffn_gate_up_exps.scale", 5, 1, 2, 4, 8),
        NO_CHANGE,
    };
    static const struct change q3n_by_weights[] = {
        TIMES("blk.0.ssm_in.weight", 2, 2, 2, 2),
        TIMES("blk.0.ssm_ba.weight", 4, 4, 4, 4),
        TIMES("blk.0.ffn_gate_up_exps.weight", 1, 2, 4, 8),
        NO_CHANGE,
    };
    static const struct change q35_by_scales[] = {
        SCALES("token_embd.scale", 1, 4), /* the head, too */
        SCALES("blk.1.attn_qkv.scale", 1, 2),
        NO_CHANGE,
    };
    static const struct change q35_by_weights[] = {
        TIMES("token_embd.weight", 4, 4, 4, 4),
        TIMES("blk.1.attn_qkv.weight", 2, 2, 2, 2),
        NO_CHANGE,
    };
    static const struct change none[] = {NO_CHANGE};
    assert_true(same_logits("q3m_plain", q3m_by_scales, q3m_by_weights));
    assert_true(same_logits("q3n_legacy", q3n_by_scales, q3n_by_weights));
    assert_true(same_logits("q35_fused", q35_by_scales, q35_by_weights));
    assert_false(same_logits("q3m_plain", q3m_by_scales, none));
    assert_false(same_logits("q3n_legacy", q3n_by_scales, none));
    assert_false(same_logits("q35_fused", q35_by_scales, none));
}

/* ---- memory that runs out ------------------------------------------------------------------- */

/* Opens, loads and takes working memory and a state; whether all that succeeded. */
static bool set_up(const struct gguf_file *g, struct backend *b, struct err *e)
{
    struct model *m = model_open(g, e);
    bool ok = m && model_load(m, b, NULL, NULL, e) && model_scratch_alloc(m, 8, 4, e);
    struct model_state *s = ok ? model_state_create(m, 32, KV_F16, e) : NULL;
    model_state_free(s);
    model_free(m);
    return s != NULL;
}

static void memory_may_run_out_anywhere_on_the_way_to_a_state(void **state)
{
    static const char *const models[] = {"q4e_ngram", "q4e_fused", "q3m_mix", "q3n_legacy",
                                         "q35_fused"};
    struct err e = {0};
    struct pool *pool = pool_create(1, &e);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", models[i]);
        struct gguf_file *g = gguf_open(path, &e);
        struct backend *b = cpu_backend_create(pool, cpu_isa_best(), false, &e);
        assert_true(g && b);
        size_t before = mem_in_use();
        bool ok = false;
        int n = 0;
        for (; !ok && n < 10000; n++) {
            struct err failed = {0};
            mem_fail_at((uint64_t)n + 1);
            ok = set_up(g, b, &failed);
            mem_fail_at(0);
            assert_int_equal(mem_in_use(), before);
            assert_int_equal(failed.code, ok ? ERR_NONE : ERR_MEMORY);
        }
        print_message("%s: %d allocations failed one by one\n", models[i], n - 1);
        assert_true(ok && n > 20);
        b->free(b);
        gguf_close(g);
    }
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_run_is_refused_in_words),
        cmocka_unit_test(loading_tells_the_first_fault),
        cmocka_unit_test(keys_without_a_meaning_change_nothing),
        cmocka_unit_test(scaling_by_nothing_is_no_scaling),
        cmocka_unit_test(counts_of_heads_may_be_given_per_layer),
        cmocka_unit_test(factors_beside_weights_multiply_their_products),
        cmocka_unit_test(memory_may_run_out_anywhere_on_the_way_to_a_state),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
