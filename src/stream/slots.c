/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: who holds what, and the reads that fill them. */
#include <string.h>

#include "base/mem.h"
#include "stream/inner.h"

/* ---- lists and stacks ---- */

static void list_append(struct stream *s, struct slot_list *l, int i)
{
    s->slot[i].older = l->newest;
    s->slot[i].newer = -1;
    *(l->newest >= 0 ? &s->slot[l->newest].newer : &l->oldest) = i;
    l->newest = i;
}

static void list_remove(struct stream *s, struct slot_list *l, int i)
{
    const struct slot *t = &s->slot[i];
    *(t->older >= 0 ? &s->slot[t->older].newer : &l->oldest) = t->newer;
    *(t->newer >= 0 ? &s->slot[t->newer].older : &l->newest) = t->older;
}

void slot_release(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    struct pool *p = &s->pool[t->class_index];
    *t = (struct slot){.layer = -1, .class_index = t->class_index, .first_byte = t->first_byte};
    s->free_slot[s->arena.class[t->class_index].first_slot + p->free_count++] = i;
}

void slots_free_all(struct stream *s)
{
    for (int c = 0; c < s->arena.classes; c++) {
        const struct arena_class *k = &s->arena.class[c];
        s->pool[c] = (struct pool){.capacity = k->slots, .guessed = {-1, -1}, .filled = {-1, -1}};
        for (int j = k->slots + k->staging - 1; j >= 0; j--) {
            s->slot[k->first_slot + j] =
                (struct slot){.class_index = (uint8_t)c,
                              .first_byte = k->first_byte + (uint64_t)j * k->slot_bytes};
            slot_release(s, k->first_slot + j);
        }
    }
}

/* ---- reads ---- */

static uint64_t tag_of(int i, int piece)
{
    return (uint64_t)i * PIECES_MOST + (uint64_t)piece;
}

/* Submits one part in `pieces` pieces of whole blocks; returns how many it took. */
static int read_part(struct stream *s, int i, int p, enum io_lane lane, int pieces)
{
    struct slot *t = &s->slot[i];
    const struct stream_part *part = &s->layer[t->layer].part[p];
    uint64_t align = io_align(s->io), from = part->offset + (uint64_t)t->expert * part->bytes;
    uint64_t first = from & ~(align - 1), end = mem_round_up(from + part->bytes, align);
    uint64_t each = mem_round_up((end - first + (uint64_t)pieces - 1) / (uint64_t)pieces, align);
    char *to = s->memory + t->first_byte + s->place[t->layer].part_at[p];
    int n = 0;
    t->shift[p] = (uint32_t)(from - first);
    for (uint64_t at = first; at < end; at += each, n++)
        io_submit(s->queue, lane, part->file, at, (size_t)(end - at < each ? end - at : each),
                  to + (at - first), tag_of(i, p * STREAM_SPLIT_MOST + n));
    return n;
}

void slot_read(struct stream *s, int i, enum io_lane lane)
{
    struct slot *t = &s->slot[i];
    assert(!t->reads_left);
    t->is_lost = false;
    t->is_new = true;
    t->was_ahead = lane == IO_AHEAD;
    /* Completions are seen by this thread alone, so the count may be set afterwards. */
    int reads = 0;
    for (int p = 0; p < s->layer[t->layer].parts; p++)
        reads += read_part(s, i, p, lane, lane == IO_URGENT ? s->split : 1);
    t->reads_left = (uint8_t)reads;
}

/* Reads that a part was cut into at most. */
static int pieces_of(const struct stream *s, const struct slot *t)
{
    return t->was_ahead ? 1 : s->split;
}

void slot_cancel(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    for (int p = 0; p < s->layer[t->layer].parts; p++)
        for (int n = 0; t->reads_left && n < pieces_of(s, t); n++)
            if (io_cancel(s->queue, tag_of(i, p * STREAM_SPLIT_MOST + n))) {
                t->reads_left--;
                t->is_lost = true;
            }
}

void slot_hurry(struct stream *s, int i)
{
    const struct slot *t = &s->slot[i];
    for (int p = 0; p < s->layer[t->layer].parts; p++)
        for (int n = 0; t->reads_left && n < pieces_of(s, t); n++)
            io_hurry(s->queue, tag_of(i, p * STREAM_SPLIT_MOST + n));
}

bool slot_is_queued(struct stream *s, int i)
{
    const struct slot *t = &s->slot[i];
    int waiting = 0;
    for (int p = 0; p < s->layer[t->layer].parts; p++)
        for (int n = 0; n < pieces_of(s, t); n++)
            waiting += io_is_waiting(s->queue, tag_of(i, p * STREAM_SPLIT_MOST + n));
    return t->reads_left && waiting == t->reads_left;
}

/* ---- holding and giving up ---- */

/* What a role counts for: +1 when a slot takes it, -1 when it leaves it. */
static void count_role(struct stream *s, int i, int change)
{
    struct slot *t = &s->slot[i];
    struct pool *p = &s->pool[t->class_index];
    struct slot_list *list = t->is_filled ? &p->filled : &p->guessed;
    if (t->role == SLOT_RESIDENT) {
        p->residents += change;
        s->residents_of[t->layer] += change;
    } else if (t->role == SLOT_PASSING) {
        p->passing += change;
    } else if (t->role == SLOT_STAGED) {
        p->staged += t->is_filled ? 0 : change;
        if (change > 0)
            list_append(s, list, i);
        else
            list_remove(s, list, i);
    }
}

void slot_assign(struct stream *s, int i, int layer, int expert, enum slot_role role)
{
    struct slot *t = &s->slot[i];
    assert(t->role == SLOT_FREE && !t->reads_left && s->home[layer][expert] < 0);
    t->layer = layer;
    t->expert = expert;
    t->role = (uint8_t)role;
    s->home[layer][expert] = i;
    count_role(s, i, 1);
    if (s->clearing) {
        const struct arena_class *k = &s->arena.class[t->class_index];
        clearing_note(s->clearing, t->class_index, t->first_byte + k->slot_bytes - k->first_byte);
    }
}

void slot_promote(struct stream *s, int i, enum slot_role role)
{
    struct slot *t = &s->slot[i];
    assert(t->role == SLOT_STAGED);
    count_role(s, i, -1);
    t->role = (uint8_t)role;
    t->is_filled = false;
    count_role(s, i, 1);
}

void slot_prefer(struct stream *s, int i)
{
    assert(s->slot[i].role == SLOT_STAGED && s->slot[i].is_filled);
    count_role(s, i, -1);
    count_role(s, i, 1);
}

void slot_drop(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    assert(t->role != SLOT_FREE && t->role != SLOT_DROPPED && t->role != SLOT_GONE);
    count_role(s, i, -1);
    s->home[t->layer][t->expert] = -1;
    slot_cancel(s, i);
    t->role = SLOT_DROPPED;
    t->is_pinned = false;
    if (!t->reads_left)
        slot_release(s, i);
}

void slot_evict(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    assert(t->role == SLOT_RESIDENT && !t->is_pinned);
    s->pool[t->class_index].guests -= is_guest(t);
    policy_remove(s->policy, t->class_index, i);
    s->left_turn[s->record_of[t->layer] + t->expert] = (uint32_t)s->turns;
    slot_drop(s, i);
}

/* ---- taking ---- */

int slot_pop_free(struct stream *s, int class_index)
{
    struct pool *p = &s->pool[class_index];
    if (!p->free_count)
        return -1;
    return s->free_slot[s->arena.class[class_index].first_slot + --p->free_count];
}

/* Gives up the first of a list that no turn has pinned. */
static bool give_up_one(struct stream *s, const struct slot_list *l)
{
    for (int i = l->oldest; i >= 0; i = s->slot[i].newer)
        if (!s->slot[i].is_pinned) {
            if (!s->slot[i].is_filled)
                s->stats.ahead_wasted++;
            slot_drop(s, i);
            return true;
        }
    return false;
}

int slot_take_idle(struct stream *s, int class_index)
{
    int i;
    while ((i = slot_pop_free(s, class_index)) < 0)
        if (!give_up_one(s, &s->pool[class_index].filled))
            return -1;
    return i;
}

bool slot_give_up_guess(struct stream *s, int class_index)
{
    return give_up_one(s, &s->pool[class_index].guessed);
}

int slot_take(struct stream *s, int class_index)
{
    int i;
    uint64_t waited = s->stats.wait_us;
    while ((i = slot_take_idle(s, class_index)) < 0)
        if (!slot_give_up_guess(s, class_index))
            turn_collect(s, true);
    turn_report_wait(s, -1, s->stats.wait_us - waited, STREAM_NO_SLOT, 0);
    return i;
}

void slots_note_wanting(struct stream *s)
{
    bool is_wanting =
        (s->turn.is_active && s->turn.unread < s->turn.wanted) || s->ahead.next < s->ahead.n;
    if (is_wanting != s->is_wanting)
        io_set_wanting(s->io, is_wanting);
    s->is_wanting = is_wanting;
}
