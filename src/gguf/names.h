/* SPDX-License-Identifier: Apache-2.0 */
/* A set of names (of keys, of tensors) that owns their text and knows the index of each. Adding and
 * finding take constant time whatever a hostile file chooses as names: the hash has a random seed. */
#ifndef STRATA_GGUF_NAMES_H
#define STRATA_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GGUF_NO_NAME SIZE_MAX

struct gguf_names {
    struct gguf_name_slot *slots; /* open addressing; a slot without a name is free */
    size_t room;                  /* slots, a power of two or 0 */
    size_t used;
    uint64_t seed;
    struct gguf_name_block *blocks; /* text, newest block first */
    size_t block_used, block_bytes; /* of the newest block */
};

/* Adds a copy of the name with its index. *kept gets the copy, which has a NUL behind it and lives
 * as long as the set. *before gets the index that the name had until now, GGUF_NO_NAME if it is
 * new. False only when there is no memory. A zeroed struct is an empty set. */
bool gguf_names_add(struct gguf_names *names, const char *name, size_t bytes, size_t index,
                    const char **kept, size_t *before, struct err *e);

/* Index of a name, GGUF_NO_NAME when it is not there. */
size_t gguf_names_find(const struct gguf_names *names, const char *name, size_t bytes);

void gguf_names_free(struct gguf_names *names);

#endif
