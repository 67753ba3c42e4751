/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a stream share: slots, turns, and which file owns what.
 *
 *     create.c   a stream from its configuration; sizes; reports
 *     slots.c    slots and reads: taking, dropping, promoting
 *     victims.c  who gets a place in the cache, and who leaves it
 *     turn.c     begin, next, end
 *     ahead.c    read-ahead in windows: guesses, what they were worth, the guard
 *     prompt.c   bands: places that a prompt borrows, look-ahead, what stays behind
 *     fill.c     records read before anybody asks: popularity, hot lists
 *     moce.c     the router's bonus for residents
 *     resize.c   slots given back to the system and taken again
 *
 * The states of a slot:
 *
 *     FREE -------- turn: a miss ------------> RESIDENT --- victim --> FREE
 *       |                                         ^
 *       +--- guess, popularity --> STAGED --------+ selected
 *       |                            |  +---> PASSING --- handed out --> FREE   (bands only)
 *       |                            +--- not selected ------> FREE
 *       +--- the system is short of memory ---> GONE --- taken again --> FREE
 *
 * A slot that is given up while the drive writes into it is DROPPED and becomes FREE when that
 * ends.
 *
 * A record is in at most one slot; `home` says in which. Only RESIDENT counts: residents, their
 * order and their number are the logical state, a function of the history of calls alone. Which of
 * the slots a resident lies in, and all the other states, may depend on time; nothing logical asks
 * for them. A class has `capacity` places for residents and at least `staging` slots more, so a
 * place never lacks a slot for longer than one read takes.
 *
 * Threads: all state here belongs to the thread that drives the stream. Bytes that a read brought
 * are made visible by the lock of the completion. */
#ifndef STRATA_STREAM_INNER_H
#define STRATA_STREAM_INNER_H

#include <assert.h>

#include "stream/arena.h"
#include "stream/clearing.h"
#include "stream/policy.h"
#include "stream/pressure.h"
#include "stream/stream.h"

#define MOST_RECORDS (1 << 24) /* slot numbers fit in the 24 low bits of a sorting key */
#define PIECES_MOST (STREAM_PARTS * STREAM_SPLIT_MOST) /* reads of one record */
#define STREAM_TOKENS_MOST (1 << 20) /* counted before the counts are halved, so that they age */
#define NO_RANK 0xff                 /* of an expert that was not guessed */
#define RANK_RESIDENT 0x80           /* it was resident when it was guessed */
#define RANK_READ 0x40               /* its reading was begun */

enum slot_role { SLOT_FREE, SLOT_RESIDENT, SLOT_STAGED, SLOT_PASSING, SLOT_DROPPED, SLOT_GONE };

struct slot {
    int32_t layer, expert;
    uint8_t class_index, role;
    uint8_t reads_left; /* queued or in flight */
    bool is_pinned;     /* wanted by the turn that is under way: no victim */
    bool is_lost;   /* a read failed or was cancelled: the bytes are not, or will not be, whole */
    bool is_new;    /* not handed out since it was read */
    bool is_earned; /* resident: a window has selected it; else it is a guest (victims.c) */
    bool is_filled; /* staged: by fill.c, not by a guess */
    bool was_ahead; /* its reads were started by a guess or a filling */
    uint32_t shift[STREAM_PARTS]; /* where the part begins in its aligned superset */
    uint32_t sweep, rows;         /* guests: the last sweep that wanted it, and by how many rows */
    int32_t older, newer;         /* staged: its list; -1 at the ends */
    uint64_t until_turn;          /* staged by a guess: dropped after this turn */
    uint64_t used;       /* resident: number of the use that was its last; filled: its worth; both
                          * order hot lists */
    uint64_t first_byte; /* in the arena */
};

static inline bool slot_is_whole(const struct slot *t)
{
    return !t->reads_left && !t->is_lost;
}

struct slot_list {
    int32_t oldest, newest;
};

/* The slots of a class. */
struct pool {
    int capacity;  /* places for residents now: class.slots - borrowed - gone */
    int residents; /* places that are taken */
    int guests;    /* of the residents */
    int borrowed;  /* places that a prompt has made into staging */
    int gone;
    int staged, passing;              /* slots; staged: by guesses alone */
    int free_count;                   /* free_slot[class.first_slot ..] */
    struct slot_list guessed, filled; /* staged; filled: the least popular is the oldest */
};

struct want {
    int32_t expert;
    uint32_t rows;
    int32_t slot; /* -1: not yet */
    bool is_home; /* a miss that gets a place in the cache */
    uint8_t why;  /* enum stream_why, of a miss */
    uint32_t detail;
};

struct turn {
    bool is_active, is_band, has_failed;
    int layer, class_index;
    int wanted;        /* distinct experts */
    int unread;        /* want[unread..] may hold misses that have no slot yet */
    int handed, ready; /* ready_slot[handed..ready-1] may be handed out, those before it were */
    int lent;          /* passing slots that the last call handed out: lent_slot[0..lent-1] */
    struct err error;
};

/* What a band's look-ahead still has to read: experts of one layer, most tokens first. */
struct look_ahead {
    int layer, n, next;
};

/* What guesses of a layer were worth, by rank: of `tried` that were not resident `won` were
 * selected. */
struct guess_record {
    uint32_t tried[STREAM_RANKS_MOST], won[STREAM_RANKS_MOST];
};

/* What a layer's routing was, for cache-aware routing. */
struct layer_routing {
    double spread;    /* running mean of max z - min z */
    double lambda;    /* of the controller */
    double displaced; /* sum of displaced mass */
    uint64_t rows;
};

/* Of the system's memory. */
struct memory_watch {
    const char *root;          /* of the files that it is read from */
    int64_t check_us, calm_us; /* between looks; without pressure before slots are taken again */
    int64_t checked_us, calm_since_us;
    struct pressure seen;
    bool was_refused; /* there was pressure, and nothing could be given back */
};

struct stream {
    struct io *io;
    struct io_queue *queue;
    struct stream_layer *layer; /* [layers] */
    struct arena_layer *place;  /* [layers] */
    int layers, most_experts;
    int window_rows, experts_used, split;
    struct arena_layout arena;
    char *memory; /* [arena.bytes] */
    bool is_locked;
    struct clearing *clearing; /* NULL: none */
    struct policy *policy;
    struct pool pool[ARENA_CLASSES];
    struct slot *slot;           /* [arena.slots] */
    int32_t *home_block, **home; /* [layers][experts], -1: in no slot */
    int32_t *free_slot;          /* [arena.slots] a stack for each class */

    uint64_t turns, uses; /* numbers of the last turn and use */
    struct turn turn;
    struct want *want;   /* [most experts] */
    int32_t *ready_slot; /* the same */
    uint32_t *rows;      /* the same; all 0 between turns */
    int32_t *lent_slot;  /* [arena.slots] */
    uint64_t *key;       /* for sorting: [max(records, arena.slots, most experts)] */
    int32_t *by_age;     /* [arena.slots] */

    /* Per record, at record_of[layer] + expert. */
    int *record_of;              /* [layers] */
    int *residents_of;           /* [layers] how many */
    int first_layer, last_layer; /* that have experts */
    int records;
    uint32_t *count;     /* tokens that used it (popularity) */
    uint32_t *heat;      /* rows that used it in the last band */
    uint8_t *rank;       /* of the last guess: NO_RANK, or rank | RANK_RESIDENT or RANK_READ */
    uint32_t *left_turn; /* turn in which it was evicted, 0: never */
    uint64_t tokens;     /* that `count` has counted */

    /* Bands. */
    uint32_t sweep;  /* number of the sweep that is under way */
    int sweep_layer; /* its last layer */
    bool is_prompt;
    int64_t prompt_rows; /* that have not had their first turn */
    struct look_ahead ahead;
    int32_t *ahead_expert; /* [most experts] */

    /* Windows. */
    struct stream_ahead ahead_options;
    bool has_look_ahead;          /* bands too */
    bool no_overlap;
    struct guess_record *guesses; /* [layers] */
    struct guess_record all_guesses;
    uint32_t guard_percent;       /* that the guard asks of a guess, once it has judged */
    int64_t guard_since;          /* of its present period; 0: none has begun */
    uint64_t guard_busy_us;
    struct stream_stats guard_was; /* when the period began */
    int guard_passes;
    bool guard_has_judged;
    int32_t *previous;  /* GUESS_PREVIOUS: [layers][experts_used] ids, -1: none */
    uint16_t *follows;  /* GUESS_TABLE: a table for each layer and the one guessed there */
    size_t *follows_at; /* [layers] where the layer's table starts */

    struct stream_moce moce;
    struct layer_routing *routing; /* [layers] */
    float *bonus;                  /* [most experts] */
    uint64_t displaced_rows;
    double displaced;

    bool gives_back, gives_back_bent; /* slots, while the system is short of memory */
    struct memory_watch watched;

    bool is_wanting; /* as the reads were told (slots_note_wanting) */

    const _Atomic bool *cancel;
    struct stream_watch watch;
    struct stream_stats stats;
};

static inline int class_of_layer(const struct stream *s, int layer)
{
    return arena_class_of(&s->arena, &s->place[layer]);
}

static inline bool is_resident(const struct stream *s, int layer, int expert)
{
    int32_t i = s->home[layer][expert];
    return i >= 0 && s->slot[i].role == SLOT_RESIDENT;
}

static inline bool is_guest(const struct slot *t)
{
    return t->role == SLOT_RESIDENT && !t->is_earned;
}

/* Slots of a class that are there besides the places of residents. */
static inline int room_for_staging(const struct stream *s, int class_index)
{
    return s->arena.class[class_index].staging + s->pool[class_index].borrowed;
}

/* ---- slots.c ---- */

/* A FREE slot, for a record whose place (or whose share of the staging) the caller has made sure
 * of: gives up what was filled or guessed if it must, waits for a dropped read if nothing else is
 * left. */
int slot_take(struct stream *s, int class_index);
/* A FREE slot without giving up anything; -1: there is none. */
int slot_pop_free(struct stream *s, int class_index);
/* The same without giving up a guess or waiting. */
int slot_take_idle(struct stream *s, int class_index);
/* Drops the oldest guess of the class that the turn has not selected; false: there is none. */
bool slot_give_up_guess(struct stream *s, int class_index);
/* The slot is to hold the record: its role, and `home`. */
void slot_assign(struct stream *s, int i, int layer, int expert, enum slot_role role);
/* STAGED to RESIDENT or PASSING, with the same record. */
void slot_promote(struct stream *s, int i, enum slot_role role);
/* The slot gives up what it holds (any role but GONE): reads that have not started are cancelled.
 */
void slot_drop(struct stream *s, int i);
/* STAGED by a filling: it is given up behind all others that were filled so far. */
void slot_prefer(struct stream *s, int i);
/* Queues the reads of the slot's record. */
void slot_read(struct stream *s, int i, enum io_lane lane);
/* The slot's reads that have not started become urgent. */
void slot_hurry(struct stream *s, int i);
/* Cancels the slot's reads that have not started; they are lost. */
void slot_cancel(struct stream *s, int i);
/* Whether none of its reads has started. */
bool slot_is_queued(struct stream *s, int i);
/* DROPPED, with nothing in flight any more, or GONE: the slot is FREE. */
void slot_release(struct stream *s, int i);
/* RESIDENT: its place becomes free. */
void slot_evict(struct stream *s, int i);
void slots_free_all(struct stream *s);
/* Tells the reads whether something is to be read for which there is no slot. */
void slots_note_wanting(struct stream *s);

/* ---- victims.c ---- */

/* Decides for every miss of the turn whether it gets a place in the cache (want.is_home), and
 * evicts whoever has to make room. Residents that are wanted have been pinned. */
void victims_choose(struct stream *s);
/* A record has become the slot's resident. */
void victims_admit(struct stream *s, int i, bool is_earned, uint32_t rows);
/* What the policy and later turns learn from the turn. */
void victims_note_use(struct stream *s);
/* Evicts in the policy's order until the class has at most `capacity` residents. */
void victims_shrink(struct stream *s, int class_index, int capacity);

/* ---- turn.c ---- */

/* Takes what has arrived; if told to, waits for the first. */
bool turn_collect(struct stream *s, bool wait);
/* Tells the watch, if there is one, of time waited for a record (-1: for none). */
void turn_report_wait(const struct stream *s, int expert, uint64_t us, enum stream_why why,
                      uint32_t detail);

/* ---- ahead.c ---- */

/* Drops guesses of `layer` that the turn did not select: those that have not started to be read
 * now, the others when this and one more turn are over. Notes what the guesses were worth. */
void ahead_settle(struct stream *s);
/* What is asked of a guess, in percent, of a drive that is busy for this share of the time, where a
 * record that was not there in time is waited for during this share of what a read takes. */
uint32_t ahead_guard_percent(double busy_share, double wait_share);
/* The guard's period ends unjudged: what comes next is no answer. */
void ahead_pause_guard(struct stream *s);
/* Forgets the guess at the turn's layer. */
void ahead_forget(struct stream *s);
/* Drops guesses whose time is over. */
void ahead_expire(struct stream *s);
/* Whether guesses at this rank are read ahead now. */
bool ahead_may_read(const struct stream *s, int layer, int rank);
/* What guesses without a router learn from the turn, and theirs for the next layer. */
void ahead_without_router(struct stream *s);
/* Stages a record for a turn to come; false: no slot is idle. */
bool ahead_stage(struct stream *s, int layer, int expert);
/* Gives up everything that is staged by a guess. */
void ahead_drop_all(struct stream *s);

/* ---- prompt.c ---- */

/* What a band is guessed to select: ids[0..n-1] of all its rows. */
void prompt_guess(struct stream *s, int layer, const int32_t *ids, int n);
void prompt_go_on(struct stream *s); /* reads what look-ahead has left, as far as slots are idle */
void prompt_next_band(struct stream *s); /* the last layer of a band is over */
/* Look-ahead for the turn's layer comes too late now. */
void prompt_settle(struct stream *s);
/* In the last band of a prompt: places go back to residents, before the turn chooses who gets one. */
void prompt_give_back(struct stream *s);

/* ---- resize.c ---- */

/* Looks at the system's memory, at most once a second, and gives slots back or takes them again. */
void resize_by_pressure(struct stream *s);
/* The system is watched from now on; tests say where and how often. */
void resize_begin(struct stream *s, const char *root, int64_t check_us, int64_t calm_us);
void resize_begin_by_default(struct stream *s);

#endif
