/* SPDX-License-Identifier: Apache-2.0 */
/* Read-ahead in windows (docs/streaming.md, "Read-ahead while decoding"): which ranks of a guess
 * are read, what they were worth, and when they are given up.
 *
 * What a guess is worth is counted by layer and rank, in program order. The guard looks at the
 * clock: nothing that is staged can change what a turn decides. */
#include <string.h>

#include "stream/inner.h"
#include "stream/sort.h"

/* A rank is read while at least this share of its guesses, of those that were not resident, is
 * selected: where a record that comes too late is waited for as long as it takes to read. The knee
 * lies there: reading more guesses costs misses more than it saves (docs/streaming.md, table of
 * ranks). */
#define WORTH_PERCENT 7
#define COUNTED_MOST 4096 /* then both counts are halved */
#define PRIOR 32          /* guesses that what is known of other layers stands for */

/* The guard asks more of a guess in two cases. Above the first busy share of the drive in
 * proportion, up to the second, for there a read that nobody wants holds up one that somebody waits
 * for. And where less is waited for a record than it takes to read, for computing goes on meanwhile:
 * a guess saves that much less. */
#define GUARD_PASSES 4 /* a period: an answer's first tokens are those that notice */
#define GUARD_FREE 0.5
#define GUARD_FULL 0.95
#define GUARD_BUSY_PERCENT 50
#define GUARD_IDLE_PERCENT 60
#define GUARD_FIRST_PERCENT 20 /* before the first period has ended */

/* Won of PRIOR, by rank: measured on a large model, where it was .58 at rank 0 and .08 at rank 6.
 */
static const uint8_t prior_won[] = {19, 15, 11, 7, 5, 4, 3, 2, 2, 1};

/* ---- what guesses are worth ---- */

/* Share of the guesses at a rank that are selected, in 1/1000: of a layer's own, and PRIOR more that
 * were as good as those of all layers, of which the first PRIOR are the table's. */
static uint32_t worth_of(const struct stream *s, int layer, int rank)
{
    const struct guess_record *own = &s->guesses[layer], *all = &s->all_guesses;
    uint32_t prior = rank < (int)sizeof prior_won ? prior_won[rank] : 0;
    uint32_t of_all = (all->won[rank] + prior) * 1000 / (all->tried[rank] + PRIOR);
    return (own->won[rank] * 1000 + PRIOR * of_all) / (own->tried[rank] + PRIOR);
}

bool ahead_may_read(const struct stream *s, int layer, int rank)
{
    const struct stream_ahead *o = &s->ahead_options;
    if (o->is_off)
        return false;
    uint32_t percent = !o->has_guard          ? WORTH_PERCENT
                       : s->guard_has_judged ? s->guard_percent
                                             : GUARD_FIRST_PERCENT;
    return o->ranks ? rank < o->ranks : worth_of(s, layer, rank) >= 10 * percent;
}

static void note_guess(struct guess_record *g, int rank, bool is_won)
{
    g->tried[rank]++;
    g->won[rank] += is_won;
    if (g->tried[rank] >= COUNTED_MOST) {
        g->tried[rank] /= 2;
        g->won[rank] /= 2;
    }
}

static void learn(struct stream *s)
{
    int layer = s->turn.layer;
    for (int x = 0; x < s->layer[layer].experts; x++) {
        uint8_t rank = s->rank[s->record_of[layer] + x];
        if (rank & RANK_RESIDENT) /* NO_RANK has the bit too */
            continue;
        rank &= (uint8_t)~RANK_READ;
        note_guess(&s->guesses[layer], rank, s->rows[x] > 0);
        note_guess(&s->all_guesses, rank, s->rows[x] > 0);
    }
}

/* ---- staging ---- */

bool ahead_stage(struct stream *s, int layer, int expert)
{
    if (s->home[layer][expert] >= 0)
        return true;
    int c = class_of_layer(s, layer), i;
    const struct pool *p = &s->pool[c];
    if (p->staged + p->passing >= room_for_staging(s, c) || (i = slot_take_idle(s, c)) < 0)
        return false;
    slot_assign(s, i, layer, expert, SLOT_STAGED);
    s->slot[i].until_turn = s->turns + (uint64_t)s->layers;
    slot_read(s, i, IO_AHEAD);
    return true;
}

/* Gives up one that is staged by a guess. */
static void give_up(struct stream *s, int i)
{
    *(slot_is_queued(s, i) ? &s->stats.ahead_cancelled : &s->stats.ahead_wasted) += 1;
    slot_drop(s, i);
}

/* In a window, one that has begun to arrive is kept for one more turn. */
static void settle_unselected(struct stream *s, int i)
{
    if (s->turn.is_band || slot_is_queued(s, i))
        give_up(s, i);
    else
        s->slot[i].until_turn = s->turns + 1;
}

uint32_t ahead_guard_percent(double busy_share, double wait_share)
{
    double part = (busy_share - GUARD_FREE) / (GUARD_FULL - GUARD_FREE), worth = WORTH_PERCENT;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    double busy = worth + part * (GUARD_BUSY_PERCENT - worth);
    /* Worth it is what saves as much time as the reads in vain that come with it may take: p * wait
     * is to (1 - p) * reading as it is where both take as long. */
    wait_share = wait_share < 1 ? wait_share : 1;
    double idle = 100 * worth / (worth + (100 - worth) * wait_share);
    idle = idle < GUARD_IDLE_PERCENT ? idle : GUARD_IDLE_PERCENT;
    return (uint32_t)((busy > idle ? busy : idle) + 0.5);
}

/* The time that a turn waited for a record that was not there in time, in units of what a read takes,
 * since the period began; 1 when there was no such record. */
static double wait_share(const struct stream *s, uint64_t busy_us)
{
    const struct stream_stats *is = &s->stats, *was = &s->guard_was;
    double missed = (double)(is->window_misses - was->window_misses) -
                    (double)(is->ahead_useful - was->ahead_useful);
    double reads = (double)(is->window_misses - was->window_misses) +
                   (double)(is->ahead_wasted - was->ahead_wasted);
    double wait = (double)(is->wait_us - was->wait_us);
    return missed > 0 && busy_us ? wait / missed * reads / (double)busy_us : 1;
}

static void guard(struct stream *s)
{
    if (s->guard_since && ++s->guard_passes < GUARD_PASSES)
        return;
    int64_t now = io_now_us(s->io);
    uint64_t busy = io_busy_us(s->io);
    if (s->guard_since) {
        uint64_t busy_us = busy - s->guard_busy_us;
        uint32_t percent = ahead_guard_percent(
            (double)busy_us / (double)(now - s->guard_since + 1), wait_share(s, busy_us));
        /* From the second time on half way from what it was: reading less makes the drive less
         * busy, and the waits longer. */
        s->guard_percent = s->guard_has_judged ? (s->guard_percent + percent) / 2 : percent;
        s->guard_has_judged = true;
    }
    s->guard_passes = 0;
    s->guard_since = now;
    s->guard_busy_us = busy;
    s->guard_was = s->stats;
}

void ahead_pause_guard(struct stream *s)
{
    s->guard_passes = 0;
    s->guard_since = 0;
}

void ahead_settle(struct stream *s)
{
    struct turn *t = &s->turn;
    bool is_empty = true;
    prompt_settle(s);
    if (!t->is_band)
        learn(s);
    for (int i = s->pool[t->class_index].guessed.oldest, newer; i >= 0; i = newer) {
        const struct slot *g = &s->slot[i];
        newer = g->newer;
        if (g->layer == t->layer && !s->rows[g->expert])
            settle_unselected(s, i);
    }
    if (t->is_band || t->layer != s->first_layer)
        return;
    for (int c = 0; c < s->arena.classes; c++)
        is_empty = is_empty && !s->pool[c].staged;
    s->stats.staging_empty += is_empty;
    if (s->ahead_options.has_guard)
        guard(s);
}

void ahead_forget(struct stream *s)
{
    int layer = s->turn.layer;
    memset(s->rank + s->record_of[layer], NO_RANK, (size_t)s->layer[layer].experts);
}

static void drop_until(struct stream *s, uint64_t turn)
{
    for (int c = 0; c < s->arena.classes; c++)
        for (int i = s->pool[c].guessed.oldest, newer; i >= 0; i = newer) {
            newer = s->slot[i].newer;
            if (s->slot[i].until_turn <= turn)
                give_up(s, i);
        }
}

void ahead_expire(struct stream *s)
{
    drop_until(s, s->turns);
}

void ahead_drop_all(struct stream *s)
{
    drop_until(s, UINT64_MAX);
}

/* ---- guesses ---- */

int stream_guess_ranks(const struct stream *s, int layer, bool is_band)
{
    int experts = s->layer[layer].experts, ranks = s->ahead_options.ranks;
    if (s->residents_of[layer] == experts)
        return 0;
    if (is_band)
        return s->has_look_ahead ? s->experts_used : 0;
    if (s->ahead_options.is_off || s->ahead_options.kind != STREAM_GUESS_ROUTER)
        return 0;
    if (!ranks) /* those behind are selected too rarely to be worth counting */
        ranks = 2 * s->experts_used < 8 ? 8 : 2 * s->experts_used;
    else if (s->ahead_options.margin > 0 && ranks <= s->experts_used)
        ranks = s->experts_used + 1; /* the last is what the others are compared with */
    ranks = ranks < STREAM_RANKS_MOST ? ranks : STREAM_RANKS_MOST;
    return ranks < experts ? ranks : experts;
}

/* Whether the weight of a guess is so much above the best that is not selected. */
static bool has_margin(const struct stream *s, const float *weights, int rank, int ranks)
{
    float margin = s->ahead_options.margin;
    int next = s->experts_used;
    if (margin <= 0 || !weights)
        return true;
    return rank < next && (next >= ranks || weights[rank] - weights[next] >= margin);
}

/* The best ranks of all rows first. Everything that was guessed is counted, read or not. */
static void guess_for_window(struct stream *s, int layer, const int32_t *ids, const float *weights,
                             int rows, int ranks)
{
    ranks = ranks < STREAM_RANKS_MOST ? ranks : STREAM_RANKS_MOST;
    uint8_t *rank_of = s->rank + s->record_of[layer];
    bool has_room = true;
    for (int r = 0; r < ranks; r++)
        for (int row = 0; row < rows; row++) {
            int x = ids[row * ranks + r];
            if (x < 0 || rank_of[x] != NO_RANK)
                continue;
            bool there = is_resident(s, layer, x);
            rank_of[x] = (uint8_t)(r | (there ? RANK_RESIDENT : 0));
            if (!there && has_room && ahead_may_read(s, layer, r) &&
                has_margin(s, weights ? weights + row * ranks : NULL, r, ranks)) {
                has_room = ahead_stage(s, layer, x);
                rank_of[x] |= has_room ? RANK_READ : 0;
            }
        }
}

void stream_guess(struct stream *s, int layer, const int32_t *ids, const float *weights, int rows,
                  int ranks, bool is_band)
{
    assert(layer >= 0 && layer < s->layers && s->layer[layer].experts);
    if (is_band)
        prompt_guess(s, layer, ids, rows * ranks);
    else
        guess_for_window(s, layer, ids, weights, rows, ranks);
}

/* ---- guesses without a router ---- */

/* The layer that is guessed in this one; -1: none. */
static int guessed_layer(const struct stream *s, int layer)
{
    for (int n = s->ahead_options.distance; n > 0 && layer < s->layers; n--)
        do
            layer++;
        while (layer < s->layers && !s->layer[layer].experts);
    return layer < s->layers ? layer : -1;
}

static int32_t *previous_of(const struct stream *s, int layer)
{
    return s->previous + (size_t)layer * (size_t)s->experts_used;
}

/* The counters of what has followed on expert `x` of the layer, in the one that is guessed there.
 */
static uint16_t *follows(const struct stream *s, int layer, int x)
{
    return s->follows + s->follows_at[layer] +
           (size_t)x * (size_t)s->layer[layer + s->ahead_options.distance].experts;
}

static void learn_table(struct stream *s)
{
    int layer = s->turn.layer, before = layer - s->ahead_options.distance;
    for (int a = 0; before >= 0 && s->layer[before].experts && a < s->experts_used; a++) {
        int x = previous_of(s, before)[a];
        uint16_t *row = x >= 0 ? follows(s, before, x) : NULL;
        for (int j = 0; row && j < s->turn.wanted; j++)
            if (++row[s->want[j].expert] == UINT16_MAX)
                for (int y = 0; y < s->layer[layer].experts; y++)
                    row[y] /= 2;
    }
}

/* The experts that have followed most on those of the turn; returns how many. */
static int guess_by_table(struct stream *s, int32_t *ids, int most)
{
    int layer = s->turn.layer, n = 0;
    int experts = s->layer[layer + s->ahead_options.distance].experts;
    for (int y = 0; y < experts; y++) {
        uint32_t sum = 0;
        for (int j = 0; j < s->turn.wanted; j++)
            sum += follows(s, layer, s->want[j].expert)[y];
        s->key[y] = (uint64_t)(UINT32_MAX - sum) << 32 | (uint64_t)y;
    }
    sort_u64(s->key, (size_t)experts);
    for (; n < most && n < experts && s->key[n] >> 32 != UINT32_MAX; n++)
        ids[n] = (int32_t)(uint32_t)s->key[n];
    return n;
}

void ahead_without_router(struct stream *s)
{
    const struct turn *t = &s->turn;
    enum stream_guess_kind kind = s->ahead_options.kind;
    if (t->is_band || kind == STREAM_GUESS_ROUTER || s->ahead_options.is_off)
        return;
    int next = guessed_layer(s, t->layer);
    int32_t ids[STREAM_RANKS_MOST];
    if (kind == STREAM_GUESS_TABLE)
        learn_table(s);
    int32_t *mine = previous_of(s, t->layer);
    for (int j = 0; j < s->experts_used; j++)
        mine[j] = j < t->wanted ? s->want[j].expert : -1;
    if (next < 0)
        return;
    if (kind == STREAM_GUESS_PREVIOUS)
        guess_for_window(s, next, previous_of(s, next), NULL, 1, s->experts_used);
    else if (next == t->layer + s->ahead_options.distance)
        guess_for_window(s, next, ids, NULL, 1, guess_by_table(s, ids, 2 * s->experts_used));
}
