/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads. One pool a process; a step is a sequence of pool_run calls. */
#ifndef STRATA_BASE_POOL_H
#define STRATA_BASE_POOL_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/laps.h"

struct pool;

/* Work of one call: does chunk `chunk` of `n_chunks`. `worker` is 0..threads-1, for scratch that
 * belongs to a worker. Chunks run in any order on any worker; results must not depend on it. */
typedef void pool_fn(void *ctx, int chunk, int worker);

/* A pool of `threads` workers, the calling thread being worker 0. threads >= 1. When they are as many
 * as the cores (cores.h), each of the others is pinned to one; when they are fewer and there are slower
 * cores, they keep to the fast ones. The calling thread stays as free as it is but between the calls
 * below. */
struct pool *pool_create(int threads, struct err *e);
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);

/* Around a pass whose caller waits for other things too (reads), and is the only one at it: where each
 * worker has a core, the calling thread keeps to the one that they leave, and gets its own affinity back.
 * Woken up on a worker's core it would hold that one up for milliseconds. Where another process shares
 * the caller's core and not a worker's, a pass begins with them changing places. */
void pool_begin_pass(struct pool *p);
void pool_end_pass(struct pool *p);

/* From now on the times of steps are noted (laps.h); NULL: not. Between runs. */
void pool_set_laps(struct pool *p, struct laps *l);

/* Within a chunk: waits until `counter` has reached `n`, which chunks with lower numbers see to; those
 * are always taken first, so that somebody is at them. What they wrote before they raised it
 * (pool_count) is visible then. */
void pool_wait(atomic_int *counter, int n);
static inline int pool_count(atomic_int *counter) /* returns its new value */
{
    return atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel) + 1;
}

/* Runs fn for chunks 0..n_chunks-1 and returns when all are done (everything written is visible to
 * the caller). The caller takes part. Only one thread may call it at a time. */
void pool_run(struct pool *p, pool_fn *fn, void *ctx, int n_chunks);

#endif
