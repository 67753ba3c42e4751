/* SPDX-License-Identifier: Apache-2.0 */
/* What a conversation understands besides messages: the table for /help and the manual page. */
#ifndef STRATA_CLI_CHAT_COMMANDS_H
#define STRATA_CLI_CHAT_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

enum chat_command_id {
    CHAT_HELP, CHAT_THINK, CHAT_SYSTEM, CHAT_RETRY, CHAT_UNDO, CHAT_RESET, CHAT_SAVE, CHAT_LOAD,
    CHAT_STATS, CHAT_QUIT, CHAT_COMMANDS,
    CHAT_MESSAGE = CHAT_COMMANDS, /* no command: a message */
    CHAT_UNKNOWN,                 /* looks like a command and is none */
};

struct chat_command {
    const char *name;
    const char *argument; /* what help calls it, NULL: takes none */
    bool needs_argument;
    const char *help;
};
extern const struct chat_command chat_commands[CHAT_COMMANDS];
/* How messages of several lines are written, and what Ctrl-C does. */
extern const char chat_about_lines[];

/* Which command a line is; *argument gets what follows it, without the white space around it, as n
 * bytes. "/etc/passwd says .." and " /quit" are messages. */
enum chat_command_id chat_command_of(const char *line, const char **argument, size_t *n);

#endif
