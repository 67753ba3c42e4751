/* SPDX-License-Identifier: Apache-2.0 */
/* Entries lie in two lists: the chain of their bucket, and the order of use. Numbers are those of
 * entries, -1 at the ends. */
#include "stream/row_cache.h"

#include <string.h>

#include "base/mem.h"

struct entry {
    uint64_t row;
    int32_t next;         /* of its bucket */
    int32_t older, newer; /* by use */
};

struct row_cache {
    size_t row_bytes;
    int entries, used;
    int32_t oldest, newest;
    struct entry *entry; /* [entries] */
    int32_t *bucket;     /* [entries] */
    char *bytes;         /* [entries][row_bytes] */
};

static size_t entries_for(size_t row_bytes)
{
    size_t n = ROW_CACHE_BYTES / row_bytes;
    n = n < ROW_CACHE_ROWS ? n : ROW_CACHE_ROWS;
    return n ? n : 1;
}

size_t row_cache_memory(size_t row_bytes)
{
    return sizeof(struct row_cache) + 512 +
           entries_for(row_bytes) * (sizeof(struct entry) + sizeof(int32_t) + row_bytes);
}

struct row_cache *row_cache_create(size_t row_bytes, struct err *e)
{
    struct row_cache *c = mem_alloc(sizeof *c, "row cache", e);
    if (!c)
        return NULL;
    size_t n = entries_for(row_bytes);
    *c = (struct row_cache){.row_bytes = row_bytes, .entries = (int)n, .oldest = -1, .newest = -1};
    c->entry = mem_alloc_array(n, sizeof *c->entry, "row cache", e);
    c->bucket = mem_alloc_array(n, sizeof *c->bucket, "row cache", e);
    c->bytes = mem_alloc_array(n, row_bytes, "row cache", e);
    if (!c->entry || !c->bucket || !c->bytes) {
        row_cache_free(c);
        return NULL;
    }
    memset(c->bucket, 0xff, n * sizeof *c->bucket);
    return c;
}

void row_cache_free(struct row_cache *c)
{
    if (!c)
        return;
    mem_free(c->entry);
    mem_free(c->bucket);
    mem_free(c->bytes);
    mem_free(c);
}

static int32_t *bucket_of(const struct row_cache *c, uint64_t row)
{
    uint64_t hash = row * UINT64_C(0x9e3779b97f4a7c15);
    return &c->bucket[(hash >> 32) % (uint64_t)c->entries];
}

static void unlink_entry(struct row_cache *c, int i)
{
    const struct entry *t = &c->entry[i];
    *(t->older >= 0 ? &c->entry[t->older].newer : &c->oldest) = t->newer;
    *(t->newer >= 0 ? &c->entry[t->newer].older : &c->newest) = t->older;
}

static void append_entry(struct row_cache *c, int i)
{
    c->entry[i].older = c->newest;
    c->entry[i].newer = -1;
    *(c->newest >= 0 ? &c->entry[c->newest].newer : &c->oldest) = i;
    c->newest = i;
}

const void *row_cache_find(struct row_cache *c, uint64_t row)
{
    for (int i = *bucket_of(c, row); i >= 0; i = c->entry[i].next)
        if (c->entry[i].row == row) {
            unlink_entry(c, i);
            append_entry(c, i);
            return c->bytes + (size_t)i * c->row_bytes;
        }
    return NULL;
}

/* The entry of the row used longest ago, out of all lists. */
static int take_oldest(struct row_cache *c)
{
    int i = c->oldest;
    int32_t *link = bucket_of(c, c->entry[i].row);
    while (*link != i)
        link = &c->entry[*link].next;
    *link = c->entry[i].next;
    unlink_entry(c, i);
    return i;
}

void row_cache_put(struct row_cache *c, uint64_t row, const void *bytes)
{
    int i = c->used < c->entries ? c->used++ : take_oldest(c);
    int32_t *bucket = bucket_of(c, row);
    c->entry[i] = (struct entry){.row = row, .next = *bucket};
    *bucket = i;
    append_entry(c, i);
    memcpy(c->bytes + (size_t)i * c->row_bytes, bytes, c->row_bytes);
}
