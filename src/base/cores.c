/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/cores.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void add_cores(hwloc_topology_t t, hwloc_const_bitmap_t mask, struct cores *out)
{
    hwloc_obj_t core = NULL;
    while (out->n < CORES_MOST && (core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core))) {
        for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0;
             cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
            if (hwloc_bitmap_isset(mask, (unsigned)cpu)) {
                out->cpu[out->n++] = cpu;
                break;
            }
        }
    }
}

/* Takes all but the fastest kind (by capacity, frequency: hwloc ranks them) that the mask has out of
 * it. */
static bool keep_fast(hwloc_topology_t t, hwloc_bitmap_t mask)
{
    hwloc_bitmap_t kind = hwloc_bitmap_alloc();
    int best = -1, kinds = hwloc_cpukinds_get_nr(t, 0);
    bool any_slower = false;
    for (int i = kinds - 1; kind && i >= 0; i--) {
        int efficiency = -1; /* -1: hwloc cannot rank them */
        if (hwloc_cpukinds_get_info(t, (unsigned)i, kind, &efficiency, NULL, NULL, 0) ||
            efficiency < 0 || !hwloc_bitmap_intersects(mask, kind))
            continue;
        if (best < 0) {
            best = i;
        } else {
            hwloc_bitmap_andnot(mask, mask, kind);
            any_slower = true;
        }
    }
    hwloc_bitmap_free(kind);
    return any_slower;
}

void cores_find(struct cores *out)
{
    hwloc_topology_t t;
    *out = (struct cores){0};
#ifdef __linux__
    /* Without it (a chroot without /sys) hwloc knows nothing and says so on stderr. */
    if (access("/sys/devices/system/cpu/cpu0/topology", F_OK))
        return;
#endif
    if (hwloc_topology_init(&t))
        return;
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    if (mask && !hwloc_topology_load(t)) {
        if (hwloc_get_cpubind(t, mask, HWLOC_CPUBIND_THREAD) < 0)
            hwloc_bitmap_copy(mask, hwloc_topology_get_allowed_cpuset(t));
        out->are_chosen = keep_fast(t, mask);
        add_cores(t, mask, out);
    }
    hwloc_bitmap_free(mask);
    hwloc_topology_destroy(t);
}

/* ---- Control groups ------------------------------------------------------------------------- */

#define PATH_BYTES 8192
#define GROUP_BYTES 4096

static bool read_first(const char *folder, const char *name, const char *format, long long *a,
                       long long *b, int wanted)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    bool ok = f && fscanf(f, format, a, b) == wanted;
    if (f)
        fclose(f);
    return ok;
}

/* CPUs of the folder of one group, 0: no limit ("max", or -1). */
static int limit_of(const char *folder)
{
    long long most = 0, period = 0, unused;
    if (!read_first(folder, "cpu.max", "%lld %lld", &most, &period, 2) &&
        (!read_first(folder, "cpu.cfs_quota_us", "%lld", &most, &unused, 1) ||
         !read_first(folder, "cpu.cfs_period_us", "%lld", &period, &unused, 1)))
        return 0;
    return most > 0 && period > 0 ? (int)((most + period - 1) / period) : 0;
}

/* The tightest limit from `group` up to the tree's root at `mount`. In a container the group's name
 * may be one of the host, of which there are no folders here: they are passed over. */
static int tightest(const char *mount, const char *group)
{
    char folder[PATH_BYTES];
    size_t root = strlen(mount);
    int least = 0;
    snprintf(folder, sizeof folder, "%s%s", mount, strcmp(group, "/") != 0 ? group : "");
    for (;;) {
        int cpus = limit_of(folder);
        if (cpus && (!least || cpus < least))
            least = cpus;
        char *cut = strrchr(folder, '/');
        if (strlen(folder) <= root || !cut || cut < folder + root)
            return least;
        *cut = 0;
    }
}

/* Whether "cpu" is one of the names that commas divide. */
static bool has_cpu(const char *names)
{
    for (const char *p = names; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, "cpu", 3) && (!p[3] || p[3] == ','))
            return true;
    return false;
}

int cores_quota(const char *root)
{
    char path[PATH_BYTES / 2], line[GROUP_BYTES + 256], names[128], group[GROUP_BYTES] = "/";
    int least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *folder = "/sys/fs/cgroup"; /* second version */
        char mount[PATH_BYTES / 2];
        if (sscanf(line, "0::%4095[^\n]", group) == 1)
            names[0] = 0;
        else if (sscanf(line, "%*d:%127[^:]:%4095[^\n]", names, group) != 2 || !has_cpu(names))
            continue;
        snprintf(mount, sizeof mount, "%s%s%s%s", root, folder, names[0] ? "/" : "", names);
        int cpus = tightest(mount, group);
        if (cpus && (!least || cpus < least))
            least = cpus;
    }
    if (f)
        fclose(f);
    return least;
}

int cores_default_threads(void)
{
    struct cores c;
    cores_find(&c);
    int n = c.n;
    if (n < 1) {
        cpu_set_t set;
        n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
    }
    int quota = cores_quota("");
    if (quota && quota < n)
        n = quota;
    return n < 1 ? 1 : n > CORES_MOST ? CORES_MOST : n;
}
