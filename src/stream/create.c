/* SPDX-License-Identifier: Apache-2.0 */
/* A stream from its configuration, its sizes for the plan, and its reports. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#ifdef __linux__
#include <sys/sysinfo.h>
#endif

#include "base/log.h"
#include "base/mem.h"
#include "stream/inner.h"

/* ---- checks ---- */

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
            return err_set(e, ERR_FORMAT,
                           "%s: part %d of the experts of layer %d passes the file's end",
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
    return c->split <= STREAM_SPLIT_MOST ||
           err_set(e, ERR_USAGE, "reads in %d pieces; at most %d are possible", c->split,
                   STREAM_SPLIT_MOST);
}

/* ---- sizes ---- */

static int most_experts(const struct stream_config *c)
{
    int most = 1;
    for (int l = 0; l < c->layers; l++)
        most = c->layer[l].experts > most ? c->layer[l].experts : most;
    return most;
}

static uint64_t count_records(const struct stream_config *c)
{
    uint64_t records = 0;
    for (int l = 0; l < c->layers; l++)
        records += (uint64_t)c->layer[l].experts;
    return records;
}

/* Counters of the learned table between a layer and the one that is guessed there. */
static uint64_t table_entries(const struct stream_config *c, int layer)
{
    int guessed = layer + (c->ahead.distance > 1 ? c->ahead.distance : 1);
    if (c->ahead.kind != STREAM_GUESS_TABLE || guessed >= c->layers)
        return 0;
    return (uint64_t)c->layer[layer].experts * (uint64_t)c->layer[guessed].experts;
}

/* Every slot may have its parts queued at once, the urgent ones of a turn in pieces. */
static uint64_t most_requests(const struct stream_config *c, uint64_t slots)
{
    int split = c->split > 1 ? c->split : 1;
    return slots * STREAM_PARTS + (uint64_t)most_experts(c) * STREAM_PARTS * (uint64_t)(split - 1);
}

uint64_t stream_table_bytes(const struct stream_config *c, size_t io_align)
{
    uint64_t most = (uint64_t)most_experts(c), records = count_records(c);
    uint64_t slots = arena_most_slots(c, io_align), layers = (uint64_t)c->layers;
    uint64_t keys = records > slots ? records : slots;
    uint64_t a_slot = sizeof(struct slot) + 3 * sizeof(int32_t);
    uint64_t a_record = sizeof(int32_t) + 3 * sizeof(uint32_t) + sizeof(uint8_t);
    uint64_t a_layer = sizeof(struct stream_layer) + sizeof(struct arena_layer) +
                       sizeof(int32_t *) + 2 * sizeof(int) + sizeof(size_t) +
                       sizeof(struct guess_record) + sizeof(struct layer_routing) +
                       (uint64_t)c->experts_used * sizeof(int32_t);
    uint64_t an_expert = sizeof(struct want) + 3 * sizeof(uint32_t) + sizeof(float);
    uint64_t table = 0;
    for (int l = 0; l < c->layers; l++)
        table += table_entries(c, l) * sizeof(uint16_t);
    return sizeof(struct stream) + slots * a_slot + records * a_record + layers * a_layer +
           (most + 1) * an_expert + (keys + most) * sizeof(uint64_t) + table +
           policy_memory(ARENA_CLASSES, (int)slots, c->layers, (int)records) +
           io_queue_memory((int)most_requests(c, slots), slots * PIECES_MOST) + 8192;
}

/* ---- creation ---- */

static bool copy_layers(struct stream *s, const struct stream_config *c, struct err *e)
{
    size_t n = (size_t)c->layers;
    s->layers = c->layers;
    s->records = (int)count_records(c);
    s->layer = mem_alloc_array(n, sizeof *s->layer, "expert layers", e);
    s->place = mem_alloc_array(n, sizeof *s->place, "expert layers", e);
    s->home = mem_alloc_array(n, sizeof *s->home, "expert table", e);
    s->record_of = mem_alloc_array(n, sizeof *s->record_of, "expert table", e);
    s->residents_of = mem_alloc_array(n, sizeof *s->residents_of, "expert table", e);
    s->home_block = mem_alloc_array((size_t)s->records, sizeof *s->home_block, "expert table", e);
    if (!s->layer || !s->place || !s->home || !s->record_of || !s->residents_of || !s->home_block)
        return false;
    memset(s->home_block, 0xff, (size_t)s->records * sizeof *s->home_block);
    for (int l = 0, record = 0; l < c->layers; record += c->layer[l++].experts) {
        s->layer[l] = c->layer[l];
        s->place[l] = arena_place_layer(&c->layer[l], io_align(s->io));
        s->record_of[l] = record;
        s->home[l] = s->home_block + record;
        s->last_layer = c->layer[l].experts ? l : s->last_layer;
    }
    while (s->first_layer < s->last_layer && !c->layer[s->first_layer].experts)
        s->first_layer++;
    return true;
}

static bool allocate_tables(struct stream *s, const struct stream_config *c, struct err *e)
{
    size_t most = (size_t)s->most_experts, layers = (size_t)s->layers, records = (size_t)s->records;
    size_t entries = 0;
    s->want = mem_alloc_array(most, sizeof *s->want, "turn", e);
    s->ready_slot = mem_alloc_array(most, sizeof *s->ready_slot, "turn", e);
    s->rows = mem_alloc_array(most, sizeof *s->rows, "turn", e);
    s->ahead_expert = mem_alloc_array(most, sizeof *s->ahead_expert, "turn", e);
    s->bonus = mem_alloc_array(most, sizeof *s->bonus, "router bonus", e);
    s->count = mem_alloc_array(records, sizeof *s->count, "popularity", e);
    s->heat = mem_alloc_array(records, sizeof *s->heat, "popularity", e);
    s->left_turn = mem_alloc_array(records, sizeof *s->left_turn, "expert table", e);
    s->rank = mem_alloc_array(records, sizeof *s->rank, "guesses", e);
    s->guesses = mem_alloc_array(layers, sizeof *s->guesses, "guesses", e);
    s->routing = mem_alloc_array(layers, sizeof *s->routing, "router bonus", e);
    s->previous =
        mem_alloc_array(layers * (size_t)s->experts_used, sizeof *s->previous, "guesses", e);
    s->follows_at = mem_alloc_array(layers, sizeof *s->follows_at, "guesses", e);
    for (int l = 0; s->follows_at && l < s->layers; l++) {
        s->follows_at[l] = entries;
        entries += table_entries(c, l);
    }
    s->follows = mem_alloc_array(entries, sizeof *s->follows, "guesses", e);
    return s->want && s->ready_slot && s->rows && s->ahead_expert && s->bonus && s->count &&
           s->heat && s->left_turn && s->rank && s->guesses && s->routing && s->previous &&
           s->follows_at && s->follows;
}

static bool allocate_slots(struct stream *s, const struct stream_config *c, struct err *e)
{
    size_t slots = (size_t)s->arena.slots,
           keys = slots > (size_t)s->records ? slots : (size_t)s->records;
    s->slot = mem_alloc_array(slots, sizeof *s->slot, "slots", e);
    s->free_slot = mem_alloc_array(slots, sizeof *s->free_slot, "slots", e);
    s->lent_slot = mem_alloc_array(slots, sizeof *s->lent_slot, "slots", e);
    s->by_age = mem_alloc_array(slots, sizeof *s->by_age, "turn", e);
    s->key = mem_alloc_array(keys, sizeof *s->key, "turn", e);
    s->policy = policy_create(c->policy, s->arena.classes, s->arena.slots, c->layers, s->records, e);
    s->queue = io_queue_create(s->io, (int)most_requests(c, slots), e);
    s->memory = (c->has_no_memory ? mem_map_addresses : mem_map)((size_t)s->arena.bytes,
                                                                 "the arena of experts", e);
    return s->slot && s->free_slot && s->lent_slot && s->by_age && s->key && s->policy &&
           s->queue && s->memory && io_queue_index_tags(s->queue, slots * PIECES_MOST, e);
}

/* Swapping would undo all that the arena is for. */
static void lock_arena(struct stream *s)
{
#ifdef MLOCK_ONFAULT
    s->is_locked = s->arena.bytes && !mlock2(s->memory, (size_t)s->arena.bytes, MLOCK_ONFAULT);
#else
    s->is_locked = s->arena.bytes && !mlock(s->memory, (size_t)s->arena.bytes);
#endif
}

static bool has_swap(void)
{
#ifdef __linux__
    struct sysinfo now;
    return !sysinfo(&now) && now.totalswap;
#else
    return true;
#endif
}

/* Most systems let a user lock a few MiB. Without swap all that is lost by that is that each read
 * finds its pages anew: no news. */
static void say_what_limits_cost(bool is_swappable, bool is_registered)
{
    static atomic_bool said;
    if (is_swappable && has_swap())
        log_note_once(&said,
                      "the limit of locked memory (`ulimit -l`) is lower than the arena of "
                      "experts: the system may swap experts out%s; `ulimit -l unlimited` before "
                      "the start helps, where it is allowed",
                      is_registered ? "" : ", and each read finds its memory anew");
    else if (is_swappable || !is_registered)
        log_detail("the limit of locked memory (`ulimit -l`) is too low to %s the arena",
                   is_registered   ? "lock"
                   : is_swappable ? "lock, or to register for reading, all of"
                                  : "register for reading all of");
}

/* Memory of a class that is cleared before it is used: what a large model's token reads. */
#define CLEAR_BYTES ((uint64_t)256 << 20)

static void remember(void *ctx, char *memory, uint64_t bytes)
{
    io_remember_memory(ctx, memory, (size_t)bytes);
}

/* Slots of a class are first used in the order of their places (slots_free_all). */
static bool start_clearing(struct stream *s)
{
    uint64_t first[ARENA_CLASSES], bytes[ARENA_CLASSES];
    for (int c = 0; c < s->arena.classes; c++) {
        const struct arena_class *k = &s->arena.class[c];
        first[c] = k->first_byte;
        bytes[c] = (uint64_t)(k->slots + k->staging) * k->slot_bytes;
    }
    bool may_register = io_expect_memory(s->io, (size_t)s->arena.bytes);
    s->clearing = clearing_start(s->memory, first, bytes, s->arena.classes, CLEAR_BYTES, remember,
                                 s->io);
    return may_register;
}

struct stream *stream_create(const struct stream_config *c, struct io *io, struct err *e)
{
    if (!check_config(c, io, e))
        return NULL;
    struct stream *s = mem_alloc(sizeof *s, "stream", e);
    if (!s)
        return NULL;
    s->io = io;
    s->most_experts = most_experts(c);
    s->window_rows = c->window_rows;
    s->experts_used = c->experts_used;
    s->split = c->split > 1 ? c->split : 1;
    s->ahead_options = c->ahead;
    s->ahead_options.distance = c->ahead.distance > 1 ? c->ahead.distance : 1;
    s->has_look_ahead = !c->no_look_ahead;
    s->no_overlap = c->no_overlap;
    s->gives_back = c->gives_back;
    s->gives_back_bent = c->gives_back_bent;
    if (c->gives_back)
        resize_begin_by_default(s);
    if (!arena_cut(c, io_align(io), &s->arena, e) || !copy_layers(s, c, e) ||
        !allocate_tables(s, c, e) || !allocate_slots(s, c, e)) {
        stream_free(s);
        return NULL;
    }
    slots_free_all(s);
    memset(s->rank, NO_RANK, (size_t)s->records);
    memset(s->previous, 0xff, (size_t)s->layers * (size_t)s->experts_used * sizeof *s->previous);
    s->sweep_layer = c->layers;
    if (c->lock)
        lock_arena(s);
    if (s->arena.bytes && !c->has_no_memory) {
        bool is_registered = start_clearing(s);
        say_what_limits_cost(c->lock && !s->is_locked, is_registered);
    }
    return s;
}

void stream_free(struct stream *s)
{
    if (!s)
        return;
    io_queue_close(s->queue);
    clearing_stop(s->clearing);
    if (s->memory)
        io_forget_memory(s->io, s->memory, (size_t)s->arena.bytes);
    mem_unmap(s->memory, (size_t)s->arena.bytes);
    policy_free(s->policy);
    void *const blocks[] = {
        s->layer,        s->place,      s->home,      s->home_block,   s->record_of,
        s->slot,         s->free_slot,  s->lent_slot, s->by_age,       s->key,
        s->want,         s->ready_slot, s->rows,      s->ahead_expert, s->bonus,
        s->residents_of, s->count,      s->heat,      s->left_turn,    s->rank,
        s->guesses,      s->routing,    s->previous,  s->follows_at,   s->follows};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        mem_free(blocks[i]);
    mem_free(s);
}

/* ---- reports ---- */

static uint64_t major_faults(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (uint64_t)r.ru_majflt;
}

void stream_get_stats(const struct stream *s, struct stream_stats *out)
{
    *out = s->stats;
    out->major_faults = major_faults() - s->stats.major_faults;
    out->drive_busy_us = io_busy_us(s->io) - s->stats.drive_busy_us;
    out->drive_wanted_us = io_wanted_us(s->io) - s->stats.drive_wanted_us;
    out->displaced = s->displaced_rows ? s->displaced / (double)s->displaced_rows : 0;
}

void stream_reset_stats(struct stream *s)
{
    s->stats = (struct stream_stats){.drive_busy_us = io_busy_us(s->io),
                                     .drive_wanted_us = io_wanted_us(s->io),
                                     .major_faults = major_faults()};
    ahead_pause_guard(s);
    s->displaced = 0;
    s->displaced_rows = 0;
}

void stream_set_watch(struct stream *s, const struct stream_watch *w)
{
    s->watch = w ? *w : (struct stream_watch){0};
}

void stream_set_cancel(struct stream *s, const _Atomic bool *cancel)
{
    s->cancel = cancel;
}

bool stream_is_resident(const struct stream *s, int layer, int expert)
{
    assert(layer >= 0 && layer < s->layers && expert >= 0 && expert < s->layer[layer].experts);
    return is_resident(s, layer, expert);
}

uint64_t stream_slots(const struct stream *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < s->arena.classes; i++)
        sum += (uint64_t)s->arena.class[i].slots;
    return sum;
}
