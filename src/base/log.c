/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static log_sink *the_sink;
static void *the_ctx;

void log_set_sink(log_sink *sink, void *ctx)
{
    the_sink = sink;
    the_ctx = ctx;
}

static void send(enum log_level level, const char *fmt, va_list ap)
{
    if (!the_sink)
        return;
    char text[1024];
    vsnprintf(text, sizeof text, fmt, ap);
    the_sink(the_ctx, level, text);
}

void log_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    send(LOG_NOTE, fmt, ap);
    va_end(ap);
}

void log_note_once(atomic_bool *said, const char *fmt, ...)
{
    va_list ap;
    if (!the_sink || atomic_exchange(said, true))
        return;
    va_start(ap, fmt);
    send(LOG_NOTE, fmt, ap);
    va_end(ap);
}

void log_detail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    send(LOG_DETAIL, fmt, ap);
    va_end(ap);
}
