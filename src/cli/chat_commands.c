/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chat_commands.h"

#include <string.h>

const struct chat_command chat_commands[CHAT_COMMANDS] = {
    [CHAT_HELP] = {"help", NULL, false, "what a conversation understands"},
    [CHAT_THINK] = {"think", "on|off", true, "reasoning before an answer"},
    [CHAT_SYSTEM] = {"system", "[TEXT]", false, "set the system message, or take it away"},
    [CHAT_RETRY] = {"retry", NULL, false, "answer the last message again, in other words"},
    [CHAT_UNDO] = {"undo", NULL, false, "take back the last message and its answer"},
    [CHAT_RESET] = {"reset", NULL, false, "begin again; the system message stays"},
    [CHAT_SAVE] = {"save", "FILE", true, "save the conversation and its state"},
    [CHAT_LOAD] = {"load", "FILE", true, "go on with a saved conversation"},
    [CHAT_STATS] = {"stats", NULL, false, "speed, hits, misses, bytes read, memory, context"},
    [CHAT_QUIT] = {"quit", NULL, false, "leave (so does Ctrl-D)"},
};

const char chat_about_lines[] =
    "A message of several lines: paste it, or end a line with \\, or put it between\n"
    "two lines of \"\"\". Ctrl-C stops an answer and clears a line; a second one at an\n"
    "empty line leaves.\n";

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

enum chat_command_id chat_command_of(const char *line, const char **argument, size_t *n)
{
    *argument = "";
    *n = 0;
    if (line[0] != '/')
        return CHAT_MESSAGE;
    size_t name = strspn(line + 1, "abcdefghijklmnopqrstuvwxyz");
    const char *rest = line + 1 + name;
    if (!name || (*rest && !is_blank(*rest)))
        return CHAT_MESSAGE;
    while (is_blank(*rest))
        rest++;
    *argument = rest;
    *n = strlen(rest);
    while (*n && is_blank(rest[*n - 1]))
        (*n)--;
    for (int i = 0; i < CHAT_COMMANDS; i++)
        if (strlen(chat_commands[i].name) == name && !memcmp(chat_commands[i].name, line + 1, name))
            return (enum chat_command_id)i;
    return CHAT_UNKNOWN;
}
