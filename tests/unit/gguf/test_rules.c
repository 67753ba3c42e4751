/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the container where the handed cases have no file: limits from both sides, large and
 * deep input, and that the first broken rule is the one that is named. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "bytes_of_file.h"
#include "cmocka_all.h"
#include "folder.h"
#include "gguf/gguf.h"

static struct test_folder folder;

static int begin(void **state)
{
    test_folder_begin(&folder);
    return 0;
}

static int end(void **state)
{
    test_folder_end(&folder);
    return 0;
}

static struct gguf_file *open_bytes(struct file_bytes *f, struct err *e)
{
    *e = (struct err){0};
    return gguf_open(test_folder_write(&folder, "x.gguf", f->bytes, f->used), e);
}

/* The file is refused and the message is exactly `PATH: text`. */
static void refuse(struct file_bytes *f, const char *text)
{
    struct err e;
    char expected[2048];
    assert_null(open_bytes(f, &e));
    snprintf(expected, sizeof expected, "%s: %s", folder.path, text);
    assert_string_equal(e.text, expected);
    assert_int_equal(mem_in_use(), 0);
    free(f->bytes);
    *f = (struct file_bytes){0};
}

static void accept(struct file_bytes *f)
{
    struct err e;
    struct gguf_file *g = open_bytes(f, &e);
    if (!g)
        fail_msg("%s", e.text);
    gguf_close(g);
    free(f->bytes);
    *f = (struct file_bytes){0};
}

static void test_key_names_end_at_65535_bytes(void **state)
{
    static char name[65536];
    memset(name, 'k', sizeof name);
    for (size_t n = 65535; n <= 65536; n++) {
        struct file_bytes f = {0};
        put_header(&f, 0, 1);
        put_string(&f, name, n);
        put_u32(&f, 0);
        put_bytes(&f, "\7", 1);
        if (n == 65535)
            accept(&f);
        else
            refuse(&f, "key 0: length 65536 is over 65535");
    }
}

static void test_names_hold_no_delete_code(void **state)
{
    struct file_bytes f = {0};
    put_header(&f, 0, 1);
    put_u32_key(&f, "a\x7f", 1);
    refuse(&f, "key \"a\\x7f\": byte 0x7f at 1 is not allowed");
    put_header(&f, 1, 0);
    put_tensor(&f, "w\x7f", 2, 8, 0);
    put_zeros(&f, 64);
    refuse(&f, "tensor \"w\\x7f\": byte 0x7f at 1 is not allowed");
}

static void test_tensor_names_end_at_64_bytes(void **state)
{
    char name[66];
    memset(name, 'n', sizeof name);
    for (size_t n = 64; n <= 65; n++) {
        struct file_bytes f = {0};
        put_header(&f, 1, 0);
        put_tensor(&f, name, n, 8, 0);
        pad_to(&f, 32);
        put_zeros(&f, 32);
        if (n == 64)
            accept(&f);
        else
            refuse(&f, "tensor 0: name length 65 is over 64");
    }
}

static void test_alignment_is_8_to_1_mib(void **state)
{
    static const struct {
        uint32_t alignment;
        const char *message;
    } cases[] = {
        {8, NULL},
        {1 << 20, NULL},
        {1 << 21, "key \"general.alignment\": 2097152 is not a power of two in 8..1048576"},
        {24, "key \"general.alignment\": 24 is not a power of two in 8..1048576"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct file_bytes f = {0};
        put_header(&f, 1, 1);
        put_u32_key(&f, "general.alignment", cases[i].alignment);
        put_tensor(&f, "w", 1, 2, 0);
        pad_to(&f, cases[i].alignment);
        put_zeros(&f, 8);
        if (cases[i].message)
            refuse(&f, cases[i].message);
        else
            accept(&f);
    }
}

static void test_arrays_nest_four_deep(void **state)
{
    for (int depth = 1; depth <= 6; depth++) {
        struct file_bytes f = {0};
        put_header(&f, 0, 1);
        put_string(&f, "a", 1);
        put_u32(&f, GGUF_ARRAY);
        for (int i = 1; i < depth; i++) {
            put_u32(&f, GGUF_ARRAY);
            put_u64(&f, 1);
        }
        put_u32(&f, GGUF_U8);
        put_u64(&f, 1);
        put_bytes(&f, "\1", 1);
        if (depth <= 4)
            accept(&f);
        else
            refuse(&f, "key \"a\": arrays nested deeper than 4");
    }
}

static void test_arrays_nested_100000_deep_need_no_stack(void **state)
{
    struct file_bytes f = {0};
    put_header(&f, 0, 1);
    put_string(&f, "a", 1);
    put_u32(&f, GGUF_ARRAY);
    for (int i = 0; i < 100000; i++) {
        put_u32(&f, GGUF_ARRAY);
        put_u64(&f, 1);
    }
    refuse(&f, "key \"a\": arrays nested deeper than 4");
}

static void test_bool_is_found_at_the_end_of_a_long_array(void **state)
{
    struct file_bytes f = {0};
    put_header(&f, 0, 1);
    put_string(&f, "a", 1);
    put_u32(&f, GGUF_ARRAY);
    put_u32(&f, GGUF_BOOL);
    put_u64(&f, 300001);
    put_zeros(&f, 300000);
    put_bytes(&f, "\2", 1);
    refuse(&f, "key \"a\": bool is 2, not 0 or 1");
}

static void test_first_broken_rule_is_named(void **state)
{
    /* The second key is given twice, and has a type that does not exist: the name comes first. */
    struct file_bytes f = {0};
    put_header(&f, 0, 2);
    put_u32_key(&f, "k", 1);
    put_string(&f, "k", 1);
    put_u32(&f, 99);
    refuse(&f, "key \"k\": given twice");
    /* The first tensor lies outside the data, the second has no valid type: the table comes first.
     */
    put_header(&f, 2, 0);
    put_tensor(&f, "a", 1, 8, 1 << 20);
    put_string(&f, "b", 1);
    put_u32(&f, 1);
    put_u64(&f, 8);
    put_u32(&f, 99);
    put_u64(&f, 0);
    refuse(&f, "tensor \"b\": type 99 is unknown");
    /* A bad alignment comes before everything of the tensors. */
    put_header(&f, 1, 1);
    put_u32_key(&f, "general.alignment", 7);
    put_tensor(&f, "", 0, 8, 0);
    refuse(&f, "key \"general.alignment\": 7 is not a power of two in 8..1048576");
}

static void test_overlap_of_one_byte_and_touching_ends(void **state)
{
    for (uint64_t n = 8; n <= 9; n++) {
        struct file_bytes f = {0};
        put_header(&f, 2, 0);
        put_tensor(&f, "a", 1, n, 0);
        put_tensor(&f, "b", 1, 8, 32);
        pad_to(&f, 32);
        put_zeros(&f, 64);
        if (n == 8)
            accept(&f);
        else
            refuse(&f, "tensor \"b\": offset 32 overlaps tensor \"a\" (ends at 36)");
    }
}

static void test_number_of_a_part_needs_a_count(void **state)
{
    struct file_bytes f = {0};
    put_header(&f, 0, 1);
    put_u32_key(&f, "split.no", 1);
    refuse(&f, "key \"split.no\": 1 without split.count");
    put_header(&f, 0, 1);
    put_u32_key(&f, "split.no", 0);
    accept(&f);
}

/* With a linear search this would take minutes. */
static void test_100000_keys_and_tensors(void **state)
{
    enum { N = 100000 };
    struct file_bytes f = {0};
    struct err e;
    char name[32];
    put_header(&f, N, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "k.%d", i);
        put_u32_key(&f, name, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t.%d", i);
        put_tensor(&f, name, strlen(name), 8, 32 * (uint64_t)(N - 1 - i));
    }
    pad_to(&f, 32);
    put_zeros(&f, 32 * N);
    struct gguf_file *g = open_bytes(&f, &e);
    assert_non_null(g);
    for (int i = 0; i < N; i += 997) {
        uint64_t v;
        snprintf(name, sizeof name, "k.%d", i);
        assert_true(gguf_get_u64(g, name, true, &v, &e));
        assert_int_equal(v, i);
        snprintf(name, sizeof name, "t.%d", i);
        assert_ptr_equal(gguf_tensor_find(g, name), gguf_tensor_at(g, (size_t)i));
    }
    assert_null(gguf_tensor_find(g, "t"));
    assert_true(mem_in_use() < 8 * f.used);
    gguf_close(g);
    free(f.bytes);
}

/* A string of 5 GiB of which nothing is on disk: not read, not copied. */
static void test_string_of_gigabytes_is_not_read(void **state)
{
    const uint64_t text_bytes = (uint64_t)5 << 30;
    struct file_bytes f = {0};
    put_header(&f, 0, 2);
    put_string(&f, "huge", 4);
    put_u32(&f, GGUF_STRING);
    put_u64(&f, text_bytes);
    test_folder_write(&folder, "x.gguf", f.bytes, f.used);
    uint64_t behind = f.used + text_bytes;
    f.used = 0;
    put_u32_key(&f, "after", 7);
    int fd = open(folder.path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, f.bytes, f.used, (off_t)behind), f.used);
    close(fd);
    struct err e = {0};
    size_t peak = mem_peak();
    struct gguf_file *g = gguf_open(folder.path, &e);
    assert_non_null(g);
    uint64_t v = 0;
    assert_true(gguf_get_u64(g, "after", true, &v, &e));
    assert_int_equal(v, 7);
    char *text;
    assert_false(gguf_get_text(g, "huge", true, &text, NULL, &e));
    assert_non_null(strstr(e.text, "key \"huge\": string of 5368709120 bytes, at most 67108864"));
    assert_true(mem_peak() < peak + (1 << 20));
    gguf_close(g);
    free(f.bytes);
}

static void test_what_is_no_regular_file_is_refused(void **state)
{
    struct err e = {0};
    assert_int_equal(mkfifo(test_folder_name(&folder, "pipe.gguf"), 0600), 0);
    assert_null(gguf_open(folder.path, &e));
    assert_non_null(strstr(e.text, "pipe.gguf: not a regular file"));
    err_clear(&e);
    assert_null(gguf_open("/dev/zero", &e));
    assert_string_equal(e.text, "/dev/zero: not a regular file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_names_end_at_65535_bytes),
        cmocka_unit_test(test_names_hold_no_delete_code),
        cmocka_unit_test(test_tensor_names_end_at_64_bytes),
        cmocka_unit_test(test_alignment_is_8_to_1_mib),
        cmocka_unit_test(test_arrays_nest_four_deep),
        cmocka_unit_test(test_arrays_nested_100000_deep_need_no_stack),
        cmocka_unit_test(test_bool_is_found_at_the_end_of_a_long_array),
        cmocka_unit_test(test_first_broken_rule_is_named),
        cmocka_unit_test(test_overlap_of_one_byte_and_touching_ends),
        cmocka_unit_test(test_number_of_a_part_needs_a_count),
        cmocka_unit_test(test_string_of_gigabytes_is_not_read),
        cmocka_unit_test(test_100000_keys_and_tensors),
        cmocka_unit_test(test_what_is_no_regular_file_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
