/* SPDX-License-Identifier: Apache-2.0 */
/* `strata chat`: a conversation in the terminal.
 *
 * The messages are the truth; the session follows them. Before an answer the whole conversation is
 * rendered, and the session keeps what it has in common with that. A snapshot is taken before the
 * beginning of each answer, because what a template makes of an answer later (without its
 * reasoning, trimmed) need not be what the model wrote. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/answer.h"
#include "cli/chat_commands.h"
#include "cli/cli.h"
#include "cli/conversation.h"
#include "cli/help.h"
#include "cli/input.h"
#include "cli/kept.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "session/session.h"

/* Of this answer and the one before, for /undo and /retry. */
#define SNAPSHOTS 2

struct chat {
    const struct options *o;
    struct strata_model *model;
    struct strata_session *session;
    struct strata_sampling sampling;
    struct strata_render_options how;
    struct conversation talk;
    struct terminal *terminal;
    enum answer_part shown; /* what the answer under way is at */
    bool leaves;
    enum status status;
};

/* ---- What is shown -------------------------------------------------------------------------- */

/* Reasoning is dim on a terminal and between its tags elsewhere. */
static bool show_part(struct chat *c, enum answer_part part, struct strata_error *e)
{
    static const char *const begin[2][2] = {{"\n</think>\n\n", "<think>\n"},
                                            {"\033[22m\n\n", "\033[2m"}};
    const char *mark = begin[output_is_terminal()][part == ANSWER_REASONING];
    c->shown = part;
    return output_write(mark, strlen(mark), e);
}

static bool show_answer(void *ctx, enum answer_part part, const char *text, size_t bytes,
                        struct strata_error *e)
{
    struct chat *c = ctx;
    return (part == c->shown || show_part(c, part, e)) && output_text(text, bytes, e);
}

/* Ends the line of the answer, and its dimness. */
static bool show_end(struct chat *c, struct strata_error *e)
{
    if (c->shown == ANSWER_REASONING) {
        const char *mark = output_is_terminal() ? "\033[22m" : "\n</think>";
        if (!output_write(mark, strlen(mark), e))
            return false;
    }
    return output_write("\n", 1, e);
}

static void warn_of_context(const struct chat *c)
{
    int all = strata_context(c->session), left = all - strata_position(c->session);
    if (left < all / 8 || left < 64)
        message_note(
            "the context is nearly full, %d of %d tokens are left: /undo and /reset make room, "
            "--ctx a larger one",
            left, all);
}

/* ---- The prompt ----------------------------------------------------------------------------- */

/* Ids of the conversation, with or without the beginning of an answer. */
static bool render(struct chat *c, bool with_beginning, int32_t **ids, size_t *n,
                   bool *opens_thinking, struct strata_error *e)
{
    struct json_out messages = {0};
    struct strata_render_options how = c->how;
    how.no_generation_prompt = !with_beginning;
    struct strata_prompt *p = NULL;
    if (conversation_write(&c->talk, &messages, e))
        p = strata_render(c->model, messages.text, NULL, &how, e);
    json_out_free(&messages);
    bool ok = p && strata_prompt_ids(c->model, p, ids, n, e);
    *opens_thinking = ok && strata_prompt_opens_thinking(p);
    strata_prompt_free(p);
    return ok;
}

static bool check_fits(const struct chat *c, size_t n, struct strata_error *e)
{
    int all = strata_context(c->session);
    if (n < (size_t)all)
        return true;
    return fail(e, STRATA_USAGE,
                "the conversation would have %zu tokens, the context holds %d: /undo and "
                "/reset make room, --ctx a larger one",
                n, all);
}

/* Makes the session hold these ids. Where it has gone beyond them (/retry), the snapshot that was
 * taken there brings it back without reading anything again. */
static bool hold(struct chat *c, const int32_t *ids, size_t n, struct strata_error *e)
{
    struct strata_session *s = c->session;
    if ((size_t)strata_position(s) > n && !memcmp(strata_ids(s), ids, n * sizeof *ids))
        return strata_rewind(s, (int)n, &prompt_pass, e);
    return strata_feed_whole(s, ids, n, NULL, &prompt_pass, e);
}

/* Makes the session hold the conversation, ready for an answer. */
static bool feed(struct chat *c, bool *opens_thinking, struct strata_error *e)
{
    int32_t *whole = NULL, *before = NULL;
    size_t n, n_before;
    bool unused;
    bool ok = render(c, true, &whole, &n, opens_thinking, e) &&
              render(c, false, &before, &n_before, &unused, e) && check_fits(c, n, e);
    if (ok) {
        bool is_beginning =
            n_before && n_before < n && !memcmp(whole, before, n_before * sizeof *whole);
        if (!is_beginning)
            n_before = n;
        ok = hold(c, whole, n_before, e) && strata_snapshot(c->session, e) &&
             strata_feed(c->session, whole + n_before, n - n_before, &prompt_pass, e);
    }
    message_progress_end();
    strata_free(whole);
    strata_free(before);
    return ok;
}

/* ---- An answer ------------------------------------------------------------------------------ */

static void trim_end(struct json_out *text)
{
    while (text->bytes &&
           (text->text[text->bytes - 1] == '\n' || text->text[text->bytes - 1] == '\r'))
        text->text[--text->bytes] = 0;
}

/* What was said becomes part of the conversation, also when it was stopped. */
static bool keep_answer(struct chat *c, struct answer *a, struct strata_error *e)
{
    trim_end(&a->reasoning);
    return conversation_add(&c->talk, ROLE_ASSISTANT, a->text.bytes ? a->text.text : "",
                            a->reasoning.bytes ? a->reasoning.text : NULL, e);
}

static void tell_finish(const struct chat *c, const struct answer *a)
{
    bool is_full = strata_position(c->session) == strata_context(c->session);
    if (a->finish == ANSWER_INTERRUPTED)
        message_note("stopped");
    else if (a->finish == ANSWER_LENGTH && is_full)
        message_note("the context is full, the answer ends here: /undo and /reset make room");
    else if (a->finish == ANSWER_LENGTH)
        message_detail("ended after %zu token%s (-n)", a->n, a->n == 1 ? "" : "s");
}

static bool generate(struct chat *c, bool opens_thinking, struct strata_error *e)
{
    struct answer_request request = {
        .model = c->model,
        .session = c->session,
        .stops = c->o->stops,
        .n_stops = c->o->n_stops,
        .most =
            option_given(c->o, OPTION_TOKENS) ? (size_t)c->o->value[OPTION_TOKENS].whole : SIZE_MAX,
        .splits_reasoning = true,
        .begins_with_reasoning = opens_thinking,
        .show = show_answer,
        .ctx = c,
    };
    struct answer a;
    c->shown = ANSWER_TEXT;
    bool ok = answer_generate(&request, &a, e);
    struct strata_error second = {0};
    if (!show_end(c, ok ? e : &second))
        ok = false;
    if (ok)
        tell_finish(c, &a);
    /* Stopped before its first word, an answer is none, and the message is taken back. */
    if (a.n || (ok && a.finish != ANSWER_INTERRUPTED))
        ok = keep_answer(c, &a, ok ? e : &second) && ok;
    answer_free(&a);
    return ok;
}

/* Answers the last message. */
static bool answer(struct chat *c, struct strata_error *e)
{
    bool opens_thinking;
    if (!feed(c, &opens_thinking, e))
        return false;
    warn_of_context(c);
    return strata_answer_begin(c->session, &c->sampling, e) && generate(c, opens_thinking, e);
}

/* A message that could not be answered is taken back, so that the next one can be. */
static bool take_message(struct chat *c, const char *text, struct strata_error *e)
{
    if (!conversation_add(&c->talk, ROLE_USER, text, NULL, e))
        return false;
    bool ok = answer(c, e);
    if (conversation_ends_with(&c->talk, ROLE_USER))
        conversation_drop(&c->talk);
    return ok;
}

/* ---- Commands ------------------------------------------------------------------------------- */

/* The same seed would give the same words. */
static bool retry(struct chat *c, struct strata_error *e)
{
    if (!conversation_ends_with(&c->talk, ROLE_ASSISTANT))
        return fail(e, STRATA_USAGE, "/retry: there is no answer yet");
    struct message old = conversation_take(&c->talk);
    c->sampling.seed++;
    bool ok = answer(c, e);
    if (conversation_ends_with(&c->talk, ROLE_USER))
        conversation_put(&c->talk, old); /* nothing came: the old answer stands */
    else
        message_free(&old);
    return ok;
}

static bool undo(struct chat *c, struct strata_error *e)
{
    if (!conversation_ends_with(&c->talk, ROLE_ASSISTANT))
        return fail(e, STRATA_USAGE, "/undo: there is nothing to take back");
    conversation_drop(&c->talk);
    if (conversation_ends_with(&c->talk, ROLE_USER))
        conversation_drop(&c->talk);
    message_note("taken back");
    return true;
}

static bool save(struct chat *c, const char *path, struct strata_error *e)
{
    if (!output_spares_model("/save", path, e))
        return false;
    struct json_out messages = {0};
    bool ok = conversation_write(&c->talk, &messages, e) &&
              strata_messages_set(c->session, messages.text, e) && strata_save(c->session, path, e);
    json_out_free(&messages);
    if (ok)
        message_note("saved to %s", path);
    return ok;
}

static bool load(struct chat *c, const char *path, struct strata_error *e)
{
    bool ok = strata_load(c->session, path, &prompt_pass, e);
    message_progress_end();
    if (!ok)
        return false;
    const char *messages = strata_messages(c->session);
    if (!messages)
        return fail(e, STRATA_FORMAT, "%s: a state without a conversation", path);
    if (!conversation_read(&c->talk, messages, path, e))
        return false;
    int tokens = strata_position(c->session);
    message_note("a conversation of %zu message%s, %d token%s", c->talk.n, c->talk.n == 1 ? "" : "s",
                 tokens, tokens == 1 ? "" : "s");
    return true;
}

static bool think(struct chat *c, const char *what, struct strata_error *e)
{
    bool on = !strcmp(what, "on");
    if (!on && strcmp(what, "off") != 0)
        return fail(e, STRATA_USAGE, "/think: %.100s is neither on nor off", what);
    c->how.think = on ? STRATA_ON : STRATA_OFF;
    message_note("thinking is %s", what);
    return true;
}

static void stats(const struct chat *c)
{
    struct strata_stats s;
    strata_stats_get(c->model, &s);
    struct json_out line = {0};
    report_line(&s, s.decode_tokens, &c->sampling.seed, NULL, &line);
    if (!line.failed)
        message_note("%s; context %d of %d tokens", line.text, strata_position(c->session),
                     strata_context(c->session));
    json_out_free(&line);
}

static bool reset(struct chat *c, struct strata_error *e)
{
    conversation_clear(&c->talk);
    if (!strata_session_reset(c->session, e))
        return false;
    message_note("a new conversation");
    return true;
}

static void help(void)
{
    struct json_out page = {0};
    help_chat(&page);
    if (!page.failed)
        fprintf(stderr, "%s%s", page.text, chat_about_lines);
    json_out_free(&page);
}

static bool run_command(struct chat *c, enum chat_command_id id, const char *argument,
                        struct strata_error *e)
{
    const struct chat_command *line = &chat_commands[id];
    if (line->needs_argument && !*argument)
        return fail(e, STRATA_USAGE, "/%s needs an argument, %s", line->name, line->argument);
    if (!line->argument && *argument)
        return fail(e, STRATA_USAGE, "/%s takes no argument, here it has %.100s", line->name,
                    argument);
    switch (id) {
    case CHAT_THINK:
        return think(c, argument, e);
    case CHAT_SYSTEM:
        return conversation_set_system(&c->talk, argument, e);
    case CHAT_RETRY:
        return retry(c, e);
    case CHAT_UNDO:
        return undo(c, e);
    case CHAT_RESET:
        return reset(c, e);
    case CHAT_SAVE:
        return save(c, argument, e);
    case CHAT_LOAD:
        return load(c, argument, e);
    case CHAT_STATS:
        stats(c);
        return true;
    case CHAT_QUIT:
        c->leaves = true;
        return true;
    default:
        help();
        return true;
    }
}

/* One message or command. */
static bool take(struct chat *c, const char *text, struct strata_error *e)
{
    const char *rest;
    size_t n;
    enum chat_command_id id = chat_command_of(text, &rest, &n);
    if (id == CHAT_UNKNOWN)
        return fail(e, STRATA_USAGE,
                    "%.40s is not a command: /help lists them; begin with a blank to send "
                    "it as a message",
                    text);
    if (id == CHAT_MESSAGE)
        return text[strspn(text, " \t\r\n")] == 0 || take_message(c, text, e);
    struct err low;
    err_clear(&low);
    char *argument = mem_copy_text(rest, n, &low);
    bool ok = argument ? run_command(c, id, argument, e) : take_error(e, &low);
    mem_free(argument);
    return ok;
}

/* ---- The program ---------------------------------------------------------------------------- */

/* Whether to go on after a failure: a person tries again, a script sees the exit status. */
static void tell_error(struct chat *c, const struct strata_error *e)
{
    if (e->code == STRATA_INTERRUPTED && atomic_load(&interrupted)) {
        message_note("stopped");
        return;
    }
    message_error(e);
    if (!terminal_is_person(c->terminal))
        c->status = STATUS_FAILED;
}

static void converse(struct chat *c)
{
    bool was_interrupted = false;
    while (!c->leaves) {
        struct strata_error e = {0};
        const char *text;
        enum terminal_read r = terminal_read(c->terminal, &text, &e);
        /* A Ctrl-C that comes when the line is already done is for the answer: it stays set. */
        if (r == TERMINAL_FAILED) {
            c->status = message_error(&e);
            return;
        }
        if (r == TERMINAL_END)
            return;
        if (r == TERMINAL_INTERRUPTED) {
            if (was_interrupted || !terminal_is_person(c->terminal)) {
                c->status = STATUS_INTERRUPTED;
                return;
            }
            message_note("Ctrl-C once more, or Ctrl-D, leaves");
        }
        was_interrupted = r == TERMINAL_INTERRUPTED || r == TERMINAL_CLEARED;
        if (r == TERMINAL_MESSAGE) {
            if (!take(c, text, &e))
                tell_error(c, &e);
            atomic_store(&interrupted, false); /* it was for the answer */
        }
    }
}

static bool set_system(struct chat *c, struct strata_error *e)
{
    const char *path = option_text(c->o, OPTION_SYSTEM_FILE);
    if (!path)
        return conversation_set_system(&c->talk, option_text(c->o, OPTION_SYSTEM), e);
    char *text = input_read_text(path, e);
    bool ok = text && conversation_set_system(&c->talk, text, e);
    mem_free(text);
    return ok;
}

/* The model is ready, and can chat at all. */
static bool start(struct chat *c, struct strata_error *e)
{
    const char *saved = option_text(c->o, OPTION_LOAD);
    struct strata_model_info unused; /* a model that cannot run is refused before its template is */
    const char *family =
        strata_model_info(c->model, &unused, e) ? strata_chat_family(c->model, e) : NULL;
    if (!family || !set_system(c, e) || !load_model(c->model, e))
        return false;
    message_detail("prompts are written as %s", family);
    c->session = strata_session_create(c->model, e);
    return c->session && (!saved || load(c, saved, e)) &&
           sampling_options(c->o, c->model, c->session, &c->sampling, e) &&
           (c->terminal = terminal_create(e)) != NULL;
}

static bool write_stats(const struct chat *c, struct strata_error *e)
{
    const char *path = option_text(c->o, OPTION_STATS);
    struct strata_stats s;
    strata_stats_get(c->model, &s);
    return !path || report_file(path, &s, e);
}

enum status command_chat(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct chat c = {.o = o, .how = render_options(o), .model = open_model(o, SNAPSHOTS, &e)};
    bool ok = c.model && start(&c, &e);
    if (ok) {
        note_idle_effort(o, c.model);
        interrupt_listen(true);
        if (terminal_is_person(c.terminal))
            message_note("%s, a context of %d tokens; /help says what else there is",
                         option_text(o, OPTION_MODEL), strata_context(c.session));
        converse(&c);
        kept_write_compute(c.model, session_compute_ms(c.model));
        ok = write_stats(&c, &e);
    }
    terminal_free(c.terminal);
    conversation_free(&c.talk);
    strata_session_free(c.session);
    strata_model_free(c.model);
    return ok ? c.status : message_error(&e);
}
