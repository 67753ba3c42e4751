/* SPDX-License-Identifier: Apache-2.0 */
/* Puts GGUF files together field by field, right or wrong, without the writer that is tested. */
#ifndef STRATA_TESTS_GGUF_BYTES_OF_FILE_H
#define STRATA_TESTS_GGUF_BYTES_OF_FILE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct file_bytes {
    uint8_t *bytes;
    size_t used, room;
};

static inline void put_bytes(struct file_bytes *f, const void *data, size_t n)
{
    if (f->used + n > f->room) {
        f->room = (f->used + n) * 2;
        f->bytes = realloc(f->bytes, f->room);
        if (!f->bytes)
            abort();
    }
    if (n)
        memcpy(f->bytes + f->used, data, n);
    f->used += n;
}

static inline void put_u32(struct file_bytes *f, uint32_t v)
{
    uint8_t le[4];
    bytes_put_u32(le, v);
    put_bytes(f, le, 4);
}

static inline void put_u64(struct file_bytes *f, uint64_t v)
{
    uint8_t le[8];
    bytes_put_u64(le, v);
    put_bytes(f, le, 8);
}

static inline void put_string(struct file_bytes *f, const char *text, size_t n)
{
    put_u64(f, n);
    put_bytes(f, text, n);
}

static inline void put_header(struct file_bytes *f, uint64_t n_tensors, uint64_t n_keys)
{
    put_bytes(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, n_tensors);
    put_u64(f, n_keys);
}

static inline void put_u32_key(struct file_bytes *f, const char *key, uint32_t v)
{
    put_string(f, key, strlen(key));
    put_u32(f, 4);
    put_u32(f, v);
}

/* An F32 tensor of one row. */
static inline void put_tensor(struct file_bytes *f, const char *name, size_t name_bytes,
                              uint64_t n, uint64_t offset)
{
    put_string(f, name, name_bytes);
    put_u32(f, 1);
    put_u64(f, n);
    put_u32(f, 0);
    put_u64(f, offset);
}

static inline void put_zeros(struct file_bytes *f, size_t n)
{
    while (n--)
        put_bytes(f, "", 1);
}

static inline void pad_to(struct file_bytes *f, size_t alignment)
{
    put_zeros(f, (alignment - f->used % alignment) % alignment);
}

#endif
