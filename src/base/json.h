/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: a reader that keeps what text.md section 3.2 needs (numbers as written at any length, key
 * order, duplicate keys, lone surrogates seen, NUL in strings) and a writer. Depth at most 128,
 * linear time, memory in proportion to the text. Fuzzed (tests/fuzz). */
#ifndef STRATA_BASE_JSON_H
#define STRATA_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    bool lone_surrogate; /* string: held an unpaired \ud800..\udfff, stored as U+FFFD */
    const char *text;    /* string: UTF-8 bytes; number: as written. NUL-terminated besides */
    size_t bytes;        /* of text, the final NUL not counted */
    size_t count;        /* array, object: members */
    struct json *items;  /* array, object: the values, in order */
    struct json *keys;   /* object: the keys (strings), same order; duplicates are kept */
    const struct json **order; /* object: the keys sorted by their bytes, then by their place */
};

struct json_doc;

/* Parses exactly one value (white space around it allowed). `name` is what messages call the text.
 * The document owns everything; free with json_free. NULL on error: the message gives line and
 * column. Text must be UTF-8. */
struct json_doc *json_parse(const char *text, size_t bytes, const char *name, struct err *e);
struct json *json_root(struct json_doc *d);
void json_free(struct json_doc *d);

/* Member of an object by key, the last one of that name; NULL when missing or not an object. */
const struct json *json_get(const struct json *v, const char *key);
/* Value of key i of an object when repeated keys count as text.md 3.2 says (last value, first
 * place): NULL when the key stood before i, else the last value of that key. */
const struct json *json_member(const struct json *v, size_t i);
/* First duplicate key anywhere below v (depth first), or NULL. */
const struct json *json_duplicate_key(const struct json *v);
bool json_is_text(const struct json *v, const char *text);
/* Integer value; false when not a number, not an integer or out of range. */
bool json_i64(const struct json *v, int64_t *out);
bool json_f64(const struct json *v, double *out);

/* Growing text buffer. All functions are no-ops after a failure, which is kept in `failed`. */
struct json_out {
    char *text; /* NUL-terminated once anything was written */
    size_t bytes, room;
    bool failed;
};
void json_out_free(struct json_out *o);
void json_put(struct json_out *o, const char *text, size_t bytes);
void json_puts(struct json_out *o, const char *text);
void json_putf(struct json_out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A quoted string, escaped as text.md section 3.2 says (invalid UTF-8 becomes U+FFFD). */
void json_put_string(struct json_out *o, const char *text, size_t bytes);
/* A double, shortest form that reads back, as section 3.2 says. NaN and inf become null. */
void json_put_f64(struct json_out *o, double v);
/* A parsed value as Python's json.dumps(x, ensure_ascii=False) prints it (section 3.2). */
void json_put_value(struct json_out *o, const struct json *v);

#endif
