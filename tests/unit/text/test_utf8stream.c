/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent of an answer does not depend on how it was cut, and nothing is held without need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text/utf8stream.h"

static uint32_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static void test_code_points_do_not_depend_on_the_cuts(void **state)
{
    (void)state;
    static const char alphabet[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\xff\xc0\xf4\x90";
    for (int round = 0; round < 2000; round++) {
        char text[40];
        size_t n = 1 + below(sizeof text - 1);
        for (size_t i = 0; i < n; i++)
            text[i] = alphabet[below(sizeof alphabet - 1)];
        struct utf8_stream whole = {0}, cut = {0};
        struct json_out a = {0}, b = {0};
        json_put(&a, "", 0);
        json_put(&b, "", 0);
        utf8_stream_feed(&whole, text, n, &a);
        for (size_t i = 0, step; i < n; i += step) {
            step = 1 + below((uint32_t)(n - i));
            utf8_stream_feed(&cut, text + i, step, &b);
        }
        assert_string_equal(a.text, b.text);
        json_out_free(&a);
        json_out_free(&b);
    }
}

static void test_maximal_parts_are_replaced_once(void **state)
{
    (void)state;
    struct utf8_stream s = {0};
    struct json_out o = {0};
    utf8_stream_feed(&s, "\xf0\x9f\x98Y\xed\xa0\x80\xe2\x82", 9, &o);
    assert_string_equal(o.text, "\ufffdY\ufffd\ufffd\ufffd"); /* the last two are waited for */
    utf8_stream_feed(&s, "\xac", 1, &o);
    assert_string_equal(o.text, "\ufffdY\ufffd\ufffd\ufffd\u20ac");
    json_out_free(&o);
}

/* Stop strings by the words of the specification, without any cleverness. */
struct plain {
    char sent[64];
    int stopped_by;
};

static bool ends_with(const char *text, size_t n, const char *end, size_t end_bytes)
{
    return n >= end_bytes && !memcmp(text + n - end_bytes, end, end_bytes);
}

static void plain_stop(const char *text, const char *const *stops, int n_stops, bool end,
                       struct plain *out)
{
    size_t n = strlen(text), hold = 0;
    out->stopped_by = -1;
    for (size_t i = 1; i <= n && out->stopped_by < 0; i++) {
        for (int k = 0; k < n_stops; k++)
            if (ends_with(text, i, stops[k], strlen(stops[k])) &&
                (out->stopped_by < 0 || strlen(stops[k]) > strlen(stops[out->stopped_by])))
                out->stopped_by = k;
        if (out->stopped_by >= 0)
            n = i - strlen(stops[out->stopped_by]);
    }
    for (int k = 0; k < n_stops && out->stopped_by < 0 && !end; k++)
        for (size_t m = 1; m < strlen(stops[k]); m++)
            if (m > hold && ends_with(text, n, stops[k], m))
                hold = m;
    memcpy(out->sent, text, n - hold);
    out->sent[n - hold] = 0;
}

static void test_stop_strings_equal_the_plain_rule_after_every_piece(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char stop_text[3][8] = {{0}}, text[40] = "", so_far[40] = "";
        const char *stops[3];
        struct text_view views[3];
        int n_stops = (int)below(4);
        for (int k = 0; k < n_stops; k++) {
            for (uint32_t i = 0, n = 1 + below(6); i < n; i++)
                stop_text[k][i] = "aab"[below(3)];
            stops[k] = stop_text[k];
            views[k] = (struct text_view){stops[k], strlen(stops[k])};
        }
        size_t n = 1 + below(sizeof text - 2);
        for (size_t i = 0; i < n; i++)
            text[i] = "aaabc"[below(5)];
        struct stop_stream *s = stop_create(views, (size_t)n_stops, NULL);
        struct json_out sent = {0};
        struct plain want;
        json_put(&sent, "", 0);
        for (size_t i = 0, step; i < n; i += step) {
            step = 1 + below((uint32_t)(n - i));
            memcpy(so_far + i, text + i, step);
            bool stopped = stop_feed(s, text + i, step, &sent);
            plain_stop(so_far, stops, n_stops, false, &want);
            assert_string_equal(sent.text, want.sent);
            assert_int_equal(stopped, want.stopped_by >= 0);
        }
        stop_finish(s, &sent);
        plain_stop(text, stops, n_stops, true, &want);
        assert_string_equal(sent.text, want.sent);
        if (want.stopped_by >= 0) /* two may be the same string */
            assert_string_equal(stops[stop_which(s)], stops[want.stopped_by]);
        else
            assert_int_equal(stop_which(s), -1);
        json_out_free(&sent);
        stop_free(s);
    }
}

static void test_empty_stop_strings_are_ignored(void **state)
{
    (void)state;
    const struct text_view stops[] = {{"", 0}, {"x", 1}};
    struct stop_stream *s = stop_create(stops, 2, NULL);
    struct json_out o = {0};
    assert_false(stop_feed(s, "ab", 2, &o));
    assert_true(stop_feed(s, "cxd", 3, &o));
    assert_true(stop_feed(s, "e", 1, &o));
    stop_finish(s, &o);
    assert_string_equal(o.text, "abc");
    assert_int_equal(stop_which(s), 1);
    json_out_free(&o);
    stop_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_points_do_not_depend_on_the_cuts),
        cmocka_unit_test(test_maximal_parts_are_replaced_once),
        cmocka_unit_test(test_stop_strings_equal_the_plain_rule_after_every_piece),
        cmocka_unit_test(test_empty_stop_strings_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
