/* SPDX-License-Identifier: Apache-2.0 */
/* Saved sessions: whatever the bytes are, reading refuses or reads, and never more than the file
 * holds. The checksum of the header is made right first, since no mutation would pass it. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "fuzz.h"
#include "session/hot_list.h"
#include "session/state_file.h"

enum { CTX = 64, FIXED = 96, PER_TOKEN = 8 };

static bool copy_to(struct backend *b, void *to, const void *host, size_t bytes, struct err *e)
{
    memcpy(to, host, bytes);
    return true;
}

/* A state of two items, as those of tests/data/own/state/small.strses. */
static void read_items(const struct state_file *f)
{
    static float fixed[FIXED / 4], tokens[CTX * PER_TOKEN / 4];
    struct state_item items[] = {
        {.name = "0.delta",
         .element = STATE_F32,
         .n_dims = 2,
         .dims = {4, 6},
         .unit_bytes = FIXED,
         .data = fixed},
        {.name = "1.k",
         .element = STATE_F16,
         .per_token = true,
         .tokens_per_unit = 1,
         .n_dims = 1,
         .dims = {4},
         .unit_bytes = PER_TOKEN,
         .data = tokens},
    };
    struct backend b = {.write = copy_to};
    struct model_state s = {
        .backend = &b, .ctx = CTX, .position = (int)f->head.position, .items = items, .n_items = 2};
    struct err e;
    err_clear(&e);
    bool ok = state_file_items(f, &s, &e);
    fuzz_require(ok == (e.code == ERR_NONE));
}

static void read_blocks(const struct state_file *f)
{
    static const char *const names[] = {"sampler", "messages", "logits"};
    for (int i = 0; i < 3; i++) {
        void *data;
        size_t bytes;
        struct err e;
        err_clear(&e);
        bool ok = state_file_block(f, names[i], 1000, &data, &bytes, &e);
        fuzz_require(ok == (e.code == ERR_NONE));
        fuzz_require(ok || !data);
        fuzz_require(bytes <= 1000);
        mem_free(data);
    }
}

/* A list that is taken has no entry twice and none beyond what there is. */
static void read_hot_list(const struct state_file *f)
{
    enum { LAYERS = 3, EXPERTS = 8, MOST = LAYERS * EXPERTS };
    static struct stream_name names[MOST];
    void *data;
    size_t bytes;
    struct err e;
    err_clear(&e);
    if (!state_file_block(f, "hot", MOST * HOT_LIST_ENTRY, &data, &bytes, &e) || !data)
        return;
    bool ok = hot_list_parse(f->path, data, bytes, LAYERS, EXPERTS, names, &e);
    fuzz_require(ok == (e.code == ERR_NONE));
    bool seen[LAYERS][EXPERTS] = {{false}};
    for (size_t i = 0; ok && i < bytes / HOT_LIST_ENTRY; i++) {
        fuzz_require(names[i].layer >= 0 && names[i].layer < LAYERS);
        fuzz_require(names[i].expert >= 0 && names[i].expert < EXPERTS);
        fuzz_require(!seen[names[i].layer][names[i].expert]);
        seen[names[i].layer][names[i].expert] = true;
    }
    mem_free(data);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    if (size >= 24 && bytes_u32(copy + 8) >= 8 && bytes_u32(copy + 8) <= size) {
        bytes_put_u64(copy + 16, size);
        size_t end = bytes_u32(copy + 8) - 8;
        bytes_put_u64(copy + end, XXH3_64bits(copy, end));
    }
    int fd = memfd_create("state", 0);
    fuzz_require(fd >= 0 && write(fd, copy, size) == (ssize_t)size);
    free(copy);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);

    struct state_file f;
    struct err e;
    err_clear(&e);
    bool ok = state_file_open(&f, path, &e);
    fuzz_require(ok == (e.code == ERR_NONE));
    if (ok) {
        fuzz_require(f.head.position <= size / 4);
        int32_t ids[CTX];
        if (f.head.position <= CTX && state_file_ids(&f, ids, &e))
            read_items(&f);
        read_blocks(&f);
        read_hot_list(&f);
    }
    state_file_close(&f);
    close(fd);
    return 0;
}
