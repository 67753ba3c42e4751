/* SPDX-License-Identifier: Apache-2.0 */
/* What `inspect` shows, character by character. */
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "cmocka_all.h"
#include "folder.h"
#include "gguf/gguf.h"
#include "gguf/listing.h"
#include "gguf/writer.h"

static struct test_folder folder;

static int begin(void **state)
{
    test_folder_begin(&folder);
    return 0;
}

static int end(void **state)
{
    test_folder_end(&folder);
    assert_int_equal(mem_in_use(), 0);
    return 0;
}

static struct gguf_file *example(void)
{
    static const float data[512];
    static const uint8_t numbers[] = {1, 2, 3, 4, 5, 6, 7};
    static uint64_t starts[] = {0, 2, 5};
    static char bytes[] = "a\"\xff\n\xc3";
    static const uint64_t ne[] = {256, 2};
    const struct gguf_strings strings = {2, bytes, starts};
    char text[100];
    struct err e = {0};
    struct gguf_writer *w = gguf_writer_new(&e);
    memset(text, 'x', sizeof text);
    gguf_writer_text(w, "general.architecture", "test", 4);
    gguf_writer_text(w, "general.name", "An \x1b[31mexample", 15);
    gguf_writer_u32(w, "general.file_type", 15);
    gguf_writer_text(w, "long", text, sizeof text);
    gguf_writer_array(w, "numbers", GGUF_U8, 7, numbers);
    gguf_writer_strings(w, "strings", &strings);
    gguf_writer_u64(w, "most", UINT64_MAX);
    gguf_writer_f32(w, "float", 1e-6f);
    gguf_writer_bool(w, "yes", true);
    gguf_writer_tensor(w, "a.weight", 2, ne, TYPE_Q4_K, NULL, (void *)(uintptr_t)data);
    gguf_writer_tensor(w, "b.weight", 1, ne, TYPE_F32, NULL, (void *)(uintptr_t)data);
    assert_true(gguf_writer_write(w, test_folder_name(&folder, "x.gguf"), &e));
    gguf_writer_free(w);
    struct gguf_file *g = gguf_open(folder.path, &e);
    assert_non_null(g);
    return g;
}

static void lists_as(bool json, struct gguf_listing want, const char *expected)
{
    struct err e = {0};
    struct json_out out = {0};
    struct gguf_file *g = example();
    assert_true(json ? gguf_list_json(g, want, &out, &e) : gguf_list_text(g, want, &out, &e));
    assert_string_equal(out.text, expected);
    json_out_free(&out);
    gguf_close(g);
}

static void test_summary_for_people(void **state)
{
    lists_as(false, (struct gguf_listing){false, false},
             "file          x.gguf\n"
             "architecture  \"test\"\n"
             "name          \"An \\x1b[31mexample\"\n"
             "file type     Q4_K_M\n"
             "version       3\n"
             "alignment     32\n"
             "files         1\n"
             "size          1.78 KiB (1824 bytes)\n"
             "keys          9\n"
             "tensors       2\n"
             "  F32              1  1.00 KiB\n"
             "  Q4_K             1  288 bytes\n");
}

static void test_keys_and_tensors_for_people(void **state)
{
    lists_as(false, (struct gguf_listing){true, true},
             "file          x.gguf\n"
             "architecture  \"test\"\n"
             "name          \"An \\x1b[31mexample\"\n"
             "file type     Q4_K_M\n"
             "version       3\n"
             "alignment     32\n"
             "files         1\n"
             "size          1.78 KiB (1824 bytes)\n"
             "keys          9\n"
             "  general.architecture  \"test\"\n"
             "  general.name  \"An \\x1b[31mexample\"\n"
             "  general.file_type  15\n"
             "  long  \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\"\n"
             "  numbers  u8[7] 1, 2, 3, 4, 5, 6, ...\n"
             "  strings  string[2] \"a\"\", \"\\xff\\x0a\\xc3\"\n"
             "  most  18446744073709551615\n"
             "  float  1e-06\n"
             "  yes  true\n"
             "tensors       2\n"
             "  F32              1  1.00 KiB\n"
             "  Q4_K             1  288 bytes\n"
             "  a.weight  Q4_K  256x2  288 bytes at 512\n"
             "  b.weight  F32  256  1024 bytes at 800\n");
}

static void test_json_has_the_fixed_keys(void **state)
{
    lists_as(true, (struct gguf_listing){false, false},
             "{\"version\": 3, \"alignment\": 32, \"keys\": 9, \"tensors\": 2, \"files\": 1, "
             "\"bytes\": 1824, \"architecture\": \"test\"}");
}

static void test_json_of_tensors(void **state)
{
    lists_as(true, (struct gguf_listing){false, true},
             "{\"version\": 3, \"alignment\": 32, \"keys\": 9, \"tensors\": 2, \"files\": 1, "
             "\"bytes\": 1824, \"architecture\": \"test\", \"tensor_list\": ["
             "{\"name\": \"a.weight\", \"type\": \"Q4_K\", \"ne\": [256, 2], \"file\": \"x.gguf\", "
             "\"offset\": 512, \"bytes\": 288}, "
             "{\"name\": \"b.weight\", \"type\": \"F32\", \"ne\": [256], \"file\": \"x.gguf\", "
             "\"offset\": 800, \"bytes\": 1024}]}");
}

static void test_json_of_keys_is_whole_and_exact(void **state)
{
    struct err e = {0};
    struct json_out out = {0};
    struct gguf_file *g = example();
    assert_true(gguf_list_json(g, (struct gguf_listing){true, false}, &out, &e));
    struct json_doc *doc = json_parse(out.text, out.bytes, "listing", &e);
    assert_non_null(doc);
    const struct json *kv = json_get(json_root(doc), "kv");
    assert_int_equal(kv->count, 9);
    assert_int_equal(json_get(kv, "long")->bytes, 100);
    assert_int_equal(json_get(kv, "numbers")->count, 7);
    assert_string_equal(json_get(kv, "most")->text, "18446744073709551615");
    double v;
    assert_true(json_f64(json_get(kv, "float"), &v) && v == (double)1e-6f);
    assert_string_equal(json_get(kv, "strings")->items[1].text, "\xef\xbf\xbd\n\xef\xbf\xbd");
    assert_string_equal(json_get(kv, "general.name")->text, "An \x1b[31mexample");
    json_free(doc);
    json_out_free(&out);
    gguf_close(g);
}

static void test_file_types_have_labels(void **state)
{
    assert_string_equal(gguf_file_type_label(0), "F32");
    assert_string_equal(gguf_file_type_label(11), "Q3_K_S");
    assert_string_equal(gguf_file_type_label(41), "Q2_0");
    static const uint64_t without[] = {4, 5, 6, 33, 34, 35, 42, UINT64_MAX};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        assert_null(gguf_file_type_label(without[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary_for_people),
        cmocka_unit_test(test_keys_and_tensors_for_people),
        cmocka_unit_test(test_json_has_the_fixed_keys),
        cmocka_unit_test(test_json_of_tensors),
        cmocka_unit_test(test_json_of_keys_is_whole_and_exact),
        cmocka_unit_test(test_file_types_have_labels),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
