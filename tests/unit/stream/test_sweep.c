/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts of several bands over layers that want every expert: what a sweep borrows, what it leaves
 * to the next one, and that slots do not wait for anybody. And windows that do not work during reads. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reference.h"
#include "stream/inner.h"

enum { SWEEP_LAYERS = 3, EXPERTS = 200, BYTES = 512, USED = 4 };
enum { BAND_ROWS = (EXPERTS + EXPERTS / 10) / USED };

static const struct stream_layer sweep_layers[SWEEP_LAYERS] = {
    {.experts = EXPERTS, .parts = 1, .part = {{0, 0, BYTES}}},
    {.experts = EXPERTS, .parts = 1, .part = {{0, EXPERTS * BYTES, BYTES}}},
    {.experts = EXPERTS, .parts = 1, .part = {{1, 0, BYTES}}},
};

static struct stream *open_sweep(struct io *io, double share, bool no_overlap)
{
    struct err e = {0};
    struct stream_config c = {.layers = SWEEP_LAYERS, .layer = sweep_layers, .window_rows = 4,
                              .experts_used = USED, .no_overlap = no_overlap};
    c.arena_bytes = stream_staging_bytes(&c, io_align(io)) +
                    (uint64_t)(share * (double)(stream_all_bytes(&c, io_align(io)) -
                                                stream_staging_bytes(&c, io_align(io))));
    struct stream *s = stream_create(&c, io, &e);
    if (!s)
        fail_msg("%s", e.text);
    return s;
}

/* Begins a band's turn of one row for every expert of the layer and one more for each that has the
 * last digit of the layer; the next layer is guessed to be the same. */
static void begin_band(struct stream *s, int layer)
{
    struct err e = {0};
    int32_t ids[2 * EXPERTS];
    int n = 0;
    for (int x = 0; x < EXPERTS; x++) {
        ids[n++] = x;
        if (x % 10 == layer)
            ids[n++] = x;
    }
    assert_true(stream_begin(s, layer, ids, n, true, &e));
    if (layer + 1 < SWEEP_LAYERS)
        stream_guess(s, layer + 1, ids, NULL, n / USED, USED, true);
}

static void finish_band(struct stream *s)
{
    struct err e = {0};
    struct stream_record out[16];
    int n, got = 0;
    while ((n = stream_next(s, out, 16, &e)) > 0)
        got += n;
    assert_int_equal(n, 0);
    assert_int_equal(got, EXPERTS);
}

static void sweep(struct stream *s)
{
    for (int l = 0; l < SWEEP_LAYERS; l++) {
        begin_band(s, l);
        finish_band(s);
        stream_end(s);
    }
}

static void what_a_sweep_leaves_is_found_by_the_next(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream *s = open_sweep(io, 0.5, false);
    struct stream_stats stats;
    stream_prompt_begin(s, 3 * EXPERTS);
    int left = s->pool[0].capacity; /* to residents */
    assert_int_equal(left, (int)stream_slots(s) / 2);
    sweep(s);
    for (int again = 1; again < 3; again++) {
        sweep(s);
        stream_get_stats(s, &stats);
        assert_int_equal(stats.hits, again * left); /* all that a cache of that size can have */
    }
    for (int l = 0; l < SWEEP_LAYERS; l++) /* what more rows wanted is there */
        for (int x = l; x < EXPERTS; x += 10)
            assert_true(stream_is_resident(s, l, x));
    stream_free(s);
    io_close(io);
}

static void a_prompt_leaves_half_of_what_windows_have_earned(void **state)
{
    struct err e = {0};
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream *s = open_sweep(io, 0.4, false);
    int slots = (int)stream_slots(s), earned = 0;
    for (int i = 0; i < slots; i += USED) {
        int32_t ids[USED];
        struct stream_record out[USED];
        for (int j = 0; j < USED; j++)
            ids[j] = (i + j) % EXPERTS;
        assert_true(stream_begin(s, (i / EXPERTS) % SWEEP_LAYERS, ids, USED, false, &e));
        while (stream_next(s, out, USED, &e) > 0)
            ;
        stream_end(s);
    }
    stream_prompt_begin(s, 3 * BAND_ROWS);
    for (int band = 0; band < 3; band++)
        sweep(s);
    stream_prompt_end(s);
    for (int i = 0; i < s->arena.slots; i++)
        earned += s->slot[i].role == SLOT_RESIDENT && s->slot[i].is_earned;
    assert_in_range(earned, slots / 2, slots / 2 + 1);
    assert_int_equal(s->pool[0].residents, slots); /* the rest is what the prompt used most */
    stream_free(s);
    io_close(io);
}

/* The last band gives the places back as it goes, to what it has read: the layers have about as much
 * of them each, more rows before fewer, and nothing is read again when the prompt is over. */
static void the_last_band_fills_what_the_prompt_gives_back(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream *s = open_sweep(io, 0.4, false);
    int slots = (int)stream_slots(s), borrowed, of_layer[SWEEP_LAYERS] = {0};
    stream_prompt_begin(s, 2 * BAND_ROWS);
    borrowed = s->pool[0].borrowed;
    assert_int_equal(borrowed, slots / 2);
    sweep(s);
    assert_int_equal(s->pool[0].borrowed, borrowed); /* another band is to come */
    for (int l = 0; l < SWEEP_LAYERS; l++) {
        begin_band(s, l);
        int to_come = slots * (SWEEP_LAYERS - 1 - l) / SWEEP_LAYERS;
        assert_int_equal(s->pool[0].borrowed, to_come < borrowed ? to_come : borrowed);
        finish_band(s);
        stream_end(s);
    }
    assert_int_equal(s->pool[0].residents, slots);
    unsigned reads = drive.reads;
    stream_prompt_end(s);
    assert_int_equal(io_outstanding(s->queue), 0);
    assert_int_equal(drive.reads, reads);
    for (int l = 0; l < SWEEP_LAYERS; l++)
        for (int x = 0; x < EXPERTS; x++) {
            of_layer[l] += stream_is_resident(s, l, x);
            assert_true(x % 10 != l || stream_is_resident(s, l, x));
        }
    for (int l = 0; l < SWEEP_LAYERS; l++)
        assert_in_range(of_layer[l], slots / 6, slots / 2);
    stream_free(s);
    io_close(io);
}

/* A prompt that is cut short leaves places free; a window takes them. */
static void a_prompt_that_is_cut_short_reads_nothing_more(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream *s = open_sweep(io, 0.4, false);
    stream_prompt_begin(s, 2 * BAND_ROWS);
    sweep(s);
    int residents = s->pool[0].residents, borrowed = s->pool[0].borrowed;
    stream_prompt_end(s);
    assert_int_equal(s->pool[0].residents, residents);
    assert_int_equal(s->pool[0].capacity, residents + borrowed);
    stream_free(s);
    io_close(io);
}

/* The last records of a layer leave their slots when it ends, and the next layer's are read into them
 * while that one is still far from its experts. */
static void slots_are_read_into_as_soon_as_a_layer_ends(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 1); /* in order, so that what passes comes last */
    struct stream *s = open_sweep(io, 0.3, false);
    stream_prompt_begin(s, 10 * EXPERTS);
    begin_band(s, 0);
    finish_band(s);
    int lent = s->turn.lent, next = s->ahead.next;
    assert_int_equal(s->ahead.layer, 1);
    assert_true(lent > 0 && next > 0 && next + lent < s->ahead.n); /* there is more than room */
    stream_end(s);
    assert_int_equal(s->ahead.next, next + lent);
    assert_true(s->is_wanting);
    stream_free(s);
    io_close(io);
}

/* Of a guessed layer the experts of two rows come before those of one. */
static void what_most_rows_want_is_read_ahead_first(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 1);
    struct stream *s = open_sweep(io, 0.3, false);
    stream_prompt_begin(s, 10 * EXPERTS);
    begin_band(s, 0);
    finish_band(s);
    assert_int_equal(s->ahead.layer, 1);
    assert_int_equal(s->ahead.n, EXPERTS);
    for (int j = 0; j < EXPERTS / 10; j++)
        assert_int_equal(s->ahead_expert[j], 10 * j);
    assert_true(s->ahead.next > 0 && s->ahead.next < EXPERTS);
    for (int j = 0; j < EXPERTS; j++)
        assert_true((s->home[1][s->ahead_expert[j]] >= 0) == (j < s->ahead.next));
    stream_end(s);
    stream_free(s);
    io_close(io);
}

/* The first layer is guessed by nobody: it is read by popularity as soon as the prompt is known, and for
 * later bands by what the last one used. */
static void the_first_layer_is_read_by_what_is_popular_and_then_by_the_last_band(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 1);
    struct stream *s = open_sweep(io, 0.3, false);
    uint32_t counts[SWEEP_LAYERS * EXPERTS] = {0};
    for (int x = 0; x < EXPERTS; x++)
        counts[x] = x < 50 ? 0 : (uint32_t)x;
    stream_set_counts(s, counts, 1000);
    stream_prompt_begin(s, 2 * BAND_ROWS);
    assert_int_equal(s->ahead.layer, 0);
    assert_int_equal(s->ahead.n, EXPERTS - 50);
    assert_true(s->ahead.next > 10);
    for (int j = 0; j < s->ahead.next; j++)
        assert_true(s->home[0][EXPERTS - 1 - j] >= 0);
    assert_int_equal(s->home[0][EXPERTS - 1 - s->ahead.next], -1);
    sweep(s);
    assert_int_equal(s->ahead.layer, 0);
    assert_true(s->ahead.n > 50 && s->ahead.next > 0);
    for (int x = 0; x < EXPERTS; x += 10) /* two rows of the band wanted them */
        assert_true(s->home[0][x] >= 0);
    assert_true(s->ahead_expert[0] < 50);
    for (int j = 1; j < s->ahead.n; j++) /* then what one wanted, in the file's order */
        assert_true(s->ahead_expert[j] > s->ahead_expert[j - 1]);
    stream_prompt_end(s);
    stream_prompt_begin(s, 2); /* no more than it can select */
    assert_int_equal(s->ahead.n, 2 * USED);
    stream_prompt_end(s);
    stream_free(s);
    io_close(io);
}

static void without_overlap_a_window_is_handed_out_when_all_of_it_is_there(void **state)
{
    struct err e = {0};
    struct io *io = io_create(
        file_paths, FILES, &(struct io_options){.engine = "sim:delay=0-3ms,seed=5", .depth = 2}, &e);
    assert_non_null(io);
    struct stream *s = open_sweep(io, 0.3, true);
    uint64_t random = 3, misses = 0;
    for (int turn = 0; turn < 30; turn++) {
        int32_t ids[USED];
        struct stream_record out[2 * USED];
        struct stream_stats stats;
        for (int i = 0; i < USED; i++)
            ids[i] = (int32_t)draw(&random, 10) * USED + i;
        assert_true(stream_begin(s, turn % SWEEP_LAYERS, ids, USED, false, &e));
        assert_int_equal(stream_next(s, out, 2 * USED, &e), USED);
        assert_int_equal(stream_next(s, out, 2 * USED, &e), 0);
        stream_end(s);
        stream_get_stats(s, &stats);
        misses = stats.misses;
    }
    assert_true(misses > 30);
    begin_band(s, 0); /* a band may need more than there is room for */
    finish_band(s);
    stream_end(s);
    stream_free(s);
    io_close(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_sweep_leaves_is_found_by_the_next),
        cmocka_unit_test(a_prompt_leaves_half_of_what_windows_have_earned),
        cmocka_unit_test(the_last_band_fills_what_the_prompt_gives_back),
        cmocka_unit_test(a_prompt_that_is_cut_short_reads_nothing_more),
        cmocka_unit_test(slots_are_read_into_as_soon_as_a_layer_ends),
        cmocka_unit_test(what_most_rows_want_is_read_ahead_first),
        cmocka_unit_test(the_first_layer_is_read_by_what_is_popular_and_then_by_the_last_band),
        cmocka_unit_test(without_overlap_a_window_is_handed_out_when_all_of_it_is_there),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
