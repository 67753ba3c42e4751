/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation: messages as they are kept, and how the messages of a request become them
 * (text.md 3.2). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat_print.h"

bool chat_refuse(struct chat_refusal *why, struct err *e, const char *code, const char *param,
                 const char *fmt, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (why) {
        why->code = code;
        snprintf(why->param, sizeof why->param, "%s", param);
    }
    return err_set(e, ERR_FORMAT, "%s: %s", param, text);
}

/* ---- What is kept ---- */

struct chat *chat_create(enum chat_family family, struct err *e)
{
    struct chat *c = mem_alloc(sizeof *c, "conversation", e);
    if (c)
        c->family = family;
    return c;
}

static void free_view(struct text_view *v)
{
    mem_free((void *)v->text);
}

static void free_message(struct chat_message *m)
{
    for (size_t i = 0; i < m->n_calls; i++) {
        free_view(&m->calls[i].name);
        free_view(&m->calls[i].arguments);
        json_free(m->calls[i].parsed);
    }
    mem_free(m->calls);
    free_view(&m->content);
    free_view(&m->reasoning);
}

void chat_truncate(struct chat *c, size_t count)
{
    while (c->n_messages > count)
        free_message(&c->messages[--c->n_messages]);
}

void chat_free(struct chat *c)
{
    if (!c)
        return;
    chat_truncate(c, 0);
    mem_free(c->messages);
    mem_free(c);
}

size_t chat_count(const struct chat *c)
{
    return c->n_messages;
}

const struct chat_message *chat_message_at(const struct chat *c, size_t i)
{
    return &c->messages[i];
}

static bool copy_view(struct text_view from, struct text_view *out, struct err *e)
{
    *out = (struct text_view){mem_copy_text(from.text, from.bytes, e), from.bytes};
    return out->text != NULL;
}

/* One more system message at the very beginning. */
static bool join_system(struct chat_message *first, const struct chat_message *m, struct err *e)
{
    struct json_out o = {0};
    json_put(&o, first->content.text, first->content.bytes);
    json_puts(&o, "\n\n");
    json_put(&o, m->content.text, m->content.bytes);
    if (o.failed) {
        json_out_free(&o);
        return err_set(e, ERR_MEMORY, "out of memory: a system message");
    }
    free_view(&first->content);
    first->content = (struct text_view){o.text, o.bytes};
    return true;
}

/* Takes over the message, also on failure. */
static bool append(struct chat *c, struct chat_message *m, struct err *e)
{
    bool done = true;
    if (m->role == CHAT_SYSTEM && c->n_messages == 1 && c->messages[0].role == CHAT_SYSTEM) {
        done = join_system(&c->messages[0], m, e);
        free_message(m);
        return done;
    }
    if (c->n_messages == c->room) {
        size_t room = c->room ? c->room * 2 : 16;
        struct chat_message *messages =
            mem_grow(c->messages, room * sizeof *messages, "conversation", e);
        if (!messages) {
            free_message(m);
            return false;
        }
        c->messages = messages;
        c->room = room;
    }
    c->messages[c->n_messages++] = *m;
    return true;
}

static bool repair_view(struct text_view from, struct text_view *out, struct err *e)
{
    char *repaired = NULL;
    size_t bytes = 0;
    if (!unicode_repair(from.text, from.bytes, &repaired, &bytes, e))
        return false;
    if (!repaired)
        return copy_view(from, out, e);
    *out = (struct text_view){repaired, bytes};
    return true;
}

bool chat_add(struct chat *c, enum chat_role role, struct text_view content,
              struct text_view reasoning, struct err *e)
{
    struct chat_message m = {.role = role};
    if (!repair_view(content, &m.content, e) ||
        (reasoning.text && !repair_view(reasoning, &m.reasoning, e))) {
        free_message(&m);
        return false;
    }
    return append(c, &m, e);
}

/* ---- Reading a request ---- */

struct reader {
    struct chat *chat;
    struct chat_refusal *why;
    struct err *e;
    size_t index; /* of the message, counted from 0 in the request */
};

static bool refuse(struct reader *r, const char *code, const char *field, const char *sentence)
{
    char param[64];
    snprintf(param, sizeof param, "messages.%zu%s%s", r->index, field[0] ? "." : "", field);
    return chat_refuse(r->why, r->e, code, param, "%s", sentence);
}

/* A member that is there and not null. */
static const struct json *given(const struct json *v, const char *key)
{
    const struct json *member = json_get(v, key);
    return member && member->kind != JSON_NULL ? member : NULL;
}

static bool read_role(struct reader *r, const struct json *message, enum chat_role *out)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {
        {"system", CHAT_SYSTEM},       {"developer", CHAT_SYSTEM}, {"user", CHAT_USER},
        {"assistant", CHAT_ASSISTANT}, {"tool", CHAT_TOOL},
    };
    const struct json *role = json_get(message, "role");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (json_is_text(role, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    }
    return refuse(r, "unknown_role", "role",
                  "a role is one of system, developer, user, assistant and tool");
}

static bool read_part(struct reader *r, const struct json *part, struct json_out *out)
{
    const struct json *type = json_get(part, "type"), *text = given(part, "text");
    if (part->kind != JSON_OBJECT)
        return refuse(r, "invalid_type", "content", "a part of a content is an object");
    if (!json_is_text(type, "text") && !json_is_text(type, "input_text") &&
        !json_is_text(type, "output_text"))
        return refuse(r, "unsupported_content", "content", "only parts of type text are supported");
    if (!text)
        return refuse(r, "missing_field", "content", "a part of type text has no text");
    if (text->kind != JSON_STRING)
        return refuse(r, "invalid_type", "content", "the text of a part is a string");
    json_put(out, text->text, text->bytes);
    return true;
}

static bool trims_contents(enum chat_family f)
{
    return f == CHAT_QWEN35 || f == CHAT_QWEN36 || f == CHAT_QWEN38;
}

static bool read_content(struct reader *r, const struct json *message, struct chat_message *m)
{
    const struct json *v = json_get(message, "content");
    struct json_out out = {0};
    bool done = true;
    if (!v && m->role != CHAT_ASSISTANT)
        return refuse(r, "missing_field", "content", "the message has no content");
    json_put(&out, "", 0); /* an empty content is a text too */
    if (v && v->kind == JSON_STRING) {
        json_put(&out, v->text, v->bytes);
    } else if (v && v->kind == JSON_ARRAY) {
        for (size_t i = 0; done && i < v->count; i++) {
            /* templates of the newer families join the parts themselves, with nothing */
            json_puts(&out, i && !trims_contents(r->chat->family) ? "\n" : "");
            done = read_part(r, &v->items[i], &out);
        }
    } else if (v && v->kind != JSON_NULL) {
        done = refuse(r, "invalid_type", "content", "a content is a string or an array of parts");
    }
    m->content = (struct text_view){out.text, out.bytes};
    if (done && out.failed)
        done = err_set(r->e, ERR_MEMORY, "out of memory: the content of a message");
    return done;
}

static bool read_reasoning(struct reader *r, const struct json *message, struct chat_message *m)
{
    const struct json *v = json_get(message, "reasoning_content");
    if (!v || v->kind != JSON_STRING)
        v = json_get(message, "reasoning");
    if (!v || v->kind != JSON_STRING)
        return true;
    return copy_view(text_of_json(v), &m->reasoning, r->e);
}

static bool read_arguments(struct reader *r, const struct json *v, struct chat_call *call)
{
    struct text_view text = {"{}", 2};
    if (v && v->kind != JSON_STRING)
        return refuse(r, "invalid_type", "tool_calls", "the arguments of a call are a string");
    if (v && v->bytes)
        text = text_of_json(v);
    if (!copy_view(text, &call->arguments, r->e))
        return false;
    if (!chat_family_has_xml_calls(r->chat->family))
        return true;
    struct err e;
    err_clear(&e);
    call->parsed = json_parse(text.text, text.bytes, "arguments", &e);
    if (!call->parsed && e.code == ERR_MEMORY)
        return err_set(r->e, e.code, "%s", e.text);
    if (!call->parsed)
        return refuse(r, "bad_tool_arguments", "tool_calls", e.text);
    if (json_root(call->parsed)->kind != JSON_OBJECT)
        return refuse(r, "bad_tool_arguments", "tool_calls",
                      "the arguments of a call are the text of a JSON object");
    return true;
}

static bool read_call(struct reader *r, const struct json *v, struct chat_call *call)
{
    const struct json *function = given(v, "function"), *name = given(function, "name");
    if (v->kind != JSON_OBJECT || (function && function->kind != JSON_OBJECT) ||
        (name && name->kind != JSON_STRING))
        return refuse(r, "invalid_type", "tool_calls",
                      "a call is an object with a function, whose name is a string");
    if (!name)
        return refuse(r, "missing_field", "tool_calls", "a call names no function");
    return copy_view(text_of_json(name), &call->name, r->e) &&
           read_arguments(r, given(function, "arguments"), call);
}

static bool read_calls(struct reader *r, const struct json *message, struct chat_message *m)
{
    const struct json *v = given(message, "tool_calls");
    if (!v)
        return true;
    if (v->kind != JSON_ARRAY)
        return refuse(r, "invalid_type", "tool_calls", "tool_calls is an array");
    m->calls = mem_alloc_array(v->count, sizeof *m->calls, "tool calls", r->e);
    if (!m->calls)
        return false;
    m->n_calls = v->count; /* zeroed: free_message may run over all of them */
    for (size_t i = 0; i < v->count; i++)
        if (!read_call(r, &v->items[i], &m->calls[i]))
            return false;
    return true;
}

static bool read_message(struct reader *r, const struct json *v)
{
    struct chat_message m = {0};
    if (v->kind != JSON_OBJECT)
        return refuse(r, "invalid_type", "", "a message is an object");
    bool done = read_role(r, v, &m.role) && read_content(r, v, &m);
    if (done && m.role == CHAT_ASSISTANT)
        done = read_reasoning(r, v, &m) && read_calls(r, v, &m);
    if (!done) {
        free_message(&m);
        return false;
    }
    return append(r->chat, &m, r->e);
}

bool chat_add_messages(struct chat *c, const struct json *messages, struct chat_refusal *why,
                       struct err *e)
{
    struct reader r = {c, why, e, 0};
    if (messages->kind != JSON_ARRAY)
        return chat_refuse(why, e, "invalid_type", "messages", "messages is an array");
    for (; r.index < messages->count; r.index++)
        if (!read_message(&r, &messages->items[r.index]))
            return false;
    return true;
}

bool chat_set_tools(struct chat *c, const struct json *tools, struct chat_refusal *why,
                    struct err *e)
{
    c->tools = NULL;
    if (!tools || tools->kind == JSON_NULL)
        return true;
    if (tools->kind != JSON_ARRAY)
        return chat_refuse(why, e, "invalid_type", "tools", "tools is an array");
    for (size_t i = 0; i < tools->count; i++)
        if (tools->items[i].kind != JSON_OBJECT)
            return chat_refuse(why, e, "invalid_type", "tools", "a tool is an object");
    if (tools->count && c->family == CHAT_CHATML)
        return chat_refuse(why, e, "unsupported_value", "tools",
                           "the chat template family chatml has no tools");
    c->tools = tools->count ? tools : NULL;
    return true;
}
