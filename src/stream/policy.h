/* SPDX-License-Identifier: Apache-2.0 */
/* Which records are worth least (docs/streaming.md, "Policies"). A policy keeps the resident slots
 * of each size class in an order of value; it learns of every turn and use and knows nothing of
 * reads, pins or clocks, so that its order is a function of the history of turns.
 *
 *     LRU    worth least is what was used longest ago
 *     LFU    what was used least often, in the arena or not, uses counting half after 64 tokens; of
 *            what is equal by that what has not been used for longer, then what comes up later in
 *            the order of layers
 *     LAYER  what has been passed over most often since its last use; of equals what comes up last
 *            in the order of layers; of equals the older */
#ifndef STRATA_STREAM_POLICY_H
#define STRATA_STREAM_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum policy_kind { POLICY_LRU, POLICY_LFU, POLICY_LAYER };

/* "lru", "lfu", "layer". */
bool policy_parse(const char *text, enum policy_kind *out, struct err *e);
const char *policy_name(enum policy_kind kind);

struct policy;

struct policy *policy_create(enum policy_kind kind, int classes, int slots, int layers,
                             int records, struct err *e);
void policy_free(struct policy *p);
/* Bytes that it holds, at most. */
size_t policy_memory(int classes, int slots, int layers, int records);

/* A turn of `layer` for so many rows begins. */
void policy_begin_turn(struct policy *p, int layer, int rows);
/* So many rows of it use a record, resident or not. */
void policy_use(struct policy *p, int record, uint32_t rows);
/* A record of `layer`, which `slot` now holds, became resident; it was used just now. */
void policy_admit(struct policy *p, int class_index, int slot, int layer, int record);
/* It was used. */
void policy_touch(struct policy *p, int class_index, int slot);
/* It is no longer resident. */
void policy_remove(struct policy *p, int class_index, int slot);

/* The slots of a class from worth least upwards: the first with after = -1; -1 at the end. One walk
 * at a time, `after` being what the last call gave; what it gave may be removed once the next is
 * known. Nothing else may change during a walk. */
int policy_victim(struct policy *p, int class_index, int after);

#endif
