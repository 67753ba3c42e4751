/* SPDX-License-Identifier: Apache-2.0 */
/* In which lane the stream asks for what, and that what has come is handed out while the rest is still
 * on its way: on a drive that holds reads back until it is told to go on. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "io/engine.h"
#include "layers.h"
#include "stream/inner.h"

enum { EXPERTS = 40, BYTES = 4096, USED = 4, HELD_MOST_MS = 60000 };

static const struct stream_layer two_layers[] = {
    {.experts = EXPERTS, .parts = 1, .part = {{0, 0, BYTES}}},
    {.experts = EXPERTS, .parts = 1, .part = {{0, EXPERTS * BYTES, BYTES}}},
};

/* Reads at `held` (-1: all) wait while it is shut; a test that fails ends all the same. */
static _Atomic bool is_shut;
static _Atomic int64_t held;

static ssize_t held_read(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    const struct timespec ms = {0, 1000000};
    bool is_held = atomic_load(&held) < 0 || atomic_load(&held) == offset;
    for (int i = 0; is_held && atomic_load(&is_shut) && i < HELD_MOST_MS; i++)
        nanosleep(&ms, NULL);
    return pread(fd, to, n, offset);
}

static struct io *open_held(void)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES,
                              &(struct io_options){.pread = held_read, .depth = 4, .ahead_kept = 2}, &e);
    assert_non_null(io);
    return io;
}

static struct stream *open_two(struct io *io)
{
    struct err e = {0};
    struct stream_config c = {.layers = 2, .layer = two_layers, .window_rows = 2, .experts_used = USED,
                              .ahead = {.ranks = 8}};
    c.arena_bytes = stream_all_bytes(&c, io_align(io));
    struct stream *s = stream_create(&c, io, &e);
    assert_non_null(s);
    return s;
}

/* Requests of a lane that wait or are in flight. */
static int in_lane(struct io *io, enum io_lane lane)
{
    pthread_mutex_lock(&io->lock);
    int n = io->in_flight[0][lane];
    for (const struct io_request *r = io->lane[lane].first; r; r = r->after)
        n++;
    pthread_mutex_unlock(&io->lock);
    return n;
}

static void hold(int64_t offset)
{
    atomic_store(&held, offset);
    atomic_store(&is_shut, true);
}

static void let_go(void)
{
    atomic_store(&is_shut, false);
}

static void take(struct stream *s, int n_wanted)
{
    struct err e = {0};
    struct stream_record out[USED];
    int n, got = 0;
    while ((n = stream_next(s, out, USED, &e)) > 0)
        got += n;
    assert_int_equal(n, 0);
    assert_int_equal(got, n_wanted);
    stream_end(s);
}

static void what_has_come_is_handed_out_before_the_rest(void **state)
{
    struct err e = {0};
    struct io *io = open_held();
    struct stream *s = open_two(io);
    struct stream_record out[USED];
    const int32_t ids[] = {7, 3, 9, 5};
    for (int is_band = 0; is_band < 2; is_band++) {
        hold((is_band * EXPERTS + 7) * BYTES);
        assert_true(stream_begin(s, is_band, ids, USED, is_band, &e));
        for (int n = 0, got = 0; got < USED - 1; got += n) {
            n = stream_next(s, out, USED, &e);
            assert_true(n > 0);
            for (int i = 0; i < n; i++)
                assert_int_not_equal(out[i].expert, 7);
        }
        let_go();
        assert_int_equal(stream_next(s, out, USED, &e), 1);
        assert_int_equal(out[0].expert, 7);
        stream_end(s);
    }
    stream_free(s);
    io_close(io);
}

static void guesses_have_a_lane_behind_what_is_waited_for(void **state)
{
    struct err e = {0};
    struct io *io = open_held();
    struct stream *s = open_two(io);
    struct stream_stats stats;
    const int32_t first[] = {0, 1, 2, 3}, guess[] = {10, 11, 12, 13, 14, 15, 16, 17},
                  second[] = {10, 30, 31, 17};
    assert_true(stream_begin(s, 0, first, USED, false, &e));
    assert_int_equal(in_lane(io, IO_AHEAD), 0);
    take(s, USED);
    hold(-1);
    assert_true(stream_begin(s, 0, first, USED, false, &e)); /* all are there */
    stream_guess(s, 1, guess, NULL, 1, 8, false);
    assert_int_equal(in_lane(io, IO_AHEAD), 8);
    assert_int_equal(in_lane(io, IO_URGENT), 0);
    take(s, USED);
    /* Two guesses are in flight, the depth for guesses; of the others what is wanted now is hurried, and
     * the rest is dropped. */
    for (int x = 10; x < 12; x++)
        while (io_is_waiting(s->queue, (uint64_t)s->home[1][x] * PIECES_MOST))
            ;
    assert_true(stream_begin(s, 1, second, USED, false, &e));
    assert_int_equal(in_lane(io, IO_URGENT), 3); /* 30, 31 and 17, which had not started */
    assert_int_equal(in_lane(io, IO_AHEAD), 2);
    stream_get_stats(s, &stats);
    assert_int_equal(stats.ahead_cancelled, 5);
    let_go();
    take(s, USED);
    assert_true(s->home[1][11] >= 0); /* what had begun is kept for one more turn */
    assert_true(stream_begin(s, 0, first, USED, false, &e));
    take(s, USED);
    assert_int_equal(s->home[1][11], -1);
    stream_free(s);
    io_close(io);
}

/* What is waited for is read in pieces, a guess in one. */
static void only_what_is_waited_for_is_cut_into_pieces(void **state)
{
    static const struct stream_layer large[] = {
        {.experts = 8, .parts = 2, .part = {{0, 0, 4 * BYTES}, {1, 0, 4 * BYTES}}},
        {.experts = 8, .parts = 1, .part = {{0, 32 * BYTES, 8 * BYTES}}},
    };
    struct err e = {0};
    struct io *io = open_held();
    struct stream_config c = {.layers = 2, .layer = large, .window_rows = 2, .experts_used = 1,
                              .ahead = {.ranks = 8}, .split = 4};
    c.arena_bytes = stream_all_bytes(&c, io_align(io));
    struct stream *s = stream_create(&c, io, &e);
    assert_non_null(s);
    const int32_t id = 5;
    hold(-1);
    assert_true(stream_begin(s, 0, &id, 1, false, &e));
    assert_int_equal(in_lane(io, IO_URGENT), 4 + 4);
    stream_guess(s, 1, &id, NULL, 1, 1, false);
    assert_int_equal(in_lane(io, IO_AHEAD), 1);
    let_go();
    struct stream_record out;
    assert_int_equal(stream_next(s, &out, 1, &e), 1);
    assert_memory_equal(out.part[0], file_copy[0] + 5 * 4 * BYTES, 4 * BYTES);
    assert_memory_equal(out.part[1], file_copy[1] + 5 * 4 * BYTES, 4 * BYTES);
    stream_end(s);
    stream_free(s);
    io_close(io);
}

static void while_a_prompt_is_read_guesses_may_use_the_whole_depth(void **state)
{
    struct io *io = open_held();
    struct stream *s = open_two(io);
    assert_false(io->is_prompt);
    stream_prompt_begin(s, 100);
    assert_true(io->is_prompt);
    stream_prompt_end(s);
    assert_false(io->is_prompt);
    stream_free(s);
    io_close(io);
}

static void rows_have_a_lane_of_their_own(void **state)
{
    struct err e = {0};
    struct io *io = open_held();
    struct stream_rows *r = stream_rows_create(io, 0, 0, 100, 100, 8, &e);
    const uint64_t rows[] = {1, 50, 99};
    const void *bytes;
    assert_non_null(r);
    hold(-1);
    assert_true(stream_rows_begin(r, rows, 3, &e));
    assert_int_equal(in_lane(io, IO_ROWS), 3);
    let_go();
    assert_true(stream_rows_wait(r, &bytes, &e));
    for (int i = 0; i < 3; i++)
        assert_memory_equal((const char *)bytes + 100 * i, file_copy[0] + 100 * rows[i], 100);
    stream_rows_free(r);
    io_close(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_come_is_handed_out_before_the_rest),
        cmocka_unit_test(guesses_have_a_lane_behind_what_is_waited_for),
        cmocka_unit_test(only_what_is_waited_for_is_cut_into_pieces),
        cmocka_unit_test(while_a_prompt_is_read_guesses_may_use_the_whole_depth),
        cmocka_unit_test(rows_have_a_lane_of_their_own),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
