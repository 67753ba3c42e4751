/* SPDX-License-Identifier: Apache-2.0 */
/* What `strata bench` of one configuration and of several share. */
#ifndef STRATA_CLI_BENCH_H
#define STRATA_CLI_BENCH_H

#include <stddef.h>

#include "cli/cli.h"

/* Quantile q (0 .. 1) of the values, between neighbours in a straight line; sorts them. 0 of none.
 */
double bench_quantile(double *values, size_t n, double q);

/* `bench --arms FILE.json`: runs this program for each arm in turn. */
enum status bench_arms(const struct options *o);

#endif
