/* SPDX-License-Identifier: Apache-2.0 */
/* One GGUF file: header, keys and tensor table, by the rules R01 to R25 of gguf-and-quants.md
 * section 1.8 in their order. Rule numbers in this file are of that list. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "gguf/number.h"
#include "gguf/scan.h"
#include "gguf/set.h"

#define HEADER_BYTES 24
#define KEY_BYTES_LEAST 14
#define TENSOR_BYTES_LEAST 33
#define KEY_NAME_MOST 65535
#define TENSOR_NAME_MOST 64
#define ARRAY_DEPTH_MOST 4
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_LEAST 8
#define ALIGNMENT_MOST (1 << 20)
#define SIGNED_MOST ((uint64_t)INT64_MAX)

/* Grows an array by half when it is full: never by a number from the file. */
static void *one_more(void *items, size_t count, size_t *room, size_t size, const char *what,
                      struct err *e)
{
    if (count < *room)
        return items;
    size_t larger = *room + *room / 2 + 8, bytes;
    if (!mem_mul(larger, size, &bytes)) {
        err_set(e, ERR_MEMORY, "out of memory: %zu %s", larger, what);
        return NULL;
    }
    items = mem_grow(items, bytes, what, e);
    if (items)
        *room = larger;
    return items;
}

/* R06, R15: the characters of a name. */
static bool check_characters(const struct gguf_scan *s, struct err *e)
{
    for (size_t i = 0; i < s->name_bytes; i++) {
        unsigned char c = (unsigned char)s->name[i];
        if (c < 0x20 || c == 0x7f)
            return gguf_scan_fail(s, e, "byte 0x%02x at %zu is not allowed", c, i);
    }
    return true;
}

/* ---- header ---- */

static bool read_header(struct gguf_scan *s, struct gguf_part *part, uint64_t *n_tensors,
                        uint64_t *n_keys, struct err *e)
{
    if (part->bytes < HEADER_BYTES)
        return gguf_scan_fail(s, e, "header: %" PRIu64 " bytes, need %d", part->bytes,
                              HEADER_BYTES);
    const uint8_t *h = gguf_scan_peek(s, HEADER_BYTES, e);
    if (!h)
        return false;
    if (memcmp(h, "GGUF", 4) != 0)
        return gguf_scan_fail(s, e, "magic: %02x%02x%02x%02x, expected 47475546 (GGUF)", h[0], h[1],
                              h[2], h[3]);
    part->version = bytes_u32(h + 4);
    if (part->version && (part->version & 0xffff) == 0)
        return gguf_scan_fail(s, e, "version: %" PRIu32 ": big-endian file", part->version);
    if (part->version != 2 && part->version != 3)
        return gguf_scan_fail(s, e, "version: %" PRIu32 " is not supported (2 or 3)",
                              part->version);
    *n_tensors = bytes_u64(h + 8);
    *n_keys = bytes_u64(h + 16);
    s->at = HEADER_BYTES;
    uint64_t left = gguf_scan_left(s);
    if (*n_tensors > left / TENSOR_BYTES_LEAST)
        return gguf_scan_fail(s, e, "n_tensors: %" PRIu64 " does not fit in %" PRIu64 " bytes",
                              *n_tensors, left);
    if (*n_keys > left / KEY_BYTES_LEAST)
        return gguf_scan_fail(s, e, "n_kv: %" PRIu64 " does not fit in %" PRIu64 " bytes", *n_keys,
                              left);
    return true;
}

/* ---- keys ---- */

static bool check_bool(const struct gguf_scan *s, uint64_t value, struct err *e)
{
    return value <= 1 || gguf_scan_fail(s, e, "bool is %" PRIu64 ", not 0 or 1", value);
}

static bool skip_bools(struct gguf_scan *s, uint64_t count, struct err *e)
{
    while (count) {
        size_t piece = count < GGUF_SCAN_BYTES / 2 ? (size_t)count : GGUF_SCAN_BYTES / 2;
        const uint8_t *p = gguf_scan_peek(s, piece, e);
        if (!p)
            return false;
        for (size_t i = 0; i < piece; i++)
            if (!check_bool(s, p[i], e))
                return false;
        s->at += piece;
        count -= piece;
    }
    return true;
}

static bool skip_strings(struct gguf_scan *s, uint64_t count, struct err *e)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t n;
        if (!gguf_scan_length(s, &n, "length", e))
            return false;
        s->at += n;
    }
    return true;
}

/* Reads type and count of an array and moves to its first element. */
static bool begin_array(struct gguf_scan *s, uint32_t *type, uint64_t *count, struct err *e)
{
    if (!gguf_scan_u32(s, type, "array type", e) || !gguf_scan_u64(s, count, "array count", e))
        return false;
    if (*type >= GGUF_TYPES)
        return gguf_scan_fail(s, e, "array type %" PRIu32 " is unknown", *type);
    if (*count > gguf_scan_left(s) / gguf_type_bytes(*type))
        return gguf_scan_fail(s, e, "array count %" PRIu64 " does not fit in %" PRIu64 " bytes",
                              *count, gguf_scan_left(s));
    return true;
}

/* Moves over the elements of an array that lies `depth` deep (1: in no other array). */
static bool skip_elements(struct gguf_scan *s, uint32_t type, uint64_t count, int depth,
                          struct err *e)
{
    if (type == GGUF_BOOL)
        return skip_bools(s, count, e);
    if (type == GGUF_STRING)
        return skip_strings(s, count, e);
    if (type != GGUF_ARRAY) {
        s->at += count * gguf_type_bytes(type);
        return true;
    }
    if (count && depth == ARRAY_DEPTH_MOST)
        return gguf_scan_fail(s, e, "arrays nested deeper than %d", ARRAY_DEPTH_MOST);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t inner;
        uint64_t inner_count;
        if (!begin_array(s, &inner, &inner_count, e) ||
            !skip_elements(s, inner, inner_count, depth + 1, e))
            return false;
    }
    return true;
}

static bool read_value(struct gguf_scan *s, struct gguf_key *key, struct err *e)
{
    key->count = 1;
    if (key->type == GGUF_STRING) {
        if (!gguf_scan_length(s, &key->bytes, "length", e))
            return false;
        key->offset = s->at;
        s->at += key->bytes;
        return true;
    }
    if (key->type == GGUF_ARRAY) {
        if (!begin_array(s, &key->element_type, &key->count, e))
            return false;
        key->offset = s->at;
        if (!skip_elements(s, key->element_type, key->count, 1, e))
            return false;
        key->bytes = s->at - key->offset;
        return true;
    }
    if (key->type >= GGUF_TYPES)
        return gguf_scan_fail(s, e, "type %" PRIu32 " is unknown", key->type);
    key->bytes = gguf_type_bytes(key->type);
    key->offset = s->at;
    uint8_t number[8] = {0};
    if (!gguf_scan_need(s, key->bytes, "", e) || !gguf_scan_copy(s, number, (size_t)key->bytes, e))
        return false;
    key->bits = bytes_u64(number);
    return key->type != GGUF_BOOL || check_bool(s, key->bits, e);
}

/* The name of key `index` into the set, and into the subject of messages. */
static bool read_key_name(struct gguf_scan *s, struct gguf_keys *keys, struct gguf_key *key,
                          struct err *e)
{
    uint64_t n;
    gguf_scan_subject(s, "key", keys->count, NULL, 0);
    if (!gguf_scan_length(s, &n, "length", e))
        return false;
    if (n == 0)
        return gguf_scan_fail(s, e, "empty");
    if (n > KEY_NAME_MOST)
        return gguf_scan_fail(s, e, "length %" PRIu64 " is over %d", n, KEY_NAME_MOST);
    const char *name = (const char *)gguf_scan_peek(s, (size_t)n, e);
    if (!name)
        return false;
    gguf_scan_subject(s, "key", keys->count, name, (size_t)n);
    if (!check_characters(s, e))
        return false;
    size_t before;
    key->name_bytes = (size_t)n;
    if (!gguf_names_add(&keys->names, name, (size_t)n, keys->count, &key->name, &before, e))
        return false;
    gguf_scan_subject(s, "key", keys->count, key->name, (size_t)n);
    s->at += n;
    return before == GGUF_NO_NAME || gguf_scan_fail(s, e, "given twice");
}

static bool read_keys(struct gguf_scan *s, struct gguf_keys *keys, uint64_t n_keys, struct err *e)
{
    for (uint64_t i = 0; i < n_keys; i++) {
        struct gguf_key key = {0};
        if (!read_key_name(s, keys, &key, e) || !gguf_scan_u32(s, &key.type, "type", e) ||
            !read_value(s, &key, e))
            return false;
        struct gguf_key *items =
            one_more(keys->items, keys->count, &keys->room, sizeof key, "keys", e);
        if (!items)
            return false;
        keys->items = items;
        keys->items[keys->count++] = key;
    }
    return true;
}

/* R14 */
static bool read_alignment(struct gguf_scan *s, const struct gguf_keys *keys, uint64_t *alignment,
                           struct err *e)
{
    const struct gguf_key *key = gguf_keys_find(keys, "general.alignment");
    *alignment = ALIGNMENT_DEFAULT;
    if (!key)
        return true;
    gguf_scan_subject(s, "key", 0, key->name, key->name_bytes);
    if (key->type != GGUF_U32)
        return gguf_scan_fail(s, e, "type %" PRIu32 ", expected %d (u32)", key->type, GGUF_U32);
    *alignment = key->bits;
    if (*alignment < ALIGNMENT_LEAST || *alignment > ALIGNMENT_MOST ||
        (*alignment & (*alignment - 1)))
        return gguf_scan_fail(s, e, "%" PRIu64 " is not a power of two in %d..%d", *alignment,
                              ALIGNMENT_LEAST, ALIGNMENT_MOST);
    return true;
}

/* ---- tensor table ---- */

static bool read_tensor_name(struct gguf_scan *s, struct gguf_tensors *tensors, uint64_t index,
                             size_t first_of_part, struct gguf_tensor *t, struct err *e)
{
    uint64_t n;
    gguf_scan_subject(s, "tensor", index, NULL, 0);
    if (!gguf_scan_length(s, &n, "name: length", e))
        return false;
    if (n == 0)
        return gguf_scan_fail(s, e, "name is empty");
    if (n > TENSOR_NAME_MOST)
        return gguf_scan_fail(s, e, "name length %" PRIu64 " is over %d", n, TENSOR_NAME_MOST);
    const char *name = (const char *)gguf_scan_peek(s, (size_t)n, e);
    if (!name)
        return false;
    gguf_scan_subject(s, "tensor", index, name, (size_t)n);
    size_t before;
    if (!check_characters(s, e) ||
        !gguf_names_add(&tensors->names, name, (size_t)n, tensors->count, &t->name, &before, e))
        return false;
    gguf_scan_subject(s, "tensor", index, t->name, (size_t)n);
    s->at += n;
    if (before == GGUF_NO_NAME)
        return true;
    if (before >= first_of_part)
        return gguf_scan_fail(s, e, "given twice");
    if (tensors->twice_in_set == GGUF_NO_NAME)
        tensors->twice_in_set = tensors->count;
    return true;
}

/* R18, R19; *values gets the number of values. */
static bool check_dims(const struct gguf_scan *s, const struct gguf_tensor *t, uint64_t *values,
                       struct err *e)
{
    *values = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->ne[i] < 1 || t->ne[i] > SIGNED_MOST)
            return gguf_scan_fail(s, e, "ne[%" PRIu32 "] is %" PRId64, i, (int64_t)t->ne[i]);
        if (*values > SIGNED_MOST / t->ne[i]) {
            char dims[4 * 24];
            int used = 0;
            for (uint32_t j = 0; j < t->n_dims; j++)
                used += snprintf(dims + used, sizeof dims - (size_t)used, "%s%" PRId64,
                                 j ? ", " : "", (int64_t)t->ne[j]);
            return gguf_scan_fail(s, e, "ne [%s]: element count overflows", dims);
        }
        *values *= t->ne[i];
    }
    return true;
}

/* R20 to R22 */
static bool check_type(const struct gguf_scan *s, struct gguf_tensor *t, uint64_t values,
                       struct err *e)
{
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type->name)
        return gguf_scan_fail(s, e, "type %" PRIu32 " is unknown", t->type);
    if (!type->block_values)
        return gguf_scan_fail(s, e, "type %" PRIu32 " (%s) was removed from the format", t->type,
                              type->name);
    if (t->ne[0] % type->block_values)
        return gguf_scan_fail(s, e, "ne[0] %" PRIu64 " is not a multiple of the %s block (%u)",
                              t->ne[0], type->name, type->block_values);
    uint64_t blocks = values / type->block_values;
    if (blocks > SIGNED_MOST / type->block_bytes)
        return gguf_scan_fail(s, e, "size of %" PRIu64 " values of type %s overflows", values,
                              type->name);
    t->bytes = blocks * type->block_bytes;
    return true;
}

static bool read_tensor(struct gguf_scan *s, struct gguf_tensor *t, uint64_t alignment,
                        struct err *e)
{
    if (!gguf_scan_u32(s, &t->n_dims, "n_dims", e))
        return false;
    if (t->n_dims < 1 || t->n_dims > 4)
        return gguf_scan_fail(s, e, "n_dims %" PRIu32 " is not 1..4", t->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        char field[] = "ne[0]";
        field[3] = (char)('0' + i);
        t->ne[i] = 1;
        if (i < t->n_dims && !gguf_scan_u64(s, &t->ne[i], field, e))
            return false;
    }
    uint64_t values;
    if (!check_dims(s, t, &values, e) || !gguf_scan_u32(s, &t->type, "type", e) ||
        !gguf_scan_u64(s, &t->offset, "offset", e) || !check_type(s, t, values, e))
        return false;
    if (t->offset % alignment)
        return gguf_scan_fail(s, e,
                              "offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                              t->offset, alignment);
    return true;
}

static bool read_tensors(struct gguf_scan *s, const struct gguf_part *part, int number,
                         uint64_t n_tensors, struct gguf_tensors *tensors, struct err *e)
{
    size_t first = tensors->count;
    for (uint64_t i = 0; i < n_tensors; i++) {
        struct gguf_tensor t = {.part = number};
        if (!read_tensor_name(s, tensors, i, first, &t, e) ||
            !read_tensor(s, &t, part->alignment, e))
            return false;
        struct gguf_tensor *items =
            one_more(tensors->items, tensors->count, &tensors->room, sizeof t, "tensors", e);
        if (!items)
            return false;
        tensors->items = items;
        tensors->items[tensors->count++] = t;
    }
    return true;
}

/* ---- data section ---- */

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : x > y; /* order of the table */
}

static void set_tensor_subject(struct gguf_scan *s, const struct gguf_tensor *t)
{
    gguf_scan_subject(s, "tensor", 0, t->name, strlen(t->name));
}

/* R25. Offsets count from the start of the data section here. */
static bool check_overlaps(struct gguf_scan *s, const struct gguf_tensor *first, size_t count,
                           struct err *e)
{
    const struct gguf_tensor **sorted =
        mem_alloc_array(count, sizeof *sorted, "order of tensors", e);
    if (!sorted)
        return false;
    for (size_t i = 0; i < count; i++)
        sorted[i] = first + i;
    qsort(sorted, count, sizeof *sorted, by_offset);
    bool ok = true;
    for (size_t i = 1; ok && i < count; i++) {
        const struct gguf_tensor *before = sorted[i - 1], *t = sorted[i];
        uint64_t end = before->offset + before->bytes; /* both at most 2^63 - 1 by R24 */
        if (t->offset < end) {
            char name[4 * TENSOR_NAME_MOST + 8];
            err_escape(name, sizeof name, before->name, strlen(before->name));
            set_tensor_subject(s, t);
            ok = gguf_scan_fail(s, e,
                                "offset %" PRIu64 " overlaps tensor \"%s\" (ends at %" PRIu64 ")",
                                t->offset, name, end);
        }
    }
    mem_free(sorted);
    return ok;
}

/* R24 and R25; then the offsets count from the start of the file. */
static bool place_data(struct gguf_scan *s, const struct gguf_part *part,
                       struct gguf_tensors *tensors, size_t before, struct err *e)
{
    if (tensors->count == before)
        return true;
    struct gguf_tensor *first = tensors->items + before;
    size_t count = tensors->count - before;
    uint64_t data_start = mem_round_up(part->header_bytes, part->alignment);
    bool no_data = data_start > part->bytes;
    uint64_t room = no_data ? 0 : part->bytes - data_start;
    for (size_t i = 0; i < count; i++) {
        const struct gguf_tensor *t = &first[i];
        if (no_data || t->offset > room || t->bytes > room - t->offset) {
            set_tensor_subject(s, t);
            return gguf_scan_fail(s, e,
                                  "offset %" PRIu64 " + %" PRIu64
                                  " bytes is outside the data section (%" PRIu64 " bytes)",
                                  t->offset, t->bytes, room);
        }
    }
    if (!check_overlaps(s, first, count, e))
        return false;
    for (size_t i = 0; i < count; i++)
        first[i].offset += data_start;
    return true;
}

bool gguf_part_read(struct gguf_part *part, int number, struct gguf_keys *keys,
                    struct gguf_tensors *tensors, struct err *e)
{
    struct gguf_scan s;
    size_t before = tensors->count;
    uint64_t n_tensors = 0, n_keys = 0;
    bool ok = gguf_scan_begin(&s, part->fd, part->path, 0, part->bytes, e) &&
              read_header(&s, part, &n_tensors, &n_keys, e) && read_keys(&s, keys, n_keys, e) &&
              read_alignment(&s, keys, &part->alignment, e) &&
              read_tensors(&s, part, number, n_tensors, tensors, e);
    if (ok) {
        part->header_bytes = s.at;
        ok = place_data(&s, part, tensors, before, e);
    }
    gguf_scan_free(&s);
    return ok;
}

const struct gguf_key *gguf_keys_find(const struct gguf_keys *keys, const char *name)
{
    size_t i = gguf_names_find(&keys->names, name, strlen(name));
    return i == GGUF_NO_NAME ? NULL : &keys->items[i];
}

void gguf_keys_free(struct gguf_keys *keys)
{
    mem_free(keys->items);
    gguf_names_free(&keys->names);
    *keys = (struct gguf_keys){0};
}
