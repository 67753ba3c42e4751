/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting inside a turn, where nothing is allocated (qsort of the C library may). */
#ifndef STRATA_STREAM_SORT_H
#define STRATA_STREAM_SORT_H

#include <stddef.h>
#include <stdint.h>

static inline void sort_sift(uint64_t *key, size_t root, size_t n)
{
    uint64_t k = key[root];
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && key[child + 1] > key[child])
            child++;
        if (key[child] <= k)
            break;
        key[root] = key[child];
    }
    key[root] = k;
}

/* Ascending, in place (heap sort). */
static inline void sort_u64(uint64_t *key, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sort_sift(key, i, n);
    for (size_t end = n; end-- > 1;) {
        uint64_t most = key[0];
        key[0] = key[end];
        sort_sift(key, 0, end);
        key[end] = most;
    }
}

#endif
