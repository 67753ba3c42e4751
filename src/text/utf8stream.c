/* SPDX-License-Identifier: Apache-2.0 */
#include "text/utf8stream.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- Code points ---- */

void utf8_stream_feed(struct utf8_stream *s, const char *bytes, size_t n, struct json_out *out)
{
    for (size_t i = 0; i < n; i++) {
        s->held[s->n_held++] = bytes[i];
        /* One byte may end a sequence that went wrong before it, and be looked at afresh. */
        while (s->n_held) {
            uint32_t code;
            size_t length;
            enum utf8_state state = utf8_decode(s->held, s->n_held, &code, &length);
            if (state == UTF8_INCOMPLETE)
                break;
            if (state == UTF8_WHOLE)
                json_put(out, s->held, length);
            else
                json_put(out, UTF8_REPLACEMENT, UTF8_REPLACEMENT_BYTES);
            s->n_held -= length;
            memmove(s->held, s->held + length, s->n_held);
        }
    }
}

/* ---- Stop strings ---- */

struct stop_string {
    char *text;
    size_t bytes;
    uint32_t *shorter; /* [bytes]: with i + 1 bytes matched, the next shorter match (the longest
                        * proper prefix of the string that also ends there) */
    size_t matched;    /* bytes of it that the text ends with, the most below its length */
    int place;
};

struct stop_stream {
    struct stop_string *strings;
    size_t n_strings;
    size_t n_held;                  /* end of the text that is not sent: the longest match... */
    const struct stop_string *held; /* ...and whose beginning it is */
    int stopped_by;
};

/* What of `s` matches after one more byte; s->bytes when it is complete. */
static size_t advance(const struct stop_string *s, size_t matched, char byte)
{
    while (matched && (matched == s->bytes || s->text[matched] != byte))
        matched = s->shorter[matched - 1];
    return s->text[matched] == byte ? matched + 1 : 0;
}

static bool add_string(struct stop_stream *s, struct text_view v, int place, struct err *e)
{
    struct stop_string *string = &s->strings[s->n_strings++];
    if (v.bytes > UINT32_MAX)
        return err_set(e, ERR_UNSUPPORTED, "a stop string of %zu bytes is too long", v.bytes);
    *string = (struct stop_string){.bytes = v.bytes, .place = place};
    string->text = mem_copy_text(v.text, v.bytes, e);
    string->shorter = mem_alloc_array(v.bytes, sizeof *string->shorter, "stop strings", e);
    if (!string->text || !string->shorter)
        return false;
    for (size_t i = 1; i < v.bytes; i++)
        string->shorter[i] = (uint32_t)advance(string, string->shorter[i - 1], v.text[i]);
    return true;
}

struct stop_stream *stop_create(const struct text_view *strings, size_t n, struct err *e)
{
    struct stop_stream *s = mem_alloc(sizeof *s, "stop strings", e);
    if (!s)
        return NULL;
    s->stopped_by = -1;
    s->strings = mem_alloc_array(n, sizeof *s->strings, "stop strings", e);
    bool done = s->strings != NULL;
    for (size_t i = 0; done && i < n; i++)
        done = !strings[i].bytes || add_string(s, strings[i], (int)i, e);
    if (done)
        return s;
    stop_free(s);
    return NULL;
}

void stop_free(struct stop_stream *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_strings; i++) {
        mem_free(s->strings[i].text);
        mem_free(s->strings[i].shorter);
    }
    mem_free(s->strings);
    mem_free(s);
}

/* One byte for all strings. The longest string that is complete, or NULL; *longest: the longest
 * match, of any string. */
static const struct stop_string *match_byte(struct stop_stream *s, char byte,
                                            const struct stop_string **longest)
{
    const struct stop_string *complete = NULL;
    *longest = NULL;
    for (size_t i = 0; i < s->n_strings; i++) {
        struct stop_string *string = &s->strings[i];
        string->matched = advance(string, string->matched, byte);
        if (string->matched == string->bytes && (!complete || string->bytes > complete->bytes))
            complete = string;
        if (string->matched && (!*longest || string->matched > (*longest)->matched))
            *longest = string;
    }
    return complete;
}

/* Appends the first n bytes of what was held followed by `text`. */
static void send(const struct stop_stream *s, const char *text, size_t n, struct json_out *out)
{
    size_t old = n < s->n_held ? n : s->n_held;
    if (old)
        json_put(out, s->held->text, old);
    json_put(out, text, n - old);
}

bool stop_feed(struct stop_stream *s, const char *text, size_t bytes, struct json_out *out)
{
    const struct stop_string *longest = s->held, *complete = NULL;
    size_t i = 0;
    if (s->stopped_by >= 0)
        return true;
    while (i < bytes && !complete)
        complete = match_byte(s, text[i++], &longest);
    if (complete) {
        send(s, text, s->n_held + i - complete->bytes, out);
        s->stopped_by = complete->place;
        s->n_held = 0;
        return true;
    }
    size_t hold = longest ? longest->matched : 0;
    send(s, text, s->n_held + bytes - hold, out);
    s->held = longest;
    s->n_held = hold;
    return false;
}

void stop_finish(struct stop_stream *s, struct json_out *out)
{
    if (s->n_held)
        json_put(out, s->held->text, s->n_held);
    s->n_held = 0;
}

int stop_which(const struct stop_stream *s)
{
    return s->stopped_by;
}
