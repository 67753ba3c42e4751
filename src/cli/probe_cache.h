/* SPDX-License-Identifier: Apache-2.0 */
/* What `strata probe` measured, for people, as JSON, and kept for forecasts, one small file for
 * each device (kept.h). */
#ifndef STRATA_CLI_PROBE_CACHE_H
#define STRATA_CLI_PROBE_CACHE_H

#include "base/json.h"
#include "io/probe.h"

/* The object of `probe --json`; without "file" when path is NULL. */
void probe_put_json(const struct probe *p, const char *path, struct json_out *out);
/* Reads such an object back. */
bool probe_read_json(const char *text, size_t bytes, const char *name, struct probe *out,
                     struct err *e);

/* Keeps it for the device that holds `path`; a failure is no error. */
void probe_keep(const struct probe *p, const char *path);
/* What is kept for that device; false: nothing, or nothing of use. */
bool probe_recall(const char *path, struct probe *out);

#endif
