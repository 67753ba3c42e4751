/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that are given back to the system, by steps, and taken again (docs/streaming.md, "Memory
 * plan and arena"). What a turn computes does not depend on it. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "stream/inner.h"
#include "stream/pressure.h"

#define STEP_SHARE 16    /* a step is this part of the places */
#define CHECK_US 1000000 /* the system is asked so often */
#define CALM_US 30000000 /* without pressure, before slots are taken again */

void resize_begin(struct stream *s, const char *root, int64_t check_us, int64_t calm_us)
{
    s->watched = (struct memory_watch){
        .root = root, .check_us = check_us, .calm_us = calm_us, .seen = pressure_read(root)};
}

void resize_begin_by_default(struct stream *s)
{
    resize_begin(s, "", CHECK_US, CALM_US);
}

static void give_back_slot(struct stream *s, int i)
{
    struct slot *t = &s->slot[i];
    char *memory = s->memory + t->first_byte;
    size_t bytes = (size_t)s->arena.class[t->class_index].slot_bytes;
    if (s->is_locked)
        munlock(memory, bytes);
    madvise(memory, bytes, MADV_DONTNEED);
    t->role = SLOT_GONE;
    s->pool[t->class_index].gone++;
}

static int give_back(struct stream *s, int class_index, int n)
{
    struct pool *p = &s->pool[class_index];
    int most = p->capacity - s->arena.class[class_index].least;
    n = n < most ? n : most;
    if (n <= 0)
        return 0;
    p->capacity -= n;
    victims_shrink(s, class_index, p->capacity);
    for (int j = 0; j < n; j++)
        give_back_slot(s, slot_take(s, class_index));
    return n;
}

static int take_again(struct stream *s, int class_index, int n)
{
    const struct arena_class *k = &s->arena.class[class_index];
    struct pool *p = &s->pool[class_index];
    int taken = 0;
    for (int i = k->first_slot; i < k->first_slot + k->slots + k->staging && taken < n; i++)
        if (s->slot[i].role == SLOT_GONE) {
            if (s->is_locked)
                mlock(s->memory + s->slot[i].first_byte, (size_t)k->slot_bytes);
            slot_release(s, i);
            p->gone--;
            p->capacity++;
            taken++;
        }
    return taken;
}

int stream_resize(struct stream *s, int slots)
{
    int64_t all = (int64_t)stream_slots(s);
    int changed = 0;
    assert(!s->turn.is_active);
    if (slots > 0) { /* registered memory is pinned: giving it back would change nothing */
        clearing_stop(s->clearing);
        s->clearing = NULL;
        io_forget_memory(s->io, s->memory, (size_t)s->arena.bytes);
        turn_collect(s, false);
    }
    for (int c = 0; c < s->arena.classes; c++) {
        int n = (int)((int64_t)(slots < 0 ? -slots : slots) * s->arena.class[c].slots / all);
        n = n ? n : 1;
        changed += slots > 0 ? give_back(s, c, n) : -take_again(s, c, n);
    }
    return changed;
}

void resize_by_pressure(struct stream *s)
{
    struct memory_watch *w = &s->watched;
    int64_t now = clock_us();
    if (now - w->checked_us < w->check_us)
        return;
    struct pressure seen = pressure_read(w->root);
    bool is_high = pressure_is_high(&seen, &w->seen);
    bool is_exact = s->moce.lambda <= 0 && s->moce.budget <= 0, may = is_exact || s->gives_back_bent;
    w->checked_us = now;
    w->seen = seen;
    if (is_high && !may) {
        if (!w->was_refused)
            log_note("the system is short of memory, but the arena gives nothing back: with "
                     "cache-aware routing its size would change the text");
        w->was_refused = true;
        return;
    }
    int step = (int)stream_slots(s) / STEP_SHARE;
    step = step ? step : 1;
    if (is_high) {
        w->calm_since_us = now;
        int n = stream_resize(s, step);
        if (n)
            log_note("the system is short of memory: %d slot%s of the arena %s given back%s", n,
                     n == 1 ? "" : "s", n == 1 ? "is" : "are",
                     is_exact ? "" : "; with cache-aware routing this changes the text");
    } else if (may && now - w->calm_since_us > w->calm_us) {
        w->calm_since_us = now;
        stream_resize(s, -step);
    }
}
