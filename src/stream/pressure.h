/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the system, or the container that this process runs in, is short of memory. */
#ifndef STRATA_STREAM_PRESSURE_H
#define STRATA_STREAM_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

/* What Linux says. A system that says nothing has no pressure. */
struct pressure {
    bool has_percent;
    double percent;  /* of the last ten seconds in which some process waited for memory: the larger
                        figure of system and cgroup (version 2) */
    uint64_t events; /* how often the cgroup met its limits (memory.events: high and max) */
};

/* `root` is put in front of /proc and /sys ("" but for tests). */
struct pressure pressure_read(const char *root);
/* Whether memory is short, when `before` was read some time before: many waits, or some waits and
 * new events. Events alone count only where nobody measures waits: a group that is full of file pages
 * meets its limit all the time and lacks nothing. */
bool pressure_is_high(const struct pressure *now, const struct pressure *before);

#endif
