/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a synthetic model: hyper-parameters as the releases have them, and a tokenizer whose
 * tokens are the 256 bytes and invented words. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "synth/shape.h"

#define TOKEN_NORMAL 1
#define TOKEN_CONTROL 3
#define TOKEN_BYTES 8 /* room for any of the names below */

struct keys {
    struct gguf_writer *w;
    const char *arch;
};

static const char *full(const struct keys *k, const char *name, char out[96])
{
    snprintf(out, 96, "%s.%s", k->arch, name);
    return out;
}

static void number(const struct keys *k, const char *name, int64_t v)
{
    char key[96];
    gguf_writer_u32(k->w, full(k, name, key), (uint32_t)v);
}

static void real(const struct keys *k, const char *name, double v)
{
    char key[96];
    gguf_writer_f32(k->w, full(k, name, key), (float)v);
}

static void ints(const struct keys *k, const char *name, const int32_t *v, int n)
{
    char key[96];
    uint8_t bytes[4 * 128];
    for (int i = 0; i < n; i++)
        bytes_put_u32(bytes + 4 * i, (uint32_t)v[i]);
    gguf_writer_array(k->w, full(k, name, key), GGUF_I32, (uint64_t)n, bytes);
}

static void u64s(const struct keys *k, const char *name, const uint64_t *v, int n)
{
    char key[96];
    uint8_t bytes[8 * SYNTH_NGRAM_TABLES];
    for (int i = 0; i < n; i++)
        bytes_put_u64(bytes + 8 * i, v[i]);
    gguf_writer_array(k->w, full(k, name, key), GGUF_U64, (uint64_t)n, bytes);
}

static void text(const struct keys *k, const char *key, const char *value)
{
    gguf_writer_text(k->w, key, value, strlen(value));
}

static void put_hyper(const struct keys *k, const struct synth_about *a, int32_t eos, int32_t image)
{
    const struct synth_shape *s = a->shape;
    int32_t ratios[128] = {0}; /* the draft layer attends to everything */
    for (int l = 0; l < a->layers; l++)
        ratios[l] = (l + 1) % s->interval ? 0 : SYNTH_INDEX_RATIO;
    uint64_t offsets[SYNTH_NGRAM_TABLES], sum = 0;
    for (int i = 0; i < SYNTH_NGRAM_TABLES; i++) {
        offsets[i] = sum;
        sum += a->tables[i];
    }
    static const int32_t ngram_layer = SYNTH_NGRAM_LAYER;
    static const uint64_t multipliers[] = {23703573157769, 20109073645365, 8052911324071};
    number(k, "hyper_connection.count", s->streams);
    number(k, "hyper_connection.low_rank", s->rank);
    number(k, "attention.indexer.head_count", SYNTH_INDEX_HEADS);
    number(k, "attention.indexer.key_length", SYNTH_INDEX_DIM);
    number(k, "attention.indexer.top_k", SYNTH_INDEX_BUDGET);
    ints(k, "attention.compress_ratios", ratios, a->layers + a->has_draft);
    ints(k, "ple.layers", &ngram_layer, 1);
    number(k, "ple.ngram_size", SYNTH_NGRAM);
    number(k, "ple.heads_per_ngram", SYNTH_NGRAM_HEADS);
    number(k, "ple.conv_kernel", SYNTH_NGRAM_TAPS);
    number(k, "ple.eos_token_id", eos);
    number(k, "ple.image_token_id", image);
    u64s(k, "ple.layer_multipliers", multipliers, 3);
    u64s(k, "ple.head_offsets", offsets, SYNTH_NGRAM_TABLES);
    u64s(k, "ple.head_vocab_sizes", a->tables, SYNTH_NGRAM_TABLES);
    number(k, "embedding_length_per_layer_input", SYNTH_NGRAM_DIM);
}

static void put_shape(const struct keys *k, const struct synth_about *a)
{
    const struct synth_shape *s = a->shape;
    number(k, "block_count", a->layers + a->has_draft);
    if (a->has_draft)
        number(k, "nextn_predict_layers", 1);
    number(k, "context_length", s->context);
    number(k, "embedding_length", s->embd);
    number(k, "vocab_size", a->vocab);
    number(k, "attention.head_count", s->heads);
    number(k, "attention.head_count_kv", s->kv_heads);
    number(k, "attention.key_length", s->head);
    number(k, "attention.value_length", s->head);
    real(k, "attention.layer_norm_rms_epsilon", 1e-6);
    number(k, "rope.dimension_count", s->rotated);
    if (s->has_sections)
        ints(k, "rope.dimension_sections", (const int32_t[]){11, 11, 10, 0}, 4);
    real(k, "rope.freq_base", (double)s->rope_base);
    number(k, "expert_count", s->experts);
    number(k, "expert_used_count", s->used);
    number(k, "expert_feed_forward_length", s->width);
    if (s->shared)
        number(k, "expert_shared_feed_forward_length", s->shared);
    if (!s->value_heads)
        return;
    number(k, "full_attention_interval", s->interval);
    number(k, "ssm.conv_kernel", s->taps);
    number(k, "ssm.state_size", s->linear);
    number(k, "ssm.group_count", s->key_heads);
    number(k, "ssm.time_step_rank", s->value_heads);
    number(k, "ssm.inner_size", (int64_t)s->value_heads * s->linear);
}

/* ---- The tokenizer -------------------------------------------------------------------------- */

/* How byte-level vocabularies write a byte: itself where it can be seen, else a character from 256
 * on, in the order of the bytes. */
static size_t byte_name(int byte, int *next_unseen, char out[TOKEN_BYTES])
{
    bool is_seen = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    uint32_t c = (uint32_t)(is_seen ? byte : 256 + (*next_unseen)++);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

static bool put_tokens(struct gguf_writer *w, int vocab, struct err *e)
{
    struct gguf_strings s = {.count = (size_t)vocab};
    s.bytes = mem_alloc_array(s.count, TOKEN_BYTES, "tokens", e);
    s.starts = mem_alloc_array(s.count + 1, sizeof *s.starts, "tokens", e);
    uint8_t *kinds = mem_alloc_array(s.count, 4, "tokens", e);
    if (s.bytes && s.starts && kinds) {
        int unseen = 0;
        for (int i = 0; i < vocab; i++) {
            char name[TOKEN_BYTES + 8];
            size_t n = i < 256 ? byte_name(i, &unseen, name)
                               : (size_t)snprintf(name, sizeof name, "t%06d", i);
            memcpy(s.bytes + s.starts[i], name, n);
            s.starts[i + 1] = s.starts[i] + n;
            bytes_put_u32(kinds + 4 * (size_t)i,
                          i < vocab - SYNTH_SPECIAL ? TOKEN_NORMAL : TOKEN_CONTROL);
        }
        gguf_writer_strings(w, "tokenizer.ggml.tokens", &s);
        gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, s.count, kinds);
    }
    mem_free(kinds);
    gguf_strings_free(&s);
    return e->code == ERR_NONE;
}

static void put_merges(struct gguf_writer *w)
{
    char merges[] = "t hth e";
    uint64_t starts[] = {0, 3, 7};
    struct gguf_strings s = {.count = 2, .bytes = merges, .starts = starts};
    gguf_writer_strings(w, "tokenizer.ggml.merges", &s);
}

bool synth_put_keys(const struct synth_about *a, struct gguf_writer *w, struct err *e)
{
    const struct synth_shape *s = a->shape;
    struct keys k = {w, s->arch};
    bool is_full = a->vocab == s->vocab;
    int32_t eos = is_full ? s->eos : a->vocab - 1;
    char name[96];
    snprintf(name, sizeof name, "%s%s of real shape, %s, %d layers, synthetic weights",
             a->has_model ? "" : "draft layer for a ", s->arch, a->mix, a->layers);
    text(&k, "general.architecture", s->arch);
    text(&k, "general.type", "model");
    text(&k, "general.name", name);
    gguf_writer_u32(w, "general.quantization_version", 2);
    put_shape(&k, a);
    if (s->streams)
        put_hyper(&k, a, eos, is_full ? s->image : a->vocab - 2);
    text(&k, "tokenizer.ggml.model", "gpt2");
    text(&k, "tokenizer.ggml.pre", s->pre);
    if (!put_tokens(w, a->vocab, e))
        return false;
    put_merges(w);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)eos);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    return true;
}
