/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a trace again without the model: the very planner of runs, with an engine that reads
 * nothing. Hits and misses are a function of the history of turns, so a replay of a run's own
 * configuration must count what the run counted; only then may it say what others would have given.
 *
 * Time is virtual (io.h): the same lanes, guard and waits as in runs, on a drive like the one that
 * `strata probe` measured, while work takes its part of each token's time. */
#ifndef STRATA_STREAM_REPLAY_H
#define STRATA_STREAM_REPLAY_H

#include <stdatomic.h>

#include "io/io.h"
#include "stream/stream.h"
#include "stream/trace.h"

/* For how long threads without work stay awake (base/pool.c), and until they are at it again. */
#define REPLAY_AWAKE_US 60
#define REPLAY_WAKE_NS 50000

#define REPLAY_COMPUTE_MS_MOST 1e6

struct replay_config {
    bool is_bound; /* the clairvoyant bound in place of a policy; nothing is read ahead */
    enum policy_kind policy;
    uint64_t arena_bytes; /* staging included */
    int window_rows;
    struct stream_ahead ahead; /* of the router's guesses two layers ahead only windows' are */
    bool no_look_ahead;
    float moce; /* strength; 0: what the trace selected */
    int moce_keep;
    /* How records are read; 0: as the trace says, which may say nothing. */
    int parts, split, io_depth, io_urgent;
    const atomic_bool *cancel; /* ends it with ERR_INTERRUPTED, within a turn too; NULL: never */
};

static inline bool replay_is_cancelled(const atomic_bool *cancel, struct err *e)
{
    return cancel && atomic_load(cancel) && !err_set(e, ERR_INTERRUPTED, "interrupted");
}

struct replay_drive {
    const struct io_drive *drive; /* NULL: reads cost nothing */
    double compute_ms;            /* of a decoded token besides waiting, 0 ..
                                     REPLAY_COMPUTE_MS_MOST; 0: not known */
    double expert_share;          /* of that, in routed experts; 0: as the trace says */
};

struct replay_result {
    uint64_t slots, records;       /* that the arena holds, that there are */
    uint64_t hits, misses;         /* distinct records a turn */
    uint64_t useful, late, wasted; /* of what was read ahead */
    /* In windows, if there are any. */
    uint64_t tokens;
    double hits_per_token, misses_per_token, useful_per_token, late_per_token, wasted_per_token;
    double wait_ms_per_token;
    double tok_s; /* of decoding; 0: not known */
};

/* The configuration that the run itself had. False: the trace does not say. */
bool replay_own_config(const struct trace *t, struct replay_config *out);
/* An arena (staging included) that holds this share of all records, 0 .. 1, and at least what
 * works. */
uint64_t replay_arena_bytes(const struct trace *t, int window_rows, double share);
/* Rows of the largest window, 1 if there is none. */
int replay_window_rows(const struct trace *t);

/* Whether the trace has the guesses that reading ahead so would need. */
bool replay_has_guesses(const struct trace *t, const struct replay_config *c);
/* ERR_USAGE when the trace lacks the guesses that are asked for or a time is no time of a token. */
bool replay_run(const struct trace *t, const struct replay_config *c, const struct replay_drive *d,
                struct replay_result *out, struct err *e);
/* What the run counted. False: it did not. */
bool replay_live(const struct trace *t, uint64_t *hits, uint64_t *misses);

/* ---- bound.c ---- */

/* Hits and misses when the record is evicted whose next use is farthest, the new one included: no
 * policy can have more hits with as many slots. slots: [classes]. */
bool replay_bound(const struct trace *t, const int *slots, int classes, const int *class_of_layer,
                  const atomic_bool *cancel, struct replay_result *out, struct err *e);

#endif
