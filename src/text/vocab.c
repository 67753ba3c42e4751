/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of the tokenizer: every check of text.md 1.1, the byte alphabet of 1.2, and the tables.
 */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MOST_TOKENS ((size_t)1 << 22)
#define MOST_BYTES ((size_t)1 << 28) /* of all tokens, or of all merges */
#define MOST_TEXT ((size_t)64 << 10) /* bytes of one token or merge */

/* Control tokens whatever their type says. */
static const char *const control_names[] = {
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>",  "<|file_sep|>",   "<|im_end|>",     "<|endoftext|>",
};
static const char *const end_names[] = {
    "<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

struct loader {
    const struct gguf_file *g;
    const char *path;
    struct tokenizer *t;
    struct err *e;
};

/* ---- Tables ---- */

static bool slots_make(struct slots *s, size_t entries, struct err *e)
{
    size_t n = 16;
    while (n < 2 * entries)
        n *= 2;
    s->slot = mem_alloc_array(n, sizeof *s->slot, "vocabulary", e);
    s->mask = n - 1;
    return s->slot != NULL;
}

struct text_view vocab_text(const struct tokenizer *t, size_t id)
{
    uint64_t begin = t->texts.starts[id];
    return (struct text_view){t->texts.bytes + begin, (size_t)(t->texts.starts[id + 1] - begin)};
}

static bool same(struct text_view a, struct text_view b)
{
    return a.bytes == b.bytes && (!a.bytes || !memcmp(a.text, b.text, a.bytes));
}

/* The slot that holds this text, or the empty one where it belongs. */
static uint32_t *text_slot(const struct tokenizer *t, struct text_view v)
{
    size_t i = XXH3_64bits(v.text, v.bytes) & t->by_text.mask;
    for (uint32_t id; (id = t->by_text.slot[i]); i = (i + 1) & t->by_text.mask)
        if (same(vocab_text(t, id - 1), v))
            break;
    return &t->by_text.slot[i];
}

static uint32_t *pair_slot(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    size_t i = (h >> 32 ^ h >> 15) & t->by_pair.mask;
    for (uint32_t m; (m = t->by_pair.slot[i]); i = (i + 1) & t->by_pair.mask)
        if (t->merges[m - 1].left == left && t->merges[m - 1].right == right)
            break;
    return &t->by_pair.slot[i];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t bytes)
{
    return (int32_t)*text_slot(t, (struct text_view){text, bytes}) - 1;
}

uint32_t vocab_rank(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    return *pair_slot(t, left, right) - 1;
}

/* ---- The byte alphabet ---- */

static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

/* Byte of a code point of the alphabet, -1 when it is none. */
static int byte_of_code(uint32_t code)
{
    if (code < 0x100)
        return stands_for_itself(code) ? (int)code : -1;
    unsigned place = code - 0x100; /* among the bytes that do not stand for themselves */
    if (place <= 0x20)
        return (int)place;
    if (place <= 0x42)
        return (int)(0x7f + place - 0x21);
    return place == 0x43 ? 0xad : -1;
}

/* Text of a normal token as bytes. A text that is not in the alphabet stays as it is. */
static size_t bytes_of_text(struct text_view v, char *out)
{
    size_t n = 0;
    uint32_t code;
    for (size_t i = 0, length = 0; i < v.bytes; i += length) {
        int byte = -1;
        if (utf8_decode(v.text + i, v.bytes - i, &code, &length) == UTF8_WHOLE)
            byte = byte_of_code(code);
        if (byte < 0) {
            memcpy(out, v.text, v.bytes);
            return v.bytes;
        }
        out[n++] = (char)byte;
    }
    return n;
}

/* Text `<0xHH>` of a token of type byte. */
static size_t byte_of_name(struct text_view v, char *out)
{
    char name[8], *end;
    if (v.bytes != 6 || memcmp(v.text, "<0x", 3) || v.text[5] != '>')
        return 0;
    memcpy(name, v.text + 3, 2);
    name[2] = 0;
    *out = (char)strtoul(name, &end, 16);
    return end == name + 2 ? 1 : 0;
}

static bool make_pieces(struct loader *l)
{
    struct tokenizer *t = l->t;
    t->pieces = mem_alloc(t->texts.starts[t->count], "vocabulary", l->e); /* never longer */
    t->starts = mem_alloc_array(t->count + 1, sizeof *t->starts, "vocabulary", l->e);
    if (!t->pieces || !t->starts)
        return false;
    uint64_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct text_view v = vocab_text(t, i);
        t->starts[i] = n;
        if (t->types[i] == TOKEN_NORMAL) {
            n += bytes_of_text(v, t->pieces + n);
        } else if (t->types[i] == TOKEN_BYTE) {
            n += byte_of_name(v, t->pieces + n);
        } else if (t->types[i] == TOKEN_CONTROL || t->types[i] == TOKEN_USER) {
            memcpy(t->pieces + n, v.text, v.bytes);
            n += v.bytes;
        }
    }
    t->starts[t->count] = n;
    return true;
}

/* ---- Reading ---- */

static bool read_kind(struct loader *l)
{
    char *model = NULL, *pre = NULL, shown[128];
    size_t bytes = 0;
    bool done = gguf_get_text(l->g, "tokenizer.ggml.model", true, &model, NULL, l->e) &&
                gguf_get_text(l->g, "tokenizer.ggml.pre", false, &pre, &bytes, l->e);
    if (done && strcmp(model, "gpt2"))
        done = err_set(
            l->e, ERR_UNSUPPORTED,
            "%s: tokenizer.ggml.model is \"%s\", only \"gpt2\" (byte-level BPE) is supported",
            l->path, err_escape(shown, sizeof shown, model, strlen(model)));
    if (done && (!pre || !split_kind_parse(pre, &l->t->split)))
        done =
            err_set(l->e, ERR_UNSUPPORTED,
                    "%s: tokenizer.ggml.pre is %s%s%s, only \"qwen2\" and \"qwen35\" are supported",
                    l->path, pre ? "\"" : "",
                    pre ? err_escape(shown, sizeof shown, pre, bytes) : "missing", pre ? "\"" : "");
    mem_free(model);
    mem_free(pre);
    return done;
}

static bool check_lengths(struct loader *l, const char *key, const struct gguf_strings *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->starts[i + 1] - s->starts[i] > MOST_TEXT)
            return err_set(
                l->e, ERR_FORMAT, "%s: %s: string %zu has %llu bytes, at most %zu are allowed",
                l->path, key, i, (unsigned long long)(s->starts[i + 1] - s->starts[i]), MOST_TEXT);
    return true;
}

static bool read_types(struct loader *l)
{
    struct tokenizer *t = l->t;
    int64_t *types = NULL;
    size_t n = 0;
    bool done =
        gguf_get_i64_array(l->g, "tokenizer.ggml.token_type", true, MOST_TOKENS, &types, &n, l->e);
    if (done && n != t->count)
        done =
            err_set(l->e, ERR_FORMAT,
                    "%s: tokenizer.ggml.token_type has %zu elements and tokenizer.ggml.tokens %zu",
                    l->path, n, t->count);
    t->types = done ? mem_alloc(t->count, "vocabulary", l->e) : NULL;
    done = t->types != NULL;
    for (size_t i = 0; done && i < n; i++) {
        if (types[i] < TOKEN_NORMAL || types[i] > TOKEN_BYTE)
            done = err_set(l->e, ERR_FORMAT,
                           "%s: tokenizer.ggml.token_type: element %zu is %lld, not 1 to 6",
                           l->path, i, (long long)types[i]);
        else
            t->types[i] = (uint8_t)types[i];
    }
    mem_free(types);
    return done;
}

static bool read_tokens(struct loader *l)
{
    struct tokenizer *t = l->t;
    if (!gguf_get_strings(l->g, "tokenizer.ggml.tokens", true, MOST_TOKENS, MOST_BYTES, &t->texts,
                          l->e) ||
        !check_lengths(l, "tokenizer.ggml.tokens", &t->texts))
        return false;
    t->count = t->texts.count;
    if (!read_types(l) || !slots_make(&t->by_text, t->count, l->e))
        return false;
    for (size_t i = 0; i < t->count; i++) {
        uint32_t *slot = text_slot(t, vocab_text(t, i));
        if (!*slot)
            *slot = (uint32_t)i + 1;
    }
    for (size_t i = 0; i < COUNT(control_names); i++) {
        int32_t id = tokenizer_find(t, control_names[i], strlen(control_names[i]));
        if (id >= 0)
            t->types[id] = TOKEN_CONTROL;
    }
    return make_pieces(l);
}

static bool find_bytes(struct loader *l)
{
    for (unsigned byte = 0, others = 0; byte < 256; byte++) {
        char text[4];
        size_t n = utf8_encode(stands_for_itself(byte) ? byte : 0x100 + others++, text);
        int32_t id = tokenizer_find(l->t, text, n);
        if (id < 0 || l->t->types[id] == TOKEN_CONTROL)
            return err_set(l->e, ERR_FORMAT,
                           "%s: tokenizer.ggml.tokens: no token stands for the byte %02x", l->path,
                           byte);
        l->t->byte_tokens[byte] = (uint32_t)id;
    }
    return true;
}

/* One merge "LEFT RIGHT"; the text is changed. */
static bool read_merge(struct loader *l, size_t index, char *text, size_t bytes)
{
    struct tokenizer *t = l->t;
    char shown[128];
    char *space = bytes > 1 ? memchr(text + 1, ' ', bytes - 1) : NULL;
    size_t left = space ? (size_t)(space - text) : 0;
    if (!space || left + 1 == bytes)
        return err_set(l->e, ERR_FORMAT,
                       "%s: tokenizer.ggml.merges: element %zu, \"%s\", is no pair", l->path, index,
                       err_escape(shown, sizeof shown, text, bytes));
    int32_t a = tokenizer_find(t, text, left);
    int32_t b = tokenizer_find(t, text + left + 1, bytes - left - 1);
    memmove(text + left, text + left + 1, bytes - left - 1);
    int32_t both = tokenizer_find(t, text, bytes - 1);
    if (a < 0 || b < 0 || both < 0) {
        log_detail("%s: tokenizer.ggml.merges: element %zu, which makes \"%s\", is of no use: not all of "
                   "its parts are tokens", l->path, index, err_escape(shown, sizeof shown, text, bytes - 1));
        return true;
    }
    if (t->types[both] == TOKEN_CONTROL) /* ordinary text must never become one */
        return err_set(l->e, ERR_FORMAT,
                       "%s: tokenizer.ggml.merges: element %zu makes the control token \"%s\"",
                       l->path, index, err_escape(shown, sizeof shown, text, bytes - 1));
    t->merges[index] = (struct merge){(uint32_t)a, (uint32_t)b, (uint32_t)both};
    uint32_t *slot = pair_slot(t, (uint32_t)a, (uint32_t)b);
    if (!*slot)
        *slot = (uint32_t)index + 1;
    return true;
}

static bool read_merges(struct loader *l)
{
    struct tokenizer *t = l->t;
    struct gguf_strings s = {0};
    bool done =
        gguf_get_strings(l->g, "tokenizer.ggml.merges", true, MOST_TOKENS, MOST_BYTES, &s, l->e) &&
        check_lengths(l, "tokenizer.ggml.merges", &s) && slots_make(&t->by_pair, s.count, l->e);
    if (done)
        t->merges = mem_alloc_array(s.count, sizeof *t->merges, "vocabulary", l->e);
    done = done && t->merges;
    for (size_t i = 0; done && i < s.count; i++)
        done = read_merge(l, i, s.bytes + s.starts[i], (size_t)(s.starts[i + 1] - s.starts[i]));
    t->n_merges = s.count;
    gguf_strings_free(&s);
    return done;
}

/* ---- Special tokens ---- */

/* Sorts the specials of the tokenizer that is being loaded; qsort has no argument for it. */
struct special {
    struct text_view text;
    uint32_t id;
};

static int compare_specials(const void *a, const void *b)
{
    const struct special *x = a, *y = b;
    size_t n = x->text.bytes < y->text.bytes ? x->text.bytes : y->text.bytes;
    int d = memcmp(x->text.text, y->text.text, n);
    return d ? d : (x->text.bytes > y->text.bytes) - (x->text.bytes < y->text.bytes);
}

static bool collect_specials(struct loader *l)
{
    struct tokenizer *t = l->t;
    struct special *list = mem_alloc_array(t->count, sizeof *list, "special tokens", l->e);
    t->specials = mem_alloc_array(t->count, sizeof *t->specials, "special tokens", l->e);
    bool done = list && t->specials;
    for (size_t i = 0; done && i < t->count; i++) {
        struct text_view v = vocab_text(t, i);
        bool special = t->types[i] == TOKEN_CONTROL || t->types[i] == TOKEN_USER;
        if (!special || !v.bytes || tokenizer_find(t, v.text, v.bytes) != (int32_t)i)
            continue;
        list[t->n_specials++] = (struct special){v, (uint32_t)i};
        t->begins_special[(unsigned char)v.text[0]] = true;
    }
    if (done && t->n_specials)
        qsort(list, t->n_specials, sizeof *list, compare_specials);
    for (size_t i = 0; i < t->n_specials; i++)
        t->specials[i] = list[i].id;
    mem_free(list);
    return done;
}

static bool read_id(struct loader *l, const char *key, int32_t *out)
{
    int64_t id = -1;
    *out = -1;
    if (!gguf_key_find(l->g, key))
        return true;
    if (!gguf_get_i64(l->g, key, true, &id, l->e))
        return false;
    if (id < 0 || id >= (int64_t)l->t->count)
        return err_set(l->e, ERR_FORMAT, "%s: %s is %lld, but the vocabulary has %zu tokens",
                       l->path, key, (long long)id, l->t->count);
    *out = (int32_t)id;
    return true;
}

static bool read_ids(struct loader *l)
{
    struct tokenizer *t = l->t;
    if (!read_id(l, "tokenizer.ggml.bos_token_id", &t->bos) ||
        !read_id(l, "tokenizer.ggml.eos_token_id", &t->eos) ||
        !read_id(l, "tokenizer.ggml.eot_token_id", &t->eot) ||
        !gguf_get_bool(l->g, "tokenizer.ggml.add_bos_token", false, &t->adds_bos, l->e))
        return false;
    t->ends = mem_alloc(t->count, "vocabulary", l->e);
    if (!t->ends)
        return false;
    for (size_t i = 0; i < COUNT(end_names); i++) {
        int32_t id = tokenizer_find(t, end_names[i], strlen(end_names[i]));
        if (id >= 0)
            t->ends[id] = true;
    }
    if (t->eos >= 0)
        t->ends[t->eos] = true;
    if (t->eot >= 0)
        t->ends[t->eot] = true;
    return true;
}

struct tokenizer *tokenizer_load(const struct gguf_file *g, struct err *e)
{
    struct tokenizer *t = mem_alloc(sizeof *t, "tokenizer", e);
    struct loader l = {g, gguf_part_path(g, 0), t, e};
    if (t && read_kind(&l) && read_tokens(&l) && find_bytes(&l) && read_merges(&l) &&
        collect_specials(&l) && read_ids(&l))
        return t;
    tokenizer_free(t);
    return NULL;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    gguf_strings_free(&t->texts);
    mem_free(t->types);
    mem_free(t->ends);
    mem_free(t->pieces);
    mem_free(t->starts);
    mem_free(t->by_text.slot);
    mem_free(t->merges);
    mem_free(t->by_pair.slot);
    mem_free(t->specials);
    mem_free(t);
}

/* ---- Facts ---- */

struct text_view tokenizer_piece(const struct tokenizer *t, int32_t id, bool with_control)
{
    if (id < 0 || (size_t)id >= t->count || (t->types[id] == TOKEN_CONTROL && !with_control))
        return (struct text_view){"", 0};
    return (struct text_view){t->pieces + t->starts[id],
                              (size_t)(t->starts[id + 1] - t->starts[id])};
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->count && t->ends[id];
}

size_t tokenizer_count(const struct tokenizer *t)
{
    return t->count;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}
