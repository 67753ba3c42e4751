/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from a person: a line editor with history on a terminal, plain lines elsewhere. */
#ifndef STRATA_CLI_TERMINAL_H
#define STRATA_CLI_TERMINAL_H

#include "strata.h"

struct terminal;

enum terminal_read {
    TERMINAL_MESSAGE,
    TERMINAL_END,         /* Ctrl-D, end of input */
    TERMINAL_CLEARED,     /* Ctrl-C while something was written: it is thrown away */
    TERMINAL_INTERRUPTED, /* Ctrl-C at an empty line */
    TERMINAL_FAILED,
};

/* Reads stdin. NULL on an error. Freed with terminal_free, which leaves the terminal as it was. */
struct terminal *terminal_create(struct strata_error *e);
void terminal_free(struct terminal *t);
/* Somebody sits there: stdin is a terminal. */
bool terminal_is_person(const struct terminal *t);

/* The next message: one line; or what a paste of several lines was; or lines that end with a
 * backslash and the one after them; or what stands between two lines of """. *text is
 * NUL-terminated and valid until the next call. */
enum terminal_read terminal_read(struct terminal *t, const char **text, struct strata_error *e);

#endif
