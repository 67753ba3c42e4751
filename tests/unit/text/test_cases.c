/* SPDX-License-Identifier: Apache-2.0 */
/* Every handed case of the text side gives exactly what it must: token ids, splits, long texts,
 * bytes of tokens, chat prompts and their ids, template detection, text streams. The folder of the
 * unpacked vocabularies is the first argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cases_text.h"
#include "base/file.h"
#include "base/mem.h"

static struct cases_context context;
static const char *vocab_dir;

/* Runs a file of cases: exactly `expected` of them, all of a known kind, all right. */
static void all_right(const char *path, long expected)
{
    struct case_report report = {0};
    struct err e;
    size_t bytes;
    int number = 0;
    err_clear(&e);
    char *text = file_read_all(path, (size_t)64 << 20, &bytes, &e);
    if (!text)
        fail_msg("%s", e.text);
    for (char *line = text, *next; *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        struct json_doc *d = json_parse(line, n, path, &e);
        if (!d)
            fail_msg("%s", e.text);
        assert_true(cases_text_line(json_root(d), path, ++number, &context, &report));
        json_free(d);
    }
    mem_free(text);
    assert_int_equal(report.failed, 0);
    assert_int_equal(report.skipped, 0);
    assert_int_equal(report.passed, expected);
}

static void test_token_ids(void **state)
{
    (void)state;
    all_right(DATA "/fixtures/tokenizer/cases.jsonl", 2485);
}

static void test_splits(void **state)
{
    (void)state;
    all_right(DATA "/fixtures/tokenizer/splits.jsonl", 995);
}

static void test_long_texts_within_200_mb(void **state)
{
    (void)state;
    all_right(DATA "/fixtures/tokenizer/long.jsonl", 34);
    assert_true(mem_peak() < (size_t)200 << 20);
}

static void test_pieces(void **state)
{
    (void)state;
    struct case_report report = {0};
    cases_text_pieces(DATA "/fixtures/tokenizer/pieces.tsv", &context, &report);
    assert_int_equal(report.failed + report.skipped, 0);
    assert_int_equal(report.passed, 693);
}

static void test_chat_prompts(void **state)
{
    (void)state;
    all_right(DATA "/cases/chat/cases.jsonl", 449);
}

static void test_chat_ids(void **state)
{
    (void)state;
    all_right(DATA "/cases/chat/ids.jsonl", 27);
}

static void test_template_detection(void **state)
{
    (void)state;
    all_right(DATA "/cases/chat/detect.jsonl", 12);
}

static void test_text_stream(void **state)
{
    (void)state;
    all_right(DATA "/cases/stream-text/cases.jsonl", 153);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_long_texts_within_200_mb),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_chat_prompts),
        cmocka_unit_test(test_chat_ids),
        cmocka_unit_test(test_template_detection),
        cmocka_unit_test(test_text_stream),
    };
    vocab_dir = argc > 1 ? argv[1] : ".";
    context.vocab_dirs = &vocab_dir;
    context.n_vocab_dirs = 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cases_context_close(&context);
    return failed;
}
