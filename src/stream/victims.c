/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets a place in the cache, and who leaves it.
 *
 * In a window: the policy's order.
 *
 * In a band: a sweep through all layers would evict everything, so it is a guest. A record is
 * *earned* once a window has selected it, and a *guest* while only bands have. A band takes, in
 * this order: free places; earned records in the policy's order, as long as guests and what the
 * prompt has borrowed are fewer than their share of the class (what two layers need, at most half
 * of it); then guests that are worth less: of an older sweep, or wanted by fewer rows. Guests of
 * layers that the sweep has yet to reach are left alone: they are wanted sooner than what would take
 * their place. What gets no place passes through staging. So a sweep leaves behind what most of its
 * rows used, and the next one finds it. */
#include "stream/inner.h"
#include "stream/sort.h"

static void choose_for_window(struct stream *s, struct pool *p)
{
    int c = s->turn.class_index, places = p->capacity - p->residents, victim = -1;
    bool has_begun = false;
    for (int j = 0; j < s->turn.wanted; j++) {
        struct want *w = &s->want[j];
        if (w->slot >= 0 && s->slot[w->slot].role == SLOT_RESIDENT)
            continue;
        w->is_home = true;
        if (places-- > 0)
            continue;
        if (!has_begun)
            victim = policy_victim(s->policy, c, -1);
        has_begun = true;
        while (s->slot[victim].is_pinned)
            victim = policy_victim(s->policy, c, victim);
        int next = policy_victim(s->policy, c, victim);
        slot_evict(s, victim);
        victim = next;
    }
}

/* Worth of a guest: more in this sweep than in older ones, then by rows. Above the 24 low bits. */
static uint64_t guest_worth(uint32_t sweeps_ago, uint32_t rows)
{
    uint64_t young = 0xffff - (sweeps_ago < 0xffff ? sweeps_ago : 0xffff);
    return young << 48 | (uint64_t)(rows < 0xffffff ? rows : 0xffffff) << 24;
}

/* Guests of layers that the sweep has reached that may be evicted, by worth and then in the policy's order: key[] has the worth, and in
 * the 24 low bits an index into by_age[]. Returns how many. */
static int sort_guests(struct stream *s, int class_index)
{
    struct policy *p = s->policy;
    size_t n = 0;
    for (int i = policy_victim(p, class_index, -1); i >= 0; i = policy_victim(p, class_index, i)) {
        const struct slot *t = &s->slot[i];
        if (!is_guest(t) || t->is_pinned || t->layer > s->turn.layer)
            continue;
        s->by_age[n] = i;
        s->key[n] = guest_worth(s->sweep - t->sweep, t->rows) | (uint64_t)n;
        n++;
    }
    sort_u64(s->key, n);
    return (int)n;
}

/* Guests that a class may hold at the cost of earned records. */
static int guest_share(const struct stream *s, int class_index)
{
    int slots = s->arena.class[class_index].slots, share = 2 * s->layer[s->turn.layer].experts;
    return (share < slots / 2 ? share : slots / 2) - s->pool[class_index].borrowed;
}

/* The next earned slot in the policy's order from `after` on that is not pinned, or -1. */
static int next_earned(const struct stream *s, int class_index, int after)
{
    int i = policy_victim(s->policy, class_index, after);
    while (i >= 0 && (s->slot[i].is_pinned || !s->slot[i].is_earned))
        i = policy_victim(s->policy, class_index, i);
    return i;
}

/* Gives places to the misses of a band, most wanted first, until one is not worth it. */
static void choose_for_band(struct stream *s, struct pool *p)
{
    int c = s->turn.class_index, places = p->capacity - p->residents;
    int guests = sort_guests(s, c), guest = 0, held = p->guests;
    int share = guest_share(s, c), earned = next_earned(s, c, -1);
    for (int j = 0; j < s->turn.wanted; j++) {
        struct want *w = &s->want[j];
        if (w->slot >= 0 && s->slot[w->slot].role == SLOT_RESIDENT)
            continue;
        if (places > 0) {
            places--;
            held++;
        } else if (held < share && earned >= 0) {
            int victim = earned;
            earned = next_earned(s, c, victim);
            slot_evict(s, victim);
            held++;
        } else if (guest < guests && s->key[guest] >> 24 < guest_worth(0, w->rows) >> 24) {
            slot_evict(s, s->by_age[s->key[guest++] & 0xffffff]);
        } else {
            return;
        }
        w->is_home = true;
    }
}

void victims_choose(struct stream *s)
{
    struct pool *p = &s->pool[s->turn.class_index];
    if (s->turn.is_band)
        choose_for_band(s, p);
    else
        choose_for_window(s, p);
}

void victims_shrink(struct stream *s, int class_index, int capacity)
{
    struct pool *p = &s->pool[class_index];
    int victim = policy_victim(s->policy, class_index, -1);
    while (p->residents > capacity) {
        int next = policy_victim(s->policy, class_index, victim);
        slot_evict(s, victim);
        victim = next;
    }
}

void victims_admit(struct stream *s, int i, bool is_earned, uint32_t rows)
{
    struct slot *t = &s->slot[i];
    t->is_earned = is_earned;
    t->sweep = s->sweep;
    t->rows = rows;
    t->used = ++s->uses;
    s->pool[t->class_index].guests += is_guest(t);
    policy_admit(s->policy, t->class_index, i, t->layer, s->record_of[t->layer] + t->expert);
}

/* The most wanted is used last. A band leaves the order of what windows have earned alone. */
void victims_note_use(struct stream *s)
{
    struct pool *p = &s->pool[s->turn.class_index];
    for (int j = s->turn.wanted - 1; j >= 0; j--) {
        const struct want *w = &s->want[j];
        struct slot *t = w->slot >= 0 ? &s->slot[w->slot] : NULL;
        if (!t || t->role != SLOT_RESIDENT || (s->turn.is_band && t->is_earned))
            continue;
        if (s->turn.is_band) {
            t->sweep = s->sweep;
            t->rows = w->rows;
        } else {
            p->guests -= is_guest(t);
            t->is_earned = true;
        }
        t->used = ++s->uses;
        policy_touch(s->policy, s->turn.class_index, w->slot);
    }
}
