/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the system, or the container that this process runs in, is short of memory. */
#ifndef STRATA_STREAM_PRESSURE_H
#define STRATA_STREAM_PRESSURE_H

/* Percent of the last ten seconds in which some process waited for memory: the larger figure of
 * system and cgroup. 0 when the system does not say. `root` is put in front of /proc and /sys (""
 * but for tests). */
double pressure_percent(const char *root);

#endif
