/* SPDX-License-Identifier: Apache-2.0 */
/* The clairvoyant bound. The trace as a list of requests, for each the place of the next request of
 * the same record; then a heap a class of what is resident, the farthest next use on top. Entries
 * that are out of date stay in the heap until they come up. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "stream/replay.h"

#define NEVER INT64_MAX

struct request {
    int32_t record; /* layer * experts + expert */
    int32_t class_index;
    int64_t next; /* index of the next request of the record */
};

struct requests {
    struct request *request;
    size_t n, room;
};

struct entry {
    int64_t next;
    int32_t record;
};

struct heap {
    struct entry *entry;
    size_t n;
};

/* ---- the list ---- */

static bool add(struct requests *q, int32_t record, int class_index, struct err *e)
{
    if (q->n == q->room) {
        size_t room = q->room * 2 + 4096;
        struct request *more = mem_grow(q->request, room * sizeof *more, "requests of a trace", e);
        if (!more)
            return false;
        q->request = more;
        q->room = room;
    }
    q->request[q->n++] =
        (struct request){.record = record, .class_index = class_index, .next = NEVER};
    return true;
}

/* Distinct records of a layer's turn; `seen` [experts] has the number of the last turn that wanted
 * it. */
static bool add_layer(struct requests *q, const struct trace *t, const struct trace_record *r,
                      int layer, int class_index, uint64_t *seen, uint64_t turn, struct err *e)
{
    const struct trace_head *h = trace_head(t);
    int32_t ids[256];
    for (int row = 0; row < r->rows; row++) {
        trace_row(t, r, layer, row, ids, NULL, NULL);
        for (int i = 0; i < h->used; i++) {
            if (seen[ids[i]] == turn)
                continue;
            seen[ids[i]] = turn;
            if (!add(q, layer * h->experts + ids[i], class_index, e))
                return false;
        }
    }
    return true;
}

static bool list_requests(struct requests *q, const struct trace *t, const int *class_of_layer,
                          const atomic_bool *cancel, struct err *e)
{
    const struct trace_head *h = trace_head(t);
    uint64_t *seen = mem_alloc_array((size_t)h->experts, sizeof *seen, "requests of a trace", e),
             turn = 0;
    bool ok = seen != NULL;
    for (int i = 0; ok && i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        for (int l = 0; ok && r.kind <= TRACE_BAND && l < h->layers; l++)
            if (h->layer[l].record_bytes)
                ok = !replay_is_cancelled(cancel, e) &&
                     add_layer(q, t, &r, l, class_of_layer[l], seen, ++turn, e);
    }
    mem_free(seen);
    return ok;
}

/* ---- the heap ---- */

static void swap(struct entry *a, struct entry *b)
{
    struct entry x = *a;
    *a = *b;
    *b = x;
}

static void push(struct heap *h, struct entry x)
{
    size_t i = h->n++;
    for (h->entry[i] = x; i && h->entry[(i - 1) / 2].next < h->entry[i].next; i = (i - 1) / 2)
        swap(&h->entry[i], &h->entry[(i - 1) / 2]);
}

static void pop(struct heap *h)
{
    h->entry[0] = h->entry[--h->n];
    for (size_t i = 0;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            return;
        if (child + 1 < h->n && h->entry[child + 1].next > h->entry[child].next)
            child++;
        if (h->entry[child].next <= h->entry[i].next)
            return;
        swap(&h->entry[child], &h->entry[i]);
        i = child;
    }
}

/* ---- the bound ---- */

/* until[record]: next use of a resident, -1 when it is not resident. */
static bool count(const struct requests *q, struct heap *heaps, int *room, int64_t *until,
                  const atomic_bool *cancel, struct replay_result *out, struct err *e)
{
    for (size_t i = 0; i < q->n; i++) {
        if (replay_is_cancelled(cancel, e))
            return false;
        const struct request *r = &q->request[i];
        struct heap *h = &heaps[r->class_index];
        bool is_hit = until[r->record] >= 0;
        *(is_hit ? &out->hits : &out->misses) += 1;
        room[r->class_index] -= !is_hit;
        until[r->record] = r->next;
        push(h, (struct entry){r->next, r->record});
        while (room[r->class_index] < 0) {
            struct entry top = h->entry[0];
            pop(h);
            if (until[top.record] != top.next)
                continue;
            until[top.record] = -1;
            room[r->class_index]++;
        }
    }
    return true;
}

bool replay_bound(const struct trace *t, const int *slots, int classes, const int *class_of_layer,
                  const atomic_bool *cancel, struct replay_result *out, struct err *e)
{
    const struct trace_head *h = trace_head(t);
    size_t records = (size_t)h->layers * (size_t)h->experts;
    struct requests q = {0};
    struct heap heaps[TRACE_CLASSES] = {0};
    int room[TRACE_CLASSES];
    int64_t *until = mem_alloc_array(records, sizeof *until, "requests of a trace", e);
    bool ok = until && list_requests(&q, t, class_of_layer, cancel, e);
    for (size_t i = 0; ok && i < records; i++)
        until[i] = NEVER;
    for (size_t i = q.n; ok && i-- > 0;) {
        q.request[i].next = until[q.request[i].record];
        until[q.request[i].record] = (int64_t)i;
    }
    for (size_t i = 0; ok && i < records; i++)
        until[i] = -1;
    for (int c = 0; ok && c < classes; c++) {
        room[c] = slots[c];
        heaps[c].entry = mem_alloc_array(q.n + 1, sizeof *heaps[c].entry, "requests of a trace", e);
        ok = heaps[c].entry != NULL;
    }
    ok = ok && count(&q, heaps, room, until, cancel, out, e);
    for (int c = 0; c < TRACE_CLASSES; c++)
        mem_free(heaps[c].entry);
    mem_free(until);
    mem_free(q.request);
    return ok;
}
