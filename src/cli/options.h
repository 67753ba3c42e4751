/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of commands and options. Parser, `--help`, man page and completion come from it, so
 * that none of them can say something else. Adding an option is a line in options.c. */
#ifndef STRATA_CLI_OPTIONS_H
#define STRATA_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "strata.h"

enum command {
    COMMAND_RUN, COMMAND_CHAT, COMMAND_INSPECT, COMMAND_PLAN, COMMAND_TOKENIZE, COMMAND_LOGITS,
    COMMAND_RENDER, COMMAND_BENCH, COMMAND_SYNTH, COMMAND_PROBE, COMMAND_REPLAY, COMMAND_PACK, COMMAND_KLD,
    COMMAND_HELP,
    COMMANDS,
};

enum option {
    /* what is asked for */
    OPTION_MODEL, OPTION_PROMPT, OPTION_FILE, OPTION_IDS, OPTION_TO_TEXT, OPTION_TOKENS,
    OPTION_CHAT, OPTION_SYSTEM, OPTION_SYSTEM_FILE, OPTION_SPECIAL, OPTION_NO_SPECIAL,
    OPTION_STOP, OPTION_SAVE, OPTION_LOAD, OPTION_PACK_OUT, OPTION_OUT, OPTION_LAST, OPTION_CUT, OPTION_DUMP, OPTION_MESSAGES, OPTION_TOOLS,
    OPTION_THINK, OPTION_PRESERVE_THINKING, OPTION_EFFORT, OPTION_NO_GENERATION_PROMPT,
    OPTION_CHAT_TEMPLATE, OPTION_KEYS, OPTION_TENSORS, OPTION_MAN, OPTION_COMPLETION, OPTION_STATS,
    OPTION_BENCH_PROMPT, OPTION_BENCH_TOKENS, OPTION_DEPTH, OPTION_REPS, OPTION_ARMS,
    OPTION_ARCH, OPTION_MIX, OPTION_LAYERS, OPTION_VOCAB, OPTION_NGRAM_BASE, OPTION_IDS_LEN,
    OPTION_SYNTH_SEED, OPTION_MTP, OPTION_MTP_RIGHT, OPTION_DRY_RUN, OPTION_RECORD,
    OPTION_TRACE, OPTION_TRACE_GUESSES, OPTION_SHARES, OPTION_AHEADS, OPTION_MOCES, OPTION_DRIVE, OPTION_COMPUTE, OPTION_CSV,
    OPTION_SVG, OPTION_SIDECAR, OPTION_CHECKSUMS, OPTION_VERIFY,
    OPTION_EXPLAIN, OPTION_FORECAST, OPTION_PLAN_TRACE, OPTION_PROBE, OPTION_AGAINST, OPTION_REF, OPTION_REPEAT, OPTION_KLD_TOKENS,
    /* sampling */
    OPTION_TEMP, OPTION_TOP_K, OPTION_TOP_P, OPTION_MIN_P, OPTION_REPETITION_PENALTY,
    OPTION_PRESENCE_PENALTY, OPTION_FREQUENCY_PENALTY, OPTION_SEED,
    /* memory and machine */
    OPTION_MEMORY, OPTION_ARENA, OPTION_CTX, OPTION_KV, OPTION_EXACT_ACTIVATIONS, OPTION_THREADS,
    OPTION_ISA, OPTION_IO, OPTION_IO_DEPTH, OPTION_IO_URGENT, OPTION_IO_SPLIT, OPTION_REPLICA,
    OPTION_READ_AHEAD, OPTION_AHEAD_MARGIN, OPTION_OVERLAP, OPTION_POLICY, OPTION_MOCE, OPTION_MOCE_KEEP, OPTION_PROMPT_MOCE,
    OPTION_SHRINK, OPTION_POPULARITY, OPTION_BAND, OPTION_TILE, OPTION_WINDOW, OPTION_DRAFT, OPTION_DRAFT_MODEL, OPTION_DRAFT_ROWS,
    /* everywhere */
    OPTION_PROFILE, OPTION_JSON, OPTION_QUIET, OPTION_VERBOSE, OPTION_HELP, OPTION_VERSION,
    OPTIONS,
};

/* How an option's argument is read and checked. */
enum option_kind {
    OPTION_FLAG,   /* no argument */
    OPTION_TEXT,   /* any text */
    OPTION_LIST,   /* any text, may come several times */
    OPTION_WHOLE,  /* a whole number from `least` to `most` */
    OPTION_REAL,   /* a number from `least` to `most` */
    OPTION_BYTES,  /* SIZE of commands.md */
    OPTION_SHARE,  /* SIZE, "N%", "min" or "max" */
    OPTION_CHOICE, /* one of `words`, which are divided by "|" */
};

enum option_group { GROUP_TASK, GROUP_SAMPLING, GROUP_MACHINE, GROUP_COMMON };

struct option_line {
    enum option option;
    enum option_group group;
    enum option_kind kind;
    char letter;          /* 0: none */
    const char *name;     /* NULL: only the letter */
    const char *argument; /* what help calls it, NULL for flags */
    unsigned commands;    /* bit 1 << enum command */
    const char *help;
    const char *words;    /* choices */
    double least, most;   /* numbers */
    bool above_least;     /* reals: `least` itself is not allowed */
    bool is_rare;         /* pages of commands only name it; the manual page explains it */
};

struct command_line {
    enum command command;
    const char *name;
    const char *usage;   /* behind the name; a line break divides alternatives */
    const char *summary; /* of the first page */
    const char *about;   /* sentences for its own page and the man page */
    int words;           /* arguments without a dash that it takes */
};

/* In the order of the pages; option_lines by enum option, command_lines by enum command. */
extern const struct option_line option_lines[OPTIONS];
extern const struct command_line command_lines[COMMANDS];

static inline bool option_belongs(const struct option_line *o, enum command c)
{
    return (o->commands >> c & 1) != 0;
}

struct option_value {
    bool given;
    const char *text; /* as typed */
    uint64_t whole;   /* OPTION_WHOLE, OPTION_BYTES; OPTION_CHOICE: index into the words */
    double real;      /* OPTION_REAL */
};

struct options {
    enum command command;
    struct option_value value[OPTIONS];
    const char *word;   /* the argument without a dash, NULL: none; "-" is one */
    const char **stops; /* arguments of OPTION_STOP */
    size_t n_stops;
    const char **replicas; /* arguments of OPTION_REPLICA */
    int n_replicas;
};

/* What the command line asks for. */
enum parsed {
    PARSED_COMMAND, /* *out is filled; freed with options_free */
    PARSED_HELP,    /* --help: of out->command, or of the program (COMMANDS) */
    PARSED_VERSION,
    PARSED_WRONG,   /* the error says what: exit 2 */
};

/* Reads the arguments, argv[0] being the program. Texts point into argv. */
enum parsed options_parse(struct options *out, int argc, char **argv, struct strata_error *e);
void options_free(struct options *o);

static inline bool option_given(const struct options *o, enum option which)
{
    return o->value[which].given;
}
/* Argument of a text option, NULL when it was not given. */
static inline const char *option_text(const struct options *o, enum option which)
{
    return o->value[which].text;
}

/* Layers ahead whose routers a trace asks. */
static inline int option_trace_guesses(const struct options *o)
{
    return option_given(o, OPTION_TRACE_GUESSES) ? (int)o->value[OPTION_TRACE_GUESSES].whole : 1;
}

#endif
