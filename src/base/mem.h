/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: every allocation of the library goes through here, so that it can be counted against
 * the plan and made to fail by tests. Thread-safe. */
#ifndef STRATA_BASE_MEM_H
#define STRATA_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* `bytes` of zeroed memory aligned to 64. NULL and an error that says `what` when there is none.
 * A size of 0 gives a valid pointer. Freed with mem_free. */
void *mem_alloc(size_t bytes, const char *what, struct err *e);

/* count * size with the product checked. */
void *mem_alloc_array(size_t count, size_t size, const char *what, struct err *e);

/* Grows a block of mem_alloc (p may be NULL), contents kept, new part not zeroed.
 * On failure p stays valid and NULL is returned. */
void *mem_grow(void *p, size_t bytes, const char *what, struct err *e);

/* NUL-terminated copy of n bytes. */
char *mem_copy_text(const char *text, size_t n, struct err *e);

void mem_free(void *p);

/* Large blocks: whole pages straight from the system, zeroed, not part of the heap, aligned to the
 * page size (and to 2 MiB when large enough, with huge pages asked for). Freed with mem_unmap and
 * the same size. */
void *mem_map(size_t bytes, const char *what, struct err *e);
void mem_unmap(void *p, size_t bytes);
/* What the block holds is not needed any more: until a page is written to the next time the system may
 * take it, and then it is zero. */
void mem_lend(void *p, size_t bytes);
/* Addresses without memory behind them: touching one is a fault. Freed with mem_unmap. */
void *mem_map_addresses(size_t bytes, const char *what, struct err *e);

/* Bytes that are allocated now (heap and mapped), and the most that ever were. */
size_t mem_in_use(void);
size_t mem_peak(void);

/* Tests: the n-th allocation from now on fails (0: none does). */
void mem_fail_at(uint64_t n);

/* a * b or a + b into *out; false when it would wrap. */
static inline bool mem_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool mem_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds up to a multiple of a power of two. The caller has checked that it does not wrap. */
static inline size_t mem_round_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/* Reads all bytes in ascending order as fast as one thread can, for measurements; p is aligned to 64 and
 * bytes a multiple of MEM_READ_STEP. Something that depends on every byte. */
#define MEM_READ_STEP 256
uint64_t mem_read(const void *p, size_t bytes);

#endif
