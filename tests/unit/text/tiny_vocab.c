/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tiny_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "gguf/writer.h"

struct list {
    char *bytes;
    size_t n_bytes;
    uint64_t starts[TINY_TOKENS + 2];
    size_t count;
};

static void add(struct list *l, const char *text, size_t n)
{
    l->bytes = realloc(l->bytes, l->n_bytes + n + 1);
    if (!l->bytes)
        abort();
    memcpy(l->bytes + l->n_bytes, text, n);
    l->n_bytes += n;
    l->starts[++l->count] = l->n_bytes;
}

static void put(struct gguf_writer *w, const char *key, const struct list *l)
{
    struct gguf_strings s = {l->count, l->bytes, (uint64_t *)l->starts};
    gguf_writer_strings(w, key, &s);
}

static void put_tokens(struct gguf_writer *w, enum tiny_defect defect)
{
    static const struct {
        const char *text;
        int32_t type;
    } more[] = {
        {"ab", 1},       {"abc", 1},          {"aa", 1},          {"aaaa", 1},
        {"\u0120a", 1},  {"\u010a\u010a", 1}, {"<think>", 4},     {"</think>", 4},
        {"<t", 4},       {"<|im_start|>", 3}, {"<|im_end|>", 4},  {"<0x41>", 6},
        {"[unused]", 5}, {"ab", 1},           {"<|fim_pad|>", 4}, {"xy", 3},
    };
    struct list l = {0};
    int32_t types[TINY_TOKENS];
    for (unsigned byte = 0, others = 0; byte < 256; byte++) {
        bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
        char text[4];
        size_t n = utf8_encode(itself ? byte : 0x100 + others, text);
        others += !itself;
        if (byte == 'A' && defect == TINY_BYTE_MISSING)
            add(&l, "AA", 2);
        else
            add(&l, text, n);
        types[byte] = 1;
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        add(&l, more[i].text, strlen(more[i].text));
        types[256 + i] = more[i].type;
    }
    if (defect == TINY_TYPE_RANGE)
        types[7] = 7;
    if (defect == TINY_TOKEN_LONG) {
        l.n_bytes = l.starts[--l.count];
        char *text = calloc(1, (64 << 10) + 1);
        add(&l, text, (64 << 10) + 1);
        free(text);
    }
    if (defect == TINY_TOKENS_NUMBERS)
        gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_I32, TINY_TOKENS, types);
    else if (defect != TINY_NO_TOKENS)
        put(w, "tokenizer.ggml.tokens", &l);
    if (defect == TINY_TYPES_TEXT)
        put(w, "tokenizer.ggml.token_type", &l);
    else
        gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32,
                          TINY_TOKENS - (defect == TINY_TYPES_SHORT), types);
    free(l.bytes);
}

static void put_merges(struct gguf_writer *w, enum tiny_defect defect)
{
    static const char *const merges[] = {"a b",      "ab c",          "a a", "aa aa",
                                         "\u0120 a", "\u010a \u010a", "a b"};
    struct list l = {0};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        add(&l, merges[i], strlen(merges[i]));
    if (defect == TINY_MERGE_NO_PAIR)
        add(&l, "ab", 2);
    if (defect == TINY_MERGE_LEFT_ONLY)
        add(&l, "a ", 2);
    if (defect == TINY_MERGE_UNKNOWN)
        add(&l, "a z", 3);
    if (defect == TINY_MERGE_CONTROL)
        add(&l, "x y", 3);
    if (defect != TINY_NO_MERGES)
        put(w, "tokenizer.ggml.merges", &l);
    free(l.bytes);
}

struct tokenizer *tiny_vocab(const char *pre, enum tiny_defect defect, struct err *e)
{
    char path[] = "tiny-vocab-XXXXXX"; /* in the folder that the test runs in */
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    struct gguf_writer *w = gguf_writer_new(e);
    struct tokenizer *t = NULL;
    if (!w) {
        unlink(path);
        return NULL;
    }
    gguf_writer_text(w, "tokenizer.ggml.model", defect == TINY_MODEL ? "llama" : "gpt2",
                     defect == TINY_MODEL ? 5 : 4);
    if (defect == TINY_PRE)
        pre = "gpt-2";
    if (defect != TINY_NO_PRE)
        gguf_writer_text(w, "tokenizer.ggml.pre", pre, strlen(pre));
    put_tokens(w, defect);
    put_merges(w, defect);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id",
                    defect == TINY_ID_RANGE ? TINY_TOKENS : TINY_IM_END);
    gguf_writer_u32(w, "tokenizer.ggml.eot_token_id", TINY_T);
    if (gguf_writer_write(w, path, e)) {
        struct gguf_file *g = gguf_open(path, e);
        t = g ? tokenizer_load(g, e) : NULL;
        gguf_close(g);
    }
    unlink(path);
    gguf_writer_free(w);
    return t;
}
