/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into the memory plan (stream/plan.h), and the sizes that follow from it. */
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cpu/backend.h"
#include "session/engine.h"

/* The program besides what it counts itself: code, libraries, the C library's heap, what loading
 * needs for a moment. Measured (Debian 12, x86-64, demo model): 3.3 MiB resident beside base/mem's
 * count when planned, 1.7 MiB more at the peak of loading. */
#define PROGRAM_BYTES ((uint64_t)6 << 20)
#define STACK_BYTES ((uint64_t)64 << 10) /* of a worker, in use */

/* ---- The machine ---------------------------------------------------------------------------- */

static bool start_workers(struct strata_model *m, struct err *e)
{
    int threads = m->options.threads ? m->options.threads : cores_default_threads();
    if (!m->pool)
        m->pool = pool_create(threads, e);
    return m->pool != NULL;
}

static bool start_backend(struct strata_model *m, struct err *e)
{
    if (m->backend)
        return true;
    const char *name = m->isa_name ? m->isa_name : getenv("STRATA_ISA");
    if (!cpu_isa_parse(name && *name ? name : "auto", &m->isa, e))
        return false;
    m->backend = cpu_backend_create(m->pool, m->isa, m->options.exact_activations, e);
    return m->backend != NULL && profiling_start(m, e);
}

static struct io_options io_options_of(const struct strata_model *m)
{
    return (struct io_options){
        .engine = m->io_engine,
        .depth = m->options.io_depth,
        .ahead_kept = m->options.io_urgent,
        .copy_paths = (const char *const *)m->copy_paths,
        .copies = m->options.n_replicas,
        .pread = m->pread,
        .pread_ctx = m->pread_ctx,
        .drive = m->drive,
    };
}

/* Experts of another file than the trunk would be read without a word. */
static bool check_files(const struct strata_model *m, struct err *e)
{
    for (int i = 0; i < gguf_parts(m->file); i++)
        if (!io_is_of_file(m->io, i, gguf_part_fd(m->file, i)))
            return err_set(e, ERR_IO, "%s: another file has taken its name since it was opened",
                           gguf_part_path(m->file, i));
    return true;
}

static bool start_reads(struct strata_model *m, struct err *e)
{
    if (m->io)
        return true;
    if (!packing_find(m, e) || !streaming_find_copies(m, e))
        return false;
    int n = gguf_parts(m->file);
    const char **paths = mem_alloc_array((size_t)n + 1, sizeof *paths, "the list of files", e);
    if (!paths)
        return false;
    for (int i = 0; i < n; i++)
        paths[i] = gguf_part_path(m->file, i);
    if (m->packing)
        paths[n++] = packing_path(m);
    struct io_options o = io_options_of(m);
    m->io = io_create(paths, n, &o, e);
    mem_free(paths);
    if (m->io && !check_files(m, e)) {
        io_close(m->io);
        m->io = NULL;
    }
    return m->io != NULL;
}

/* ---- Where things lie ----------------------------------------------------------------------- */

bool engine_stream_config(const struct strata_model *m, struct stream_config *c, struct err *e)
{
    const struct model_info *info = model_info(m->network);
    int n = info->layers + info->has_draft;
    *c = (struct stream_config){
        .layers = n, .window_rows = m->window, .experts_used = info->experts_used};
    if (!streaming_config(m, c, e))
        return false;
    struct stream_layer *layers =
        mem_alloc_array((size_t)n, sizeof *layers, "the list of layers", e);
    if (!layers)
        return false;
    for (int l = 0; l < n; l++) {
        struct model_experts x;
        if (m->packing && l < info->layers) { /* it has no draft layer */
            packing_place(m, l, gguf_parts(m->file), &layers[l]);
            continue;
        }
        model_experts_of_layer(m->network, l, &x);
        layers[l].parts = x.parts;
        layers[l].experts = x.parts ? info->experts : 0;
        for (int p = 0; p < x.parts; p++)
            layers[l].part[p] =
                (struct stream_part){x.tensor[p]->part, x.tensor[p]->offset, x.bytes_each[p]};
    }
    c->layer = layers;
    if (!c->split)
        c->split = streaming_split(m, c);
    return true;
}

int engine_record_parts(const struct stream_config *c)
{
    int parts = 1;
    for (int l = 0; l < c->layers; l++)
        parts = c->layer[l].parts > parts ? c->layer[l].parts : parts;
    return parts;
}

/* Bytes of routed experts that a token uses. */
static double used_bytes(const struct model_info *info)
{
    return info->experts ? (double)info->expert_bytes * info->experts_used / info->experts : 0;
}

double engine_expert_share(const struct strata_model *m)
{
    const struct model_info *info = model_info(m->network);
    double used = used_bytes(info);
    return used > 0 ? used / ((double)info->trunk_bytes + used) : 0;
}

int engine_table_rows(const struct model_row_table *t, int rows)
{
    return rows * t->rows_per_token;
}

/* ---- The plan ------------------------------------------------------------------------------- */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* Bytes of all sessions but their snapshots. */
static uint64_t sessions_bytes(const struct strata_model *m, int ctx)
{
    uint64_t state = model_state_bytes(m->network, ctx, (enum kv_type)m->options.kv);
    if (!state)
        return UINT64_MAX;
    return times(plus(state, session_host_bytes(m, ctx)), (uint64_t)m->options.sessions);
}

static uint64_t scratch_bytes(const struct strata_model *m, int rows, int tile, int ctx)
{
    struct backend_limits limits;
    model_backend_limits(m->network, rows, tile, ctx, &limits);
    return plus(model_scratch_bytes(m->network, rows, tile),
                m->backend->reserve_bytes(m->backend, &limits));
}

static uint64_t io_bytes(const struct strata_model *m, const struct stream_config *c, int rows)
{
    struct io_options o = io_options_of(m);
    struct model_row_table t;
    model_row_table(m->network, &t);
    uint64_t bytes = io_memory(&o) + stream_table_bytes(c, io_align(m->io));
    if (t.tensor)
        bytes += stream_rows_memory(t.row_bytes, engine_table_rows(&t, rows), io_align(m->io));
    return bytes;
}

/* Share of the experts that is worth having in memory. The drive is what it was measured to be, but
 * with cache-aware routing, whose outputs depend on the size of the arena. */
static double knee_of(const struct strata_model *m)
{
    const struct model_info *info = model_info(m->network);
    double drive = m->options.drive_gb_s * 1e9;
    if (!(drive > 0) || streaming_bends_routing(m))
        drive = KNEE_DRIVE_BYTES_S;
    double used = used_bytes(info);
    double work = ((double)info->trunk_bytes + used) / KNEE_MEMORY_BYTES_S;
    return knee_share(&m->knee, work, used / drive, 0);
}

/* The plan for bands of `band` rows. */
static bool plan_band(struct strata_model *m, const struct stream_config *c, int band,
                      struct plan *out, struct err *e)
{
    int rows = larger(band, m->window), tile = smaller(m->tile, rows);
    struct plan_input in = {
        .trunk = model_info(m->network)->trunk_bytes,
        .session_fixed = sessions_bytes(m, m->ctx),
        .scratch = scratch_bytes(m, rows, tile, m->ctx),
        .io = io_bytes(m, c, rows),
        .snapshots = times(session_snapshot_bytes(m),
                           (uint64_t)(m->options.sessions * (1 + m->options.snapshots))),
        .program = PROGRAM_BYTES + STACK_BYTES * (uint64_t)pool_threads(m->pool) +
                   m->metadata_bytes + m->words_bytes + m->network_bytes +
                   (m->options.explain ? explaining_bytes() : 0) +
                   (m->options.profile ? laps_memory(pool_threads(m->pool)) : 0),
        .ctx = (uint64_t)m->ctx,
        .stream = model_info(m->network)->expert_bytes ? c : NULL,
        .io_align = io_align(m->io),
        .knee = knee_of(m),
        .memory = m->options.memory_bytes,
    };
    if (m->arena && !plan_parse_arena(m->arena, &in.arena, e))
        return false;
    /* What a user asked for may take the reserve too. */
    bool is_open = in.arena.kind == PLAN_ARENA_AUTO || in.arena.kind == PLAN_ARENA_MAX;
    in.system = is_open ? plan_system_bytes("") : plan_system_available("");
    return plan_compute(&in, out, e);
}

/* Chooses the band: as asked; else the largest of 2048, 1024, .. one tile that does not bring the
 * arena below its knee; where it cannot reach that, leaves it at least half of what it would be
 * with the smallest. */
static bool plan_rows(struct strata_model *m, const struct stream_config *c, struct err *e)
{
    if (m->options.band) {
        m->band = smaller(m->options.band, m->ctx);
        return plan_band(m, c, m->band, &m->plan, e);
    }
    int least = smaller(m->tile, m->ctx);
    struct plan smallest;
    if (!plan_band(m, c, least, &smallest, e))
        return false;
    uint64_t arena = smallest.arena < smallest.knee ? smallest.arena / 2 : smallest.knee;
    for (int band = larger(smaller(ENGINE_BAND_DEFAULT, m->ctx), least); band > least; band /= 2) {
        struct err ignored;
        err_clear(&ignored);
        m->band = band;
        if (plan_band(m, c, band, &m->plan, &ignored) && m->plan.arena >= arena)
            return true;
    }
    m->band = least;
    m->plan = smallest;
    return true;
}

/* The longest context below m->ctx whose plan works with everything else as asked; 0: none. */
static int longest_context(struct strata_model *m, const struct stream_config *c)
{
    int asked = m->ctx, works = 0, fails = asked;
    while (fails - works > 1) {
        struct plan ignored;
        struct err e;
        err_clear(&e);
        m->ctx = works + (fails - works) / 2;
        int band = smaller(m->options.band ? m->options.band : m->tile, m->ctx);
        *(plan_band(m, c, band, &ignored, &e) ? &works : &fails) = m->ctx;
    }
    m->ctx = asked;
    return works;
}

/* The plan; where it does not fit, the refusal ends with the longest context that would. */
static bool plan_or_advise(struct strata_model *m, const struct stream_config *c, struct err *e)
{
    struct err refusal;
    err_clear(&refusal);
    if (plan_rows(m, c, &refusal))
        return true;
    int ctx = refusal.code == ERR_MEMORY ? longest_context(m, c) : 0;
    if (ctx)
        return err_set(e, refusal.code, "%s, or --ctx %d at most in place of %d", refusal.text, ctx,
                       m->ctx);
    return err_set(e, refusal.code, "%s", refusal.text);
}

/* Most rows of a window with guesses. It is one tile, so that all its scores are there at once. */
static int draft_rows(const struct strata_model *m)
{
    int most = smaller(smaller(m->window, m->tile), GATE_ROWS_MOST);
    bool has_drafts = m->options.draft != STRATA_DRAFT_OFF && !streaming_bends_routing(m);
    return has_drafts && most > 1 ? most : 0;
}

bool engine_plan(struct strata_model *m, struct err *e)
{
    if (m->is_planned)
        return true;
    if (!engine_words(m, e) || !engine_network(m, e) || !start_workers(m, e) ||
        !start_backend(m, e) || !start_reads(m, e))
        return false;
    const struct strata_options *o = &m->options;
    m->ctx = o->ctx ? o->ctx : smaller(model_info(m->network)->context, ENGINE_CTX_DEFAULT_MOST);
    if (m->ctx > model_info(m->network)->context)
        log_note("%s: a context of %d tokens is more than the %d that the model was made for",
                 m->path, m->ctx, model_info(m->network)->context);
    m->window = o->window ? o->window : ENGINE_WINDOW_MOST;
    m->tile = o->tile ? o->tile : ENGINE_TILE_DEFAULT;
    m->draft_rows = draft_rows(m);
    model_hold_windows(m->network, m->draft_rows);
    streaming_expect(m, &m->knee);
    struct stream_config c;
    if (!engine_stream_config(m, &c, e))
        return false;
    m->is_planned = plan_or_advise(m, &c, e);
    mem_free((void *)c.layer);
    m->most_rows = larger(m->band, m->window);
    m->tile = smaller(m->tile, m->most_rows);
    return m->is_planned;
}

/* ---- For the user --------------------------------------------------------------------------- */

bool strata_plan_get(struct strata_model *m, struct strata_plan *out, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (engine_plan(m, &e)) {
        const struct plan *p = &m->plan;
        *out = (struct strata_plan){
            .trunk = p->trunk,
            .session = p->session,
            .scratch = p->scratch,
            .io = p->io,
            .staging = p->staging,
            .snapshots = p->snapshots,
            .program = p->program,
            .arena = p->arena,
            .plan_total = p->plan_total,
            .slots = p->slots,
            .experts = p->experts,
            .ctx = m->ctx,
            .band = m->band,
            .tile = m->tile,
            .window = m->window,
            .threads = pool_threads(m->pool),
            .points = p->points,
        };
        _Static_assert(sizeof out->point / sizeof *out->point >= PLAN_POINTS,
                       "room for all points");
        for (int i = 0; i < p->points; i++) {
            out->point[i].name = p->point[i].name;
            out->point[i].arena = p->point[i].arena;
            out->point[i].total = p->point[i].total;
        }
    }
    return session_report(error, &e);
}

char *strata_plan_text(struct strata_model *m, bool json, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct json_out out = {0};
    if (engine_plan(m, &e)) {
        if (json)
            plan_write_json(&m->plan, &out);
        else
            plan_write_table(&m->plan, &out);
        if (out.failed)
            err_set(&e, ERR_MEMORY, "%s: no memory for the text of the plan", m->path);
    }
    if (e.code)
        json_out_free(&out);
    session_report(error, &e);
    return out.text;
}
