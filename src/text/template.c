/* SPDX-License-Identifier: Apache-2.0 */
/* Which family a template is (text.md 3.1), and rendering with the options of a request (3.2). */
#define _GNU_SOURCE /* memmem */
#include "text/template.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "text/chat_print.h"

/* Family chatml: nothing but the messages, a tool's as a user's. */
static void render_chatml(struct chat_rendering *r)
{
    for (size_t i = 0; i < r->chat->n_messages; i++) {
        const struct chat_message *m = &r->chat->messages[i];
        chat_put_message(&r->w, m->role == CHAT_TOOL ? CHAT_USER : m->role, m->content);
    }
    if (r->tail)
        chat_put(&r->w, "<|im_start|>assistant\n");
}

static const struct {
    const char *name;
    bool has_xml_calls;
    void (*render)(struct chat_rendering *r);
} families[CHAT_FAMILIES] = {
    [CHAT_QWEN3] = {"qwen3", false, chat_render_qwen3},
    [CHAT_QWEN3_INSTRUCT] = {"qwen3-instruct", false, chat_render_qwen3},
    [CHAT_QWEN3_THINKING] = {"qwen3-thinking", false, chat_render_qwen3},
    [CHAT_QWEN3_CODER] = {"qwen3-coder", true, chat_render_coder},
    [CHAT_QWEN35] = {"qwen3.5", true, chat_render_qwen35},
    [CHAT_QWEN36] = {"qwen3.6", true, chat_render_qwen35},
    [CHAT_QWEN38] = {"qwen3.8", true, chat_render_qwen35},
    [CHAT_CHATML] = {"chatml", false, render_chatml},
};

const char *chat_family_name(enum chat_family f)
{
    return families[f].name;
}

bool chat_family_parse(const char *name, enum chat_family *out)
{
    for (int f = 0; f < CHAT_FAMILIES; f++) {
        if (!strcmp(name, families[f].name)) {
            *out = (enum chat_family)f;
            return true;
        }
    }
    return false;
}

bool chat_family_has_xml_calls(enum chat_family f)
{
    return families[f].has_xml_calls;
}

/* ---- Which family ---- */

/* FNV-1a 64 and length of the known templates, without newlines at the end. */
static const struct {
    size_t bytes;
    uint64_t hash;
    enum chat_family family;
} known[] = {
    {4168, 0x959a4551391a6549, CHAT_QWEN3},
    {4116, 0x2bfdb7aa9754484e, CHAT_QWEN3},
    {2630, 0x3751fe8ea48448ab, CHAT_QWEN3_INSTRUCT},
    {4049, 0xcd0d41a64dfce181, CHAT_QWEN3_THINKING},
    {6210, 0x317b88632f7d850d, CHAT_QWEN3_CODER},
    {7756, 0xf07c510f47fbaca0, CHAT_QWEN35},
    {7764, 0x8ae3a8bc6e68f114, CHAT_QWEN36},
    {8952, 0x8b6b0871c5db260b, CHAT_QWEN38},
    {149, 0x6ebfc99958218d77, CHAT_CHATML},
};

static uint64_t fnv1a64(const char *text, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3;
    return h;
}

static bool has(const char *text, size_t bytes, const char *word)
{
    return memmem(text, bytes, word, strlen(word)) != NULL;
}

/* The list of 3.1, in its order. */
static enum chat_match match_features(const char *text, size_t bytes, enum chat_family *out)
{
#define HAS(word) has(text, bytes, word)
    if (!HAS("<|im_start|>"))
        return CHAT_MATCH_NONE;
    if (HAS("<function=")) {
        if (HAS("resolved_reasoning_effort"))
            *out = CHAT_QWEN38;
        else if (HAS("last_query_index"))
            *out = HAS("preserve_thinking") ? CHAT_QWEN36 : CHAT_QWEN35;
        else if (HAS("<tool_response>") && !HAS("<think>"))
            *out = CHAT_QWEN3_CODER;
        else
            return CHAT_MATCH_NONE;
        return CHAT_MATCH_FEATURES;
    }
    if (!HAS("<tool_call>") || !HAS("\"arguments\": "))
        return CHAT_MATCH_NONE;
    if (HAS("last_query_index"))
        *out = HAS("enable_thinking") ? CHAT_QWEN3 : CHAT_QWEN3_THINKING;
    else if (!HAS("</think>"))
        *out = CHAT_QWEN3_INSTRUCT;
    else
        return CHAT_MATCH_NONE;
    return CHAT_MATCH_FEATURES;
#undef HAS
}

enum chat_match chat_match_template(const char *text, size_t bytes, enum chat_family *out)
{
    while (bytes && text[bytes - 1] == '\n')
        bytes--;
    uint64_t hash = fnv1a64(text, bytes);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].bytes == bytes && known[i].hash == hash) {
            *out = known[i].family;
            return CHAT_MATCH_EXACT;
        }
    }
    return match_features(text, bytes, out);
}

#define ALL_FAMILIES                                                                               \
    "qwen3, qwen3-instruct, qwen3-thinking, qwen3-coder, qwen3.5, qwen3.6, qwen3.8, chatml"

bool chat_select_family(const struct gguf_file *g, const char *chosen, enum chat_family *out,
                        struct err *e)
{
    const char *path = gguf_part_path(g, 0);
    char *text = NULL;
    size_t bytes = 0;
    if (chosen)
        return chat_family_parse(chosen, out) ||
               err_set(e, ERR_USAGE, "--chat-template %s is not one of " ALL_FAMILIES, chosen);
    if (!gguf_get_text(g, "tokenizer.chat_template", false, &text, &bytes, e))
        return false;
    enum chat_match match = text ? chat_match_template(text, bytes, out) : CHAT_MATCH_NONE;
    bool missing = !text;
    mem_free(text);
    if (match == CHAT_MATCH_FEATURES)
        log_note("%s: tokenizer.chat_template is not a known text; it is rendered as %s, "
                 "differences are possible",
                 path, chat_family_name(*out));
    if (match == CHAT_MATCH_NONE)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tokenizer.chat_template is %s; name its family with --chat-template "
                       "FAMILY (one of " ALL_FAMILIES "), or use --chat-template chatml",
                       path, missing ? "missing" : "not one that is known");
    return true;
}

/* ---- Rendering ---- */

/* What the options mean for a family (3.2). */
static bool resolve_options(struct chat_rendering *r, const struct chat_options *o,
                            struct chat_refusal *why, struct err *e)
{
    static const char *const levels[][2] = {
        {"none", "xhigh"}, {"minimal", "low"}, {"low", "low"},   {"medium", "medium"},
        {"high", "xhigh"}, {"xhigh", "xhigh"}, {"max", "xhigh"},
    };
    r->thinking_off = o->enable_thinking == CHAT_OFF;
    r->preserve = o->preserve_thinking == CHAT_ON;
    r->preserve_off = o->preserve_thinking == CHAT_OFF;
    r->tail = !o->without_generation_prompt;
    r->effort = "xhigh";
    if (!o->reasoning_effort)
        return true;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(o->reasoning_effort, levels[i][0]))
            continue;
        r->effort = levels[i][1];
        if (i == 0 && o->enable_thinking == CHAT_UNSET)
            r->thinking_off = true;
        return true;
    }
    char shown[64];
    err_escape(shown, sizeof shown, o->reasoning_effort, strlen(o->reasoning_effort));
    return chat_refuse(why, e, "invalid_value", "reasoning_effort",
                       "\"%s\" is not one of none, minimal, low, medium, high, xhigh and max",
                       shown);
}

static bool check_conversation(const struct chat *c, bool strict, struct chat_refusal *why,
                               struct err *e)
{
    bool newer = families[c->family].render == chat_render_qwen35;
    if (!c->n_messages)
        return chat_refuse(why, e, "empty_messages", "messages", "there is no message");
    for (size_t i = 1; newer && strict && i < c->n_messages; i++)
        if (c->messages[i].role == CHAT_SYSTEM)
            return chat_refuse(why, e, "system_not_first", "messages",
                               "a system message stands after other messages");
    if (newer && chat_last_question(c, true) == c->n_messages)
        return chat_refuse(why, e, "no_user_message", "messages",
                           "there is no message of a user that is not a tool's response");
    return true;
}

static bool opens_thinking(const struct chat_rendering *r)
{
    static const char end[] = "<think>\n";
    size_t n = sizeof end - 1;
    return r->tail && r->w.out.bytes >= n && !memcmp(r->w.out.text + r->w.out.bytes - n, end, n);
}

bool chat_render(const struct chat *c, const struct chat_options *options, struct chat_prompt *out,
                 struct chat_refusal *why, struct err *e)
{
    struct chat_rendering r = {.chat = c};
    *out = (struct chat_prompt){0};
    if (!resolve_options(&r, options, why, e) ||
        !check_conversation(c, options->strict_template, why, e))
        return false;
    families[c->family].render(&r);
    if (r.w.out.failed) {
        json_out_free(&r.w.out);
        mem_free(r.w.user);
        return err_set(e, ERR_MEMORY, "out of memory: a chat prompt of %zu messages",
                       c->n_messages);
    }
    *out =
        (struct chat_prompt){r.w.out.text, r.w.out.bytes, r.w.user, r.w.n_user, opens_thinking(&r)};
    return true;
}

void chat_prompt_free(struct chat_prompt *p)
{
    mem_free(p->text);
    mem_free(p->user);
    *p = (struct chat_prompt){0};
}
