/* SPDX-License-Identifier: Apache-2.0 */
/* The class of every code point is that of the pinned table; texts are trimmed and repaired as
 * text.md 3.2 and 1.8 say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

static void test_classes_equal_the_table(void **state)
{
    (void)state;
    static char expected[0x110000];
    static const char letters[] = "OLMNW"; /* by enum unicode_class */
    char line[200], class;
    unsigned first, last;
    FILE *f = fopen(DATA "/fixtures/tokenizer/unicode-classes.tsv", "r");
    assert_non_null(f);
    memset(expected, 'O', sizeof expected);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%x %x %c", &first, &last, &class) == 3)
            memset(expected + first, class, last - first + 1);
    fclose(f);
    for (uint32_t code = 0; code < 0x110000; code++)
        if (letters[unicode_class(code)] != expected[code])
            fail_msg("U+%04X is %c", code, letters[unicode_class(code)]);
    assert_int_equal(unicode_class(UINT32_MAX), UNICODE_OTHER);
}

static void trims(const char *text, const char *want)
{
    struct text_view v = unicode_trim((struct text_view){text, strlen(text)});
    assert_int_equal(v.bytes, strlen(want));
    assert_memory_equal(v.text, want, v.bytes);
}

static void test_trim(void **state)
{
    (void)state;
    trims(" \t\n\v\f\r a b \x1c\x1d\x1e\x1f", "a b");
    trims("\xc2\x85\xc2\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\u00e4\u3000", "\u00e4");
    trims("\u200bx\ufeff", "\u200bx\ufeff"); /* no white space */
    trims("\u180ex\x1b", "\u180ex\x1b");
    trims(" \u3000 ", "");
    trims("", "");
}

static void repairs(const char *text, const char *want)
{
    char *out;
    size_t bytes = 0;
    assert_true(unicode_repair(text, strlen(text), &out, &bytes, NULL));
    assert_non_null(out);
    assert_string_equal(out, want);
    assert_int_equal(bytes, strlen(want));
    mem_free(out);
}

static void test_repair_replaces_single_bytes(void **state)
{
    (void)state;
    repairs("\xff", "\ufffd");
    repairs("a\xf0\x9f\x98Y", "a\ufffd\ufffd\ufffdY");
    repairs("\xed\xa0\x80", "\ufffd\ufffd\ufffd"); /* a surrogate */
    repairs("\xc0\x80", "\ufffd\ufffd");           /* overlong */
    repairs("\xf4\x90\x80\x80z", "\ufffd\ufffd\ufffd\ufffdz");
    repairs("\u00e4\xc3", "\u00e4\ufffd");
    char *out;
    size_t bytes;
    assert_true(unicode_repair("\U0010ffff\0x", 6, &out, &bytes, NULL));
    assert_null(out); /* well-formed: no copy */
}

static void test_every_code_point_survives_encoding(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        uint32_t back;
        size_t n = utf8_encode(code, text), length;
        bool surrogate = code >= 0xd800 && code <= 0xdfff;
        bool whole = utf8_decode(text, n, &back, &length) == UTF8_WHOLE;
        assert_true(surrogate ? !whole : whole && back == code && length == n);
        for (size_t cut = 1; whole && cut < n; cut++)
            assert_int_equal(utf8_decode(text, cut, &back, &length), UTF8_INCOMPLETE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_equal_the_table),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_repair_replaces_single_bytes),
        cmocka_unit_test(test_every_code_point_survives_encoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
