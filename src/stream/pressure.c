/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/pressure.h"

#include <stdio.h>
#include <string.h>

#define HIGH_PERCENT 10.0 /* of the time somebody waited for memory */
#define SOME_PERCENT 1.0  /* besides new events */

/* The figure behind "some avg10=" of a file of pressure stall information. */
static void take_percent(const char *path, struct pressure *out)
{
    double percent;
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fscanf(f, "some avg10=%lf", &percent) == 1) {
        out->percent = !out->has_percent || percent > out->percent ? percent : out->percent;
        out->has_percent = true;
    }
    fclose(f);
}

static void take_events(const char *path, struct pressure *out)
{
    char name[32];
    unsigned long long n;
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%31s %llu", name, &n) == 2)
        if (!strcmp(name, "high") || !strcmp(name, "max"))
            out->events += n;
    if (f)
        fclose(f);
}

/* Of the group that this process is in (cgroup version 2). */
static void take_group(const char *root, struct pressure *out)
{
    char path[1400], line[1024];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3))
            continue;
        const char *folder = line + 3;
        int n = snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.pressure", root, folder);
        if (n < 0 || (size_t)n >= sizeof path)
            continue;
        take_percent(path, out);
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.events", root, folder);
        take_events(path, out);
    }
    if (f)
        fclose(f);
}

struct pressure pressure_read(const char *root)
{
    char path[600];
    struct pressure out = {0};
    snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
    take_percent(path, &out);
    take_group(root, &out);
    return out;
}

bool pressure_is_high(const struct pressure *now, const struct pressure *before)
{
    bool has_events = now->events > before->events;
    return now->percent > HIGH_PERCENT ||
           (has_events && (!now->has_percent || now->percent > SOME_PERCENT));
}
