/* SPDX-License-Identifier: Apache-2.0 */
/* Values by key (gguf-and-quants.md section 1.3). Texts and arrays are read here, when asked for;
 * opening checked that they lie inside the file, and reading checks again, since the file may have
 * changed since. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "gguf/number.h"
#include "gguf/scan.h"

/* Sets `PATH: key "NAME": message`; returns false. The name may come from a file: escaped. */
__attribute__((format(printf, 4, 5))) static bool fail(const struct gguf_file *g, const char *name,
                                                       struct err *e, const char *fmt, ...)
{
    char text[256], shown[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_FORMAT, "%s: key \"%s\": %s", gguf_part_path(g, 0),
                   err_escape(shown, sizeof shown, name, strlen(name)), text);
}

/* Finds a key. *found stays false, without an error, when it is missing and not required. */
static bool look_up(const struct gguf_file *g, const char *name, bool required,
                    const struct gguf_key **found, struct err *e)
{
    *found = gguf_key_find(g, name);
    if (!*found && required)
        return fail(g, name, e, "missing");
    return true;
}

static bool wrong_type(const struct gguf_file *g, const struct gguf_key *key, const char *expected,
                       struct err *e)
{
    if (key->type == GGUF_ARRAY)
        return fail(g, key->name, e, "array of %s, expected %s", gguf_type_name(key->element_type),
                    expected);
    return fail(g, key->name, e, "type %s, expected %s", gguf_type_name(key->type), expected);
}

static bool out_of_range(const struct gguf_file *g, const struct gguf_key *key, uint32_t type,
                         uint64_t bits, const char *expected, struct err *e)
{
    char text[GGUF_NUMBER_TEXT];
    return fail(g, key->name, e, "%s is not %s", gguf_number_text(text, type, bits), expected);
}

/* ---- one number ---- */

/* What the caller's array is made of. */
enum want { WANT_I64, WANT_U64, WANT_F32, WANT_F64 };

static const struct {
    size_t bytes;
    const char *number; /* what may stand there, for messages */
    const char *range;
} wants[] = {
    [WANT_I64] = {8, "an integer", "a signed 64-bit integer"},
    [WANT_U64] = {8, "an integer", "0 or more"},
    [WANT_F32] = {4, "a number", "a number"},
    [WANT_F64] = {8, "a number", "a number"},
};

static bool takes_type(enum want want, uint32_t type)
{
    return want == WANT_I64 || want == WANT_U64 ? gguf_type_is_integer(type)
                                                : gguf_type_is_number(type);
}

/* Stores a number as element i of an array of the wanted kind; false when out of range. */
static bool convert(enum want want, uint32_t type, uint64_t bits, void *out, size_t i)
{
    switch (want) {
    case WANT_I64:
        return gguf_number_i64(type, bits, (int64_t *)out + i);
    case WANT_U64:
        return gguf_number_u64(type, bits, (uint64_t *)out + i);
    case WANT_F32:
        ((float *)out)[i] = (float)gguf_number_f64(type, bits);
        return true;
    default:
        ((double *)out)[i] = gguf_number_f64(type, bits);
        return true;
    }
}

static bool get_number(const struct gguf_file *g, const char *name, bool required, enum want want,
                       void *out, struct err *e)
{
    const struct gguf_key *key;
    if (!look_up(g, name, required, &key, e))
        return false;
    if (!key)
        return true;
    if (!takes_type(want, key->type))
        return wrong_type(g, key, wants[want].number, e);
    uint64_t value; /* out keeps its default when this fails */
    if (!convert(want, key->type, key->bits, &value, 0))
        return out_of_range(g, key, key->type, key->bits, wants[want].range, e);
    memcpy(out, &value, wants[want].bytes);
    return true;
}

bool gguf_get_u64(const struct gguf_file *g, const char *key, bool required, uint64_t *out,
                  struct err *e)
{
    return get_number(g, key, required, WANT_U64, out, e);
}

bool gguf_get_i64(const struct gguf_file *g, const char *key, bool required, int64_t *out,
                  struct err *e)
{
    return get_number(g, key, required, WANT_I64, out, e);
}

bool gguf_get_f64(const struct gguf_file *g, const char *key, bool required, double *out,
                  struct err *e)
{
    return get_number(g, key, required, WANT_F64, out, e);
}

bool gguf_get_bool(const struct gguf_file *g, const char *name, bool required, bool *out,
                   struct err *e)
{
    const struct gguf_key *key;
    if (!look_up(g, name, required, &key, e))
        return false;
    if (!key)
        return true;
    if (key->type != GGUF_BOOL && !gguf_type_is_integer(key->type))
        return wrong_type(g, key, "a bool", e);
    if (key->bits > 1)
        return out_of_range(g, key, key->type, key->bits, "0 or 1", e);
    *out = key->bits == 1;
    return true;
}

/* ---- text ---- */

bool gguf_get_text(const struct gguf_file *g, const char *name, bool required, char **out,
                   size_t *bytes, struct err *e)
{
    const struct gguf_key *key;
    if (!look_up(g, name, required, &key, e))
        return false;
    if (!key)
        return true;
    if (key->type != GGUF_STRING)
        return wrong_type(g, key, "a string", e);
    if (key->bytes > GGUF_TEXT_MOST)
        return fail(g, name, e, "string of %" PRIu64 " bytes, at most %zu", key->bytes,
                    GGUF_TEXT_MOST);
    size_t n = (size_t)key->bytes;
    char *text = mem_alloc(n + 1, "text of a key", e);
    if (!text)
        return false;
    if (!file_read_at(gguf_part_fd(g, 0), gguf_part_path(g, 0), key->offset, text, n, e)) {
        mem_free(text);
        return false;
    }
    *out = text;
    if (bytes)
        *bytes = n;
    return true;
}

/* ---- arrays of numbers ---- */

/* Reads all elements of an array of numbers into an array of the wanted kind. */
static bool read_numbers(const struct gguf_file *g, const struct gguf_key *key, enum want want,
                         void *out, struct err *e)
{
    uint8_t block[4096];
    size_t size = gguf_type_bytes(key->element_type);
    for (size_t done = 0; done < key->count;) {
        size_t n = key->count - done < sizeof block / size ? (size_t)key->count - done
                                                           : sizeof block / size;
        if (!file_read_at(gguf_part_fd(g, 0), gguf_part_path(g, 0), key->offset + done * size,
                          block, n * size, e))
            return false;
        for (size_t i = 0; i < n; i++) {
            uint8_t number[8] = {0};
            memcpy(number, block + i * size, size);
            uint64_t bits = bytes_u64(number);
            if (!convert(want, key->element_type, bits, out, done + i))
                return out_of_range(g, key, key->element_type, bits, wants[want].range, e);
        }
        done += n;
    }
    return true;
}

static bool is_array_for(const struct gguf_key *key, enum want want)
{
    return key->type == GGUF_ARRAY &&
           (takes_type(want, key->element_type) || key->element_type == GGUF_BOOL);
}

static bool fill(const struct gguf_file *g, const char *name, bool required, enum want want,
                 void *out, size_t n, struct err *e)
{
    const struct gguf_key *key;
    if (!look_up(g, name, required, &key, e))
        return false;
    if (!key)
        return true;
    if (takes_type(want, key->type)) {
        for (size_t i = 0; i < n; i++)
            if (!convert(want, key->type, key->bits, out, i))
                return out_of_range(g, key, key->type, key->bits, wants[want].range, e);
        return true;
    }
    if (!is_array_for(key, want))
        return wrong_type(g, key, want == WANT_F32 ? "numbers" : "integers", e);
    if (key->count != n)
        return fail(g, name, e, "%" PRIu64 " values, expected %zu", key->count, n);
    return read_numbers(g, key, want, out, e);
}

bool gguf_fill_i64(const struct gguf_file *g, const char *key, bool required, int64_t *out,
                   size_t n, struct err *e)
{
    return fill(g, key, required, WANT_I64, out, n, e);
}

bool gguf_fill_u64(const struct gguf_file *g, const char *key, bool required, uint64_t *out,
                   size_t n, struct err *e)
{
    return fill(g, key, required, WANT_U64, out, n, e);
}

bool gguf_fill_f32(const struct gguf_file *g, const char *key, bool required, float *out, size_t n,
                   struct err *e)
{
    return fill(g, key, required, WANT_F32, out, n, e);
}

static bool check_count(const struct gguf_file *g, const struct gguf_key *key, size_t most,
                        struct err *e)
{
    return key->count <= most ||
           fail(g, key->name, e, "%" PRIu64 " elements, at most %zu", key->count, most);
}

static bool get_array(const struct gguf_file *g, const char *name, bool required, enum want want,
                      size_t most, void **out, size_t *count, struct err *e)
{
    const struct gguf_key *key;
    if (!look_up(g, name, required, &key, e))
        return false;
    if (!key)
        return true;
    if (!is_array_for(key, want))
        return wrong_type(g, key, want == WANT_F32 ? "an array of numbers" : "an array of integers",
                          e);
    if (!check_count(g, key, most, e))
        return false;
    void *values = mem_alloc_array((size_t)key->count, wants[want].bytes, "array of a key", e);
    if (!values)
        return false;
    if (!read_numbers(g, key, want, values, e)) {
        mem_free(values);
        return false;
    }
    *out = values;
    *count = (size_t)key->count;
    return true;
}

bool gguf_get_i64_array(const struct gguf_file *g, const char *key, bool required, size_t most,
                        int64_t **out, size_t *count, struct err *e)
{
    void *values = *out;
    bool ok = get_array(g, key, required, WANT_I64, most, &values, count, e);
    *out = values;
    return ok;
}

bool gguf_get_u64_array(const struct gguf_file *g, const char *key, bool required, size_t most,
                        uint64_t **out, size_t *count, struct err *e)
{
    void *values = *out;
    bool ok = get_array(g, key, required, WANT_U64, most, &values, count, e);
    *out = values;
    return ok;
}

bool gguf_get_f32_array(const struct gguf_file *g, const char *key, bool required, size_t most,
                        float **out, size_t *count, struct err *e)
{
    void *values = *out;
    bool ok = get_array(g, key, required, WANT_F32, most, &values, count, e);
    *out = values;
    return ok;
}

/* ---- arrays of strings ---- */

static bool read_strings(const struct gguf_file *g, const struct gguf_key *key,
                         struct gguf_strings *out, uint64_t text_bytes, struct err *e)
{
    struct gguf_scan s;
    bool ok = gguf_scan_begin(&s, gguf_part_fd(g, 0), gguf_part_path(g, 0), key->offset,
                              key->offset + key->bytes, e);
    gguf_scan_subject(&s, "key", 0, key->name, key->name_bytes);
    for (size_t i = 0; ok && i < out->count; i++) {
        uint64_t n = 0, used = out->starts[i];
        ok = gguf_scan_length(&s, &n, "length", e) &&
             (n <= text_bytes - used || gguf_scan_fail(&s, e, "changed while it was read")) &&
             gguf_scan_copy(&s, out->bytes + used, (size_t)n, e);
        out->starts[i + 1] = used + n;
    }
    gguf_scan_free(&s);
    return ok;
}

bool gguf_get_strings(const struct gguf_file *g, const char *name, bool required, size_t most,
                      size_t most_bytes, struct gguf_strings *out, struct err *e)
{
    const struct gguf_key *key;
    if (!look_up(g, name, required, &key, e))
        return false;
    if (!key)
        return true;
    if (key->type != GGUF_ARRAY || key->element_type != GGUF_STRING)
        return wrong_type(g, key, "an array of strings", e);
    if (!check_count(g, key, most, e))
        return false;
    uint64_t text_bytes = key->bytes - 8 * key->count; /* the lengths were read when opening */
    if (text_bytes > most_bytes)
        return fail(g, name, e, "strings of %" PRIu64 " bytes, at most %zu", text_bytes,
                    most_bytes);
    struct gguf_strings s = {.count = (size_t)key->count};
    s.bytes = mem_alloc((size_t)text_bytes, "strings of a key", e);
    s.starts = mem_alloc_array(s.count + 1, sizeof *s.starts, "strings of a key", e);
    if (!s.bytes || !s.starts || !read_strings(g, key, &s, text_bytes, e)) {
        gguf_strings_free(&s);
        return false;
    }
    *out = s;
    return true;
}

void gguf_strings_free(struct gguf_strings *s)
{
    mem_free(s->bytes);
    mem_free(s->starts);
    *s = (struct gguf_strings){0};
}
