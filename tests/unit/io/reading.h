/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose bytes are known, reads of it, and children that try a limit of the system. */
#ifndef STRATA_TESTS_IO_READING_H
#define STRATA_TESTS_IO_READING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../child.h"
#include "base/mem.h"
#include "io/io.h"

#define FILE_BYTES 100007 /* ends inside a block */

static inline uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) * 7 + 1);
}

static char path[64];

static inline void write_file(const char *folder)
{
    snprintf(path, sizeof path, "%s/strata-io-XXXXXX", folder);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static uint8_t bytes[FILE_BYTES];
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = byte_at(i);
    assert_int_equal(write(fd, bytes, FILE_BYTES), FILE_BYTES);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static inline int setup(void **state)
{
    write_file(".");
    return 0;
}

static inline int teardown(void **state)
{
    unlink(path);
    assert_int_equal(mem_in_use(), 0);
    return 0;
}

static inline struct io *open_io(const struct io_options *o)
{
    const char *paths[] = {path};
    struct err e = {0};
    struct io *io = io_create(paths, 1, o, &e);
    if (!io)
        fail_msg("%s", e.text);
    return io;
}

/* Reads `length` bytes at `offset` and compares what must have come. */
static inline struct io_completion read_one(struct io *io, struct io_queue *q, uint64_t offset,
                                     size_t length)
{
    uint8_t *to = mem_map(length, "test", NULL);
    memset(to, 0xee, length);
    struct io_completion c = {0};
    io_submit(q, IO_URGENT, 0, offset, length, to, 42);
    assert_int_equal(io_wait(q, &c, 1), 1);
    assert_int_equal(c.tag, 42);
    assert_int_equal(io_outstanding(q), 0);
    for (size_t i = 0; !c.error && i < c.bytes; i++)
        if (to[i] != byte_at(offset + i))
            fail_msg("byte %zu of the read at %llu", i, (unsigned long long)offset);
    mem_unmap(to, length);
    return c;
}

static inline void check_places(struct io *io)
{
    struct err e = {0};
    size_t a = io_align(io);
    struct io_queue *q = io_queue_create(io, 4, &e);
    assert_int_equal(io_file_bytes(io, 0), FILE_BYTES);
    for (size_t blocks = 1; blocks < 6; blocks += 2)
        for (uint64_t offset = 0; offset < FILE_BYTES; offset += 3 * a) {
            struct io_completion c = read_one(io, q, offset, blocks * a);
            uint64_t left = FILE_BYTES - offset;
            assert_int_equal(c.error, 0);
            assert_int_equal(c.bytes, left < blocks * a ? left : blocks * a);
        }
    uint64_t tail = FILE_BYTES / a * a;
    assert_int_equal(read_one(io, q, tail, a).bytes, FILE_BYTES - tail);
    assert_int_equal(read_one(io, q, tail + a, a).error, IO_SHORT); /* nothing lies there */
    assert_int_equal(read_one(io, q, 0, a).error, 0);
    io_queue_close(q);
}

#endif
