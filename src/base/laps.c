/* SPDX-License-Identifier: Apache-2.0 */
#include "base/laps.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define ROWS_MOST 160

static const char *const fixed_kinds[LAP_MATRICES] = {
    [LAP_OTHER] = "between operations",
    [LAP_READS] = "waits for experts",
    [LAP_BARRIER] = "barriers",
    [LAP_EMBED] = "embedding",
    [LAP_NORM] = "norms",
    [LAP_ROUND] = "rounding of activations",
    [LAP_HYPER] = "hyper-connections",
    [LAP_CONV] = "convolution",
    [LAP_DELTA] = "delta net",
    [LAP_ROPE] = "rope and new keys",
    [LAP_INDEX] = "choice of blocks",
    [LAP_ATTENTION] = "attention",
    [LAP_GATE] = "gates",
    [LAP_ROUTER] = "router's choice",
    [LAP_ROUTED] = "routed sum",
    [LAP_SWIGLU] = "swiglu",
    [LAP_ADD] = "adding",
    [LAP_NGRAM] = "n-gram embedding",
};

/* Written by its worker alone. */
struct stopwatch {
    int64_t since;
    int row;
    _Atomic int64_t ns[LAP_PHASES][ROWS_MOST];
};

struct laps {
    int threads, n_rows;
    bool in_pass;
    enum lap_phase phase; /* changes between pool_runs only */
    const char *kind[ROWS_MOST];
    int type[ROWS_MOST];
    uint64_t bytes[LAP_PHASES][ROWS_MOST], passes[LAP_PHASES], steps[LAP_PHASES];
    int64_t began, pass_ns[LAP_PHASES];
    struct stopwatch *watch[]; /* [threads], each an allocation of its own: they share no line */
};

size_t laps_memory(int threads)
{
    return sizeof(struct laps) +
           (size_t)threads * (sizeof(struct stopwatch *) + sizeof(struct stopwatch));
}

struct laps *laps_create(int threads, struct err *e)
{
    struct laps *l =
        mem_alloc(sizeof *l + (size_t)threads * sizeof l->watch[0], "the profile", e);
    if (!l)
        return NULL;
    for (; l->threads < threads; l->threads++) {
        struct stopwatch *w = mem_alloc(sizeof *w, "the profile", e);
        if (!w) {
            laps_free(l);
            return NULL;
        }
        w->row = LAP_OFF;
        l->watch[l->threads] = w;
    }
    for (; l->n_rows < LAP_MATRICES; l->n_rows++) {
        l->kind[l->n_rows] = fixed_kinds[l->n_rows];
        l->type[l->n_rows] = -1;
    }
    return l;
}

void laps_free(struct laps *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->threads; i++)
        mem_free(l->watch[i]);
    mem_free(l);
}

void laps_reset(struct laps *l)
{
    for (int i = 0; i < l->threads; i++)
        for (int p = 0; p < LAP_PHASES; p++)
            for (int r = 0; r < ROWS_MOST; r++)
                atomic_store_explicit(&l->watch[i]->ns[p][r], 0, memory_order_relaxed);
    memset(l->bytes, 0, sizeof l->bytes);
    memset(l->passes, 0, sizeof l->passes);
    memset(l->steps, 0, sizeof l->steps);
    memset(l->pass_ns, 0, sizeof l->pass_ns);
}

void laps_begin(struct laps *l, enum lap_phase phase)
{
    l->in_pass = true;
    l->phase = phase;
    l->passes[phase]++;
    laps_switch(l, 0, LAP_OTHER);
    l->began = l->watch[0]->since;
}

void laps_end(struct laps *l)
{
    laps_switch(l, 0, LAP_OFF);
    l->pass_ns[l->phase] += l->watch[0]->since - l->began;
    l->in_pass = false;
}

void laps_switch(struct laps *l, int worker, int row)
{
    struct stopwatch *w = l->watch[worker];
    if (!l->in_pass || row == w->row)
        return;
    int64_t now = clock_ns();
    if (w->row != LAP_OFF) {
        _Atomic int64_t *ns = &w->ns[l->phase][w->row];
        int64_t sum = atomic_load_explicit(ns, memory_order_relaxed) + (now - w->since);
        atomic_store_explicit(ns, sum, memory_order_relaxed);
    }
    w->since = now;
    w->row = row;
}

int laps_row(const struct laps *l)
{
    return l->watch[0]->row;
}

int laps_matrix(struct laps *l, const char *kind, uint32_t type)
{
    for (int r = LAP_MATRICES; r < l->n_rows; r++)
        if (l->kind[r] == kind && l->type[r] == (int)type)
            return r;
    if (l->n_rows == ROWS_MOST || !kind)
        return LAP_OTHER; /* no file has so many kinds; nothing is lost but the name */
    l->kind[l->n_rows] = kind;
    l->type[l->n_rows] = (int)type;
    return l->n_rows++;
}

void laps_add_bytes(struct laps *l, int row, uint64_t bytes)
{
    if (l->in_pass && row >= 0)
        l->bytes[l->phase][row] += bytes;
}

void laps_count_step(struct laps *l)
{
    if (l->in_pass)
        l->steps[l->phase]++;
}

int laps_rows(const struct laps *l)
{
    return l->n_rows;
}

static double time_of(const struct laps *l, enum lap_phase phase, int row)
{
    double ns = 0;
    for (int i = 0; i < l->threads; i++)
        ns += (double)atomic_load_explicit(&l->watch[i]->ns[phase][row], memory_order_relaxed);
    return row == LAP_READS ? ns * l->threads : ns; /* nobody has work then */
}

void laps_get(const struct laps *l, enum lap_phase phase, int row, struct lap_times *out)
{
    *out = (struct lap_times){.kind = l->kind[row],
                              .type = l->type[row],
                              .ns = time_of(l, phase, row),
                              .bytes = l->bytes[phase][row]};
}

void laps_sum(const struct laps *l, enum lap_phase phase, struct lap_sum *out)
{
    *out = (struct lap_sum){.passes = l->passes[phase],
                            .steps = l->steps[phase],
                            .pass_ns = (double)l->pass_ns[phase]};
    double used = 0, all = out->pass_ns * l->threads;
    for (int r = 0; r < l->n_rows; r++)
        used += time_of(l, phase, r);
    out->idle_ns = all > used ? all - used : 0;
}
