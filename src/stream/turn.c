/* SPDX-License-Identifier: Apache-2.0 */
/* The turn: look up, pin, choose victims, read, hand out.
 *
 * Everything logical is decided in stream_begin, from the history of calls. Completions only move
 * bytes: they decide when a record is handed out and which slot is idle. A turn that is cut short
 * (error, cancel) leaves what it had selected resident; what did not arrive is read again when it
 * is wanted again. */
#include <stdatomic.h>
#include <string.h>

#include "stream/inner.h"
#include "stream/sort.h"

#define CANCEL_MS 20 /* how often a wait looks at the caller's cancel flag */

/* ---- what the turn wants ---- */

/* The distinct experts of ids into want[], most rows first, then as they come. */
static bool count_wanted(struct stream *s, int layer, const int32_t *ids, int n, struct err *e)
{
    int distinct = 0, experts = s->layer[layer].experts;
    bool good = true;
    for (int i = 0; i < n && good; i++) {
        if (ids[i] < 0 || ids[i] >= experts)
            good = err_set(e, ERR_NUMERIC, "layer %d: expert %d was selected of %d", layer,
                           (int)ids[i], experts);
        else if (!s->rows[ids[i]]++)
            s->ready_slot[distinct++] = ids[i];
    }
    for (int j = 0; j < distinct; j++) { /* in order of appearance: j is the tie's order */
        uint32_t rows = s->rows[s->ready_slot[j]];
        s->key[j] = (uint64_t)(UINT32_MAX - rows) << 32 | (uint64_t)j;
    }
    sort_u64(s->key, (size_t)distinct);
    for (int j = 0; j < distinct; j++) {
        int32_t x = s->ready_slot[(uint32_t)s->key[j]];
        s->want[j] = (struct want){.expert = x, .rows = s->rows[x], .slot = -1};
    }
    s->turn.wanted = distinct;
    return good;
}

/* `rows` is zero between turns. */
static void forget_rows(struct stream *s)
{
    for (int j = 0; j < s->turn.wanted; j++)
        s->rows[s->want[j].expert] = 0;
}

/* A band that does not go on below the last one starts a new sweep, and what was hot is counted
 * anew. */
static void note_sweep(struct stream *s)
{
    if (!s->turn.is_band)
        return;
    if (s->turn.layer <= s->sweep_layer) {
        s->sweep++;
        memset(s->heat, 0, (size_t)s->records * sizeof *s->heat);
    }
    s->sweep_layer = s->turn.layer;
}

static void halve_counts(struct stream *s)
{
    for (int r = 0; r < s->records; r++)
        s->count[r] /= 2;
    s->tokens /= 2;
}

/* Counts from a file may be near their end: they stay there. */
static void add_uses(uint32_t *count, uint32_t rows)
{
    uint32_t room = UINT32_MAX - *count;
    *count += rows < room ? rows : room;
}

/* Popularity, and what a band used most. Tokens are counted in the first layer that has experts. */
static void note_counts(struct stream *s, int n)
{
    const struct turn *t = &s->turn;
    if (t->layer == s->first_layer) {
        s->prompt_rows -= n / s->experts_used;
        uint64_t tokens = (uint64_t)(n / s->experts_used), room = UINT64_MAX - s->tokens;
        s->tokens += tokens < room ? tokens : room;
        if (s->tokens > STREAM_TOKENS_MOST)
            halve_counts(s);
    }
    for (int j = 0; j < t->wanted; j++) {
        int record = s->record_of[t->layer] + s->want[j].expert;
        add_uses(&s->count[record], s->want[j].rows);
        policy_use(s->policy, record, s->want[j].rows);
        if (t->is_band)
            s->heat[record] += s->want[j].rows;
    }
}

/* ---- look-up ---- */

/* Why the turn has to read a record itself, for reports. */
static void explain_miss(struct stream *s, struct want *w)
{
    int record = s->record_of[s->turn.layer] + w->expert;
    uint8_t rank = s->rank[record];
    uint32_t bare = rank == NO_RANK ? STREAM_RANKS_MOST : rank & ~(RANK_RESIDENT | RANK_READ);
    bool is_guess = rank != NO_RANK && !(rank & RANK_RESIDENT);
    w->why = STREAM_NEVER_SEEN;
    if (w->slot >= 0 || is_guess) {
        w->why = w->slot >= 0                                  ? STREAM_LATE
                 : rank & RANK_READ                            ? STREAM_CANCELLED
                 : ahead_may_read(s, s->turn.layer, (int)bare) ? STREAM_CROWDED
                                                               : STREAM_RANK;
        w->detail = bare;
    } else if (s->left_turn[record]) {
        w->why = STREAM_EVICTED;
        w->detail = (uint32_t)s->turns - s->left_turn[record];
    }
}

static void make_ready(struct stream *s, int i)
{
    s->ready_slot[s->turn.ready++] = i;
}

/* A resident whose bytes were lost is read again; others whose bytes are under way are waited for.
 */
static void want_resident(struct stream *s, struct want *w)
{
    struct slot *t = &s->slot[w->slot];
    s->stats.hits++;
    w->why = STREAM_CANCELLED;
    if (slot_is_whole(t))
        make_ready(s, w->slot);
    else if (!t->reads_left)
        slot_read(s, w->slot, IO_URGENT);
    else
        slot_hurry(s, w->slot);
}

/* Pins what is there, before the first victim is chosen; whole residents are ready. */
static void pin(struct stream *s)
{
    struct turn *t = &s->turn;
    uint64_t hits = s->stats.hits;
    for (int j = 0; j < t->wanted; j++) {
        struct want *w = &s->want[j];
        w->slot = s->home[t->layer][w->expert];
        if (w->slot >= 0)
            s->slot[w->slot].is_pinned = true;
        if (w->slot >= 0 && s->slot[w->slot].role == SLOT_RESIDENT)
            want_resident(s, w);
        else
            explain_miss(s, w);
    }
    hits = s->stats.hits - hits;
    s->stats.misses += (uint64_t)t->wanted - hits;
    if (!t->is_band) {
        s->stats.window_hits += hits;
        s->stats.window_misses += (uint64_t)t->wanted - hits;
    }
}

/* ---- places ---- */

static void settle_in(struct stream *s, int i, const struct want *w)
{
    s->slot[i].is_pinned = true;
    if (s->slot[i].role == SLOT_RESIDENT)
        victims_admit(s, i, !s->turn.is_band, w->rows);
}

/* A staged record that was selected: resident if it gets a place, else it passes through. */
static void promote(struct stream *s, const struct want *w)
{
    struct slot *t = &s->slot[w->slot];
    bool is_whole = slot_is_whole(t);
    *(is_whole ? &s->stats.ahead_useful : &s->stats.ahead_late) += 1;
    slot_promote(s, w->slot, w->is_home ? SLOT_RESIDENT : SLOT_PASSING);
    settle_in(s, w->slot, w);
    if (is_whole)
        make_ready(s, w->slot);
    else if (t->reads_left)
        slot_hurry(s, w->slot);
    else
        slot_read(s, w->slot, IO_URGENT);
}

static void read_miss(struct stream *s, struct want *w, int i, enum slot_role role)
{
    w->slot = i;
    slot_assign(s, i, s->turn.layer, w->expert, role);
    settle_in(s, i, w);
    slot_read(s, i, IO_URGENT);
}

/* Whether a selected staged record may pass through. Guesses are within their share of the staging;
 * what was filled lies in a place, which it has lost, and passes only while the share has room. */
static bool may_pass(struct stream *s, const struct want *w)
{
    const struct pool *p = &s->pool[s->turn.class_index];
    int room = room_for_staging(s, s->turn.class_index);
    if (w->is_home || !s->slot[w->slot].is_filled)
        return true;
    while (p->staged + p->passing >= room && slot_give_up_guess(s, s->turn.class_index))
        ;
    return p->staged + p->passing < room;
}

static bool is_guess_without_place(const struct stream *s, const struct want *w)
{
    const struct slot *t = w->slot >= 0 ? &s->slot[w->slot] : NULL;
    return t && t->role == SLOT_STAGED && !t->is_filled && !w->is_home;
}

/* A class that has got places back has fewer slots for what passes through: guesses that were
 * selected but get no place are given up as far as there are too many, the least wanted first. They
 * are read again when there is room. */
static void keep_to_share(struct stream *s)
{
    int passing = 0, room = room_for_staging(s, s->turn.class_index);
    for (int j = 0; j < s->turn.wanted; j++)
        passing += is_guess_without_place(s, &s->want[j]);
    for (int j = s->turn.wanted - 1; j >= 0 && passing > room; j--)
        if (is_guess_without_place(s, &s->want[j])) {
            s->stats.ahead_wasted++;
            slot_drop(s, s->want[j].slot);
            s->want[j].slot = -1;
            passing--;
        }
}

/* Staged ones first: afterwards it is certain that the others find a slot. */
static void fill_places(struct stream *s)
{
    keep_to_share(s);
    for (int j = 0; j < s->turn.wanted; j++) {
        struct want *w = &s->want[j];
        if (w->slot < 0 || s->slot[w->slot].role != SLOT_STAGED)
            continue;
        if (may_pass(s, w)) {
            promote(s, w);
        } else { /* read again when the share has room */
            slot_drop(s, w->slot);
            w->slot = -1;
        }
    }
    for (int j = 0; j < s->turn.wanted; j++)
        if (s->want[j].slot < 0 && s->want[j].is_home)
            read_miss(s, &s->want[j], slot_take(s, s->turn.class_index), SLOT_RESIDENT);
}

/* Reads misses without a place into the slots that are idle; then what is to be read ahead. */
static void go_on_reading(struct stream *s)
{
    struct turn *t = &s->turn;
    const struct pool *p = &s->pool[t->class_index];
    int room = room_for_staging(s, t->class_index), i;
    for (; t->unread < t->wanted; t->unread++) {
        if (s->want[t->unread].slot >= 0)
            continue;
        while (p->staged + p->passing >= room && slot_give_up_guess(s, t->class_index))
            ; /* they were left by a pass that was cut short */
        if (p->staged + p->passing >= room || (i = slot_take_idle(s, t->class_index)) < 0) {
            slots_note_wanting(s);
            return;
        }
        read_miss(s, &s->want[t->unread], i, SLOT_PASSING);
    }
    if (t->is_band)
        prompt_go_on(s);
    slots_note_wanting(s);
}

/* ---- arrivals ---- */

static void fail_turn(struct stream *s, const struct slot *t, const struct io_completion *c)
{
    if (s->turn.has_failed)
        return;
    struct err why = {0};
    io_explain(s->io, c, &why);
    s->turn.has_failed = true;
    err_set(&s->turn.error, why.code, "expert %d of layer %d: %s", t->expert, t->layer, why.text);
}

/* All reads of a slot that could come have come. */
static void note_end_of_reads(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    if (t->role == SLOT_DROPPED) {
        slot_release(s, i);
    } else if (!t->is_pinned) {
        if (t->is_lost && t->role == SLOT_STAGED)
            slot_drop(s, i);
    } else if (!t->is_lost) {
        make_ready(s, i);
    } else if (!s->turn.has_failed) {
        slot_read(s, i, IO_URGENT); /* a part of it had been cancelled before */
    }
}

static void note_arrival(struct stream *s, const struct io_completion *c)
{
    int i = (int)(c->tag / PIECES_MOST);
    struct slot *t = &s->slot[i];
    assert(t->reads_left);
    t->reads_left--;
    if (c->error) {
        t->is_lost = true;
        if (t->is_pinned)
            fail_turn(s, t, c);
    } else {
        s->stats.bytes_read += c->bytes;
        *(t->was_ahead ? &s->stats.bytes_ahead : &s->stats.bytes_urgent) += c->bytes;
    }
    if (!t->reads_left)
        note_end_of_reads(s, i);
}

void turn_report_wait(const struct stream *s, int expert, uint64_t us, enum stream_why why,
                      uint32_t detail)
{
    struct stream_wait w = {s->turn.layer, expert, us, why, detail};
    if (s->watch.waited && us)
        s->watch.waited(s->watch.ctx, &w);
}

/* The first record that came ended the wait. */
static void report_first(const struct stream *s, uint64_t us, int before)
{
    if (!s->watch.waited)
        return;
    if (s->turn.ready == before) {
        turn_report_wait(s, -1, us, STREAM_CUT_SHORT, 0);
        return;
    }
    int expert = s->slot[s->ready_slot[before]].expert, j = 0;
    while (s->want[j].expert != expert)
        j++;
    turn_report_wait(s, expert, us, (enum stream_why)s->want[j].why, s->want[j].detail);
}

bool turn_collect(struct stream *s, bool wait)
{
    struct io_completion c[32];
    int64_t start = wait ? io_now_us(s->io) : 0;
    int n = wait ? io_wait_for(s->queue, c, 32, CANCEL_MS) : io_poll(s->queue, c, 32);
    assert(n || !wait || io_outstanding(s->queue));
    for (int i = 0; i < n; i++)
        note_arrival(s, &c[i]);
    if (wait)
        s->stats.wait_us += (uint64_t)(io_now_us(s->io) - start);
    return n == 32;
}

/* Until one more record is there, the turn has failed, or the caller does not want to wait. */
static void wait_for_one(struct stream *s)
{
    struct turn *t = &s->turn;
    int before = t->ready;
    uint64_t waited = s->stats.wait_us;
    while (!t->has_failed && t->ready == before) {
        turn_collect(s, true);
        if (t->ready == before && s->cancel && atomic_load(s->cancel)) {
            t->has_failed = true;
            err_set(&t->error, ERR_INTERRUPTED, "interrupted");
        }
        go_on_reading(s);
    }
    report_first(s, s->stats.wait_us - waited, before);
}

/* ---- the turn ---- */

bool stream_begin(struct stream *s, int layer, const int32_t *ids, int n, bool is_band,
                  struct err *e)
{
    assert(!s->turn.is_active && layer >= 0 && layer < s->layers);
    if (!is_band && s->is_prompt)
        stream_prompt_end(s);
    if (s->gives_back && (is_band || layer == s->first_layer))
        resize_by_pressure(s);
    s->turn = (struct turn){.layer = layer, .is_band = is_band};
    bool good = count_wanted(s, layer, ids, n, e);
    s->turn.class_index = s->turn.wanted ? class_of_layer(s, layer) : 0;
    int places = s->pool[s->turn.class_index].capacity;
    if (good && !is_band && s->turn.wanted > places)
        good = err_set(e, ERR_USAGE, "layer %d: a window wants %d experts of an arena of %d slots",
                       layer, s->turn.wanted, places);
    if (!good) {
        forget_rows(s);
        return false;
    }
    s->turn.is_active = true;
    s->stats.turns++;
    s->turns++;
    if (s->turn.wanted) {
        policy_begin_turn(s->policy, layer, n / s->experts_used);
        note_sweep(s);
        note_counts(s, n);
        turn_collect(s, false);
        ahead_settle(s);
        pin(s);
        ahead_forget(s);
        forget_rows(s);
        prompt_give_back(s);
        victims_choose(s);
        fill_places(s);
        victims_note_use(s);
        go_on_reading(s);
        ahead_without_router(s);
        while (s->no_overlap && !is_band && s->turn.ready < s->turn.wanted && !s->turn.has_failed)
            wait_for_one(s);
    }
    return true;
}

static void hand_out(const struct stream *s, int i, struct stream_record *out)
{
    struct slot *t = &s->slot[i];
    *out = (struct stream_record){.expert = t->expert, .is_new = t->is_new};
    t->is_new = false;
    for (int p = 0; p < s->layer[t->layer].parts; p++)
        out->part[p] = s->memory + t->first_byte + s->place[t->layer].part_at[p] + t->shift[p];
}

/* Passing slots that the caller is done with. */
static void take_back(struct stream *s)
{
    while (s->turn.lent)
        slot_drop(s, s->lent_slot[--s->turn.lent]);
}

int stream_next(struct stream *s, struct stream_record *out, int most, struct err *e)
{
    struct turn *t = &s->turn;
    assert(t->is_active && most > 0);
    if (t->handed == t->wanted && !t->has_failed)
        return 0;
    take_back(s);
    while (turn_collect(s, false))
        ;
    if (!t->has_failed)
        go_on_reading(s);
    if (!t->has_failed && t->handed == t->ready)
        wait_for_one(s);
    if (t->has_failed) {
        err_set(e, t->error.code, "%s", t->error.text);
        return -1;
    }
    /* Half of the staging goes on being read into while the caller works on the others. */
    int n = 0, most_lent = (room_for_staging(s, t->class_index) + 1) / 2;
    for (; n < most && t->handed < t->ready && t->lent < most_lent; n++) {
        int i = s->ready_slot[t->handed++];
        if (s->slot[i].role == SLOT_PASSING)
            s->lent_slot[t->lent++] = i;
        hand_out(s, i, &out[n]);
    }
    return n;
}

/* ---- the end of a turn ---- */

void stream_end(struct stream *s)
{
    struct turn *t = &s->turn;
    if (!t->is_active)
        return;
    t->lent = 0;
    for (int j = 0; j < t->wanted; j++) {
        /* A record that passed may have left its slot to another one. */
        int i = s->home[t->layer][s->want[j].expert];
        if (i < 0 || !s->slot[i].is_pinned)
            continue;
        s->slot[i].is_pinned = false;
        if (s->slot[i].role == SLOT_PASSING)
            slot_drop(s, i);
        else if (!slot_is_whole(&s->slot[i]))
            slot_cancel(s, i);
    }
    t->is_active = false;
    ahead_expire(s);
    if (t->is_band && t->layer == s->last_layer)
        prompt_next_band(s);
    else if (t->is_band)
        prompt_go_on(s); /* into the slots of what was computed last */
    slots_note_wanting(s);
}
