/* SPDX-License-Identifier: Apache-2.0 */
/* A draft layer in a file of its own guesses what the same layer guesses in the model's file, changes
 * no text, and is refused when it belongs to another model. The files are made here: models that
 * have such a layer are cut in two. */
#define _GNU_SOURCE
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "fixture.h"
#include "gguf/writer.h"

enum { PROMPT = 40, ANSWER = 60, SEEDS = 4, IDS = SEEDS * ANSWER };

static const char model_path[] = "draft-file-model.gguf", copy_path[] = "draft-file-copy.gguf";
static const char draft_path[] = "draft-file-layer.gguf", pack_path[] = "draft-file.strata-pack";

/* Fixtures with a draft layer. */
static const char *const fused = MODEL("q4e_fused"), *const legacy = MODEL("q3n_legacy"),
                         *const plain35 = MODEL("q35_plain");

/* ---- Making files --------------------------------------------------------------------------- */

struct source {
    const struct gguf_file *file;
    const struct gguf_tensor *tensor;
};

static bool copy_data(void *ctx, uint64_t offset, void *to, size_t n, struct err *e)
{
    const struct source *s = ctx;
    int part = s->tensor->part;
    return file_read_at(gguf_part_fd(s->file, part), gguf_part_path(s->file, part),
                        s->tensor->offset + offset, to, n, e);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* What is left out or changed; NULL: nothing. */
struct change {
    const char *key;    /* gets this value, or -1: is left out */
    int64_t value;
    const char *tensor; /* is left out */
    bool swaps_words;   /* another vocabulary of the same size */
};

/* A model without a draft layer says nothing of it: neither keys nor an element of arrays. */
static void put_key(struct gguf_writer *w, const struct gguf_file *g, const struct gguf_key *k,
                    bool is_draft, int layers, const struct change *c)
{
    struct err e = {0};
    if (c->key && ends_with(k->name, c->key)) {
        if (c->value >= 0)
            gguf_writer_u32(w, k->name, (uint32_t)c->value);
    } else if (c->swaps_words && !strcmp(k->name, "tokenizer.ggml.tokens")) {
        struct gguf_strings s;
        assert_true(gguf_get_strings(g, k->name, true, 1000, 100000, &s, &e));
        s.bytes[s.starts[s.count - 1]] ^= 1;
        gguf_writer_strings(w, k->name, &s);
        gguf_strings_free(&s);
    } else if (!is_draft && ends_with(k->name, ".block_count")) {
        gguf_writer_u32(w, k->name, (uint32_t)layers);
    } else if (!is_draft && ends_with(k->name, ".compress_ratios")) {
        int64_t *all;
        size_t n;
        int32_t kept[64];
        assert_true(gguf_get_i64_array(g, k->name, true, 64, &all, &n, &e));
        for (int i = 0; i < layers; i++)
            kept[i] = (int32_t)all[i];
        gguf_writer_array(w, k->name, GGUF_I32, (uint64_t)layers, kept);
        mem_free(all);
    } else if (is_draft || !ends_with(k->name, ".nextn_predict_layers")) {
        gguf_writer_copy_key(w, g, k);
    }
}

/* Layers of a fixture, without the one that drafts. */
static int layers_of(const struct gguf_file *g)
{
    for (size_t i = 0; i < gguf_key_count(g); i++)
        if (ends_with(gguf_key_at(g, i)->name, ".block_count"))
            return (int)gguf_key_at(g, i)->bits - 1;
    return 0;
}

/* One half of a fixture: the draft layer, with a word table that nobody needs, or all the rest. */
static void write_half(const char *from, bool is_draft, const char *to, const struct change *c)
{
    static const struct change none;
    struct err e = {0};
    struct gguf_file *g = gguf_open(from, &e);
    struct gguf_writer *w = gguf_writer_new(&e);
    assert_true(g && w);
    int layers = layers_of(g);
    struct source *sources = calloc(gguf_tensor_count(g), sizeof *sources);
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blk.%d.", layers);
    c = c ? c : &none;
    for (size_t i = 0; i < gguf_key_count(g); i++)
        put_key(w, g, gguf_key_at(g, i), is_draft, layers, c);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bool is_layer = !strncmp(t->name, prefix, strlen(prefix));
        bool is_table = is_draft && !strcmp(t->name, "token_embd.weight");
        sources[i] = (struct source){g, t};
        if ((is_layer == is_draft || is_table) && (!c->tensor || !ends_with(t->name, c->tensor)))
            gguf_writer_tensor(w, t->name, t->n_dims, t->ne, t->type, copy_data, &sources[i]);
    }
    if (!gguf_writer_write(w, to, &e))
        fail_msg("%s", e.text);
    gguf_writer_free(w);
    gguf_close(g);
    free(sources);
}

/* ---- Answers -------------------------------------------------------------------------------- */

/* Answers of several seeds, one after the other, and the state after the last. */
struct answer {
    int32_t ids[IDS];
    int n;
    struct strata_stats stats;
    struct strata_plan plan;
    char *state;
    size_t state_bytes;
};

static bool take(void *ctx, int32_t id)
{
    struct answer *a = ctx;
    a->ids[a->n++] = id;
    return a->n % ANSWER != 0;
}

static void answer(const char *path, const struct strata_options *o, struct answer *a)
{
    static const char saved[] = "draft-file.strses";
    struct strata_error e = {0};
    struct fixture f = fixture_open(path, o);
    int32_t ids[PROMPT];
    fixture_ids(ids, PROMPT, f.vocab);
    for (int i = 0; i < PROMPT; i++)
        ids[i] = ids[i % 13];
    a->n = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        struct strata_sampling p = {.temp = 0.3f * (float)(seed % 3),
                                    .top_k = 20,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .seed = (uint64_t)seed};
        fixture_ok(strata_session_reset(f.session, &e), &e);
        fixture_ok(strata_feed(f.session, ids, PROMPT, NULL, &e), &e);
        fixture_ok(strata_answer_begin(f.session, &p, &e), &e);
        fixture_ok(strata_answer(f.session, ANSWER, take, a, NULL, &e), &e);
    }
    assert_int_equal(a->n, IDS);
    fixture_ok(strata_save(f.session, saved, &e), &e);
    fixture_ok(strata_plan_get(f.model, &a->plan, &e), &e);
    strata_stats_get(f.model, &a->stats);
    fixture_close(&f);
    a->state = fixture_read_state(saved, &a->state_bytes);
    remove(saved);
}

static void assert_same(const struct answer *got, const struct answer *want)
{
    assert_memory_equal(got->ids, want->ids, sizeof want->ids);
    assert_int_equal(got->state_bytes, want->state_bytes);
    assert_memory_equal(got->state, want->state, want->state_bytes);
}

static void it_guesses_as_in_the_file_of_the_model(void **unused)
{
    const char *const models[] = {fused, legacy, plain35};
    uint64_t accepted = 0;
    for (int m = 0; m < 3; m++) {
        struct strata_options with = {.ctx = 128, .threads = 2, .draft_rows = 4, .draft = STRATA_DRAFT_MTP};
        struct strata_options without = with;
        struct answer built_in, apart, none, packed;
        without.draft = STRATA_DRAFT_OFF;
        answer(models[m], &with, &built_in);

        write_half(models[m], false, model_path, NULL);
        write_half(models[m], false, copy_path, NULL);
        write_half(models[m], true, draft_path, NULL);
        without.draft_model = "no such file"; /* is not opened */
        answer(model_path, &without, &none);
        with.draft = STRATA_DRAFT_AUTO;
        with.draft_model = draft_path;
        answer(model_path, &with, &apart);
        assert_same(&apart, &none);
        assert_int_equal(apart.stats.drafted, built_in.stats.drafted);
        assert_int_equal(apart.stats.accepted, built_in.stats.accepted);
        assert_int_equal(none.stats.drafted, 0);
        /* Each run of matrices in a file has its pages alone. */
        assert_in_range(apart.plan.trunk, built_in.plan.trunk - 65536, built_in.plan.trunk + 65536);
        assert_int_equal(apart.plan.session, built_in.plan.session);
        assert_int_equal(apart.plan.experts, built_in.plan.experts);
        assert_true(apart.plan.trunk > none.plan.trunk && apart.plan.session > none.plan.session);
        accepted += apart.stats.accepted;

        /* A sidecar and a copy are of the model alone. */
        struct strata_error e = {0};
        const char *copies[] = {copy_path};
        struct strata_model *model = strata_model_open(model_path, &without, &e);
        struct strata_pack_options pack = {.path = pack_path, .checksums = true};
        without.draft_model = NULL;
        fixture_ok(model && strata_pack(model, &pack, &e), &e);
        strata_model_free(model);
        with.sidecar = pack_path;
        with.arena = "min";
        answer(model_path, &with, &packed);
        assert_int_equal(packed.stats.accepted, built_in.stats.accepted);
        assert_same(&packed, &none);
        free(packed.state);
        with.sidecar = "off";
        with.replicas = copies;
        with.n_replicas = 1;
        answer(model_path, &with, &packed);
        assert_int_equal(packed.stats.accepted, built_in.stats.accepted);
        assert_same(&packed, &none);
        free(packed.state);

        /* The whole file is another model by its fingerprint, but says the same. */
        assert_memory_equal(apart.ids, built_in.ids, sizeof apart.ids);
        free(apart.state);
        free(none.state);
        free(built_in.state);
        remove(pack_path);
    }
    print_message("%llu guesses were right\n", (unsigned long long)accepted);
    assert_true(accepted > 0); /* the comparisons above were of something */
}

/* ---- Refusals ------------------------------------------------------------------------------- */

static void refused(const char *model, const char *draft, const char *names)
{
    struct strata_error e = {0};
    struct strata_options o = {.ctx = 64, .draft_model = draft};
    struct strata_model *m = strata_model_open(model, &o, &e);
    if (m && strata_model_load(m, &e))
        fail_msg("accepted where '%s' is expected", names);
    strata_model_free(m);
    if (!strstr(e.text, names) || strchr(e.text, '\n'))
        fail_msg("'%s' does not say '%s'", e.text, names);
}

static void refused_with(const struct change *c, const char *names)
{
    write_half(plain35, true, draft_path, c);
    refused(model_path, draft_path, names);
}

static void a_file_of_another_model_is_refused(void **unused)
{
    write_half(plain35, false, model_path, NULL);
    refused(model_path, "no-such-file.gguf", "no-such-file.gguf");
    write_half(legacy, true, draft_path, NULL);
    refused(model_path, draft_path, "a draft layer of architecture qwen3next");
    refused_with(&(struct change){.key = ".block_count", .value = 4}, "of a model of 3 layers");
    refused_with(&(struct change){.key = ".nextn_predict_layers", .value = -1}, "no draft layer");
    refused_with(&(struct change){.key = ".embedding_length", .value = 8}, "embedding_length\": 8, but");
    refused_with(&(struct change){.key = ".expert_used_count", .value = 1}, "expert_used_count\": 1");
    refused_with(&(struct change){.swaps_words = true}, "its vocabulary is not that of");
    refused_with(&(struct change){.tensor = "nextn.eh_proj.weight"}, "nextn.eh_proj.weight\" is missing");
    refused_with(&(struct change){.tensor = "ffn_down_exps.weight"}, "draft-file-layer.gguf: tensor");
    write_half(plain35, true, draft_path, NULL);
    refused(plain35, draft_path, "has a draft layer of its own");
    refused(MODEL("q3m_plain"), draft_path, "q3m_plain");
    struct strata_error e = {0};
    struct strata_options o = {.draft = STRATA_DRAFT_MTP};
    struct strata_model *m = strata_model_open(model_path, &o, &e);
    assert_true(m && !strata_model_load(m, &e) && strstr(e.text, "the file has no draft layer"));
    strata_model_free(m);
}

static void remove_files(void)
{
    remove(model_path);
    remove(copy_path);
    remove(draft_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_guesses_as_in_the_file_of_the_model),
        cmocka_unit_test(a_file_of_another_model_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_files();
    return failed;
}
