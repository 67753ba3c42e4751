/* SPDX-License-Identifier: Apache-2.0 */
/* What the runners of cases share: counting, and one line for each case that fails or is skipped.
 * A runner never stops at a failure; a kind that the program does not support is skipped, never
 * passed. */
#ifndef STRATA_CHECK_CASES_H
#define STRATA_CHECK_CASES_H

#include <stdbool.h>

struct case_report {
    long passed, failed, skipped;
    bool verbose; /* failures are printed whole, else cut to CASE_LINE_BYTES */
};

#define CASE_LINE_BYTES 200

void case_pass(struct case_report *r);

/* Counts and prints `FAIL FILE NAME: expected ..., got ...` on stdout. `name` says which case of the
 * file: a name or a line number. Control codes are shown as \xNN, so that it stays one line. */
void case_fail(struct case_report *r, const char *file, const char *name, const char *expected,
               const char *got);

/* Counts and prints `SKIP FILE NAME: reason`. */
void case_skip(struct case_report *r, const char *file, const char *name, const char *reason);

#endif
