/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the front of a file in order through a buffer, each step compared with what the file has
 * left before anything is used (rules R05 and R09 of gguf-and-quants.md section 1.8), and says in
 * messages what it was reading. */
#ifndef STRATA_GGUF_SCAN_H
#define STRATA_GGUF_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GGUF_SCAN_BYTES ((size_t)128 << 10)
#define GGUF_SCAN_FIRST ((size_t)4 << 10) /* of the first read; each has twice the last one's */

struct gguf_scan {
    int fd;
    const char *path;
    uint64_t end; /* bytes of the file, or where a value ends; nothing behind it is read */
    uint64_t at;  /* next byte */

    /* What messages are about: `key "NAME"`, or `key INDEX` as long as the name is not known. */
    const char *subject;
    uint64_t index;
    const char *name;
    size_t name_bytes;

    uint8_t *buffer;
    size_t buffer_room, buffered;
    size_t next_read; /* so that little is read of what lies behind a short front */
    uint64_t buffer_at;
};

/* Starts at `at`; the buffer is allocated here and freed by gguf_scan_free. */
bool gguf_scan_begin(struct gguf_scan *s, int fd, const char *path, uint64_t at, uint64_t end,
                     struct err *e);
void gguf_scan_free(struct gguf_scan *s);

void gguf_scan_subject(struct gguf_scan *s, const char *subject, uint64_t index, const char *name,
                       size_t name_bytes);

/* Sets "PATH: SUBJECT: message"; returns false. */
bool gguf_scan_fail(const struct gguf_scan *s, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static inline uint64_t gguf_scan_left(const struct gguf_scan *s)
{
    return s->end - s->at;
}

/* R09: fails unless n more bytes are there. `field` says of what, empty for the subject itself. */
bool gguf_scan_need(const struct gguf_scan *s, uint64_t n, const char *field, struct err *e);

/* The next n bytes, at most GGUF_SCAN_BYTES and known to be there, without leaving them behind.
 * Valid until the next call. NULL when reading fails. */
const uint8_t *gguf_scan_peek(struct gguf_scan *s, size_t n, struct err *e);

/* The next n bytes, known to be there, copied to `to`. */
bool gguf_scan_copy(struct gguf_scan *s, void *to, size_t n, struct err *e);

/* Numbers, checked with gguf_scan_need. */
bool gguf_scan_u32(struct gguf_scan *s, uint32_t *v, const char *field, struct err *e);
bool gguf_scan_u64(struct gguf_scan *s, uint64_t *v, const char *field, struct err *e);

/* R05: the length of a string, whose bytes are then known to be there. */
bool gguf_scan_length(struct gguf_scan *s, uint64_t *n, const char *field, struct err *e);

#endif
