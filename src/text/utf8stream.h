/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an answer as it comes: bytes of tokens to whole code points (text.md 5.1), and stop
 * strings (5.2). Neither depends on how the bytes are cut into pieces. */
#ifndef STRATA_TEXT_UTF8STREAM_H
#define STRATA_TEXT_UTF8STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "text/unicode.h"

/* All zero at the beginning. What is held at the end of the answer is an incomplete code point and
 * is dropped. */
struct utf8_stream {
    char held[4];
    size_t n_held; /* at most 3 between calls */
};

/* Appends to `out` all code points that are complete now; each maximal part of a sequence that
 * cannot become one is U+FFFD. */
void utf8_stream_feed(struct utf8_stream *s, const char *bytes, size_t n, struct json_out *out);

struct stop_stream;

/* Stop strings; empty ones are ignored. Texts are copied. */
struct stop_stream *stop_create(const struct text_view *strings, size_t n, struct err *e);
void stop_free(struct stop_stream *s);

/* Takes whole code points and appends to `out` what can be sent: all but the longest end that may
 * become a stop string. Returns true once a stop string was complete (then and ever after); it and
 * what follows is never sent. */
bool stop_feed(struct stop_stream *s, const char *text, size_t bytes, struct json_out *out);

/* The answer is over: appends what was held back, unless a stop string ended it. */
void stop_finish(struct stop_stream *s, struct json_out *out);

/* The stop string that ended the answer, as its place in the list given; -1: none did. Of several
 * that were complete at the same place the longest. */
int stop_which(const struct stop_stream *s);

#endif
