/* SPDX-License-Identifier: Apache-2.0 */
/* Family qwen3-coder (text.md 3.4): calls and tools are XML, there is no thinking. */
#include "text/chat_print.h"

/* EXTRA of the spec: every key of an object but those named (NULL ends the list). */
static void put_extra(struct chat_writer *w, const struct json *v, const char *const *without)
{
    if (!v || v->kind != JSON_OBJECT)
        return;
    for (size_t i = 0; i < v->count; i++) {
        const struct json *value = json_member(v, i);
        const char *const *name = without;
        while (*name && !json_is_text(&v->keys[i], *name))
            name++;
        if (!value || *name)
            continue;
        chat_put(w, "\n<");
        chat_put_user(w, text_of_json(&v->keys[i]));
        chat_put(w, ">");
        chat_put_str_or_json(w, value);
        chat_put(w, "</");
        chat_put_user(w, text_of_json(&v->keys[i]));
        chat_put(w, ">");
    }
}

static void put_description(struct chat_writer *w, const struct json *v)
{
    const struct json *description = json_get(v, "description");
    if (!description)
        return;
    chat_put(w, "\n<description>");
    chat_put_trimmed_str(w, description);
    chat_put(w, "</description>");
}

static void put_parameter(struct chat_writer *w, const struct json *key, const struct json *p)
{
    static const char *const done[] = {"name", "type", "description", NULL};
    const struct json *type = json_get(p, "type");
    chat_put(w, "\n<parameter>\n<name>");
    chat_put_user(w, text_of_json(key));
    chat_put(w, "</name>");
    if (type) {
        chat_put(w, "\n<type>");
        chat_put_str(w, type);
        chat_put(w, "</type>");
    }
    put_description(w, p);
    put_extra(w, p, done);
    chat_put(w, "\n</parameter>");
}

static void put_tool_signature(struct chat_writer *w, const struct json *tool)
{
    static const char *const done[] = {"type", "name", "description", "parameters", NULL};
    static const char *const parameters_done[] = {"type", "properties", NULL};
    const struct json *function = json_get(tool, "function");
    if (!function)
        function = tool;
    const struct json *name = json_get(function, "name");
    const struct json *parameters = json_get(function, "parameters");
    const struct json *properties = json_get(parameters, "properties");
    chat_put(w, "\n<function>\n<name>");
    if (name)
        chat_put_str(w, name);
    chat_put(w, "</name>");
    put_description(w, function);
    chat_put(w, "\n<parameters>");
    for (size_t i = 0; properties && properties->kind == JSON_OBJECT && i < properties->count;
         i++) {
        const struct json *p = json_member(properties, i);
        if (p)
            put_parameter(w, &properties->keys[i], p);
    }
    put_extra(w, parameters, parameters_done);
    chat_put(w, "\n</parameters>");
    put_extra(w, function, done);
    chat_put(w, "\n</function>");
}

static void put_head(struct chat_rendering *r)
{
    const struct chat *c = r->chat;
    struct chat_writer *w = &r->w;
    bool system = c->messages[0].role == CHAT_SYSTEM;
    if (!system && !c->tools)
        return;
    chat_put(w, "<|im_start|>system\n");
    if (system)
        chat_put_user(w, c->messages[0].content);
    else
        chat_put(w, "You are Qwen, a helpful AI assistant that can interact with a computer to "
                    "solve tasks.");
    if (c->tools) {
        chat_put(w, "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
        for (size_t i = 0; i < c->tools->count; i++)
            put_tool_signature(w, &c->tools->items[i]);
        chat_put(w, "\n</tools>");
        chat_put(w, chat_xml_instructions);
    }
    chat_put(w, "<|im_end|>\n");
}

static void put_calls(struct chat_rendering *r, const struct chat_message *m)
{
    struct chat_writer *w = &r->w;
    struct text_view content = unicode_trim(m->content);
    chat_put(w, "<|im_start|>assistant");
    if (!text_is_empty(content)) {
        chat_put(w, "\n");
        chat_put_user(w, content);
        chat_put(w, "\n");
    }
    for (size_t k = 0; k < m->n_calls; k++) {
        chat_put(w, "\n");
        chat_put_xml_call(w, &m->calls[k], false);
    }
    chat_put(w, "<|im_end|>\n");
}

/* `first` is the first message after the system message: a tool message there gets no header. */
static void put_tool(struct chat_rendering *r, size_t i, size_t first)
{
    struct chat_writer *w = &r->w;
    if (i != first && !chat_is_tool(r->chat, i - 1))
        chat_put(w, "<|im_start|>user\n");
    chat_put(w, "<tool_response>\n");
    chat_put_user(w, r->chat->messages[i].content);
    chat_put(w, "\n</tool_response>\n");
    if (!chat_is_tool(r->chat, i + 1))
        chat_put(w, "<|im_end|>\n");
}

void chat_render_coder(struct chat_rendering *r)
{
    const struct chat *c = r->chat;
    size_t first = c->messages[0].role == CHAT_SYSTEM;
    put_head(r);
    for (size_t i = first; i < c->n_messages; i++) {
        const struct chat_message *m = &c->messages[i];
        if (m->n_calls)
            put_calls(r, m);
        else if (m->role == CHAT_TOOL)
            put_tool(r, i, first);
        else
            chat_put_message(&r->w, m->role, m->content);
    }
    if (r->tail)
        chat_put(&r->w, "<|im_start|>assistant\n");
}
