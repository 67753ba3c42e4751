/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a chat: a system message if there is one, then user and assistant in turn. */
#ifndef STRATA_CLI_CONVERSATION_H
#define STRATA_CLI_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "strata.h"

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT };

struct message {
    enum role role;
    char *content;
    char *reasoning; /* assistant only, NULL: none */
};

/* All zero: empty. */
struct conversation {
    struct message *messages;
    size_t n, room;
};

void conversation_free(struct conversation *c);
/* Copies the texts; `reasoning` may be NULL. */
bool conversation_add(struct conversation *c, enum role role, const char *content,
                      const char *reasoning, struct strata_error *e);
/* Takes the last message away; nothing happens when there is none. */
void conversation_drop(struct conversation *c);
/* Takes the last message out and hands it over; put brings back what was taken out last. */
struct message conversation_take(struct conversation *c);
void conversation_put(struct conversation *c, struct message m);
void message_free(struct message *m);
/* Sets the system message, or with NULL or "" removes it. */
bool conversation_set_system(struct conversation *c, const char *text, struct strata_error *e);
/* Removes everything but the system message. */
void conversation_clear(struct conversation *c);
/* The last message is one of this role. */
bool conversation_ends_with(const struct conversation *c, enum role role);

/* A JSON array as in the chat API; freed with json_out_free. */
bool conversation_write(const struct conversation *c, struct json_out *out, struct strata_error *e);
/* Replaces *c by what conversation_write wrote; on an error *c stays. `name` is for messages. */
bool conversation_read(struct conversation *c, const char *text, const char *name,
                       struct strata_error *e);

#endif
