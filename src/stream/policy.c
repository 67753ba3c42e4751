/* SPDX-License-Identifier: Apache-2.0 */
/* All policies keep lists, oldest first; they differ in what a list is for: everything (LRU), one
 * layer (LAYER), one layer and one octave of uses (LFU). The lists of a class lie one after the
 * other. */
#include "stream/policy.h"

#include <string.h>

#include "base/mem.h"

/* LFU. Uses are counted in units of 1/USE and lose half of their worth in HALF_LIFE tokens. Worth of
 * a record is the logarithm of its uses, less what it has lost since its last use: that is the
 * counts' own ageing, and FADING besides, for routing follows a text's topic.
 * Two thirds of an octave lie between the layer that comes next and the one that comes last. */
#define STEPS 16 /* of half an octave */
#define USE 256
#define HALF_LIFE 64
#define BAND_USES 92 /* what a use at every token of a long text adds up to: HALF_LIFE / ln 2 */
#define FADING 170   /* of a token, in 1/1024 of an octave: 1/HALF_LIFE + 0.15 */
#define DISTANCE 700 /* likewise, through all layers */

/* Links are slot numbers, -1 at the ends. */
struct link {
    int32_t older, newer;
    int32_t list;   /* inside its class */
    int32_t record; /* that the slot holds */
    uint32_t time;  /* of its last use: LAYER: pass, LFU: token */
};

/* Uses of a record, as they were worth at a token. */
struct uses {
    uint32_t count, token;
};

struct ends {
    int32_t oldest, newest;
};

struct policy {
    enum policy_kind kind;
    int classes, slots, layers;
    int lists; /* of a class */
    struct link *link; /* [slots] */
    struct ends *ends; /* [classes][lists] */
    int32_t *cursor;   /* [lists] of the walk */
    int layer;         /* of the turn */
    uint32_t pass;     /* passes through the layers so far */
    uint32_t token, rows; /* up to the end of the pass, and of the pass */
    struct uses *uses;    /* LFU: [records] */
    uint32_t worth[HALF_LIFE]; /* of a use so many tokens ago, in 1/65536 */
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

size_t policy_memory(int classes, int slots, int layers, int records)
{
    size_t lists = (size_t)layers * STEPS;
    return sizeof(struct policy) + (size_t)slots * sizeof(struct link) +
           (size_t)records * sizeof(struct uses) + (size_t)classes * lists * sizeof(struct ends) +
           lists * sizeof(int32_t) + 512;
}

struct policy *policy_create(enum policy_kind kind, int classes, int slots, int layers,
                             int records, struct err *e)
{
    struct policy *p = mem_alloc(sizeof *p, "eviction order", e);
    if (!p)
        return NULL;
    *p = (struct policy){.kind = kind, .classes = classes, .slots = slots, .layers = layers};
    p->lists = kind == POLICY_LRU ? 1 : kind == POLICY_LFU ? layers * STEPS : layers;
    double worth = 65536;
    for (int i = 0; i < HALF_LIFE; i++, worth *= 0.98922800905733) /* 2^(-1/64) */
        p->worth[i] = (uint32_t)(worth + 0.5);
    size_t ends = (size_t)classes * (size_t)p->lists;
    p->link = mem_alloc_array((size_t)slots, sizeof *p->link, "eviction order", e);
    p->ends = mem_alloc_array(ends, sizeof *p->ends, "eviction order", e);
    p->cursor = mem_alloc_array((size_t)p->lists, sizeof *p->cursor, "eviction order", e);
    p->uses = mem_alloc_array(kind == POLICY_LFU ? (size_t)records : 0, sizeof *p->uses,
                              "eviction order", e);
    if (!p->link || !p->ends || !p->cursor || !p->uses) {
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
    mem_free(p->uses);
    mem_free(p);
}

static struct ends *ends_of(const struct policy *p, int class_index, int list)
{
    return &p->ends[class_index * p->lists + list];
}

static void append(struct policy *p, int class_index, int slot, int list, int record)
{
    struct ends *ends = ends_of(p, class_index, list);
    p->link[slot] =
        (struct link){.older = ends->newest,
                      .newer = -1,
                      .list = list,
                      .record = record,
                      .time = p->kind == POLICY_LFU ? p->token : p->pass};
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

void policy_begin_turn(struct policy *p, int layer, int rows)
{
    if (layer <= p->layer) {
        p->pass++;
        p->token += (uint32_t)rows;
    }
    p->layer = layer;
    p->rows = (uint32_t)rows;
}

/* A long band's uses are taken to be spread evenly over its rows, and are worth what they are at its
 * end. */
void policy_use(struct policy *p, int record, uint32_t rows)
{
    if (p->kind != POLICY_LFU)
        return;
    struct uses *u = &p->uses[record];
    uint32_t ago = p->token - u->token, halves = ago / HALF_LIFE;
    uint64_t left = halves < 32 ? (uint64_t)u->count * p->worth[ago % HALF_LIFE] >> 16 >> halves : 0;
    uint64_t more = (uint64_t)rows * USE;
    if (p->rows > BAND_USES)
        more = more * BAND_USES / p->rows;
    left += more;
    u->count = left < UINT32_MAX / 2 ? (uint32_t)left : UINT32_MAX / 2;
    u->token = p->token;
}

static int list_of(const struct policy *p, int layer, int record)
{
    if (p->kind != POLICY_LFU)
        return p->kind == POLICY_LAYER ? layer : 0;
    int step = 0;
    for (uint64_t n = (uint64_t)p->uses[record].count << 16; step < STEPS - 1; step++) {
        n = n * 46341 >> 16; /* by the root of two */
        if (n < (uint64_t)USE << 16)
            break;
    }
    return layer * STEPS + step;
}

void policy_admit(struct policy *p, int class_index, int slot, int layer, int record)
{
    append(p, class_index, slot, list_of(p, layer, record), record);
}

void policy_touch(struct policy *p, int class_index, int slot)
{
    struct link l = p->link[slot];
    int layer = p->kind == POLICY_LFU ? l.list / STEPS : l.list;
    policy_remove(p, class_index, slot);
    append(p, class_index, slot, list_of(p, layer, l.record), l.record);
}

/* LFU: what a slot's worth lacks, in 1/1024 of an octave. */
static int64_t lack(const struct policy *p, int slot)
{
    struct link l = p->link[slot];
    int distance = l.list / STEPS - p->layer;
    if (distance <= 0)
        distance += p->layers;
    return (int64_t)(p->token - l.time) * FADING + (int64_t)DISTANCE * distance / p->layers -
           512 * (int64_t)(l.list % STEPS);
}

/* LAYER: how often the layer of a slot has come up since the slot's last use, and then how far it
 * is until it comes up again; one number to compare. */
static uint64_t idleness(const struct policy *p, int slot)
{
    struct link l = p->link[slot];
    uint32_t passed = p->pass - l.time - (l.list > p->layer && p->pass > l.time);
    int distance = l.list - p->layer;
    if (distance <= 0)
        distance += p->layers;
    return (uint64_t)passed << 32 | (uint32_t)distance;
}

static int64_t worthlessness(const struct policy *p, int slot)
{
    return p->kind == POLICY_LFU     ? lack(p, slot)
           : p->kind == POLICY_LAYER ? (int64_t)idleness(p, slot)
                                     : 0;
}

/* The list whose cursor stands at what is worth least. */
static int least_list(const struct policy *p)
{
    int least = -1;
    int64_t most = 0;
    for (int i = 0; i < p->lists; i++) {
        int64_t lacks = p->cursor[i] >= 0 ? worthlessness(p, p->cursor[i]) : 0;
        if (p->cursor[i] < 0 || (least >= 0 && lacks <= most))
            continue;
        least = i;
        most = lacks;
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
