/* SPDX-License-Identifier: Apache-2.0 */
#include "text/split.h"

#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

/* A position in the text with the code point there. At the end: length 0, and a class and code that
 * no rule asks for. */
struct spot {
    const char *at, *end;
    uint32_t code;
    size_t length;
    bool word, symbol, number, letter, space; /* word and symbol by the kind of pre-tokenizer */
};

static struct spot look(enum split_kind kind, const char *at, const char *end)
{
    struct spot s = {.at = at, .end = end, .code = UINT32_MAX};
    if (at == end)
        return s;
    utf8_decode(at, (size_t)(end - at), &s.code, &s.length);
    enum unicode_class class = unicode_class(s.code);
    bool mark = class == UNICODE_MARK;
    s.letter = class == UNICODE_LETTER;
    s.number = class == UNICODE_NUMBER;
    s.space = class == UNICODE_SPACE;
    s.word = s.letter || (mark && kind == SPLIT_QWEN35);
    s.symbol = class == UNICODE_OTHER || (mark && kind == SPLIT_QWEN2);
    return s;
}

static struct spot next(enum split_kind kind, const struct spot *s)
{
    return look(kind, s->at + s->length, s->end);
}

static bool is_line_end(const struct spot *s)
{
    return s->code == '\r' || s->code == '\n';
}

/* Rule 1: bytes of 's 't 'm 'd 're 've 'll in either case at s, or 0. */
static size_t contraction(const struct spot *s)
{
    size_t left = (size_t)(s->end - s->at);
    if (s->code != '\'' || left < 2)
        return 0;
    char a = s->at[1] | 0x20, b = left > 2 ? s->at[2] | 0x20 : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static const char *after_word(enum split_kind kind, struct spot s)
{
    while (s.word)
        s = next(kind, &s);
    return s.at;
}

/* Rule 5: a run of symbols and the line ends that follow. */
static const char *after_symbols(enum split_kind kind, struct spot s)
{
    while (s.symbol)
        s = next(kind, &s);
    while (is_line_end(&s))
        s = next(kind, &s);
    return s.at;
}

/* Rules 6 to 8: a run of white space that starts here. */
static const char *after_space(enum split_kind kind, struct spot s)
{
    const char *begin = s.at, *after_line_end = NULL, *last = s.at;
    for (; s.space; s = next(kind, &s)) {
        last = s.at;
        if (is_line_end(&s))
            after_line_end = s.at + 1;
    }
    if (after_line_end)
        return after_line_end;
    return s.at == s.end || last == begin ? s.at : last;
}

bool split_kind_parse(const char *name, enum split_kind *out)
{
    if (strcmp(name, "qwen2") && strcmp(name, "qwen35"))
        return false;
    *out = strcmp(name, "qwen2") ? SPLIT_QWEN35 : SPLIT_QWEN2;
    return true;
}

size_t split_first(enum split_kind kind, const char *text, size_t bytes)
{
    struct spot s = look(kind, text, text + bytes), after = next(kind, &s);
    size_t short_form = contraction(&s);
    if (short_form)
        return short_form;
    if (s.word)
        return (size_t)(after_word(kind, s) - text);
    if (!s.number && !s.letter && !is_line_end(&s) && after.word)
        return (size_t)(after_word(kind, after) - text);
    if (s.number)
        return s.length;
    if (s.symbol)
        return (size_t)(after_symbols(kind, s) - text);
    if (s.code == ' ' && after.symbol)
        return (size_t)(after_symbols(kind, after) - text);
    return (size_t)(after_space(kind, s) - text);
}
