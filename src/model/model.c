/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/join.h"
#include "model/arch.h"

static const struct arch *const archs[] = {&arch_qwen4exp, &arch_qwen3moe, &arch_qwen3next,
                                          &arch_qwen35moe};
#define ARCHS (sizeof archs / sizeof *archs)

static const struct arch *find_arch(const struct gguf_file *g, struct err *e)
{
    const char *path = gguf_part_path(g, 0);
    char *type = NULL, *name = NULL, shown[128], known[256] = "";
    size_t bytes = 0;
    const struct arch *found = NULL;
    if (!gguf_get_text(g, "general.type", false, &type, &bytes, e))
        return NULL;
    if (type && strcmp(type, "model")) {
        err_set(e, ERR_UNSUPPORTED, "%s: key \"general.type\": \"%s\" cannot be run, only \"model\" can",
                path, err_escape(shown, sizeof shown, type, bytes));
        mem_free(type);
        return NULL;
    }
    mem_free(type);
    if (!gguf_get_text(g, "general.architecture", true, &name, &bytes, e))
        return NULL;
    for (size_t i = 0; i < ARCHS; i++) {
        if (!strcmp(name, archs[i]->name))
            found = archs[i];
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 archs[i]->name);
    }
    if (!found)
        err_set(e, ERR_UNSUPPORTED,
                "%s: key \"general.architecture\": \"%s\" is not supported (known: %s)", path,
                err_escape(shown, sizeof shown, name, bytes), known);
    mem_free(name);
    return found;
}

static bool starts_with(const struct gguf_tensor *t, const char *beginning)
{
    return !strncmp(t->name, beginning, strlen(beginning));
}

/* A file that has a draft layer and none of those before it. */
static bool is_draft_alone(const struct gguf_file *g)
{
    bool has_first = false, has_draft = false;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        has_first |= starts_with(t, "blk.0.");
        has_draft |= starts_with(t, "blk.") && strstr(t->name, ".nextn.eh_proj.weight");
    }
    return has_draft && !has_first;
}

/* Bytes of all routed experts, and that records are not larger than memory can be. */
static void add_up_experts(struct model *m)
{
    for (int i = 0; i < m->info.layers + m->info.has_draft; i++) {
        struct model_experts x;
        model_experts_of_layer(m, i, &x);
        for (int p = 0; p < x.parts; p++)
            m->info.expert_bytes += x.tensor[p]->bytes;
    }
}

static struct model *open_as(const struct gguf_file *g, bool wants_draft, struct err *e)
{
    const struct arch *arch = find_arch(g, e);
    if (arch && is_draft_alone(g)) {
        err_set(e, ERR_UNSUPPORTED,
                "%s: holds a draft layer alone, to guess for a model with: -m MODEL --draft-model %s",
                gguf_part_path(g, 0), gguf_part_path(g, 0));
        return NULL;
    }
    struct model *m = arch ? mem_alloc(sizeof *m, "model", e) : NULL;
    if (!m)
        return NULL;
    m->arch = arch;
    m->file = g;
    m->info.arch = arch->name;
    m->wants_draft = wants_draft;
    m->has_draft_file = gguf_own_parts(g) < gguf_parts(g);
    weights_init(&m->weights, g);
    if (!arch->does->open(m, e) || !weights_place(&m->weights, e)) {
        model_free(m);
        return NULL;
    }
    if (wants_draft && !m->info.has_draft) {
        err_set(e, ERR_USAGE, "%s: the %s has no draft layer", gguf_part_path(g, 0),
                m->has_draft_file ? "architecture" : "file");
        model_free(m);
        return NULL;
    }
    m->info.trunk_bytes = m->weights.block_bytes;
    add_up_experts(m);
    return m;
}

struct model *model_open(const struct gguf_file *g, struct err *e)
{
    return open_as(g, false, e);
}

struct model *model_open_with_draft(const struct gguf_file *g, struct err *e)
{
    return open_as(g, true, e);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    weights_stop(&m->weights);
    if (m->device)
        m->backend->release(m->backend, m->device, m->device_bytes);
    mem_unmap(m->host, m->host_bytes);
    m->arch->does->close(m);
    weights_free(&m->weights);
    mem_free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

void model_experts_of_layer(const struct model *m, int layer, struct model_experts *out)
{
    m->arch->does->experts(m, layer, out);
}

void model_row_table(const struct model *m, struct model_row_table *out)
{
    m->arch->does->row_table(m, out);
}

bool model_load(struct model *m, struct backend *b, model_progress *progress, void *ctx,
                struct err *e)
{
    m->backend = b;
    return weights_load(&m->weights, b, progress, ctx, e);
}

bool model_wait(struct model *m, const atomic_bool *cancel, struct err *e)
{
    return weights_wait(&m->weights, WEIGHTS_ALL, cancel, e);
}

uint64_t model_waited_us(const struct model *m)
{
    return m->weights.waited_us;
}

double model_trunk_rate(const struct model *m)
{
    return m->weights.read_us ? (double)m->weights.block_bytes / (double)m->weights.read_us : 0;
}

void model_hold_windows(struct model *m, int rows)
{
    m->held = rows;
}

size_t model_scratch_bytes(const struct model *m, int band, int tile)
{
    /* Counting writes only NULL pointers into the scratch of the network. */
    struct carve device = {0}, host = {0};
    m->arch->does->scratch((struct model *)m, band, tile, &device, &host);
    size_t all;
    if (device.overflow || host.overflow || !mem_add(device.used, host.used, &all))
        return SIZE_MAX;
    return all;
}

void model_backend_limits(const struct model *m, int band, int tile, int ctx,
                          struct backend_limits *out)
{
    *out = (struct backend_limits){.rows = tile, .expert_rows = band, .embd = m->info.embd, .ctx = ctx};
    m->arch->does->limits(m, out);
}

bool model_scratch_alloc(struct model *m, int band, int tile, struct err *e)
{
    struct carve device = {0}, host = {0};
    m->arch->does->scratch(m, band, tile, &device, &host);
    if (device.overflow || host.overflow)
        return err_set(e, ERR_MEMORY, "band %d, tile %d: the working memory overflows", band, tile);
    m->device_bytes = device.used;
    m->host_bytes = host.used;
    m->device = m->backend->alloc(m->backend, m->device_bytes, "working memory", e);
    m->host = m->device ? mem_map(m->host_bytes, "working memory", e) : NULL;
    if (!m->host)
        return false;
    device = (struct carve){.base = m->device};
    host = (struct carve){.base = m->host};
    m->arch->does->scratch(m, band, tile, &device, &host);
    m->band = band;
    m->tile = tile;
    return true;
}

void model_lend_scratch(struct model *m)
{
    if (m->backend->host_visible)
        mem_lend(m->device, m->device_bytes);
}

bool model_forward(struct model *m, struct model_state *s, const struct batch *batch,
                   const struct expert_source *experts, const struct row_source *rows,
                   struct err *e)
{
    if (batch->rows < 1 || batch->rows > m->band)
        return err_set(e, ERR_USAGE, "%d rows, the working memory has room for 1 to %d", batch->rows,
                       m->band);
    if (batch->is_held && batch->rows > model_held_rows(m, m->tile))
        return err_set(e, ERR_USAGE, "%d rows to hold, the working memory has room for %d",
                       batch->rows, model_held_rows(m, m->tile));
    if (batch->rows > s->ctx - s->position)
        return err_set(e, ERR_USAGE, "%d more tokens after %d do not fit into a context of %d",
                       batch->rows, s->position, s->ctx);
    for (int i = 0; i < batch->rows; i++)
        if (batch->ids[i] < 0 || batch->ids[i] >= m->info.vocab)
            return err_set(e, ERR_USAGE, "token id %d at %d is not in 0..%d", batch->ids[i],
                           s->position + i, m->info.vocab - 1);
    memcpy(s->ids + s->position, batch->ids, (size_t)batch->rows * sizeof *s->ids);
    struct batch placed = *batch;
    placed.end = s->position + batch->rows;
    if (!m->arch->does->forward(m, s, &placed, experts, rows, e))
        return false;
    if (!batch->is_held)
        s->position += batch->rows;
    return true;
}

bool model_commit(struct model *m, struct model_state *s, int rows, struct err *e)
{
    if (rows < 1 || rows > model_held_rows(m, m->tile))
        return err_set(e, ERR_USAGE, "%d rows of a held window", rows);
    if (!m->arch->does->commit(m, s, rows, e) || !m->backend->finish(m->backend, e))
        return false;
    s->position += rows;
    return true;
}
