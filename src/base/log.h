/* SPDX-License-Identifier: Apache-2.0 */
/* Notes to the user that are no errors ("direct I/O is not available on this file system").
 * The library never prints: whoever wants notes sets a sink, otherwise they are dropped. */
#ifndef STRATA_BASE_LOG_H
#define STRATA_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum log_level { LOG_NOTE, LOG_DETAIL };

typedef void log_sink(void *ctx, enum log_level level, const char *text);

/* Set before threads are started. */
void log_set_sink(log_sink *sink, void *ctx);
void log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* As log_note, of what holds for the machine and not for one model alone: `said` remembers that
 * somebody has taken it, and it is not said again. */
void log_note_once(atomic_bool *said, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
