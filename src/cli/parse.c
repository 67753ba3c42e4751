/* SPDX-License-Identifier: Apache-2.0 */
/* From argv to values, as the table says. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "io/size.h"

static bool wrong(struct strata_error *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static bool wrong(struct strata_error *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    e->code = STRATA_USAGE;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- Values --------------------------------------------------------------------------------- */

/* Decimal digits only: strtoull alone would take "-1" and " 7". */
static bool parse_whole(const char *text, uint64_t *out)
{
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0;
}

static bool parse_real(const char *text, double *out)
{
    char *end;
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    *out = strtod(text, &end);
    return *end == 0;
}

static bool is_percentage(const char *text)
{
    size_t n = strlen(text);
    char number[32];
    double value;
    if (n < 2 || n > sizeof number || text[n - 1] != '%')
        return false;
    memcpy(number, text, n - 1);
    number[n - 1] = 0;
    return parse_real(number, &value) && value >= 0 && value <= 100;
}

/* Index of the word among words divided by "|", or -1. */
static int find_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0; n; i++) {
        const char *end = words + strcspn(words, "|");
        if ((size_t)(end - words) == n && memcmp(words, word, n) == 0)
            return i;
        if (!*end)
            break;
        words = end + 1;
    }
    return -1;
}

/* `typed` is the option as the user wrote it. */
static bool read_value(struct option_value *v, const struct option_line *o, const char *typed,
                       const char *text, struct strata_error *e)
{
    v->text = text;
    switch (o->kind) {
    case OPTION_WHOLE:
        if (!parse_whole(text, &v->whole) || (double)v->whole < o->least ||
            (double)v->whole > o->most)
            return wrong(e, "%s: %s is not a whole number from %.0f to %llu", typed, text, o->least,
                         o->most < 0x1p64 ? (unsigned long long)o->most : ULLONG_MAX);
        return true;
    case OPTION_REAL:
        if (!parse_real(text, &v->real) || v->real < o->least || v->real > o->most ||
            (o->above_least && !(v->real > o->least)))
            return wrong(e, "%s: %s is not a number from %g to %g%s", typed, text, o->least,
                         o->most, o->above_least ? ", the first excluded" : "");
        return true;
    case OPTION_BYTES:
        return (io_parse_size(text, strlen(text), &v->whole) && v->whole) ||
               wrong(e, "%s: %s is not a size such as 1.5G", typed, text);
    case OPTION_SHARE:
        return !strcmp(text, "min") || !strcmp(text, "max") || is_percentage(text) ||
               io_parse_size(text, strlen(text), &v->whole) ||
               wrong(e, "%s: %s is not a size such as 1.5G, nor N%%, min or max", typed, text);
    case OPTION_CHOICE: {
        int i = find_word(o->words, text);
        v->whole = (uint64_t)i;
        return i >= 0 || wrong(e, "%s: %s is not one of %s", typed, text, o->words);
    }
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_LIST:
        break;
    }
    return true;
}

/* ---- Words ---------------------------------------------------------------------------------- */

/* Finds the option of this command by its long name of n bytes or its letter; NULL: none. */
static const struct option_line *find_option(enum command c, const char *name, size_t n,
                                             char letter)
{
    for (int i = 0; i < OPTIONS; i++) {
        const struct option_line *o = &option_lines[i];
        if (!option_belongs(o, c))
            continue;
        if (letter ? o->letter == letter
                   : o->name && strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

struct parser {
    struct options *out;
    int argc, at;
    char **argv;
};

static bool take_option(struct parser *p, const struct option_line *o, const char *typed,
                        const char *text, struct strata_error *e)
{
    struct options *out = p->out;
    struct option_value *v = &out->value[o->option];
    if (v->given && o->kind != OPTION_LIST && o->kind != OPTION_FLAG)
        return wrong(e, "%s is given twice", typed);
    if (o->kind == OPTION_FLAG && text)
        return wrong(e, "%s takes no argument, here it has %s", typed, text);
    if (o->kind != OPTION_FLAG && !text) {
        if (p->at == p->argc)
            return wrong(e, "%s needs an argument, %s", typed, o->argument);
        text = p->argv[p->at++];
    }
    v->given = true;
    if (o->kind == OPTION_LIST && !*text)
        return wrong(e, "%s: an empty %s", typed, o->argument);
    if (o->option == OPTION_REPLICA)
        out->replicas[out->n_replicas++] = text;
    else if (o->kind == OPTION_LIST)
        out->stops[out->n_stops++] = text;
    return o->kind == OPTION_FLAG || read_value(v, o, typed, text, e);
}

static bool unknown_option(struct parser *p, const char *typed, struct strata_error *e)
{
    enum command c = p->out->command;
    if (c == COMMANDS)
        return wrong(e, "%s is not an option: strata --help lists the commands", typed);
    return wrong(e, "%s is not an option of %s: strata %s --help lists them", typed,
                 command_lines[c].name, command_lines[c].name);
}

/* "--name", "--name=value". */
static bool take_long(struct parser *p, char *word, struct strata_error *e)
{
    size_t n = strcspn(word + 2, "=");
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)(n + 2 < 60 ? n + 2 : 60), word);
    const struct option_line *o = find_option(p->out->command, word + 2, n, 0);
    if (!o)
        return unknown_option(p, typed, e);
    return take_option(p, o, typed, word[2 + n] ? word + 2 + n + 1 : NULL, e);
}

/* "-m", "-mMODEL", "-qv". */
static bool take_letters(struct parser *p, char *word, struct strata_error *e)
{
    for (char *at = word + 1; *at; at++) {
        char typed[3] = {'-', *at, 0};
        const struct option_line *o = find_option(p->out->command, NULL, 0, *at);
        if (!o)
            return unknown_option(p, at == word + 1 && at[1] ? word : typed, e);
        if (o->kind != OPTION_FLAG)
            return take_option(p, o, typed, at[1] ? at + 1 : NULL, e);
        if (!take_option(p, o, typed, NULL, e))
            return false;
    }
    return true;
}

static bool take_word(struct parser *p, const char *word, struct strata_error *e)
{
    struct options *out = p->out;
    const struct command_line *c = &command_lines[out->command];
    if (out->word || !c->words)
        return wrong(e, "%s takes no argument %s: strata %s --help lists its options", c->name,
                     word, c->name);
    out->word = word;
    return true;
}

static enum command find_command(const char *name)
{
    int c = 0;
    while (c < COMMANDS && strcmp(command_lines[c].name, name) != 0)
        c++;
    return (enum command)c;
}

/* ---- What must and must not be together ------------------------------------------------------ */

static const struct {
    enum option first, second;
} exclusive[] = {
    {OPTION_PROMPT, OPTION_FILE},        {OPTION_PROMPT, OPTION_IDS},
    {OPTION_FILE, OPTION_IDS},           {OPTION_IDS, OPTION_CHAT},
    {OPTION_IDS, OPTION_SPECIAL},        {OPTION_CHAT, OPTION_SPECIAL},
    {OPTION_SPECIAL, OPTION_NO_SPECIAL}, {OPTION_TO_TEXT, OPTION_SPECIAL},
    {OPTION_TO_TEXT, OPTION_NO_SPECIAL}, {OPTION_SYSTEM, OPTION_SYSTEM_FILE},
    {OPTION_QUIET, OPTION_VERBOSE},      {OPTION_MAN, OPTION_COMPLETION},
    {OPTION_ARMS, OPTION_MODEL},         {OPTION_ARMS, OPTION_REPS},
    {OPTION_CSV, OPTION_JSON},
};

/* "-m" where there is a letter, "--out" else. */
static const char *shown_name(enum option which, char out[32])
{
    const struct option_line *o = &option_lines[which];
    if (o->letter)
        snprintf(out, 32, "-%c", o->letter);
    else
        snprintf(out, 32, "--%s", o->name);
    return out;
}

static bool check_needed(const struct options *o, struct strata_error *e)
{
    static const struct {
        enum command command;
        enum option option;
    } needed[] = {
        {COMMAND_LOGITS, OPTION_IDS},
        {COMMAND_RENDER, OPTION_MESSAGES},
        {COMMAND_KLD, OPTION_FILE},
    };
    const char *command = command_lines[o->command].name;
    char name[32];
    bool has_model = option_given(o, OPTION_MODEL) || option_given(o, OPTION_ARMS);
    bool needs_model = option_belongs(&option_lines[OPTION_MODEL], o->command) &&
                       o->command != COMMAND_REPLAY;
    if (o->command == COMMAND_SYNTH && !o->word)
        return wrong(e, "synth needs a file to write: strata synth --help says more");
    if (o->command == COMMAND_PROBE && !o->word)
        return wrong(e, "probe needs a file or a folder: strata probe --help says more");
    if (o->command == COMMAND_REPLAY && !o->word)
        return wrong(e, "replay needs a trace: strata replay --help says more");
    if (needs_model && !has_model)
        return wrong(e, "%s needs a model, -m MODEL: strata %s --help says more", command, command);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (o->command == needed[i].command && !option_given(o, needed[i].option))
            return wrong(e, "%s needs %s: strata %s --help says more", command,
                         shown_name(needed[i].option, name), command);
    if (o->command == COMMAND_KLD && option_given(o, OPTION_AGAINST) + option_given(o, OPTION_REF) +
                                             option_given(o, OPTION_REPEAT) != 1)
        return wrong(e, "kld needs one of --against, --ref and --repeat");
    if (o->command == COMMAND_LOGITS && !option_given(o, OPTION_OUT) &&
        !option_given(o, OPTION_DUMP))
        return wrong(e, "logits needs --out FILE.npy or --dump DIR, or has nothing to do");
    return true;
}

static bool check_together(struct options *o, struct strata_error *e)
{
    char first[32], second[32];
    for (size_t i = 0; i < sizeof exclusive / sizeof *exclusive; i++)
        if (option_given(o, exclusive[i].first) && option_given(o, exclusive[i].second))
            return wrong(e, "%s and %s do not go together", shown_name(exclusive[i].first, first),
                         shown_name(exclusive[i].second, second));
    bool is_model = o->command == COMMAND_INSPECT || o->command == COMMAND_PLAN ||
                    o->command == COMMAND_PACK;
    if (is_model && o->word) {
        if (option_given(o, OPTION_MODEL))
            return wrong(e, "-m %s and %s: one model is enough", option_text(o, OPTION_MODEL),
                         o->word);
        o->value[OPTION_MODEL] = (struct option_value){.given = true, .text = o->word};
    }
    if (o->command == COMMAND_RUN && o->word) {
        if (strcmp(o->word, "-") != 0)
            return wrong(e, "run takes no argument %s: -p TEXT or -f FILE, or - for stdin",
                         o->word);
        if (option_given(o, OPTION_PROMPT) || option_given(o, OPTION_FILE) ||
            option_given(o, OPTION_IDS))
            return wrong(e, "- (text on stdin) does not go together with -p, -f or --ids");
    }
    return true;
}

static bool check_task(const struct options *o, struct strata_error *e)
{
    if (o->command == COMMAND_RUN && !o->word && !option_given(o, OPTION_PROMPT) &&
        !option_given(o, OPTION_FILE) && !option_given(o, OPTION_IDS) &&
        !option_given(o, OPTION_LOAD))
        return wrong(e, "run needs a text: -p TEXT, -f FILE, --ids FILE, or - for stdin");
    return true;
}

/* ---- All of it ------------------------------------------------------------------------------ */

static enum parsed parse_words(struct parser *p, struct strata_error *e)
{
    struct options *out = p->out;
    bool only_words = false;
    while (p->at < p->argc) {
        char *word = p->argv[p->at++];
        bool is_option = !only_words && word[0] == '-' && word[1];
        if (is_option && strcmp(word, "--") == 0)
            only_words = true;
        else if (!(is_option ? word[1] == '-' ? take_long(p, word, e) : take_letters(p, word, e)
                             : take_word(p, word, e)))
            return PARSED_WRONG;
        if (option_given(out, OPTION_HELP))
            return PARSED_HELP;
        if (option_given(out, OPTION_VERSION))
            return PARSED_VERSION;
    }
    return check_together(out, e) && check_needed(out, e) && check_task(out, e) ? PARSED_COMMAND
                                                                                : PARSED_WRONG;
}

enum parsed options_parse(struct options *out, int argc, char **argv, struct strata_error *e)
{
    *out = (struct options){.command = COMMANDS};
    const char *first = argc > 1 ? argv[1] : NULL;
    if (!first) {
        wrong(e, "strata needs a command: strata --help lists them");
        return PARSED_WRONG;
    }
    if (!strcmp(first, "--help") || !strcmp(first, "-h"))
        return PARSED_HELP;
    if (!strcmp(first, "--version"))
        return PARSED_VERSION;
    if (first[0] == '-') {
        wrong(e, "%.100s is not an option: strata --help lists the commands", first);
        return PARSED_WRONG;
    }
    out->command = find_command(first);
    if (out->command == COMMANDS) {
        wrong(e, "%.100s is not a command: strata --help lists them", first);
        return PARSED_WRONG;
    }
    out->stops = calloc((size_t)argc, sizeof *out->stops);
    out->replicas = calloc((size_t)argc, sizeof *out->replicas);
    if (!out->stops || !out->replicas) {
        wrong(e, "no memory for %d arguments", argc);
        return PARSED_WRONG;
    }
    struct parser p = {out, argc, 2, argv};
    return parse_words(&p, e);
}

void options_free(struct options *o)
{
    free(o->stops);
    free(o->replicas);
    o->stops = o->replicas = NULL;
}
