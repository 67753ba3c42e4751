/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts one block into aligned pieces. The same code first counts (base NULL) and then cuts, so that
 * the plan's figure and what is allocated cannot differ. */
#ifndef STRATA_BASE_CARVE_H
#define STRATA_BASE_CARVE_H

#include <stdbool.h>
#include <stddef.h>

struct carve {
    char *base;    /* NULL: only count */
    size_t used;   /* bytes so far */
    bool overflow; /* a size wrapped: `used` is worthless */
};

/* `count` elements of `size` bytes, aligned to 64. NULL while counting. */
static inline void *carve(struct carve *c, size_t count, size_t size)
{
    size_t bytes, end;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, 63, &bytes) ||
        __builtin_add_overflow(c->used, bytes & ~(size_t)63, &end)) {
        c->overflow = true;
        return NULL;
    }
    void *p = c->base ? c->base + c->used : NULL;
    c->used = end;
    return p;
}

#endif
