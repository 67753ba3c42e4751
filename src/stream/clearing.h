/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that has the system clear memory a little before reads need it. A page that nobody has
 * touched is cleared by who submits the first read into it: for a record longer than it takes to
 * submit it, one after the other, while the other processors wait.
 *
 * The memory is a few areas, each used from its first byte on. */
#ifndef STRATA_STREAM_CLEARING_H
#define STRATA_STREAM_CLEARING_H

#include <stdint.h>

#define CLEARING_AREAS 8

struct clearing;

/* Told by the thread, once for each byte: `bytes` of the memory have their pages now. */
typedef void clearing_done(void *ctx, char *memory, uint64_t bytes);

/* `bytes[i]` of area i begin at memory + first[i]; `areas` at most CLEARING_AREAS; `ahead` bytes of
 * each are kept clear beyond what is in use; `done`, unless NULL, gets them by CLEARING_TOLD bytes,
 * and the end of each area. NULL where the system cannot do it: nothing is missing then but speed. */
#define CLEARING_TOLD ((uint64_t)128 << 20)
struct clearing *clearing_start(char *memory, const uint64_t *first, const uint64_t *bytes,
                                int areas, uint64_t ahead, clearing_done *done, void *ctx);
/* Area `area` is in use up to byte `end`. */
void clearing_note(struct clearing *c, int area, uint64_t end);
/* Waits for the thread; NULL is allowed. Before any of the memory is given back or freed. */
void clearing_stop(struct clearing *c);

#endif
