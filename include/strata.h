/* SPDX-License-Identifier: Apache-2.0 */
/* libstrata: runs mixture-of-experts language models that are larger than memory.
 *
 *     struct strata_error e = {0};
 *     struct strata_model *m = strata_model_open("model.gguf", NULL, &e);   metadata only
 *     strata_model_load(m, &e);                                            memory plan, weights
 *     struct strata_session *s = strata_session_create(m, &e);             one conversation
 *     strata_feed(s, ids, n, NULL, &e);                                    a prompt
 *     while (strata_sample(s, &id, &e) && !strata_token_is_end(m, id))
 *         strata_step(s, &id, 1, NULL, &e);                                the answer
 *
 * Errors. Functions that can fail return false or NULL and fill a strata_error (which may be NULL)
 * with one sentence. An error ends the call, not the object: the next call works, except where a
 * function says otherwise. Nothing is printed and nothing exits.
 * Ownership. Whoever gets an object from a `create`, `open` or `alloc` function frees it with the
 * function named there; text and arrays returned through ** are freed with strata_free. A model
 * outlives its sessions and text streams. What is passed in is copied unless it says otherwise.
 * Threads. One thread at a time uses a model and everything made from it; different models may be
 * used by different threads. Cancel flags may be set from anywhere, signal handlers included.
 * Memory. strata_model_load and strata_session_create allocate everything large, as the plan says;
 * feeding, stepping and sampling allocate nothing. Sizes are in bytes unless the name says else.
 * Results are the same bits whatever the threads, band, tile, window, arena and instruction set. */
#ifndef STRATA_H
#define STRATA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Errors --------------------------------------------------------------------------------- */

enum strata_code {
    STRATA_OK = 0,
    STRATA_USAGE,       /* the caller asked for something that makes no sense */
    STRATA_IO,          /* the system refused, or a read came short */
    STRATA_FORMAT,      /* a file or request breaks its format */
    STRATA_UNSUPPORTED, /* well-formed, but not something this library runs */
    STRATA_MEMORY,      /* an allocation failed, or the plan does not fit */
    STRATA_NUMERIC,     /* NaN, inf or a value out of range in a computation */
    STRATA_INTERRUPTED, /* the cancel flag was set */
};

struct strata_error {
    enum strata_code code;
    char text[1024]; /* one sentence that names file, field and value */
};

/* Frees text and arrays that this library handed out. NULL is fine. */
void strata_free(void *p);

/* ---- Version -------------------------------------------------------------------------------- */

struct strata_version {
    const char *version;  /* "0.1.0" */
    const char *commit;   /* of the source, "unknown" outside a checkout */
    const char *compiler; /* "gcc 12.2.0" */
    const char *kernels;  /* instruction sets built in, "c avx2 avx512" */
    const char *chosen;   /* the one that this machine would use */
    int numerics;         /* raised whenever any output bit changes */
};
void strata_version_get(struct strata_version *out);

/* ---- Opening -------------------------------------------------------------------------------- */

enum strata_kv { STRATA_KV_F16 = 0, STRATA_KV_F32, STRATA_KV_Q8_0 };

/* Guesses of what comes next, which are computed together with what surely does (strata_answer).
 * No result depends on them; with cache-aware routing (moce), where it would, there are none. */
enum strata_draft {
    STRATA_DRAFT_AUTO = 0, /* as LOOKUP */
    STRATA_DRAFT_OFF,
    STRATA_DRAFT_LOOKUP,   /* what followed when the conversation was at the same words before */
    STRATA_DRAFT_MTP,      /* else a draft layer, which the model's file or draft_model has: takes memory */
};

enum strata_choice { STRATA_DEFAULT = 0, STRATA_ON, STRATA_OFF };

enum strata_note_level { STRATA_NOTE = 0, STRATA_DETAIL };

/* How to run a model. All zero is a sensible default. */
struct strata_options {
    uint64_t memory_bytes;   /* whole process; 0: what the system can give without swapping */
    const char *arena;       /* memory for experts: "SIZE", "N%", "min", "max"; NULL: by the plan */
    int threads;             /* 0: one a performance core */
    int ctx;                 /* tokens a session has room for; 0: the model's, at most 32768 */
    enum strata_kv kv;       /* type of keys and values; Q8_0: a byte a value and a half float for 32 */
    bool exact_activations;  /* float32 activations for every weight type (slow) */
    const char *isa;         /* "auto", "c", "avx2", "avx512", ..; NULL: auto */
    int band, tile, window;  /* rows of a prompt together, of one product, of a decode step (1 to 8);
                                0: band as the plan can afford, tile 64, window 8 */
    enum strata_draft draft;
    const char *draft_model; /* a draft layer in a file of its own, for MTP, which AUTO then is; with
                                OFF and LOOKUP it is not opened; NULL: that of the model's file */
    int draft_rows;          /* rows of a window with guesses, as far as there are any; 0: those that
                                measured times and the share of right guesses suggest */
    int sessions;            /* that may exist together; 0: 1 */
    int snapshots;           /* that each session can keep (strata_snapshot); 0: none */
    const char *io;          /* read engine: "uring", "pread", "fake", "sim:rate=..,delay=..";
                                NULL: the best */
    int io_depth, io_urgent; /* reads in flight on a drive, and how many of them are never read-ahead
                                while decoding; 0: 8 and 2 */
    int io_split;            /* pieces that a read is cut into that somebody waits for; 0: as
                                drive_parts suggests, else 1 */
    double drive_gb_s;       /* what the drive gives, for the plan's default; 0: not measured */
    int drive_parts;         /* pieces in which it reads a record of 1.5 MiB fastest, as measured, for the
                                default of io_split; 0: not measured */
    const char *const *replicas; /* copies of the model on other drives, their first parts; the array */
    int n_replicas;              /* must stay until the model is planned or loaded */
    const char *policy;      /* who leaves the arena: "lru", "lfu", "layer"; NULL: lfu */
    const char *read_ahead;  /* "auto", how many ranks of a guess are read, "off"; NULL: auto */
    float ahead_margin;      /* of weight, by which a guess must be above the best that would not be chosen, to be
                                read; 0: it need not */
    bool no_overlap;         /* to measure what it is worth: a layer of a decode step is computed only
                                when all its experts have been read */
    const char *moce;        /* cache-aware routing: a strength, or "auto:X", X the displaced mass in
                                the mean; NULL or "0": exact */
    int moce_keep;           /* best experts that it selects in any case */
    bool prompt_moce;        /* it routes prompts too */
    enum strata_choice shrink; /* the arena gives memory back while the system is short of it; default:
                                  where routing is exact, for elsewhere results depend on it */
    const char *sidecar;     /* experts as `strata_pack` wrote them: its path, "off"; NULL: one beside
                                the model, if it is there */
    const char *popularity;  /* profile of what is used, read at load and written at the end: its path;
                                "auto": beside the model; NULL or "off": none */
    bool explain;            /* memory for strata_explain_begin is planned */
    bool profile;            /* time of every kind of kernel is noted, for strata_profile_get */
    const char *chat_family; /* renderer, overrides the file's template; NULL: by the file */

    /* Notes that are no errors. The sink is one for the process: that of the last model opened. */
    void (*note)(void *callback_ctx, enum strata_note_level level, const char *text);
    /* Bytes of weights read so far, while loading. */
    void (*progress)(void *callback_ctx, uint64_t done, uint64_t all);
    void *callback_ctx;        /* of both */
    const atomic_bool *cancel; /* ends loading with STRATA_INTERRUPTED; NULL: never. Not copied */
};

struct strata_model;

/* Opens the GGUF at `path` (of a split set its first part) and checks its metadata. Reads no
 * weights: tokenizer, rendering and the plan work from here on. `options` NULL: all defaults.
 * Freed with strata_model_free. */
struct strata_model *strata_model_open(const char *path, const struct strata_options *options,
                                       struct strata_error *e);
void strata_model_free(struct strata_model *m);

struct strata_model_info {
    const char *path, *arch;
    int layers, embd, vocab, context; /* context: the length that the model was made for */
    int experts, experts_used;        /* of a layer, of a token */
    uint64_t file_bytes, trunk_bytes, expert_bytes;
};
bool strata_model_info(struct strata_model *m, struct strata_model_info *out,
                       struct strata_error *e);

/* Bytes, but for the counts. */
struct strata_plan {
    uint64_t trunk, session, scratch, io, staging, snapshots, program, arena;
    uint64_t plan_total;     /* their sum: peak memory stays under it */
    uint64_t slots, experts; /* records that the arena holds; records in all */
    int ctx, band, tile, window, threads;
    int points; /* the arena's sizes of interest, those that memory allows */
    struct {
        const char *name; /* "floor", "cycle", "knee", "chosen", "ceiling" */
        uint64_t arena, total;
    } point[8];
};

/* The memory plan: computed from metadata, nothing large is allocated. Refuses what cannot work
 * with the smallest number that would. */
bool strata_plan_get(struct strata_model *m, struct strata_plan *out, struct strata_error *e);
/* As a table for people or as one JSON object (keys: `strata plan --json`), without a final line
 * end. Freed with strata_free. */
char *strata_plan_text(struct strata_model *m, bool json, struct strata_error *e);

struct strata_pack_options {
    const char *path; /* NULL: STEM.strata-pack beside the model */
    bool checksums;   /* of every record, checked when they are read */
    bool verify;      /* compare every byte with the model afterwards */
    bool only_verify; /* an existing one, without writing */
};
/* Writes the sidecar: every expert in one piece, so that one read brings it. One that was interrupted
 * is gone on with. Progress and cancel are those of the model's options; no weights need be loaded. */
bool strata_pack(struct strata_model *m, const struct strata_pack_options *o, struct strata_error *e);

/* Allocates by the plan and begins to read the trunk. Once; after a failure only freeing is useful.
 * Sessions can be used at once: their first pass waits for each layer's weights, so that it is
 * computed while the rest is read. If reading fails, that pass and all after it give the error. */
bool strata_model_load(struct strata_model *m, struct strata_error *e);
/* Returns when all of the trunk is read, for those who measure or who want its errors now. */
bool strata_model_wait(struct strata_model *m, struct strata_error *e);

/* ---- Words and ids -------------------------------------------------------------------------- */

enum strata_special {
    STRATA_SPECIAL_USER = 0, /* user-defined tokens such as <think> are recognised in the text */
    STRATA_SPECIAL_ALL,      /* control tokens too: only for text that no user wrote */
    STRATA_SPECIAL_NONE,
};

/* Text (any bytes; what is not UTF-8 becomes U+FFFD) to ids. *ids: strata_free. */
bool strata_encode(struct strata_model *m, const char *text, size_t bytes, enum strata_special mode,
                   int32_t **ids, size_t *n, struct strata_error *e);
/* The bytes of a token, control tokens as their text; *text is not NUL-terminated and belongs to
 * the model. An id outside the vocabulary is an error. */
bool strata_token_bytes(struct strata_model *m, int32_t id, const char **text, size_t *bytes,
                        struct strata_error *e);
/* Whether the token ends an answer. */
bool strata_token_is_end(struct strata_model *m, int32_t id);
/* Ids of the tokenizer: 0 .. size - 1; 0 when the file has no tokenizer that this library knows. */
int strata_vocabulary_size(struct strata_model *m);

/* ---- Chat ----------------------------------------------------------------------------------- */

struct strata_render_options {
    enum strata_choice think, preserve_thinking; /* default: the template's */
    const char *effort;                          /* reasoning effort, NULL: the template's */
    bool no_generation_prompt;
};

struct strata_prompt; /* a rendered conversation */

/* Renders `messages` (a JSON array as in the chat API) with `tools` (a JSON array or NULL).
 * Freed with strata_prompt_free. */
struct strata_prompt *strata_render(struct strata_model *m, const char *messages, const char *tools,
                                    const struct strata_render_options *options,
                                    struct strata_error *e);
void strata_prompt_free(struct strata_prompt *p);
const char *strata_prompt_text(const struct strata_prompt *p, size_t *bytes); /* NUL-terminated */
/* It ends with an open <think>: the answer begins with reasoning. */
bool strata_prompt_opens_thinking(const struct strata_prompt *p);
/* Its ids: control tokens count only outside of what users wrote. *ids: strata_free. */
bool strata_prompt_ids(struct strata_model *m, const struct strata_prompt *p, int32_t **ids,
                       size_t *n, struct strata_error *e);
/* Name of the renderer in use ("qwen3.8"); belongs to the library. */
const char *strata_chat_family(struct strata_model *m, struct strata_error *e);

/* ---- Sessions ------------------------------------------------------------------------------- */

struct strata_session;

/* An empty conversation of a loaded model. Freed with strata_session_free, before the model. */
struct strata_session *strata_session_create(struct strata_model *m, struct strata_error *e);
void strata_session_free(struct strata_session *s);
bool strata_session_reset(struct strata_session *s, struct strata_error *e);

enum strata_element { STRATA_F32, STRATA_I32, STRATA_BOOL };

/* What a pass over tokens reports, and what can stop it. All zero: nothing. Not copied. */
struct strata_pass {
    void *ctx; /* of all functions */
    /* Logits of every row: host [rows][vocab], of ids[first] .. of this call. False: stop with
     * STRATA_INTERRUPTED. Without it only the last row's are computed (strata_logits). */
    bool (*logits)(void *ctx, size_t first, size_t rows, const float *logits);
    /* Tokens done of all, and the layer (of `layers`) that the next ones have reached. */
    void (*progress)(void *ctx, size_t done, size_t all, int layer, int layers);
    /* Intermediates, tile by tile: `rows` more rows of dims[0] * .. values; 0 rows: a whole array. */
    void (*dump)(void *ctx, const char *name, enum strata_element type, const void *data, int rows,
                 int n_dims, const int *dims);
    const atomic_bool *cancel; /* ends the pass with STRATA_INTERRUPTED */
};

/* Feeds n ids as a prompt, in bands. More than fit into the context is an error before any work.
 * After an error or a cancel the session is as after its last finished band. */
bool strata_feed(struct strata_session *s, const int32_t *ids, size_t n,
                 const struct strata_pass *pass, struct strata_error *e);
/* Feeds 1 to `window` ids as one decode step. After an error the session is as before. */
bool strata_step(struct strata_session *s, const int32_t *ids, int n,
                 const struct strata_pass *pass, struct strata_error *e);
/* Makes the session hold exactly these n >= 1 ids: what it has in common with them is kept, as far
 * as it can go back (see strata_rewind), the rest is fed. *kept, unless NULL: ids not fed again. */
bool strata_feed_whole(struct strata_session *s, const int32_t *ids, size_t n, size_t *kept,
                       const struct strata_pass *pass, struct strata_error *e);

/* Logits of the last row, float32 [vocab], valid until the next call with this session; NULL when
 * there are none (an empty session). */
const float *strata_logits(const struct strata_session *s);
int strata_position(const struct strata_session *s);        /* tokens so far */
int strata_context(const struct strata_session *s);         /* tokens it has room for */
const int32_t *strata_ids(const struct strata_session *s);  /* all so far; valid as logits are */

/* Remembers this position, so that a rewind to it needs no work. A session keeps the last
 * options.snapshots of them. */
bool strata_snapshot(struct strata_session *s, struct strata_error *e);
/* Back to an earlier position: to the nearest snapshot at or before it, then the ids from there on
 * are fed again. The same bits as if the session had never been further. */
bool strata_rewind(struct strata_session *s, int position, const struct strata_pass *pass,
                   struct strata_error *e);

/* ---- Sampling ------------------------------------------------------------------------------- */

struct strata_sampling {
    float temp;  /* 0: greedy */
    int top_k;   /* 0: off */
    float top_p, min_p;
    float repetition_penalty; /* over the last 64 tokens, prompt included; 1: off */
    float presence_penalty, frequency_penalty; /* over the answer; 0: off */
    uint64_t seed;
};

/* The file's suggestions, else temperature 0.7, top-k 20, top-p 0.9; a fresh seed below 2^32. */
bool strata_sampling_defaults(struct strata_model *m, struct strata_sampling *out,
                              struct strata_error *e);
/* Sets how this session samples, and begins an answer at its position. */
bool strata_answer_begin(struct strata_session *s, const struct strata_sampling *p,
                         struct strata_error *e);
/* How this session samples: as set, or as a loaded state said. False: neither. */
bool strata_sampling_get(const struct strata_session *s, struct strata_sampling *out);
/* Chooses the next id from strata_logits; does not feed it. The draw depends on the seed and the
 * position alone. After strata_answer_begin, or when a loaded state said how. */
bool strata_sample(struct strata_session *s, int32_t *id, struct strata_error *e);

/* Takes an id that was chosen. False: it is not fed, and strata_answer returns. It must not use the
 * session, whose position may be behind. */
typedef bool strata_take(void *ctx, int32_t id);

/* Goes on with an answer: chooses an id as strata_sample does, hands it to `take`, feeds it as
 * strata_step does, and so on until `take` returns false or the context is full (the last id is not
 * fed then). The same ids, logits and state as by those two, but with guesses (options.draft) several
 * ids share a pass. `most`: so many ids will be wanted at most. Of `pass` only `cancel` is used.
 * After an error the session is as before the step that failed. */
bool strata_answer(struct strata_session *s, size_t most, strata_take *take, void *ctx,
                   const struct strata_pass *pass, struct strata_error *e);

/* ---- The text of an answer ------------------------------------------------------------------ */

struct strata_text; /* ids to whole characters, with stop strings */

/* Freed with strata_text_free. */
struct strata_text *strata_text_create(struct strata_model *m, const char *const *stops,
                                       size_t n_stops, struct strata_error *e);
void strata_text_free(struct strata_text *t);
/* Takes a token (control tokens give nothing). *text is what can be shown now, whole characters,
 * valid until the next call; *stopped: a stop string was completed, nothing more comes. */
bool strata_text_push(struct strata_text *t, int32_t id, const char **text, size_t *bytes,
                      bool *stopped, struct strata_error *e);
/* The end of the answer: text that was held back. */
bool strata_text_finish(struct strata_text *t, const char **text, size_t *bytes,
                        struct strata_error *e);

/* ---- Saved conversations -------------------------------------------------------------------- */

/* Messages of a chat, kept with the session and saved with it; any text, NULL for none. */
bool strata_messages_set(struct strata_session *s, const char *json, struct strata_error *e);
const char *strata_messages(const struct strata_session *s); /* NULL: none */

/* Writes the whole session to a file of mode 0600, atomically (docs/formats.md, STRSES01). */
bool strata_save(struct strata_session *s, const char *path, struct strata_error *e);
/* Reads it. Another model is refused; the same model with other bits (a newer program, another KV
 * type) is rebuilt by feeding the ids again, with a note. A file that is refused for its header
 * leaves the session alone; after a failure further on the session is empty. */
bool strata_load(struct strata_session *s, const char *path, const struct strata_pass *pass,
                 struct strata_error *e);

/* ---- Statistics ----------------------------------------------------------------------------- */

/* What reading was like in prompts, or in answers. Records that a turn (a layer of a window or band)
 * needs are hits or misses; of the misses, those `ahead_useful` were read before their turn, those
 * `ahead_late` were under way, and the turn read the others itself. */
struct strata_reading {
    uint64_t hits, misses;
    uint64_t ahead_useful, ahead_late, ahead_wasted, ahead_cancelled;
    uint64_t read_bytes;
    double ahead_share;      /* of the misses: useful or late; 0 of none */
    double wait_s;           /* waited for the drive */
    double drive_busy_s;     /* in which a record's read was under way */
    double drive_busy_share; /* of the time in which something wanted was unread, that in which a
                                read was under way; 1: nothing was wanted */
};

/* Since loading or strata_stats_reset. Names as in `--stats`, those of `prefill` and `decode` with
 * that word before them. */
struct strata_stats {
    uint64_t prefill_tokens, decode_tokens;
    double prefill_s, decode_s, load_s;
    double prefill_tok_s, decode_tok_s; /* 0: nothing measured */
    uint64_t drafted, accepted; /* guesses that were computed, that were right */
    uint64_t hits, misses;
    uint64_t ahead_useful, ahead_late, ahead_wasted, ahead_cancelled;
    uint64_t bytes_read, bytes_urgent, bytes_ahead, bytes_rows;
    double drive_busy_s;     /* as in struct strata_reading, like the share */
    double drive_busy_gb_s;  /* records' bytes by that time, 10^9 a second */
    double drive_busy_share;
    uint64_t staging_empty;  /* passes at whose start no guess was staged */
    uint64_t row_cache_hits; /* rows of n-gram tables that were kept from before */
    uint64_t major_faults;   /* pages that the system had taken away */
    double wait_s, wait_ms_per_token, moce_displaced; /* waited for the drive */
    struct strata_reading prefill, decode; /* sum up to the figures above */
    uint64_t peak_rss, plan_total;
};
void strata_stats_get(const struct strata_model *m, struct strata_stats *out);
void strata_stats_reset(struct strata_model *m);

/* Where the time of passes went, of a model that was opened with `profile`. The times of all rows
 * and of `idle` add up to that of the passes: a row's is the time of all threads together divided by
 * their number. */
enum { STRATA_PROFILE_ROWS = 160 };
struct strata_profile_row {
    char kind[32];    /* "attention"; of matrices their name without the layer, "attn_qkv" */
    const char *type; /* of a matrix's numbers; NULL: no matrix */
    double ms;        /* a token */
    double bytes;     /* weights, keys, values and states read and written, a token; 0: not counted */
    double gb_s;      /* the same in its own time, 10^9 bytes a second */
};
struct strata_profile {
    uint64_t tokens, passes;
    int threads, layers;
    double ms;           /* of passes, a token */
    double barriers;     /* steps that all threads begin and end together, a pass */
    double idle_ms;      /* a token: threads without work while another has some */
    int n_rows;          /* with time, the largest first */
    struct strata_profile_row row[STRATA_PROFILE_ROWS];
};
/* Of prompts or of answers, since loading or strata_stats_reset. False: there is nothing. */
bool strata_profile_get(const struct strata_model *m, bool of_prompts, struct strata_profile *out);
/* What so many threads read from memory, 10^9 bytes a second; takes 64 MiB a thread for it, for a
 * moment, but at most `most_bytes` in all (with little of it caches are measured too). 0: there is no
 * memory. */
double strata_memory_speed(int threads, uint64_t most_bytes);

/* Writes down from now on which experts are selected (docs/formats.md, "Trace"), for
 * `strata replay`, with what the routers of the next layer, or (guess_layers 2) of the next two, say
 * beforehand. The model is loaded. */
bool strata_trace_begin(struct strata_model *m, const char *path, int guess_layers,
                        struct strata_error *e);
/* The end of the trace; without one it does nothing. What failed meanwhile is said here. */
bool strata_trace_end(struct strata_model *m, struct strata_error *e);
/* Notes from now on what every wait for the drive was for. The model was opened with `explain` and is
 * loaded. */
bool strata_explain_begin(struct strata_model *m, struct strata_error *e);
/* What was waited for so far, by reason, and the slowest tokens in detail: lines for people. The
 * times add up to all that was waited. Freed with strata_free. */
char *strata_explain_text(struct strata_model *m, struct strata_error *e);
/* One JSON object. NULL: no memory. Freed with strata_free. */
char *strata_stats_json(const struct strata_stats *s);

#endif
