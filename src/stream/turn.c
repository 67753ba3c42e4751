/* SPDX-License-Identifier: Apache-2.0 */
/* The turn: look up, pin, choose victims, read, hand out.
 *
 * A cache slot                                   A staging slot (bands only)
 *     free --claim--> resident --evict--> free       free --claim--> lent --next call--> free
 *
 * Resident is meant logically: the slot has its record from the claim on, the bytes may still be
 * arriving (`parts_left` > 0). A record is in at most one cache slot, `slot_of` says in which; a
 * record in staging is in no look-up and is read again when it is wanted again.
 *
 * Pinned: wanted by the turn that is under way. A pinned slot is never a victim; all residents are
 * pinned before the first victim is chosen.
 *
 * Victims in a window: the policy's order. Victims in a band: a sweep through all layers would evict
 * everything, so it is a guest. A record is *earned* once a window has selected it, and a *guest*
 * while only bands have. A band takes, in this order: free slots; earned records in the policy's
 * order, as long as guests have fewer than their share of the class (what two layers need, at most
 * half the slots); then guests that are worth less: of an older sweep, or wanted by fewer rows. What
 * gets no cache slot goes through staging. So a sweep leaves behind what most of its rows used.
 *
 * Everything above is decided in stream_begin, from the history of begins. Completions only move
 * bytes: they decide when a record is handed out and which staging slot is free, nothing that a later
 * look-up can see. Only a turn that is cut short (error, cancel) leaves a trace of time: what had not
 * arrived is not resident.
 *
 * Threads: all state here belongs to the thread that drives the stream. Bytes that a read brought are
 * made visible by the lock of the completion. */
#include "stream/stream.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "stream/arena.h"
#include "stream/policy.h"
#include "stream/sort.h"

#define MOST_RECORDS (1 << 24) /* slot numbers fit in the 24 low bits of a sorting key */

struct slot {
    int32_t layer, expert; /* layer -1: free */
    uint8_t class_index;
    bool is_staging, is_pinned, is_earned;
    uint8_t parts_left;          /* being read or queued */
    uint32_t shift[STREAM_PARTS]; /* where the part begins in its aligned superset */
    uint32_t sweep, rows;        /* guests: the last sweep that wanted it, and by how many rows */
    uint64_t first_byte;         /* in the arena */
};

struct want {
    int32_t expert;
    uint32_t rows;
    int32_t slot; /* -1: not yet */
};

struct turn {
    bool is_active, is_band, has_failed;
    int layer;
    int wanted;       /* distinct experts */
    int unread;       /* want[unread..] may hold misses that have no slot yet */
    int handed, ready; /* ready_slot[handed..ready-1] may be handed out, those before it were */
    int lent;         /* staging slots that the last call handed out: lent[0..lent-1] */
    struct err error;
};

struct stream {
    struct io *io;
    struct io_queue *queue;
    struct stream_layer *layer;  /* [layers] */
    struct arena_layer *place;   /* [layers] */
    int layers;
    struct arena_layout arena;
    char *memory;                /* [arena.bytes] */
    struct policy *policy;
    struct slot *slot;           /* [arena.slots] */
    int32_t **slot_of;           /* [layers][experts], -1: not resident */
    int32_t *free_slot;          /* stack a class: [class.first_slot + i], i < free_count */
    int free_count[ARENA_CLASSES], free_staging[ARENA_CLASSES];
    int guests[ARENA_CLASSES];

    struct turn turn;
    struct want *want;     /* [most experts of a layer] */
    int32_t *ready_slot;   /* the same */
    uint32_t *rows;        /* the same; all 0 between turns */
    uint64_t *key;         /* for sorting: [max(most experts, arena.slots)] */
    int32_t *by_age;       /* [arena.slots] */
    int32_t lent[ARENA_STAGING];  /* turn.lent of them */
    uint32_t sweep;        /* number of the sweep that is under way */
    int sweep_layer;       /* its last layer */
    struct stream_stats stats;
};

/* ---- creation ---- */

static bool check_layer(const struct stream_config *c, int l, struct io *io, struct err *e)
{
    const struct stream_layer *y = &c->layer[l];
    if (y->experts < 0 || y->parts < 0 || y->parts > STREAM_PARTS || (y->experts && !y->parts))
        return err_set(e, ERR_FORMAT, "layer %d: %d experts of %d parts", l, y->experts, y->parts);
    for (int p = 0; y->experts && p < y->parts; p++) {
        const struct stream_part *t = &y->part[p];
        uint64_t all, end;
        if (!t->bytes || __builtin_mul_overflow(t->bytes, (uint64_t)y->experts, &all) ||
            __builtin_add_overflow(t->offset, all, &end) || end > io_file_bytes(io, t->file))
            return err_set(e, ERR_FORMAT, "%s: part %d of the experts of layer %d passes the file's end",
                           io_file_path(io, t->file), p, l);
    }
    return true;
}

static bool check_config(const struct stream_config *c, struct io *io, struct err *e)
{
    int64_t records = 0;
    for (int l = 0; l < c->layers; l++) {
        if (!check_layer(c, l, io, e))
            return false;
        records += c->layer[l].experts;
    }
    if (records > MOST_RECORDS / 2)
        return err_set(e, ERR_UNSUPPORTED, "%lld experts are more than %d", (long long)records,
                       MOST_RECORDS / 2);
    return true;
}

static int most_experts(const struct stream_config *c)
{
    int most = 1;
    for (int l = 0; l < c->layers; l++)
        most = c->layer[l].experts > most ? c->layer[l].experts : most;
    return most;
}

static bool copy_layers(struct stream *s, const struct stream_config *c, struct err *e)
{
    size_t n = (size_t)c->layers;
    s->layers = c->layers;
    s->layer = mem_alloc_array(n, sizeof *s->layer, "expert layers", e);
    s->place = mem_alloc_array(n, sizeof *s->place, "expert layers", e);
    s->slot_of = mem_alloc_array(n, sizeof *s->slot_of, "expert table", e);
    if (!s->layer || !s->place || !s->slot_of)
        return false;
    for (int l = 0; l < c->layers; l++) {
        s->layer[l] = c->layer[l];
        s->place[l] = arena_place_layer(&c->layer[l], io_align(s->io));
        size_t experts = (size_t)c->layer[l].experts;
        s->slot_of[l] = mem_alloc_array(experts, sizeof **s->slot_of, "expert table", e);
        if (!s->slot_of[l])
            return false;
        memset(s->slot_of[l], 0xff, experts * sizeof **s->slot_of);
    }
    return true;
}

static bool allocate(struct stream *s, const struct stream_config *c, struct err *e)
{
    size_t most = (size_t)most_experts(c), slots = (size_t)s->arena.slots;
    s->slot = mem_alloc_array(slots, sizeof *s->slot, "slots", e);
    s->free_slot = mem_alloc_array(slots, sizeof *s->free_slot, "slots", e);
    s->want = mem_alloc_array(most, sizeof *s->want, "turn", e);
    s->ready_slot = mem_alloc_array(most, sizeof *s->ready_slot, "turn", e);
    s->by_age = mem_alloc_array(slots, sizeof *s->by_age, "turn", e);
    s->rows = mem_alloc_array(most, sizeof *s->rows, "turn", e);
    s->key = mem_alloc_array(most > slots ? most : slots, sizeof *s->key, "turn", e);
    s->policy = policy_create(s->arena.classes, s->arena.slots, e);
    s->queue = io_queue_create(s->io, (int)most * STREAM_PARTS, e);
    s->memory = mem_map((size_t)s->arena.bytes, "the arena of experts", e);
    return s->slot && s->free_slot && s->want && s->ready_slot && s->rows && s->key && s->by_age &&
           s->policy && s->queue && s->memory;
}

/* Free staging slots lie above the class's cache slots in its stack of free ones. */
static void free_all_slots(struct stream *s)
{
    for (int i = 0; i < s->arena.classes; i++) {
        const struct arena_class *k = &s->arena.class[i];
        s->free_count[i] = k->slots;
        s->free_staging[i] = k->staging;
        for (int j = 0; j < k->slots + k->staging; j++)
            s->slot[k->first_slot + j] = (struct slot){
                .layer = -1, .class_index = (uint8_t)i, .is_staging = j >= k->slots,
                .first_byte = k->first_byte + (uint64_t)j * k->slot_bytes};
        int32_t *stack = &s->free_slot[k->first_slot], end = k->first_slot + k->slots;
        for (int j = 0; j < k->slots; j++)
            stack[j] = end - 1 - j;
        for (int j = 0; j < k->staging; j++)
            stack[k->slots + j] = end + k->staging - 1 - j;
    }
}

struct stream *stream_create(const struct stream_config *c, struct io *io, struct err *e)
{
    if (!check_config(c, io, e))
        return NULL;
    struct stream *s = mem_alloc(sizeof *s, "stream", e);
    if (!s)
        return NULL;
    s->io = io;
    if (!arena_cut(c, io_align(io), &s->arena, e) || !copy_layers(s, c, e) || !allocate(s, c, e)) {
        stream_free(s);
        return NULL;
    }
    free_all_slots(s);
    s->sweep_layer = c->layers;
    return s;
}

void stream_free(struct stream *s)
{
    if (!s)
        return;
    io_queue_close(s->queue);
    mem_unmap(s->memory, (size_t)s->arena.bytes);
    policy_free(s->policy);
    for (int l = 0; s->slot_of && l < s->layers; l++)
        mem_free(s->slot_of[l]);
    mem_free(s->slot_of);
    mem_free(s->layer);
    mem_free(s->place);
    mem_free(s->slot);
    mem_free(s->free_slot);
    mem_free(s->want);
    mem_free(s->ready_slot);
    mem_free(s->rows);
    mem_free(s->key);
    mem_free(s->by_age);
    mem_free(s);
}

uint64_t stream_table_bytes(const struct stream_config *c, size_t io_align)
{
    uint64_t most = (uint64_t)most_experts(c), records = 0;
    for (int l = 0; l < c->layers; l++)
        records += (uint64_t)c->layer[l].experts;
    uint64_t slots = arena_most_slots(c, io_align);
    uint64_t a_slot = sizeof(struct slot) + 2 * sizeof(int32_t) + sizeof(uint64_t) + 8 /* policy */;
    uint64_t a_layer = sizeof(struct stream_layer) + sizeof(struct arena_layer) + 128;
    return sizeof(struct stream) + slots * a_slot + records * 4 + (uint64_t)c->layers * a_layer +
           most * (sizeof(struct want) + 4 + 4 + 8) + io_queue_memory((int)most * STREAM_PARTS) + 4096;
}

/* ---- slots ---- */

static int class_of_layer(const struct stream *s, int layer)
{
    return arena_class_of(&s->arena, &s->place[layer]);
}

static bool is_guest(const struct slot *t)
{
    return t->layer >= 0 && !t->is_staging && !t->is_earned;
}

static void push_free(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    const struct arena_class *k = &s->arena.class[t->class_index];
    t->layer = -1;
    t->is_pinned = false;
    if (t->is_staging)
        s->free_slot[k->first_slot + k->slots + s->free_staging[t->class_index]++] = i;
    else
        s->free_slot[k->first_slot + s->free_count[t->class_index]++] = i;
}

static void evict(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    assert(t->layer >= 0 && !t->is_staging && !t->parts_left);
    if (is_guest(t))
        s->guests[t->class_index]--;
    policy_remove(s->policy, t->class_index, i);
    s->slot_of[t->layer][t->expert] = -1;
    push_free(s, i);
}

/* Queues the reads of a record into a slot. */
static void start_reading(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    const struct stream_layer *y = &s->layer[t->layer];
    for (int p = 0; p < y->parts; p++) {
        const struct stream_part *part = &y->part[p];
        uint64_t align = io_align(s->io), from = part->offset + (uint64_t)t->expert * part->bytes;
        uint64_t first = from & ~(align - 1), end = mem_round_up(from + part->bytes, align);
        t->shift[p] = (uint32_t)(from - first);
        io_submit(s->queue, IO_URGENT, part->file, first, (size_t)(end - first),
                  s->memory + t->first_byte + s->place[t->layer].part_at[p],
                  (uint64_t)i * STREAM_PARTS + (uint64_t)p);
    }
    t->parts_left = (uint8_t)y->parts;
}

static void take_slot(struct stream *s, struct want *w, int i)
{
    struct slot *t = &s->slot[i];
    assert(t->layer < 0 && !t->is_pinned);
    t->layer = s->turn.layer;
    t->expert = w->expert;
    t->is_pinned = true;
    w->slot = i;
}

/* A free cache slot becomes the home of a wanted record. */
static void claim(struct stream *s, struct want *w, int class_index)
{
    assert(s->free_count[class_index] > 0);
    const struct arena_class *k = &s->arena.class[class_index];
    int i = s->free_slot[k->first_slot + --s->free_count[class_index]];
    take_slot(s, w, i);
    struct slot *t = &s->slot[i];
    t->is_earned = !s->turn.is_band;
    t->sweep = s->sweep;
    t->rows = w->rows;
    s->guests[class_index] += is_guest(t);
    s->slot_of[t->layer][t->expert] = i;
    policy_admit(s->policy, class_index, i);
    start_reading(s, i);
}

/* ---- look-up and victims ---- */

/* The distinct experts of ids into want[], most rows first, then as they come. */
static bool count_wanted(struct stream *s, int layer, const int32_t *ids, int n, struct err *e)
{
    int distinct = 0, experts = s->layer[layer].experts;
    bool good = true;
    for (int i = 0; i < n && good; i++) {
        if (ids[i] < 0 || ids[i] >= experts)
            good = err_set(e, ERR_NUMERIC, "layer %d: expert %d was selected of %d", layer, (int)ids[i],
                           experts);
        else if (!s->rows[ids[i]]++)
            s->want[distinct++] = (struct want){.expert = ids[i], .slot = -1};
    }
    for (int j = 0; j < distinct; j++) { /* want[] in order of appearance: j is the tie's order */
        int32_t x = s->want[j].expert;
        s->ready_slot[j] = x;
        s->key[j] = (uint64_t)(UINT32_MAX - s->rows[x]) << 32 | (uint64_t)j;
    }
    sort_u64(s->key, (size_t)distinct);
    for (int j = 0; j < distinct; j++) {
        int32_t x = s->ready_slot[(uint32_t)s->key[j]];
        s->want[j] = (struct want){.expert = x, .rows = s->rows[x], .slot = -1};
    }
    for (int j = 0; j < distinct; j++)
        s->rows[s->want[j].expert] = 0;
    s->turn.wanted = distinct;
    return good;
}

/* Pins the residents and puts them in front of the queue of what is ready. */
static void pin_residents(struct stream *s)
{
    struct turn *t = &s->turn;
    for (int j = 0; j < t->wanted; j++) {
        struct want *w = &s->want[j];
        w->slot = s->slot_of[t->layer][w->expert];
        if (w->slot < 0) {
            s->stats.misses++;
            continue;
        }
        s->stats.hits++;
        s->slot[w->slot].is_pinned = true;
        s->ready_slot[t->ready++] = w->slot;
    }
}

static void claim_for_window(struct stream *s, int class_index)
{
    int victim = policy_victim(s->policy, class_index, -1);
    for (int j = 0; j < s->turn.wanted; j++) {
        if (s->want[j].slot >= 0)
            continue;
        if (!s->free_count[class_index]) {
            while (s->slot[victim].is_pinned)
                victim = policy_victim(s->policy, class_index, victim);
            int next = policy_victim(s->policy, class_index, victim);
            evict(s, victim);
            victim = next;
        }
        claim(s, &s->want[j], class_index);
    }
}

/* Worth of a guest: more in this sweep than in older ones, then by rows. Above the 24 low bits. */
static uint64_t guest_worth(uint32_t sweeps_ago, uint32_t rows)
{
    uint64_t young = 0xffff - (sweeps_ago < 0xffff ? sweeps_ago : 0xffff);
    return young << 48 | (uint64_t)(rows < 0xffffff ? rows : 0xffffff) << 24;
}

/* Guests that may be evicted, by worth and then in the policy's order: key[] has the worth, and in
 * the 24 low bits an index into by_age[]. Returns how many. */
static int sort_guests(struct stream *s, int class_index)
{
    const struct policy *p = s->policy;
    size_t n = 0;
    for (int i = policy_victim(p, class_index, -1); i >= 0; i = policy_victim(p, class_index, i)) {
        const struct slot *t = &s->slot[i];
        if (!is_guest(t) || t->is_pinned)
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
    share = share < slots / 2 ? share : slots / 2;
    return share > 1 ? share : 1;
}

/* The next earned slot in the policy's order from `after` on that is not pinned, or -1. */
static int next_earned(const struct stream *s, int class_index, int after)
{
    int i = policy_victim(s->policy, class_index, after);
    while (i >= 0 && (s->slot[i].is_pinned || !s->slot[i].is_earned))
        i = policy_victim(s->policy, class_index, i);
    return i;
}

/* Gives cache slots to the misses of a band, most wanted first, until one is not worth it. */
static void claim_for_band(struct stream *s, int class_index)
{
    int guests = sort_guests(s, class_index), guest = 0;
    int share = guest_share(s, class_index), earned = next_earned(s, class_index, -1);
    for (int j = 0; j < s->turn.wanted; j++) {
        struct want *w = &s->want[j];
        if (w->slot >= 0)
            continue;
        if (!s->free_count[class_index]) {
            if (s->guests[class_index] < share && earned >= 0) {
                int victim = earned;
                earned = next_earned(s, class_index, victim);
                evict(s, victim);
            } else if (guest < guests && s->key[guest] >> 24 < guest_worth(0, w->rows) >> 24) {
                evict(s, s->by_age[s->key[guest++] & 0xffffff]);
            } else {
                return;
            }
        }
        claim(s, w, class_index);
    }
}

/* A band that does not go on below the last one starts a new sweep. */
static void note_sweep(struct stream *s)
{
    if (!s->turn.is_band)
        return;
    if (s->turn.layer <= s->sweep_layer)
        s->sweep++;
    s->sweep_layer = s->turn.layer;
}

/* What the policy and later turns learn: the most wanted is used last. A band leaves the order of what
 * windows have earned alone. */
static void note_use(struct stream *s, int class_index)
{
    for (int j = s->turn.wanted - 1; j >= 0; j--) {
        const struct want *w = &s->want[j];
        if (w->slot < 0)
            continue;
        struct slot *t = &s->slot[w->slot];
        if (s->turn.is_band && t->is_earned)
            continue;
        if (s->turn.is_band) {
            t->sweep = s->sweep;
            t->rows = w->rows;
        } else {
            s->guests[class_index] -= is_guest(t);
            t->is_earned = true;
        }
        policy_touch(s->policy, class_index, w->slot);
    }
}

/* Reads misses without a cache slot into the staging slots that are free. */
static void fill_staging(struct stream *s, int class_index)
{
    const struct arena_class *k = &s->arena.class[class_index];
    struct turn *t = &s->turn;
    for (; t->unread < t->wanted && s->free_staging[class_index]; t->unread++) {
        if (s->want[t->unread].slot >= 0)
            continue;
        int i = s->free_slot[k->first_slot + k->slots + --s->free_staging[class_index]];
        take_slot(s, &s->want[t->unread], i);
        start_reading(s, i);
    }
}

bool stream_begin(struct stream *s, int layer, const int32_t *ids, int n, bool is_band,
                  struct err *e)
{
    assert(!s->turn.is_active && layer >= 0 && layer < s->layers);
    s->turn = (struct turn){.layer = layer, .is_band = is_band};
    if (!count_wanted(s, layer, ids, n, e))
        return false;
    int class_index = s->turn.wanted ? class_of_layer(s, layer) : 0;
    if (!is_band && s->turn.wanted > s->arena.class[class_index].slots)
        return err_set(e, ERR_USAGE, "layer %d: a window wants %d experts of an arena of %d slots", layer,
                       s->turn.wanted, s->arena.class[class_index].slots);
    s->turn.is_active = true;
    s->stats.turns++;
    note_sweep(s);
    pin_residents(s);
    if (!s->turn.wanted)
        return true;
    if (is_band)
        claim_for_band(s, class_index);
    else
        claim_for_window(s, class_index);
    note_use(s, class_index);
    fill_staging(s, class_index);
    return true;
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

static void note_arrival(struct stream *s, const struct io_completion *c)
{
    int i = (int)(c->tag / STREAM_PARTS);
    struct slot *t = &s->slot[i];
    assert(t->layer == s->turn.layer && t->is_pinned && t->parts_left);
    if (c->error) {
        fail_turn(s, t, c);
        return; /* parts_left stays above 0: the record will never be whole */
    }
    s->stats.bytes_read += c->bytes;
    s->stats.bytes_urgent += c->bytes;
    if (!--t->parts_left)
        s->ready_slot[s->turn.ready++] = i;
}

/* Takes what has arrived; waits for the first if told to. */
static void collect(struct stream *s, bool wait)
{
    struct io_completion c[32];
    int64_t start = wait ? clock_us() : 0;
    int n = wait ? io_wait(s->queue, c, 32) : io_poll(s->queue, c, 32);
    if (wait)
        s->stats.wait_us += (uint64_t)(clock_us() - start);
    assert(n || !wait);
    for (int i = 0; i < n; i++)
        note_arrival(s, &c[i]);
}

static void hand_out(const struct stream *s, int i, struct stream_record *out)
{
    const struct slot *t = &s->slot[i];
    *out = (struct stream_record){.expert = t->expert};
    for (int p = 0; p < s->layer[t->layer].parts; p++)
        out->part[p] = s->memory + t->first_byte + s->place[t->layer].part_at[p] + t->shift[p];
}

int stream_next(struct stream *s, struct stream_record *out, int most, struct err *e)
{
    struct turn *t = &s->turn;
    assert(t->is_active && most > 0);
    if (t->handed == t->wanted && !t->has_failed)
        return 0;
    int class_index = class_of_layer(s, t->layer);
    while (t->lent)
        push_free(s, s->lent[--t->lent]);
    if (!t->has_failed)
        fill_staging(s, class_index);
    collect(s, false);
    while (!t->has_failed && t->handed == t->ready)
        collect(s, true);
    if (t->has_failed) {
        err_set(e, t->error.code, "%s", t->error.text);
        return -1;
    }
    /* Half of the staging slots go on being read into while the caller works on the others. */
    int n = 0, most_lent = (s->arena.class[class_index].staging + 1) / 2;
    for (; n < most && t->handed < t->ready && t->lent < most_lent; n++) {
        int i = s->ready_slot[t->handed++];
        if (s->slot[i].is_staging)
            s->lent[t->lent++] = i;
        hand_out(s, i, &out[n]);
    }
    return n;
}

/* ---- the end of a turn ---- */

/* Cancels what can be and waits for the rest. */
static void stop_reading(struct stream *s)
{
    for (int j = 0; j < s->turn.wanted && io_outstanding(s->queue); j++) {
        int i = s->want[j].slot;
        for (int p = 0; i >= 0 && s->slot[i].parts_left && p < STREAM_PARTS; p++)
            io_cancel(s->queue, (uint64_t)i * STREAM_PARTS + (uint64_t)p);
    }
    while (io_outstanding(s->queue))
        collect(s, true);
}

void stream_end(struct stream *s)
{
    if (!s->turn.is_active)
        return;
    stop_reading(s);
    for (int j = 0; j < s->turn.wanted; j++) {
        int i = s->want[j].slot;
        struct slot *t = i >= 0 ? &s->slot[i] : NULL;
        if (!t || t->layer < 0) /* never read, or lent before and free since */
            continue;
        bool is_whole = !t->parts_left;
        t->parts_left = 0;
        t->is_pinned = false;
        if (t->is_staging)
            push_free(s, i);
        else if (!is_whole)
            evict(s, i);
    }
    s->turn.is_active = false;
}

/* ---- reports ---- */

void stream_get_stats(const struct stream *s, struct stream_stats *out)
{
    *out = s->stats;
}

void stream_reset_stats(struct stream *s)
{
    s->stats = (struct stream_stats){0};
}

bool stream_is_resident(const struct stream *s, int layer, int expert)
{
    assert(layer >= 0 && layer < s->layers && expert >= 0 && expert < s->layer[layer].experts);
    return s->slot_of[layer][expert] >= 0;
}

uint64_t stream_slots(const struct stream *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < s->arena.classes; i++)
        sum += (uint64_t)s->arena.class[i].slots;
    return sum;
}
