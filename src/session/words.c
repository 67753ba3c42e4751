/* SPDX-License-Identifier: Apache-2.0 */
/* Words and ids, and conversations as prompts: the public face of src/text. */
#include <string.h>

#include "base/mem.h"
#include "session/session.h"
#include "text/template.h"

bool strata_encode(struct strata_model *m, const char *text, size_t bytes, enum strata_special mode,
                   int32_t **ids, size_t *n, struct strata_error *error)
{
    static const enum special_mode modes[] = {
        [STRATA_SPECIAL_USER] = SPECIAL_USER,
        [STRATA_SPECIAL_ALL] = SPECIAL_ALL,
        [STRATA_SPECIAL_NONE] = SPECIAL_NONE,
    };
    struct err e;
    err_clear(&e);
    *ids = NULL;
    *n = 0;
    const struct tokenizer *t = engine_words(m, &e);
    if (t)
        tokenizer_encode(t, text, bytes, modes[mode], NULL, 0, ids, n, &e);
    return session_report(error, &e);
}

bool strata_token_bytes(struct strata_model *m, int32_t id, const char **text, size_t *bytes,
                        struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    const struct tokenizer *t = engine_words(m, &e);
    if (t && (id < 0 || (size_t)id >= tokenizer_count(t))) {
        err_set(&e, ERR_USAGE, "%s: id %d is not one of the %zu of the vocabulary", m->path, id,
                tokenizer_count(t));
    } else if (t) {
        struct text_view piece = tokenizer_piece(t, id, true);
        *text = piece.text;
        *bytes = piece.bytes;
    }
    return session_report(error, &e);
}

bool strata_token_is_end(struct strata_model *m, int32_t id)
{
    struct err e;
    err_clear(&e);
    const struct tokenizer *t = engine_words(m, &e);
    return t && tokenizer_is_end(t, id);
}

int strata_vocabulary_size(struct strata_model *m)
{
    struct err e;
    err_clear(&e);
    const struct tokenizer *t = engine_words(m, &e);
    return t ? (int)tokenizer_count(t) : 0;
}

/* ---- Chat ----------------------------------------------------------------------------------- */

struct strata_prompt {
    struct chat_prompt prompt;
};

const char *strata_chat_family(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    enum chat_family family;
    bool ok = chat_select_family(m->file, m->chat_family, &family, &e);
    session_report(error, &e);
    return ok ? chat_family_name(family) : NULL;
}

static enum chat_switch chat_switch_of(enum strata_choice c)
{
    return c == STRATA_ON ? CHAT_ON : c == STRATA_OFF ? CHAT_OFF : CHAT_UNSET;
}

/* From parsed JSON to text. */
static bool render(enum chat_family family, const struct json *messages, const struct json *tools,
                   const struct strata_render_options *options, struct chat_prompt *out,
                   struct err *e)
{
    struct chat_options o = {0};
    if (options) {
        o.enable_thinking = chat_switch_of(options->think);
        o.preserve_thinking = chat_switch_of(options->preserve_thinking);
        o.reasoning_effort = options->effort;
        o.without_generation_prompt = options->no_generation_prompt;
    }
    struct chat *c = chat_create(family, e);
    bool ok = c && chat_add_messages(c, messages, NULL, e) && chat_set_tools(c, tools, NULL, e) &&
              chat_render(c, &o, out, NULL, e);
    chat_free(c);
    return ok;
}

struct strata_prompt *strata_render(struct strata_model *m, const char *messages, const char *tools,
                                    const struct strata_render_options *options,
                                    struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    enum chat_family family;
    struct json_doc *conversation = NULL, *functions = NULL;
    struct strata_prompt *p = NULL;
    bool ok = chat_select_family(m->file, m->chat_family, &family, &e);
    if (ok)
        ok = (conversation = json_parse(messages, strlen(messages), "messages", &e)) != NULL;
    if (ok && tools)
        ok = (functions = json_parse(tools, strlen(tools), "tools", &e)) != NULL;
    if (ok)
        ok = (p = mem_alloc(sizeof *p, "a prompt", &e)) != NULL;
    if (ok && !render(family, json_root(conversation), functions ? json_root(functions) : NULL,
                      options, &p->prompt, &e)) {
        mem_free(p);
        p = NULL;
    }
    json_free(functions);
    json_free(conversation);
    session_report(error, &e);
    return p;
}

void strata_prompt_free(struct strata_prompt *p)
{
    if (!p)
        return;
    chat_prompt_free(&p->prompt);
    mem_free(p);
}

const char *strata_prompt_text(const struct strata_prompt *p, size_t *bytes)
{
    if (bytes)
        *bytes = p->prompt.bytes;
    return p->prompt.text;
}

bool strata_prompt_opens_thinking(const struct strata_prompt *p)
{
    return p->prompt.opens_thinking;
}

bool strata_prompt_ids(struct strata_model *m, const struct strata_prompt *p, int32_t **ids,
                       size_t *n, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    *ids = NULL;
    *n = 0;
    const struct tokenizer *t = engine_words(m, &e);
    if (t)
        tokenizer_encode(t, p->prompt.text, p->prompt.bytes, SPECIAL_ALL, p->prompt.user,
                         p->prompt.n_user, ids, n, &e);
    return session_report(error, &e);
}
