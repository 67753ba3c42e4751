/* SPDX-License-Identifier: Apache-2.0 */
/* The whole file is read, checked once from front to end, and then looked at in place. */
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "stream/trace.h"

#define FILE_BYTES_MOST ((size_t)8 << 30)
#define V2_FIXED_BYTES 56
#define V1_HEAD_BYTES 32
#define RECORD_BYTES 9 /* kind, session, rows */
#define END_BYTES 20   /* END!, records, hash */
#define LAYERS_MOST 4096
#define EXPERTS_MOST 65535
#define USED_MOST 255
#define TEXT_MOST (1 << 16)
#define EXPERT_BYTES_MOST ((uint64_t)1 << 50) /* of all records */
#define WINDOW_ROWS_MOST 1024

struct trace {
    const char *path; /* only while it is opened */
    uint8_t *bytes;
    size_t size;
    int version;
    struct trace_head head;
    int *place; /* [layers]: among the layers that have experts, -1 */
    int with_experts;
    size_t row_bytes; /* of a layer */
    struct trace_record *record;
    int records, room;
    char *end_text;
};

static bool bad(const struct trace *t, struct err *e, const char *what, uint64_t at)
{
    return err_set(e, ERR_FORMAT, "%s: no trace that can be read: %s at byte %llu", t->path, what,
                   (unsigned long long)at);
}

static bool in_range(const struct trace *t, const char *what, uint32_t v, uint32_t least,
                     uint32_t most, struct err *e)
{
    return (v >= least && v <= most) || err_set(e, ERR_FORMAT, "%s: %s is %u: it must be %u to %u",
                                                t->path, what, v, least, most);
}

/* ---- headers ---- */

static bool read_shape(struct trace *t, const uint8_t *at, struct err *e)
{
    struct trace_head *h = &t->head;
    uint32_t layers = bytes_u32(at), experts = bytes_u32(at + 4);
    uint32_t used = bytes_u32(at + 8), ranks = bytes_u32(at + 12);
    if (!in_range(t, "the number of layers", layers, 1, LAYERS_MOST, e) ||
        !in_range(t, "the number of experts", experts, 1, t->version == 1 ? 255 : EXPERTS_MOST,
                  e) ||
        !in_range(t, "the number of experts used", used, 1,
                  experts < USED_MOST ? experts : USED_MOST, e) ||
        !in_range(t, "the number of ranks", ranks, 0, experts < USED_MOST ? experts : USED_MOST, e))
        return false;
    h->layers = (int)layers;
    h->experts = (int)experts;
    h->used = (int)used;
    h->ranks = (int)ranks;
    h->layer = mem_alloc_array(layers, sizeof *h->layer, "a trace", e);
    t->place = mem_alloc_array(layers, sizeof *t->place, "a trace", e);
    return h->layer && t->place;
}

/* The older form: every layer has experts, of unknown size; a page stands for it. */
static bool read_head_1(struct trace *t, struct err *e)
{
    if (!read_shape(t, t->bytes + 12, e))
        return false;
    struct trace_head *h = &t->head;
    for (int l = 0; l < h->layers; l++) {
        h->layer[l].record_bytes = 4096;
        t->place[l] = l;
    }
    t->with_experts = h->layers;
    t->row_bytes = 5 * (size_t)h->used + (size_t)h->ranks;
    h->guess_layers = 1;
    h->text = mem_copy_text("", 0, e);
    return h->text != NULL;
}

static bool read_layers(struct trace *t, const uint8_t *at, struct err *e)
{
    struct trace_head *h = &t->head;
    uint64_t left = EXPERT_BYTES_MOST;
    for (int l = 0; l < h->layers; l++, at += 12) {
        h->layer[l] = (struct trace_layer){bytes_u64(at), bytes_u32(at + 8)};
        if (h->layer[l].record_bytes > left / (uint64_t)h->experts ||
            h->layer[l].record_bytes % 4096)
            return bad(t, e, "a layer's record size", (uint64_t)(at - t->bytes));
        left -= h->layer[l].record_bytes * (uint64_t)h->experts;
        if (h->layer[l].record_bytes && h->layer[l].class_index >= (uint32_t)h->classes)
            return bad(t, e, "a layer's size class", (uint64_t)(at - t->bytes));
        t->place[l] = h->layer[l].record_bytes ? t->with_experts++ : -1;
    }
    for (int c = 0; c < h->classes; c++)
        h->slots[c] = bytes_u32(at + 4 * c);
    return t->with_experts > 0 || bad(t, e, "no layer with experts", V2_FIXED_BYTES);
}

static const char *find_value(const char *lines, const char *key, char *room, size_t bytes)
{
    size_t n = strlen(key);
    for (const char *at = lines; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        if (strncmp(at, key, n) || at[n] != '=')
            continue;
        size_t length = strcspn(at + n + 1, "\n");
        length = length < bytes - 1 ? length : bytes - 1;
        memcpy(room, at + n + 1, length);
        room[length] = 0;
        return room;
    }
    return NULL;
}

static bool read_head_2(struct trace *t, size_t *end, struct err *e)
{
    struct trace_head *h = &t->head;
    const uint8_t *b = t->bytes;
    if (t->size < V2_FIXED_BYTES)
        return bad(t, e, "a header that is cut", t->size);
    if (!read_shape(t, b + 12, e))
        return false;
    memcpy(h->fingerprint, b + 28, 16);
    uint32_t counts = bytes_u32(b + 44), text = bytes_u32(b + 48), classes = bytes_u32(b + 52);
    if (!in_range(t, "the flag of counts", counts, 0, 1, e) ||
        !in_range(t, "the length of the text", text, 0, TEXT_MOST, e) ||
        !in_range(t, "the number of size classes", classes, 1, TRACE_CLASSES, e))
        return false;
    size_t bytes = V2_FIXED_BYTES + text + 12 * (size_t)h->layers + 4 * (size_t)classes;
    if (bytes_u32(b + 8) != bytes || bytes > t->size)
        return bad(t, e, "a header of another size", 8);
    h->has_counts = counts;
    h->classes = (int)classes;
    h->text = mem_copy_text((const char *)b + V2_FIXED_BYTES, text, e);
    t->row_bytes = 6 * (size_t)h->used + 2 * (size_t)h->ranks;
    *end = bytes;
    h->guess_layers = t->version - 1;
    return h->text && read_layers(t, b + V2_FIXED_BYTES + text, e);
}

/* ---- records ---- */

static bool add_record(struct trace *t, const struct trace_record *r, struct err *e)
{
    if (t->records == t->room) {
        int room = t->room * 2 + 256;
        struct trace_record *more = mem_grow(t->record, (size_t)room * sizeof *more, "a trace", e);
        if (!more)
            return false;
        t->record = more;
        t->room = room;
    }
    t->record[t->records++] = *r;
    return true;
}

static size_t layer_bytes(const struct trace *t, int rows)
{
    size_t far = t->head.guess_layers == 2 ? 2 * (size_t)t->head.ranks : 0;
    return (size_t)rows * (t->row_bytes + far) + (t->head.has_counts ? 4 * TRACE_COUNTS : 0);
}

/* Bytes of a record behind its first RECORD_BYTES; `rows` is at most the size of the file. */
static size_t body_bytes(const struct trace *t, enum trace_kind kind, int rows)
{
    if (kind == TRACE_TEXT)
        return (size_t)rows;
    if (kind != TRACE_WINDOW && kind != TRACE_BAND)
        return 0;
    return 4 * (size_t)rows + (size_t)t->with_experts * layer_bytes(t, rows);
}

static bool check_row(const struct trace *t, const struct trace_record *r, int layer, int row,
                      struct err *e)
{
    int32_t ids[USED_MOST], guess[USED_MOST], far[USED_MOST];
    const struct trace_head *h = &t->head;
    trace_row(t, r, layer, row, ids, NULL, guess);
    bool has_far = trace_far_guess(t, r, layer, row, far);
    for (int i = 0; i < h->used; i++)
        if (ids[i] < 0 || ids[i] >= h->experts)
            return bad(t, e, "an expert that does not exist", (uint64_t)(r->at - t->bytes));
    for (int i = 0; i < h->ranks; i++)
        if (guess[i] >= h->experts || (has_far && far[i] >= h->experts))
            return bad(t, e, "a guess that does not exist", (uint64_t)(r->at - t->bytes));
    return true;
}

static bool check_turn(const struct trace *t, const struct trace_record *r, struct err *e)
{
    for (int l = 0; l < t->head.layers; l++)
        for (int row = 0; t->place[l] >= 0 && row < r->rows; row++)
            if (!check_row(t, r, l, row, e))
                return false;
    return true;
}

/* The record at `at`; 0 when it is not whole. *next: behind it. */
static bool read_record(struct trace *t, size_t at, size_t *next, struct err *e)
{
    const uint8_t *b = t->bytes + at;
    *next = 0;
    if (t->size - at < RECORD_BYTES)
        return true;
    uint32_t rows = bytes_u32(b + 5);
    if (b[0] >= TRACE_KINDS)
        return bad(t, e, "a record of an unknown kind", at);
    if (rows > (b[0] == TRACE_WINDOW ? WINDOW_ROWS_MOST : INT32_MAX))
        return bad(t, e, "a record of too many rows", at);
    bool has_body = b[0] != TRACE_PROMPT_BEGIN && b[0] != TRACE_PROMPT_END;
    if (has_body && (!rows || rows > t->size))
        return rows ? true : bad(t, e, "a turn without rows", at);
    struct trace_record r = {(enum trace_kind)b[0], bytes_u32(b + 1), (int)rows, b + RECORD_BYTES};
    size_t body = body_bytes(t, r.kind, r.rows);
    if (body > t->size - at - RECORD_BYTES)
        return true;
    if ((r.kind == TRACE_WINDOW || r.kind == TRACE_BAND) && !check_turn(t, &r, e))
        return false;
    *next = at + RECORD_BYTES + body;
    return add_record(t, &r, e);
}

static bool read_end(const struct trace *t, size_t at, struct err *e)
{
    const uint8_t *b = t->bytes + at;
    if (t->size - at != END_BYTES)
        return bad(t, e, "bytes behind the end", at + END_BYTES);
    if (bytes_u64(b + 4) != (uint64_t)t->records)
        return bad(t, e, "another number of records", at + 4);
    return bytes_u64(b + 12) == XXH3_64bits(t->bytes, at + 12) ||
           bad(t, e, "a wrong checksum", at + 12);
}

/* The hash covers everything before itself. */
static bool read_records_2(struct trace *t, size_t at, bool *is_cut, struct err *e)
{
    *is_cut = true;
    while (at < t->size) {
        size_t next;
        if (t->size - at >= END_BYTES && !memcmp(t->bytes + at, "END!", 4)) {
            *is_cut = false;
            return read_end(t, at, e);
        }
        if (t->bytes[at] == 'E' && t->size - at < END_BYTES) /* the end itself is cut */
            return true;
        if (!read_record(t, at, &next, e))
            return false;
        if (!next)
            return true;
        at = next;
    }
    return true;
}

/* T records of one row each, or one band of T rows, which lie token by token. */
static bool read_records_1(struct trace *t, bool *is_cut, struct err *e)
{
    uint32_t tokens = bytes_u32(t->bytes + 8), kind = bytes_u32(t->bytes + 28);
    size_t bytes = 4 + (size_t)t->head.layers * t->row_bytes;
    uint64_t whole = (t->size - V1_HEAD_BYTES) / bytes;
    if (!in_range(t, "the kind", kind, 0, 1, e))
        return false;
    if (t->size > V1_HEAD_BYTES + (uint64_t)tokens * bytes)
        return bad(t, e, "bytes behind the last token", V1_HEAD_BYTES + (uint64_t)tokens * bytes);
    *is_cut = whole < tokens;
    if (!whole || whole > INT32_MAX)
        return bad(t, e, "no token", V1_HEAD_BYTES);
    int turns = kind ? 1 : (int)whole, rows = kind ? (int)whole : 1;
    for (int i = 0; i < turns; i++) {
        struct trace_record r = {kind ? TRACE_BAND : TRACE_WINDOW, 0, rows,
                                 t->bytes + V1_HEAD_BYTES + (size_t)i * bytes};
        if (!check_turn(t, &r, e) || !add_record(t, &r, e))
            return false;
    }
    return true;
}

/* ---- opening ---- */

static bool read_version(struct trace *t, struct err *e)
{
    if (t->size < V1_HEAD_BYTES || memcmp(t->bytes, "STRTRC0", 7))
        return err_set(e, ERR_FORMAT, "%s: not a trace of strata", t->path);
    t->version = t->bytes[7] - '0';
    return (t->version >= 1 && t->version <= 3) ||
           err_set(e, ERR_FORMAT, "%s: a trace of version %d, this program reads 1, 2 and 3", t->path,
                   t->version);
}

/* The text at the end of the run. */
static bool keep_end_text(struct trace *t, struct err *e)
{
    const struct trace_record *r = t->records ? &t->record[t->records - 1] : NULL;
    bool has = r && r->kind == TRACE_TEXT;
    t->end_text = mem_copy_text(has ? (const char *)r->at : "", has ? (size_t)r->rows : 0, e);
    return t->end_text != NULL;
}

struct trace *trace_open(const char *path, bool *is_cut, struct err *e)
{
    struct trace *t = mem_alloc(sizeof *t, "a trace", e);
    if (!t)
        return NULL;
    bool cut = false;
    size_t at = 0;
    t->path = path;
    t->bytes = (uint8_t *)file_read_all(path, FILE_BYTES_MOST, &t->size, e);
    bool ok = t->bytes && read_version(t, e);
    if (ok && t->version == 1)
        ok = read_head_1(t, e) && read_records_1(t, &cut, e);
    else if (ok)
        ok = read_head_2(t, &at, e) && read_records_2(t, at, &cut, e);
    if (!ok || !keep_end_text(t, e)) {
        trace_free(t);
        return NULL;
    }
    if (is_cut)
        *is_cut = cut;
    t->path = NULL;
    return t;
}

void trace_free(struct trace *t)
{
    if (!t)
        return;
    mem_free(t->end_text);
    mem_free(t->record);
    mem_free(t->place);
    mem_free(t->head.layer);
    mem_free(t->head.text);
    mem_free(t->bytes);
    mem_free(t);
}

/* ---- looking ---- */

const struct trace_head *trace_head(const struct trace *t)
{
    return &t->head;
}

int trace_version(const struct trace *t)
{
    return t->version;
}

int trace_records(const struct trace *t)
{
    return t->records;
}

void trace_record_at(const struct trace *t, int i, struct trace_record *out)
{
    *out = t->record[i];
}

const char *trace_value(const struct trace *t, const char *key, char *room, size_t bytes)
{
    const char *v = find_value(t->head.text, key, room, bytes);
    return v ? v : find_value(t->end_text, key, room, bytes);
}

/* In the older form a row of all layers lies together. */
static size_t v1_row_bytes(const struct trace *t)
{
    return 4 + (size_t)t->head.layers * t->row_bytes;
}

uint32_t trace_token(const struct trace *t, const struct trace_record *r, int row)
{
    return bytes_u32(r->at + (size_t)row * (t->version == 1 ? v1_row_bytes(t) : 4));
}

static const uint8_t *layer_at(const struct trace *t, const struct trace_record *r, int layer)
{
    return r->at + 4 * (size_t)r->rows + (size_t)t->place[layer] * layer_bytes(t, r->rows);
}

void trace_row(const struct trace *t, const struct trace_record *r, int layer, int row,
               int32_t *ids, float *weights, int32_t *guess)
{
    const struct trace_head *h = &t->head;
    bool is_old = t->version == 1;
    size_t id_bytes = is_old ? 1 : 2;
    const uint8_t *b =
        is_old ? r->at + (size_t)row * v1_row_bytes(t) + 4 + (size_t)layer * t->row_bytes
               : layer_at(t, r, layer) + (size_t)row * t->row_bytes;
    for (int i = 0; ids && i < h->used; i++)
        ids[i] = is_old ? b[i] : bytes_u16(b + 2 * i);
    b += id_bytes * (size_t)h->used;
    for (int i = 0; weights && i < h->used; i++)
        weights[i] = half_bits_f32(bytes_u32(b + 4 * i));
    b += 4 * (size_t)h->used;
    for (int i = 0; guess && i < h->ranks; i++) {
        int x = is_old ? b[i] : bytes_u16(b + 2 * i);
        guess[i] = x == (is_old ? 255 : TRACE_NO_EXPERT) ? -1 : x;
    }
}

bool trace_far_guess(const struct trace *t, const struct trace_record *r, int layer, int row,
                     int32_t *guess)
{
    const struct trace_head *h = &t->head;
    if (h->guess_layers != 2)
        return false;
    size_t each = 2 * (size_t)h->ranks;
    const uint8_t *b = layer_at(t, r, layer) + layer_bytes(t, r->rows) -
                       (size_t)(r->rows - row) * each;
    for (int i = 0; i < h->ranks; i++) {
        int x = bytes_u16(b + 2 * i);
        guess[i] = x == TRACE_NO_EXPERT ? -1 : x;
    }
    return true;
}

bool trace_counts(const struct trace *t, const struct trace_record *r, int layer,
                  uint32_t counts[TRACE_COUNTS])
{
    if (!t->head.has_counts)
        return false;
    const uint8_t *b = layer_at(t, r, layer) + (size_t)r->rows * t->row_bytes;
    for (int i = 0; i < TRACE_COUNTS; i++)
        counts[i] = bytes_u32(b + 4 * i);
    return true;
}
