/* SPDX-License-Identifier: Apache-2.0 */
/* All policies keep lists, oldest first; they differ in what a list is for: everything (LRU), one
 * number of uses (LFU), one layer (LAYER). The lists of a class lie one after the other. */
#include "stream/policy.h"

#include <string.h>

#include "base/mem.h"

#define LFU_LEVELS 16 /* uses that are told apart */
#define LFU_AGE 8     /* uses count half after this many times as many touches as there are slots */

/* Links are slot numbers, -1 at the ends. */
struct link {
    int32_t older, newer;
    int32_t list;  /* inside its class */
    uint32_t pass; /* LAYER: in which it was used last */
};

struct ends {
    int32_t oldest, newest;
};

struct policy {
    enum policy_kind kind;
    int classes, slots, layers;
    int lists;         /* of a class */
    struct link *link; /* [slots] */
    struct ends *ends; /* [classes][lists] */
    int32_t *cursor;   /* [lists] of the walk */
    int layer;         /* of the turn */
    uint32_t pass;     /* passes through the layers so far */
    uint64_t touches;  /* since uses were halved */
};

static const char *const names[] = {"lru", "lfu", "layer"};

bool policy_parse(const char *text, enum policy_kind *out, struct err *e)
{
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *out = (enum policy_kind)i;
            return true;
        }
    return err_set(e, ERR_USAGE, "--policy: \"%s\" is none of lru, lfu, layer", text);
}

const char *policy_name(enum policy_kind kind)
{
    return names[kind];
}

static int most_lists(int layers)
{
    return layers > LFU_LEVELS ? layers : LFU_LEVELS;
}

size_t policy_memory(int classes, int slots, int layers)
{
    size_t lists = (size_t)most_lists(layers);
    return sizeof(struct policy) + (size_t)slots * sizeof(struct link) +
           (size_t)classes * lists * sizeof(struct ends) + lists * sizeof(int32_t) + 512;
}

struct policy *policy_create(enum policy_kind kind, int classes, int slots, int layers,
                             struct err *e)
{
    struct policy *p = mem_alloc(sizeof *p, "eviction order", e);
    if (!p)
        return NULL;
    *p = (struct policy){.kind = kind, .classes = classes, .slots = slots, .layers = layers};
    p->lists = kind == POLICY_LRU ? 1 : kind == POLICY_LFU ? LFU_LEVELS : layers;
    size_t ends = (size_t)classes * (size_t)p->lists;
    p->link = mem_alloc_array((size_t)slots, sizeof *p->link, "eviction order", e);
    p->ends = mem_alloc_array(ends, sizeof *p->ends, "eviction order", e);
    p->cursor = mem_alloc_array((size_t)p->lists, sizeof *p->cursor, "eviction order", e);
    if (!p->link || !p->ends || !p->cursor) {
        policy_free(p);
        return NULL;
    }
    for (size_t i = 0; i < ends; i++)
        p->ends[i] = (struct ends){-1, -1};
    return p;
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    mem_free(p->link);
    mem_free(p->ends);
    mem_free(p->cursor);
    mem_free(p);
}

static struct ends *ends_of(const struct policy *p, int class_index, int list)
{
    return &p->ends[class_index * p->lists + list];
}

static void append(struct policy *p, int class_index, int slot, int list)
{
    struct ends *ends = ends_of(p, class_index, list);
    p->link[slot] =
        (struct link){.older = ends->newest, .newer = -1, .list = list, .pass = p->pass};
    *(ends->newest >= 0 ? &p->link[ends->newest].newer : &ends->oldest) = slot;
    ends->newest = slot;
}

void policy_remove(struct policy *p, int class_index, int slot)
{
    struct link l = p->link[slot];
    struct ends *ends = ends_of(p, class_index, l.list);
    *(l.older >= 0 ? &p->link[l.older].newer : &ends->oldest) = l.newer;
    *(l.newer >= 0 ? &p->link[l.newer].older : &ends->newest) = l.older;
}

/* Every level's list goes behind that of half the level. */
static void halve_uses(struct policy *p)
{
    p->touches = 0;
    for (int c = 0; c < p->classes; c++)
        for (int level = 1; level < LFU_LEVELS; level++) {
            struct ends *ends = ends_of(p, c, level);
            while (ends->oldest >= 0) {
                int slot = ends->oldest;
                policy_remove(p, c, slot);
                append(p, c, slot, level / 2);
            }
        }
}

void policy_begin_turn(struct policy *p, int layer)
{
    p->pass += layer <= p->layer;
    p->layer = layer;
    if (p->kind == POLICY_LFU && p->touches > (uint64_t)LFU_AGE * (uint64_t)p->slots)
        halve_uses(p);
}

void policy_admit(struct policy *p, int class_index, int slot, int layer)
{
    append(p, class_index, slot, p->kind == POLICY_LAYER ? layer : 0);
}

void policy_touch(struct policy *p, int class_index, int slot)
{
    int list = p->link[slot].list;
    if (p->kind == POLICY_LFU && list < LFU_LEVELS - 1)
        list++;
    p->touches++;
    policy_remove(p, class_index, slot);
    append(p, class_index, slot, list);
}

/* LAYER: how often the layer of a slot has come up since the slot's last use, and then how far it
 * is until it comes up again; one number to compare. */
static uint64_t idleness(const struct policy *p, int slot)
{
    struct link l = p->link[slot];
    uint32_t passed = p->pass - l.pass - (l.list > p->layer && p->pass > l.pass);
    int distance = l.list - p->layer;
    if (distance <= 0)
        distance += p->layers;
    return (uint64_t)passed << 32 | (uint32_t)distance;
}

/* The list whose cursor stands at what is worth least. */
static int least_list(const struct policy *p)
{
    int least = -1;
    for (int i = 0; i < p->lists; i++) {
        if (p->cursor[i] < 0)
            continue;
        if (p->kind != POLICY_LAYER)
            return i;
        if (least < 0 || idleness(p, p->cursor[i]) > idleness(p, p->cursor[least]))
            least = i;
    }
    return least;
}

int policy_victim(struct policy *p, int class_index, int after)
{
    if (after < 0)
        for (int i = 0; i < p->lists; i++)
            p->cursor[i] = ends_of(p, class_index, i)->oldest;
    else
        p->cursor[p->link[after].list] = p->link[after].newer;
    int list = least_list(p);
    return list < 0 ? -1 : p->cursor[list];
}
