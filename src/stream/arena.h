/* SPDX-License-Identifier: Apache-2.0 */
/* How the arena is cut into slots.
 *
 *     | class 0: cache slots | staging | class 1: cache slots | staging | ...
 *
 * A size class serves layers whose records are about equally large; its slots are as large as its
 * largest record. A slot starts on a page. Each part of a record has a place in the slot that its
 * layer fixes; there lies the aligned superset of the part, and the part begins up to a block later.
 *
 * Cache slots hold what is resident. Staging slots are no part of the logical cache: a record in one
 * of them is never found by a look-up. */
#ifndef STRATA_STREAM_ARENA_H
#define STRATA_STREAM_ARENA_H

#include "stream/stream.h"

#define ARENA_CLASSES 8
/* Staging slots of a class, or fewer where a layer has fewer experts. Half of them are being read
 * while the other half is computed: twice the reads that a drive needs in flight. */
#define ARENA_STAGING 32

struct arena_class {
    uint64_t slot_bytes;
    uint64_t least_bytes_above; /* serves layers whose records are larger than this */
    uint64_t records;           /* of all its layers */
    int least;                  /* cache slots that one window of its largest layer may pin */
    int slots, staging;         /* numbers of slots */
    int first_slot;             /* cache slots are first_slot..+slots-1, then staging */
    uint64_t first_byte;
};

struct arena_layout {
    int classes; /* 0: no experts */
    struct arena_class class[ARENA_CLASSES];
    int slots; /* staging included */
    uint64_t bytes;
};

/* Where the parts of a layer's records lie in a slot, and how large such a record is. */
struct arena_layer {
    uint64_t part_at[STREAM_PARTS];
    uint64_t bytes; /* whole pages */
};

struct arena_layer arena_place_layer(const struct stream_layer *l, size_t io_align);

/* Cuts c->arena_bytes. Cache slots of a class are in proportion to its bytes; where a class would
 * not get its least, it is merged with the next larger one. Refuses less than stream_least_bytes. */
bool arena_cut(const struct stream_config *c, size_t io_align, struct arena_layout *out,
               struct err *e);
/* Slots of the largest arena, staging included. */
uint64_t arena_most_slots(const struct stream_config *c, size_t io_align);
int arena_class_of(const struct arena_layout *a, const struct arena_layer *l);

#endif
