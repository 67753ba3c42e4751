/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that outlive a run, in $XDG_CACHE_HOME/strata (default ~/.cache/strata): what was
 * measured of drives (probe_cache.h) and of models. They hold no path and no text. */
#ifndef STRATA_CLI_KEPT_H
#define STRATA_CLI_KEPT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

/* Puts `text` in the place of what is kept as `name`; a failure is no error. */
void kept_write(const char *name, const struct json_out *text);
/* What is kept as `name`, zero-terminated, and its length; NULL: nothing, or more than 64 KiB.
 * Free with mem_free. */
char *kept_read(const char *name, size_t *bytes);

struct strata_model;

/* Whether that can be the time of a token, for files say anything. */
bool kept_is_compute(double ms);
/* The milliseconds of a decoded token besides waiting for the drive, for this model with this
 * machine's instruction set, threads and form of the cache. */
void kept_write_compute(struct strata_model *m, double ms);
/* 0: not known. */
double kept_read_compute(struct strata_model *m);

#endif
