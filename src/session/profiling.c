/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time goes: base/laps.h for users. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "session/session.h"

bool profiling_start(struct strata_model *m, struct err *e)
{
    if (!m->options.profile || m->laps)
        return true;
    m->laps = laps_create(pool_threads(m->pool), e);
    m->backend->laps = m->laps;
    pool_set_laps(m->pool, m->laps);
    return m->laps != NULL;
}

void profiling_pass_begins(struct strata_model *m, bool is_band)
{
    if (m->laps)
        laps_begin(m->laps, is_band ? LAP_PROMPT : LAP_ANSWER);
}

void profiling_pass_ends(struct strata_model *m)
{
    if (m->laps)
        laps_end(m->laps);
}

static int larger_first(const void *a, const void *b)
{
    double x = ((const struct strata_profile_row *)a)->ms;
    double y = ((const struct strata_profile_row *)b)->ms;
    return (x < y) - (x > y);
}

bool strata_profile_get(const struct strata_model *m, bool of_prompts, struct strata_profile *out)
{
    *out = (struct strata_profile){0};
    if (!m->laps)
        return false;
    enum lap_phase phase = of_prompts ? LAP_PROMPT : LAP_ANSWER;
    struct lap_sum sum;
    laps_sum(m->laps, phase, &sum);
    out->tokens = of_prompts ? m->counters.prefill_tokens : m->counters.decode_tokens;
    out->passes = sum.passes;
    out->threads = pool_threads(m->pool);
    out->layers = model_info(m->network)->layers;
    if (!out->tokens || !out->passes)
        return false;
    double tokens = (double)out->tokens, to_ms = 1e-6 / (tokens * out->threads);
    out->ms = sum.pass_ns * 1e-6 / tokens;
    out->idle_ms = sum.idle_ns * to_ms;
    out->barriers = (double)sum.steps / (double)sum.passes;
    for (int r = 0; r < laps_rows(m->laps) && out->n_rows < STRATA_PROFILE_ROWS; r++) {
        struct lap_times t;
        laps_get(m->laps, phase, r, &t);
        if (t.ns <= 0)
            continue;
        struct strata_profile_row *to = &out->row[out->n_rows++];
        snprintf(to->kind, sizeof to->kind, "%s", t.kind);
        to->type = t.type < 0 ? NULL : tensor_type_info((uint32_t)t.type)->name;
        to->ms = t.ns * to_ms;
        to->bytes = (double)t.bytes / tokens;
        to->gb_s = (double)t.bytes * out->threads / t.ns;
    }
    qsort(out->row, (size_t)out->n_rows, sizeof out->row[0], larger_first);
    return true;
}

/* ---- What memory gives ---------------------------------------------------------------------- */

#define READ_BYTES ((size_t)64 << 20) /* a thread: past the caches, soon done */
#define READ_PASSES 15

struct reading {
    const uint8_t *memory; /* [threads][bytes] */
    size_t bytes;          /* of a thread */
    uint64_t sum[1024];
};

static void read_part(void *ctx, int chunk, int worker)
{
    (void)worker;
    struct reading *r = ctx;
    r->sum[chunk] = mem_read(r->memory + (size_t)chunk * r->bytes, r->bytes);
}

double strata_memory_speed(int threads, uint64_t most_bytes)
{
    struct err ignored;
    err_clear(&ignored);
    if (threads < 1 || threads > 1024)
        return 0;
    uint64_t share = most_bytes / (uint64_t)threads;
    size_t part = (share < READ_BYTES ? (size_t)share : READ_BYTES) / MEM_READ_STEP * MEM_READ_STEP;
    struct reading r = {.bytes = part};
    size_t bytes = part * (size_t)threads;
    struct pool *p = pool_create(threads, &ignored);
    uint8_t *memory = p && bytes ? mem_map(bytes, "a measurement", &ignored) : NULL;
    int64_t best = INT64_MAX;
    if (memory) {
        memset(memory, 1, bytes);
        r.memory = memory;
        for (int i = 0; i < READ_PASSES; i++) { /* the best: others may have slowed it down */
            int64_t began = clock_us();
            pool_run(p, read_part, &r, threads);
            int64_t us = clock_us() - began;
            best = us < best ? us : best;
        }
    }
    mem_unmap(memory, bytes);
    pool_free(p);
    return memory && best > 0 ? (double)bytes * 1e-3 / (double)best : 0;
}
