/* SPDX-License-Identifier: Apache-2.0 */
/* The table. Its parser is parse.c, its pages are help.c. */
#include "cli/options.h"

#include <limits.h>

enum {
    RUN = 1 << COMMAND_RUN,
    CHAT = 1 << COMMAND_CHAT,
    INSPECT = 1 << COMMAND_INSPECT,
    PLAN = 1 << COMMAND_PLAN,
    TOKENIZE = 1 << COMMAND_TOKENIZE,
    LOGITS = 1 << COMMAND_LOGITS,
    RENDER = 1 << COMMAND_RENDER,
    BENCH = 1 << COMMAND_BENCH,
    SYNTH = 1 << COMMAND_SYNTH,
    HELP = 1 << COMMAND_HELP,
    ANSWERS = RUN | CHAT,           /* commands that sample */
    PLANNED = RUN | CHAT | PLAN | LOGITS | BENCH, /* commands that a memory plan is made for */
    ALL = (1 << COMMANDS) - 1,
};

const struct command_line command_lines[COMMANDS] = {
    [COMMAND_RUN] = {
        COMMAND_RUN, "run", "-m MODEL [-p TEXT | -f FILE | --ids FILE | -] [options]",
        "continue a text, or answer one question (--chat)",
        "Continues a text until the model ends it or -n tokens are out.", 1},
    [COMMAND_CHAT] = {
        COMMAND_CHAT, "chat", "-m MODEL [options]",
        "a conversation in the terminal",
        "A conversation. /help lists what it understands besides messages, Ctrl-C stops\n"
        "an answer. Without a terminal every line of stdin is a message.", 0},
    [COMMAND_INSPECT] = {
        COMMAND_INSPECT, "inspect", "MODEL [options]",
        "what a GGUF file holds",
        "Shows what a GGUF file, or a set of them, holds. Reads the metadata only.", 1},
    [COMMAND_PLAN] = {
        COMMAND_PLAN, "plan", "MODEL [options]",
        "what memory a run takes, before anything large is allocated",
        "Shows what memory a run with these options takes. Nothing large is allocated.", 1},
    [COMMAND_TOKENIZE] = {
        COMMAND_TOKENIZE, "tokenize", "-m MODEL [options] < TEXT",
        "text on stdin to a JSON list of ids, and back (--ids)",
        "Turns the text on stdin into a JSON list of token ids on stdout.", 0},
    [COMMAND_LOGITS] = {
        COMMAND_LOGITS, "logits", "-m MODEL --ids FILE|- --out FILE.npy [options]",
        "the model's scores after every id, as a .npy file",
        "Feeds ids and writes the scores of the whole vocabulary after each of them.", 0},
    [COMMAND_RENDER] = {
        COMMAND_RENDER, "render", "-m MODEL --messages FILE.json [options]",
        "the exact prompt that a conversation becomes",
        "Prints the prompt that a conversation becomes. No weights are read.", 0},
    [COMMAND_BENCH] = {
        COMMAND_BENCH, "bench", "-m MODEL [-p N] [-n N] [-d N] [-r N] [--ids FILE]\n--arms FILE.json",
        "how fast a model runs here, or one configuration after another",
        "Times a prompt and the tokens after it, -r times, each from an empty state, and prints\n"
        "medians. With --arms it runs several configurations in turn (A B B A), each run a program\n"
        "of its own, so that a machine that slows down does not favour one of them.", 0},
    [COMMAND_SYNTH] = {
        COMMAND_SYNTH, "synth", "OUT.gguf [--arch NAME] [--layers N] [--mix NAME] [options]",
        "a model file of true shape with drawn weights, to measure with",
        "Writes a model of a public release's shapes and number formats whose weights are drawn, so\n"
        "that speed and memory can be measured without it, and OUT.gguf.ids, a text for it. Routing\n"
        "is made to look like that of a real model; what it says means nothing.", 1},
    [COMMAND_HELP] = {
        COMMAND_HELP, "help", "[COMMAND] [--man | --completion SHELL]",
        "this page, or that of a command",
        "Prints the page of a command, the manual page, or a completion script.", 1},
};

#define TASK GROUP_TASK
#define SAMPLING GROUP_SAMPLING
#define MACHINE GROUP_MACHINE
#define COMMON GROUP_COMMON

const struct option_line option_lines[OPTIONS] = {
    /* What is asked for. */
    {OPTION_MODEL, TASK, OPTION_TEXT, 'm', "model", "MODEL", ALL & ~(HELP | SYNTH),
     .help = "the GGUF file, of a split set its first part"},
    {OPTION_PROMPT, TASK, OPTION_TEXT, 'p', "prompt", "TEXT", RUN, .help = "the text to continue"},
    {OPTION_FILE, TASK, OPTION_TEXT, 'f', "file", "FILE", RUN,
     .help = "the text is in FILE; `-` alone: on stdin"},
    {OPTION_IDS, TASK, OPTION_TEXT, 0, "ids", "FILE", RUN | LOGITS | BENCH,
     .help = "token ids in place of text, decimals; -: stdin"},
    {OPTION_TO_TEXT, TASK, OPTION_FLAG, 0, "ids", NULL, TOKENIZE,
     .help = "the way back: ids (JSON or decimals) to text"},
    {OPTION_TOKENS, TASK, OPTION_WHOLE, 'n', "tokens", "N", RUN | CHAT,
     .help = "at most N tokens; 0: read the prompt only", .least = 0, .most = INT_MAX},
    {OPTION_CHAT, TASK, OPTION_FLAG, 0, "chat", NULL, RUN,
     .help = "the text is one message to a chat model"},
    {OPTION_SYSTEM, TASK, OPTION_TEXT, 0, "system", "TEXT", CHAT, .help = "the system message"},
    {OPTION_SYSTEM_FILE, TASK, OPTION_TEXT, 0, "system-file", "FILE", CHAT,
     .help = "the system message is in FILE"},
    {OPTION_SPECIAL, TASK, OPTION_FLAG, 0, "special", NULL, RUN | TOKENIZE,
     .help = "control tokens are recognised in the text"},
    {OPTION_NO_SPECIAL, TASK, OPTION_FLAG, 0, "no-special", NULL, TOKENIZE,
     .help = "no special tokens are recognised at all"},
    {OPTION_STOP, TASK, OPTION_LIST, 0, "stop", "TEXT", ANSWERS,
     .help = "end before this text; may be repeated"},
    {OPTION_SAVE, TASK, OPTION_TEXT, 0, "save", "FILE", RUN, .help = "save the state at the end"},
    {OPTION_LOAD, TASK, OPTION_TEXT, 0, "load", "FILE", ANSWERS, .help = "go on from a saved state"},
    {OPTION_OUT, TASK, OPTION_TEXT, 0, "out", "FILE.npy", LOGITS,
     .help = "where to: float32, a row for each id"},
    {OPTION_LAST, TASK, OPTION_FLAG, 0, "last", NULL, LOGITS, .help = "only the row of the last id"},
    {OPTION_CUT, TASK, OPTION_WHOLE, 0, "cut", "P", LOGITS,
     .help = "after P ids save, drop and restore the state", .least = 1, .most = INT_MAX},
    {OPTION_DUMP, TASK, OPTION_TEXT, 0, "dump", "DIR", LOGITS,
     .help = "write all intermediates as DIR/NAME.npy"},
    {OPTION_MESSAGES, TASK, OPTION_TEXT, 0, "messages", "FILE", RENDER,
     .help = "the conversation, a JSON array; -: stdin"},
    {OPTION_TOOLS, TASK, OPTION_TEXT, 0, "tools", "FILE", RENDER, .help = "the tools, a JSON array"},
    {OPTION_THINK, TASK, OPTION_CHOICE, 0, "think", "on|off", RUN | CHAT | RENDER,
     .help = "reasoning before an answer", .words = "on|off"},
    {OPTION_PRESERVE_THINKING, TASK, OPTION_CHOICE, 0, "preserve-thinking", "on|off", CHAT | RENDER,
     .help = "keep the reasoning of earlier answers", .words = "on|off"},
    {OPTION_EFFORT, TASK, OPTION_TEXT, 0, "effort", "LEVEL", RUN | CHAT | RENDER,
     .help = "reasoning effort, as the model knows it"},
    {OPTION_NO_GENERATION_PROMPT, TASK, OPTION_FLAG, 0, "no-generation-prompt", NULL, RENDER,
     .help = "without the beginning of an answer"},
    {OPTION_CHAT_TEMPLATE, TASK, OPTION_TEXT, 0, "chat-template", "FAMILY", RUN | CHAT | RENDER,
     .help = "how to write prompts, against the file's word"},
    {OPTION_KEYS, TASK, OPTION_FLAG, 0, "kv", NULL, INSPECT, .help = "show the keys and their values"},
    {OPTION_TENSORS, TASK, OPTION_FLAG, 0, "tensors", NULL, INSPECT, .help = "show the tensors"},
    {OPTION_MAN, TASK, OPTION_FLAG, 0, "man", NULL, HELP, .help = "the manual page, for man(1)"},
    {OPTION_COMPLETION, TASK, OPTION_CHOICE, 0, "completion", "SHELL", HELP,
     .help = "a completion script (bash)", .words = "bash"},
    {OPTION_STATS, TASK, OPTION_TEXT, 0, "stats", "FILE", RUN | CHAT,
     .help = "write figures about the run as JSON"},
    {OPTION_BENCH_PROMPT, TASK, OPTION_WHOLE, 'p', "prompt", "N", BENCH,
     .help = "tokens of the prompt that is timed (512)", .least = 0, .most = INT_MAX},
    {OPTION_BENCH_TOKENS, TASK, OPTION_WHOLE, 'n', "tokens", "N", BENCH,
     .help = "tokens after it, one at a time (64)", .least = 0, .most = INT_MAX},
    {OPTION_DEPTH, TASK, OPTION_WHOLE, 'd', "depth", "N", BENCH,
     .help = "tokens before it that are not timed (0)", .least = 0, .most = INT_MAX},
    {OPTION_REPS, TASK, OPTION_WHOLE, 'r', "reps", "N", BENCH,
     .help = "repetitions (3)", .least = 1, .most = 10000},
    {OPTION_ARMS, TASK, OPTION_TEXT, 0, "arms", "FILE.json", BENCH,
     .help = "configurations to compare, see strata(1)"},
    {OPTION_ARCH, TASK, OPTION_TEXT, 0, "arch", "NAME", SYNTH,
     .help = "qwen4exp (default), qwen3moe, qwen3next, qwen35moe"},
    {OPTION_MIX, TASK, OPTION_TEXT, 0, "mix", "NAME", SYNTH,
     .help = "number formats: iq2xs (default), ud1, ud-q4, q8"},
    {OPTION_LAYERS, TASK, OPTION_WHOLE, 0, "layers", "N", SYNTH,
     .help = "layers, 4 to those of the release (8)", .least = 1, .most = 1024},
    {OPTION_VOCAB, TASK, OPTION_WHOLE, 0, "vocab", "N", SYNTH,
     .help = "tokens (the release's, times its share of layers)", .least = 1, .most = INT_MAX},
    {OPTION_NGRAM_BASE, TASK, OPTION_WHOLE, 0, "ngram-base", "N", SYNTH,
     .help = "least size of an n-gram table (20011; full: 20000000)", .least = 1, .most = 0x1p32},
    {OPTION_IDS_LEN, TASK, OPTION_WHOLE, 0, "ids-len", "N", SYNTH,
     .help = "tokens of the text (16384)", .least = 0, .most = 0x1p28},
    {OPTION_SYNTH_SEED, TASK, OPTION_WHOLE, 0, "seed", "N", SYNTH,
     .help = "same seed, same bytes (1)", .least = 0, .most = 0x1p64},
    {OPTION_DRY_RUN, TASK, OPTION_FLAG, 0, "dry-run", NULL, SYNTH,
     .help = "show what it would hold, write nothing"},

    /* Sampling. */
    {OPTION_TEMP, SAMPLING, OPTION_REAL, 0, "temp", "X", ANSWERS,
     .help = "temperature; 0: always the best (default 0.7)", .least = 0, .most = 1e6},
    {OPTION_TOP_K, SAMPLING, OPTION_WHOLE, 0, "top-k", "N", ANSWERS,
     .help = "of the N best only; 0: off (default 20)", .least = 0, .most = INT_MAX},
    {OPTION_TOP_P, SAMPLING, OPTION_REAL, 0, "top-p", "X", ANSWERS,
     .help = "of the best that have X together (default 0.9)", .least = 0, .most = 1, .above_least = true},
    {OPTION_MIN_P, SAMPLING, OPTION_REAL, 0, "min-p", "X", ANSWERS,
     .help = "of those with X times the best (default 0)", .least = 0, .most = 1},
    {OPTION_REPETITION_PENALTY, SAMPLING, OPTION_REAL, 0, "repetition-penalty", "X", ANSWERS,
     .help = "for the last 64 tokens; 1: off", .least = 0, .most = 1e6, .above_least = true},
    {OPTION_PRESENCE_PENALTY, SAMPLING, OPTION_REAL, 0, "presence-penalty", "X", ANSWERS,
     .help = "for tokens of the answer; 0: off", .least = -1e6, .most = 1e6},
    {OPTION_FREQUENCY_PENALTY, SAMPLING, OPTION_REAL, 0, "frequency-penalty", "X", ANSWERS,
     .help = "the same for each time; 0: off", .least = -1e6, .most = 1e6},
    {OPTION_SEED, SAMPLING, OPTION_WHOLE, 0, "seed", "N", ANSWERS,
     .help = "same seed, same text; drawn and shown if missing", .least = 0, .most = 0x1p64},

    /* Memory and machine. */
    {OPTION_MEMORY, MACHINE, OPTION_BYTES, 0, "memory", "SIZE", PLANNED,
     .help = "of the whole process (K, M, G, T: 1024s)"},
    {OPTION_ARENA, MACHINE, OPTION_SHARE, 0, "arena", "SIZE", PLANNED,
     .help = "for experts: a size, N% of them, min or max"},
    {OPTION_CTX, MACHINE, OPTION_WHOLE, 0, "ctx", "N", PLANNED,
     .help = "context in tokens (the model's, at most 32768)", .least = 1, .most = INT_MAX},
    {OPTION_KV, MACHINE, OPTION_CHOICE, 0, "kv", "f16|f32", PLANNED,
     .help = "type of keys and values (f16)", .words = "f16|f32"},
    {OPTION_EXACT_ACTIVATIONS, MACHINE, OPTION_FLAG, 0, "exact-activations", NULL, PLANNED,
     .help = "do not round activations to 8 bits (slow)"},
    {OPTION_THREADS, MACHINE, OPTION_WHOLE, 't', "threads", "N", PLANNED,
     .help = "threads (one for each performance core)", .least = 1, .most = 1024},
    {OPTION_ISA, MACHINE, OPTION_CHOICE, 0, "isa", "NAME", PLANNED,
     .help = "auto, c, avx2, avx512, avx512-plain, neon", .words = "auto|c|avx2|avx512|avx512-plain|neon"},
    {OPTION_IO, MACHINE, OPTION_TEXT, 0, "io", "ENGINE", PLANNED,
     .help = "pread, or sim:rate=..,delay=.. for a slow drive"},
    {OPTION_BAND, MACHINE, OPTION_WHOLE, 0, "band", "N", PLANNED,
     .help = "tokens of a prompt that share reads of experts", .least = 1, .most = INT_MAX},
    {OPTION_TILE, MACHINE, OPTION_WHOLE, 0, "tile", "N", PLANNED,
     .help = "tokens of one product (64)", .least = 1, .most = INT_MAX},
    {OPTION_WINDOW, MACHINE, OPTION_WHOLE, 0, "window", "N", PLANNED,
     .help = "most tokens of a decode step, 1 to 8 (8)", .least = 1, .most = 8},

    /* Everywhere. */
    {OPTION_JSON, COMMON, OPTION_FLAG, 0, "json", NULL, RUN | INSPECT | PLAN | BENCH,
     .help = "one JSON object on stdout and nothing else"},
    {OPTION_QUIET, COMMON, OPTION_FLAG, 'q', "quiet", NULL, ALL, .help = "only results and errors"},
    {OPTION_VERBOSE, COMMON, OPTION_FLAG, 'v', "verbose", NULL, ALL, .help = "explain what is done"},
    {OPTION_HELP, COMMON, OPTION_FLAG, 'h', "help", NULL, ALL, .help = "this page"},
    {OPTION_VERSION, COMMON, OPTION_FLAG, 0, "version", NULL, ALL,
     .help = "version, commit, compiler, kernels, numerics"},
};
