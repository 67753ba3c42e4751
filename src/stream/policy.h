/* SPDX-License-Identifier: Apache-2.0 */
/* Which records are worth least (docs/streaming.md, "Policies"). A policy keeps the resident slots of
 * each size class in an order of value; it learns of every use and knows nothing of reads, pins or
 * clocks, so that its order is a function of the history of turns.
 *
 * This one is LRU: worth least is what was used longest ago. */
#ifndef STRATA_STREAM_POLICY_H
#define STRATA_STREAM_POLICY_H

#include <stdint.h>

#include "base/err.h"

struct policy;

struct policy *policy_create(int classes, int slots, struct err *e);
void policy_free(struct policy *p);

/* The record that `slot` now holds became resident; it is worth most. */
void policy_admit(struct policy *p, int class_index, int slot);
/* It was used. */
void policy_touch(struct policy *p, int class_index, int slot);
/* It is no longer resident. */
void policy_remove(struct policy *p, int class_index, int slot);

/* The slots of a class from worth least upwards: the first with after = -1; -1 at the end. The order
 * stands until the next admit, touch or remove. */
int policy_victim(const struct policy *p, int class_index, int after);

#endif
