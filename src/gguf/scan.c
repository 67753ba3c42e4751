/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf/scan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"

/* As much of a name as a message shows. */
#define SHOWN_BYTES 512

bool gguf_scan_begin(struct gguf_scan *s, int fd, const char *path, uint64_t at, uint64_t end,
                     struct err *e)
{
    *s = (struct gguf_scan){
        .fd = fd, .path = path, .at = at, .end = end, .next_read = GGUF_SCAN_FIRST};
    s->buffer_room = end - at < GGUF_SCAN_BYTES ? (size_t)(end - at) : GGUF_SCAN_BYTES;
    s->buffer = mem_alloc(s->buffer_room, "reading GGUF metadata", e);
    return s->buffer != NULL;
}

void gguf_scan_free(struct gguf_scan *s)
{
    mem_free(s->buffer);
    s->buffer = NULL;
}

void gguf_scan_subject(struct gguf_scan *s, const char *subject, uint64_t index, const char *name,
                       size_t name_bytes)
{
    s->subject = subject;
    s->index = index;
    s->name = name;
    s->name_bytes = name_bytes;
}

bool gguf_scan_fail(const struct gguf_scan *s, struct err *e, const char *fmt, ...)
{
    char text[512], shown[SHOWN_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!s->subject)
        return err_set(e, ERR_FORMAT, "%s: %s", s->path, text);
    if (!s->name)
        return err_set(e, ERR_FORMAT, "%s: %s %" PRIu64 ": %s", s->path, s->subject, s->index,
                       text);
    err_escape(shown, sizeof shown, s->name, s->name_bytes);
    return err_set(e, ERR_FORMAT, "%s: %s \"%s\": %s", s->path, s->subject, shown, text);
}

bool gguf_scan_need(const struct gguf_scan *s, uint64_t n, const char *field, struct err *e)
{
    if (n <= gguf_scan_left(s))
        return true;
    return gguf_scan_fail(
        s, e, "%s%s%" PRIu64 " bytes at %" PRIu64 " run over the end of the file (%" PRIu64 ")",
        field, *field ? ": " : "", n, s->at, s->end);
}

const uint8_t *gguf_scan_peek(struct gguf_scan *s, size_t n, struct err *e)
{
    if (s->at < s->buffer_at || s->at - s->buffer_at > s->buffered ||
        n > s->buffered - (size_t)(s->at - s->buffer_at)) {
        uint64_t left = gguf_scan_left(s);
        size_t most = n > s->next_read ? n : s->next_read;
        most = most < s->buffer_room ? most : s->buffer_room;
        size_t read = left < most ? (size_t)left : most;
        s->next_read = 2 * most;
        s->buffered = 0;
        if (!file_read_at(s->fd, s->path, s->at, s->buffer, read, e))
            return NULL;
        s->buffer_at = s->at;
        s->buffered = read;
    }
    return s->buffer + (size_t)(s->at - s->buffer_at);
}

bool gguf_scan_copy(struct gguf_scan *s, void *to, size_t n, struct err *e)
{
    char *next = to;
    while (n) {
        size_t piece = n < s->buffer_room ? n : s->buffer_room;
        const uint8_t *from = gguf_scan_peek(s, piece, e);
        if (!from)
            return false;
        memcpy(next, from, piece);
        s->at += piece;
        next += piece;
        n -= piece;
    }
    return true;
}

bool gguf_scan_u32(struct gguf_scan *s, uint32_t *v, const char *field, struct err *e)
{
    const uint8_t *from = gguf_scan_need(s, 4, field, e) ? gguf_scan_peek(s, 4, e) : NULL;
    if (!from)
        return false;
    *v = bytes_u32(from);
    s->at += 4;
    return true;
}

bool gguf_scan_u64(struct gguf_scan *s, uint64_t *v, const char *field, struct err *e)
{
    const uint8_t *from = gguf_scan_need(s, 8, field, e) ? gguf_scan_peek(s, 8, e) : NULL;
    if (!from)
        return false;
    *v = bytes_u64(from);
    s->at += 8;
    return true;
}

bool gguf_scan_length(struct gguf_scan *s, uint64_t *n, const char *field, struct err *e)
{
    if (!gguf_scan_u64(s, n, field, e))
        return false;
    if (*n <= gguf_scan_left(s))
        return true;
    return gguf_scan_fail(s, e,
                          "%s %" PRIu64 " runs over the end of the file (%" PRIu64 " bytes left)",
                          field, *n, gguf_scan_left(s));
}
