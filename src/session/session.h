/* SPDX-License-Identifier: Apache-2.0 */
/* What strata_model and strata_session are inside. The picture: a model owns one of each part of
 * the machine (file, network, workers, backend, reads, arena); a session owns one model_state and
 * the means to go back.
 *
 * A session's state can be behind its ids: after a failed step the last snapshot is restored at
 * once, and what is missing is fed again before the next use (session_catch_up). So the ids are the
 * truth, and `state->position <= n_ids` always. */
#ifndef STRATA_SESSION_SESSION_H
#define STRATA_SESSION_SESSION_H

#include "base/clock.h"
#include "base/pool.h"
#include "cpu/isa.h"
#include "gguf/gguf.h"
#include "io/io.h"
#include "model/model.h"
#include "model/state.h"
#include "session/gate.h"
#include "strata.h"
#include "stream/knee.h"
#include "stream/plan.h"
#include "stream/stream.h"
#include "text/bpe.h"
#include "text/sample.h"

/* ---- Errors (error.c) ----------------------------------------------------------------------- */

/* Copies `e` to `out` (which may be NULL). Returns whether `e` holds no error. */
bool session_report(struct strata_error *out, const struct err *e);

/* ---- Model (engine.c, planning.c, wire.c, words.c)
 * ------------------------------------------------------- */

struct session_counters {
    uint64_t prefill_tokens, decode_tokens;
    int64_t prefill_us, decode_us;
    uint64_t drafted, accepted; /* guesses that were fed, that were right */
    struct stream_stats prefill; /* what of the stream's figures belongs to prompts */
};

struct strata_model {
    char *path, *arena, *isa_name, *io_engine, *chat_family, *sidecar; /* copies; all but path may be NULL */
    char *draft_path; /* a copy; NULL: no file of a draft layer is used */
    char *policy, *read_ahead, *moce, *popularity;           /* likewise */
    struct strata_options options;                           /* its texts point to the copies */

    struct gguf_file *file;
    struct tokenizer *words; /* NULL until first needed; likewise the network */
    struct model *network;
    size_t metadata_bytes, words_bytes, network_bytes; /* heap that the three take */

    /* After planning. */
    bool is_planned;
    struct plan plan;
    struct knee_curve knee; /* what is expected to be missed, for every size of the arena */
    int ctx, band, tile, window; /* as they are used */
    int most_rows;               /* of a pass: the larger of band and window */
    int draft_rows;              /* most rows of a window with guesses; 0: there are none */
    struct pool *pool;
    struct backend *backend;
    enum cpu_isa isa; /* of the backend */
    struct io *io;
    char **copy_paths; /* [n_copy_paths] parts of all replicas; NULL: none */
    int n_copy_paths;

    /* Replaces pread(2) of the read engine (io/io.h); set between open and load by tests. */
    ssize_t (*pread)(void *ctx, int fd, void *to, size_t n, off_t offset);
    void *pread_ctx;
    const struct io_drive *drive; /* of reads in virtual time (io/io.h), likewise */

    /* After loading. */
    bool load_was_tried, is_loaded;
    int64_t load_us;  /* without what was waited for the trunk */
    bool is_fill_due; /* popular experts are still to be read */
    uint8_t fingerprint[16];
    struct stream *stream;    /* NULL: no routed experts */
    struct stream_rows *rows; /* NULL: no table that is read by rows */
    struct expert_source experts;
    struct row_source row_source;

    struct tracing *tracing; /* NULL: none */
    struct explaining *explaining; /* NULL: waits are not explained */
    struct packing *packing; /* NULL: no sidecar is used */
    struct laps *laps;       /* NULL: times are not noted */
    uint64_t profile_tokens;  /* that the popularity profile counted when it was read */

    int sessions; /* that exist */
    struct session_counters counters;
    struct stream_stats stream_before; /* when the statistics were last reset */
};

/* The tokenizer, loaded when first asked for. NULL and an error when the file has none that is
 * known. */
struct tokenizer *engine_words(struct strata_model *m, struct err *e);
/* The network's metadata, read when first asked for. */
struct model *engine_network(struct strata_model *m, struct err *e);

/* Microseconds that were waited for the trunk. */
static inline int64_t session_trunk_us(const struct strata_model *m)
{
    return m->network ? (int64_t)model_waited_us(m->network) : 0;
}

/* A clock that stands still meanwhile: that time belongs to loading, not to the tokens that wait. */
static inline int64_t session_clock_us(const struct strata_model *m)
{
    return clock_us() - session_trunk_us(m);
}

/* Reads what the popularity profile says, once; when the trunk is there. */
void streaming_fill(struct strata_model *m);

/* What one session takes beside its model_state: ids, logits, snapshots (engine.c counts them with
 * the plan's `session` and `snapshots`, session.c allocates them). */
size_t session_host_bytes(const struct strata_model *m, int ctx);
size_t session_snapshot_bytes(const struct strata_model *m);

/* The interfaces of model/moe.h, wired to a stream and its rows. */
void wire_experts(struct expert_source *out, struct stream *s);
void wire_rows(struct row_source *out, struct stream_rows *r);

/* ---- Statistics (stats.c) --------------------------------------------------------------------- */

/* What has been read so far. */
struct stream_stats stats_of_reads(const struct strata_model *m);
/* What was read since `before` was read for a prompt. */
void stats_note_prompt(struct strata_model *m, const struct stream_stats *before);

/* ---- Tracing (tracing.c) --------------------------------------------------------------------- */

/* A prompt of so many rows begins; 0: it is over. Without a trace it does nothing. */
void tracing_prompt(struct strata_model *m, int rows);
/* The one way to the network: model_forward, and what it selects is written down if a trace is. */
bool tracing_forward(struct strata_model *m, struct model_state *state, const struct batch *batch,
                     struct err *e);

/* ---- Profile (profiling.c) -------------------------------------------------------------------- */

/* If the options ask for it; the workers and the backend are there. */
bool profiling_start(struct strata_model *m, struct err *e);
/* Around every pass of the network. */
void profiling_pass_begins(struct strata_model *m, bool is_band);
void profiling_pass_ends(struct strata_model *m);

/* ---- Forecast (forecasting.c) ----------------------------------------------------------------- */

struct io_drive;
struct replay_drive;
struct trace;
/* Makes the plan and fills what its points let expect; `t` may be NULL. Without a
 * drive nothing. A trace must be one of this model. */
bool session_forecast(struct strata_model *m, const struct trace *t, const struct replay_drive *d,
                      struct err *e);

/* What the time of a token besides waiting depends on: fingerprint of the model, instruction set,
 * threads, form of the cache; fit for the name of a file. Makes the plan. */
#define SESSION_SETUP_BYTES 80
bool session_setup_name(struct strata_model *m, char *out, size_t room, struct err *e);
/* That time in the run so far, in ms; 0: too few tokens were decoded. */
double session_compute_ms(const struct strata_model *m);

/* What was to be expected of a run's answers. */
#define OUTLOOK_TOKENS_LEAST 16
struct session_outlook {
    bool is_known;   /* else nothing: no token was decoded */
    bool reads;      /* experts from the drive; else all are in memory, or it takes no time */
    bool by_trunk;   /* the drive gives what it gave for the trunk */
    bool by_profile; /* routing is as before, else as that of other models */
    bool by_itself;  /* a token's time besides waiting is the run's own */
    struct plan_range wait_ms, tok_s;
};
/* `probed`: what is known of the drive, or NULL. compute_ms: the time of a token besides waiting in
 * runs before, or 0. */
bool session_forecast_run(struct strata_model *m, const struct io_drive *probed, double compute_ms,
                          struct session_outlook *out, struct err *e);

/* ---- Explaining (explaining.c) --------------------------------------------------------------- */

size_t explaining_bytes(void); /* that it takes, for the plan */
/* Around every pass of the network: `rows` tokens from `position`. */
void explaining_pass_begins(struct strata_model *m);
void explaining_pass_ends(struct strata_model *m, int position, int rows, bool is_band);
void explaining_free(struct strata_model *m);

/* ---- Session (session.c, rewind.c, saved.c, sampling.c) -------------------------------------- */

struct session_snapshot {
    int position; /* -1: empty */
    bool has_logits;
    float *logits;  /* [vocab] */
    void *fixed;    /* model_state_fixed_bytes */
    uint64_t order; /* larger: taken later */
};

struct strata_session {
    struct strata_model *model;
    struct model_state *state;
    int ctx, vocab;

    int n_ids;           /* tokens of the conversation */
    int32_t *ids;        /* [ctx] */
    float *logits;       /* [vocab] of the last row, if logits_position is n_ids */
    int logits_position; /* -1: none */

    int n_snapshots; /* 1 + options.snapshots; the first one is for recovery */
    struct session_snapshot *snapshots;
    uint64_t snapshots_taken;

    bool has_sampling;
    struct sampling sampling;
    int answer_start; /* position at which the answer began */
    struct sampler *sampler;

    char *messages; /* NULL: none */

    struct draft_gate gate;
    double guess_us; /* smoothed time of one guess of the draft layer; 0: not known */
};

/* Feeds ids[state->position .. end - 1] in bands, each after a snapshot for recovery; afterwards
 * n_ids is at least state->position. After an error the state is as after its last whole band.
 * `first`: where pass->logits begins to count. */
bool session_run_bands(struct strata_session *s, int end, int first, enum logits_wanted wanted,
                       const struct strata_pass *pass, struct err *e);
/* Feeds again what a failure has left behind. */
bool session_catch_up(struct strata_session *s, const struct strata_pass *pass, struct err *e);
/* Empties the session but for its messages and sampling. */
bool session_empty(struct strata_session *s, struct err *e);
/* Checks that ids are of the vocabulary and that n more fit. */
bool session_check_ids(const struct strata_session *s, const int32_t *ids, size_t n, int position,
                       struct err *e);
/* Takes the snapshot for recovery, or one of the user's. */
bool session_take(struct strata_session *s, struct session_snapshot *to, struct err *e);
/* Restores the latest snapshot at or before `position`, else empties the state. n_ids stays. */
bool session_restore(struct strata_session *s, int position, struct err *e);
/* Forgets snapshots beyond a position: the ids there are about to change. */
void session_forget_beyond(struct strata_session *s, int position);
/* While *cancel is true, nothing waits for reads any more. NULL: never. */
void session_heed(struct strata_model *m, const _Atomic bool *cancel);
/* A pass of the network, whose waits for reads its `cancel` ends too. */
bool session_forward(struct strata_session *s, const struct batch *batch, struct err *e);
/* After it, the draft layer, if there is one, over its first `rows`: see model_draft_follow. */
void session_follow(struct strata_session *s, const struct batch *batch, int rows, bool fills);
/* Before a decode step: takes a snapshot for recovery when the last one is old. */
bool session_before_step(struct strata_session *s, struct err *e);
/* A decode step of ids[n_ids .. n_ids + n - 1]; the state is level with the ids. */
bool session_step(struct strata_session *s, int n, const struct strata_pass *pass, struct err *e);
bool session_is_cancelled(const struct strata_pass *pass, struct err *e);
/* Whether the session has logits and sampling to choose with. */
bool session_can_choose(const struct strata_session *s, struct err *e);
/* Chooses what follows the first n of the ids. */
bool session_choose(struct strata_session *s, const float *logits, int n, int32_t *id,
                    struct err *e);

#endif
