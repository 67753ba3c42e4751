/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strictly: what Unicode table 3-7 calls well-formed (no overlong forms, no surrogates,
 * nothing above U+10FFFF), and the maximal subpart of what is not. */
#ifndef STRATA_BASE_UTF8_H
#define STRATA_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd"
#define UTF8_REPLACEMENT_BYTES 3

enum utf8_state {
    UTF8_WHOLE,      /* a code point: *length is its bytes */
    UTF8_BAD,        /* cannot become well-formed: *length is the maximal subpart, at least 1 */
    UTF8_INCOMPLETE, /* the text ends in the middle: *length is all that is left */
};

/* Looks at the code point at the beginning of `text` (bytes >= 1). *code is one only if whole. */
static inline enum utf8_state utf8_decode(const char *text, size_t bytes, uint32_t *code,
                                          size_t *length)
{
    const unsigned char *b = (const unsigned char *)text;
    unsigned lead = b[0], low = 0x80, high = 0xbf;
    size_t more;
    *length = 1;
    *code = lead;
    if (lead < 0x80)
        return UTF8_WHOLE;
    if (lead >= 0xc2 && lead <= 0xdf) {
        more = 1;
        *code = lead & 0x1f;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        more = 2;
        *code = lead & 0x0f;
        low = lead == 0xe0 ? 0xa0 : 0x80;
        high = lead == 0xed ? 0x9f : 0xbf;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        more = 3;
        *code = lead & 0x07;
        low = lead == 0xf0 ? 0x90 : 0x80;
        high = lead == 0xf4 ? 0x8f : 0xbf;
    } else {
        return UTF8_BAD;
    }
    for (size_t i = 1; i <= more; i++) {
        if (i == bytes)
            return UTF8_INCOMPLETE;
        if (b[i] < low || b[i] > high)
            return UTF8_BAD;
        *code = *code << 6 | (b[i] & 0x3f);
        *length = i + 1;
        low = 0x80;
        high = 0xbf;
    }
    return UTF8_WHOLE;
}

/* Writes a code point (a scalar value) to `out`, 1 to 4 bytes; returns how many. */
static inline size_t utf8_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | code);
    return n;
}

#endif
