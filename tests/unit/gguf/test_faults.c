/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing leaks and nothing is half done: each allocation fails in turn, files are cut at every
 * length and have every bit flipped, and files shrink while they are open. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "cmocka_all.h"
#include "folder.h"
#include "gguf/gguf.h"
#include "gguf/listing.h"
#include "gguf/writer.h"

#define ODD DATA "/cases/gguf-odd/"

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

/* Opens, reads everything, lists everything; what fails leaves its error. */
static bool use_file(const char *path, struct err *e)
{
    struct json_out text = {0}, json = {0};
    struct gguf_strings tokens = {0};
    char *architecture = NULL;
    float *scores = NULL;
    size_t n = 0;
    uint8_t fingerprint[16];
    const struct gguf_listing all = {true, true};
    struct gguf_file *g = gguf_open(path, e);
    bool ok = g && gguf_get_text(g, "general.architecture", false, &architecture, &n, e) &&
              gguf_get_strings(g, "tokenizer.ggml.tokens", false, SIZE_MAX, SIZE_MAX, &tokens, e) &&
              gguf_get_f32_array(g, "tokenizer.ggml.scores", false, SIZE_MAX, &scores, &n, e) &&
              gguf_list_text(g, all, &text, e) && gguf_list_json(g, all, &json, e) &&
              gguf_fingerprint(g, fingerprint, e);
    mem_free(architecture);
    mem_free(scores);
    gguf_strings_free(&tokens);
    json_out_free(&text);
    json_out_free(&json);
    gguf_close(g);
    return ok;
}

static void fail_each_allocation(const char *path)
{
    for (uint64_t n = 1;; n++) {
        struct err e = {0};
        mem_fail_at(n);
        bool ok = use_file(path, &e);
        mem_fail_at(0);
        assert_int_equal(mem_in_use(), 0);
        if (ok) {
            assert_true(n > 5);
            return;
        }
        assert_int_equal(e.code, ERR_MEMORY);
    }
}

static void test_each_allocation_of_reading_fails_in_turn(void **state)
{
    fail_each_allocation(ODD "tokenizer.gguf");
    fail_each_allocation(ODD "nested-arrays.gguf");
    fail_each_allocation(ODD "many-small.gguf");
    fail_each_allocation(ODD "split-12/m-00001-of-00012.gguf");
}

static bool write_file(const char *stem, struct err *e)
{
    static const float data[64];
    const uint64_t ne[] = {8, 8};
    struct gguf_writer *w = gguf_writer_new(e);
    if (!w)
        return false;
    gguf_writer_text(w, "general.architecture", "test", 4);
    for (char key[] = "a"; *key <= 'z'; (*key)++)
        gguf_writer_u32(w, key, 7);
    for (char name[] = "a"; *name <= 'z'; (*name)++)
        gguf_writer_tensor(w, name, 2, ne, TYPE_F32, NULL, (void *)(uintptr_t)data);
    bool ok = gguf_writer_write_split(w, stem, 3, false, e);
    gguf_writer_free(w);
    return ok;
}

static void test_each_allocation_of_writing_fails_in_turn(void **state)
{
    char stem[300];
    snprintf(stem, sizeof stem, "%s/w", folder.folder);
    for (uint64_t n = 1;; n++) {
        struct err e = {0};
        mem_fail_at(n);
        bool ok = write_file(stem, &e);
        mem_fail_at(0);
        assert_int_equal(mem_in_use(), 0);
        if (ok) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(e.code, ERR_MEMORY);
    }
    struct err e = {0};
    assert_true(use_file(test_folder_name(&folder, "w-00001-of-00003.gguf"), &e));
}

static char *read_odd(const char *name, size_t *bytes)
{
    struct err e = {0};
    char path[512];
    snprintf(path, sizeof path, ODD "%s", name);
    char *all = file_read_all(path, 1 << 20, bytes, &e);
    assert_non_null(all);
    char *copy = malloc(*bytes + 1);
    memcpy(copy, all, *bytes + 1);
    mem_free(all);
    return copy;
}

/* An error must be one line that starts with the path. */
static void check_message(const struct err *e)
{
    size_t n = strlen(folder.path);
    assert_memory_equal(e->text, folder.path, n);
    assert_memory_equal(e->text + n, ": ", 2);
    assert_null(strchr(e->text, '\n'));
}

static void test_files_cut_at_every_length_are_refused(void **state)
{
    static const char *const names[] = {"no-padding-at-end.gguf", "tokenizer.gguf",
                                        "nested-arrays.gguf", "no-tensors.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes;
        char *all = read_odd(names[i], &bytes);
        test_folder_write(&folder, "cut.gguf", all, bytes);
        struct err e = {0};
        struct gguf_file *g = gguf_open(folder.path, &e);
        assert_non_null(g);
        /* What lies behind the last byte that is needed (padding) may be missing. */
        uint64_t needed = gguf_part_header_bytes(g, 0);
        for (size_t t = 0; t < gguf_tensor_count(g); t++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(g, t);
            if (tensor->offset + tensor->bytes > needed)
                needed = tensor->offset + tensor->bytes;
        }
        gguf_close(g);
        for (size_t length = bytes + 1; length-- > 0;) {
            assert_int_equal(truncate(folder.path, (off_t)length), 0);
            err_clear(&e);
            assert_int_equal(use_file(folder.path, &e), length >= needed);
            if (length < needed)
                check_message(&e);
            assert_int_equal(mem_in_use(), 0);
        }
        free(all);
    }
}

static void test_every_flipped_bit_is_survived(void **state)
{
    static const char *const names[] = {"tokenizer.gguf", "nested-arrays.gguf",
                                        "all-array-types.gguf", "data-unsorted.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes, refused = 0;
        char *all = read_odd(names[i], &bytes);
        test_folder_name(&folder, "flip.gguf");
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            struct err e = {0};
            all[bit / 8] ^= (char)(1 << bit % 8);
            test_folder_write(&folder, "flip.gguf", all, bytes);
            if (!use_file(folder.path, &e)) {
                check_message(&e);
                refused++;
            }
            assert_int_equal(mem_in_use(), 0);
            all[bit / 8] ^= (char)(1 << bit % 8);
        }
        assert_true(refused > 100);
        free(all);
    }
}

static void test_every_flipped_bit_of_a_split_set_is_survived(void **state)
{
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf"};
    char *parts[3], first[600];
    size_t bytes[3], refused = 0;
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "split-3/%s", names[i]);
        parts[i] = read_odd(name, &bytes[i]);
        test_folder_write(&folder, names[i], parts[i], bytes[i]);
    }
    snprintf(first, sizeof first, "%s", test_folder_name(&folder, names[0]));
    for (int i = 0; i < 3; i++) {
        for (size_t bit = 0; bit < 8 * bytes[i]; bit++) {
            struct err e = {0};
            parts[i][bit / 8] ^= (char)(1 << bit % 8);
            test_folder_write(&folder, names[i], parts[i], bytes[i]);
            parts[i][bit / 8] ^= (char)(1 << bit % 8);
            if (!use_file(first, &e)) {
                assert_memory_equal(e.text, folder.folder, strlen(folder.folder));
                assert_null(strchr(e.text, '\n'));
                refused++;
            }
            assert_int_equal(mem_in_use(), 0);
        }
        test_folder_write(&folder, names[i], parts[i], bytes[i]);
    }
    assert_true(refused > 100);
    for (int i = 0; i < 3; i++)
        free(parts[i]);
}

static void test_file_that_shrinks_while_open_is_an_error(void **state)
{
    size_t bytes;
    char *all = read_odd("tokenizer.gguf", &bytes);
    struct err e = {0};
    struct gguf_file *g = gguf_open(test_folder_write(&folder, "shrink.gguf", all, bytes), &e);
    assert_non_null(g);
    assert_int_equal(truncate(folder.path, 30), 0);
    char *text = NULL;
    struct gguf_strings tokens = {0};
    struct json_out out = {0};
    uint8_t fingerprint[16];
    assert_false(gguf_get_text(g, "general.architecture", true, &text, NULL, &e));
    check_message(&e);
    err_clear(&e);
    assert_false(gguf_get_strings(g, "tokenizer.ggml.tokens", true, 1000, 1000, &tokens, &e));
    check_message(&e);
    err_clear(&e);
    assert_false(gguf_list_json(g, (struct gguf_listing){true, true}, &out, &e));
    check_message(&e);
    err_clear(&e);
    assert_false(gguf_fingerprint(g, fingerprint, &e));
    check_message(&e);
    json_out_free(&out);
    gguf_close(g);
    free(all);
    assert_int_equal(mem_in_use(), 0);
}

/* Lengths inside a string array that grow after the file was opened must not write too far. */
static void test_file_that_changes_while_open_is_survived(void **state)
{
    size_t bytes;
    char *all = read_odd("tokenizer.gguf", &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit += 3) {
        struct err e = {0};
        struct json_out out = {0};
        struct gguf_strings tokens = {0};
        struct gguf_file *g = gguf_open(test_folder_write(&folder, "change.gguf", all, bytes), &e);
        assert_non_null(g);
        FILE *f = fopen(folder.path, "r+b");
        assert_non_null(f);
        fseek(f, (long)(bit / 8), SEEK_SET);
        fputc(all[bit / 8] ^ 1 << bit % 8, f);
        fclose(f);
        if (!gguf_get_strings(g, "tokenizer.ggml.tokens", true, 1000, 1000, &tokens, &e))
            check_message(&e);
        err_clear(&e);
        if (!gguf_list_json(g, (struct gguf_listing){true, true}, &out, &e))
            check_message(&e);
        gguf_strings_free(&tokens);
        json_out_free(&out);
        gguf_close(g);
        assert_int_equal(mem_in_use(), 0);
    }
    free(all);
}

/* ---- the tests' own files ------------------------------------------------------------------- */

static void test_what_a_killed_test_leaves_is_removed_by_the_next(void **state)
{
    struct test_folder *left =
        mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(left != MAP_FAILED);
    pid_t child = fork();
    if (!child) {
        test_folder_begin(left);
        _exit(access(test_folder_write(left, "state", "x", 1), F_OK) != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct test_folder next;
    test_folder_begin(&next);
    assert_int_not_equal(access(left->folder, F_OK), 0);
    assert_int_equal(access(folder.folder, F_OK), 0); /* that of a living one */
    test_folder_end(&next);
    munmap(left, sizeof *left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_of_reading_fails_in_turn),
        cmocka_unit_test(test_each_allocation_of_writing_fails_in_turn),
        cmocka_unit_test(test_files_cut_at_every_length_are_refused),
        cmocka_unit_test(test_every_flipped_bit_is_survived),
        cmocka_unit_test(test_every_flipped_bit_of_a_split_set_is_survived),
        cmocka_unit_test(test_file_that_shrinks_while_open_is_an_error),
        cmocka_unit_test(test_file_that_changes_while_open_is_survived),
        cmocka_unit_test(test_what_a_killed_test_leaves_is_removed_by_the_next),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
