/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are read before anybody asks for them: what is popular, as staged records in places
 * that no resident takes, and in front of it the hot list of a restored session. Neither is logical:
 * a record becomes resident by being selected. */
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

static int count_filled(const struct stream *s, const struct pool *p)
{
    int n = 0;
    for (int i = p->filled.oldest; i >= 0; i = s->slot[i].newer)
        n++;
    return n;
}

static int layer_of(const struct stream *s, int record)
{
    int l = s->layers - 1;
    while (s->record_of[l] > record)
        l--;
    return l;
}

/* A free slot; records that were filled before are given up for it, the oldest first. The newest `own`
 * of the `filled` ones stay: they are about to be read. -1: there is none, for slots whose reads were
 * under way when they were given up are free only when those have ended. */
static int take_place(struct stream *s, int class_index, int places, int *filled, int own)
{
    int i = -1;
    while (*filled >= places || (i = slot_pop_free(s, class_index)) < 0) {
        if (own >= *filled)
            return -1;
        slot_drop(s, s->pool[class_index].filled.oldest);
        --*filled;
    }
    return i;
}

/* Low halves of key[0..n-1]: records of the class, what is worth most first; the high halves ascend.
 * They are staged in places that no resident takes, in front of what was filled before, which is
 * given up where it is in the way. by_age[0..]: the slots that have to be read. In hot lists they
 * are ordered by their high halves, but behind what was staged with a larger `worth`. */
static int stage_records(struct stream *s, int class_index, int n, uint64_t worth)
{
    struct pool *p = &s->pool[class_index];
    turn_collect(s, false); /* what has arrived can be given up at once */
    int places = p->capacity - p->residents, filled = count_filled(s, p), taken = 0, own = 0;
    n = n < places ? n : places > 0 ? places : 0;
    for (int j = n - 1; j >= 0; j--) {
        int record = (int)(uint32_t)s->key[j], l = layer_of(s, record);
        int x = record - s->record_of[l], i = s->home[l][x];
        uint64_t used = (worth << 32) + UINT32_MAX - (s->key[j] >> 32);
        if (i >= 0) {
            slot_prefer(s, i);
            s->slot[i].used = used;
            own++;
            continue;
        }
        if ((i = take_place(s, class_index, places, &filled, own)) < 0)
            break;
        s->slot[i].is_filled = true;
        s->slot[i].used = used;
        slot_assign(s, i, l, x, SLOT_STAGED);
        s->by_age[taken++] = i;
        filled++;
        own++;
    }
    return taken;
}

/* Reads in the order of the file, as a drive likes it. */
static void read_staged(struct stream *s, int n)
{
    for (int j = 0; j < n; j++) {
        const struct slot *t = &s->slot[s->by_age[j]];
        s->key[j] = (uint64_t)(s->record_of[t->layer] + t->expert) << 24 | (uint64_t)s->by_age[j];
    }
    sort_u64(s->key, (size_t)n);
    for (int j = 0; j < n; j++)
        slot_read(s, (int)(s->key[j] & 0xffffff), IO_AHEAD);
}

static int sort_popular(struct stream *s, int class_index)
{
    const struct pool *p = &s->pool[class_index];
    int n = 0, places = p->capacity - p->residents - count_filled(s, p);
    for (int l = 0; l < s->layers; l++)
        for (int x = 0; x < s->layer[l].experts && class_of_layer(s, l) == class_index; x++) {
            uint32_t count = s->count[s->record_of[l] + x];
            if (count && s->home[l][x] < 0)
                s->key[n++] =
                    (uint64_t)(UINT32_MAX - count) << 32 | (uint64_t)(s->record_of[l] + x);
        }
    sort_u64(s->key, (size_t)n);
    return n < places ? n : places > 0 ? places : 0;
}

void stream_fill(struct stream *s)
{
    assert(!s->turn.is_active);
    for (int c = 0; c < s->arena.classes; c++)
        read_staged(s, stage_records(s, c, sort_popular(s, c), 0));
}

/* ---- hot lists ---- */

/* Slots of a role (of staged ones those that were filled), the last used first: their names. */
static int name_slots(const struct stream *s, enum slot_role role, struct stream_name *out, int most)
{
    int n = 0;
    for (int i = 0; i < s->arena.slots; i++)
        if (s->slot[i].role == role && (role == SLOT_RESIDENT || s->slot[i].is_filled))
            s->key[n++] = s->slot[i].used << 24 | (uint64_t)i;
    sort_u64(s->key, (size_t)n);
    most = most < n ? most : n;
    for (int j = 0; j < most; j++) {
        const struct slot *t = &s->slot[s->key[n - 1 - j] & 0xffffff];
        out[j] = (struct stream_name){t->layer, t->expert};
    }
    return most;
}

int stream_hot_list(const struct stream *s, struct stream_name *out, int most)
{
    int n = name_slots(s, SLOT_RESIDENT, out, most);
    return n + name_slots(s, SLOT_STAGED, out + n, most - n);
}

static bool exists(const struct stream *s, struct stream_name name)
{
    return name.layer >= 0 && name.layer < s->layers && name.expert >= 0 &&
           name.expert < s->layer[name.layer].experts;
}

/* Of the names those of the class that no turn has brought in, in their order. */
static int keys_of_names(struct stream *s, int class_index, const struct stream_name *names, int n)
{
    int keys = 0;
    for (int j = 0; j < n && keys < s->records; j++) {
        if (!exists(s, names[j]) || class_of_layer(s, names[j].layer) != class_index)
            continue;
        int i = s->home[names[j].layer][names[j].expert];
        if (i < 0 || s->slot[i].is_filled)
            s->key[keys++] = (uint64_t)j << 32 |
                             (uint64_t)(s->record_of[names[j].layer] + names[j].expert);
    }
    return keys;
}

void stream_fill_names(struct stream *s, const struct stream_name *names, int n)
{
    assert(!s->turn.is_active);
    for (int c = 0; c < s->arena.classes; c++)
        read_staged(s, stage_records(s, c, keys_of_names(s, c, names, n), 1));
}
