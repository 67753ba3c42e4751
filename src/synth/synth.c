/* SPDX-License-Identifier: Apache-2.0 */
/* Writes at disk speed: no weight of an expert is drawn one by one. For every type and deviation a
 * pool of blocks is drawn once; an expert is a slice of its pool at an offset of its own, so that
 * all experts differ. Tables of tokens are computed row by row, many rows at a time. */
#include "synth/synth.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/mem.h"
#include "synth/blocks.h"
#include "synth/tokens.h"

#define POOL_BYTES ((size_t)8 << 20)
#define ROWS_AT_ONCE 2048 /* of a table */
#define ROWS_A_CHUNK 64   /* of a worker */
#define POOLS_MOST 64
#define LAYERS_LEAST 4
#define VOCAB_LEAST 2048
#define SLICES 9973 /* purpose of the random stream that places slices; the pools come behind */

struct pool_of_blocks {
    enum tensor_type type;
    double deviation;
    uint8_t *blocks;
    size_t n;
};

struct synth {
    const struct synth_shape *shape;
    struct synth_options options; /* vocab filled in */
    uint64_t tables[SYNTH_NGRAM_TABLES];
    struct synth_list list;
    struct gguf_writer *writer;
    struct source *source; /* [list.n]: what each tensor's function gets */

    /* While writing. */
    struct tokens tokens;
    double kept; /* tokens_draft_kept */
    struct pool_of_blocks pools[POOLS_MOST];
    int n_pools;
    struct synth_random slices;
    struct pool *workers;
    float *row;           /* [threads][2 embd] */
    uint8_t *room;        /* [ROWS_AT_ONCE][largest row] */
    const uint8_t *chunk; /* what is handed out next: chunk[0 .. left - 1] */
    size_t left;
    uint64_t unit;                    /* of the tensor: expert, row or value that comes next */
    const struct synth_tensor *table; /* whose rows the workers compute */
    uint64_t done, all;
    const struct synth_progress *progress;
};

struct source {
    struct synth *s;
    const struct synth_tensor *t;
};

/* ---- Creation ------------------------------------------------------------------------------- */

static bool is_prime(uint64_t n)
{
    if (n < 4 || n % 2 == 0)
        return n == 2 || n == 3;
    for (uint64_t k = 3; k * k <= n; k += 2)
        if (n % k == 0)
            return false;
    return true;
}

/* The first odd primes from `base` on. */
static uint64_t find_tables(uint64_t base, uint64_t out[SYNTH_NGRAM_TABLES])
{
    uint64_t sum = 0;
    for (int i = 0; i < SYNTH_NGRAM_TABLES; base++)
        if (base % 2 && is_prime(base))
            sum += out[i++] = base;
    return sum;
}

static bool check_options(struct synth *s, const struct synth_options *o, struct err *e)
{
    s->shape = synth_shape_of(o->arch);
    if (!s->shape)
        return err_set(e, ERR_USAGE,
                       "--arch %s: it must be qwen4exp, qwen3moe, qwen3next or qwen35moe", o->arch);
    if (synth_mix_of(o->mix) < 0)
        return err_set(e, ERR_USAGE, "--mix %s: it must be iq2xs, ud1, ud-q4 or q8", o->mix);
    if (o->layers < LAYERS_LEAST || o->layers > s->shape->layers)
        return err_set(e, ERR_USAGE, "--layers %d: %s has %d, at least %d are needed", o->layers,
                       o->arch, s->shape->layers, LAYERS_LEAST);
    if (o->vocab && (o->vocab < VOCAB_LEAST || o->vocab > 1 << 20))
        return err_set(e, ERR_USAGE, "--vocab %d: it must be %d to %d", o->vocab, VOCAB_LEAST,
                       1 << 20);
    if (o->ngram_base < 2 || o->ngram_base > (uint64_t)1 << 31)
        return err_set(e, ERR_USAGE, "--ngram-base %" PRIu64 ": it must be 2 to 2^31",
                       o->ngram_base);
    if (o->mtp && !s->shape->has_draft)
        return err_set(e, ERR_USAGE, "--mtp: releases of %s have no draft layer", o->arch);
    s->options = *o;
    /* The head keeps its share of the bytes. */
    if (!o->vocab) {
        int share = (s->shape->vocab * o->layers + s->shape->layers - 1) / s->shape->layers;
        s->options.vocab = share == s->shape->vocab ? share : (share + 255) / 256 * 256;
        s->options.vocab = s->options.vocab > VOCAB_LEAST ? s->options.vocab : VOCAB_LEAST;
    }
    return true;
}

static bool write_data(void *ctx, uint64_t offset, void *to, size_t n, struct err *e);

static bool build(struct synth *s, struct err *e)
{
    uint64_t rows = (find_tables(s->options.ngram_base, s->tables) + 127) / 128 * 128;
    const struct synth_options *o = &s->options;
    struct synth_parts parts = {.shape = s->shape,
                                .mix = synth_mix_of(o->mix),
                                .layers = o->layers,
                                .vocab = o->vocab,
                                .ngram_rows = rows,
                                .has_model = o->mtp != SYNTH_MTP_ONLY,
                                .has_draft = o->mtp != SYNTH_MTP_NO};
    struct synth_about about = {s->shape,        o->mix,          o->layers, o->vocab,
                                parts.has_model, parts.has_draft, s->tables};
    s->writer = gguf_writer_new(e);
    if (!s->writer || !synth_put_keys(&about, s->writer, e) ||
        !synth_list_tensors(&parts, &s->list, e))
        return false;
    s->source = mem_alloc_array((size_t)s->list.n, sizeof *s->source, "tensors", e);
    if (!s->source)
        return false;
    for (int i = 0; i < s->list.n; i++) {
        const struct synth_tensor *t = &s->list.tensor[i];
        s->source[i] = (struct source){s, t};
        gguf_writer_tensor(s->writer, t->name, t->n_dims, t->ne, t->type, write_data,
                           &s->source[i]);
    }
    return true;
}

struct synth *synth_create(const struct synth_options *o, struct err *e)
{
    struct synth *s = mem_alloc(sizeof *s, "a synthetic model", e);
    if (s && (!check_options(s, o, e) || !build(s, e))) {
        synth_free(s);
        s = NULL;
    }
    return s;
}

static void free_writing(struct synth *s)
{
    tokens_free(&s->tokens);
    s->tokens = (struct tokens){0};
    for (int i = 0; i < s->n_pools; i++)
        mem_free(s->pools[i].blocks);
    s->n_pools = 0;
    mem_free(s->row);
    mem_free(s->room);
    s->row = NULL;
    s->room = NULL;
}

void synth_free(struct synth *s)
{
    if (!s)
        return;
    free_writing(s);
    gguf_writer_free(s->writer);
    mem_free(s->source);
    mem_free(s->list.tensor);
    mem_free(s);
}

uint64_t synth_bytes(const struct synth *s)
{
    return gguf_writer_bytes(s->writer);
}

/* ---- The table ------------------------------------------------------------------------------ */

/* Bytes of a tensor that one token reads; of the draft layer, one guess. */
static uint64_t bytes_read(const struct synth *s, const struct synth_tensor *t)
{
    uint64_t bytes = synth_tensor_bytes(t);
    if (t->fill == FILL_EXPERTS)
        return bytes / (uint64_t)s->shape->experts * (uint64_t)s->shape->used;
    if (t->group == GROUP_EMBEDDING)
        return bytes / t->ne[1];
    if (t->group == GROUP_NGRAM_TABLE)
        return bytes / t->ne[1] * SYNTH_NGRAM_TABLES;
    return bytes;
}

uint64_t synth_bytes_per_token(const struct synth *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < s->list.n; i++)
        sum += s->list.tensor[i].group == GROUP_DRAFT ? 0 : bytes_read(s, &s->list.tensor[i]);
    return sum;
}

/* One line: stored, read, and the types with their bytes. */
static void put_group(const struct synth *s, enum synth_group group, struct json_out *out)
{
    uint64_t stored = 0, read = 0, by_type[TENSOR_TYPES] = {0};
    for (int i = 0; i < s->list.n; i++) {
        const struct synth_tensor *t = &s->list.tensor[i];
        if (t->group != group)
            continue;
        stored += synth_tensor_bytes(t);
        read += bytes_read(s, t);
        by_type[t->type] += synth_tensor_bytes(t);
    }
    if (!stored)
        return;
    json_putf(out, "%-20s%12.2f%15.3f   ", synth_group_names[group], (double)stored * 1e-6,
              (double)read * 1e-6);
    const char *between = "";
    for (uint32_t i = 0; i < TENSOR_TYPES; i++)
        if (by_type[i]) {
            json_putf(out, "%s%s %.1f", between, tensor_type_info(i)->name,
                      (double)by_type[i] * 1e-6);
            between = ", ";
        }
    json_puts(out, "\n");
}

void synth_table(const struct synth *s, struct json_out *out)
{
    const struct synth_options *o = &s->options;
    json_putf(out, "%s, mix %s, %d layers, vocabulary %d\n", o->arch, o->mix, o->layers, o->vocab);
    json_putf(out, "%-20s%12s%15s   types\n", "group", "stored MB", "read MB/token");
    uint64_t experts = 0;
    for (int g = 0; g < SYNTH_GROUPS; g++)
        put_group(s, (enum synth_group)g, out);
    for (int i = 0; i < s->list.n; i++)
        experts +=
            s->list.tensor[i].fill == FILL_EXPERTS ? synth_tensor_bytes(&s->list.tensor[i]) : 0;
    int layers = o->mtp == SYNTH_MTP_ONLY ? 1 : o->layers + (o->mtp == SYNTH_MTP_IN);
    int records = layers * s->shape->experts;
    json_putf(out, "%-20s%12.2f%15.3f   one expert %.4f MB\n", "file",
              (double)synth_bytes(s) * 1e-6, (double)synth_bytes_per_token(s) * 1e-6,
              (double)experts * 1e-6 / records);
}

/* ---- Data ----------------------------------------------------------------------------------- */

/* A pool long enough for any matrix of one expert at any offset. */
static const struct pool_of_blocks *pool_of(struct synth *s, const struct synth_tensor *t,
                                            struct err *e)
{
    for (int i = 0; i < s->n_pools; i++)
        if (s->pools[i].type == t->type && s->pools[i].deviation == t->a)
            return &s->pools[i];
    const struct tensor_type_info *type = tensor_type_info(t->type);
    size_t expert = (size_t)s->shape->embd * (size_t)s->shape->width / type->block_values;
    size_t n = POOL_BYTES / type->block_bytes;
    n = n > 4 * expert ? n : 4 * expert;
    if (s->n_pools == POOLS_MOST) {
        err_set(e, ERR_UNSUPPORTED, "more than %d kinds of weights", POOLS_MOST);
        return NULL;
    }
    struct pool_of_blocks *p = &s->pools[s->n_pools];
    *p = (struct pool_of_blocks){.type = t->type, .deviation = t->a, .n = n};
    p->blocks = mem_alloc_array(n, type->block_bytes, "random weights", e);
    if (!p->blocks)
        return NULL;
    struct synth_random r = random_stream(s->options.seed, SLICES + 1 + (uint64_t)s->n_pools++);
    blocks_draw(t->type, n, t->a, &r, p->blocks);
    return p;
}

/* `blocks` blocks of the pool from a random place, or as many as there are from there on. */
static bool take_slice(struct synth *s, const struct synth_tensor *t, size_t blocks, bool is_whole,
                       struct err *e)
{
    const struct pool_of_blocks *p = pool_of(s, t, e);
    if (!p)
        return false;
    size_t size = tensor_type_info(t->type)->block_bytes;
    size_t at = (size_t)random_below(&s->slices, is_whole ? p->n - blocks : p->n / 2);
    size_t n = p->n - at < blocks ? p->n - at : blocks;
    s->chunk = p->blocks + at * size;
    s->left = n * size;
    s->unit += is_whole ? 1 : n;
    return true;
}

static void compute_rows(void *ctx, int chunk, int worker)
{
    struct synth *s = ctx;
    const struct synth_tensor *t = s->table;
    size_t n = (size_t)t->ne[0], row_bytes = tensor_row_bytes(t->type, t->ne[0]);
    float *x = s->row + (size_t)worker * 2 * (size_t)s->shape->embd;
    for (int i = chunk * ROWS_A_CHUNK; i < (chunk + 1) * ROWS_A_CHUNK; i++) {
        uint64_t id = s->unit + (uint64_t)i;
        if (i >= ROWS_AT_ONCE || id >= t->ne[1])
            return;
        if (t->fill == FILL_ROUTER)
            tokens_router(&s->tokens, (int)t->a, (int)t->b, (int)id, x);
        else if (t->fill == FILL_JOIN)
            tokens_join(&s->tokens, s->kept, (int)id, x);
        else if (t->fill == FILL_EMBED)
            tokens_embed(&s->tokens, (int64_t)id, x);
        else
            tokens_head(&s->tokens, (int64_t)id, x);
        blocks_encode(t->type, x, n, s->room + (size_t)i * row_bytes);
    }
}

static void take_rows(struct synth *s, const struct synth_tensor *t)
{
    uint64_t rows = t->ne[1] - s->unit;
    rows = rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
    s->table = t;
    pool_run(s->workers, compute_rows, s, ((int)rows + ROWS_A_CHUNK - 1) / ROWS_A_CHUNK);
    s->chunk = s->room;
    s->left = (size_t)(rows * tensor_row_bytes(t->type, t->ne[0]));
    s->unit += rows;
}

/* Plain numbers, F32 or BF16; a thousand at a time. */
static void take_numbers(struct synth *s, const struct synth_tensor *t)
{
    float x[1024];
    uint64_t left = t->ne[0] * t->ne[1] * t->ne[2] - s->unit;
    int n = left < 1024 ? (int)left : 1024;
    if (t->fill == FILL_RANDOM)
        random_normal(&s->slices, x, n, (float)t->a);
    else
        for (int i = 0; i < n; i++)
            x[i] = t->fill == FILL_ONES ? 1 : random_between(&s->slices, (float)t->a, (float)t->b);
    blocks_encode(t->type, x, (size_t)n, s->room);
    s->chunk = s->room;
    s->left = (size_t)tensor_row_bytes(t->type, (uint64_t)n);
    s->unit += (uint64_t)n;
}

static bool next_chunk(struct synth *s, const struct synth_tensor *t, struct err *e)
{
    size_t values = tensor_type_info(t->type)->block_values;
    if (t->fill == FILL_EXPERTS)
        return take_slice(s, t, (size_t)(t->ne[0] * t->ne[1]) / values, true, e);
    if (t->fill == FILL_RANDOM && values > 1)
        return take_slice(s, t, (size_t)(t->ne[0] * t->ne[1] / values - s->unit), false, e);
    if (t->fill == FILL_ROUTER || t->fill == FILL_EMBED || t->fill == FILL_HEAD ||
        t->fill == FILL_JOIN)
        take_rows(s, t);
    else
        take_numbers(s, t);
    return true;
}

static bool write_data(void *ctx, uint64_t offset, void *to, size_t n, struct err *e)
{
    const struct source *from = ctx;
    struct synth *s = from->s;
    if (!offset) {
        s->left = 0;
        s->unit = 0;
    }
    for (size_t done = 0; done < n;) {
        if (!s->left && !next_chunk(s, from->t, e))
            return false;
        size_t piece = s->left < n - done ? s->left : n - done;
        memcpy((uint8_t *)to + done, s->chunk, piece);
        s->chunk += piece;
        s->left -= piece;
        done += piece;
    }
    s->done += n;
    const struct synth_progress *p = s->progress;
    if (p && p->wrote)
        p->wrote(p->ctx, s->done, s->all);
    if (p && p->cancel && atomic_load(p->cancel))
        return err_set(e, ERR_INTERRUPTED, "interrupted");
    return true;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static bool check_room(const char *path, uint64_t need, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_copy_text(path, slash == path ? 1 : (size_t)(slash - path), e)
                         : mem_copy_text(".", 1, e);
    if (!folder)
        return false;
    struct statvfs v;
    bool is_known = statvfs(folder, &v) == 0;
    uint64_t room = is_known ? (uint64_t)v.f_bavail * v.f_frsize : 0;
    mem_free(folder);
    if (is_known && room < need)
        return err_set(e, ERR_IO, "%s: %" PRIu64 " bytes are needed, the disk has %" PRIu64 " left",
                       path, need, room);
    return true;
}

static bool prepare(struct synth *s, struct err *e)
{
    size_t embd = (size_t)s->shape->embd;
    s->slices = random_stream(s->options.seed, SLICES);
    s->row =
        mem_alloc_array((size_t)pool_threads(s->workers) * 2 * embd, sizeof(float), "a row", e);
    s->room = mem_alloc_array(ROWS_AT_ONCE * embd, sizeof(float), "rows", e);
    if (!s->row || !s->room ||
        !tokens_create(&s->tokens, s->shape, s->options.layers, s->options.vocab, s->options.seed,
                       e))
        return false;
    s->kept = tokens_draft_kept(&s->tokens, s->options.mtp_right);
    return true;
}

static bool write_ids(const struct synth *s, const char *path, struct err *e)
{
    int n = s->options.ids_len;
    int32_t *ids = mem_alloc_array((size_t)n, sizeof *ids, "ids", e);
    char *name = mem_alloc(strlen(path) + 5, "a path", e);
    struct json_out text = {0};
    bool ok = ids && name;
    if (ok) {
        tokens_text(&s->tokens, n, ids);
        for (int i = 0; i < n; i++)
            json_putf(&text, "%d\n", ids[i]);
        snprintf(name, strlen(path) + 5, "%s.ids", path);
        struct file_writer f;
        ok = !text.failed ? file_write_begin(&f, name, 0666, e)
                          : err_set(e, ERR_MEMORY, "out of memory: ids");
        if (ok && !(ok = file_write(&f, text.text, text.bytes, e)))
            file_write_abort(&f);
        ok = ok && file_write_commit(&f, e);
    }
    json_out_free(&text);
    mem_free(name);
    mem_free(ids);
    return ok;
}

bool synth_write(struct synth *s, const char *path, struct pool *workers,
                 const struct synth_progress *p, struct err *e)
{
    s->workers = workers;
    s->progress = p;
    s->done = 0;
    s->all = synth_bytes(s);
    bool ok = check_room(path, s->all, e) && prepare(s, e) &&
              gguf_writer_write(s->writer, path, e) &&
              (!s->options.ids_len || s->options.mtp == SYNTH_MTP_ONLY || write_ids(s, path, e));
    free_writing(s);
    return ok;
}
