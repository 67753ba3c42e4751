/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"

/* Length of the first part of a text that has at most n bytes and ends between characters. */
static size_t whole_characters(const char *text, size_t n)
{
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void print_line(const struct case_report *r, char *line)
{
    size_t n = strlen(line);
    bool cut = !r->verbose && n > CASE_LINE_BYTES;
    if (cut)
        n = whole_characters(line, CASE_LINE_BYTES - 3);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    puts(cut ? "..." : "");
}

__attribute__((format(printf, 2, 3))) static void report(const struct case_report *r,
                                                         const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *line = NULL;
    if (vasprintf(&line, fmt, ap) >= 0)
        print_line(r, line);
    else
        puts("FAIL: no memory for the line of a case");
    va_end(ap);
    free(line);
}

void case_pass(struct case_report *r)
{
    r->passed++;
}

void case_fail(struct case_report *r, const char *file, const char *name, const char *expected,
               const char *got)
{
    r->failed++;
    report(r, "FAIL %s %s: expected %s, got %s", file, name, expected, got);
}

void case_skip(struct case_report *r, const char *file, const char *name, const char *reason)
{
    r->skipped++;
    report(r, "SKIP %s %s: %s", file, name, reason);
}
