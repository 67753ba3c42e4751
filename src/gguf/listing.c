/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf/listing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "gguf/number.h"
#include "gguf/scan.h"

/* What a line for people shows of an array and of a text (a tensor's name has 64 at most). */
#define SHOWN_ELEMENTS 6
#define SHOWN_TEXT_BYTES 64
#define SHOWN_ELEMENT_BYTES 24

const char *gguf_file_type_label(uint64_t file_type)
{
    static const char *const labels[] = {
        [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
        [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
        [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
        [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",  [39] = "NVFP4",  [40] = "Q1_0",
        [41] = "Q2_0",
    };
    return file_type < sizeof labels / sizeof *labels ? labels[file_type] : NULL;
}

static const char *file_name(const struct gguf_file *g, int part)
{
    const char *path = gguf_part_path(g, part), *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_escaped(struct json_out *out, const char *text, size_t bytes, size_t shown)
{
    char escaped[4 * SHOWN_TEXT_BYTES + 8];
    err_escape(escaped, sizeof escaped, text, bytes < shown ? bytes : shown);
    json_puts(out, escaped);
    if (bytes > shown)
        json_puts(out, "...");
}

/* ---- values ---- */

/* Reads the next number of an array. */
static bool next_number(struct gguf_scan *s, uint32_t type, uint64_t *bits, struct err *e)
{
    uint8_t number[8] = {0};
    size_t size = gguf_type_bytes(type);
    if (!gguf_scan_need(s, size, "", e) || !gguf_scan_copy(s, number, size, e))
        return false;
    *bits = bytes_u64(number);
    return true;
}

static void put_json_number(struct json_out *out, uint32_t type, uint64_t bits)
{
    char text[GGUF_NUMBER_TEXT];
    if (type == GGUF_F32 || type == GGUF_F64)
        json_put_f64(out, gguf_number_f64(type, bits));
    else
        json_puts(out, gguf_number_text(text, type, bits));
}

/* The next n bytes as a JSON string. */
static bool put_json_text(struct gguf_scan *s, uint64_t n, struct json_out *out, struct err *e)
{
    char *text = mem_alloc((size_t)n, "text of a key", e);
    bool ok = text && gguf_scan_copy(s, text, (size_t)n, e);
    if (ok)
        json_put_string(out, text, (size_t)n);
    mem_free(text);
    return ok;
}

/* The next `count` elements as a JSON array; nested ones by recursion, whose depth was checked when
 * the file was opened and is checked again. */
static bool put_json_elements(struct gguf_scan *s, uint32_t type, uint64_t count, int depth,
                              struct json_out *out, struct err *e)
{
    if (depth > 4 || type >= GGUF_TYPES)
        return gguf_scan_fail(s, e, "changed while it was read");
    json_puts(out, "[");
    for (uint64_t i = 0; i < count && !out->failed; i++) {
        bool ok;
        uint64_t n;
        uint32_t inner;
        json_puts(out, i ? ", " : "");
        if (type == GGUF_ARRAY)
            ok = gguf_scan_u32(s, &inner, "array type", e) &&
                 gguf_scan_u64(s, &n, "array count", e) &&
                 put_json_elements(s, inner, n, depth + 1, out, e);
        else if (type == GGUF_STRING)
            ok = gguf_scan_length(s, &n, "length", e) && put_json_text(s, n, out, e);
        else if ((ok = next_number(s, type, &n, e)))
            put_json_number(out, type, n);
        if (!ok)
            return false;
    }
    json_puts(out, "]");
    return true;
}

/* Starts reading a value that lies in the file; freed with gguf_scan_free also when this fails. */
static bool begin_value(struct gguf_scan *s, const struct gguf_file *g, const struct gguf_key *key,
                        struct err *e)
{
    bool ok = gguf_scan_begin(s, gguf_part_fd(g, 0), gguf_part_path(g, 0), key->offset,
                              key->offset + key->bytes, e);
    gguf_scan_subject(s, "key", 0, key->name, key->name_bytes);
    return ok;
}

static bool put_json_value(const struct gguf_file *g, const struct gguf_key *key,
                           struct json_out *out, struct err *e)
{
    if (key->type != GGUF_STRING && key->type != GGUF_ARRAY) {
        put_json_number(out, key->type, key->bits);
        return true;
    }
    struct gguf_scan s;
    bool ok = begin_value(&s, g, key, e) &&
              (key->type == GGUF_STRING
                   ? put_json_text(&s, key->bytes, out, e)
                   : put_json_elements(&s, key->element_type, key->count, 1, out, e));
    gguf_scan_free(&s);
    return ok;
}

/* The next n bytes, the first of them shown, in quotes. */
static bool put_short_text(struct gguf_scan *s, uint64_t n, size_t shown, struct json_out *out,
                           struct err *e)
{
    size_t peeked = n < shown ? (size_t)n : shown;
    const uint8_t *text = peeked ? gguf_scan_peek(s, peeked, e) : (const uint8_t *)"";
    if (!text)
        return false;
    json_puts(out, "\"");
    put_escaped(out, (const char *)text, peeked, peeked);
    json_puts(out, n > shown ? "...\"" : "\"");
    s->at += n;
    return true;
}

/* Count and first elements: `u32[3] 1, 2, 3`. Of nested arrays only the count. */
static bool put_short_array(struct gguf_scan *s, const struct gguf_key *key, struct json_out *out,
                            struct err *e)
{
    json_putf(out, "%s[%" PRIu64 "]", gguf_type_name(key->element_type), key->count);
    if (key->element_type == GGUF_ARRAY)
        return true;
    for (uint64_t i = 0; i < key->count && i < SHOWN_ELEMENTS; i++) {
        uint64_t n;
        json_puts(out, i ? ", " : " ");
        if (key->element_type == GGUF_STRING) {
            if (!gguf_scan_length(s, &n, "length", e) ||
                !put_short_text(s, n, SHOWN_ELEMENT_BYTES, out, e))
                return false;
        } else {
            char text[GGUF_NUMBER_TEXT];
            if (!next_number(s, key->element_type, &n, e))
                return false;
            json_puts(out, gguf_number_text(text, key->element_type, n));
        }
    }
    if (key->count > SHOWN_ELEMENTS)
        json_puts(out, ", ...");
    return true;
}

static bool put_short_value(const struct gguf_file *g, const struct gguf_key *key,
                            struct json_out *out, struct err *e)
{
    if (key->type != GGUF_STRING && key->type != GGUF_ARRAY) {
        char text[GGUF_NUMBER_TEXT];
        json_puts(out, gguf_number_text(text, key->type, key->bits));
        return true;
    }
    struct gguf_scan s;
    bool ok = begin_value(&s, g, key, e) &&
              (key->type == GGUF_STRING ? put_short_text(&s, key->bytes, SHOWN_TEXT_BYTES, out, e)
                                        : put_short_array(&s, key, out, e));
    gguf_scan_free(&s);
    return ok;
}

static bool finish(const struct json_out *out, struct err *e)
{
    return !out->failed || err_set(e, ERR_MEMORY, "out of memory: listing of the file");
}

/* ---- for people ---- */

static void put_size(struct json_out *out, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t unit = 0;
    while (v >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        v /= 1024;
        unit++;
    }
    json_putf(out, unit ? "%.2f %s" : "%.0f %s", v, units[unit]);
}

/* A line of what the file says about itself; none if the key is missing or is no text. */
static bool put_about(const struct gguf_file *g, const char *label, const char *name,
                      struct json_out *out, struct err *e)
{
    const struct gguf_key *key = gguf_key_find(g, name);
    if (!key || key->type != GGUF_STRING)
        return true;
    json_putf(out, "%-14s", label);
    bool ok = put_short_value(g, key, out, e);
    json_puts(out, "\n");
    return ok;
}

static void put_file_type(const struct gguf_file *g, struct json_out *out)
{
    const struct gguf_key *key = gguf_key_find(g, "general.file_type");
    char text[GGUF_NUMBER_TEXT];
    uint64_t v;
    if (!key || !gguf_type_is_integer(key->type))
        return;
    const char *label = gguf_number_u64(key->type, key->bits, &v) ? gguf_file_type_label(v) : NULL;
    json_putf(out, "%-14s%s\n", "file type",
              label ? label : gguf_number_text(text, key->type, key->bits));
}

static void put_type_sums(const struct gguf_file *g, struct json_out *out)
{
    uint64_t count[TENSOR_TYPES] = {0}, bytes[TENSOR_TYPES] = {0};
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        count[t->type]++;
        bytes[t->type] += t->bytes;
    }
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        if (!count[type])
            continue;
        json_putf(out, "  %-10s%8" PRIu64 "  ", tensor_type_info(type)->name, count[type]);
        put_size(out, bytes[type]);
        json_puts(out, "\n");
    }
}

static void put_dims(struct json_out *out, const struct gguf_tensor *t, const char *between)
{
    for (uint32_t i = 0; i < t->n_dims; i++)
        json_putf(out, "%s%" PRIu64, i ? between : "", t->ne[i]);
}

static void put_tensor_line(const struct gguf_file *g, const struct gguf_tensor *t,
                            struct json_out *out)
{
    json_puts(out, "  ");
    put_escaped(out, t->name, strlen(t->name), strlen(t->name));
    json_putf(out, "  %s  ", tensor_type_info(t->type)->name);
    put_dims(out, t, "x");
    json_putf(out, "  %" PRIu64 " bytes at %" PRIu64, t->bytes, t->offset);
    if (gguf_parts(g) > 1)
        json_putf(out, " of file %d", t->part + 1);
    json_puts(out, "\n");
}

static bool put_key_lines(const struct gguf_file *g, struct json_out *out, struct err *e)
{
    for (size_t i = 0; i < gguf_key_count(g); i++) {
        const struct gguf_key *key = gguf_key_at(g, i);
        json_puts(out, "  ");
        put_escaped(out, key->name, key->name_bytes, SHOWN_TEXT_BYTES);
        json_puts(out, "  ");
        if (!put_short_value(g, key, out, e))
            return false;
        json_puts(out, "\n");
    }
    return true;
}

bool gguf_list_text(const struct gguf_file *g, struct gguf_listing want, struct json_out *out,
                    struct err *e)
{
    json_putf(out, "%-14s", "file");
    put_escaped(out, file_name(g, 0), strlen(file_name(g, 0)), SHOWN_TEXT_BYTES);
    json_puts(out, "\n");
    if (!put_about(g, "architecture", "general.architecture", out, e) ||
        !put_about(g, "name", "general.name", out, e) ||
        !put_about(g, "size label", "general.size_label", out, e) ||
        !put_about(g, "type", "general.type", out, e) ||
        !put_about(g, "quantized by", "general.quantized_by", out, e) ||
        !put_about(g, "license", "general.license", out, e))
        return false;
    put_file_type(g, out);
    json_putf(out, "%-14s%" PRIu32 "\n%-14s%" PRIu64 "\n%-14s%d\n%-14s", "version", gguf_version(g),
              "alignment", gguf_alignment(g), "files", gguf_parts(g), "size");
    put_size(out, gguf_total_bytes(g));
    if (gguf_total_bytes(g) >= 1024)
        json_putf(out, " (%" PRIu64 " bytes)", gguf_total_bytes(g));
    json_putf(out, "\n%-14s%zu\n", "keys", gguf_key_count(g));
    if (want.keys && !put_key_lines(g, out, e))
        return false;
    json_putf(out, "%-14s%zu\n", "tensors", gguf_tensor_count(g));
    put_type_sums(g, out);
    if (want.tensors)
        for (size_t i = 0; i < gguf_tensor_count(g); i++)
            put_tensor_line(g, gguf_tensor_at(g, i), out);
    return finish(out, e);
}

/* ---- JSON ---- */

static bool put_json_keys(const struct gguf_file *g, struct json_out *out, struct err *e)
{
    json_puts(out, ", \"kv\": {");
    for (size_t i = 0; i < gguf_key_count(g); i++) {
        const struct gguf_key *key = gguf_key_at(g, i);
        json_puts(out, i ? ", " : "");
        json_put_string(out, key->name, key->name_bytes);
        json_puts(out, ": ");
        if (!put_json_value(g, key, out, e))
            return false;
    }
    json_puts(out, "}");
    return true;
}

static void put_json_tensors(const struct gguf_file *g, struct json_out *out)
{
    json_puts(out, ", \"tensor_list\": [");
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        json_puts(out, i ? ", {\"name\": " : "{\"name\": ");
        json_put_string(out, t->name, strlen(t->name));
        json_putf(out, ", \"type\": \"%s\", \"ne\": [", tensor_type_info(t->type)->name);
        put_dims(out, t, ", ");
        json_puts(out, "], \"file\": ");
        json_put_string(out, file_name(g, t->part), strlen(file_name(g, t->part)));
        json_putf(out, ", \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", t->offset, t->bytes);
    }
    json_puts(out, "]");
}

bool gguf_list_json(const struct gguf_file *g, struct gguf_listing want, struct json_out *out,
                    struct err *e)
{
    json_putf(out,
              "{\"version\": %" PRIu32 ", \"alignment\": %" PRIu64
              ", \"keys\": %zu, \"tensors\": %zu, \"files\": %d, \"bytes\": %" PRIu64
              ", \"architecture\": ",
              gguf_version(g), gguf_alignment(g), gguf_key_count(g), gguf_tensor_count(g),
              gguf_parts(g), gguf_total_bytes(g));
    const struct gguf_key *architecture = gguf_key_find(g, "general.architecture");
    if (!architecture || architecture->type != GGUF_STRING)
        json_puts(out, "null");
    else if (!put_json_value(g, architecture, out, e))
        return false;
    if (want.keys && !put_json_keys(g, out, e))
        return false;
    if (want.tensors)
        put_json_tensors(g, out);
    json_puts(out, "}");
    return finish(out, e);
}
