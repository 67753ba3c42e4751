/* SPDX-License-Identifier: Apache-2.0 */
/* What memory the system can give, read from the places where Linux says it. */
#include "stream/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a plan leaves free on its own account. Of the machine's memory other programs want some
 * later; of a container's, whose limit was made for what runs in it, the system counts some besides
 * (page tables, pages of files), and what does not fit after all is given back by steps. */
#define MACHINE_RESERVE 8 /* one of so many parts */
#define MACHINE_RESERVE_MOST ((uint64_t)1 << 30)
#define CONTAINER_RESERVE 32
#define CONTAINER_RESERVE_MOST ((uint64_t)256 << 20)
#define NO_LIMIT UINT64_MAX

/* Where a version of cgroups keeps its numbers. */
struct cgroup_names {
    const char *prefix; /* of the line in /proc/self/cgroup, after the hierarchy's number */
    const char *mount, *limit, *used, *reclaimable;
};

static const struct cgroup_names cgroup_versions[] = {
    {"::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
};

/* The number behind `word` at the start of a line, or the file's first when word is "". */
static bool read_number(const char *path, const char *word, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        char *end;
        if (strncmp(line, word, strlen(word)))
            continue;
        *out = strtoull(line + strlen(word), &end, 10);
        found = end > line + strlen(word);
    }
    fclose(f);
    return found;
}

/* What one group leaves: its limit minus what it uses and could not give back. */
static uint64_t group_leaves(const char *folder, const struct cgroup_names *v)
{
    char path[1200];
    uint64_t limit, used, reclaimable = 0;
    snprintf(path, sizeof path, "%s/%s", folder, v->limit);
    if (!read_number(path, "", &limit))
        return NO_LIMIT; /* "max", or no such group in sight */
    snprintf(path, sizeof path, "%s/%s", folder, v->used);
    if (!read_number(path, "", &used))
        used = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_number(path, v->reclaimable, &reclaimable);
    used -= reclaimable < used ? reclaimable : used;
    return limit > used ? limit - used : 0;
}

/* The least that the groups from ours up to the root leave. */
static uint64_t groups_leave(const char *root, const struct cgroup_names *v, const char *group)
{
    char folder[1100], *mount_end;
    int n = snprintf(folder, sizeof folder, "%s%s", root, v->mount);
    if (n < 0 || (size_t)n + strlen(group) >= sizeof folder)
        return NO_LIMIT;
    mount_end = folder + n;
    strcpy(mount_end, group);
    uint64_t least = NO_LIMIT;
    for (;;) {
        uint64_t leaves = group_leaves(folder, v);
        least = leaves < least ? leaves : least;
        char *slash = strrchr(mount_end, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

static uint64_t containers_leave(const char *root)
{
    char path[600], line[1024];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    uint64_t least = NO_LIMIT;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        for (size_t i = 0; i < sizeof cgroup_versions / sizeof *cgroup_versions; i++) {
            const struct cgroup_names *v = &cgroup_versions[i];
            const char *rest = strchr(line, ':');
            if (!rest || strncmp(rest, v->prefix, strlen(v->prefix)))
                continue;
            uint64_t leaves = groups_leave(root, v, rest + strlen(v->prefix));
            least = leaves < least ? leaves : least;
        }
    }
    if (f)
        fclose(f);
    return least;
}

static uint64_t machine_leaves(const char *root)
{
    char path[600];
    uint64_t available;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    return read_number(path, "MemAvailable:", &available) ? available * 1024 : NO_LIMIT;
}

/* NO_LIMIT stays. */
static uint64_t minus_reserve(uint64_t bytes, uint64_t part, uint64_t most)
{
    uint64_t reserve = bytes / part < most ? bytes / part : most;
    return bytes == NO_LIMIT ? NO_LIMIT : bytes - reserve;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* 0 would be no limit: a container that is full has one. */
static uint64_t said(uint64_t bytes)
{
    return bytes == NO_LIMIT ? 0 : bytes ? bytes : 1;
}

uint64_t plan_system_available(const char *root)
{
    return said(smaller(machine_leaves(root), containers_leave(root)));
}

uint64_t plan_system_bytes(const char *root)
{
    uint64_t machine = minus_reserve(machine_leaves(root), MACHINE_RESERVE, MACHINE_RESERVE_MOST);
    uint64_t container =
        minus_reserve(containers_leave(root), CONTAINER_RESERVE, CONTAINER_RESERVE_MOST);
    return said(smaller(machine, container));
}
