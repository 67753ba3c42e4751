/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores suit this process: those of its affinity mask, of a hybrid processor the fast ones,
 * no more than the container's quota of CPU time is worth. */
#ifndef STRATA_BASE_CORES_H
#define STRATA_BASE_CORES_H

#include <stdbool.h>

#define CORES_MOST 256

struct cores {
    int n;               /* 0: the topology cannot be read */
    bool are_chosen;     /* the mask has slower ones beside them */
    int cpu[CORES_MOST]; /* of each core its first processor that the mask allows */
};

/* Cores (not hyper-threads) of the affinity mask; of a hybrid processor the fastest kind there. */
void cores_find(struct cores *out);

/* CPUs that the quota of control groups (cpu.max, or cpu.cfs_quota_us of the first version) is
 * worth, rounded up: the tightest from the process's own group to the root of the tree. 0: none.
 * `root` stands before /proc and /sys, "" outside of tests. */
int cores_quota(const char *root);

/* Threads to use when the user does not say: one a core, as far as the quota goes; 1 or more. */
int cores_default_threads(void);

#endif
