/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "gguf/names.h"

#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"

#define FIRST_BLOCK_BYTES ((size_t)1 << 10)
#define LAST_BLOCK_BYTES ((size_t)1 << 20)
#define FIRST_ROOM 16

struct gguf_name_slot {
    const char *name;
    uint32_t bytes, hash;
    size_t index;
};

struct gguf_name_block {
    struct gguf_name_block *next;
    char text[];
};

static uint32_t hash_of(const struct gguf_names *names, const char *name, size_t bytes)
{
    return (uint32_t)XXH3_64bits_withSeed(name, bytes, names->seed);
}

/* The slot that holds the name, or the free one where it belongs. */
static struct gguf_name_slot *slot_of(const struct gguf_names *names, const char *name,
                                      size_t bytes, uint32_t hash)
{
    for (size_t i = hash & (names->room - 1);; i = (i + 1) & (names->room - 1)) {
        struct gguf_name_slot *s = &names->slots[i];
        if (!s->name || (s->hash == hash && s->bytes == bytes && memcmp(s->name, name, bytes) == 0))
            return s;
    }
}

static bool make_room(struct gguf_names *names, struct err *e)
{
    if (names->used < names->room / 4 * 3)
        return true;
    size_t room = names->room ? names->room * 2 : FIRST_ROOM;
    struct gguf_names larger = *names;
    larger.slots = mem_alloc_array(room, sizeof *larger.slots, "index of names", e);
    if (!larger.slots)
        return false;
    larger.room = room;
    if (!names->room && getentropy(&larger.seed, sizeof larger.seed))
        larger.seed = (uintptr_t)larger.slots;
    for (size_t i = 0; i < names->room; i++) {
        const struct gguf_name_slot *s = &names->slots[i];
        if (s->name)
            *slot_of(&larger, s->name, s->bytes, s->hash) = *s;
    }
    mem_free(names->slots);
    *names = larger;
    return true;
}

static const char *keep(struct gguf_names *names, const char *name, size_t bytes, struct err *e)
{
    if (bytes + 1 > names->block_bytes - names->block_used) {
        size_t size = names->blocks ? names->block_bytes * 2 : FIRST_BLOCK_BYTES;
        if (size > LAST_BLOCK_BYTES)
            size = LAST_BLOCK_BYTES;
        if (size < bytes + 1)
            size = bytes + 1;
        struct gguf_name_block *b = mem_alloc(sizeof *b + size, "names", e);
        if (!b)
            return NULL;
        b->next = names->blocks;
        names->blocks = b;
        names->block_bytes = size;
        names->block_used = 0;
    }
    char *to = names->blocks->text + names->block_used;
    memcpy(to, name, bytes);
    to[bytes] = 0;
    names->block_used += bytes + 1;
    return to;
}

bool gguf_names_add(struct gguf_names *names, const char *name, size_t bytes, size_t index,
                    const char **kept, size_t *before, struct err *e)
{
    if (!make_room(names, e))
        return false;
    uint32_t hash = hash_of(names, name, bytes);
    struct gguf_name_slot *s = slot_of(names, name, bytes, hash);
    *before = s->name ? s->index : GGUF_NO_NAME;
    if (!s->name) {
        s->name = keep(names, name, bytes, e);
        if (!s->name)
            return false;
        s->bytes = (uint32_t)bytes;
        s->hash = hash;
        names->used++;
    }
    s->index = index;
    *kept = s->name;
    return true;
}

size_t gguf_names_find(const struct gguf_names *names, const char *name, size_t bytes)
{
    if (!names->room)
        return GGUF_NO_NAME;
    const struct gguf_name_slot *s = slot_of(names, name, bytes, hash_of(names, name, bytes));
    return s->name ? s->index : GGUF_NO_NAME;
}

void gguf_names_free(struct gguf_names *names)
{
    while (names->blocks) {
        struct gguf_name_block *next = names->blocks->next;
        mem_free(names->blocks);
        names->blocks = next;
    }
    mem_free(names->slots);
    *names = (struct gguf_names){0};
}
