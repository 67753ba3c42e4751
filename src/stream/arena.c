/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/arena.h"

#include <assert.h>
#include <unistd.h>

#include "base/mem.h"

/* Bytes of the largest aligned superset of one part of one record. */
static uint64_t superset_bytes(const struct stream_part *p, int experts, uint64_t align)
{
    uint64_t most = 0;
    for (int x = 0; x < experts; x++) {
        uint64_t from = p->offset + (uint64_t)x * p->bytes;
        uint64_t first = from & ~(align - 1);
        uint64_t bytes = mem_round_up(from + p->bytes, align) - first;
        most = bytes > most ? bytes : most;
    }
    return most;
}

struct arena_layer arena_place_layer(const struct stream_layer *l, size_t io_align)
{
    struct arena_layer a = {0};
    uint64_t at = 0;
    for (int p = 0; l->experts && p < l->parts; p++) {
        a.part_at[p] = at;
        at += superset_bytes(&l->part[p], l->experts, io_align);
    }
    a.bytes = mem_round_up(at, (size_t)sysconf(_SC_PAGESIZE));
    return a;
}

static int least_slots(const struct stream_config *c, int experts)
{
    int64_t window = (int64_t)c->window_rows * c->experts_used;
    return window < experts ? (int)window : experts;
}

static void add_layer(struct arena_class *k, const struct stream_config *c, int experts)
{
    int least = least_slots(c, experts), staging = experts < ARENA_STAGING ? experts : ARENA_STAGING;
    k->records += (uint64_t)experts;
    k->least = least > k->least ? least : k->least;
    k->staging = staging > k->staging ? staging : k->staging;
}

/* Classes by record size, largest first; a class takes what wastes at most 1/16 of its slots, the
 * last one all that is left. Slots are not shared out yet. */
static void make_classes(const struct stream_config *c, size_t io_align, struct arena_layout *a)
{
    *a = (struct arena_layout){0};
    uint64_t limit = UINT64_MAX; /* records below it have no class yet */
    while (limit) {
        uint64_t largest = 0;
        for (int l = 0; l < c->layers; l++) {
            uint64_t bytes = arena_place_layer(&c->layer[l], io_align).bytes;
            if (bytes <= limit && bytes > largest)
                largest = bytes;
        }
        if (!largest)
            return;
        struct arena_class *k = &a->class[a->classes++];
        k->slot_bytes = largest;
        k->least_bytes_above = a->classes < ARENA_CLASSES ? largest - largest / 16 : 0;
        for (int l = 0; l < c->layers; l++) {
            uint64_t bytes = arena_place_layer(&c->layer[l], io_align).bytes;
            if (bytes <= limit && bytes > k->least_bytes_above)
                add_layer(k, c, c->layer[l].experts);
        }
        limit = k->least_bytes_above;
    }
}

static uint64_t class_bytes(const struct arena_layout *a)
{
    uint64_t sum = 0;
    for (int i = 0; i < a->classes; i++)
        sum += a->class[i].records * a->class[i].slot_bytes;
    return sum;
}

static uint64_t staging_bytes(const struct arena_layout *a)
{
    uint64_t sum = 0;
    for (int i = 0; i < a->classes; i++)
        sum += (uint64_t)a->class[i].staging * a->class[i].slot_bytes;
    return sum;
}

/* Smallest cache that works: all classes merged into one. */
static uint64_t least_cache_bytes(const struct arena_layout *a)
{
    int least = 0;
    for (int i = 0; i < a->classes; i++)
        least = a->class[i].least > least ? a->class[i].least : least;
    return a->classes ? (uint64_t)least * a->class[0].slot_bytes : 0;
}

/* Gives every class the same share of its records, then what is left over slot by slot. False when
 * a class would get less than its least. */
static bool share_out(struct arena_layout *a, uint64_t cache_bytes)
{
    double share = (double)cache_bytes / (double)class_bytes(a);
    uint64_t left = cache_bytes;
    for (int i = 0; i < a->classes; i++) {
        struct arena_class *k = &a->class[i];
        double slots = (double)k->records * share;
        uint64_t n = slots < (double)k->records ? (uint64_t)slots : k->records;
        n = n * k->slot_bytes <= left ? n : left / k->slot_bytes;
        k->slots = (int)n;
        left -= n * k->slot_bytes;
    }
    bool enough = true;
    for (int i = 0; i < a->classes; i++) {
        struct arena_class *k = &a->class[i];
        while (left >= k->slot_bytes && (uint64_t)k->slots < k->records) {
            k->slots++;
            left -= k->slot_bytes;
        }
        enough = enough && k->slots >= k->least;
    }
    return enough;
}

/* Merges the class of the smallest records into the next larger one. */
static void merge_smallest(struct arena_layout *a)
{
    struct arena_class *small = &a->class[--a->classes], *large = small - 1;
    large->least_bytes_above = small->least_bytes_above;
    large->records += small->records;
    large->least = small->least > large->least ? small->least : large->least;
    large->staging = small->staging > large->staging ? small->staging : large->staging;
}

static void number_slots(struct arena_layout *a)
{
    for (int i = 0; i < a->classes; i++) {
        struct arena_class *k = &a->class[i];
        k->first_slot = a->slots;
        k->first_byte = a->bytes;
        a->slots += k->slots + k->staging;
        a->bytes += (uint64_t)(k->slots + k->staging) * k->slot_bytes;
    }
}

bool arena_cut(const struct stream_config *c, size_t io_align, struct arena_layout *out,
               struct err *e)
{
    make_classes(c, io_align, out);
    if (!out->classes)
        return true;
    uint64_t staging = staging_bytes(out), least = least_cache_bytes(out) + staging;
    if (c->arena_bytes < least)
        return err_set(e, ERR_MEMORY,
                       "an arena of %llu bytes cannot hold what one window of %d row%s needs; the "
                       "least is %llu",
                       (unsigned long long)c->arena_bytes, c->window_rows,
                       c->window_rows == 1 ? "" : "s", (unsigned long long)least);
    while (!share_out(out, c->arena_bytes - staging)) {
        assert(out->classes > 1);
        merge_smallest(out);
    }
    number_slots(out);
    return true;
}

int arena_class_of(const struct arena_layout *a, const struct arena_layer *l)
{
    int i = 0;
    while (l->bytes <= a->class[i].least_bytes_above)
        i++;
    assert(i < a->classes && l->bytes <= a->class[i].slot_bytes);
    return i;
}

uint64_t stream_staging_bytes(const struct stream_config *c, size_t io_align)
{
    struct arena_layout a;
    make_classes(c, io_align, &a);
    return staging_bytes(&a);
}

uint64_t stream_least_bytes(const struct stream_config *c, size_t io_align)
{
    struct arena_layout a;
    make_classes(c, io_align, &a);
    return least_cache_bytes(&a) + staging_bytes(&a);
}

uint64_t stream_all_bytes(const struct stream_config *c, size_t io_align)
{
    struct arena_layout a;
    make_classes(c, io_align, &a);
    return class_bytes(&a) + staging_bytes(&a);
}

uint64_t stream_cycle_bytes(const struct stream_config *c, size_t io_align)
{
    struct arena_layout a;
    make_classes(c, io_align, &a);
    uint64_t sum = staging_bytes(&a);
    for (int l = 0; l < c->layers; l++) {
        struct arena_layer place = arena_place_layer(&c->layer[l], io_align);
        int used = c->layer[l].experts < c->experts_used ? c->layer[l].experts : c->experts_used;
        if (used)
            sum += (uint64_t)used * a.class[arena_class_of(&a, &place)].slot_bytes;
    }
    return sum;
}

uint64_t arena_most_slots(const struct stream_config *c, size_t io_align)
{
    struct arena_layout a;
    uint64_t sum = 0;
    make_classes(c, io_align, &a);
    for (int i = 0; i < a.classes; i++)
        sum += a.class[i].records + (uint64_t)a.class[i].staging;
    return sum;
}

uint64_t stream_count_slots(const struct stream_config *c, size_t io_align)
{
    struct arena_layout a;
    uint64_t sum = 0;
    for (int i = 0; arena_cut(c, io_align, &a, NULL) && i < a.classes; i++)
        sum += (uint64_t)a.class[i].slots;
    return sum;
}

uint64_t stream_expert_bytes(const struct stream_config *c)
{
    uint64_t sum = 0;
    for (int l = 0; l < c->layers; l++)
        for (int p = 0; p < c->layer[l].parts; p++)
            sum += (uint64_t)c->layer[l].experts * c->layer[l].part[p].bytes;
    return sum;
}
