/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "stream/clearing.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/thread.h"

#define PIECE_BYTES ((uint64_t)4 << 20)

struct area {
    char *memory;
    uint64_t bytes, ahead;
    uint64_t told; /* of the thread alone */
    _Atomic uint64_t used, cleared; /* written by the stream's thread and by the other one */
};

struct clearing {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t go_on;
    bool stop; /* guarded by the lock */
    clearing_done *done;
    void *ctx;
    int areas;
    struct area area[CLEARING_AREAS];
};

#ifdef MADV_POPULATE_WRITE
static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Clears one piece of an area; false: there is none to clear now. */
static bool clear_piece(struct area *a, bool *is_possible)
{
    uint64_t at = atomic_load(&a->cleared), used = atomic_load(&a->used);
    if (at >= a->bytes || at >= used + a->ahead)
        return false;
    uint64_t n = least(PIECE_BYTES, a->bytes - at);
    *is_possible = !madvise(a->memory + at, n, MADV_POPULATE_WRITE);
    atomic_store(&a->cleared, at + n);
    return true;
}

static void tell(const struct clearing *c, struct area *a)
{
    uint64_t cleared = atomic_load(&a->cleared), n = cleared - a->told;
    if (!c->done || !n || (n < CLEARING_TOLD && cleared < a->bytes))
        return;
    c->done(c->ctx, a->memory + a->told, n);
    a->told = cleared;
}

/* Whether a quarter of what is to be clear beyond what is used is missing. */
static bool is_wanted(const struct area *a)
{
    uint64_t cleared = atomic_load(&a->cleared);
    return cleared < a->bytes && cleared < atomic_load(&a->used) + a->ahead - a->ahead / 4;
}

static void *clear_all(void *arg)
{
    struct clearing *c = arg;
    bool is_possible = true;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && is_possible) {
        bool any_left = false, did_any = false;
        for (int i = 0; i < c->areas && is_possible; i++) {
            pthread_mutex_unlock(&c->lock);
            did_any |= clear_piece(&c->area[i], &is_possible);
            if (is_possible)
                tell(c, &c->area[i]);
            pthread_mutex_lock(&c->lock);
            any_left |= atomic_load(&c->area[i].cleared) < c->area[i].bytes;
        }
        if (!any_left)
            break;
        bool any_wanted = did_any;
        for (int i = 0; i < c->areas; i++)
            any_wanted |= is_wanted(&c->area[i]);
        if (!c->stop && !any_wanted)
            pthread_cond_wait(&c->go_on, &c->lock);
    }
    for (int i = 0; i < c->areas && !is_possible; i++) /* nobody waits for more */
        atomic_store(&c->area[i].cleared, c->area[i].bytes);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

struct clearing *clearing_start(char *memory, const uint64_t *first, const uint64_t *bytes,
                                int areas, uint64_t ahead, clearing_done *done, void *ctx)
{
    struct err ignored = {0};
    struct clearing *c = mem_alloc(sizeof *c, "clearing", &ignored);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->go_on, NULL);
    c->areas = areas;
    c->done = done;
    c->ctx = ctx;
    for (int i = 0; i < areas; i++) {
        c->area[i].memory = memory + first[i];
        c->area[i].bytes = bytes[i];
        c->area[i].ahead = ahead;
    }
    if (thread_start(&c->thread, NULL, clear_all, c)) {
        pthread_cond_destroy(&c->go_on);
        pthread_mutex_destroy(&c->lock);
        mem_free(c);
        return NULL;
    }
    return c;
}

void clearing_note(struct clearing *c, int area, uint64_t end)
{
    struct area *a = &c->area[area];
    if (end <= atomic_load_explicit(&a->used, memory_order_relaxed))
        return;
    atomic_store(&a->used, end);
    if (!is_wanted(a))
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_signal(&c->go_on);
    pthread_mutex_unlock(&c->lock);
}

void clearing_stop(struct clearing *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->go_on);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->go_on);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}
#else
struct clearing *clearing_start(char *memory, const uint64_t *first, const uint64_t *bytes,
                                int areas, uint64_t ahead, clearing_done *done, void *ctx)
{
    return NULL;
}

void clearing_note(struct clearing *c, int area, uint64_t end)
{
}

void clearing_stop(struct clearing *c)
{
}
#endif
