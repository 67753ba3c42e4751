/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader and writer. The input is taken as a whole and line by line (cases are lines). */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "fuzz.h"

/* Everything that can be asked of a value. */
static void look(const struct json *v)
{
    int64_t i;
    double f;
    if (json_i64(v, &i))
        fuzz_require(v->kind == JSON_NUMBER);
    if (json_f64(v, &f))
        fuzz_require(f - f == 0);
    if (v->kind == JSON_STRING || v->kind == JSON_NUMBER)
        fuzz_require(v->text[v->bytes] == 0);
    for (size_t k = 0; k < v->count; k++) {
        look(&v->items[k]);
        if (v->kind != JSON_OBJECT)
            continue;
        const struct json *key = &v->keys[k];
        fuzz_require(key->kind == JSON_STRING);
        if (strlen(key->text) == key->bytes)
            fuzz_require(json_get(v, key->text));
        json_member(v, k);
    }
}

/* What was printed parses, and prints the same. Words for infinity are no JSON. */
static void print_twice(const struct json *v)
{
    struct json_out once = {0}, twice = {0};
    struct err e = {0};
    json_put_value(&once, v);
    struct json_doc *again = json_parse(once.text, once.bytes, "printed", &e);
    fuzz_require(again || memmem(once.text, once.bytes, "Infinity", 8));
    if (again) {
        json_put_value(&twice, json_root(again));
        fuzz_require(once.bytes == twice.bytes && !memcmp(once.text, twice.text, once.bytes));
        fuzz_require(!json_duplicate_key(json_root(again)));
    }
    json_free(again);
    json_out_free(&once);
    json_out_free(&twice);
}

static void parse(const char *text, size_t bytes)
{
    size_t before = mem_in_use();
    struct err e = {0};
    struct json_doc *d = json_parse(text, bytes, "input", &e);
    fuzz_require(mem_in_use() - before < 200 * bytes + 16384);
    fuzz_require(!d == (e.code != ERR_NONE) && !strchr(e.text, '\n'));
    if (d) {
        look(json_root(d));
        json_duplicate_key(json_root(d));
        print_twice(json_root(d));
    }
    json_free(d);
}

static void quote(const char *text, size_t bytes)
{
    struct json_out o = {0};
    json_put_string(&o, text, bytes);
    struct json_doc *d = json_parse(o.text, o.bytes, "quoted", NULL);
    fuzz_require(d && json_root(d)->kind == JSON_STRING);
    json_free(d);
    json_out_free(&o);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t before = mem_in_use();
    parse(text, size);
    for (size_t at = 0, n; at < size; at += n + 1) {
        const char *end = memchr(text + at, '\n', size - at);
        n = end ? (size_t)(end - text) - at : size - at;
        parse(text + at, n);
    }
    quote(text, size);
    fuzz_require(mem_in_use() == before);
    return 0;
}
