/* SPDX-License-Identifier: Apache-2.0 */
/* Families qwen3.5, qwen3.6 and qwen3.8 (text.md 3.5): tools are JSON, calls XML, texts trimmed. */
#include <string.h>

#include "text/chat_print.h"

/* The line about effort that qwen3.8 begins with, or NULL. */
static const char *reasoning_line(const struct chat_rendering *r)
{
    if (r->chat->family != CHAT_QWEN38 || r->thinking_off || !strcmp(r->effort, "medium"))
        return NULL;
    if (!strcmp(r->effort, "low"))
        return "Reasoning effort is set to low. Keep your thinking brief and focused, moving "
               "directly to the conclusion without unnecessary elaboration.";
    return "Reasoning effort is set to xhigh. Please think carefully through the task, validate "
           "key "
           "assumptions, consider plausible alternatives, and prioritize correctness, consistency, "
           "and clarity in the final answer.";
}

static void put_tools(struct chat_rendering *r, const char *line, struct text_view system)
{
    struct chat_writer *w = &r->w;
    const struct json *tools = r->chat->tools;
    chat_put(w, "<|im_start|>system\n");
    if (line) {
        chat_put(w, line);
        chat_put(w, "\n\n");
    }
    chat_put(w, "# Tools\n\nYou have access to the following functions:\n\n<tools>");
    for (size_t i = 0; i < tools->count; i++) {
        chat_put(w, "\n");
        chat_put_json(w, &tools->items[i]);
    }
    chat_put(w, "\n</tools>");
    chat_put(w, chat_xml_instructions);
    if (!text_is_empty(system)) {
        chat_put(w, "\n\n");
        chat_put_user(w, system);
    }
    chat_put(w, "<|im_end|>\n");
}

static void put_head(struct chat_rendering *r)
{
    const struct chat *c = r->chat;
    struct chat_writer *w = &r->w;
    bool given = c->messages[0].role == CHAT_SYSTEM;
    struct text_view system = {"", 0};
    if (given)
        system = unicode_trim(c->messages[0].content);
    const char *line = reasoning_line(r);
    if (c->tools) {
        put_tools(r, line, system);
        return;
    }
    if (c->family == CHAT_QWEN38 ? !line && text_is_empty(system) : !given)
        return;
    chat_put(w, "<|im_start|>system\n");
    if (line) {
        chat_put(w, line);
        chat_put(w, text_is_empty(system) ? "" : "\n\n");
    }
    chat_put_user(w, system);
    chat_put(w, "<|im_end|>\n");
}

static bool shows_thinking(const struct chat_rendering *r, size_t i, size_t question)
{
    switch (r->chat->family) {
    case CHAT_QWEN36:
        return i > question || r->preserve;
    case CHAT_QWEN38:
        return i > question || !r->preserve_off;
    default:
        return i > question;
    }
}

static void put_assistant(struct chat_rendering *r, size_t i, size_t question)
{
    enum chat_family family = r->chat->family;
    struct chat_writer *w = &r->w;
    const struct chat_message *m = &r->chat->messages[i];
    struct text_view content = unicode_trim(m->content), reasoning = m->reasoning;
    if (!reasoning.text && family != CHAT_QWEN38)
        chat_split_reasoning(&content, &reasoning);
    chat_put(w, "<|im_start|>assistant\n");
    if (shows_thinking(r, i, question)) {
        chat_put(w, "<think>\n");
        chat_put_user(w, unicode_trim(reasoning));
        chat_put(w, "\n</think>\n\n");
    }
    chat_put_user(w, content);
    for (size_t k = 0; k < m->n_calls; k++) {
        if (k)
            chat_put(w, "\n");
        else if (!text_is_empty(unicode_trim(content)))
            chat_put(w, "\n\n");
        chat_put_xml_call(w, &m->calls[k], family != CHAT_QWEN35);
    }
    chat_put(w, "<|im_end|>\n");
}

static void put_tool(struct chat_rendering *r, size_t i)
{
    struct chat_writer *w = &r->w;
    if (i && !chat_is_tool(r->chat, i - 1))
        chat_put(w, "<|im_start|>user");
    chat_put(w, "\n<tool_response>\n");
    chat_put_user(w, unicode_trim(r->chat->messages[i].content));
    chat_put(w, "\n</tool_response>");
    if (!chat_is_tool(r->chat, i + 1))
        chat_put(w, "<|im_end|>\n");
}

void chat_render_qwen35(struct chat_rendering *r)
{
    const struct chat *c = r->chat;
    size_t question = chat_last_question(c, true);
    put_head(r);
    for (size_t i = c->messages[0].role == CHAT_SYSTEM; i < c->n_messages; i++) {
        const struct chat_message *m = &c->messages[i];
        if (m->role == CHAT_ASSISTANT)
            put_assistant(r, i, question);
        else if (m->role == CHAT_TOOL)
            put_tool(r, i);
        else
            chat_put_message(&r->w, m->role, unicode_trim(m->content));
    }
    if (r->tail) {
        chat_put(&r->w, "<|im_start|>assistant\n");
        chat_put(&r->w, r->thinking_off ? "<think>\n\n</think>\n\n" : "<think>\n");
    }
}
