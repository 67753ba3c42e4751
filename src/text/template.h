/* SPDX-License-Identifier: Apache-2.0 */
/* Chat prompts: from a conversation to the exact text that the model was trained on. Source:
 * text.md part 3. There is no template interpreter: a file's template only selects one of the
 * families below, each of which is written by hand and equals its template byte for byte.
 *
 *     chat_create(family) -> chat_add or chat_add_messages, chat_set_tools -> chat_render
 *
 * A refusal that a client can be told has a code (`struct chat_refusal`) besides the sentence. */
#ifndef STRATA_TEXT_TEMPLATE_H
#define STRATA_TEXT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json.h"
#include "gguf/gguf.h"
#include "text/unicode.h"

enum chat_family {
    CHAT_QWEN3,
    CHAT_QWEN3_INSTRUCT,
    CHAT_QWEN3_THINKING,
    CHAT_QWEN3_CODER,
    CHAT_QWEN35,
    CHAT_QWEN36,
    CHAT_QWEN38,
    CHAT_CHATML,
    CHAT_FAMILIES,
};

/* "qwen3", "qwen3-instruct", ..., "chatml". */
const char *chat_family_name(enum chat_family f);
bool chat_family_parse(const char *name, enum chat_family *out);
/* Calls are written as XML (3.4, 3.5), not as JSON (3.3). */
bool chat_family_has_xml_calls(enum chat_family f);

/* How a template's family is known (3.1). */
enum chat_match {
    CHAT_MATCH_NONE,     /* it is not */
    CHAT_MATCH_EXACT,    /* the text is a known one */
    CHAT_MATCH_FEATURES, /* by what the text holds: differences are possible */
};
enum chat_match chat_match_template(const char *text, size_t bytes, enum chat_family *out);

/* The family for a model: `chosen` (--chat-template) if not NULL, else by the file's
 * `tokenizer.chat_template`, with a note to the user when by features. When there is none, or one
 * that is not known, the message says so and names --chat-template FAMILY. */
bool chat_select_family(const struct gguf_file *g, const char *chosen, enum chat_family *out,
                        struct err *e);

/* ---- A conversation ---- */

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_call {
    struct text_view name;
    struct text_view arguments; /* JSON text as it came, "{}" for an empty one */
    struct json_doc *parsed;    /* families with XML calls: the same, an object */
};

struct chat_message {
    enum chat_role role;
    struct text_view content;
    struct text_view reasoning; /* text NULL: not given, which is not the same as empty */
    struct chat_call *calls;    /* assistant */
    size_t n_calls;
};

struct chat;

/* Why a conversation is refused: `code` as in text.md 6.1 (or "empty_messages", "unknown_role"),
 * `param` the place, like "messages.0.content". Both are empty when the error is another one. */
struct chat_refusal {
    const char *code;
    char param[64];
};

struct chat *chat_create(enum chat_family family, struct err *e);
void chat_free(struct chat *c);

/* Adds a message. Texts are copied; bytes that are not UTF-8 become U+FFFD. A system message right
 * after a first system message is joined to it. reasoning.text may be NULL. */
bool chat_add(struct chat *c, enum chat_role role, struct text_view content,
              struct text_view reasoning, struct err *e);

/* Adds the messages of a request, the array as in /v1/chat/completions (3.2). `why` may be NULL. */
bool chat_add_messages(struct chat *c, const struct json *messages, struct chat_refusal *why,
                       struct err *e);

/* The tools of a request: NULL, JSON null or an array. It is not copied and must outlive c. */
bool chat_set_tools(struct chat *c, const struct json *tools, struct chat_refusal *why,
                    struct err *e);

size_t chat_count(const struct chat *c);
const struct chat_message *chat_message_at(const struct chat *c, size_t i);
/* Takes back all messages from number `count` on. */
void chat_truncate(struct chat *c, size_t count);

/* ---- The prompt ---- */

enum chat_switch { CHAT_UNSET, CHAT_OFF, CHAT_ON };

/* All zero: the template's defaults. */
struct chat_options {
    enum chat_switch enable_thinking, preserve_thinking;
    const char *reasoning_effort;   /* none, minimal, low, medium, high, xhigh, max; NULL: unset */
    bool without_generation_prompt; /* do not open the assistant's turn */
    bool strict_template;           /* refuse a late system message where the template does */
};

struct chat_prompt {
    char *text; /* NUL-terminated, UTF-8 */
    size_t bytes;
    struct text_range *user; /* parts that came from the user, rising and apart: for
                              * tokenizer_encode with SPECIAL_ALL */
    size_t n_user;
    bool opens_thinking; /* ends with an open <think>: the answer begins with reasoning */
};

/* *out is freed with chat_prompt_free. `why` may be NULL. */
bool chat_render(const struct chat *c, const struct chat_options *options, struct chat_prompt *out,
                 struct chat_refusal *why, struct err *e);
void chat_prompt_free(struct chat_prompt *p);

#endif
