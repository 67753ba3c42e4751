/* SPDX-License-Identifier: Apache-2.0 */
/* How experts are streamed, from the words of the options; copies of the model on other drives; and
 * the popularity profile, which is read when a model is loaded and written when it is freed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/cache.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "gguf/join.h"
#include "session/engine.h"
#include "stream/profile.h"

/* ---- words ---------------------------------------------------------------------------------- */

static bool parse_real(const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end > text && !*end && *out >= least && *out <= most;
}

static bool parse_read_ahead(const char *text, float margin, struct stream_config *c, struct err *e)
{
    char *end;
    if (!(margin >= 0 && margin <= 1))
        return err_set(e, ERR_USAGE, "ahead_margin is %g: it must be 0 to 1", (double)margin);
    c->ahead = (struct stream_ahead){.has_guard = true, .margin = margin};
    if (!text || !strcmp(text, "auto"))
        return true;
    if (!strcmp(text, "off")) {
        c->ahead.is_off = c->no_look_ahead = true;
        return true;
    }
    long ranks = strtol(text, &end, 10);
    if (end == text || *end || ranks < 0 || ranks > STREAM_RANKS_MOST)
        return err_set(e, ERR_USAGE, "--read-ahead: \"%s\" is not auto, off or 0 to %d", text,
                       STREAM_RANKS_MOST);
    c->ahead = (struct stream_ahead){.ranks = (int)ranks, .is_off = !ranks, .margin = margin};
    return true;
}

static bool parse_moce(const struct strata_options *o, struct stream_moce *out, struct err *e)
{
    double x;
    *out = (struct stream_moce){.keep = o->moce_keep, .for_prompts = o->prompt_moce};
    if (!o->moce)
        return true;
    if (!strncmp(o->moce, "auto:", 5) && parse_real(o->moce + 5, 1e-6, 1, &x))
        out->budget = (float)x;
    else if (parse_real(o->moce, 0, 10, &x))
        out->lambda = (float)x;
    else
        return err_set(e, ERR_USAGE,
                       "--moce: \"%s\" is not a strength like 0.5, nor auto:X with X up to 1",
                       o->moce);
    return true;
}

bool streaming_bends_routing(const struct strata_model *m)
{
    struct stream_moce moce;
    struct err ignored;
    err_clear(&ignored);
    return !parse_moce(&m->options, &moce, &ignored) || moce.budget > 0 || moce.lambda > 0;
}

uint32_t streaming_routing_print(const struct strata_model *m)
{
    struct stream_moce moce;
    struct err ignored;
    err_clear(&ignored);
    if (!parse_moce(&m->options, &moce, &ignored) || (moce.lambda <= 0 && moce.budget <= 0))
        return 0;
    uint8_t all[16];
    bytes_put_u32(all, half_f32_bits(moce.lambda));
    bytes_put_u32(all + 4, half_f32_bits(moce.budget));
    bytes_put_u32(all + 8, (uint32_t)moce.keep);
    bytes_put_u32(all + 12, moce.for_prompts);
    uint32_t print = (uint32_t)XXH3_64bits(all, sizeof all);
    return print ? print : 1;
}

bool streaming_config(const struct strata_model *m, struct stream_config *c, struct err *e)
{
    const struct strata_options *o = &m->options;
    struct stream_moce moce;
    c->policy = POLICY_LFU; /* best on the recorded routing traces (docs/streaming.md, "Policies") */
    c->split = o->io_split;
    c->no_overlap = o->no_overlap;
    c->lock = true;
    c->gives_back = o->shrink != STRATA_OFF;
    c->gives_back_bent = o->shrink == STRATA_ON;
    return (!o->policy || policy_parse(o->policy, &c->policy, e)) &&
           parse_read_ahead(o->read_ahead, o->ahead_margin, c, e) && parse_moce(o, &moce, e);
}

/* A record that lies in parts is read in as many pieces anyhow, and small ones are not worth their
 * commands: the drive was measured with pieces of 192 KiB and more. */
#define PIECE_LEAST ((uint64_t)128 << 10)

/* With copies each part is cut into a piece for every drive, for a record alone is often all that is
 * waited for. */
int streaming_split(const struct strata_model *m, const struct stream_config *c)
{
    int pieces = m->options.drive_parts, drives = 1 + m->options.n_replicas;
    int split = STREAM_SPLIT_MOST;
    for (int l = 0; l < c->layers; l++) {
        const struct stream_layer *y = &c->layer[l];
        if (!y->experts)
            continue;
        int of_part = (pieces + y->parts - 1) / y->parts;
        of_part = of_part > drives ? of_part : drives;
        for (int p = 0; p < y->parts; p++) {
            uint64_t most = y->part[p].bytes / PIECE_LEAST;
            split = split < of_part ? split : of_part;
            split = (uint64_t)split < most ? split : (int)most;
        }
    }
    return split > 1 && (pieces > 1 || drives > 1) ? split : 1;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Parts of a copy of the model into paths[0..parts-1]: it must be the same model. A draft layer of
 * another file is where it is. */
static bool add_model(const struct strata_model *m, const char *path, char **paths, struct err *e)
{
    int parts = gguf_parts(m->file), own = gguf_own_parts(m->file);
    uint8_t mine[16], others[16];
    struct gguf_file *g = gguf_open(path, e);
    bool ok = g && gguf_fingerprint(m->file, mine, e) && gguf_fingerprint(g, others, e);
    if (ok && (gguf_parts(g) != own || memcmp(mine, others, sizeof mine)))
        ok = err_set(e, ERR_FORMAT, "%s: it is no copy of %s", path, m->path);
    for (int i = 0; ok && i < parts; i++) {
        const char *part = gguf_part_path(i < own ? g : m->file, i);
        ok = (paths[i] = mem_copy_text(part, strlen(part), e)) != NULL;
    }
    gguf_close(g);
    return ok;
}

/* The files of one copy: parts of the model, then the sidecar if one is used. A copy of the sidecar
 * alone has the other files where they are. */
static bool add_copy(const struct strata_model *m, const char *path, char **paths, struct err *e)
{
    int parts = gguf_parts(m->file);
    bool is_sidecar = packing_is_sidecar(path), ok = true;
    if (is_sidecar && !m->packing)
        return err_set(e, ERR_FORMAT, "%s: a copy of a sidecar, but no sidecar is used", path);
    for (int i = 0; is_sidecar && ok && i < parts; i++) {
        const char *part = gguf_part_path(m->file, i);
        ok = (paths[i] = mem_copy_text(part, strlen(part), e)) != NULL;
    }
    ok = ok && (is_sidecar || add_model(m, path, paths, e));
    if (!ok || !m->packing)
        return ok;
    paths[parts] = is_sidecar ? mem_copy_text(path, strlen(path), e) : packing_path_beside(path, e);
    return paths[parts] && packing_check_copy(m, paths[parts], e);
}

static bool find_copies(struct strata_model *m, struct err *e)
{
    const struct strata_options *o = &m->options;
    int files = gguf_parts(m->file) + (m->packing != NULL);
    m->n_copy_paths = o->n_replicas * files;
    m->copy_paths =
        mem_alloc_array((size_t)m->n_copy_paths, sizeof *m->copy_paths, "the list of copies", e);
    for (int i = 0; m->copy_paths && i < o->n_replicas; i++)
        if (!add_copy(m, o->replicas[i], m->copy_paths + i * files, e)) {
            streaming_forget_copies(m);
            return false;
        }
    return m->copy_paths;
}

bool streaming_find_copies(struct strata_model *m, struct err *e)
{
    const struct strata_options *o = &m->options;
    struct err why;
    err_clear(&why);
    if (o->n_replicas <= 0 || m->copy_paths || find_copies(m, &why))
        return true;
    bool is_said = o->sidecar && strcmp(o->sidecar, "auto") != 0;
    bool is_about_it = m->packing && why.code != ERR_MEMORY;
    for (int i = 0; is_about_it && i < o->n_replicas; i++)
        is_about_it = !packing_is_sidecar(o->replicas[i]);
    if (is_said || !is_about_it)
        return err_set(e, why.code, "%s", why.text);
    packing_free(m);
    if (!find_copies(m, e))
        return false;
    log_note("%s; the sidecar is not used", why.text);
    return true;
}

void streaming_forget_copies(struct strata_model *m)
{
    for (int i = 0; m->copy_paths && i < m->n_copy_paths; i++)
        mem_free(m->copy_paths[i]);
    mem_free(m->copy_paths);
    m->copy_paths = NULL;
}

/* ---- popularity ----------------------------------------------------------------------------- */

size_t streaming_stem_bytes(const char *path)
{
    size_t n = strlen(path);
    if (n > 5 && !strcmp(path + n - 5, ".gguf"))
        n -= 5;
    unsigned part, parts;
    int used = 0;
    if (n > 15 && sscanf(path + n - 15, "-%5u-of-%5u%n", &part, &parts, &used) == 2 && used == 15)
        n -= 15;
    return n;
}

/* Whether the file may be written where it is to lie. */
static bool folder_is_writable(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096] = ".";
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash == path ? 1 : slash - path), path);
    return !access(folder, W_OK);
}

/* In the user's cache, the name from the fingerprint. */
static void path_in_cache(const struct strata_model *m, char *out, size_t room)
{
    char name[2 * 16 + sizeof ".strata-pop"];
    for (int i = 0; i < 16; i++)
        snprintf(name + 2 * i, 3, "%02x", m->fingerprint[i]);
    strcpy(name + 2 * 16, ".strata-pop");
    if (!cache_path(name, true, out, room))
        *out = 0;
}

/* Where the profile lies; empty: there is to be none. */
static void profile_path(const struct strata_model *m, char *out, size_t room)
{
    const char *said = m->options.popularity;
    *out = 0;
    if (!said || !strcmp(said, "off"))
        return;
    if (strcmp(said, "auto")) {
        snprintf(out, room, "%s", said);
        return;
    }
    snprintf(out, room, "%.*s.strata-pop", (int)streaming_stem_bytes(m->path), m->path);
    if (!folder_is_writable(out))
        path_in_cache(m, out, room);
}

/* The profile of this model with the counts at `counts`; p->experts is freed by the caller. */
static bool describe(const struct strata_model *m, uint32_t *counts, struct profile *p,
                     struct err *e)
{
    const struct model_info *info = model_info(m->network);
    int *experts =
        mem_alloc_array((size_t)info->layers, sizeof *experts, "the popularity profile", e);
    for (int l = 0; experts && l < info->layers; l++) {
        struct model_experts x;
        model_experts_of_layer(m->network, l, &x);
        experts[l] = x.parts ? info->experts : 0;
    }
    *p = (struct profile){.layers = info->layers, .experts = experts, .counts = counts};
    memcpy(p->fingerprint, m->fingerprint, sizeof p->fingerprint);
    return experts;
}

/* A profile that was named must be good if it is there; one that was found is ignored with a note.
 */
static bool load_profile(struct strata_model *m, const char *path, struct err *e)
{
    struct profile p = {0};
    struct err why = {0};
    if (access(path, F_OK))
        return true;
    uint32_t *counts = mem_alloc_array((size_t)stream_records(m->stream), sizeof *counts,
                                       "the popularity profile", e);
    bool ok = counts && describe(m, counts, &p, e);
    bool is_good = ok && profile_read(path, &p, &why);
    if (is_good)
        stream_set_counts(m->stream, counts, p.tokens);
    else if (ok && strcmp(m->options.popularity, "auto"))
        ok = err_set(e, why.code, "%s", why.text);
    else if (ok)
        log_note("%s; the popularity profile is not used", why.text);
    mem_free((void *)p.experts);
    mem_free(counts);
    return ok;
}

static bool expect_by_profile(struct strata_model *m, const char *path, struct knee_curve *out)
{
    struct profile p = {0};
    struct err ignored;
    err_clear(&ignored);
    const struct model_info *info = model_info(m->network);
    uint32_t *counts = mem_alloc_array((size_t)info->layers * (size_t)info->experts,
                                       sizeof *counts, "the popularity profile", NULL);
    bool ok = counts && gguf_fingerprint(m->file, m->fingerprint, &ignored) &&
              describe(m, counts, &p, &ignored) && profile_read(path, &p, &ignored) &&
              p.tokens >= KNEE_TOKENS_LEAST;
    size_t n = 0;
    for (int l = 0; ok && l < p.layers; l++)
        n += (size_t)p.experts[l];
    ok = ok && n && knee_count(out, counts, n);
    mem_free((void *)p.experts);
    mem_free(counts);
    return ok;
}

/* With cache-aware routing outputs depend on the size of the arena, and what was learned before must
 * not change them. */
void streaming_expect(struct strata_model *m, struct knee_curve *out)
{
    char path[4096];
    profile_path(m, path, sizeof path);
    bool may_learn = *path && !streaming_bends_routing(m) && !access(path, R_OK);
    if (!may_learn || !expect_by_profile(m, path, out))
        knee_assume(out);
}

bool streaming_start(struct strata_model *m, struct err *e)
{
    struct stream_moce moce;
    char path[4096];
    if (!parse_moce(&m->options, &moce, e))
        return false;
    stream_set_moce(m->stream, &moce);
    profile_path(m, path, sizeof path);
    if (*path && !load_profile(m, path, e))
        return false;
    stream_counts(m->stream, &m->profile_tokens);
    m->is_fill_due = m->profile_tokens > 0;
    return true;
}

void streaming_fill(struct strata_model *m)
{
    if (!m->is_fill_due)
        return;
    m->is_fill_due = false;
    stream_fill(m->stream);
}

void streaming_finish(struct strata_model *m)
{
    char path[4096];
    uint64_t tokens;
    struct profile p = {0};
    struct err e = {0};
    if (!m->stream || !m->is_loaded)
        return;
    profile_path(m, path, sizeof path);
    uint32_t *counts = (uint32_t *)stream_counts(m->stream, &tokens);
    if (!*path || tokens == m->profile_tokens)
        return;
    bool ok = describe(m, counts, &p, &e);
    p.tokens = tokens;
    if (!ok || !profile_write(path, &p, &e))
        log_detail("the popularity profile is not written: %s", e.text);
    mem_free((void *)p.experts);
}
