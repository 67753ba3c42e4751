/* SPDX-License-Identifier: Apache-2.0 */
/* A model from file to ready: open (metadata), plan, load. Everything large is allocated here,
 * once, in the order of the plan; strata_model_free undoes it in reverse, from any point. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/draft_file.h"
#include "session/engine.h"

/* ---- Opening -------------------------------------------------------------------------------- */

/* *to gets a copy of `text`, or stays NULL. */
static bool copy_text(char **to, const char *text, struct err *e)
{
    if (!text)
        return true;
    *to = mem_copy_text(text, strlen(text), e);
    return *to != NULL;
}

static bool copy_options(struct strata_model *m, const struct strata_options *o, struct err *e)
{
    if (o)
        m->options = *o;
    struct strata_options *own = &m->options;
    if (!copy_text(&m->arena, own->arena, e) || !copy_text(&m->isa_name, own->isa, e) ||
        !copy_text(&m->io_engine, own->io, e) || !copy_text(&m->chat_family, own->chat_family, e) ||
        !copy_text(&m->policy, own->policy, e) || !copy_text(&m->read_ahead, own->read_ahead, e) ||
        !copy_text(&m->moce, own->moce, e) || !copy_text(&m->popularity, own->popularity, e) ||
        !copy_text(&m->sidecar, own->sidecar, e))
        return false;
    if (own->draft_model && own->draft == STRATA_DRAFT_AUTO)
        own->draft = STRATA_DRAFT_MTP;
    if (own->draft == STRATA_DRAFT_MTP && !copy_text(&m->draft_path, own->draft_model, e))
        return false;
    own->draft_model = m->draft_path;
    own->arena = m->arena;
    own->isa = m->isa_name;
    own->io = m->io_engine;
    own->chat_family = m->chat_family;
    own->policy = m->policy;
    own->read_ahead = m->read_ahead;
    own->moce = m->moce;
    own->popularity = m->popularity;
    own->sidecar = m->sidecar;
    if (!own->sessions)
        own->sessions = 1;
    return true;
}

static bool check_range(const char *name, int value, int least, int most, struct err *e)
{
    if (value >= least && value <= most)
        return true;
    return err_set(e, ERR_USAGE, "%s is %d: it must be %d to %d", name, value, least, most);
}

/* At least one read of the depth may be a guess. */
static bool check_urgent(const struct strata_options *o, struct err *e)
{
    int depth = io_options_filled(&(struct io_options){.depth = o->io_depth}).depth;
    return o->io_urgent < depth ||
           err_set(e, ERR_USAGE, "--io-urgent %d: it must be less than --io-depth, which is %d",
                   o->io_urgent, depth);
}

static bool check_options(const struct strata_options *o, struct err *e)
{
    return check_range("threads", o->threads, 0, 1024, e) &&
           check_range("ctx", o->ctx, 0, ENGINE_CTX_MOST, e) &&
           check_range("band", o->band, 0, ENGINE_BAND_MOST, e) &&
           check_range("tile", o->tile, 0, ENGINE_BAND_MOST, e) &&
           check_range("window", o->window, 0, ENGINE_WINDOW_MOST, e) &&
           check_range("draft_rows", o->draft_rows, 0, GATE_ROWS_MOST, e) &&
           check_range("sessions", o->sessions, 1, 1024, e) &&
           check_range("snapshots", o->snapshots, 0, 1024, e) &&
           check_range("io_depth", o->io_depth, 0, ENGINE_IO_DEPTH_MOST, e) &&
           check_range("io_urgent", o->io_urgent, 0, ENGINE_IO_DEPTH_MOST, e) &&
           check_urgent(o, e) &&
           check_range("io_split", o->io_split, 0, STREAM_SPLIT_MOST, e) &&
           check_range("drive_parts", o->drive_parts, 0, 1 << 16, e) &&
           check_range("n_replicas", o->n_replicas, 0, IO_COPIES - 1, e) &&
           check_range("moce_keep", o->moce_keep, 0, 1 << 16, e);
}

static void pass_note(void *ctx, enum log_level level, const char *text)
{
    const struct strata_model *m = ctx;
    m->options.note(m->options.callback_ctx, level == LOG_NOTE ? STRATA_NOTE : STRATA_DETAIL, text);
}

/* Whose notes are taken: log.h has one sink for the process. */
static struct strata_model *note_taker;

static void take_notes(struct strata_model *m)
{
    note_taker = m;
    if (m->options.note)
        log_set_sink(pass_note, m);
    else
        log_set_sink(NULL, NULL);
}

static bool open_model(struct strata_model *m, const char *path, const struct strata_options *o,
                       struct err *e)
{
    size_t before = mem_in_use();
    if (!copy_text(&m->path, path, e) || !copy_options(m, o, e) || !check_options(&m->options, e))
        return false;
    take_notes(m);
    m->file = gguf_open(path, e);
    bool ok = m->file && (!m->draft_path || draft_file_join(m->file, m->draft_path, e));
    m->metadata_bytes = mem_in_use() - before;
    return ok;
}

struct strata_model *strata_model_open(const char *path, const struct strata_options *options,
                                       struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct strata_model *m = mem_alloc(sizeof *m, "a model", &e);
    if (m && !open_model(m, path, options, &e)) {
        strata_model_free(m);
        m = NULL;
    }
    session_report(error, &e);
    return m;
}

void strata_model_free(struct strata_model *m)
{
    if (!m)
        return;
    streaming_finish(m);
    strata_trace_end(m, NULL);
    stream_rows_free(m->rows);
    stream_free(m->stream);
    explaining_free(m);
    if (m->io)
        io_close(m->io);
    model_free(m->network);
    if (m->backend)
        m->backend->free(m->backend);
    pool_free(m->pool);
    laps_free(m->laps);
    tokenizer_free(m->words);
    gguf_close(m->file);
    if (note_taker == m) {
        log_set_sink(NULL, NULL);
        note_taker = NULL;
    }
    streaming_forget_copies(m);
    packing_free(m);
    mem_free(m->sidecar);
    mem_free(m->popularity);
    mem_free(m->moce);
    mem_free(m->read_ahead);
    mem_free(m->policy);
    mem_free(m->chat_family);
    mem_free(m->io_engine);
    mem_free(m->isa_name);
    mem_free(m->arena);
    mem_free(m->draft_path);
    mem_free(m->path);
    mem_free(m);
}

struct tokenizer *engine_words(struct strata_model *m, struct err *e)
{
    if (!m->words) {
        size_t before = mem_in_use();
        m->words = tokenizer_load(m->file, e);
        m->words_bytes = mem_in_use() - before;
    }
    return m->words;
}

/* The file's own draft layer takes memory from the experts and pays where it is often right, which
 * nobody knows beforehand: it has to be asked for. */
static void tell_of_draft_layer(const struct strata_model *m)
{
    char key[96];
    uint64_t layers = 0;
    struct err ignored;
    err_clear(&ignored);
    snprintf(key, sizeof key, "%s.nextn_predict_layers", model_info(m->network)->arch);
    if (m->options.draft == STRATA_DRAFT_AUTO &&
        gguf_get_u64(m->file, key, false, &layers, &ignored) && layers)
        log_detail("%s: has a draft layer, which --draft mtp guesses with", m->path);
}

struct model *engine_network(struct strata_model *m, struct err *e)
{
    if (!m->network) {
        size_t before = mem_in_use();
        m->network = m->options.draft == STRATA_DRAFT_MTP ? model_open_with_draft(m->file, e)
                                                          : model_open(m->file, e);
        m->network_bytes = mem_in_use() - before;
        if (m->network)
            tell_of_draft_layer(m);
    }
    return m->network;
}

bool strata_model_info(struct strata_model *m, struct strata_model_info *out,
                       struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (engine_network(m, &e)) {
        const struct model_info *i = model_info(m->network);
        *out = (struct strata_model_info){
            .path = m->path,
            .arch = i->arch,
            .layers = i->layers,
            .embd = i->embd,
            .vocab = i->vocab,
            .context = i->context,
            .experts = i->experts,
            .experts_used = i->experts_used,
            .file_bytes = gguf_total_bytes(m->file),
            .trunk_bytes = i->trunk_bytes,
            .expert_bytes = i->expert_bytes,
        };
    }
    return session_report(error, &e);
}

/* ---- Loading -------------------------------------------------------------------------------- */

static bool load_progress(void *ctx, uint64_t done, uint64_t all)
{
    const struct strata_model *m = ctx;
    if (m->options.progress)
        m->options.progress(m->options.callback_ctx, done, all);
    return !(m->options.cancel && atomic_load(m->options.cancel));
}

static bool load_backend(struct strata_model *m, struct err *e)
{
    struct backend_limits limits;
    model_backend_limits(m->network, m->most_rows, m->tile, m->ctx, &limits);
    return m->backend->reserve(m->backend, &limits, e);
}

/* The arena, whose memory is cleared while the trunk is read. A model without experts has none. */
static bool load_arena(struct strata_model *m, struct err *e)
{
    if (!m->plan.experts)
        return true;
    struct stream_config c;
    if (!engine_stream_config(m, &c, e))
        return false;
    c.arena_bytes = m->plan.stream_bytes;
    m->stream = stream_create(&c, m->io, e);
    mem_free((void *)c.layer);
    return m->stream != NULL;
}

/* The arena, wired to the network. */
static bool load_experts(struct strata_model *m, struct err *e)
{
    if (!m->stream)
        return true;
    wire_experts(&m->experts, m->stream);
    packing_wire(m);
    return streaming_start(m, e);
}

static bool load_rows(struct strata_model *m, struct err *e)
{
    struct model_row_table t;
    model_row_table(m->network, &t);
    if (!t.tensor)
        return true;
    m->rows = stream_rows_create(m->io, t.tensor->part, t.tensor->offset, t.rows, t.row_bytes,
                                 engine_table_rows(&t, m->most_rows), e);
    if (!m->rows)
        return false;
    wire_rows(&m->row_source, m->rows);
    return true;
}

/* The experts come after the trunk, so that what is wanted first is not read beside what may be. */
static bool begin_trunk(struct strata_model *m, struct err *e)
{
    return model_load(m->network, m->backend, load_progress, m, e) &&
           model_scratch_alloc(m->network, m->most_rows, m->tile, e);
}

bool strata_model_load(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    int64_t began = clock_us();
    if (m->load_was_tried)
        err_set(&e, ERR_USAGE, "%s: the model was loaded before", m->path);
    else if (engine_plan(m, &e)) {
        m->load_was_tried = true;
        m->is_loaded = gguf_fingerprint(m->file, m->fingerprint, &e) && load_backend(m, &e) &&
                       load_arena(m, &e) && begin_trunk(m, &e) && load_experts(m, &e) &&
                       load_rows(m, &e);
    }
    m->load_us = session_clock_us(m) - began;
    return session_report(error, &e);
}

bool strata_model_wait(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (!m->is_loaded)
        err_set(&e, ERR_USAGE, "%s: the model is not loaded", m->path);
    else if (model_wait(m->network, NULL, &e))
        streaming_fill(m);
    return session_report(error, &e);
}
