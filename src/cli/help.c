/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "cli/chat_commands.h"

#define LEFT_COLUMN 30

static const char about_program[] =
    "Runs mixture-of-experts language models that are larger than memory: what every\n"
    "token needs stays in memory, the experts are read from the drive.\n";

/* "-m, --model MODEL". */
static void option_name(const struct option_line *o, struct json_out *out)
{
    if (o->letter)
        json_putf(out, "-%c%s", o->letter, o->name ? ", " : "");
    if (o->name)
        json_putf(out, "--%s", o->name);
    if (o->argument)
        json_putf(out, " %s", o->argument);
}

static void put_option(const struct option_line *o, struct json_out *out)
{
    json_puts(out, "  ");
    size_t before = out->bytes;
    option_name(o, out);
    int width = (int)(out->bytes - before) + 2;
    json_putf(out, "%*s%s\n", width < LEFT_COLUMN ? LEFT_COLUMN - width : 1, "", o->help);
}

static void put_group(enum command c, enum option_group g, const char *title, struct json_out *out)
{
    bool is_first = true;
    for (int i = 0; i < OPTIONS; i++) {
        const struct option_line *o = &option_lines[i];
        bool is_known = o->option == OPTION_VERSION || o->option == OPTION_HELP;
        if (o->group != g || !option_belongs(o, c) || is_known || o->is_rare)
            continue;
        if (is_first && title)
            json_putf(out, "%s\n", title);
        is_first = false;
        put_option(o, out);
    }
}

/* Options that few need, by name only. */
static void put_rare(enum command c, struct json_out *out)
{
    size_t line = 0;
    for (int i = 0; i < OPTIONS; i++) {
        const struct option_line *o = &option_lines[i];
        if (!option_belongs(o, c) || !o->is_rare)
            continue;
        if (!line)
            json_puts(out, "Rarely needed, explained by the manual page:\n");
        size_t width = strlen(o->name) + 3;
        if (!line || line + width > 78) {
            json_puts(out, line ? "\n " : " ");
            line = 1;
        }
        json_putf(out, " --%s", o->name);
        line += width;
    }
    if (line)
        json_puts(out, "\n");
}

static void first_page(struct json_out *out)
{
    json_puts(out, "usage: strata COMMAND [options]\n\n");
    json_puts(out, about_program);
    json_puts(out, "\n");
    for (int i = 0; i < COMMANDS; i++)
        json_putf(out, "  %-10s %s\n", command_lines[i].name, command_lines[i].summary);
    json_puts(out,
              "\nstrata COMMAND --help explains a command, strata --version what was built.\n\n"
              "  strata run -m MODEL.gguf -p 'Once upon a time' -n 100\n"
              "  strata chat -m MODEL.gguf --memory 24G\n");
}

void help_page(enum command c, struct json_out *out)
{
    if (c == COMMANDS) {
        first_page(out);
        return;
    }
    const struct command_line *line = &command_lines[c];
    json_putf(out, "usage: strata %s %s\n%s\n", line->name, line->usage, line->about);
    put_group(c, GROUP_TASK, NULL, out);
    put_group(c, GROUP_COMMON, NULL, out);
    put_group(c, GROUP_SAMPLING, "Sampling (the model's file may suggest other defaults):", out);
    put_group(c, GROUP_MACHINE, "Memory and machine:", out);
    put_rare(c, out);
}

void help_chat(struct json_out *out)
{
    for (int i = 0; i < CHAT_COMMANDS; i++) {
        const struct chat_command *c = &chat_commands[i];
        char left[40];
        snprintf(left, sizeof left, "/%s%s%s", c->name, c->argument ? " " : "",
                 c->argument ? c->argument : "");
        json_putf(out, "  %-20s %s\n", left, c->help);
    }
}

/* ---- Manual page ---------------------------------------------------------------------------- */

/* Text with what troff would take for its own: backslashes, hyphens, dots at the start of a line.
 */
static void troff(const char *text, struct json_out *out)
{
    bool at_start = true;
    for (; *text; text++) {
        if (at_start && (*text == '.' || *text == '\''))
            json_puts(out, "\\&");
        at_start = *text == '\n';
        if (*text == '\\')
            json_puts(out, "\\e");
        else if (*text == '-')
            json_puts(out, "\\-");
        else
            json_put(out, text, 1);
    }
}

static void man_option(const struct option_line *o, struct json_out *out)
{
    struct json_out name = {0};
    option_name(o, &name);
    json_puts(out, ".TP\n.B ");
    troff(name.text ? name.text : "", out);
    json_puts(out, "\n");
    troff(o->help, out);
    json_puts(out, ".\n");
    out->failed = out->failed || name.failed;
    json_out_free(&name);
}

static void man_group(enum option_group g, unsigned commands, struct json_out *out)
{
    for (int i = 0; i < OPTIONS; i++)
        if (option_lines[i].group == g && (option_lines[i].commands & commands))
            man_option(&option_lines[i], out);
}

static void man_commands(struct json_out *out)
{
    json_puts(out, ".SH COMMANDS\n");
    for (int i = 0; i < COMMANDS; i++) {
        const struct command_line *c = &command_lines[i];
        json_puts(out, ".SS strata ");
        json_putf(out, "%s ", c->name);
        troff(c->usage, out);
        json_puts(out, "\n");
        troff(c->about, out);
        json_puts(out, "\n");
        man_group(GROUP_TASK, 1u << i, out);
    }
}

static void man_text(const char *title, const char *text, struct json_out *out)
{
    json_putf(out, ".SH %s\n", title);
    troff(text, out);
}

static void man_chat(struct json_out *out)
{
    json_puts(out, ".SH IN A CONVERSATION\n");
    for (int i = 0; i < CHAT_COMMANDS; i++) {
        const struct chat_command *c = &chat_commands[i];
        json_puts(out, ".TP\n.B ");
        json_putf(out, "/%s ", c->name);
        troff(c->argument ? c->argument : "", out);
        json_puts(out, "\n");
        troff(c->help, out);
        json_puts(out, ".\n");
    }
    json_puts(out, ".PP\n");
    troff(chat_about_lines, out);
}

static void man_arms(struct json_out *out)
{
    man_text("COMPARING CONFIGURATIONS",
             "The file of bench --arms is one JSON object. prompt and gen are numbers of tokens (512, "
             "64), rounds is 5, ids a file as --ids takes it; all four may be missing. flags are "
             "options of bench.\n",
             out);
    json_puts(out, ".PP\n.nf\n");
    troff("{\"model\": \"m.gguf\", \"prompt\": 512, \"gen\": 64, \"rounds\": 5,\n"
          " \"arms\": [{\"name\": \"plain\", \"flags\": []},\n"
          "          {\"name\": \"moce\", \"flags\": [\"--moce\", \"0.85\"]}]}\n",
          out);
    json_puts(out, ".fi\n");
}

void help_man(struct json_out *out)
{
    struct strata_version v;
    strata_version_get(&v);
    json_puts(
        out,
        ".\\\" SPDX-License-Identifier: Apache-2.0\n"
        ".\\\" Written by `strata help --man`; change src/cli/options.c and run that again.\n");
    json_putf(out, ".TH STRATA 1 \"\" \"strata %s\" \"User Commands\"\n", v.version);
    json_puts(out,
              ".SH NAME\nstrata \\- run mixture\\-of\\-experts language models larger than memory\n"
              ".SH SYNOPSIS\n.B strata\n.I COMMAND\n[options]\n.SH DESCRIPTION\n");
    troff(about_program, out);
    troff("Results go to standard output, everything else to standard error. Options are written "
          "--name value or --name=value.\n",
          out);
    man_commands(out);
    json_puts(out,
              ".SH OPTIONS OF SAMPLING\nOf run and chat. The order is: penalties, temperature, "
              "top\\-k, top\\-p, min\\-p. The file of a model may suggest other defaults.\n");
    man_group(GROUP_SAMPLING, ~0u, out);
    man_text(
        "OPTIONS OF MEMORY AND MACHINE",
        "Of run, chat, plan, logits, bench and kld. None of them changes a bit of a result but --kv, "
        "--exact-activations, --moce and what goes with it: where routing depends on what is in "
        "memory, it depends on --arena, --memory and --policy too. (The engine fake reads nothing.) "
        "SIZE is a number, with a fraction if one likes, and K, M, G or T for powers "
        "of "
        "1024. With both --memory and --arena, the arena is as asked, and what does not fit is "
        "refused.\n",
        out);
    man_group(GROUP_MACHINE, ~0u, out);
    json_puts(out, ".SH OPTIONS EVERYWHERE\n"
                   "Of every command, \\-\\-json of those whose page has it.\n");
    man_group(GROUP_COMMON, ~0u, out);
    man_chat(out);
    man_arms(out);
    man_text("EXIT STATUS",
             "0 done, 1 failed (one sentence says why), 2 wrong usage, 130 ended by "
             "Ctrl-C: what was generated is out, files are whole.\n",
             out);
    man_text("ENVIRONMENT",
             "STRATA_ISA does what --isa does; the option wins. XDG_CACHE_HOME is the folder in which "
             "the folder strata keeps what was measured of drives and models (~/.cache).\n",
             out);
    man_text("FILES",
             "Beside a model, STEM being its name without .gguf: STEM.strata-pack, written by pack; "
             "STEM.strata-pop, what its experts were used for, written by every run (in the cache "
             "where the folder cannot be written).\n",
             out);
}

/* ---- Completion ----------------------------------------------------------------------------- */

static void completion_words(const struct option_line *o, struct json_out *out)
{
    json_putf(out, "    --%s) COMPREPLY=($(compgen -W '", o->name);
    for (const char *at = o->words; *at; at++)
        json_put(out, *at == '|' ? " " : at, 1);
    json_puts(out, "' -- \"$word\")); return ;;\n");
}

void help_completion_bash(struct json_out *out)
{
    json_puts(out,
              "# bash completion for strata: source <(strata help --completion bash)\n"
              "_strata() {\n"
              "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} names=\n"
              "    if ((COMP_CWORD == 1)); then\n"
              "        COMPREPLY=($(compgen -W '");
    for (int i = 0; i < COMMANDS; i++)
        json_putf(out, "%s ", command_lines[i].name);
    json_puts(out, "--help --version' -- \"$word\"))\n        return\n    fi\n"
                   "    case $before in\n");
    for (int i = 0; i < OPTIONS; i++)
        if (option_lines[i].words)
            completion_words(&option_lines[i], out);
    json_puts(out, "    esac\n    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < COMMANDS; i++) {
        json_putf(out, "    %s) names='", command_lines[i].name);
        for (int j = 0; j < OPTIONS; j++)
            if (option_belongs(&option_lines[j], (enum command)i))
                json_putf(out, "--%s ", option_lines[j].name);
        json_puts(out, "' ;;\n");
    }
    json_puts(out, "    esac\n"
                   "    if [[ $word == -* ]]; then\n"
                   "        COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"
                   "    else\n"
                   "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
                   "    fi\n"
                   "}\n"
                   "complete -o filenames -F _strata strata\n");
}

void help_version(struct json_out *out)
{
    struct strata_version v;
    strata_version_get(&v);
    json_putf(out,
              "strata %s (commit %s)\nbuilt with %s\nkernels built in: %s; this machine uses %s\n"
              "numerics version %d\n",
              v.version, v.commit, v.compiler, v.kernels, v.chosen, v.numerics);
}
