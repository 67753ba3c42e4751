/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "gguf/names.h"
#include "gguf/number.h"

#define HEADER_BYTES 24
#define ALIGNMENT_DEFAULT 32
#define PIECE_BYTES ((size_t)1 << 20)
#define PARTS_MOST 65535

/* Bytes that grow. */
struct buffer {
    uint8_t *bytes;
    size_t used, room;
};

struct record {
    const char *name; /* of the writer's set of names */
    uint32_t n_dims;
    uint64_t ne[4];
    uint32_t type;
    uint64_t bytes;
    gguf_writer_data *data;
    void *ctx;
};

struct gguf_writer {
    struct err failure; /* the first one */
    uint32_t alignment;
    struct buffer keys; /* as they stand in the file */
    uint64_t n_keys;
    struct record *tensors;
    size_t n_tensors, tensors_room;
    struct gguf_names key_names, tensor_names;
};

/* ---- bytes ---- */

static bool put(struct buffer *b, const void *data, size_t n, struct err *e)
{
    size_t need;
    if (!mem_add(b->used, n, &need))
        return err_set(e, ERR_MEMORY, "out of memory: GGUF metadata");
    if (need > b->room) {
        size_t room = need + need / 2 + 256;
        uint8_t *bytes = mem_grow(b->bytes, room, "GGUF metadata", e);
        if (!bytes)
            return false;
        b->bytes = bytes;
        b->room = room;
    }
    if (n)
        memcpy(b->bytes + b->used, data, n);
    b->used = need;
    return true;
}

static bool put_u32(struct buffer *b, uint32_t v, struct err *e)
{
    uint8_t le[4];
    bytes_put_u32(le, v);
    return put(b, le, sizeof le, e);
}

static bool put_u64(struct buffer *b, uint64_t v, struct err *e)
{
    uint8_t le[8];
    bytes_put_u64(le, v);
    return put(b, le, sizeof le, e);
}

static bool put_string(struct buffer *b, const char *text, size_t n, struct err *e)
{
    return put_u64(b, n, e) && put(b, text, n, e);
}

/* ---- collecting ---- */

struct gguf_writer *gguf_writer_new(struct err *e)
{
    struct gguf_writer *w = mem_alloc(sizeof *w, "GGUF writer", e);
    if (w)
        w->alignment = ALIGNMENT_DEFAULT;
    return w;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    mem_free(w->keys.bytes);
    mem_free(w->tensors);
    gguf_names_free(&w->key_names);
    gguf_names_free(&w->tensor_names);
    mem_free(w);
}

static bool is_ready(const struct gguf_writer *w)
{
    return w->failure.code == ERR_NONE;
}

/* Writes name and type of a key; the value must follow. False after a failure. */
static bool begin_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    struct err *e = &w->failure;
    const char *kept;
    size_t before;
    if (!is_ready(w) ||
        !gguf_names_add(&w->key_names, key, strlen(key), (size_t)w->n_keys, &kept, &before, e))
        return false;
    if (before != GGUF_NO_NAME)
        return err_set(e, ERR_USAGE, "key \"%s\": given twice", key);
    w->n_keys++;
    return put_string(&w->keys, key, strlen(key), e) && put_u32(&w->keys, type, e);
}

void gguf_writer_number(struct gguf_writer *w, const char *key, enum gguf_type type, uint64_t bits)
{
    uint8_t le[8];
    bytes_put_u64(le, bits);
    if (begin_key(w, key, type))
        put(&w->keys, le, gguf_type_bytes(type), &w->failure);
}

void gguf_writer_u16(struct gguf_writer *w, const char *key, uint16_t v)
{
    gguf_writer_number(w, key, GGUF_U16, v);
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    gguf_writer_number(w, key, GGUF_U32, v);
}

void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    gguf_writer_number(w, key, GGUF_I32, (uint32_t)v);
}

void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t v)
{
    gguf_writer_number(w, key, GGUF_U64, v);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float v)
{
    gguf_writer_number(w, key, GGUF_F32, half_f32_bits(v));
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v)
{
    gguf_writer_number(w, key, GGUF_BOOL, v);
}

void gguf_writer_text(struct gguf_writer *w, const char *key, const char *text, size_t bytes)
{
    if (begin_key(w, key, GGUF_STRING))
        put_string(&w->keys, text, bytes, &w->failure);
}

static bool begin_array(struct gguf_writer *w, const char *key, uint32_t type, uint64_t count)
{
    return begin_key(w, key, GGUF_ARRAY) && put_u32(&w->keys, type, &w->failure) &&
           put_u64(&w->keys, count, &w->failure);
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct gguf_strings *s)
{
    bool ok = begin_array(w, key, GGUF_STRING, s->count);
    for (size_t i = 0; ok && i < s->count; i++)
        ok = put_string(&w->keys, s->bytes + s->starts[i],
                        (size_t)(s->starts[i + 1] - s->starts[i]), &w->failure);
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type element_type,
                       uint64_t count, const void *elements)
{
    size_t bytes;
    if (!mem_mul((size_t)count, gguf_type_bytes(element_type), &bytes))
        err_set(&w->failure, ERR_USAGE, "key \"%s\": %" PRIu64 " elements", key, count);
    else if (begin_array(w, key, element_type, count))
        put(&w->keys, elements, bytes, &w->failure);
}

void gguf_writer_copy_key(struct gguf_writer *w, const struct gguf_file *from,
                          const struct gguf_key *key)
{
    struct err *e = &w->failure;
    uint8_t block[4096];
    bool ok = key->type == GGUF_ARRAY ? begin_array(w, key->name, key->element_type, key->count)
                                      : begin_key(w, key->name, key->type);
    if (ok && key->type == GGUF_STRING)
        ok = put_u64(&w->keys, key->bytes, e);
    for (uint64_t done = 0; ok && done < key->bytes;) {
        uint64_t left = key->bytes - done;
        size_t n = left < sizeof block ? (size_t)left : sizeof block;
        ok = file_read_at(gguf_part_fd(from, 0), gguf_part_path(from, 0), key->offset + done, block,
                          n, e) &&
             put(&w->keys, block, n, e);
        done += n;
    }
}

void gguf_writer_alignment(struct gguf_writer *w, uint32_t alignment)
{
    if (alignment < 8 || alignment > 1 << 20 || (alignment & (alignment - 1))) {
        err_set(&w->failure, ERR_USAGE,
                "alignment: %" PRIu32 " is not a power of two in 8..1048576", alignment);
        return;
    }
    w->alignment = alignment;
    gguf_writer_u32(w, "general.alignment", alignment);
}

/* Size of the tensor's data; false when type or dims make no sense. */
static bool tensor_bytes(struct record *t, struct err *e)
{
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type->block_values)
        return err_set(e, ERR_USAGE, "tensor \"%s\": type %" PRIu32 " cannot be written", t->name,
                       t->type);
    if (t->ne[0] % type->block_values)
        return err_set(e, ERR_USAGE,
                       "tensor \"%s\": ne[0] %" PRIu64 " is not a multiple of the %s block (%u)",
                       t->name, t->ne[0], type->name, type->block_values);
    t->bytes = tensor_row_bytes(t->type, t->ne[0]);
    for (int i = 0; i < 4; i++)
        if (t->ne[i] < 1 || t->ne[i] > INT64_MAX ||
            (i && __builtin_mul_overflow(t->bytes, t->ne[i], &t->bytes)) || t->bytes > INT64_MAX)
            return err_set(e, ERR_USAGE, "tensor \"%s\": ne[%d] is %" PRIu64, t->name, i, t->ne[i]);
    return true;
}

void gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t n_dims,
                        const uint64_t *ne, uint32_t type, gguf_writer_data *data, void *ctx)
{
    struct err *e = &w->failure;
    struct record t = {
        .n_dims = n_dims, .ne = {1, 1, 1, 1}, .type = type, .data = data, .ctx = ctx};
    size_t before, bytes = strlen(name);
    if (!is_ready(w))
        return;
    if (n_dims < 1 || n_dims > 4 || !bytes || bytes > 64) {
        err_set(e, ERR_USAGE, "tensor \"%s\": %" PRIu32 " dims, %zu bytes of name", name, n_dims,
                bytes);
        return;
    }
    memcpy(t.ne, ne, n_dims * sizeof *ne);
    if (!gguf_names_add(&w->tensor_names, name, bytes, w->n_tensors, &t.name, &before, e) ||
        !tensor_bytes(&t, e))
        return;
    if (before != GGUF_NO_NAME) {
        err_set(e, ERR_USAGE, "tensor \"%s\": given twice", name);
        return;
    }
    if (w->n_tensors == w->tensors_room) {
        size_t room = w->tensors_room * 2 + 16;
        struct record *larger = mem_grow(w->tensors, room * sizeof t, "tensors to write", e);
        if (!larger)
            return;
        w->tensors = larger;
        w->tensors_room = room;
    }
    w->tensors[w->n_tensors++] = t;
}

/* ---- writing ---- */

/* Which part of a set is written; count 0 for a single file. */
struct part {
    uint16_t number, count;
    size_t first, end; /* tensors */
};

static bool put_split_key(struct buffer *b, const char *key, uint32_t type, uint64_t v,
                          struct err *e)
{
    uint8_t le[8];
    bytes_put_u64(le, v);
    return put_string(b, key, strlen(key), e) && put_u32(b, type, e) &&
           put(b, le, gguf_type_bytes(type), e);
}

static bool put_keys(const struct gguf_writer *w, const struct part *part, struct buffer *b,
                     struct err *e)
{
    bool first = part->number == 0;
    /* Later parts hold the split keys, and the alignment because it places their data. */
    bool needs_alignment = !first && w->alignment != ALIGNMENT_DEFAULT;
    uint64_t n_keys = (first ? w->n_keys : 0) + (part->count ? 3 : 0) + needs_alignment;
    if (!put(b, "GGUF", 4, e) || !put_u32(b, 3, e) || !put_u64(b, part->end - part->first, e) ||
        !put_u64(b, n_keys, e))
        return false;
    if (first && !put(b, w->keys.bytes, w->keys.used, e))
        return false;
    if (part->count && (!put_split_key(b, "split.no", GGUF_U16, part->number, e) ||
                        !put_split_key(b, "split.count", GGUF_U16, part->count, e) ||
                        !put_split_key(b, "split.tensors.count", GGUF_I32, w->n_tensors, e)))
        return false;
    return !needs_alignment || put_split_key(b, "general.alignment", GGUF_U32, w->alignment, e);
}

/* Everything before the data, padding included. */
static bool put_front(const struct gguf_writer *w, const struct part *part, struct buffer *b,
                      struct err *e)
{
    if (!put_keys(w, part, b, e))
        return false;
    uint64_t offset = 0;
    for (size_t i = part->first; i < part->end; i++) {
        const struct record *t = &w->tensors[i];
        bool ok = put_string(b, t->name, strlen(t->name), e) && put_u32(b, t->n_dims, e);
        for (uint32_t d = 0; ok && d < t->n_dims; d++)
            ok = put_u64(b, t->ne[d], e);
        if (!ok || !put_u32(b, t->type, e) || !put_u64(b, offset, e))
            return false;
        offset += mem_round_up(t->bytes, w->alignment);
    }
    static const uint8_t zeros[64];
    while (part->first < part->end && b->used % w->alignment) {
        size_t n = w->alignment - b->used % w->alignment;
        if (!put(b, zeros, n < sizeof zeros ? n : sizeof zeros, e))
            return false;
    }
    return true;
}

static bool write_tensor(struct file_writer *f, const struct record *t, uint32_t alignment,
                         uint8_t *piece, struct err *e)
{
    for (uint64_t done = 0; done < t->bytes;) {
        uint64_t left = t->bytes - done;
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        const uint8_t *from = piece;
        if (!t->data)
            from = (const uint8_t *)t->ctx + done;
        else if (!t->data(t->ctx, done, piece, n, e))
            return false;
        if (!file_write(f, from, n, e))
            return false;
        done += n;
    }
    size_t padding = (size_t)(mem_round_up(t->bytes, alignment) - t->bytes);
    memset(piece, 0, padding);
    return file_write(f, piece, padding, e);
}

static bool write_part(struct gguf_writer *w, const struct part *part, const char *path,
                       struct err *e)
{
    if (!is_ready(w))
        return err_set(e, w->failure.code, "%s: %s", path, w->failure.text);
    struct buffer front = {0};
    struct file_writer f;
    uint8_t *piece = mem_alloc(PIECE_BYTES, "data to write", e);
    bool ok = piece && put_front(w, part, &front, e) && file_write_begin(&f, path, 0666, e);
    if (ok) {
        ok = file_write(&f, front.bytes, front.used, e);
        for (size_t i = part->first; ok && i < part->end; i++)
            ok = write_tensor(&f, &w->tensors[i], w->alignment, piece, e);
        if (ok)
            ok = file_write_commit(&f, e);
        else
            file_write_abort(&f);
    }
    mem_free(front.bytes);
    mem_free(piece);
    return ok;
}

bool gguf_writer_write(struct gguf_writer *w, const char *path, struct err *e)
{
    const struct part whole = {.end = w->n_tensors};
    return write_part(w, &whole, path, e);
}

bool gguf_writer_write_split(struct gguf_writer *w, const char *stem, uint32_t parts,
                             bool first_empty, struct err *e)
{
    if (parts < 2 || parts > PARTS_MOST)
        return err_set(e, ERR_USAGE, "%s: %" PRIu32 " parts, expected 2..%d", stem, parts,
                       PARTS_MOST);
    size_t path_bytes = strlen(stem) + 32;
    char *path = mem_alloc(path_bytes, "path of a part", e);
    bool ok = path != NULL;
    uint32_t sharing = parts - first_empty; /* parts that hold tensors */
    for (uint32_t i = 0; ok && i < parts; i++) {
        uint32_t share = i - first_empty; /* not used for an empty first part */
        struct part part = {.number = (uint16_t)i, .count = (uint16_t)parts};
        if (i || !first_empty) {
            part.first = w->n_tensors * share / sharing;
            part.end = w->n_tensors * (share + 1) / sharing;
        }
        snprintf(path, path_bytes, "%s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", stem, i + 1, parts);
        ok = write_part(w, &part, path, e);
    }
    mem_free(path);
    return ok;
}

uint64_t gguf_writer_bytes(const struct gguf_writer *w)
{
    if (!is_ready(w))
        return 0;
    uint64_t front = HEADER_BYTES + w->keys.used, data = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct record *t = &w->tensors[i];
        front += 8 + strlen(t->name) + 4 + 8 * (uint64_t)t->n_dims + 4 + 8;
        data += mem_round_up(t->bytes, w->alignment);
    }
    return w->n_tensors ? mem_round_up(front, w->alignment) + data : front;
}
