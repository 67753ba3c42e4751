/* SPDX-License-Identifier: Apache-2.0 */
#include "cases_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/template.h"
#include "text/utf8stream.h"

/* One case as it runs. */
struct run {
    const struct json *line;
    const char *file;
    char name[160];
    struct cases_context *c;
    struct case_report *r;
};

/* ---- Vocabularies ---- */

static const char *const kind_names[2] = {[SPLIT_QWEN2] = "qwen2", [SPLIT_QWEN35] = "qwen35"};

static void load_vocabulary(struct cases_context *c, enum split_kind kind)
{
    char path[4096];
    struct err e;
    err_clear(&e);
    c->tried[kind] = true;
    for (size_t i = 0; i < c->n_vocab_dirs && !c->tokenizers[kind]; i++) {
        snprintf(path, sizeof path, "%s/vocab-%s.gguf", c->vocab_dirs[i], kind_names[kind]);
        if (access(path, R_OK))
            continue;
        struct gguf_file *g = gguf_open(path, &e);
        c->tokenizers[kind] = g ? tokenizer_load(g, &e) : NULL;
        gguf_close(g);
        if (!c->tokenizers[kind])
            printf("%s\n", e.text);
    }
}

/* NULL: the case is skipped. */
static const struct tokenizer *vocabulary(struct run *u, enum split_kind kind)
{
    if (!u->c->tried[kind])
        load_vocabulary(u->c, kind);
    if (!u->c->tokenizers[kind]) {
        char reason[100];
        snprintf(reason, sizeof reason, "vocab-%s.gguf was not found; --vocab DIR says where it is",
                 kind_names[kind]);
        case_skip(u->r, u->file, u->name, reason);
    }
    return u->c->tokenizers[kind];
}

void cases_context_close(struct cases_context *c)
{
    for (int i = 0; i < 2; i++) {
        tokenizer_free(c->tokenizers[i]);
        c->tokenizers[i] = NULL;
        c->tried[i] = false;
    }
}

/* ---- Comparing ---- */

static void verdict(struct run *u, bool ok, const char *expected, const char *got)
{
    if (ok)
        case_pass(u->r);
    else
        case_fail(u->r, u->file, u->name, expected, got);
}

/* Two texts; a failure shows both from a little before the first difference. */
static void compare_texts(struct run *u, const char *expected, size_t expected_bytes,
                          const char *got, size_t got_bytes)
{
    size_t same = 0;
    while (same < expected_bytes && same < got_bytes && expected[same] == got[same])
        same++;
    if (same == expected_bytes && same == got_bytes) {
        case_pass(u->r);
        return;
    }
    size_t from = same > 20 ? same - 20 : 0;
    struct json_out a = {0}, b = {0};
    json_putf(&a, "at byte %zu ", from);
    json_put_string(&a, expected + from, expected_bytes - from < 60 ? expected_bytes - from : 60);
    json_put_string(&b, got + from, got_bytes - from < 60 ? got_bytes - from : 60);
    case_fail(u->r, u->file, u->name, a.text, b.text);
    json_out_free(&a);
    json_out_free(&b);
}

static bool same_numbers(const struct json *expected, const int32_t *got, size_t n)
{
    bool same = expected->count == n;
    for (size_t i = 0; same && i < n; i++) {
        int64_t v;
        same = json_i64(&expected->items[i], &v) && v == got[i];
    }
    return same;
}

/* Lists of numbers, of one or of both vocabularies: `note` says which one. */
static void fail_numbers(struct run *u, const char *note, const struct json *expected,
                         const int32_t *got, size_t n)
{
    struct json_out a = {0}, b = {0};
    json_putf(&a, "%s%s", note, note[0] ? " " : "");
    json_put_value(&a, expected);
    json_puts(&b, "[");
    for (size_t i = 0; i < n; i++)
        json_putf(&b, "%s%d", i ? ", " : "", got[i]);
    json_puts(&b, "]");
    case_fail(u->r, u->file, u->name, a.text, b.text);
    json_out_free(&a);
    json_out_free(&b);
}

/* The bytes of a hexadecimal text, freed with mem_free; NULL when it is none. */
static char *bytes_of_hex(const char *hex, size_t digits, size_t *n)
{
    char *out = mem_alloc(digits / 2 + 1, "case", NULL), pair[3] = "", *end;
    *n = digits / 2;
    for (size_t i = 0; out && i < *n; i++) {
        memcpy(pair, hex + 2 * i, 2);
        out[i] = (char)strtoul(pair, &end, 16);
        if (end != pair + 2 || digits % 2) {
            mem_free(out);
            return NULL;
        }
    }
    return out;
}

static bool is_kind(const struct json *v, enum json_kind kind)
{
    return v && v->kind == kind;
}

/* The lists of a line for both pre-tokenizers: the second is only there when it differs. */
static const struct json *list_for(const struct json *line, enum split_kind kind)
{
    const struct json *own = json_get(line, kind_names[kind]);
    return own ? own : json_get(line, "qwen2");
}

/* ---- Tokenizer ---- */

/* `text`, or `hex` when it is not UTF-8. Freed with mem_free. */
static char *text_of_line(const struct json *line, size_t *bytes)
{
    const struct json *text = json_get(line, "text"), *hex = json_get(line, "hex");
    if (is_kind(hex, JSON_STRING))
        return bytes_of_hex(hex->text, hex->bytes, bytes);
    if (!is_kind(text, JSON_STRING))
        return NULL;
    *bytes = text->bytes;
    return mem_copy_text(text->text, text->bytes, NULL);
}

static void run_ids(struct run *u)
{
    size_t bytes, n;
    char *text = text_of_line(u->line, &bytes);
    enum special_mode mode =
        is_kind(json_get(u->line, "special"), JSON_TRUE) ? SPECIAL_ALL : SPECIAL_USER;
    bool ok = text != NULL;
    if (!ok)
        case_fail(u->r, u->file, u->name, "a text", "a line without one");
    for (int kind = 0; ok && kind < 2; kind++) {
        const struct json *expected = list_for(u->line, (enum split_kind)kind);
        const struct tokenizer *t = vocabulary(u, (enum split_kind)kind);
        int32_t *ids;
        struct err e;
        err_clear(&e);
        if (!t)
            break;
        ok = tokenizer_encode(t, text, bytes, mode, NULL, 0, &ids, &n, &e);
        if (!ok) {
            case_fail(u->r, u->file, u->name, "ids", e.text);
            break;
        }
        ok = same_numbers(expected, ids, n);
        if (!ok)
            fail_numbers(u, kind_names[kind], expected, ids, n);
        else if (kind == 1)
            case_pass(u->r);
        mem_free(ids);
    }
    mem_free(text);
}

static void run_splits(struct run *u)
{
    size_t bytes;
    char *text = text_of_line(u->line, &bytes);
    bool ok = text != NULL;
    if (!ok)
        case_fail(u->r, u->file, u->name, "a text", "a line without one");
    int32_t *pieces = mem_alloc_array(ok ? bytes : 0, sizeof *pieces, "case", NULL);
    for (int kind = 0; ok && pieces && kind < 2; kind++) {
        const struct json *expected = list_for(u->line, (enum split_kind)kind);
        size_t n = 0;
        for (size_t at = 0; at < bytes; at += (size_t)pieces[n++])
            pieces[n] = (int32_t)split_first((enum split_kind)kind, text + at, bytes - at);
        ok = same_numbers(expected, pieces, n);
        if (!ok)
            fail_numbers(u, kind_names[kind], expected, pieces, n);
    }
    if (ok)
        case_pass(u->r);
    mem_free(pieces);
    mem_free(text);
}

static char *repeated_text(const struct json *line, size_t *bytes)
{
    const struct json *repeat = json_get(line, "repeat"), *then = json_get(line, "then");
    int64_t count = 0;
    *bytes = 0;
    if (!is_kind(repeat, JSON_STRING) || !is_kind(then, JSON_STRING) ||
        !json_i64(json_get(line, "count"), &count) || count < 0 || count > 1 << 24 ||
        repeat->bytes > 1 << 10)
        return NULL;
    char *text = mem_alloc((size_t)count * repeat->bytes + then->bytes + 1, "case", NULL);
    for (int64_t i = 0; text && i < count; i++, *bytes += repeat->bytes)
        memcpy(text + *bytes, repeat->text, repeat->bytes);
    if (text)
        memcpy(text + *bytes, then->text, then->bytes);
    *bytes += then->bytes;
    return text;
}

/* Count, ends and FNV-1a 64 of the ids as little-endian int32, as the line has them. */
static void put_long_result(struct json_out *o, const int32_t *ids, size_t n)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        for (int shift = 0; shift < 32; shift += 8)
            h = (h ^ ((uint32_t)ids[i] >> shift & 0xff)) * 0x100000001b3;
    json_putf(o, "%zu ids, fnv1a64 %016llx", n, (unsigned long long)h);
}

static void run_long(struct run *u)
{
    const struct json *hash = json_get(u->line, "fnv1a64");
    enum split_kind kind = SPLIT_QWEN2;
    int64_t n_expected = 0;
    const struct json *pre = json_get(u->line, "pre");
    size_t bytes, n = 0;
    if (!is_kind(pre, JSON_STRING) || !split_kind_parse(pre->text, &kind) ||
        !is_kind(hash, JSON_STRING) || !json_i64(json_get(u->line, "n_ids"), &n_expected)) {
        case_fail(u->r, u->file, u->name, "pre, n_ids and fnv1a64", "a line without them");
        return;
    }
    const struct tokenizer *t = vocabulary(u, kind);
    char *text = t ? repeated_text(u->line, &bytes) : NULL;
    int32_t *ids = NULL;
    struct err e;
    err_clear(&e);
    struct json_out expected = {0}, got = {0};
    json_putf(&expected, "%lld ids, fnv1a64 %s", (long long)n_expected, hash->text);
    if (text && tokenizer_encode(t, text, bytes, SPECIAL_USER, NULL, 0, &ids, &n, &e))
        put_long_result(&got, ids, n);
    else
        json_puts(&got, text ? e.text : "no text");
    if (t)
        verdict(u, !strcmp(expected.text, got.text), expected.text, got.text);
    mem_free(ids);
    mem_free(text);
    json_out_free(&expected);
    json_out_free(&got);
}

static void run_piece(struct run *u, const char *line)
{
    char *end;
    long id = strtol(line, &end, 10);
    size_t digits = *end == '\t' ? strcspn(++end, "\r\n") : 0, n;
    char *expected = bytes_of_hex(end, digits, &n);
    for (int kind = 0; expected && kind < 2; kind++) {
        const struct tokenizer *t = vocabulary(u, (enum split_kind)kind);
        if (!t)
            break;
        struct text_view got = tokenizer_piece(t, (int32_t)id, true);
        if (got.bytes != n || memcmp(got.text, expected, n) || kind == 1) {
            compare_texts(u, expected, n, got.text, got.bytes);
            break;
        }
    }
    if (!expected)
        case_fail(u->r, u->file, u->name, "an id and bytes in hex", line);
    mem_free(expected);
}

void cases_text_pieces(const char *path, struct cases_context *c, struct case_report *r)
{
    struct err e;
    err_clear(&e);
    size_t bytes;
    char *text = file_read_all(path, (size_t)64 << 20, &bytes, &e);
    if (!text) {
        case_fail(r, path, "all", "a readable file", e.text);
        return;
    }
    struct run u = {.file = path, .c = c, .r = r};
    int number = 0;
    for (char *line = text, *next; *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = 0;
        snprintf(u.name, sizeof u.name, "line %d", ++number);
        run_piece(&u, line);
    }
    mem_free(text);
}

/* ---- Chat ---- */

static enum chat_switch switch_of(const struct json *v)
{
    if (!v || v->kind == JSON_NULL)
        return CHAT_UNSET;
    return v->kind == JSON_TRUE ? CHAT_ON : CHAT_OFF;
}

/* Renders the conversation of a line. On failure *reason gets the code, or the sentence. */
static bool render(const struct json *line, struct chat_prompt *out, char *reason, size_t room)
{
    const struct json *family = json_get(line, "family"), *o = json_get(line, "options");
    const struct json *effort = json_get(o, "reasoning_effort");
    const struct json *tail = json_get(o, "add_generation_prompt");
    struct chat_options options = {
        .enable_thinking = switch_of(json_get(o, "enable_thinking")),
        .preserve_thinking = switch_of(json_get(o, "preserve_thinking")),
        .reasoning_effort = is_kind(effort, JSON_STRING) ? effort->text : NULL,
        .without_generation_prompt = is_kind(tail, JSON_FALSE),
    };
    enum chat_family f;
    if (!is_kind(family, JSON_STRING) || !chat_family_parse(family->text, &f)) {
        snprintf(reason, room, "unknown family");
        return false;
    }
    struct chat_refusal why = {0};
    struct err e;
    err_clear(&e);
    struct chat *chat = chat_create(f, &e);
    bool done = chat && chat_set_tools(chat, json_get(line, "tools"), &why, &e) &&
                chat_add_messages(chat, json_get(line, "messages"), &why, &e) &&
                chat_render(chat, &options, out, &why, &e);
    chat_free(chat);
    if (!done)
        snprintf(reason, room, "%s", why.code ? why.code : e.text);
    return done;
}

static void run_prompt(struct run *u)
{
    const struct json *prompt = json_get(u->line, "prompt"), *error = json_get(u->line, "error");
    struct chat_prompt got = {0};
    char reason[200];
    bool done = render(u->line, &got, reason, sizeof reason);
    if (is_kind(prompt, JSON_STRING)) {
        if (done)
            compare_texts(u, prompt->text, prompt->bytes, got.text, got.bytes);
        else
            case_fail(u->r, u->file, u->name, "a prompt", reason);
    } else {
        const char *expected = is_kind(error, JSON_STRING) ? error->text : "an error";
        verdict(u, !done && !strcmp(expected, reason), expected, done ? got.text : reason);
    }
    chat_prompt_free(&got);
}

static void run_chat_ids(struct run *u)
{
    const struct json *pre = json_get(u->line, "pre"), *expected = json_get(u->line, "ids");
    enum split_kind kind;
    if (!is_kind(pre, JSON_STRING) || !split_kind_parse(pre->text, &kind)) {
        case_fail(u->r, u->file, u->name, "pre", "a line without it");
        return;
    }
    const struct tokenizer *t = vocabulary(u, kind);
    if (!t)
        return;
    struct chat_prompt p = {0};
    char reason[ERR_TEXT_BYTES] = "";
    int32_t *ids = NULL;
    size_t n = 0;
    struct err e;
    err_clear(&e);
    bool done = render(u->line, &p, reason, sizeof reason);
    if (done &&
        !tokenizer_encode(t, p.text, p.bytes, SPECIAL_ALL, p.user, p.n_user, &ids, &n, &e)) {
        snprintf(reason, sizeof reason, "%s", e.text);
        done = false;
    }
    if (!done)
        case_fail(u->r, u->file, u->name, "ids", reason);
    else if (same_numbers(expected, ids, n))
        case_pass(u->r);
    else
        fail_numbers(u, "", expected, ids, n);
    mem_free(ids);
    chat_prompt_free(&p);
}

static void run_detection(struct run *u)
{
    const struct json *text = json_get(u->line, "template"), *name = json_get(u->line, "family");
    const struct json *exact = json_get(u->line, "exact");
    enum chat_family f;
    enum chat_match match = chat_match_template(text->text, text->bytes, &f);
    const char *expected = is_kind(name, JSON_STRING) ? name->text : "no family";
    const char *got = match == CHAT_MATCH_NONE ? "no family" : chat_family_name(f);
    bool ok = !strcmp(expected, got);
    if (exact && match != CHAT_MATCH_NONE)
        ok = ok && (match == CHAT_MATCH_EXACT) == (exact->kind == JSON_TRUE);
    verdict(u, ok, expected, got);
}

/* ---- Text stream ---- */

/* What was emitted so far, as the keys of the line. */
struct emitted {
    struct json_out emit, final;
    int stopped_by;
    bool failed;
};

static void stream_pieces(const struct json *pieces, struct stop_stream *stop, struct emitted *out)
{
    struct utf8_stream code_points = {0};
    bool stopped = false;
    json_puts(&out->emit, "[");
    for (size_t i = 0; i < pieces->count && !stopped && !out->failed; i++) {
        struct json_out whole = {0}, sent = {0};
        size_t n;
        const struct json *hex = &pieces->items[i];
        char *bytes = hex->kind == JSON_STRING ? bytes_of_hex(hex->text, hex->bytes, &n) : NULL;
        out->failed = !bytes;
        if (bytes)
            utf8_stream_feed(&code_points, bytes, n, &whole);
        stopped = stop_feed(stop, whole.text, whole.bytes, &sent);
        json_puts(&out->emit, i ? ", " : "");
        json_put_string(&out->emit, sent.text, sent.bytes);
        json_out_free(&whole);
        json_out_free(&sent);
        mem_free(bytes);
    }
    json_puts(&out->emit, "]");
    struct json_out rest = {0};
    stop_finish(stop, &rest);
    json_put_string(&out->final, rest.text, rest.bytes);
    json_out_free(&rest);
    out->stopped_by = stop_which(stop);
}

static void run_stream(struct run *u)
{
    const struct json *stops = json_get(u->line, "stop"), *by = json_get(u->line, "stopped_by");
    size_t n = is_kind(stops, JSON_ARRAY) ? stops->count : 0;
    struct text_view *strings = mem_alloc_array(n, sizeof *strings, "case", NULL);
    for (size_t i = 0; strings && i < n; i++)
        strings[i] = (struct text_view){stops->items[i].text, stops->items[i].bytes};
    struct stop_stream *stop = strings ? stop_create(strings, n, NULL) : NULL;
    struct emitted got = {0};
    struct json_out a = {0}, b = {0};
    if (stop)
        stream_pieces(json_get(u->line, "pieces"), stop, &got);
    const struct json *final = json_get(u->line, "final");
    json_put_value(&a, json_get(u->line, "emit"));
    json_puts(&a, " then ");
    if (final)
        json_put_value(&a, final);
    json_puts(&a, " stopped by ");
    if (by)
        json_put_value(&a, by);
    json_putf(&b, "%s then %s stopped by ", got.emit.text, got.final.text);
    if (got.stopped_by >= 0 && stop)
        json_put_value(&b, &stops->items[got.stopped_by]);
    else
        json_puts(&b, "null");
    verdict(u, stop && !got.failed && !strcmp(a.text, b.text), a.text, b.text);
    json_out_free(&a);
    json_out_free(&b);
    json_out_free(&got.emit);
    json_out_free(&got.final);
    stop_free(stop);
    mem_free(strings);
}

/* ---- Which kind ---- */

typedef void run_kind(struct run *u);

static run_kind *kind_of(const struct json *line)
{
    bool chat = json_get(line, "family") && is_kind(json_get(line, "messages"), JSON_ARRAY);
    if (is_kind(json_get(line, "qwen2"), JSON_ARRAY))
        return json_get(line, "special") ? run_ids : run_splits;
    if (json_get(line, "repeat") && json_get(line, "fnv1a64"))
        return run_long;
    if (chat && is_kind(json_get(line, "ids"), JSON_ARRAY))
        return run_chat_ids;
    if (chat && (json_get(line, "prompt") || json_get(line, "error")))
        return run_prompt;
    if (is_kind(json_get(line, "template"), JSON_STRING))
        return run_detection;
    if (is_kind(json_get(line, "pieces"), JSON_ARRAY) &&
        is_kind(json_get(line, "emit"), JSON_ARRAY))
        return run_stream;
    return NULL;
}

bool cases_text_line(const struct json *line, const char *file, int line_no,
                     struct cases_context *c, struct case_report *r)
{
    run_kind *kind = kind_of(line);
    if (!kind)
        return false;
    struct run u = {.line = line, .file = file, .c = c, .r = r};
    const struct json *name = json_get(line, "name"), *family = json_get(line, "family");
    if (is_kind(name, JSON_STRING) && is_kind(family, JSON_STRING))
        snprintf(u.name, sizeof u.name, "%s, %s", family->text, name->text);
    else if (is_kind(name, JSON_STRING))
        snprintf(u.name, sizeof u.name, "%s", name->text);
    else
        snprintf(u.name, sizeof u.name, "line %d", line_no);
    kind(&u);
    return true;
}
