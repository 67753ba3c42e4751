/* SPDX-License-Identifier: Apache-2.0 */
/* A small file of experts for the tests of the stream: three sizes of records, odd offsets, a layer
 * without experts, a split set of two files. Every byte is a function of its place, and a copy in
 * memory says what must have come. */
#ifndef STRATA_TESTS_STREAM_LAYERS_H
#define STRATA_TESTS_STREAM_LAYERS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "stream/stream.h"

#define LAYERS 7
#define MOST_EXPERTS 40

static const struct stream_layer layers[LAYERS] = {
    {.experts = 40, .parts = 3, .part = {{0, 100, 700}, {0, 40001, 700}, {0, 80003, 900}}},
    {.experts = 40, .parts = 3, .part = {{0, 130007, 700}, {1, 3, 700}, {1, 30011, 900}}},
    {.experts = 0},
    {.experts = 24, .parts = 2, .part = {{0, 170001, 9000}, {1, 80000, 4096}}},
    {.experts = 40, .parts = 3, .part = {{0, 400100, 700}, {0, 430001, 700}, {0, 460003, 900}}},
    {.experts = 1, .parts = 1, .part = {{1, 180001, 20000}}},
    {.experts = 33, .parts = 2, .part = {{1, 210000, 5000}, {0, 500000, 5001}}},
};

#define FILES 2
#define FILE_BYTES 700000
static uint8_t file_copy[FILES][FILE_BYTES];
static char file_path[FILES][64];
static const char *file_paths[FILES] __attribute__((unused)) = {file_path[0], file_path[1]};

static inline int write_layers(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++) {
        uint64_t random = 1 + (uint64_t)f;
        for (size_t i = 0; i < FILE_BYTES; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            file_copy[f][i] = (uint8_t)(random >> 56);
        }
        snprintf(file_path[f], sizeof file_path[f], "./strata-stream-XXXXXX");
        int fd = mkstemp(file_path[f]);
        if (fd < 0 || write(fd, file_copy[f], FILE_BYTES) != FILE_BYTES || fsync(fd) || close(fd))
            return -1;
    }
    return 0;
}

static inline int remove_layers(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        unlink(file_path[f]);
    return mem_in_use() != 0;
}

static inline bool record_is_right(int layer, const struct stream_record *r)
{
    const struct stream_layer *y = &layers[layer];
    bool right = r->expert >= 0 && r->expert < y->experts;
    for (int p = 0; right && p < y->parts; p++) {
        const struct stream_part *t = &y->part[p];
        right = !memcmp(r->part[p], file_copy[t->file] + t->offset + (uint64_t)r->expert * t->bytes,
                        t->bytes);
    }
    return right;
}

static inline struct stream_config config_with(double share, size_t io_align)
{
    struct stream_config c = {.layers = LAYERS, .layer = layers, .window_rows = 8, .experts_used = 4};
    uint64_t least = stream_least_bytes(&c, io_align), all = stream_all_bytes(&c, io_align);
    c.arena_bytes = least + (uint64_t)(share * (double)(all - least));
    return c;
}

static inline uint32_t draw(uint64_t *random, uint32_t below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % below);
}

#endif
