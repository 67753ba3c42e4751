/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* strtod_l */
#include "base/json.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define MOST_DEPTH 128
#define BLOCK_BYTES 4096

/* Values of closed containers live in blocks; a value never moves once it is there. */
struct block {
    struct block *next;
    size_t room, used; /* bytes behind this header */
    max_align_t data[];
};

/* Values of containers that are still open, innermost last. Keys and items of an object alternate.
 */
struct stack {
    struct json *values;
    size_t count, room;
};

struct json_doc {
    struct json root;
    struct block *blocks;
    char *strings; /* every string and number with its NUL: never longer than the text plus one */
};

struct reader {
    struct json_doc *doc;
    const char *begin, *at, *end;
    char *string; /* where the next string goes */
    struct stack stack;
    const char *name;
    struct err *e;
};

/* ---- Reading ---- */

static bool fail(struct reader *r, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *p = r->begin; p < r->at; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    return err_set(r->e, ERR_FORMAT, "%s: line %zu, column %zu: %s", r->name, line, column, what);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static void *take(struct json_doc *d, size_t bytes, struct err *e)
{
    bytes = mem_round_up(bytes, sizeof(max_align_t));
    if (!d->blocks || d->blocks->room - d->blocks->used < bytes) {
        /* Each block is at least as large as the one before: few blocks, little waste. */
        size_t room = d->blocks ? d->blocks->room : BLOCK_BYTES;
        if (d->blocks && room < (size_t)1 << 20)
            room *= 2;
        if (room < bytes)
            room = bytes;
        struct block *b = mem_alloc(sizeof *b + room, "JSON values", e);
        if (!b)
            return NULL;
        b->room = room;
        b->next = d->blocks;
        d->blocks = b;
    }
    void *p = (char *)d->blocks->data + d->blocks->used;
    d->blocks->used += bytes;
    return p;
}

static bool push(struct reader *r, const struct json *v)
{
    struct stack *s = &r->stack;
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 64;
        struct json *values = mem_grow(s->values, room * sizeof *values, "JSON values", r->e);
        if (!values)
            return false;
        s->values = values;
        s->room = room;
    }
    s->values[s->count++] = *v;
    return true;
}

static bool read_hex4(struct reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int c = r->at < r->end ? (unsigned char)*r->at : 0;
        if (!isxdigit(c))
            return fail(r, "\\u needs four hexadecimal digits");
        *out = *out << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
}

/* After "\u": one code point, a pair of surrogates included. */
static bool read_unicode_escape(struct reader *r, struct json *v)
{
    uint32_t code, low;
    if (!read_hex4(r, &code))
        return false;
    if (code >= 0xd800 && code <= 0xdbff && r->end - r->at >= 6 && r->at[0] == '\\' &&
        r->at[1] == 'u') {
        const char *second = r->at;
        r->at += 2;
        if (!read_hex4(r, &low))
            return false;
        if (low >= 0xdc00 && low <= 0xdfff)
            code = 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
        else
            r->at = second; /* looked at again on its own */
    }
    if (code >= 0xd800 && code <= 0xdfff) {
        v->lone_surrogate = true;
        code = 0xfffd;
    }
    r->string += utf8_encode(code, r->string);
    return true;
}

static bool read_escape(struct reader *r, struct json *v)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    r->at++;
    if (r->at < r->end && *r->at == 'u') {
        r->at++;
        return read_unicode_escape(r, v);
    }
    const char *known = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;
    if (!known)
        return fail(r, "unknown escape in a string");
    *r->string++ = to[known - from];
    r->at++;
    return true;
}

static bool read_string(struct reader *r, struct json *v)
{
    *v = (struct json){.kind = JSON_STRING, .text = r->string};
    for (r->at++;;) {
        if (r->at == r->end)
            return fail(r, "the text ends inside a string");
        unsigned char c = (unsigned char)*r->at;
        uint32_t code;
        size_t length;
        if (c == '"')
            break;
        if (c == '\\') {
            if (!read_escape(r, v))
                return false;
            continue;
        }
        if (c < 0x20)
            return fail(r, "control character in a string");
        if (utf8_decode(r->at, (size_t)(r->end - r->at), &code, &length) != UTF8_WHOLE)
            return fail(r, "the text is not UTF-8");
        memcpy(r->string, r->at, length);
        r->string += length;
        r->at += length;
    }
    r->at++;
    v->bytes = (size_t)(r->string - v->text);
    *r->string++ = 0;
    return true;
}

static bool skip_digits(struct reader *r)
{
    if (r->at == r->end || !isdigit((unsigned char)*r->at))
        return fail(r, "a digit is missing in a number");
    while (r->at < r->end && isdigit((unsigned char)*r->at))
        r->at++;
    return true;
}

static bool read_number(struct reader *r, struct json *v)
{
    const char *begin = r->at;
    r->at += *r->at == '-';
    if (r->at < r->end && *r->at == '0')
        r->at++;
    else if (!skip_digits(r))
        return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!skip_digits(r))
            return false;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        if (!skip_digits(r))
            return false;
    }
    *v = (struct json){.kind = JSON_NUMBER, .text = r->string, .bytes = (size_t)(r->at - begin)};
    memcpy(r->string, begin, v->bytes);
    r->string[v->bytes] = 0;
    r->string += v->bytes + 1;
    return true;
}

static bool read_word(struct reader *r, const char *word, enum json_kind kind, struct json *v)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n))
        return fail(r, "a value is expected");
    r->at += n;
    *v = (struct json){.kind = kind};
    return true;
}

static int compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int d = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return d ? d : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_keys(const void *a, const void *b)
{
    const struct json *x = *(const struct json *const *)a, *y = *(const struct json *const *)b;
    int d = compare_bytes(x->text, x->bytes, y->text, y->bytes);
    return d ? d : (x > y) - (x < y);
}

/* Takes the values above `base` off the stack and makes them the members of v. */
static bool close_container(struct reader *r, struct json *v, size_t base)
{
    bool object = v->kind == JSON_OBJECT;
    const struct json *from = r->stack.values + base;
    v->count = (r->stack.count - base) / (object ? 2 : 1);
    r->stack.count = base;
    if (!v->count)
        return true;
    v->items = take(r->doc, v->count * sizeof *v->items, r->e);
    if (!v->items)
        return false;
    if (!object) {
        memcpy(v->items, from, v->count * sizeof *from);
        return true;
    }
    v->keys = take(r->doc, v->count * sizeof *v->keys, r->e);
    v->order = v->keys ? take(r->doc, v->count * sizeof *v->order, r->e) : NULL;
    if (!v->order)
        return false;
    for (size_t i = 0; i < v->count; i++) {
        v->keys[i] = from[2 * i];
        v->items[i] = from[2 * i + 1];
        v->order[i] = &v->keys[i];
    }
    qsort(v->order, v->count, sizeof *v->order, compare_keys);
    return true;
}

static bool read_value(struct reader *r, struct json *v, int depth);

static bool read_key(struct reader *r)
{
    struct json key;
    if (r->at == r->end || *r->at != '"')
        return fail(r, "a key in quotes is expected");
    if (!read_string(r, &key) || !push(r, &key))
        return false;
    skip_space(r);
    if (r->at == r->end || *r->at != ':')
        return fail(r, "':' is expected after a key");
    r->at++;
    return true;
}

static bool read_container(struct reader *r, struct json *v, int depth)
{
    char closing = *r->at == '{' ? '}' : ']';
    size_t base = r->stack.count;
    *v = (struct json){.kind = closing == '}' ? JSON_OBJECT : JSON_ARRAY};
    if (depth == MOST_DEPTH)
        return fail(r, "more than 128 arrays and objects inside each other");
    r->at++;
    skip_space(r);
    bool more = r->at == r->end || *r->at != closing;
    while (more) {
        struct json item;
        if ((closing == '}' && !read_key(r)) || !read_value(r, &item, depth + 1) || !push(r, &item))
            return false;
        if (r->at == r->end || (*r->at != ',' && *r->at != closing))
            return fail(r, closing == '}' ? "',' or '}' is expected" : "',' or ']' is expected");
        more = *r->at == ',';
        if (more) {
            r->at++;
            skip_space(r);
        }
    }
    r->at++;
    return close_container(r, v, base);
}

/* One value with the white space around it. */
static bool read_value(struct reader *r, struct json *v, int depth)
{
    bool done;
    skip_space(r);
    switch (r->at < r->end ? *r->at : 0) {
    case '{':
    case '[':
        done = read_container(r, v, depth);
        break;
    case '"':
        done = read_string(r, v);
        break;
    case 't':
        done = read_word(r, "true", JSON_TRUE, v);
        break;
    case 'f':
        done = read_word(r, "false", JSON_FALSE, v);
        break;
    case 'n':
        done = read_word(r, "null", JSON_NULL, v);
        break;
    default:
        if (r->at == r->end || (*r->at != '-' && !isdigit((unsigned char)*r->at)))
            return fail(r, "a value is expected");
        done = read_number(r, v);
    }
    skip_space(r);
    return done;
}

struct json_doc *json_parse(const char *text, size_t bytes, const char *name, struct err *e)
{
    struct json_doc *d = mem_alloc(sizeof *d, "JSON document", e);
    if (!d)
        return NULL;
    d->strings = mem_alloc(bytes + 1, "JSON strings", e);
    struct reader r = {d, text, text, text + bytes, d->strings, {0}, name, e};
    bool done = d->strings && read_value(&r, &d->root, 0);
    if (done && r.at < r.end)
        done = fail(&r, "nothing may follow the value");
    mem_free(r.stack.values);
    if (!done) {
        json_free(d);
        return NULL;
    }
    return d;
}

struct json *json_root(struct json_doc *d)
{
    return &d->root;
}

void json_free(struct json_doc *d)
{
    if (!d)
        return;
    for (struct block *b = d->blocks, *next; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    mem_free(d->strings);
    mem_free(d);
}

/* ---- Looking ---- */

/* Number of keys of v that are smaller than the given one (or equal to it, with `or_equal`). */
static size_t rank_of_key(const struct json *v, const char *key, size_t bytes, bool or_equal)
{
    size_t low = 0, high = v->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct json *k = v->order[middle];
        int d = compare_bytes(k->text, k->bytes, key, bytes);
        if (d < 0 || (d == 0 && or_equal))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct json *json_get(const struct json *v, const char *key)
{
    if (!v || v->kind != JSON_OBJECT)
        return NULL;
    size_t bytes = strlen(key), after = rank_of_key(v, key, bytes, true);
    if (!after)
        return NULL;
    const struct json *k = v->order[after - 1];
    return k->bytes == bytes && !memcmp(k->text, key, bytes) ? &v->items[k - v->keys] : NULL;
}

const struct json *json_member(const struct json *v, size_t i)
{
    const struct json *key = &v->keys[i];
    if (v->order[rank_of_key(v, key->text, key->bytes, false)] != key)
        return NULL;
    const struct json *last = v->order[rank_of_key(v, key->text, key->bytes, true) - 1];
    return &v->items[last - v->keys];
}

const struct json *json_duplicate_key(const struct json *v)
{
    const struct json *found = NULL;
    if (v->kind == JSON_OBJECT) {
        for (size_t i = 1; i < v->count; i++) {
            const struct json *a = v->order[i - 1], *b = v->order[i];
            if (a->bytes == b->bytes && !memcmp(a->text, b->text, a->bytes) &&
                (!found || b < found))
                found = b;
        }
    }
    for (size_t i = 0; !found && i < v->count; i++)
        found = json_duplicate_key(&v->items[i]);
    return found;
}

bool json_is_text(const struct json *v, const char *text)
{
    return v && v->kind == JSON_STRING && v->bytes == strlen(text) &&
           !memcmp(v->text, text, v->bytes);
}

/* Exponent of a number as written, held within bounds that no number of this size can reach. */
static int64_t written_exponent(const char *p)
{
    bool negative = *p == '-';
    int64_t n = 0;
    p += *p == '-' || *p == '+';
    for (; *p && n < (int64_t)1 << 48; p++)
        n = n * 10 + (*p - '0');
    return negative ? -n : n;
}

bool json_i64(const struct json *v, int64_t *out)
{
    if (!v || v->kind != JSON_NUMBER)
        return false;
    bool negative = v->text[0] == '-', fraction = false, fits = true;
    uint64_t n = 0;
    int64_t exponent = 0, zeros = 0; /* zeros: digits 0 that were not multiplied in yet */
    const char *p = v->text + negative;
    for (; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        exponent -= fraction;
        zeros++;
        if (*p == '0')
            continue;
        for (; n && fits && zeros > 0; zeros--)
            fits = !__builtin_mul_overflow(n, (uint64_t)10, &n);
        zeros = 0;
        fits = fits && !__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
    }
    if (*p)
        exponent += written_exponent(p + 1);
    if (!n && fits) {
        *out = 0;
        return true;
    }
    exponent += zeros;
    if (!fits || exponent < 0)
        return false;
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(n, (uint64_t)10, &n))
            return false;
    if (n > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? -(int64_t)(n - 1) - 1 : (int64_t)n;
    return true;
}

/* Numbers have a point in every locale that the program may set. */
static locale_t plain_locale;

static void make_plain_locale(void)
{
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double read_f64(const char *text)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain_locale);
    return plain_locale ? strtod_l(text, NULL, plain_locale) : strtod(text, NULL);
}

bool json_f64(const struct json *v, double *out)
{
    if (!v || v->kind != JSON_NUMBER)
        return false;
    *out = read_f64(v->text);
    return isfinite(*out);
}

/* ---- Writing ---- */

void json_out_free(struct json_out *o)
{
    mem_free(o->text);
    *o = (struct json_out){0};
}

/* Room for `bytes` more and a NUL. */
static bool make_room(struct json_out *o, size_t bytes)
{
    size_t need;
    if (o->failed)
        return false;
    if (!mem_add(o->bytes, bytes, &need) || !mem_add(need, 1, &need)) {
        o->failed = true;
        return false;
    }
    if (need <= o->room)
        return true;
    size_t room = o->room < SIZE_MAX / 2 && o->room * 2 > need ? o->room * 2 : need + 64;
    char *text = mem_grow(o->text, room, "JSON text", NULL);
    if (!text) {
        o->failed = true;
        return false;
    }
    o->text = text;
    o->room = room;
    return true;
}

void json_put(struct json_out *o, const char *text, size_t bytes)
{
    if (!make_room(o, bytes))
        return;
    if (bytes)
        memcpy(o->text + o->bytes, text, bytes);
    o->bytes += bytes;
    o->text[o->bytes] = 0;
}

void json_puts(struct json_out *o, const char *text)
{
    json_put(o, text, strlen(text));
}

void json_putf(struct json_out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        o->failed = true;
        return;
    }
    if (!make_room(o, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(o->text + o->bytes, (size_t)n + 1, fmt, ap);
    va_end(ap);
    o->bytes += (size_t)n;
}

static void put_control(struct json_out *o, unsigned char c)
{
    static const char short_forms[] = "btn\0fr"; /* 08 to 0d; 0b has none */
    if (c >= 0x08 && c <= 0x0d && c != 0x0b)
        json_putf(o, "\\%c", short_forms[c - 0x08]);
    else
        json_putf(o, "\\u%04x", c);
}

void json_put_string(struct json_out *o, const char *text, size_t bytes)
{
    size_t plain = 0; /* first byte that is not written yet */
    json_put(o, "\"", 1);
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        uint32_t code;
        bool whole = utf8_decode(text + i, bytes - i, &code, &length) == UTF8_WHOLE;
        if (whole && code >= 0x20 && code != '"' && code != '\\')
            continue;
        json_put(o, text + plain, i - plain);
        plain = i + length;
        if (!whole)
            json_put(o, UTF8_REPLACEMENT, UTF8_REPLACEMENT_BYTES);
        else if (code < 0x20)
            put_control(o, (unsigned char)code);
        else
            json_putf(o, "\\%c", (char)code);
    }
    json_put(o, text + plain, bytes - plain);
    json_put(o, "\"", 1);
}

/* A decimal: sign, digits d[0].d[1]d[2]..., exponent of ten. */
struct decimal {
    char digits[20]; /* NUL-terminated, no zeros at the end unless it is the only digit */
    int exponent;
};

static void split_decimal(double v, int precision, struct decimal *d)
{
    char text[48];
    int n = 0;
    snprintf(text, sizeof text, "%.*e", precision - 1, v);
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (isdigit((unsigned char)*p)) /* the point may be any bytes in a locale */
            d->digits[n++] = *p;
    d->digits[n] = 0;
    d->exponent = *p ? atoi(p + 1) : 0;
}

static bool reads_back(const struct decimal *d, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%c.%se%d", d->digits[0], d->digits + 1, d->exponent);
    return read_f64(text) == v;
}

/* The next larger decimal of the same number of digits. */
static void step_up(struct decimal *d)
{
    int i = (int)strlen(d->digits) - 1;
    for (; i >= 0 && d->digits[i] == '9'; i--)
        d->digits[i] = '0';
    if (i >= 0) {
        d->digits[i]++;
    } else {
        d->digits[0] = '1';
        d->exponent++;
    }
}

/* The shortest decimal that reads back as v (v > 0). The nearest one of a length may miss where a
 * longer one above does not: at powers of two the gap above is twice the gap below. */
static void shortest_decimal(double v, struct decimal *d)
{
    for (int precision = 1; precision <= 17; precision++) {
        split_decimal(v, precision, d);
        if (reads_back(d, v))
            break;
        struct decimal above = *d;
        step_up(&above);
        if (reads_back(&above, v)) {
            *d = above;
            break;
        }
    }
    for (size_t n = strlen(d->digits); n > 1 && d->digits[n - 1] == '0'; n--)
        d->digits[n - 1] = 0;
}

void json_put_f64(struct json_out *o, double v)
{
    if (!isfinite(v)) {
        json_puts(o, "null");
        return;
    }
    if (signbit(v))
        json_puts(o, "-");
    if (v == 0) {
        json_puts(o, "0.0");
        return;
    }
    struct decimal d;
    shortest_decimal(fabs(v), &d);
    int n = (int)strlen(d.digits), x = d.exponent;
    if (x < -4 || x >= 16)
        json_putf(o, "%c%s%se%c%02d", d.digits[0], n > 1 ? "." : "", d.digits + 1,
                  x < 0 ? '-' : '+', abs(x));
    else if (x < 0)
        json_putf(o, "0.%.*s%s", -x - 1, "000", d.digits);
    else if (x < n - 1)
        json_putf(o, "%.*s.%s", x + 1, d.digits, d.digits + x + 1);
    else
        json_putf(o, "%s%.*s.0", d.digits, x + 1 - n, "000000000000000");
}

static void put_number(struct json_out *o, const struct json *v)
{
    if (!strpbrk(v->text, ".eE")) { /* an integer, digits as written */
        json_puts(o, strcmp(v->text, "-0") ? v->text : "0");
        return;
    }
    double f = read_f64(v->text);
    if (isfinite(f))
        json_put_f64(o, f);
    else /* the same words as Python's */
        json_puts(o, f < 0 ? "-Infinity" : "Infinity");
}

static void put_object(struct json_out *o, const struct json *v)
{
    const char *separator = "";
    json_puts(o, "{");
    for (size_t i = 0; i < v->count; i++) {
        const struct json *value = json_member(v, i);
        if (!value)
            continue; /* its place has the value already */
        json_puts(o, separator);
        json_put_string(o, v->keys[i].text, v->keys[i].bytes);
        json_puts(o, ": ");
        json_put_value(o, value);
        separator = ", ";
    }
    json_puts(o, "}");
}

void json_put_value(struct json_out *o, const struct json *v)
{
    switch (v->kind) {
    case JSON_NULL:
        json_puts(o, "null");
        break;
    case JSON_FALSE:
        json_puts(o, "false");
        break;
    case JSON_TRUE:
        json_puts(o, "true");
        break;
    case JSON_NUMBER:
        put_number(o, v);
        break;
    case JSON_STRING:
        json_put_string(o, v->text, v->bytes);
        break;
    case JSON_ARRAY:
        json_puts(o, "[");
        for (size_t i = 0; i < v->count; i++) {
            json_puts(o, i ? ", " : "");
            json_put_value(o, &v->items[i]);
        }
        json_puts(o, "]");
        break;
    case JSON_OBJECT:
        put_object(o, v);
        break;
    }
}
