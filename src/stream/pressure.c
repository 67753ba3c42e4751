/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/pressure.h"

#include <stdio.h>
#include <string.h>

/* The figure behind "some avg10=" of a file of pressure stall information. */
static double read_pressure(const char *path)
{
    double percent = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "some avg10=%lf", &percent) != 1)
        percent = 0;
    fclose(f);
    return percent;
}

/* Of the group that this process is in (cgroup version 2). */
static double group_pressure(const char *root)
{
    char path[1400], line[1024];
    double percent = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3))
            continue;
        int n = snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.pressure", root, line + 3);
        if (n > 0 && (size_t)n < sizeof path)
            percent = read_pressure(path);
    }
    if (f)
        fclose(f);
    return percent;
}

double pressure_percent(const char *root)
{
    char path[600];
    snprintf(path, sizeof path, "%s/proc/pressure/memory", root);
    double system = read_pressure(path), group = group_pressure(root);
    return system > group ? system : group;
}
