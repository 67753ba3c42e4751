/* SPDX-License-Identifier: Apache-2.0 */
/* How a run works: the caller publishes function, context and chunk count, then raises `epoch`.
 * Workers take chunk numbers from one counter. The counter holds the epoch in its upper half, so a
 * worker that wakes late can never take a chunk of a newer run with an older function.
 * A worker spins for about 60 us after its last work, then sleeps on a futex-like condition
 * (kernels.md section 8). The caller waits for chunks, not for threads.
 * Beside another busy process a thread has its core for one time slice in two. A worker that has not is
 * made up for by those who take its chunks, a caller by nobody: where it has the company, it changes
 * places with a worker. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/thread.h"

#define SPIN_US 60
/* How often the caller looks how long it had to wait for its core. */
#define LOOK_US 16000

struct job {
    pool_fn *fn;
    void *ctx;
    uint32_t n_chunks;
    struct laps *laps;
    int row; /* that the caller works for */
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
    int cpu;           /* the core it is pinned to, if each has one; of the caller in a pass */
    atomic_int tid;
    int64_t waited_us; /* how long it had waited for its core when the caller looked */
};

struct pool {
    int threads;
    struct laps *laps;          /* NULL: nobody asked */
    struct worker *workers;     /* [threads], entry 0 is the caller */
    _Atomic uint64_t next;      /* epoch << 32 | next chunk to take */
    _Atomic uint32_t left;      /* chunks of this epoch not yet done */
    _Atomic uint32_t epoch;     /* raised when a job is published */
    _Atomic uint32_t busy;      /* workers between looking at `open` and leaving the job */
    _Atomic bool open;          /* the job may be read */
    _Atomic int sleepers;
    _Atomic bool quit;
    struct job job;             /* written by the caller only while no worker is busy */
    pthread_mutex_t lock;       /* guards sleeping only */
    pthread_cond_t wake;
#ifdef __linux__
    bool has_core_each;         /* then the caller's, and what it had before its pass */
    bool is_caller_pinned;
    bool has_company;           /* the caller had to wait for its core */
    int64_t looked_us;
    cpu_set_t caller_before;
#endif
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void pool_wait(atomic_int *counter, int n)
{
    for (int i = 1; atomic_load_explicit(counter, memory_order_acquire) < n; i++) {
        relax();
        /* More threads than cores: let the one that is at it run. Not soon, though: who waits here holds
         * a chunk, and beside a busy process gives its core away for a whole time slice. */
        if (i > 8192 && i % 256 == 0)
            sched_yield();
    }
}

/* Takes and does chunks of `epoch` until none is left. */
static void work(struct pool *p, uint32_t epoch, const struct job *job, int worker)
{
    for (;;) {
        uint64_t t = atomic_load_explicit(&p->next, memory_order_acquire);
        do {
            if ((uint32_t)(t >> 32) != epoch || (uint32_t)t >= job->n_chunks)
                return;
        } while (!atomic_compare_exchange_weak_explicit(&p->next, &t, t + 1, memory_order_acq_rel,
                                                        memory_order_acquire));
        job->fn(job->ctx, (int)(uint32_t)t, worker);
        atomic_fetch_sub_explicit(&p->left, 1, memory_order_release);
    }
}

static bool wait_for_epoch(struct pool *p, uint32_t seen)
{
    int64_t until = clock_us() + SPIN_US;
    for (int i = 1;; i++) {
        if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen || atomic_load(&p->quit))
            return !atomic_load(&p->quit);
        relax();
        if (i % 64 == 0 && clock_us() > until)
            break;
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->epoch) == seen && !atomic_load(&p->quit))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
    return !atomic_load(&p->quit);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint32_t seen = 0;
#ifdef __linux__
    atomic_store(&w->tid, gettid());
#endif
    while (wait_for_epoch(p, seen)) {
        /* Announce, then look whether a job is open: the caller closes jobs, waits until nobody
         * is busy, and only then writes the next one. */
        atomic_fetch_add(&p->busy, 1);
        seen = atomic_load(&p->epoch);
        if (atomic_load(&p->open)) {
            struct job job = p->job;
            if (job.laps)
                laps_switch(job.laps, w->index, job.row);
            work(p, seen, &job, w->index);
            if (job.laps)
                laps_switch(job.laps, w->index, LAP_OFF);
        }
        atomic_fetch_sub(&p->busy, 1);
    }
    return NULL;
}

#ifdef __linux__
static bool keep_to(pthread_t thread, const int *cpus, int n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < n; i++)
        if (cpus[i] < CPU_SETSIZE)
            CPU_SET(cpus[i], &set);
    return !pthread_setaffinity_np(thread, sizeof set, &set);
}
#endif

/* A core for each worker, or the fast ones for all. Where the system refuses, they stay free. */
static void pin(struct pool *p)
{
#ifdef __linux__
    struct cores c;
    cores_find(&c);
    bool one_each = p->threads == c.n;
    if (p->threads < 2 || (!one_each && (p->threads > c.n || !c.are_chosen)))
        return;
    p->has_core_each = one_each;
    for (int i = 0; i < p->threads; i++) {
        p->workers[i].cpu = c.cpu[i];
        p->has_core_each &= c.cpu[i] < CPU_SETSIZE;
        if (i > 0)
            keep_to(p->workers[i].thread, one_each ? &c.cpu[i] : c.cpu, one_each ? 1 : c.n);
    }
#endif
}

#ifdef __linux__
/* How long a thread was ready to run and did not; -1: not known. */
static int64_t time_waited_us(int tid)
{
    char path[64], text[64];
    unsigned long long ran, waited;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -1;
    text[n] = 0;
    return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? (int64_t)(waited / 1000) : -1;
}

/* Where the caller waits for its core, and a worker has one for itself, they change places: if it was so
 * twice. */
static void change_places(struct pool *p)
{
    struct worker *me = &p->workers[0], *best = NULL;
    int64_t now = clock_us(), since = now - p->looked_us, least = 0;
    if (since < LOOK_US)
        return;
    int64_t waited = time_waited_us(gettid()), mine = waited - me->waited_us;
    me->waited_us = waited;
    p->looked_us = now;
    bool had_company = p->has_company;
    p->has_company = waited >= 0 && mine > since / 8;
    for (int i = 1; p->has_company && i < p->threads; i++) {
        struct worker *w = &p->workers[i];
        waited = time_waited_us(atomic_load(&w->tid));
        int64_t its = waited - w->waited_us;
        w->waited_us = waited;
        if (waited >= 0 && (!best || its < least)) {
            best = w;
            least = its;
        }
    }
    int cpu = me->cpu;
    if (!best || !had_company || mine <= 2 * least || !CPU_ISSET(best->cpu, &p->caller_before) ||
        !keep_to(best->thread, &cpu, 1))
        return;
    me->cpu = best->cpu;
    best->cpu = cpu;
    p->has_company = false;
}
#endif

void pool_begin_pass(struct pool *p)
{
#ifdef __linux__
    if (!p->has_core_each || sched_getaffinity(0, sizeof p->caller_before, &p->caller_before))
        return;
    change_places(p);
    int cpu = p->workers[0].cpu;
    p->is_caller_pinned = CPU_ISSET(cpu, &p->caller_before) && keep_to(pthread_self(), &cpu, 1);
#endif
}

void pool_end_pass(struct pool *p)
{
#ifdef __linux__
    if (p->is_caller_pinned)
        sched_setaffinity(0, sizeof p->caller_before, &p->caller_before);
    p->is_caller_pinned = false;
#endif
}

struct pool *pool_create(int threads, struct err *e)
{
    if (threads < 1) {
        err_set(e, ERR_USAGE, "threads: %d is not 1 or more", threads);
        return NULL;
    }
    struct pool *p = mem_alloc(sizeof *p, "thread pool", e);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->workers = mem_alloc_array((size_t)threads, sizeof *p->workers, "thread pool", e);
    if (!p->workers) {
        pool_free(p);
        return NULL;
    }
    p->threads = 1;
    for (int i = 1; i < threads; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i};
        int rc = thread_start(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (rc) {
            err_set(e, ERR_IO, "threads: cannot start thread %d of %d: %s", i + 1, threads,
                    strerror(rc));
            pool_free(p);
            return NULL;
        }
        p->threads = i + 1;
    }
    pin(p);
    return p;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->quit, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->threads; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->workers);
    mem_free(p);
}

void pool_set_laps(struct pool *p, struct laps *l)
{
    p->laps = l;
}

int pool_threads(const struct pool *p)
{
    return p->threads;
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx, int n_chunks)
{
    if (n_chunks <= 0)
        return;
    if (p->threads == 1 || n_chunks == 1) {
        for (int i = 0; i < n_chunks; i++)
            fn(ctx, i, 0);
        return;
    }
    uint32_t epoch = atomic_load(&p->epoch) + 1;
    struct job job = {fn, ctx, (uint32_t)n_chunks, p->laps, p->laps ? laps_row(p->laps) : 0};
    p->job = job;
    if (p->laps)
        laps_count_step(p->laps);
    atomic_store_explicit(&p->left, (uint32_t)n_chunks, memory_order_relaxed);
    atomic_store_explicit(&p->next, (uint64_t)epoch << 32, memory_order_release);
    atomic_store(&p->open, true);
    atomic_store(&p->epoch, epoch);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    work(p, epoch, &job, 0);
    if (p->laps)
        laps_switch(p->laps, 0, LAP_BARRIER);
    for (int i = 1; atomic_load_explicit(&p->left, memory_order_acquire); i++) {
        relax();
        if (i % 256 == 0)
            sched_yield(); /* more threads than cores: let the one that holds a chunk run */
    }
    atomic_store(&p->open, false);
    for (int i = 1; atomic_load(&p->busy); i++) { /* stragglers: they hold no chunk */
        relax();
        if (i % 256 == 0)
            sched_yield();
    }
    if (p->laps)
        laps_switch(p->laps, 0, job.row);
}
