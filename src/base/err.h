/* SPDX-License-Identifier: Apache-2.0 */
/* Error values. A `struct err` is passed down; the first error wins and is never overwritten.
 * A message is one sentence that names file, field and value. Nothing below cli prints or exits. */
#ifndef STRATA_BASE_ERR_H
#define STRATA_BASE_ERR_H

#include <stdbool.h>

enum err_code {
    ERR_NONE = 0,
    ERR_USAGE,       /* the caller asked for something that makes no sense (exit 2 at the cli) */
    ERR_IO,          /* the system refused or a read came short */
    ERR_FORMAT,      /* a file or request breaks its format */
    ERR_UNSUPPORTED, /* well-formed, but not something we run */
    ERR_MEMORY,      /* an allocation failed or the plan does not fit */
    ERR_NUMERIC,     /* NaN, inf or out of range where numerics.md forbids it */
    ERR_INTERRUPTED, /* cancelled by the user */
};

#define ERR_TEXT_BYTES 1024

struct err {
    enum err_code code;
    char text[ERR_TEXT_BYTES];
};

/* Makes `e` hold no error. */
void err_clear(struct err *e);

/* Sets code and formatted message unless `e` already holds an error. `e` may be NULL.
 * Always returns false, so that `return err_set(...)` fails a function that returns bool. */
bool err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies `text` (n bytes of any content) to `out` with bytes outside 20..7e and the backslash as
 * \xNN, always NUL-terminated, cut with "..." when it does not fit. Returns `out`. */
const char *err_escape(char *out, unsigned long out_bytes, const void *text, unsigned long n);

#endif
