/* SPDX-License-Identifier: Apache-2.0 */
/* The sidecar of a model: making it, finding it, and reading experts from it. To the stream a
 * record of the sidecar has one part; here it is cut into the parts that the network knows. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/engine.h"
#include "stream/pack.h"

enum { UNCHECKED, GOOD, DAMAGED, NOTED = 4 /* besides: it was said that a copy is damaged */ };

struct packing {
    char *path;
    struct pack pack;
    uint8_t *state; /* [layers][experts], where the sidecar has checksums */
    struct expert_source inner;
    bool has_copies;
    int layer; /* of the turn */
};

/* ---- The layout ----------------------------------------------------------------------------- */

static bool describe(const struct strata_model *m, struct pack *p, struct err *e)
{
    const struct model_info *info = model_info(m->network);
    *p = (struct pack){.layers = info->layers};
    p->layer =
        mem_alloc_array((size_t)info->layers, sizeof *p->layer, "the layers of a sidecar", e);
    if (!p->layer || !gguf_fingerprint(m->file, p->fingerprint, e))
        return false;
    for (int l = 0; l < info->layers; l++) {
        struct pack_layer *y = &p->layer[l];
        struct model_experts x;
        model_experts_of_layer(m->network, l, &x);
        y->parts = x.parts;
        y->experts = x.parts ? info->experts : 0;
        for (int i = 0; i < x.parts; i++) {
            int file = x.tensor[i]->part;
            y->part[i].fd = gguf_part_fd(m->file, file);
            y->part[i].path = gguf_part_path(m->file, file);
            y->part[i].offset = x.tensor[i]->offset;
            y->part[i].bytes = x.bytes_each[i];
            y->part[i].type = x.tensor[i]->type;
        }
    }
    return true;
}

static void forget(struct pack *p)
{
    mem_free(p->checksum);
    mem_free(p->layer);
    *p = (struct pack){0};
}

char *packing_path_beside(const char *model, struct err *e)
{
    int stem = (int)streaming_stem_bytes(model);
    size_t room = (size_t)stem + sizeof ".strata-pack";
    char *path = mem_alloc(room, "a path", e);
    if (path)
        snprintf(path, room, "%.*s.strata-pack", stem, model);
    return path;
}

/* ---- Finding it ----------------------------------------------------------------------------- */

static bool open_sidecar(struct strata_model *m, struct packing *g, const char *said, struct err *e)
{
    g->path = said ? mem_copy_text(said, strlen(said), e) : packing_path_beside(m->path, e);
    if (!g->path || (!said && access(g->path, F_OK)))
        return false;
    if (!describe(m, &g->pack, e) || !pack_open(&g->pack, g->path, e))
        return false;
    if (g->pack.has_checksums)
        g->state = mem_alloc_array((size_t)g->pack.layers * (size_t)g->pack.experts, 1,
                                   "checks of a sidecar", e);
    return !g->pack.has_checksums || g->state;
}

static void free_packing(struct packing *g)
{
    forget(&g->pack);
    mem_free(g->state);
    mem_free(g->path);
    mem_free(g);
}

bool packing_find(struct strata_model *m, struct err *e)
{
    const char *said = m->options.sidecar;
    if (m->packing || (said && !strcmp(said, "off")) || !model_info(m->network)->expert_bytes)
        return true;
    said = said && strcmp(said, "auto") != 0 ? said : NULL;
    struct err why;
    err_clear(&why);
    struct packing *g = mem_alloc(sizeof *g, "a sidecar", e);
    if (!g)
        return false;
    if (open_sidecar(m, g, said, &why)) {
        m->packing = g;
        log_detail("%s: experts are read from here", g->path);
        return true;
    }
    free_packing(g);
    if (said)
        return err_set(e, why.code, "%s", why.text);
    if (why.code != ERR_NONE)
        log_note("%s; the sidecar is not used", why.text);
    return true;
}

void packing_free(struct strata_model *m)
{
    if (m->packing)
        free_packing(m->packing);
    m->packing = NULL;
}

const char *packing_path(const struct strata_model *m)
{
    return m->packing ? m->packing->path : NULL;
}

/* ---- Copies of it --------------------------------------------------------------------------- */

bool packing_is_sidecar(const char *path)
{
    char magic[8] = {0};
    uint64_t bytes;
    struct err ignored;
    err_clear(&ignored);
    int fd = file_open(path, &bytes, &ignored);
    bool is_read = fd >= 0 && file_read_at(fd, path, 0, magic, sizeof magic, &ignored);
    if (fd >= 0)
        file_close(fd);
    return is_read && !memcmp(magic, "STRPCK01", sizeof magic);
}

bool packing_check_copy(const struct strata_model *m, const char *path, struct err *e)
{
    const struct pack *mine = &m->packing->pack;
    struct pack copy = {0};
    bool ok = describe(m, &copy, e) && pack_open(&copy, path, e);
    if (ok && (copy.has_checksums != mine->has_checksums || copy.file_bytes != mine->file_bytes))
        ok = err_set(e, ERR_FORMAT, "%s: it is no copy of %s, which was packed otherwise", path,
                     m->packing->path);
    forget(&copy);
    return ok;
}

void packing_place(const struct strata_model *m, int layer, int file, struct stream_layer *out)
{
    const struct pack_layer *y = &m->packing->pack.layer[layer];
    *out = (struct stream_layer){.experts = y->experts,
                                 .parts = y->experts ? 1 : 0,
                                 .part[0] = {file, y->first, y->record_bytes}};
}

/* ---- Reading from it ------------------------------------------------------------------------ */

static bool packed_begin(void *ctx, const struct routing *r, struct err *e)
{
    struct packing *g = ctx;
    g->layer = r->layer;
    return g->inner.begin(g->inner.ctx, r, e);
}

/* A record whose checksum is wrong is read from the model instead, every time. With several copies
 * each read is checked, as it may come from another one. */
static bool check_record(struct packing *g, const struct expert_record *r, void *record,
                         struct err *e)
{
    if (!g->state)
        return true;
    size_t at = (size_t)g->layer * (size_t)g->pack.experts + (size_t)r->expert;
    uint8_t *state = &g->state[at], noted = *state & NOTED;
    if (r->is_new && g->has_copies)
        *state = noted | UNCHECKED;
    if ((*state & ~NOTED) == UNCHECKED) {
        bool is_good = pack_checksum(&g->pack, g->layer, record) == g->pack.checksum[at];
        *state = is_good ? noted | GOOD : NOTED | DAMAGED;
        if (!is_good && !noted)
            log_note("%s: expert %d of layer %d is damaged%s; it is read from the model instead",
                     g->path, r->expert, g->layer, g->has_copies ? " in one of the copies" : "");
    }
    return !(*state & DAMAGED) || pack_read_record(&g->pack, g->layer, r->expert, record, e);
}

static int packed_next(void *ctx, struct expert_record *out, int most, struct err *e)
{
    struct packing *g = ctx;
    int n = g->inner.next(g->inner.ctx, out, most, e);
    if (g->layer >= g->pack.layers) /* a draft layer, as it is in its file */
        return n;
    const struct pack_layer *y = &g->pack.layer[g->layer];
    for (int i = 0; i < n; i++) {
        const char *record = out[i].part[0];
        /* The slot is the stream's own memory, and nobody reads it before it is handed out. */
        if (!check_record(g, &out[i], (void *)record, e))
            return -1;
        for (int p = 0; p < y->parts; p++)
            out[i].part[p] = record + y->part[p].at;
    }
    return n;
}

static void packed_end(void *ctx)
{
    struct packing *g = ctx;
    g->inner.end(g->inner.ctx);
}

static int packed_guess_ranks(void *ctx, int layer, bool is_band)
{
    struct packing *g = ctx;
    return g->inner.guess_ranks(g->inner.ctx, layer, is_band);
}

static void packed_guess(void *ctx, const struct guess *guess)
{
    struct packing *g = ctx;
    g->inner.guess(g->inner.ctx, guess);
}

static const float *packed_bonus(void *ctx, int layer, bool is_band, int *keep)
{
    struct packing *g = ctx;
    return g->inner.bonus(g->inner.ctx, layer, is_band, keep);
}

void packing_wire(struct strata_model *m)
{
    struct packing *g = m->packing;
    if (!g)
        return;
    g->has_copies = m->options.n_replicas > 0;
    g->inner = m->experts;
    m->experts = (struct expert_source){.ctx = g,
                                        .begin = packed_begin,
                                        .next = packed_next,
                                        .end = packed_end,
                                        .guess_ranks = packed_guess_ranks,
                                        .guess = packed_guess,
                                        .bonus = packed_bonus};
}

/* ---- Making it ------------------------------------------------------------------------------ */

static bool make(struct strata_model *m, const struct strata_pack_options *o, struct pack *p,
                 struct err *e)
{
    char *own = o->path ? NULL : packing_path_beside(m->path, e);
    const char *path = o->path ? o->path : own;
    const struct pack_progress progress = {m->options.callback_ctx, m->options.progress,
                                           m->options.cancel};
    p->has_checksums = o->checksums;
    bool ok = path && (o->only_verify ? pack_open(p, path, e)
                                      : pack_lay_out(p, e) && pack_write(p, path, &progress, e));
    if (ok && o->verify && !o->only_verify)
        ok = pack_open(p, path, e);
    ok = ok && (!(o->verify || o->only_verify) || pack_verify(p, path, &progress, e));
    mem_free(own);
    return ok;
}

bool strata_pack(struct strata_model *m, const struct strata_pack_options *o,
                 struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct pack p = {0};
    if (engine_network(m, &e)) {
        if (!model_info(m->network)->expert_bytes)
            err_set(&e, ERR_USAGE, "%s: has no experts that could be packed", m->path);
        else if (describe(m, &p, &e))
            make(m, o, &p, &e);
    }
    forget(&p);
    return session_report(error, &e);
}
