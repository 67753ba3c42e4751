/* SPDX-License-Identifier: Apache-2.0 */
/* What was written with the writer is read back: every type, one file or a split set; and reading a
 * key as what it is not is an error that names file, key and value. */
#include <float.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "cmocka_all.h"
#include "folder.h"
#include "gguf/gguf.h"
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

/* Bytes that depend on tensor and place: byte i of tensor `seed` is seed + 7 i. */
static bool make_data(void *ctx, uint64_t offset, void *to, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)to)[i] = (uint8_t)(*(int *)ctx + 7 * (offset + i));
    return true;
}

static const float row[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static int seeds[] = {0, 1, 2, 3, 4};

static void add_keys(struct gguf_writer *w)
{
    static const int32_t numbers[] = {-1, 0, 1, INT32_MAX};
    static const uint8_t flags[] = {0, 1, 1};
    static const float floats[] = {0.5f, -2};
    static char words[] = "onetwothree";
    static uint64_t starts[] = {0, 3, 3, 6, 11};
    const struct gguf_strings strings = {4, words, starts};
    gguf_writer_text(w, "general.architecture", "test", 4);
    gguf_writer_number(w, "u8", GGUF_U8, 255);
    gguf_writer_number(w, "i8", GGUF_I8, 0x80);
    gguf_writer_u16(w, "u16", 65535);
    gguf_writer_number(w, "i16", GGUF_I16, 0x8000);
    gguf_writer_u32(w, "u32", UINT32_MAX);
    gguf_writer_i32(w, "i32", INT32_MIN);
    gguf_writer_u64(w, "u64", UINT64_MAX);
    gguf_writer_number(w, "i64", GGUF_I64, (uint64_t)INT64_MIN);
    gguf_writer_f32(w, "f32", 0.1f);
    gguf_writer_number(w, "f64", GGUF_F64, 0x3fb999999999999a); /* 0.1 */
    gguf_writer_bool(w, "yes", true);
    gguf_writer_bool(w, "no", false);
    gguf_writer_text(w, "text", "a\0b\xff", 4);
    gguf_writer_text(w, "empty", "", 0);
    gguf_writer_array(w, "numbers", GGUF_I32, 4, numbers);
    gguf_writer_array(w, "flags", GGUF_BOOL, 3, flags);
    gguf_writer_array(w, "floats", GGUF_F32, 2, floats);
    gguf_writer_array(w, "none", GGUF_U32, 0, NULL);
    gguf_writer_strings(w, "strings", &strings);
}

static void add_tensors(struct gguf_writer *w)
{
    static const uint64_t ne[5][4] = {{8}, {32, 3}, {256, 2, 3}, {1, 1, 1, 1}, {1 << 20, 2}};
    gguf_writer_tensor(w, "a.f32", 1, ne[0], TYPE_F32, NULL, (void *)(uintptr_t)row);
    gguf_writer_tensor(w, "b.q8_0", 2, ne[1], TYPE_Q8_0, make_data, &seeds[1]);
    gguf_writer_tensor(w, "c.q4_k", 3, ne[2], TYPE_Q4_K, make_data, &seeds[2]);
    gguf_writer_tensor(w, "d.i8", 4, ne[3], TYPE_I8, make_data, &seeds[3]);
    gguf_writer_tensor(w, "e.large", 2, ne[4], TYPE_F16, make_data, &seeds[4]);
}

static struct gguf_writer *whole_writer(uint32_t alignment)
{
    struct err e = {0};
    struct gguf_writer *w = gguf_writer_new(&e);
    assert_non_null(w);
    add_keys(w);
    if (alignment != 32)
        gguf_writer_alignment(w, alignment);
    add_tensors(w);
    return w;
}

static struct gguf_file *written(void)
{
    struct err e = {0};
    struct gguf_writer *w = whole_writer(32);
    assert_true(gguf_writer_write(w, test_folder_name(&folder, "values.gguf"), &e));
    uint64_t expected = gguf_writer_bytes(w);
    gguf_writer_free(w);
    struct gguf_file *g = gguf_open(folder.path, &e);
    if (!g)
        fail_msg("%s", e.text);
    assert_int_equal(gguf_total_bytes(g), expected);
    return g;
}

static void check_tensor_data(const struct gguf_file *g)
{
    static const uint64_t bytes[] = {32, 3 * 34, 6 * 144, 1, 4 << 20};
    struct err e = {0};
    assert_int_equal(gguf_tensor_count(g), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint8_t *data = malloc(t->bytes);
        assert_int_equal(t->bytes, bytes[i]);
        assert_int_equal(t->offset % gguf_alignment(g), 0);
        assert_true(file_read_at(gguf_part_fd(g, t->part), gguf_part_path(g, t->part), t->offset,
                                 data, t->bytes, &e));
        if (i == 0)
            assert_memory_equal(data, row, sizeof row);
        for (uint64_t j = 0; i && j < t->bytes; j++)
            if (data[j] != (uint8_t)(i + 7 * j))
                fail_msg("tensor %zu, byte %zu", i, (size_t)j);
        free(data);
    }
    const struct gguf_tensor *c = gguf_tensor_find(g, "c.q4_k");
    assert_int_equal(c->n_dims, 3);
    assert_int_equal(c->ne[0] * 1000000 + c->ne[1] * 10000 + c->ne[2] * 100 + c->ne[3], 256020301);
}

static void test_tensors_are_read_back(void **state)
{
    struct gguf_file *g = written();
    check_tensor_data(g);
    assert_null(gguf_tensor_find(g, "a.f3"));
    gguf_close(g);
}

static void test_other_alignments(void **state)
{
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 8) {
        struct err e = {0};
        struct gguf_writer *w = whole_writer(alignment);
        assert_true(gguf_writer_write(w, test_folder_name(&folder, "aligned.gguf"), &e));
        struct gguf_file *g = gguf_open(folder.path, &e);
        assert_non_null(g);
        assert_int_equal(gguf_alignment(g), alignment);
        assert_int_equal(gguf_total_bytes(g), gguf_writer_bytes(w));
        check_tensor_data(g);
        gguf_close(g);
        gguf_writer_free(w);
    }
}

static void test_integers_of_every_width(void **state)
{
    static const struct {
        const char *key;
        int64_t value;
    } cases[] = {{"u8", 255},         {"i8", -128},       {"u16", 65535},    {"i16", -32768},
                 {"u32", UINT32_MAX}, {"i32", INT32_MIN}, {"i64", INT64_MIN}};
    struct gguf_file *g = written();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        int64_t v = 0;
        uint64_t u = 77;
        double d = 0;
        assert_true(gguf_get_i64(g, cases[i].key, true, &v, &e));
        assert_true(v == cases[i].value);
        assert_true(gguf_get_f64(g, cases[i].key, true, &d, &e));
        assert_true(d == (double)cases[i].value);
        assert_int_equal(gguf_get_u64(g, cases[i].key, true, &u, &e), cases[i].value >= 0);
        assert_true(u == (cases[i].value >= 0 ? (uint64_t)cases[i].value : 77));
    }
    gguf_close(g);
}

/* One failing call: its message is `PATH: key ABOUT`. */
#define assert_refused(call, about)                                                                \
    do {                                                                                           \
        struct err e = {0};                                                                        \
        char expected[512];                                                                        \
        assert_false(call);                                                                        \
        snprintf(expected, sizeof expected, "%s: key %s", gguf_part_path(g, 0), about);            \
        assert_string_equal(e.text, expected);                                                     \
    } while (0)

static void test_wrong_types_and_ranges_are_named(void **state)
{
    struct gguf_file *g = written();
    int64_t i[4];
    uint64_t u[4], *u_array;
    int64_t *i_array;
    float f[4], *f_array;
    double d;
    bool b;
    char *text;
    size_t n;
    struct gguf_strings s = {0};
    assert_refused(gguf_get_i64(g, "u64", true, i, &e),
                   "\"u64\": 18446744073709551615 is not a signed 64-bit integer");
    assert_refused(gguf_get_u64(g, "i8", true, u, &e), "\"i8\": -128 is not 0 or more");
    assert_refused(gguf_get_u64(g, "f32", true, u, &e), "\"f32\": type f32, expected an integer");
    assert_refused(gguf_get_u64(g, "yes", true, u, &e), "\"yes\": type bool, expected an integer");
    assert_refused(gguf_get_f64(g, "text", true, &d, &e),
                   "\"text\": type string, expected a number");
    assert_refused(gguf_get_f64(g, "floats", true, &d, &e),
                   "\"floats\": array of f32, expected a number");
    assert_refused(gguf_get_bool(g, "u8", true, &b, &e), "\"u8\": 255 is not 0 or 1");
    assert_refused(gguf_get_bool(g, "f32", true, &b, &e), "\"f32\": type f32, expected a bool");
    assert_refused(gguf_get_text(g, "u8", true, &text, &n, &e),
                   "\"u8\": type u8, expected a string");
    assert_refused(gguf_get_text(g, "x\x1b", true, &text, &n, &e), "\"x\\x1b\": missing");
    assert_refused(gguf_fill_i64(g, "numbers", true, i, 3, &e),
                   "\"numbers\": 4 values, expected 3");
    assert_refused(gguf_fill_u64(g, "numbers", true, u, 4, &e), "\"numbers\": -1 is not 0 or more");
    assert_refused(gguf_fill_i64(g, "floats", true, i, 2, &e),
                   "\"floats\": array of f32, expected integers");
    assert_refused(gguf_fill_f32(g, "strings", true, f, 4, &e),
                   "\"strings\": array of string, expected numbers");
    assert_refused(gguf_get_i64_array(g, "u8", true, 9, &i_array, &n, &e),
                   "\"u8\": type u8, expected an array of integers");
    assert_refused(gguf_get_u64_array(g, "numbers", true, 9, &u_array, &n, &e),
                   "\"numbers\": -1 is not 0 or more");
    assert_refused(gguf_get_f32_array(g, "numbers", true, 3, &f_array, &n, &e),
                   "\"numbers\": 4 elements, at most 3");
    assert_refused(gguf_get_strings(g, "numbers", true, 9, 99, &s, &e),
                   "\"numbers\": array of i32, expected an array of strings");
    assert_refused(gguf_get_strings(g, "strings", true, 3, 99, &s, &e),
                   "\"strings\": 4 elements, at most 3");
    assert_refused(gguf_get_strings(g, "strings", true, 4, 10, &s, &e),
                   "\"strings\": strings of 11 bytes, at most 10");
    assert_refused(gguf_get_u64(g, "nothing", true, u, &e), "\"nothing\": missing");
    gguf_close(g);
}

static void test_defaults_stay_when_a_key_is_missing(void **state)
{
    struct gguf_file *g = written();
    struct err e = {0};
    uint64_t u = 42, many[2] = {1, 2};
    double d = 1.5;
    bool b = true;
    char *text = NULL;
    struct gguf_strings s = {0};
    assert_true(gguf_get_u64(g, "nothing", false, &u, &e) && u == 42);
    assert_true(gguf_get_f64(g, "nothing", false, &d, &e) && d == 1.5);
    assert_true(gguf_get_bool(g, "nothing", false, &b, &e) && b);
    assert_true(gguf_get_text(g, "nothing", false, &text, NULL, &e) && !text);
    assert_true(gguf_fill_u64(g, "nothing", false, many, 2, &e) && many[1] == 2);
    assert_true(gguf_get_strings(g, "nothing", false, 1, 1, &s, &e) && !s.count && !s.bytes);
    gguf_close(g);
}

static void test_floats_bools_and_texts(void **state)
{
    struct gguf_file *g = written();
    struct err e = {0};
    double d;
    bool b;
    char *text;
    size_t n;
    assert_true(gguf_get_f64(g, "f32", true, &d, &e) && d == (double)0.1f);
    assert_true(gguf_get_f64(g, "f64", true, &d, &e) && d == 0.1);
    assert_true(gguf_get_f64(g, "u64", true, &d, &e) && d == 18446744073709551616.0);
    assert_true(gguf_get_bool(g, "yes", true, &b, &e) && b);
    assert_true(gguf_get_bool(g, "no", true, &b, &e) && !b);
    assert_true(gguf_get_text(g, "text", true, &text, &n, &e));
    assert_int_equal(n, 4);
    assert_memory_equal(text, "a\0b\xff", 5);
    mem_free(text);
    assert_true(gguf_get_text(g, "empty", true, &text, &n, &e));
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    mem_free(text);
    gguf_close(g);
}

static void test_arrays_and_scalars_that_stand_for_all(void **state)
{
    struct gguf_file *g = written();
    struct err e = {0};
    int64_t i[4], *i_array;
    uint64_t u[3], *u_array;
    float f[4], *f_array;
    size_t n;
    assert_true(gguf_fill_i64(g, "numbers", true, i, 4, &e));
    assert_true(i[0] == -1 && i[1] == 0 && i[2] == 1 && i[3] == INT32_MAX);
    assert_true(gguf_fill_i64(g, "i16", true, i, 4, &e) && i[0] == -32768 && i[3] == -32768);
    assert_true(gguf_fill_u64(g, "flags", true, u, 3, &e) && !u[0] && u[1] == 1 && u[2] == 1);
    assert_true(gguf_fill_f32(g, "numbers", true, f, 4, &e) && f[0] == -1 && f[3] == 0x1p31f);
    assert_true(gguf_fill_f32(g, "f64", true, f, 4, &e) && f[3] == 0.1f);
    assert_true(gguf_get_i64_array(g, "numbers", true, 4, &i_array, &n, &e));
    assert_int_equal(n, 4);
    assert_int_equal(i_array[0], -1);
    mem_free(i_array);
    assert_true(gguf_get_u64_array(g, "none", true, 0, &u_array, &n, &e));
    assert_int_equal(n, 0);
    mem_free(u_array);
    assert_true(gguf_get_f32_array(g, "floats", true, 2, &f_array, &n, &e));
    assert_true(n == 2 && f_array[0] == 0.5f && f_array[1] == -2);
    mem_free(f_array);
    gguf_close(g);
}

static void test_string_arrays_come_as_one_block(void **state)
{
    static const uint64_t starts[] = {0, 3, 3, 6, 11};
    struct gguf_file *g = written();
    struct err e = {0};
    struct gguf_strings s = {0};
    assert_true(gguf_get_strings(g, "strings", true, 4, 11, &s, &e));
    assert_int_equal(s.count, 4);
    assert_memory_equal(s.starts, starts, sizeof starts);
    assert_memory_equal(s.bytes, "onetwothree", 11);
    gguf_strings_free(&s);
    gguf_close(g);
}

/* More text than the reader's buffer, with strings that lie across its ends. */
static void test_long_string_array(void **state)
{
    enum { N = 3000 };
    static uint64_t starts[N + 1];
    char *bytes = malloc((size_t)N * N);
    for (size_t i = 0; i < N; i++) {
        starts[i + 1] = starts[i] + i % 300;
        for (uint64_t j = starts[i]; j < starts[i + 1]; j++)
            bytes[j] = (char)(i + j);
    }
    const struct gguf_strings in = {N, bytes, starts};
    struct gguf_strings out = {0};
    struct err e = {0};
    struct gguf_writer *w = gguf_writer_new(&e);
    gguf_writer_strings(w, "tokens", &in);
    assert_true(gguf_writer_write(w, test_folder_name(&folder, "tokens.gguf"), &e));
    gguf_writer_free(w);
    struct gguf_file *g = gguf_open(folder.path, &e);
    assert_true(gguf_get_strings(g, "tokens", true, N, 1 << 30, &out, &e));
    assert_memory_equal(out.starts, starts, sizeof starts);
    assert_memory_equal(out.bytes, bytes, starts[N]);
    gguf_strings_free(&out);
    gguf_close(g);
    free(bytes);
}

static void test_split_sets_hold_the_same(void **state)
{
    for (int first_empty = 0; first_empty < 2; first_empty++)
        for (uint32_t parts = 2; parts <= 7; parts++) {
            struct err e = {0};
            char stem[300];
            snprintf(stem, sizeof stem, "%s/set", folder.folder);
            struct gguf_writer *w = whole_writer(parts == 3 ? 128 : 32);
            assert_true(gguf_writer_write_split(w, stem, parts, first_empty, &e));
            gguf_writer_free(w);
            snprintf(folder.path, sizeof folder.path, "%s-00001-of-%05u.gguf", stem, parts);
            struct gguf_file *g = gguf_open(folder.path, &e);
            if (!g)
                fail_msg("%s", e.text);
            assert_int_equal(gguf_parts(g), parts);
            check_tensor_data(g);
            if (first_empty)
                assert_int_not_equal(gguf_tensor_at(g, 0)->part, 0);
            assert_non_null(gguf_key_find(g, "strings"));
            gguf_close(g);
        }
}

static void test_keys_of_another_file_are_copied(void **state)
{
    struct err e = {0};
    struct gguf_file *g = written();
    struct gguf_writer *w = gguf_writer_new(&e);
    for (size_t i = 0; i < gguf_key_count(g); i++)
        gguf_writer_copy_key(w, g, gguf_key_at(g, i));
    add_tensors(w);
    assert_true(gguf_writer_write(w, test_folder_name(&folder, "copy.gguf"), &e));
    gguf_writer_free(w);
    struct gguf_file *copy = gguf_open(folder.path, &e);
    uint8_t a[16], b[16];
    assert_true(gguf_fingerprint(g, a, &e) && gguf_fingerprint(copy, b, &e));
    assert_memory_equal(a, b, 16);
    gguf_close(copy);
    gguf_close(g);
}

static void test_writer_keeps_its_first_failure(void **state)
{
    struct err e = {0};
    const uint64_t ne[] = {31};
    struct gguf_writer *w = gguf_writer_new(&e);
    gguf_writer_u32(w, "a", 1);
    gguf_writer_u32(w, "a", 2);
    gguf_writer_tensor(w, "w", 1, ne, TYPE_Q8_0, make_data, &seeds[0]);
    assert_int_equal(gguf_writer_bytes(w), 0);
    assert_false(gguf_writer_write(w, test_folder_name(&folder, "never.gguf"), &e));
    assert_non_null(strstr(e.text, "never.gguf: key \"a\": given twice"));
    assert_int_equal(access(folder.path, F_OK), -1);
    gguf_writer_free(w);
}

/* formats.md section 1, computed here in one piece. */
static void test_fingerprint_is_xxh3_over_headers_and_sizes(void **state)
{
    struct err e = {0};
    struct gguf_file *g = gguf_open(DATA "/cases/gguf-odd/split-3/m-00001-of-00003.gguf", &e);
    assert_non_null(g);
    uint8_t all[65536], got[16];
    size_t used = 0;
    for (int i = 0; i < gguf_parts(g); i++) {
        size_t n = (size_t)gguf_part_header_bytes(g, i);
        assert_true(file_read_at(gguf_part_fd(g, i), gguf_part_path(g, i), 0, all + used, n, &e));
        used += n;
        bytes_put_u64(all + used, gguf_part_bytes(g, i));
        used += 8;
    }
    XXH128_canonical_t expected;
    XXH128_canonicalFromHash(&expected, XXH3_128bits(all, used));
    assert_true(gguf_fingerprint(g, got, &e));
    assert_memory_equal(got, expected.digest, 16);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_are_read_back),
        cmocka_unit_test(test_other_alignments),
        cmocka_unit_test(test_integers_of_every_width),
        cmocka_unit_test(test_wrong_types_and_ranges_are_named),
        cmocka_unit_test(test_defaults_stay_when_a_key_is_missing),
        cmocka_unit_test(test_floats_bools_and_texts),
        cmocka_unit_test(test_arrays_and_scalars_that_stand_for_all),
        cmocka_unit_test(test_string_arrays_come_as_one_block),
        cmocka_unit_test(test_long_string_array),
        cmocka_unit_test(test_split_sets_hold_the_same),
        cmocka_unit_test(test_keys_of_another_file_are_copied),
        cmocka_unit_test(test_writer_keeps_its_first_failure),
        cmocka_unit_test(test_fingerprint_is_xxh3_over_headers_and_sizes),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
