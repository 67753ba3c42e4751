/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads suit this machine: affinity, container quota, performance cores. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Cores (not hyper-threads) of the affinity mask; of a hybrid processor the most efficient kind
 * for speed only. 0 when topology cannot be read. */
static int usable_cores(void)
{
    hwloc_topology_t t;
#ifdef __linux__
    /* Without it (a chroot without /sys) hwloc knows nothing and says so on stderr. */
    if (access("/sys/devices/system/cpu/cpu0/topology", F_OK))
        return 0;
#endif
    if (hwloc_topology_init(&t))
        return 0;
    int n = 0;
    if (!hwloc_topology_load(t)) {
        hwloc_bitmap_t mask = hwloc_bitmap_alloc(), fast = hwloc_bitmap_alloc();
        if (!mask || !fast || hwloc_get_cpubind(t, mask, 0) < 0)
            hwloc_bitmap_copy(mask, hwloc_topology_get_allowed_cpuset(t));
        int kinds = hwloc_cpukinds_get_nr(t, 0);
        if (kinds > 1 && !hwloc_cpukinds_get_info(t, (unsigned)kinds - 1, fast, NULL, NULL, NULL, 0) &&
            hwloc_bitmap_intersects(mask, fast))
            hwloc_bitmap_and(mask, mask, fast);
        hwloc_obj_t core = NULL;
        while ((core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core)))
            n += hwloc_bitmap_intersects(core->cpuset, mask);
        hwloc_bitmap_free(mask);
        hwloc_bitmap_free(fast);
    }
    hwloc_topology_destroy(t);
    return n;
}

/* CPUs that the container's quota is worth, rounded up; 0: no quota. */
static int quota(void)
{
    char path[4200] = "/sys/fs/cgroup/cpu.max", own[4096], line[4096];
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f) {
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "0::%4095s", own) == 1)
                snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", own);
        fclose(f);
    }
    int cpus = 0;
    long long most, period;
    for (char *cut = path; !cpus; ) { /* the nearest group with a limit, up to the root */
        if ((f = fopen(path, "re"))) {
            if (fscanf(f, "%lld %lld", &most, &period) == 2 && most > 0 && period > 0)
                cpus = (int)((most + period - 1) / period);
            fclose(f);
        }
        cut = strrchr(path, '/');
        *cut = 0;
        cut = strrchr(path, '/');
        if (!cut || cut < path + strlen("/sys/fs/cgroup") - 1 || strlen(path) <= strlen("/sys/fs/cgroup"))
            break;
        snprintf(cut, sizeof path - (size_t)(cut - path), "/cpu.max");
    }
    return cpus;
}

int pool_default_threads(void)
{
    int n = usable_cores();
    if (n < 1) {
        cpu_set_t set;
        n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
    }
    int q = quota();
    if (q && q < n)
        n = q;
    return n < 1 ? 1 : n > 256 ? 256 : n;
}
