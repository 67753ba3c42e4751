/* SPDX-License-Identifier: Apache-2.0 */
/* Rows come in the order asked, repeated ones too, each distinct row read once; faults name the row
 * and leave a table that works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "layers.h"

#define TABLE_OFFSET 1234
#define ROW_BYTES 90
#define ROWS ((FILE_BYTES - TABLE_OFFSET) / ROW_BYTES) /* the last one ends near the file's end */

static void check_request(struct stream_rows *r, const uint64_t *rows, int n)
{
    struct err e = {0};
    const void *bytes = NULL;
    if (!stream_rows_begin(r, rows, n, &e) || !stream_rows_wait(r, &bytes, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < n; i++)
        assert_memory_equal((const char *)bytes + (size_t)i * ROW_BYTES,
                            file_copy[0] + TABLE_OFFSET + rows[i] * ROW_BYTES, ROW_BYTES);
}

static struct stream_rows *open_rows(struct io *io, int most)
{
    struct err e = {0};
    struct stream_rows *r = stream_rows_create(io, 0, TABLE_OFFSET, ROWS, ROW_BYTES, most, &e);
    if (!r)
        fail_msg("%s", e.text);
    return r;
}

static void rows_come_in_the_order_asked(void **state)
{
    const struct io_options options[] = {
        {0}, {.buffered = true, .rows_depth = 2}, {.engine = "sim:delay=0-1ms"}};
    static uint64_t rows[3000];
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        struct err e = {0};
        struct io *io = io_create(file_paths, FILES, &options[o], &e);
        size_t before = mem_in_use();
        struct stream_rows *r = open_rows(io, 3000);
        assert_true(mem_in_use() - before <= stream_rows_memory(ROW_BYTES, 3000, io_align(io)));
        uint64_t random = o;
        static const int counts[] = {0, 1, 16, 64, 3000, 5};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            for (int j = 0; j < counts[i]; j++)
                rows[j] = draw(&random, i & 1 ? ROWS : 40);
            if (counts[i])
                rows[0] = ROWS - 1;
            check_request(r, rows, counts[i]);
        }
        stream_rows_free(r);
        io_close(io);
    }
}

static void a_row_asked_many_times_is_read_once(void **state)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, NULL, &e);
    struct stream_rows *r = open_rows(io, 100);
    struct stream_stats once = {0}, many = {0};
    uint64_t rows[100];
    for (int i = 0; i < 100; i++)
        rows[i] = 77;
    check_request(r, rows, 1);
    stream_rows_add_stats(r, &once);
    check_request(r, rows, 100);
    stream_rows_add_stats(r, &many);
    assert_true(once.bytes_rows > 0 && once.bytes_rows == once.bytes_read);
    assert_int_equal(many.bytes_rows, once.bytes_rows); /* the row was kept */
    assert_int_equal(many.row_cache_hits, 1);
    stream_rows_free(r);
    io_close(io);
}

/* More rows than are kept, some again and again: what comes is always right. */
static void rows_that_are_kept_are_the_last_ones(void **state)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, NULL, &e);
    struct stream_rows *r = open_rows(io, 600);
    struct stream_stats before = {0}, after = {0};
    uint64_t rows[600];
    for (uint64_t first = 0; first + 500 <= ROWS; first += 500) {
        for (uint64_t i = 0; i < 600; i++)
            rows[i] = i < 500 ? first + i : i - 500; /* rows 0 to 99 each time */
        check_request(r, rows, 600);
    }
    stream_rows_add_stats(r, &before);
    check_request(r, rows, 600);
    stream_rows_add_stats(r, &after);
    assert_int_equal(after.bytes_rows, before.bytes_rows);
    assert_int_equal(after.row_cache_hits, before.row_cache_hits + 600);
    rows[0] = 200; /* long gone */
    check_request(r, rows, 1);
    after = (struct stream_stats){0};
    stream_rows_add_stats(r, &after);
    assert_true(after.bytes_rows > before.bytes_rows);
    stream_rows_free(r);
    io_close(io);
}

static void a_request_may_be_given_up_for_another_or_for_good(void **state)
{
    struct err e = {0};
    struct io *io = io_create(
        file_paths, FILES, &(struct io_options){.engine = "sim:delay=1-3ms", .rows_depth = 3}, &e);
    struct stream_rows *r = open_rows(io, 2000);
    static uint64_t rows[2000];
    for (uint64_t i = 0; i < 2000; i++)
        rows[i] = i;
    assert_true(stream_rows_begin(r, rows, 2000, &e));
    check_request(r, rows + 500, 20);
    assert_true(stream_rows_begin(r, rows, 2000, &e));
    stream_rows_free(r);
    io_close(io);
}

static _Atomic bool drive_fails;

static ssize_t failing_pread(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    (void)ctx;
    if (drive_fails && offset <= TABLE_OFFSET + 50 * ROW_BYTES &&
        offset + (off_t)n > TABLE_OFFSET + 50 * ROW_BYTES) {
        errno = EIO;
        return -1;
    }
    return pread(fd, to, n, offset);
}

/* At a byte a second a row takes more than an hour. */
static void a_wait_for_rows_may_be_given_up(void **state)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, &(struct io_options){.engine = "sim:rate=1"}, &e);
    struct stream_rows *r = open_rows(io, 10);
    const uint64_t rows[] = {3, 5, 800};
    const void *bytes;
    _Atomic bool cancel = true;
    alarm(60);
    assert_true(stream_rows_begin(r, rows, 3, &e));
    stream_rows_set_cancel(r, &cancel);
    assert_false(stream_rows_wait(r, &bytes, &e));
    assert_int_equal(e.code, ERR_INTERRUPTED);
    err_clear(&e);
    assert_false(stream_rows_begin(r, rows, 3, &e)); /* it has to wait for what is under way */
    assert_int_equal(e.code, ERR_INTERRUPTED);
    stream_rows_free(r);
    io_close(io);
    alarm(0);
}

static void a_failed_row_is_named_and_the_next_request_works(void **state)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, &(struct io_options){.pread = failing_pread}, &e);
    struct stream_rows *r = open_rows(io, 8);
    const uint64_t rows[8] = {4000, 50, 3, 50, 5000, 6000, 7000, 1000};
    const void *bytes;
    drive_fails = true;
    assert_true(stream_rows_begin(r, rows, 8, &e));
    assert_false(stream_rows_wait(r, &bytes, &e));
    assert_non_null(strstr(e.text, "row 50 of the n-gram table: ./strata-stream-"));
    assert_non_null(strstr(e.text, strerror(EIO)));
    drive_fails = false;
    check_request(r, rows, 8);
    err_clear(&e);
    assert_false(stream_rows_begin(r, (uint64_t[]){ROWS}, 1, &e));
    check_request(r, rows, 8);
    stream_rows_free(r);
    io_close(io);
}

static void tables_that_cannot_be_are_refused(void **state)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, NULL, &e);
    assert_null(stream_rows_create(io, 0, TABLE_OFFSET, ROWS + 1, ROW_BYTES, 8, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_null(stream_rows_create(io, 0, 0, UINT64_MAX / 2, ROW_BYTES, 8, NULL));
    assert_null(stream_rows_create(io, 0, UINT64_MAX - 5, 1, ROW_BYTES, 8, NULL));
    assert_null(stream_rows_create(io, 0, 0, 1, 0, 8, NULL));
    assert_null(stream_rows_create(io, 0, 0, 1, ROW_BYTES, 0, NULL));
    assert_null(stream_rows_create(io, 0, 0, 1, ROW_BYTES, 1 << 24, NULL));
    size_t before = mem_in_use();
    struct stream_rows *r = NULL;
    for (uint64_t n = 1; !r; n++) {
        err_clear(&e);
        mem_fail_at(n);
        r = stream_rows_create(io, 0, 0, 100, ROW_BYTES, 10, &e);
        mem_fail_at(0);
        assert_true(r || (e.code == ERR_MEMORY && mem_in_use() == before));
    }
    stream_rows_free(r);
    io_close(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_in_the_order_asked),
        cmocka_unit_test(a_row_asked_many_times_is_read_once),
        cmocka_unit_test(rows_that_are_kept_are_the_last_ones),
        cmocka_unit_test(a_request_may_be_given_up_for_another_or_for_good),
        cmocka_unit_test(a_wait_for_rows_may_be_given_up),
        cmocka_unit_test(a_failed_row_is_named_and_the_next_request_works),
        cmocka_unit_test(tables_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
