/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

/* A progress line is redrawn at most this often. */
#define PROGRESS_US 100000

static struct {
    bool quiet, verbose;
    bool has_progress; /* a progress line is on the screen */
    int64_t progress_us;
} state;

void message_level(const struct options *o)
{
    state.quiet = option_given(o, OPTION_QUIET);
    state.verbose = option_given(o, OPTION_VERBOSE);
}

static void print_line(const char *fmt, va_list ap)
{
    message_progress_end();
    fputs("strata: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

void message_note(const char *fmt, ...)
{
    if (state.quiet)
        return;
    va_list ap;
    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
}

void message_detail(const char *fmt, ...)
{
    if (!state.verbose)
        return;
    va_list ap;
    va_start(ap, fmt);
    print_line(fmt, ap);
    va_end(ap);
}

enum status message_error(const struct strata_error *e)
{
    message_progress_end();
    if (e->code == STRATA_INTERRUPTED && atomic_load(&interrupted))
        return STATUS_INTERRUPTED;
    fprintf(stderr, "strata: %s\n", e->text);
    return e->code == STRATA_USAGE ? STATUS_USAGE : STATUS_FAILED;
}

bool message_progress_is_due(void)
{
    return !state.quiet && clock_us() - state.progress_us >= PROGRESS_US && isatty(STDERR_FILENO);
}

void message_progress(const char *fmt, ...)
{
    if (!message_progress_is_due())
        return;
    state.progress_us = clock_us();
    state.has_progress = true;
    va_list ap;
    va_start(ap, fmt);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, ap);
    fflush(stderr);
    va_end(ap);
}

void message_progress_end(void)
{
    if (!state.has_progress)
        return;
    state.has_progress = false;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

bool fail(struct strata_error *e, enum strata_code code, const char *fmt, ...)
{
    if (e->code != STRATA_OK)
        return false;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return false;
}

bool take_error(struct strata_error *e, const struct err *low)
{
    return low->code == ERR_NONE || fail(e, (enum strata_code)low->code, "%s", low->text);
}
