/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In front of every heap block: its size, in a cache line of its own to keep the alignment. */
#define HEAD_BYTES 64
#define HUGE_BYTES ((size_t)2 << 20)

static _Atomic size_t in_use, peak;
static _Atomic uint64_t fail_at;

static bool made_to_fail(void)
{
    uint64_t n = atomic_load(&fail_at);
    while (n)
        if (atomic_compare_exchange_weak(&fail_at, &n, n - 1))
            return n == 1;
    return false;
}

static void count(size_t bytes)
{
    size_t now = atomic_fetch_add(&in_use, bytes) + bytes;
    size_t top = atomic_load(&peak);
    while (now > top && !atomic_compare_exchange_weak(&peak, &top, now))
        ;
}

static bool out_of_memory(size_t bytes, const char *what, struct err *e)
{
    return err_set(e, ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

void *mem_alloc(size_t bytes, const char *what, struct err *e)
{
    size_t total;
    if (!mem_add(bytes, HEAD_BYTES + 63, &total) || made_to_fail()) {
        out_of_memory(bytes, what, e);
        return NULL;
    }
    total &= ~(size_t)63;
    char *p = aligned_alloc(64, total);
    if (!p) {
        out_of_memory(bytes, what, e);
        return NULL;
    }
    memset(p, 0, total);
    memcpy(p, &total, sizeof total);
    count(total);
    return p + HEAD_BYTES;
}

void *mem_alloc_array(size_t n, size_t size, const char *what, struct err *e)
{
    size_t bytes;
    if (!mem_mul(n, size, &bytes)) {
        err_set(e, ERR_MEMORY, "out of memory: %zu times %zu bytes for %s", n, size, what);
        return NULL;
    }
    return mem_alloc(bytes, what, e);
}

void *mem_grow(void *p, size_t bytes, const char *what, struct err *e)
{
    size_t old = 0;
    if (p)
        memcpy(&old, (char *)p - HEAD_BYTES, sizeof old);
    if (p && old - HEAD_BYTES >= bytes)
        return p;
    void *q = mem_alloc(bytes, what, e);
    if (q && p) {
        memcpy(q, p, old - HEAD_BYTES);
        mem_free(p);
    }
    return q;
}

char *mem_copy_text(const char *text, size_t n, struct err *e)
{
    char *p = mem_alloc(n + 1, "text", e);
    if (p && n)
        memcpy(p, text, n);
    return p;
}

void mem_free(void *p)
{
    if (!p)
        return;
    char *head = (char *)p - HEAD_BYTES;
    size_t total;
    memcpy(&total, head, sizeof total);
    atomic_fetch_sub(&in_use, total);
    free(head);
}

void *mem_map(size_t bytes, const char *what, struct err *e)
{
    if (!bytes)
        bytes = 1;
    bool huge = bytes >= 2 * HUGE_BYTES;
    size_t extra = huge ? HUGE_BYTES : 0, total;
    if (!mem_add(bytes, extra, &total) || made_to_fail()) {
        out_of_memory(bytes, what, e);
        return NULL;
    }
    char *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        out_of_memory(bytes, what, e);
        return NULL;
    }
    if (huge) { /* cut the block to a 2 MiB boundary, so that huge pages fit */
        size_t skip = (HUGE_BYTES - ((uintptr_t)p & (HUGE_BYTES - 1))) & (HUGE_BYTES - 1);
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t keep = mem_round_up(bytes, page);
        if (skip)
            munmap(p, skip);
        if (extra > skip && total - skip > keep)
            munmap(p + skip + keep, total - skip - keep);
        p += skip;
#ifdef MADV_HUGEPAGE
        madvise(p, bytes, MADV_HUGEPAGE);
#endif
    }
    count(bytes);
    return p;
}

void mem_lend(void *p, size_t bytes)
{
#ifdef MADV_FREE
    if (p && bytes)
        madvise(p, mem_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE)), MADV_FREE);
#else
    (void)p, (void)bytes;
#endif
}

void *mem_map_addresses(size_t bytes, const char *what, struct err *e)
{
    bytes = bytes ? bytes : 1;
    void *p = made_to_fail() ? MAP_FAILED
                             : mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        out_of_memory(bytes, what, e);
        return NULL;
    }
    count(bytes);
    return p;
}

void mem_unmap(void *p, size_t bytes)
{
    if (!p)
        return;
    if (!bytes)
        bytes = 1;
    munmap(p, bytes);
    atomic_fetch_sub(&in_use, bytes);
}

size_t mem_in_use(void)
{
    return atomic_load(&in_use);
}

size_t mem_peak(void)
{
    return atomic_load(&peak);
}

void mem_fail_at(uint64_t n)
{
    atomic_store(&fail_at, n);
}

/* A line at a time: with words of 8 bytes some processors read half as fast. */
typedef uint64_t line __attribute__((vector_size(64)));

uint64_t mem_read(const void *p, size_t bytes)
{
    const line *from = p;
    line a = {0}, b = a, c = a, d = a;
    for (size_t i = 0; i < bytes / sizeof *from; i += 4) {
        a ^= from[i];
        b ^= from[i + 1];
        c ^= from[i + 2];
        d ^= from[i + 3];
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}
