/* SPDX-License-Identifier: Apache-2.0 */
/* What `strata bench` of one configuration and of several share. */
#ifndef STRATA_CLI_BENCH_H
#define STRATA_CLI_BENCH_H

#include <stddef.h>

#include "base/json.h"
#include "cli/cli.h"

/* Quantile q (0 .. 1) of the values, between neighbours in a straight line; sorts them. 0 of none.
 */
double bench_quantile(double *values, size_t n, double q);

/* Runs of an arm, each as `bench --json` printed it; `room` is for n values. The median of a key of
 * a repetition over the runs; 0: none has it. */
double bench_stats_median(struct json_doc *const *runs, size_t n, const char *key, double *room);
/* A member "stats" with the medians of all keys that a repetition has. */
void bench_stats_put(struct json_doc *const *runs, size_t n, double *room, struct json_out *out);
/* All that the run's repetition says, as further members; false: it has none. */
bool bench_stats_put_run(struct json_doc *run, struct json_out *out);
/* A table of what reading was like: its title, and one arm. */
void bench_stats_put_title(struct json_out *out);
void bench_stats_put_row(struct json_doc *const *runs, size_t n, const char *name, double *room,
                         struct json_out *out);

/* `bench --arms FILE.json`: runs this program for each arm in turn. */
enum status bench_arms(const struct options *o);

#endif
