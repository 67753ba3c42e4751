/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a table that were read last, whole and exact. */
#ifndef STRATA_STREAM_ROW_CACHE_H
#define STRATA_STREAM_ROW_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct row_cache;

/* For as many rows of row_bytes as ROW_CACHE_BYTES holds, at most ROW_CACHE_ROWS. */
#define ROW_CACHE_ROWS 4096
#define ROW_CACHE_BYTES ((size_t)4 << 20)

struct row_cache *row_cache_create(size_t row_bytes, struct err *e);
size_t row_cache_memory(size_t row_bytes);
void row_cache_free(struct row_cache *c);

/* The row's bytes, until the next row_cache_put; NULL: it is not kept. */
const void *row_cache_find(struct row_cache *c, uint64_t row);
/* Keeps a copy in place of the row that was used longest ago. It must not be kept already. */
void row_cache_put(struct row_cache *c, uint64_t row, const void *bytes);

#endif
