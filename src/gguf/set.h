/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of src/gguf: how an open set is kept. Everybody else uses gguf.h. */
#ifndef STRATA_GGUF_SET_H
#define STRATA_GGUF_SET_H

#include "gguf/gguf.h"
#include "gguf/join.h"
#include "gguf/names.h"

struct gguf_part {
    char *path;
    int fd;
    uint64_t bytes;
    uint64_t header_bytes; /* end of the tensor table */
    uint32_t version;
    uint64_t alignment;
};

struct gguf_keys {
    struct gguf_key *items;
    size_t count, room;
    struct gguf_names names;
};

struct gguf_tensors {
    struct gguf_tensor *items;
    size_t count, room;
    struct gguf_names names;
    /* First tensor whose name an earlier part has as well, GGUF_NO_NAME if there is none: an error
     * of the set, reported when the part by itself was found right. */
    size_t twice_in_set;
};

struct gguf_file {
    struct gguf_part *parts;
    int n_parts, parts_room;
    int n_joined; /* the last of the parts, which another file brought (join.h) */
    char joined_prefix[GGUF_JOIN_PREFIX];
    struct gguf_keys keys; /* of the first part */
    struct gguf_tensors tensors;
};

/* Reads and checks one file (R01 to R25): fills version, alignment and header_bytes of `part`, whose
 * path, fd and bytes are set, and `keys`, which is empty; appends to `tensors` with part number
 * `number`. After a failure the caller frees everything as after success. */
bool gguf_part_read(struct gguf_part *part, int number, struct gguf_keys *keys,
                    struct gguf_tensors *tensors, struct err *e);

const struct gguf_key *gguf_keys_find(const struct gguf_keys *keys, const char *name);
void gguf_keys_free(struct gguf_keys *keys);

#endif
