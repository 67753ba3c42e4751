/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a run in words. */
#ifndef STRATA_CLI_REPORT_H
#define STRATA_CLI_REPORT_H

#include "base/json.h"
#include "strata.h"

struct session_outlook;

/* One line for people: speed, hits and misses, bytes read, waiting, memory against the plan, and
 * what was forecast and the seed where they are not NULL. The answer had `answered` tokens: one more
 * than were decoded when its last was not fed any more. No line break at its end. */
void report_line(const struct strata_stats *s, uint64_t answered, const uint64_t *seed,
                 const struct session_outlook *outlook, struct json_out *out);
/* The keys of `--stats` without braces, for an object that has others too. */
void report_keys(const struct strata_stats *s, struct json_out *out);
/* --stats FILE */
bool report_file(const char *path, const struct strata_stats *s, struct strata_error *e);
/* What was to be expected of the answer's speed, by what is known of drive, routing and machine
 * (session.h). False: there is nothing to tell. Keeps the time of a token besides waiting
 * for the plans and forecasts of later runs. `path` is the model's. */
bool report_outlook(struct strata_model *m, const char *path, struct session_outlook *out);
/* As the key `forecast` behind others. */
void report_outlook_keys(const struct session_outlook *o, struct json_out *out);
/* --explain: what was waited for, on stderr. */
bool report_waits(struct strata_model *m, struct strata_error *e);

#endif
