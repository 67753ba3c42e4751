/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are read before anybody asks for them: what is popular, as staged records in places
 * that no resident takes; and the hot list of a restored session, as residents. */
#include <string.h>

#include "stream/inner.h"
#include "stream/sort.h"

int stream_records(const struct stream *s)
{
    return s->records;
}

const uint32_t *stream_counts(const struct stream *s, uint64_t *tokens)
{
    *tokens = s->tokens;
    return s->count;
}

void stream_set_counts(struct stream *s, const uint32_t *counts, uint64_t tokens)
{
    memcpy(s->count, counts, (size_t)s->records * sizeof *s->count);
    s->tokens = tokens;
}

/* ---- popularity ---- */

/* by_age[0..n-1]: slots that now hold the most popular records of the class, the least popular
 * first; nothing is read yet. */
static int stage_popular(struct stream *s, int class_index)
{
    const struct pool *p = &s->pool[class_index];
    int n = 0, places = p->capacity - p->residents;
    for (int l = 0; l < s->layers; l++)
        for (int x = 0; x < s->layer[l].experts && class_of_layer(s, l) == class_index; x++) {
            uint32_t count = s->count[s->record_of[l] + x];
            if (count && s->home[l][x] < 0)
                s->key[n++] =
                    (uint64_t)(UINT32_MAX - count) << 32 | (uint64_t)(s->record_of[l] + x);
        }
    sort_u64(s->key, (size_t)n);
    for (int i = p->filled.oldest; i >= 0; i = s->slot[i].newer)
        places--;
    n = n < places ? n : places > 0 ? places : 0;
    for (int j = n - 1, at = 0; j >= 0; j--, at++) {
        int record = (int)(uint32_t)s->key[j], l = s->layers - 1,
            i = slot_take_idle(s, class_index);
        while (s->record_of[l] > record)
            l--;
        s->slot[i].is_filled = true;
        slot_assign(s, i, l, record - s->record_of[l], SLOT_STAGED);
        s->by_age[at] = i;
    }
    return n;
}

/* Reads in the order of the file, as a drive likes it. */
void stream_fill(struct stream *s)
{
    assert(!s->turn.is_active);
    for (int c = 0; c < s->arena.classes; c++) {
        int n = stage_popular(s, c);
        for (int j = 0; j < n; j++) {
            const struct slot *t = &s->slot[s->by_age[j]];
            s->key[j] =
                (uint64_t)(s->record_of[t->layer] + t->expert) << 24 | (uint64_t)s->by_age[j];
        }
        sort_u64(s->key, (size_t)n);
        for (int j = 0; j < n; j++)
            slot_read(s, (int)(s->key[j] & 0xffffff), IO_AHEAD);
    }
}

/* ---- hot lists ---- */

int stream_hot_list(const struct stream *s, struct stream_name *out, int most)
{
    int n = 0;
    for (int i = 0; i < s->arena.slots; i++)
        if (s->slot[i].role == SLOT_RESIDENT)
            s->key[n++] = s->slot[i].used << 24 | (uint64_t)i;
    sort_u64(s->key, (size_t)n);
    most = most < n ? most : n;
    for (int j = 0; j < most; j++) {
        const struct slot *t = &s->slot[s->key[n - 1 - j] & 0xffffff];
        out[j] = (struct stream_name){t->layer, t->expert};
    }
    return most;
}

static bool exists(const struct stream *s, struct stream_name name)
{
    return name.layer >= 0 && name.layer < s->layers && name.expert >= 0 &&
           name.expert < s->layer[name.layer].experts;
}

/* by_age[0..]: slots of the names that become residents, the last used first. */
static int take_places(struct stream *s, const struct stream_name *names, int n)
{
    int taken = 0;
    for (int j = 0; j < n; j++) {
        int l = names[j].layer, x = names[j].expert;
        if (!exists(s, names[j]) || is_resident(s, l, x))
            continue;
        int c = class_of_layer(s, l), i = s->home[l][x];
        if (s->pool[c].residents == s->pool[c].capacity)
            continue;
        if (i >= 0) {
            slot_promote(s, i, SLOT_RESIDENT);
        } else {
            i = slot_take(s, c);
            slot_assign(s, i, l, x, SLOT_RESIDENT);
            s->slot[i].is_lost = true;
        }
        s->by_age[taken++] = i;
    }
    return taken;
}

void stream_warm(struct stream *s, const struct stream_name *names, int n)
{
    assert(!s->turn.is_active);
    int taken = take_places(s, names, n);
    for (int j = taken - 1; j >= 0; j--)
        victims_admit(s, s->by_age[j], true, 0);
    for (int j = 0; j < taken; j++)
        if (s->slot[s->by_age[j]].is_lost && !s->slot[s->by_age[j]].reads_left)
            slot_read(s, s->by_age[j], IO_AHEAD);
}
