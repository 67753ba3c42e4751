/* SPDX-License-Identifier: Apache-2.0 */
/* JSON is read with nothing lost and printed as text.md section 3.2 says; bad text is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"

static struct json_doc *parse(const char *text)
{
    struct err e;
    err_clear(&e);
    struct json_doc *d = json_parse(text, strlen(text), "text", &e);
    if (!d)
        fail_msg("%s", e.text);
    return d;
}

static void prints_as(const char *text, const char *want)
{
    struct json_doc *d = parse(text);
    struct json_out o = {0};
    json_put_value(&o, json_root(d));
    assert_string_equal(o.text, want);
    json_out_free(&o);
    json_free(d);
}

static void refused(const char *text, size_t bytes, const char *words)
{
    struct err e;
    err_clear(&e);
    assert_null(json_parse(text, bytes, "body", &e));
    assert_int_equal(e.code, ERR_FORMAT);
    if (!strstr(e.text, words))
        fail_msg("'%s' lacks '%s'", e.text, words);
}

static void test_prints_like_python(void **state)
{
    (void)state;
    prints_as(" [ 1 , 2,{ } ,[ ]]\n", "[1, 2, {}, []]");
    prints_as("{\"b\":true,\"a\":[false,null]}", "{\"b\": true, \"a\": [false, null]}");
    prints_as("\"\\u0001\\b\\f\\n\\r\\t\\\"\\\\\\/\\u007f\\u2028\"",
              "\"\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\x7f\xe2\x80\xa8\"");
    prints_as("\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"");
    prints_as("[-0, 12345678901234567890123456789012345678901234567890]",
              "[0, 12345678901234567890123456789012345678901234567890]");
    prints_as("[1.0,0.1,1e15,1e16,0.0001,0.00001,1.5e-7,6.02e23,-0.0,1E400,-1e400]",
              "[1.0, 0.1, 1000000000000000.0, 1e+16, 0.0001, 1e-05, 1.5e-07, 6.02e+23, -0.0, "
              "Infinity, -Infinity]");
}

static void test_repeated_key_keeps_first_place_and_last_value(void **state)
{
    (void)state;
    prints_as("{\"a\":1,\"b\":2,\"a\":{\"c\":3,\"c\":4}}", "{\"a\": {\"c\": 4}, \"b\": 2}");
    struct json_doc *d = parse("{\"x\":[{\"b\":1,\"a\":2,\"a\":3,\"b\":4}],\"y\":5}");
    const struct json *twice = json_duplicate_key(json_root(d));
    assert_true(json_is_text(twice, "a"));
    int64_t n;
    assert_true(json_i64(json_get(&json_get(json_root(d), "x")->items[0], "b"), &n) && n == 4);
    assert_null(json_get(json_root(d), "z"));
    assert_null(json_get(json_get(json_root(d), "y"), "z"));
    json_free(d);
    d = parse("{\"a\":{\"b\":1},\"b\":{\"a\":1}}");
    assert_null(json_duplicate_key(json_root(d)));
    json_free(d);
}

static void test_shortest_double_reads_back(void **state)
{
    (void)state;
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        /* every power of two, where the gap above is twice the gap below, then random ones */
        bits =
            i < 2046 ? (uint64_t)(i + 1) << 52 : bits * 6364136223846793005u + 1442695040888963407u;
        double v, back;
        memcpy(&v, &bits, 8);
        if (v != v || v - v != 0)
            continue;
        struct json_out o = {0};
        json_put_f64(&o, v);
        struct json_doc *d = parse(o.text);
        assert_true(json_f64(json_root(d), &back) && back == v);
        json_free(d);
        json_out_free(&o);
    }
    struct json_out o = {0};
    json_put_f64(&o,
                 0x1p-44); /* 16 digits above the value, though the nearest 16 do not read back */
    json_puts(&o, " ");
    json_put_f64(&o, 5e-324);
    json_puts(&o, " ");
    json_put_f64(&o, 0.0 / 0.0);
    assert_string_equal(o.text, "5.684341886080802e-14 5e-324 null");
    json_out_free(&o);
}

static void test_strings_keep_every_byte(void **state)
{
    (void)state;
    struct json_doc *d = parse("[\"a\\u0000b\",\"x\\ud83dy\",\"\\udc00\",\"ok\"]");
    const struct json *v = json_root(d)->items;
    assert_int_equal(v[0].bytes, 3);
    assert_memory_equal(v[0].text, "a\0b", 4);
    assert_true(v[1].lone_surrogate && json_is_text(&v[1], "x\xef\xbf\xbdy"));
    assert_true(v[2].lone_surrogate && json_is_text(&v[2], "\xef\xbf\xbd"));
    assert_false(v[3].lone_surrogate);
    json_free(d);
    struct json_out o = {0};
    json_put_string(&o, "a\xff\xe2\x82z\0", 6);
    assert_string_equal(o.text, "\"a\xef\xbf\xbd\xef\xbf\xbdz\\u0000\"");
    json_out_free(&o);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool whole;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0.000", true, 0},
        {"0e99999999999999999999", true, 0},
        {"5.0", true, 5},
        {"1e2", true, 100},
        {"-1200e-2", true, -12},
        {"0.00123e5", true, 123},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"922337203685477580700e-2", true, INT64_MAX},
        {"18446744073709551616", false, 0},
        {"1e19", false, 0},
        {"1e9999999999999999999999", false, 0},
        {"1e-9999999999999999999999", false, 0},
        {"5.5", false, 0},
        {"15e-1", false, 0},
        {"\"5\"", false, 0},
        {"null", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_doc *d = parse(cases[i].text);
        int64_t n = 77;
        if (json_i64(json_root(d), &n) != cases[i].whole || (cases[i].whole && n != cases[i].value))
            fail_msg("%s: %lld", cases[i].text, (long long)n);
        json_free(d);
    }
}

static void test_bad_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "line 1, column 1: a value"},
        {"[1,\n2,]", "line 2, column 3"},
        {"{\"a\":1,}", "a key in quotes"},
        {"{1:2}", "a key in quotes"},
        {"{\"a\" 1}", "':' is expected"},
        {"01", "nothing may follow"},
        {"1 2", "nothing may follow"},
        {"[1 2]", "',' or ']'"},
        {"{\"a\":1]", "',' or '}'"},
        {"\"abc", "ends inside a string"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\u12g4\"", "four hexadecimal"},
        {"\"\\u12", "four hexadecimal"},
        {"\"a\nb\"", "control character"},
        {"\"\xff\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\xef\xbb\xbf{}", "a value"},
        {"tru", "a value"},
        {"-", "a digit is missing"},
        {"1.", "a digit is missing"},
        {"1e+", "a digit is missing"},
        {".5", "a value"},
        {"NaN", "a value"},
        {"\"\\ud83d\\u12\"", "four hexadecimal"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i][0], strlen(bad[i][0]), bad[i][1]);
    refused("\"\\\0\"", 4, "unknown escape");
    refused("1\0", 2, "nothing may follow");
}

static void test_depth_ends_at_128(void **state)
{
    (void)state;
    char text[300];
    memset(text, '[', 129);
    refused(text, 129, "more than 128");
    memset(text + 128, ']', 128);
    struct err e;
    err_clear(&e);
    struct json_doc *d = json_parse(text, 256, "text", &e);
    assert_non_null(d);
    json_free(d);
}

static void test_every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    const char *text = "{\"a\":[1,2,{\"b\":\"c\"}]}";
    size_t before = mem_in_use();
    for (uint64_t n = 1;; n++) {
        struct err e;
        err_clear(&e);
        mem_fail_at(n);
        struct json_doc *d = json_parse(text, strlen(text), "text", &e);
        mem_fail_at(0);
        json_free(d);
        if (d)
            break;
        assert_int_equal(e.code, ERR_MEMORY);
    }
    struct json_out o = {0};
    mem_fail_at(1);
    json_puts(&o, "x");
    mem_fail_at(0);
    json_puts(&o, "y");
    assert_true(o.failed && !o.text);
    assert_int_equal(mem_in_use(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prints_like_python),
        cmocka_unit_test(test_repeated_key_keeps_first_place_and_last_value),
        cmocka_unit_test(test_shortest_double_reads_back),
        cmocka_unit_test(test_strings_keep_every_byte),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_bad_text_is_refused),
        cmocka_unit_test(test_depth_ends_at_128),
        cmocka_unit_test(test_every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
