/* SPDX-License-Identifier: Apache-2.0 */
/* Why a turn waited: every reason is named when it is the reason, and the times that a watch is told
 * of add up to what the statistics count, whatever is guessed, dropped or cut short. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "reference.h"
#include "stream/inner.h"

struct told {
    uint64_t us, times[STREAM_WHYS];
    struct stream_wait last;
};

static void take_wait(void *ctx, const struct stream_wait *w)
{
    struct told *t = ctx;
    t->us += w->us;
    t->times[w->why]++;
    t->last = *w;
}

/* A drive that stands still while the gate is shut, and takes its time for every read. */
static _Atomic bool is_shut;
static const struct timespec ms_5 = {0, 5000000};

static ssize_t gated_read(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    do
        nanosleep(&ms_5, NULL);
    while (atomic_load(&is_shut));
    return pread(fd, to, n, offset);
}

static struct io *open_files(const struct io_options *o)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, o, &e);
    assert_non_null(io);
    return io;
}

/* The least arena for windows of so many rows. */
static struct stream *open_for(struct io *io, int window_rows, const struct stream_ahead *ahead,
                               struct told *told)
{
    struct err e = {0};
    struct stream_config c = config_with(0, io_align(io));
    c.window_rows = window_rows;
    c.arena_bytes = stream_least_bytes(&c, io_align(io));
    c.ahead = *ahead;
    struct stream *s = stream_create(&c, io, &e);
    assert_non_null(s);
    stream_set_watch(s, &(struct stream_watch){told, take_wait});
    return s;
}

static struct stream *open_watched(struct io *io, const struct stream_ahead *ahead, struct told *told)
{
    return open_for(io, 8, ahead, told);
}

/* A turn for these experts; `guess` (or -1) is guessed at rank 0 and `other` at rank 1 for layer 3.
 * The gate is opened when the turn has begun. */
static void turn(struct stream *s, int layer, int from, int n, int guess, int other)
{
    struct err e = {0};
    int32_t ids[16], guessed[2] = {guess, other};
    struct stream_record out[16];
    for (int i = 0; i < n; i++)
        ids[i] = from + i;
    assert_true(stream_begin(s, layer, ids, n, false, &e));
    atomic_store(&is_shut, guess >= 0);
    if (guess >= 0)
        stream_guess(s, 3, guessed, NULL, 1, 2, false);
    while (stream_next(s, out, 16, &e) > 0)
        ;
    stream_end(s);
}

static void every_reason_is_named(void **state)
{
    struct told told = {0};
    struct io *io = open_files(&(struct io_options){.pread = gated_read});
    struct stream *s = open_for(io, 4, &(struct stream_ahead){.ranks = 1}, &told);
    turn(s, 3, 0, 1, -1, -1);
    assert_int_equal(told.times[STREAM_NEVER_SEEN], 1);
    assert_int_equal(told.last.expert, 0);
    assert_int_equal(told.last.layer, 3);
    for (int from = 1; stream_is_resident(s, 3, 0); from++)
        turn(s, 3, from, 1, -1, -1);
    turn(s, 0, 0, 1, -1, -1); /* a turn between */
    turn(s, 3, 0, 1, -1, -1);
    assert_int_equal(told.last.why, STREAM_EVICTED);
    assert_int_equal(told.last.detail, 2);
    turn(s, 0, 0, 1, 20, 21); /* a hit: the gate is shut until the turn of layer 3 has begun */
    turn(s, 3, 20, 1, -1, -1);
    assert_int_equal(told.last.why, STREAM_LATE);
    assert_int_equal(told.last.detail, 0);
    turn(s, 0, 0, 1, 22, 23);
    turn(s, 3, 23, 1, -1, -1);
    assert_int_equal(told.last.why, STREAM_RANK);
    assert_int_equal(told.last.detail, 1);
    struct stream_stats stats;
    stream_get_stats(s, &stats);
    assert_true(told.us == stats.wait_us && told.us > 20000);
    stream_free(s);
    io_close(io);
}

/* With a margin only those guesses are read whose weight is so much above that of the best one that
 * would not be chosen; of a guess of few ranks that one is asked for besides. */
static void guesses_that_are_hardly_better_than_the_others_are_not_read(void **state)
{
    static const int32_t ids[] = {0, 1, 2, 3, 4, 5};
    static const float weights[] = {0.5f, 0.2f, 0.06f, 0.045f, 0.035f, 0.03f};
    static const struct {
        float margin;
        int ranks, read;
    } cases[] = {{0, 0, 6}, {0, 2, 2}, {0, 4, 4}, {0.02f, 4, 3}, {0.02f, 2, 2}, {0.1f, 0, 2}, {0.5f, 6, 0}};
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct told told = {0};
        struct stream *s = open_watched(
            io, &(struct stream_ahead){.ranks = cases[i].ranks, .margin = cases[i].margin}, &told);
        struct err e = {0};
        int read = 0;
        assert_true(stream_guess_ranks(s, 3, false) >= (cases[i].margin > 0 ? 5 : cases[i].ranks));
        assert_true(stream_begin(s, 0, ids, 4, false, &e));
        stream_guess(s, 3, ids, weights, 1, 6, false);
        for (int x = 0; x < 6; x++) {
            read += s->home[3][x] >= 0;
            assert_true((s->home[3][x] >= 0) == (x < cases[i].read));
        }
        assert_int_equal(read, cases[i].read);
        stream_end(s);
        stream_free(s);
    }
    io_close(io);
}

static void a_wait_that_is_cut_short_says_so_and_what_it_lost_too(void **state)
{
    struct told told = {0};
    struct io *io = open_files(&(struct io_options){.pread = gated_read});
    struct stream *s = open_watched(io, &(struct stream_ahead){.ranks = 1}, &told);
    struct err e = {0};
    struct stream_record out;
    const int32_t id = 5;
    const _Atomic bool cancel = true;
    atomic_store(&is_shut, true);
    assert_true(stream_begin(s, 3, &id, 1, false, &e));
    stream_set_cancel(s, &cancel);
    assert_int_equal(stream_next(s, &out, 1, &e), -1);
    assert_int_equal(e.code, ERR_INTERRUPTED);
    stream_end(s);
    assert_int_equal(told.last.why, STREAM_CUT_SHORT);
    assert_int_equal(told.last.expert, -1);
    stream_set_cancel(s, NULL);
    turn(s, 3, 5, 1, -1, -1); /* it was to be resident */
    assert_int_equal(told.last.why, STREAM_CANCELLED);
    assert_int_equal(told.last.expert, 5);
    stream_free(s);
    io_close(io);
}

static void guesses_that_found_no_slot_are_named(void **state)
{
    struct told told = {0};
    struct io *io = open_files(&(struct io_options){.pread = gated_read});
    struct stream *s = open_watched(io, &(struct stream_ahead){.ranks = 1}, &told);
    struct err e = {0};
    struct stream_record out;
    int32_t id = 0, all[40];
    for (int x = 0; x < 40; x++)
        all[x] = x;
    turn(s, 0, 0, 1, -1, -1);
    assert_true(stream_begin(s, 0, &id, 1, false, &e));
    atomic_store(&is_shut, true);
    stream_guess(s, 4, all, NULL, 40, 1, false); /* the staging has no room for so many */
    assert_int_equal(stream_next(s, &out, 1, &e), 1);
    stream_end(s);
    turn(s, 4, 39, 1, -1, -1);
    assert_int_equal(told.last.why, STREAM_CROWDED);
    assert_int_equal(told.last.detail, 0);
    stream_free(s);
    io_close(io);
}

/* Passes without a miss, as many as the guard takes for `periods` judgements. */
static void pass_time(struct stream *s, int periods)
{
    for (int i = 0; i < 4 * periods; i++) {
        turn(s, 0, 0, 1, -1, -1);
        if (i % 4 == 0)
            nanosleep(&ms_5, NULL);
    }
}

static void more_is_asked_of_guesses_while_the_drive_is_busy(void **state)
{
    struct told told = {0};
    struct io *io = open_files(&(struct io_options){.pread = gated_read});
    struct stream *s = open_watched(io, &(struct stream_ahead){.has_guard = true}, &told);
    struct err e = {0};
    struct stream_record out;
    const int32_t id = 0, guess = 20;
    turn(s, 0, 0, 1, -1, -1);
    pass_time(s, 2);
    assert_true(ahead_may_read(s, 3, 3));
    atomic_store(&is_shut, true);
    assert_true(stream_begin(s, 0, &id, 1, false, &e));
    stream_guess(s, 3, &guess, NULL, 1, 1, false);
    assert_int_equal(stream_next(s, &out, 1, &e), 1);
    stream_end(s);
    for (int i = 0; i < 16; i++) { /* a read is in flight all the time */
        assert_true(stream_begin(s, 0, &id, 1, false, &e));
        assert_int_equal(stream_next(s, &out, 1, &e), 1);
        stream_end(s);
        if (i % 4 == 0)
            nanosleep(&ms_5, NULL);
    }
    assert_false(ahead_may_read(s, 3, 3));
    assert_true(ahead_may_read(s, 3, 0)); /* nearly always right */
    turn(s, 3, 20, 1, -1, -1);
    pass_time(s, 9);
    assert_true(ahead_may_read(s, 3, 3));
    stream_free(s);
    io_close(io);
}

/* Where what comes too late is waited for as long as a read takes, a guess is worth reading that is
 * right now and then; where computing hides most of a read, one that is right more often than not. */
static void more_is_asked_of_guesses_that_save_less_waiting(void **state)
{
    assert_int_equal(ahead_guard_percent(0.4, 1), 7);
    assert_int_equal(ahead_guard_percent(0.4, 3), 7);
    uint32_t before = 7;
    for (int tenths = 9; tenths >= 0; tenths--) {
        uint32_t percent = ahead_guard_percent(0.4, tenths / 10.0);
        assert_in_range(percent, before, 60);
        before = percent;
    }
    assert_in_range(ahead_guard_percent(0.4, 0.25), 20, 25);
    assert_int_equal(before, 60);
    assert_in_range(ahead_guard_percent(0.7, 1), 20, 30); /* and of a busy drive */
    assert_int_equal(ahead_guard_percent(0.96, 1), 50);
    assert_int_equal(ahead_guard_percent(1, 0.5), 50);
    assert_int_equal(ahead_guard_percent(1, 0), 60);
}

/* A layer of which little is known believes what all layers together have seen. */
static void layers_learn_from_each_other_what_guesses_are_worth(void **state)
{
    struct told told = {0};
    struct io *io = open_files(&(struct io_options){.pread = gated_read});
    struct stream *s = open_watched(io, &(struct stream_ahead){0}, &told);
    assert_true(ahead_may_read(s, 0, 0));
    assert_false(ahead_may_read(s, 0, 12));
    s->all_guesses.tried[0] = s->all_guesses.tried[12] = 1000;
    s->all_guesses.won[12] = 500; /* and of rank 0 none */
    assert_false(ahead_may_read(s, 0, 0));
    assert_true(ahead_may_read(s, 0, 12));
    s->guesses[3].tried[12] = 1000; /* none was right there */
    assert_false(ahead_may_read(s, 3, 12));
    assert_true(ahead_may_read(s, 0, 12));
    stream_free(s);
    io_close(io);
}

/* Judged for the first time after four passes, and then in full; a prompt says nothing about answers. */
static void a_busy_drive_is_noticed_within_an_answers_first_tokens(void **state)
{
    struct told told = {0};
    struct io *io = open_files(&(struct io_options){.pread = gated_read});
    struct stream *s = open_watched(io, &(struct stream_ahead){.has_guard = true}, &told);
    struct err e = {0};
    struct stream_record out;
    const int32_t id = 0, guess = 20;
    turn(s, 3, 7, 1, -1, -1);
    stream_prompt_begin(s, 1); /* layer 0 comes for the first time, so that nothing is judged yet */
    assert_true(stream_begin(s, 0, &id, 1, true, &e));
    assert_int_equal(stream_next(s, &out, 1, &e), 1);
    stream_end(s);
    stream_prompt_end(s);
    atomic_store(&is_shut, true);
    uint64_t busy_before = io_busy_us(io);
    int64_t pause_us = 5000;
    for (int i = 0; i < 5; i++) {
        int64_t began = clock_us();
        assert_int_equal(s->guard_percent, 0);
        assert_true(stream_begin(s, 0, &id, 1, false, &e));
        if (i == 0) { /* in flight from then on; however long it took to get there, it counts little */
            stream_guess(s, 3, &guess, NULL, 1, 1, false);
            while (io_busy_us(io) == busy_before)
                sched_yield();
            pause_us += 10 * (clock_us() - began);
        }
        assert_int_equal(stream_next(s, &out, 1, &e), 1);
        stream_end(s);
        nanosleep(&(struct timespec){pause_us / 1000000, pause_us % 1000000 * 1000}, NULL);
    }
    assert_int_equal(s->guard_percent, ahead_guard_percent(1, 1));
    stream_prompt_begin(s, 1);
    atomic_store(&is_shut, false);
    stream_prompt_end(s);
    assert_int_equal(s->guard_percent, ahead_guard_percent(1, 1));
    assert_int_equal(s->guard_since, 0);
    stream_free(s);
    io_close(io);
}

static void all_that_is_waited_is_told(void **state)
{
    static const char *const engines[] = {"sim:delay=0-2ms,seed=3", "sim:rate=300M", "pread"};
    for (size_t i = 0; i < 3; i++) {
        struct told told = {0};
        struct io *io = open_files(&(struct io_options){.engine = engines[i]});
        struct stream *s = open_watched(io, &(struct stream_ahead){0}, &told);
        struct history h = {.random = 3 + i, .layer = LAYERS - 1};
        struct err e = {0};
        struct stream_record out[4];
        _Atomic bool cancel = true;
        for (int n = 0; n < 150; n++) {
            next_turn(&h);
            struct history next = h;
            next_turn(&next);
            assert_true(stream_begin(s, h.layer, h.ids, h.n, h.is_band, &e));
            if (next.layer > h.layer)
                stream_guess(s, next.layer, next.ids, NULL, h.rows, next.k, h.is_band);
            int calls = n % 5 ? 1000 : n % 4; /* some are cut short, some are cancelled */
            stream_set_cancel(s, n % 11 ? NULL : &cancel);
            while (calls-- > 0 && stream_next(s, out, 4, &e) > 0)
                ;
            stream_end(s);
        }
        struct stream_stats stats;
        stream_get_stats(s, &stats);
        if (told.us != stats.wait_us)
            fail_msg("%s: told of %llu us of %llu", engines[i], (unsigned long long)told.us,
                     (unsigned long long)stats.wait_us);
        stream_free(s);
        io_close(io);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_is_named),
        cmocka_unit_test(guesses_that_are_hardly_better_than_the_others_are_not_read),
        cmocka_unit_test(a_wait_that_is_cut_short_says_so_and_what_it_lost_too),
        cmocka_unit_test(guesses_that_found_no_slot_are_named),
        cmocka_unit_test(more_is_asked_of_guesses_while_the_drive_is_busy),
        cmocka_unit_test(more_is_asked_of_guesses_that_save_less_waiting),
        cmocka_unit_test(layers_learn_from_each_other_what_guesses_are_worth),
        cmocka_unit_test(a_busy_drive_is_noticed_within_an_answers_first_tokens),
        cmocka_unit_test(all_that_is_waited_is_told),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
