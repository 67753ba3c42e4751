/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the chat prompts: what the renderers of all families share. */
#ifndef STRATA_TEXT_CHAT_PRINT_H
#define STRATA_TEXT_CHAT_PRINT_H

#include "text/template.h"

struct chat {
    enum chat_family family;
    struct chat_message *messages;
    size_t n_messages, room;
    const struct json *tools; /* array with at least one element, or NULL */
};

/* The prompt as it grows. A failed allocation is kept in out.failed, later calls do nothing. */
struct chat_writer {
    struct json_out out;
    struct text_range *user;
    size_t n_user, user_room;
};

/* Text of the template, and text that came from the user. */
void chat_put(struct chat_writer *w, const char *text);
void chat_put_user(struct chat_writer *w, struct text_view v);
/* Values of the user: as JSON, by Python's str(), and str() but JSON for arrays and objects. */
void chat_put_json(struct chat_writer *w, const struct json *v);
void chat_put_str(struct chat_writer *w, const struct json *v);
void chat_put_str_or_json(struct chat_writer *w, const struct json *v);
/* str(v) without white space at its ends. */
void chat_put_trimmed_str(struct chat_writer *w, const struct json *v);

/* "<|im_start|>ROLE\n" content "<|im_end|>\n". */
void chat_put_message(struct chat_writer *w, enum chat_role role, struct text_view content);

/* "<parameter=KEY>\nVALUE\n</parameter>\n" for each argument; `strings_only_raw`: every value but a
 * string is JSON (3.6, 3.8), else only arrays and objects are. */
void chat_put_xml_call(struct chat_writer *w, const struct chat_call *call, bool strings_only_raw);

/* How calls are to be written; the end of the tools' part in all families with XML calls. */
extern const char chat_xml_instructions[];

/* ---- Texts ---- */

bool text_is_empty(struct text_view v);
struct text_view text_of_json(const struct json *string);
struct text_view text_trim_newlines_left(struct text_view v);
struct text_view text_trim_newlines(struct text_view v);

/* Takes reasoning out of a content that holds </think> (3.3): content becomes what follows the
 * last one, *reasoning what lies before the first one, after its last <think>. */
void chat_split_reasoning(struct text_view *content, struct text_view *reasoning);

/* Number of the last user message that is not wrapped in <tool_response>, n_messages if none is.
 * `trimmed`: white space at its ends is not looked at. */
size_t chat_last_question(const struct chat *c, bool trimmed);

/* Message i is a tool message. False for i beyond the ends (size_t)-1 and n_messages. */
bool chat_is_tool(const struct chat *c, size_t i);

/* Fills *why (may be NULL) and sets the error, whose sentence begins with `param`. Returns false.
 */
bool chat_refuse(struct chat_refusal *why, struct err *e, const char *code, const char *param,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ---- The families: everything from the head to the tail. ---- */

struct chat_rendering {
    const struct chat *chat;
    struct chat_writer w;
    const char *effort;          /* qwen3.8: "low", "medium" or "xhigh" */
    bool thinking_off;           /* enable_thinking is given as false */
    bool preserve, preserve_off; /* preserve_thinking is given as true, as false */
    bool tail;                   /* a generation prompt is wanted */
};

void chat_render_qwen3(struct chat_rendering *r);
void chat_render_coder(struct chat_rendering *r);
void chat_render_qwen35(struct chat_rendering *r);

#endif
