/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat_print.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

const char chat_xml_instructions[] =
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
    "</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\n"
    "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\n"
    "Reminder:\n- Function calls MUST follow the specified format: an inner <function=...>"
    "</function> block must be nested within <tool_call></tool_call> XML tags\n- Required "
    "parameters MUST be specified\n- You may provide optional reasoning for your function call in "
    "natural language BEFORE the function call, but NOT after\n- If there is no function call "
    "available, answer the question like normal with your current knowledge and do not tell the "
    "user about function calls\n</IMPORTANT>";

/* ---- Writing ---- */

void chat_put(struct chat_writer *w, const char *text)
{
    json_puts(&w->out, text);
}

/* What was written since `begin` came from the user. */
static void mark_user(struct chat_writer *w, size_t begin)
{
    size_t end = w->out.bytes;
    if (w->out.failed || begin == end)
        return;
    if (w->n_user && w->user[w->n_user - 1].end == begin) {
        w->user[w->n_user - 1].end = end;
        return;
    }
    if (w->n_user == w->user_room) {
        size_t room = w->user_room ? w->user_room * 2 : 16;
        struct text_range *user = mem_grow(w->user, room * sizeof *user, "chat prompt", NULL);
        if (!user) {
            w->out.failed = true;
            return;
        }
        w->user = user;
        w->user_room = room;
    }
    w->user[w->n_user++] = (struct text_range){begin, end};
}

void chat_put_user(struct chat_writer *w, struct text_view v)
{
    size_t begin = w->out.bytes;
    json_put(&w->out, v.text, v.bytes);
    mark_user(w, begin);
}

void chat_put_json(struct chat_writer *w, const struct json *v)
{
    size_t begin = w->out.bytes;
    json_put_value(&w->out, v);
    mark_user(w, begin);
}

static bool is_container(const struct json *v)
{
    return v->kind == JSON_ARRAY || v->kind == JSON_OBJECT;
}

/* A string inside a list, as Python's repr() prints it. */
static void put_repr_string(struct json_out *o, const struct json *v)
{
    bool single = memchr(v->text, '\'', v->bytes), both = single && memchr(v->text, '"', v->bytes);
    char quote = single && !both ? '"' : '\'';
    json_putf(o, "%c", quote);
    for (size_t i = 0, length = 0; i < v->bytes; i += length) {
        uint32_t code;
        utf8_decode(v->text + i, v->bytes - i, &code, &length);
        if (code == '\\' || code == (unsigned char)quote)
            json_putf(o, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            json_puts(o, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
        else if (code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad)
            json_putf(o, "\\x%02x", code);
        else if (code > 0xa0 && unicode_class(code) == UNICODE_SPACE)
            json_putf(o, "\\u%04x", code);
        else
            json_put(o, v->text + i, length);
    }
    json_putf(o, "%c", quote);
}

/* Python's repr() of what json.loads makes. */
static void put_repr(struct json_out *o, const struct json *v)
{
    switch (v->kind) {
    case JSON_NULL:
        json_puts(o, "None");
        break;
    case JSON_FALSE:
        json_puts(o, "False");
        break;
    case JSON_TRUE:
        json_puts(o, "True");
        break;
    case JSON_NUMBER:
        json_put_value(o, v);
        break;
    case JSON_STRING:
        put_repr_string(o, v);
        break;
    case JSON_ARRAY:
        json_puts(o, "[");
        for (size_t i = 0; i < v->count; i++) {
            json_puts(o, i ? ", " : "");
            put_repr(o, &v->items[i]);
        }
        json_puts(o, "]");
        break;
    case JSON_OBJECT: {
        const char *separator = "";
        json_puts(o, "{");
        for (size_t i = 0; i < v->count; i++) {
            const struct json *value = json_member(v, i);
            if (!value)
                continue;
            json_puts(o, separator);
            put_repr_string(o, &v->keys[i]);
            json_puts(o, ": ");
            put_repr(o, value);
            separator = ", ";
        }
        json_puts(o, "}");
        break;
    }
    }
}

void chat_put_str(struct chat_writer *w, const struct json *v)
{
    size_t begin = w->out.bytes;
    if (v->kind == JSON_STRING)
        json_put(&w->out, v->text, v->bytes);
    else
        put_repr(&w->out, v);
    mark_user(w, begin);
}

void chat_put_str_or_json(struct chat_writer *w, const struct json *v)
{
    if (is_container(v))
        chat_put_json(w, v);
    else
        chat_put_str(w, v);
}

void chat_put_trimmed_str(struct chat_writer *w, const struct json *v)
{
    if (v->kind == JSON_STRING)
        chat_put_user(w, unicode_trim(text_of_json(v)));
    else
        chat_put_str(w, v); /* no other value has white space at its ends */
}

void chat_put_message(struct chat_writer *w, enum chat_role role, struct text_view content)
{
    static const char *const heads[] = {
        [CHAT_SYSTEM] = "<|im_start|>system\n",
        [CHAT_USER] = "<|im_start|>user\n",
        [CHAT_ASSISTANT] = "<|im_start|>assistant\n",
        [CHAT_TOOL] = "<|im_start|>tool\n",
    };
    chat_put(w, heads[role]);
    chat_put_user(w, content);
    chat_put(w, "<|im_end|>\n");
}

void chat_put_xml_call(struct chat_writer *w, const struct chat_call *call, bool strings_only_raw)
{
    const struct json *arguments = json_root(call->parsed);
    chat_put(w, "<tool_call>\n<function=");
    chat_put_user(w, call->name);
    chat_put(w, ">\n");
    for (size_t i = 0; i < arguments->count; i++) {
        const struct json *value = json_member(arguments, i);
        if (!value)
            continue;
        chat_put(w, "<parameter=");
        chat_put_user(w, text_of_json(&arguments->keys[i]));
        chat_put(w, ">\n");
        if (strings_only_raw && value->kind != JSON_STRING)
            chat_put_json(w, value);
        else
            chat_put_str_or_json(w, value);
        chat_put(w, "\n</parameter>\n");
    }
    chat_put(w, "</function>\n</tool_call>");
}

/* ---- Texts ---- */

bool text_is_empty(struct text_view v)
{
    return v.bytes == 0;
}

struct text_view text_of_json(const struct json *string)
{
    return (struct text_view){string->text, string->bytes};
}

struct text_view text_trim_newlines_left(struct text_view v)
{
    while (v.bytes && v.text[0] == '\n') {
        v.text++;
        v.bytes--;
    }
    return v;
}

static struct text_view trim_newlines_right(struct text_view v)
{
    while (v.bytes && v.text[v.bytes - 1] == '\n')
        v.bytes--;
    return v;
}

struct text_view text_trim_newlines(struct text_view v)
{
    return text_trim_newlines_left(trim_newlines_right(v));
}

static bool starts_with(struct text_view v, const char *word)
{
    size_t n = strlen(word);
    return v.bytes >= n && !memcmp(v.text, word, n);
}

static bool ends_with(struct text_view v, const char *word)
{
    size_t n = strlen(word);
    return v.bytes >= n && !memcmp(v.text + v.bytes - n, word, n);
}

/* Place of the first or last occurrence of a word; false when there is none. */
static bool find_word(struct text_view v, const char *word, bool last, size_t *at)
{
    size_t n = strlen(word);
    bool found = false;
    for (size_t i = 0; i + n <= v.bytes && !(found && !last); i++) {
        const char *p = memchr(v.text + i, word[0], v.bytes - n - i + 1);
        if (!p)
            break;
        i = (size_t)(p - v.text);
        if (!memcmp(p, word, n)) {
            *at = i;
            found = true;
        }
    }
    return found;
}

void chat_split_reasoning(struct text_view *content, struct text_view *reasoning)
{
    static const char opening[] = "<think>", closing[] = "</think>";
    size_t first = 0, last = 0, open = 0;
    if (!find_word(*content, closing, false, &first))
        return;
    find_word(*content, closing, true, &last);
    struct text_view inside = trim_newlines_right((struct text_view){content->text, first});
    if (find_word(inside, opening, true, &open)) {
        open += sizeof opening - 1;
        inside = (struct text_view){inside.text + open, inside.bytes - open};
    }
    last += sizeof closing - 1;
    *reasoning = text_trim_newlines_left(inside);
    *content =
        text_trim_newlines_left((struct text_view){content->text + last, content->bytes - last});
}

size_t chat_last_question(const struct chat *c, bool trimmed)
{
    for (size_t i = c->n_messages; i-- > 0;) {
        const struct chat_message *m = &c->messages[i];
        struct text_view v = trimmed ? unicode_trim(m->content) : m->content;
        if (m->role == CHAT_USER &&
            !(starts_with(v, "<tool_response>") && ends_with(v, "</tool_response>")))
            return i;
    }
    return c->n_messages;
}

bool chat_is_tool(const struct chat *c, size_t i)
{
    return i < c->n_messages && c->messages[i].role == CHAT_TOOL;
}
