/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan (docs/streaming.md): what a run will hold, decided before anything large is
 * allocated, and kept: peak memory stays under plan_total. `strata plan` prints it; `run` and the
 * others use the same code. */
#ifndef STRATA_STREAM_PLAN_H
#define STRATA_STREAM_PLAN_H

#include "base/json.h"
#include "stream/stream.h"

/* ---- what the user says ---- */

/* SIZE (commands.md section 1): "12G", "1.5m", "4096". `option` is what the message calls it. */
bool plan_parse_size(const char *option, const char *text, uint64_t *bytes, struct err *e);

enum plan_arena_kind {
    PLAN_ARENA_AUTO,
    PLAN_ARENA_BYTES,
    PLAN_ARENA_SHARE,
    PLAN_ARENA_MIN,
    PLAN_ARENA_MAX
};

struct plan_arena {
    enum plan_arena_kind kind;
    uint64_t bytes; /* PLAN_ARENA_BYTES */
    double percent; /* PLAN_ARENA_SHARE: of what holds all routed experts */
};

/* --arena SIZE|N%|min|max: min is the least that works, max all that memory gives. */
bool plan_parse_arena(const char *text, struct plan_arena *out, struct err *e);

/* ---- the plan ---- */

struct plan_input {
    /* Bytes that do not depend on the arena. */
    uint64_t trunk;
    uint64_t session_fixed, session_per_token;
    uint64_t scratch; /* for the largest band and tile */
    uint64_t io;      /* threads, queues, rows, tables of the stream (io_memory, stream_*_memory) */
    uint64_t snapshots;
    uint64_t program; /* code, libraries, tokenizer, the file's header */
    uint64_t ctx;     /* tokens that a state is held for */

    const struct stream_config *stream; /* arena_bytes is not read; NULL: no routed experts */
    size_t io_align;

    struct plan_arena arena;
    double knee;     /* share of all experts that is worth having in memory (knee.h); 0: all */
    uint64_t memory; /* --memory, 0 when it was not given */
    uint64_t system; /* plan_system_bytes(); for an arena of a given size plan_system_available() */
};

enum plan_point_kind { PLAN_FLOOR, PLAN_CYCLE, PLAN_KNEE, PLAN_CHOSEN, PLAN_CEILING, PLAN_POINTS };

struct plan_range {
    double least, most;
};

struct plan_point {
    const char *name;
    uint64_t arena, total;
    /* By forecast.h; all 0: not known. */
    struct plan_range wait_ms, tok_s; /* of a decoded token */
    double expected_tok_s;            /* within the range */
};

struct plan {
    uint64_t trunk, session, scratch, io, staging, snapshots, program, arena; /* bytes */
    uint64_t plan_total;                                                      /* their sum */
    uint64_t slots, experts; /* slots of the arena; routed experts of the model, all layers */
    uint64_t ctx;
    uint64_t expert_bytes;
    uint64_t knee;         /* arena from which on more buys almost nothing */
    uint64_t stream_bytes; /* arena and staging: what stream_config.arena_bytes is to be */
    /* Floor: the least arena that works. Cycle: one token's experts of all layers fit. Knee: more
     * buys almost nothing; a forecast from a trace (forecast.h) may move it. Chosen: this plan.
     * Ceiling: all that memory gives, or everything. A point above the ceiling is left out. */
    struct plan_point point[PLAN_POINTS];
    int points;
    bool has_forecast;
};

/* Makes the plan. The arena is what was asked; by default all that memory gives up to the knee.
 * Without --memory, the limit is what the system can give without swapping.
 * Refuses (ERR_MEMORY) what cannot work, with the smallest number that would; and when the context
 * alone is what does not fit, with the largest that would. */
bool plan_compute(const struct plan_input *in, struct plan *out, struct err *e);

/* A table for people; one JSON object (keys of commands.md, `plan --json`), no newline. */
void plan_write_table(const struct plan *p, struct json_out *out);
void plan_write_json(const struct plan *p, struct json_out *out);

/* ---- the system ---- */

/* Bytes that a process started now could use without swapping: memory available, container limits
 * respected (cgroup versions 1 and 2). `root` is put in front of /proc and /sys ("" but for tests).
 * 0 when the system does not say, 1 when there is nothing left. */
uint64_t plan_system_available(const char *root);
/* The same minus a reserve: what a plan takes on its own account. Of the machine's memory an eighth
 * stays free, at most 1 GiB; of a container's one part of 32, at most 256 MiB. */
uint64_t plan_system_bytes(const char *root);

#endif
