/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a run is expected to be: what the drive gives (`strata probe`), how much the arena holds
 * (the plan), and, best, which experts a run used (a trace). Ranges: the slow end overlaps no read
 * with other work, the fast end all that read-ahead can (docs/streaming.md, "Forecasts"). */
#ifndef STRATA_STREAM_FORECAST_H
#define STRATA_STREAM_FORECAST_H

#include "stream/knee.h"
#include "stream/plan.h"
#include "stream/replay.h"

/* Without a trace, from the share of records that the arena holds. */
struct forecast_shape {
    uint64_t records, slots; /* that there are, that the arena holds */
    uint64_t expert_bytes;   /* of all records */
    int layers, used;        /* that have experts; records that a token uses in each */
};
/* The curve says how many records a token misses. Milliseconds of waiting a token, and tokens a
 * second if the drive's compute_ms is known (above 0). The drive is known. */
void forecast_by_curve(const struct forecast_shape *f, const struct knee_curve *c,
                       const struct replay_drive *d, struct plan_range *wait_ms,
                       struct plan_range *tok_s);

/* The mean of the next `tokens` tokens (at least 1), if the arena holds `held` records now and keeps
 * what they miss until it is full. */
void forecast_filling(const struct forecast_shape *f, uint64_t held, uint64_t tokens,
                      const struct knee_curve *c, const struct replay_drive *d,
                      struct plan_range *wait_ms, struct plan_range *tok_s);

/* From a trace: fills wait_ms and tok_s of the plan's points, and moves the point "knee" (if the
 * compute time is known): the least arena from which on 5 % of all experts more never buy 2 % more
 * tokens a second. `own` says how the run would stream; its arena_bytes are not read. */
bool forecast_by_trace(struct plan *p, const struct trace *t, const struct replay_config *own,
                       const struct replay_drive *d, struct err *e);

#endif
