/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unicode.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum unicode_class unicode_class(uint32_t code)
{
    size_t low = 0, high = unicode_ranges_count; /* first range that does not end before code */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (unicode_ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == unicode_ranges_count || code < unicode_ranges[low].first)
        return UNICODE_OTHER;
    return unicode_ranges[low].class;
}

static bool is_trimmed(uint32_t code)
{
    return (code >= 0x1c && code <= 0x1f) || unicode_class(code) == UNICODE_SPACE;
}

struct text_view unicode_trim(struct text_view v)
{
    uint32_t code;
    size_t length;
    while (v.bytes && utf8_decode(v.text, v.bytes, &code, &length) == UTF8_WHOLE &&
           is_trimmed(code)) {
        v.text += length;
        v.bytes -= length;
    }
    while (v.bytes) {
        size_t at = v.bytes - 1; /* first byte of the last code point */
        while (at && ((unsigned char)v.text[at] & 0xc0) == 0x80)
            at--;
        if (utf8_decode(v.text + at, v.bytes - at, &code, &length) != UTF8_WHOLE ||
            !is_trimmed(code))
            break;
        v.bytes = at;
    }
    return v;
}

/* Length of the well-formed code point at the beginning, 0 when there is none. */
static size_t whole_length(const char *text, size_t bytes)
{
    uint32_t code;
    size_t length;
    return utf8_decode(text, bytes, &code, &length) == UTF8_WHOLE ? length : 0;
}

bool unicode_repair(const char *text, size_t bytes, char **out, size_t *out_bytes, struct err *e)
{
    size_t bad = 0, n = 0;
    for (size_t i = 0, length; i < bytes; i += length ? length : 1) {
        length = whole_length(text + i, bytes - i);
        bad += !length;
    }
    *out = NULL;
    if (!bad)
        return true;
    if (bytes > (SIZE_MAX - 1) / UTF8_REPLACEMENT_BYTES)
        return err_set(e, ERR_MEMORY, "out of memory: a text of %zu bytes is too long", bytes);
    char *to = mem_alloc(bytes - bad + bad * UTF8_REPLACEMENT_BYTES + 1, "text", e);
    if (!to)
        return false;
    for (size_t i = 0, length; i < bytes; i += length ? length : 1) {
        length = whole_length(text + i, bytes - i);
        size_t put = length ? length : UTF8_REPLACEMENT_BYTES;
        memcpy(to + n, length ? text + i : UTF8_REPLACEMENT, put);
        n += put;
    }
    *out = to;
    *out_bytes = n;
    return true;
}
