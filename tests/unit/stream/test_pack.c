/* SPDX-License-Identifier: Apache-2.0 */
/* Sidecars: records are as the model has them, whatever is damaged, cut or foreign is refused, and
 * a pack that was interrupted goes on where it was. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "pack_model.h"

#define EXAMPLE TEST_DATA "/own/pack/small.strata-pack"

static char path[64] = "sidecar-XXXXXX";
static int fd;
static struct pack_layer layer[PACK_MODEL_LAYERS];

static void write_pack(bool checksums, const struct pack_progress *progress, bool succeeds)
{
    struct pack p = pack_model(layer, fd);
    struct err e;
    err_clear(&e);
    p.has_checksums = checksums;
    assert_true(pack_lay_out(&p, &e));
    bool ok = pack_write(&p, path, progress, &e);
    if (ok != succeeds)
        fail_msg("%s", ok ? "it was written" : e.text);
}

/* NULL, or why the file is refused. */
static const char *refusal(const char *of)
{
    static struct err e;
    struct pack p = pack_model(layer, fd);
    err_clear(&e);
    bool ok = pack_open(&p, of, &e) && pack_verify(&p, of, NULL, &e);
    mem_free(p.checksum);
    return ok ? NULL : e.text;
}

static char *read_file(const char *from, size_t *n)
{
    struct err e;
    err_clear(&e);
    char *bytes = file_read_all(from, 1 << 20, n, &e);
    assert_non_null(bytes);
    return bytes;
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void test_what_is_packed_is_the_models(void **state)
{
    (void)state;
    for (int checksums = 0; checksums < 2; checksums++) {
        write_pack(checksums, NULL, true);
        assert_null(refusal(path));
        struct pack p = pack_model(layer, fd);
        struct err e;
        err_clear(&e);
        assert_true(pack_open(&p, path, &e));
        assert_int_equal(p.has_checksums, checksums);
        assert_int_equal(p.layer[0].record_bytes % 4096, 0);
        assert_int_equal(p.layer[2].first % 4096, 0);
        assert_int_equal(p.layer[2].part[1].at, 128);
        mem_free(p.checksum);
    }
}

static void test_the_example_is_still_written_and_read(void **state)
{
    (void)state;
    assert_null(refusal(EXAMPLE));
    write_pack(true, NULL, true);
    size_t a, b;
    char *now = read_file(path, &a), *then = read_file(EXAMPLE, &b);
    assert_int_equal(a, b);
    assert_memory_equal(now, then, a);
    mem_free(now);
    mem_free(then);
}

static void test_cut_and_longer_files_are_refused(void **state)
{
    (void)state;
    size_t n;
    char *bytes = read_file(EXAMPLE, &n);
    for (size_t cut = 0; cut < n; cut += cut < 600 ? 1 : 509) {
        write_bytes(bytes, cut);
        assert_non_null(refusal(path));
    }
    char *more = mem_grow(bytes, n + 1, "a byte", NULL);
    assert_non_null(more);
    write_bytes(more, n + 1);
    assert_non_null(refusal(path));
    mem_free(more);
}

static void test_a_flipped_bit_is_refused(void **state)
{
    (void)state;
    size_t n;
    char *bytes = read_file(EXAMPLE, &n);
    size_t padding = 4096 + 8 * PACK_MODEL_LAYERS * PACK_MODEL_EXPERTS; /* nobody reads it */
    for (size_t i = 0; i < n; i += i < 600 ? 1 : 97) {
        if (i >= padding && i < 8192)
            continue;
        bytes[i] ^= 1 << i % 8;
        write_bytes(bytes, n);
        if (!refusal(path))
            fail_msg("the bit in byte %zu was not seen", i);
        bytes[i] ^= 1 << i % 8;
    }
    bytes[7] = '2';
    write_bytes(bytes, n);
    assert_non_null(strstr(refusal(path), "version 02, this program reads 01"));
    bytes[7] = '1';
    bytes[30] ^= 1;
    write_bytes(bytes, n);
    assert_non_null(strstr(refusal(path), "another model"));
    mem_free(bytes);
}

/* Stops after so many records. */
struct stopping {
    int left;
    atomic_bool cancel;
    uint64_t first; /* bytes at the first report */
};

static void count_down(void *ctx, uint64_t bytes, uint64_t all)
{
    struct stopping *s = ctx;
    s->first = s->first ? s->first : bytes;
    if (--s->left == 0)
        atomic_store(&s->cancel, true);
}

static void test_an_interrupted_pack_goes_on(void **state)
{
    (void)state;
    size_t a, b;
    for (int after = 1; after < 2 * PACK_MODEL_EXPERTS; after++) {
        unlink(path);
        struct stopping s = {.left = after};
        const struct pack_progress progress = {&s, count_down, &s.cancel};
        write_pack(true, &progress, false);
        assert_true(access(path, F_OK) != 0);
        struct stopping again = {.left = 1 << 20};
        const struct pack_progress rest = {&again, count_down, &again.cancel};
        write_pack(true, &rest, true);
        /* Layers that were finished are not written again. */
        assert_true(after <= PACK_MODEL_EXPERTS || again.first > layer[2].first);
        char *whole = read_file(EXAMPLE, &a), *resumed = read_file(path, &b);
        assert_int_equal(a, b);
        assert_memory_equal(whole, resumed, a);
        mem_free(whole);
        mem_free(resumed);
    }
}

static void test_where_there_is_no_room_nothing_is_left_behind(void **state)
{
    struct pack p = pack_model(layer, fd);
    struct err e;
    char part[80];
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_not_equal(access(part, F_OK), 0);
    err_clear(&e);
    assert_true(pack_lay_out(&p, &e));
    p.file_bytes = UINT64_C(1) << 60;
    assert_false(pack_write(&p, path, NULL, &e));
    assert_non_null(strstr(e.text, "1152921504606846976 bytes are needed"));
    assert_int_not_equal(access(part, F_OK), 0);
}

static void test_what_another_model_left_unfinished_is_begun_anew(void **state)
{
    (void)state;
    char part[80];
    snprintf(part, sizeof part, "%s.part", path);
    struct stopping s = {.left = PACK_MODEL_EXPERTS + 1};
    const struct pack_progress progress = {&s, count_down, &s.cancel};
    write_pack(true, &progress, false);
    size_t n;
    char *bytes = read_file(part, &n);
    bytes[20] ^= 1; /* its fingerprint */
    FILE *f = fopen(part, "wb");
    assert_non_null(f);
    fwrite(bytes, 1, n, f);
    fclose(f);
    mem_free(bytes);
    write_pack(true, NULL, true);
    assert_null(refusal(path));
    assert_true(access(part, F_OK) != 0);
}

static int prepare(void **state)
{
    (void)state;
    fd = pack_model_file();
    int made = mkstemp(path);
    return made < 0 ? -1 : close(made);
}

static int remove_files(void **state)
{
    (void)state;
    close(fd);
    return unlink(path);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--write")) { /* makes the example anew */
        fd = pack_model_file();
        snprintf(path, sizeof path, "%s", argv[2]);
        write_pack(true, NULL, true);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_packed_is_the_models),
        cmocka_unit_test(test_the_example_is_still_written_and_read),
        cmocka_unit_test(test_cut_and_longer_files_are_refused),
        cmocka_unit_test(test_a_flipped_bit_is_refused),
        cmocka_unit_test(test_an_interrupted_pack_goes_on),
        cmocka_unit_test(test_where_there_is_no_room_nothing_is_left_behind),
        cmocka_unit_test(test_what_another_model_left_unfinished_is_begun_anew),
    };
    return cmocka_run_group_tests(tests, prepare, remove_files);
}
