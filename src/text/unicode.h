/* SPDX-License-Identifier: Apache-2.0 */
/* What the tokenizer and the chat templates need to know of Unicode (15.1, pinned: text.md part 2):
 * the class of a code point, white space at the ends of a text, and text made valid. */
#ifndef STRATA_TEXT_UNICODE_H
#define STRATA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Text.md 1.3. SPACE is the property White_Space; everything not named is OTHER. */
enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER,
    UNICODE_MARK,
    UNICODE_NUMBER,
    UNICODE_SPACE,
};

enum unicode_class unicode_class(uint32_t code);

/* The generated table: rising ranges, none of class OTHER. */
struct unicode_range {
    uint32_t first, last;
    enum unicode_class class;
};
extern const struct unicode_range unicode_ranges[];
extern const size_t unicode_ranges_count;

/* A part of a text that belongs to somebody else. */
struct text_view {
    const char *text;
    size_t bytes;
};

/* Bytes begin .. end - 1 of a text. */
struct text_range {
    size_t begin, end;
};

/* Without white space at both ends, in the sense of text.md 3.2 (`trim`): class SPACE and
 * U+001C to U+001F. The text must be UTF-8. */
struct text_view unicode_trim(struct text_view v);

/* Bytes as text (1.8): each byte that belongs to no well-formed sequence becomes one U+FFFD. *out
 * gets a NUL-terminated copy (mem_free), or NULL when the text is well-formed as it is. */
bool unicode_repair(const char *text, size_t bytes, char **out, size_t *out_bytes, struct err *e);

#endif
