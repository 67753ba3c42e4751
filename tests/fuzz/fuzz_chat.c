/* SPDX-License-Identifier: Apache-2.0 */
/* Chat prompts: each line is a request with `messages` and `tools`, rendered by all families. A
 * line that is no JSON is a template whose family is looked for. */
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "text/template.h"

static void check_prompt(const struct chat_prompt *p)
{
    char *repaired = NULL;
    size_t bytes, end = 0;
    fuzz_require(unicode_repair(p->text, p->bytes, &repaired, &bytes, NULL) && !repaired);
    for (size_t i = 0; i < p->n_user; i++) {
        fuzz_require(p->user[i].begin >= end && p->user[i].begin < p->user[i].end);
        end = p->user[i].end;
    }
    fuzz_require(end <= p->bytes && p->text[p->bytes] == 0);
}

static void render(const struct json *line, enum chat_family f)
{
    const struct json *messages = json_get(line, "messages");
    const struct chat_options options = {
        .enable_thinking = json_get(line, "name") ? CHAT_OFF : CHAT_UNSET,
        .preserve_thinking = json_get(line, "tools") ? CHAT_ON : CHAT_OFF,
    };
    struct chat_refusal why = {0};
    struct err e = {0};
    struct chat_prompt p = {0};
    struct chat *c = chat_create(f, &e);
    fuzz_require(c);
    if (messages && chat_set_tools(c, json_get(line, "tools"), &why, &e) &&
        chat_add_messages(c, messages, &why, &e) && chat_render(c, &options, &p, &why, &e))
        check_prompt(&p);
    else if (messages)
        fuzz_require(why.code && e.code != ERR_NONE && !strchr(e.text, '\n'));
    chat_prompt_free(&p);
    chat_free(c);
}

static void take_line(const char *text, size_t bytes)
{
    struct err e = {0};
    enum chat_family family;
    struct json_doc *d = json_parse(text, bytes, "line", &e);
    if (!d) {
        chat_match_template(text, bytes, &family);
        return;
    }
    for (int f = 0; f < CHAT_FAMILIES; f++)
        render(json_root(d), (enum chat_family)f);
    json_free(d);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t before = mem_in_use();
    for (size_t at = 0, n; at < size; at += n + 1) {
        const char *end = memchr(text + at, '\n', size - at);
        n = end ? (size_t)(end - text) - at : size - at;
        take_line(text + at, n);
    }
    fuzz_require(mem_in_use() == before);
    return 0;
}
