/* SPDX-License-Identifier: Apache-2.0 */
/* Options that change nothing as they were given: a note says so. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* Such that mean something only beside another one. */
static const struct {
    enum option option, beside;
} companions[] = {
    {OPTION_MOCE_KEEP, OPTION_MOCE},
    {OPTION_TRACE_GUESSES, OPTION_TRACE},
    {OPTION_PROMPT_MOCE, OPTION_MOCE},
    {OPTION_MTP_RIGHT, OPTION_MTP},
};

static void note_without(enum option option, enum option beside)
{
    message_note("--%s has no effect without --%s", option_lines[option].name,
                 option_lines[beside].name);
}

static bool is_draft(const struct options *o, const char *word)
{
    return option_given(o, OPTION_DRAFT) && !strcmp(option_text(o, OPTION_DRAFT), word);
}

/* Whether --moce asks for anything: guesses would change what is chosen, so there are none. */
static bool bends_routing(const struct options *o)
{
    const char *text = option_text(o, OPTION_MOCE);
    return text && (!strncmp(text, "auto:", 5) || strtod(text, NULL) != 0);
}

/* Commands that feed given ids: what a guess would save is not there to be saved. */
static void note_no_guesses(const struct options *o)
{
    static const enum option of_drafts[] = {OPTION_DRAFT, OPTION_DRAFT_ROWS, OPTION_DRAFT_MODEL};
    for (int i = 0; i < 3; i++)
        if (option_given(o, of_drafts[i]) && (i || is_draft(o, "lookup") || is_draft(o, "mtp")))
            message_note("--%s has no effect on speed: `strata %s` makes no guesses",
                         option_lines[of_drafts[i]].name, command_lines[o->command].name);
}

static void note_idle_drafts(const struct options *o)
{
    static const enum option of_drafts[] = {OPTION_DRAFT_ROWS, OPTION_DRAFT_MODEL};
    bool is_off = is_draft(o, "off"), is_bent = bends_routing(o) && !is_off;
    for (int i = 0; (is_off || is_bent) && i < 2; i++)
        if (option_given(o, of_drafts[i]))
            message_note("--%s has no effect beside --%s", option_lines[of_drafts[i]].name,
                         is_off ? "draft off" : "moce");
    if (is_bent && (is_draft(o, "lookup") || is_draft(o, "mtp")))
        message_note("--draft has no effect beside --moce");
    if (option_given(o, OPTION_DRAFT_MODEL) && is_draft(o, "lookup"))
        message_note("--draft-model has no effect beside --draft lookup");
    if (option_given(o, OPTION_DRAFT_ROWS) && option_given(o, OPTION_WINDOW) &&
        o->value[OPTION_DRAFT_ROWS].whole > o->value[OPTION_WINDOW].whole)
        message_note("--draft-rows %s: --window %s leaves steps no more rows than that",
                     option_text(o, OPTION_DRAFT_ROWS), option_text(o, OPTION_WINDOW));
}

void note_idle_options(const struct options *o)
{
    static const enum option of_chats[] = {OPTION_THINK, OPTION_EFFORT, OPTION_CHAT_TEMPLATE};
    if (option_given(o, OPTION_ARMS) || option_given(o, OPTION_AGAINST))
        return; /* what they are beside may be in there */
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        if (option_given(o, companions[i].option) && !option_given(o, companions[i].beside))
            note_without(companions[i].option, companions[i].beside);
    for (size_t i = 0; o->command == COMMAND_RUN && i < sizeof of_chats / sizeof *of_chats; i++)
        if (option_given(o, of_chats[i]) && !option_given(o, OPTION_CHAT))
            note_without(of_chats[i], OPTION_CHAT);
    const char *ahead = option_text(o, OPTION_READ_AHEAD);
    if (option_given(o, OPTION_AHEAD_MARGIN) && ahead && (!strcmp(ahead, "off") || !strcmp(ahead, "0")))
        message_note("--ahead-margin has no effect beside --read-ahead %s", ahead);
    bool guesses_nothing =
        o->command == COMMAND_BENCH || o->command == COMMAND_LOGITS || o->command == COMMAND_KLD;
    if (guesses_nothing)
        note_no_guesses(o);
    else
        note_idle_drafts(o);
}

void note_idle_effort(const struct options *o, struct strata_model *m)
{
    const char *effort = option_text(o, OPTION_EFFORT);
    struct strata_error ignored = {0};
    const char *family = effort ? strata_chat_family(m, &ignored) : NULL;
    if (family && strcmp(effort, "none") && strcmp(family, "qwen3.8"))
        message_note("--effort %s has no effect: prompts of %s say nothing about it", effort,
                     family);
}
