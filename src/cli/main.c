/* SPDX-License-Identifier: Apache-2.0 */
/* The program `strata`: finds the command and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/help.h"
#include "cli/output.h"

static enum status (*const commands[COMMANDS])(const struct options *) = {
    [COMMAND_RUN] = command_run,           [COMMAND_CHAT] = command_chat,
    [COMMAND_INSPECT] = command_inspect,   [COMMAND_PLAN] = command_plan,
    [COMMAND_TOKENIZE] = command_tokenize, [COMMAND_LOGITS] = command_logits,
    [COMMAND_RENDER] = command_render,     [COMMAND_BENCH] = command_bench,
    [COMMAND_SYNTH] = command_synth,       [COMMAND_PROBE] = command_probe,
    [COMMAND_REPLAY] = command_replay,     [COMMAND_PACK] = command_pack,
    [COMMAND_KLD] = command_kld,
    [COMMAND_HELP] = command_help,
};

static enum status print_page(enum parsed what, enum command c)
{
    struct json_out out = {0};
    struct strata_error e = {0};
    if (what == PARSED_VERSION)
        help_version(&out);
    else
        help_page(c, &out);
    return output_json(&out, &e) ? STATUS_DONE : message_error(&e);
}

/* A descriptor that the caller closed would be given to the next file that is opened, a model read as
 * stdin or a state overwritten by messages. These are there, and fail when they are used. */
static void hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* takes the lowest: fd */
}

/* A model may lie in hundreds of parts, each of which is open three times. */
static void allow_many_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= files.rlim_max)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files); /* where it is refused, opening says what is missing */
}

int main(int argc, char **argv)
{
    hold_standard_descriptors();
    allow_many_files();
    /* Only for the characters of the line editor; numbers are read and printed as in C. */
    if (!setlocale(LC_CTYPE, "") || !setlocale(LC_CTYPE, NULL))
        setlocale(LC_CTYPE, "C.UTF-8");
    /* A reader that goes away ends the program without a word, also where the caller ignores it. */
    signal(SIGPIPE, SIG_DFL);
    /* A file that may not grow further is an error with a sentence. */
    signal(SIGXFSZ, SIG_IGN);

    struct options o;
    struct strata_error e = {0};
    enum parsed what = options_parse(&o, argc, argv, &e);
    enum status status = STATUS_USAGE;
    if (what == PARSED_WRONG) {
        message_error(&e);
    } else if (what == PARSED_COMMAND) {
        message_level(&o);
        note_idle_options(&o);
        status = output_spares_models(&o, &e) ? commands[o.command](&o) : message_error(&e);
    } else {
        status = print_page(what, o.command);
    }
    options_free(&o);
    return status;
}
