/* SPDX-License-Identifier: Apache-2.0 */
/* A popularity profile is read as it was written; one that is cut, damaged, newer or another
 * model's is refused in words and changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "stream/profile.h"

#define PATH "./strata-profile-test"
#define EXAMPLE TEST_DATA "/own/profile/small.strata-pop"

static const int experts[] = {5, 0, 8};
static uint32_t counts[13], again[13];

static struct profile describe(uint32_t *to)
{
    return (struct profile){
        .fingerprint = "fingerprint-1234", .layers = 3, .experts = experts, .counts = to};
}

static char *write_one(size_t *bytes)
{
    struct err e = {0};
    struct profile p = describe(counts);
    p.tokens = 77;
    for (uint32_t i = 0; i < 13; i++)
        counts[i] = i * 1000003;
    assert_true(profile_write(PATH, &p, &e));
    return file_read_all(PATH, 1 << 20, bytes, &e);
}

static void put_file(const char *data, size_t bytes)
{
    FILE *f = fopen(PATH, "wb");
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static void expect_refusal(const char *words)
{
    struct err e = {0};
    struct profile p = describe(again);
    p.tokens = 5;
    memset(again, 0xab, sizeof again);
    assert_false(profile_read(PATH, &p, &e));
    assert_non_null(strstr(e.text, PATH));
    if (words && !strstr(e.text, words))
        fail_msg("\"%s\" does not say \"%s\"", e.text, words);
    assert_int_equal(p.tokens, 5);
    for (size_t i = 0; i < sizeof again; i++)
        assert_int_equal(((uint8_t *)again)[i], 0xab);
}

static void what_was_written_is_read(void **state)
{
    struct err e = {0};
    size_t bytes;
    mem_free(write_one(&bytes));
    struct profile p = describe(again);
    assert_true(profile_read(PATH, &p, &e));
    assert_int_equal(p.tokens, 77);
    assert_memory_equal(counts, again, sizeof counts);
    unlink(PATH);
    expect_refusal("no such file");
}

static void the_example_is_still_written_and_read(void **state)
{
    struct err e = {0};
    size_t bytes, bytes_now;
    struct profile p = describe(again);
    assert_true(profile_read(EXAMPLE, &p, &e));
    assert_int_equal(p.tokens, 77);
    char *now = write_one(&bytes_now), *then = file_read_all(EXAMPLE, 1 << 20, &bytes, &e);
    assert_memory_equal(counts, again, sizeof counts);
    assert_int_equal(bytes, bytes_now);
    assert_memory_equal(now, then, bytes);
    mem_free(now);
    mem_free(then);
    unlink(PATH);
}

static void a_cut_or_flipped_file_is_refused(void **state)
{
    size_t bytes;
    char *data = write_one(&bytes);
    for (size_t n = 0; n < bytes; n++) {
        put_file(data, n);
        expect_refusal(NULL);
    }
    for (size_t i = 0; i < bytes; i++) {
        data[i] ^= 1 << i % 8;
        put_file(data, bytes);
        expect_refusal(NULL);
        data[i] ^= 1 << i % 8;
    }
    put_file(data, bytes);
    data = mem_grow(data, bytes + 8, "test", NULL);
    memset(data + bytes, 0, 8);
    put_file(data, bytes + 8);
    expect_refusal("bytes");
    mem_free(data);
    unlink(PATH);
}

static void other_kinds_versions_and_models_are_named(void **state)
{
    struct err e = {0};
    size_t bytes;
    char *data = write_one(&bytes);
    data[7] = '2';
    put_file(data, bytes);
    expect_refusal("version 02");
    memcpy(data, "GGUF", 4);
    put_file(data, bytes);
    expect_refusal("not a popularity profile");
    mem_free(data);
    struct profile p = describe(counts);
    p.fingerprint[3] ^= 1;
    assert_true(profile_write(PATH, &p, &e));
    expect_refusal("another model");
    p = describe(counts);
    p.layers = 1;
    assert_true(profile_write(PATH, &p, &e));
    expect_refusal("layers");
    assert_false(profile_write("no-such-folder/x", &p, &e));
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(the_example_is_still_written_and_read),
        cmocka_unit_test(a_cut_or_flipped_file_is_refused),
        cmocka_unit_test(other_kinds_versions_and_models_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
