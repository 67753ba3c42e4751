/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/conversation.h"

#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"

static const char *const role_names[] = {"system", "user", "assistant"};

void conversation_free(struct conversation *c)
{
    while (c->n)
        conversation_drop(c);
    mem_free(c->messages);
    *c = (struct conversation){0};
}

static bool make_room(struct conversation *c, struct strata_error *e)
{
    if (c->n < c->room)
        return true;
    struct err low;
    err_clear(&low);
    size_t room = c->room ? c->room * 2 : 16;
    struct message *grown = mem_grow(c->messages, room * sizeof *grown, "a conversation", &low);
    if (!grown)
        return take_error(e, &low);
    c->messages = grown;
    c->room = room;
    return true;
}

bool conversation_add(struct conversation *c, enum role role, const char *content,
                      const char *reasoning, struct strata_error *e)
{
    if (!make_room(c, e))
        return false;
    struct err low;
    err_clear(&low);
    struct message m = {.role = role};
    m.content = mem_copy_text(content, strlen(content), &low);
    if (m.content && reasoning)
        m.reasoning = mem_copy_text(reasoning, strlen(reasoning), &low);
    if (!take_error(e, &low)) {
        mem_free(m.content);
        return false;
    }
    c->messages[c->n++] = m;
    return true;
}

void conversation_drop(struct conversation *c)
{
    if (!c->n)
        return;
    struct message m = conversation_take(c);
    message_free(&m);
}

struct message conversation_take(struct conversation *c)
{
    return c->messages[--c->n];
}

void conversation_put(struct conversation *c, struct message m)
{
    c->messages[c->n++] = m; /* its place is still there */
}

void message_free(struct message *m)
{
    mem_free(m->content);
    mem_free(m->reasoning);
}

static bool has_system(const struct conversation *c)
{
    return c->n && c->messages[0].role == ROLE_SYSTEM;
}

bool conversation_set_system(struct conversation *c, const char *text, struct strata_error *e)
{
    bool wanted = text && *text;
    if (wanted && !conversation_add(c, ROLE_SYSTEM, text, NULL, e))
        return false;
    struct message added = wanted ? c->messages[--c->n] : (struct message){0};
    if (has_system(c)) {
        mem_free(c->messages[0].content);
        memmove(c->messages, c->messages + 1, --c->n * sizeof *c->messages);
    }
    if (wanted) {
        memmove(c->messages + 1, c->messages, c->n++ * sizeof *c->messages);
        c->messages[0] = added;
    }
    return true;
}

void conversation_clear(struct conversation *c)
{
    while (c->n > has_system(c))
        conversation_drop(c);
}

bool conversation_ends_with(const struct conversation *c, enum role role)
{
    return c->n && c->messages[c->n - 1].role == role;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

bool conversation_write(const struct conversation *c, struct json_out *out, struct strata_error *e)
{
    json_puts(out, "[");
    for (size_t i = 0; i < c->n; i++) {
        const struct message *m = &c->messages[i];
        json_putf(out, "%s{\"role\": \"%s\", \"content\": ", i ? ", " : "", role_names[m->role]);
        json_put_string(out, m->content, strlen(m->content));
        if (m->reasoning) {
            json_puts(out, ", \"reasoning_content\": ");
            json_put_string(out, m->reasoning, strlen(m->reasoning));
        }
        json_puts(out, "}");
    }
    json_puts(out, "]");
    return !out->failed || fail(e, STRATA_MEMORY, "no memory for the conversation");
}

static bool read_message(struct conversation *c, const struct json *v, size_t i, const char *name,
                         struct strata_error *e)
{
    const struct json *role = json_get(v, "role"), *content = json_get(v, "content");
    const struct json *reasoning = json_get(v, "reasoning_content");
    int r = 0;
    while (r < 3 && !(role && json_is_text(role, role_names[r])))
        r++;
    bool is_good = r < 3 && content && content->kind == JSON_STRING &&
                   (!reasoning || reasoning->kind == JSON_STRING);
    if (!is_good)
        return fail(e, STRATA_FORMAT, "%s: message %zu is not one of a conversation", name, i);
    return conversation_add(c, (enum role)r, content->text, reasoning ? reasoning->text : NULL, e);
}

bool conversation_read(struct conversation *c, const char *text, const char *name,
                       struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    struct json_doc *doc = json_parse(text, strlen(text), name, &low);
    if (!doc)
        return take_error(e, &low);
    const struct json *root = json_root(doc);
    struct conversation read = {0};
    bool ok = root->kind == JSON_ARRAY || fail(e, STRATA_FORMAT, "%s: holds no conversation", name);
    for (size_t i = 0; ok && i < root->count; i++)
        ok = read_message(&read, &root->items[i], i, name, e);
    json_free(doc);
    if (ok) {
        conversation_free(c);
        *c = read;
    } else {
        conversation_free(&read);
    }
    return ok;
}
