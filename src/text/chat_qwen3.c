/* SPDX-License-Identifier: Apache-2.0 */
/* Families qwen3, qwen3-instruct and qwen3-thinking (text.md 3.3): calls and tools are JSON. */
#include "text/chat_print.h"

static void put_head(struct chat_rendering *r)
{
    const struct chat *c = r->chat;
    struct chat_writer *w = &r->w;
    bool system = c->messages[0].role == CHAT_SYSTEM;
    if (!c->tools) {
        if (system)
            chat_put_message(w, CHAT_SYSTEM, c->messages[0].content);
        return;
    }
    chat_put(w, "<|im_start|>system\n");
    if (system) {
        chat_put_user(w, c->messages[0].content);
        chat_put(w, "\n\n");
    }
    chat_put(w, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                "You are provided with function signatures within <tools></tools> XML tags:\n"
                "<tools>");
    for (size_t i = 0; i < c->tools->count; i++) {
        chat_put(w, "\n");
        chat_put_json(w, &c->tools->items[i]);
    }
    chat_put(w, "\n</tools>\n\nFor each function call, return a json object with function name and "
                "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
                "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
                "<|im_end|>\n");
}

static void put_assistant(struct chat_rendering *r, size_t i, size_t question)
{
    const struct chat *c = r->chat;
    struct chat_writer *w = &r->w;
    const struct chat_message *m = &c->messages[i];
    struct text_view content = m->content, reasoning = m->reasoning;
    chat_put(w, "<|im_start|>assistant\n");
    if (c->family != CHAT_QWEN3_INSTRUCT) {
        if (!reasoning.text)
            chat_split_reasoning(&content, &reasoning);
        if (i > question && (i + 1 == c->n_messages || !text_is_empty(reasoning))) {
            chat_put(w, "<think>\n");
            chat_put_user(w, text_trim_newlines(reasoning));
            chat_put(w, "\n</think>\n\n");
            content = text_trim_newlines_left(content);
        }
    }
    chat_put_user(w, content);
    for (size_t k = 0; k < m->n_calls; k++) {
        chat_put(w, k || !text_is_empty(content) ? "\n" : "");
        chat_put(w, "<tool_call>\n{\"name\": \"");
        chat_put_user(w, m->calls[k].name);
        chat_put(w, "\", \"arguments\": ");
        chat_put_user(w, m->calls[k].arguments);
        chat_put(w, "}\n</tool_call>");
    }
    chat_put(w, "<|im_end|>\n");
}

static void put_tool(struct chat_rendering *r, size_t i)
{
    struct chat_writer *w = &r->w;
    if (!chat_is_tool(r->chat, i - 1))
        chat_put(w, "<|im_start|>user");
    chat_put(w, "\n<tool_response>\n");
    chat_put_user(w, r->chat->messages[i].content);
    chat_put(w, "\n</tool_response>");
    if (!chat_is_tool(r->chat, i + 1))
        chat_put(w, "<|im_end|>\n");
}

void chat_render_qwen3(struct chat_rendering *r)
{
    const struct chat *c = r->chat;
    size_t question = chat_last_question(c, false);
    if (question == c->n_messages)
        question--;
    put_head(r);
    for (size_t i = c->messages[0].role == CHAT_SYSTEM; i < c->n_messages; i++) {
        const struct chat_message *m = &c->messages[i];
        if (m->role == CHAT_ASSISTANT)
            put_assistant(r, i, question);
        else if (m->role == CHAT_TOOL)
            put_tool(r, i);
        else
            chat_put_message(&r->w, m->role, m->content);
    }
    if (!r->tail)
        return;
    chat_put(&r->w, "<|im_start|>assistant\n");
    if (c->family == CHAT_QWEN3_THINKING)
        chat_put(&r->w, "<think>\n");
    else if (c->family == CHAT_QWEN3 && r->thinking_off)
        chat_put(&r->w, "<think>\n\n</think>\n\n");
}
