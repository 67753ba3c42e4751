/* SPDX-License-Identifier: Apache-2.0 */
/* The planner against a simulator that knows neither slots nor reads: residency, hits and misses
 * are functions of the history of turns; every wanted expert is handed out once, whole; faults and
 * cancelled turns leave a stream that works. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "reference.h"

static struct reference model;

static void residency_hits_and_misses_are_those_of_the_reference(void **state)
{
    static const double shares[] = {0, 0.1, 0.3, 0.6, 1};
    struct memory_drive drive = {0};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct io *io = open_memory(&drive, 2);
        struct stream *s = open_stream(io, shares[i]);
        start_reference(&model, io, shares[i]);
        struct history h = {.random = 5 + i, .layer = LAYERS - 1};
        uint64_t random = i;
        for (int turn = 0; turn < 10000; turn++) {
            next_turn(&h);
            take_turn(s, &h, &random);
            reference_turn(&model, h.layer, h.ids, h.n, h.is_band);
            if (turn % 16 == 0 || turn < 500)
                check_residents(&model, s);
        }
        struct stream_stats stats;
        stream_get_stats(s, &stats);
        assert_int_equal(stats.hits, model.hits);
        assert_int_equal(stats.misses, model.misses);
        assert_int_equal(stats.turns, 10000);
        assert_true(shares[i] < 1 || stats.misses < 200); /* everything fits: read once */
        stream_free(s);
        io_close(io);
    }
}

static void the_least_arena_works_and_less_is_refused_with_the_least(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 1);
    struct err e = {0};
    struct stream_config c = config_with(0, io_align(io));
    struct stream *s = stream_create(&c, io, &e);
    assert_non_null(s);
    assert_int_equal(stream_slots(s), stream_count_slots(&c, io_align(io)));
    assert_true(stream_slots(s) >= 16);
    stream_free(s);
    char least[32];
    snprintf(least, sizeof least, "%llu", (unsigned long long)c.arena_bytes--);
    assert_null(stream_create(&c, io, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_non_null(strstr(e.text, least));
    assert_int_equal(stream_count_slots(&c, io_align(io)), 0);
    io_close(io);
}

static void slots_lie_in_the_arena_and_hold_the_records_of_their_class(void **state)
{
    for (double share = 0; share <= 1; share += 0.05)
        for (size_t align = 512; align <= 16384; align *= 2) {
            struct err e = {0};
            struct stream_config c = config_with(share, align);
            struct arena_layout a;
            assert_true(arena_cut(&c, align, &a, &e));
            assert_true(a.bytes <= c.arena_bytes);
            uint64_t bytes = 0;
            for (int k = 0; k < a.classes; k++) {
                assert_int_equal(a.class[k].first_byte, bytes);
                assert_int_equal(a.class[k].slot_bytes % (uint64_t)sysconf(_SC_PAGESIZE), 0);
                assert_true(a.class[k].slots >= a.class[k].least);
                assert_true((uint64_t)a.class[k].slots <= a.class[k].records);
                bytes += a.class[k].slot_bytes * (uint64_t)(a.class[k].slots + a.class[k].staging);
            }
            assert_int_equal(a.bytes, bytes);
            for (int l = 0; l < LAYERS; l++) {
                struct arena_layer place = arena_place_layer(&layers[l], align);
                if (layers[l].experts)
                    assert_true(arena_class_of(&a, &place) < a.classes);
            }
        }
}

static uint64_t logical_state(const struct stream *s)
{
    uint64_t sum = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int x = 0; x < layers[l].experts; x++)
            sum = sum * 31 + stream_is_resident(s, l, x);
    return sum;
}

/* Turns on a real file through an engine; the logical states add up to *states. */
static void run_history(const struct io_options *o, int turns, uint64_t *states,
                        struct stream_stats *stats)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, o, &e);
    assert_non_null(io);
    struct stream *s = open_stream(io, 0.2);
    struct history h = {.random = 77, .layer = LAYERS - 1};
    uint64_t random = 1;
    *states = 0;
    for (int turn = 0; turn < turns; turn++) {
        next_turn(&h);
        take_turn(s, &h, &random);
        *states = *states * 1000003 + logical_state(s);
    }
    stream_get_stats(s, stats);
    stream_free(s);
    io_close(io);
}

static void delays_engines_and_depths_change_nothing_that_is_decided(void **state)
{
    const struct io_options options[] = {{0},
                                         {.depth = 1},
                                         {.engine = "sim:delay=0-4ms,seed=3", .depth = 16},
                                         {.engine = "sim:delay=0-2ms,rate=1G,seed=4", .depth = 3}};
    uint64_t first = 0, states;
    struct stream_stats first_stats, stats;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        run_history(&options[i], 120, &states, &stats);
        if (!i) {
            first = states;
            first_stats = stats;
        }
        assert_int_equal(states, first);
        assert_int_equal(stats.hits, first_stats.hits);
        assert_int_equal(stats.misses, first_stats.misses);
        assert_int_equal(stats.bytes_read, first_stats.bytes_read);
    }
}

static void a_failed_read_names_expert_layer_and_file_and_the_next_turn_works(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 3);
    struct stream *s = open_stream(io, 0.1);
    struct history h = {.random = 9, .layer = LAYERS - 1};
    uint64_t random = 2;
    int failures = 0;
    for (int turn = 0; turn < 3000; turn++) {
        next_turn(&h);
        drive.fail_every = turn % 3 ? 0 : 4 + draw(&random, 60);
        if (!drive.fail_every) {
            take_turn(s, &h, &random);
            continue;
        }
        struct err e = {0};
        struct stream_record out[8];
        assert_true(stream_begin(s, h.layer, h.ids, h.n, h.is_band, &e));
        int n;
        while ((n = stream_next(s, out, 8, &e)) > 0)
            for (int i = 0; i < n; i++)
                assert_true(record_is_right(h.layer, &out[i]));
        if (n < 0) {
            char layer[32];
            snprintf(layer, sizeof layer, "of layer %d: ./strata-stream-", h.layer);
            assert_int_equal(e.code, ERR_IO);
            assert_non_null(strstr(e.text, layer));
            assert_non_null(strstr(e.text, strerror(EIO)));
            assert_int_equal(stream_next(s, out, 8, &e), -1); /* and stays failed */
            failures++;
        }
        stream_end(s);
    }
    assert_true(failures > 300);
    stream_free(s);
    io_close(io);
}

static void a_turn_may_be_ended_at_any_moment(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 3);
    struct stream *s = open_stream(io, 0.1);
    struct history h = {.random = 10, .layer = LAYERS - 1};
    uint64_t random = 3;
    for (int turn = 0; turn < 3000; turn++) {
        struct err e = {0};
        struct stream_record out[4];
        next_turn(&h);
        assert_true(stream_begin(s, h.layer, h.ids, h.n, h.is_band, &e));
        for (uint32_t calls = draw(&random, 8); calls > 0; calls--)
            assert_true(stream_next(s, out, 4, &e) >= 0);
        stream_end(s);
        stream_end(s); /* nothing to end: harmless */
        next_turn(&h);
        take_turn(s, &h, &random);
    }
    stream_free(s);
    io_close(io);
}

static void a_stream_may_be_dropped_in_the_middle_of_a_turn(void **state)
{
    struct err e = {0};
    struct io *io =
        io_create(file_paths, FILES, &(struct io_options){.engine = "sim:delay=1-3ms"}, &e);
    struct stream *s = open_stream(io, 0);
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = i;
    assert_true(stream_begin(s, 0, ids, 40, true, &e));
    stream_free(s);
    io_close(io);
}

static void a_file_truncated_while_open_ends_the_turn_with_its_name(void **state)
{
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES, NULL, &e);
    struct stream *s = open_stream(io, 0.1);
    assert_int_equal(truncate(file_path[0], 450000), 0);
    struct stream_record out[1];
    assert_true(stream_begin(s, 6, (int32_t[]){7}, 1, false, &e)); /* its down part lies behind */
    assert_int_equal(stream_next(s, out, 1, &e), -1);
    assert_non_null(strstr(e.text, "expert 7 of layer 6: ./strata-stream-"));
    assert_non_null(strstr(e.text, "the file ends after"));
    stream_end(s);
    assert_true(stream_begin(s, 0, (int32_t[]){7}, 1, false, &e));
    assert_int_equal(stream_next(s, out, 1, &e), 1);
    assert_true(record_is_right(0, out));
    stream_end(s);
    stream_free(s);
    io_close(io);
    int fd = open(file_path[0], O_WRONLY);
    assert_int_equal(pwrite(fd, file_copy[0], FILE_BYTES, 0), FILE_BYTES);
    close(fd);
}

static void what_no_turn_can_be_is_refused(void **state)
{
    struct memory_drive drive = {0};
    struct err e = {0};
    struct io *io = open_memory(&drive, 1);
    struct stream *s = open_stream(io, 0);
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = i;
    assert_false(stream_begin(s, 0, (int32_t[]){3, 40}, 2, false, &e));
    assert_string_equal(e.text, "layer 0: expert 40 was selected of 40");
    err_clear(&e);
    assert_false(stream_begin(s, 0, (int32_t[]){-1}, 1, true, &e));
    assert_false(stream_begin(s, 2, (int32_t[]){0}, 1, true, &e));
    err_clear(&e);
    assert_false(stream_begin(s, 0, ids, 40, false, &e));
    assert_int_equal(e.code, ERR_USAGE);
    struct stream_record out[40];
    assert_true(stream_begin(s, 2, ids, 0, false, &e));
    assert_int_equal(stream_next(s, out, 40, &e), 0);
    stream_end(s);
    stream_free(s);

    struct stream_layer bad[LAYERS];
    memcpy(bad, layers, sizeof bad);
    bad[6].part[1].offset = UINT64_MAX - 3;
    struct stream_config c = config_with(0.5, 512);
    c.layer = bad;
    err_clear(&e);
    assert_null(stream_create(&c, io, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    io_close(io);
}

static void every_allocation_may_fail_and_a_turn_allocates_nothing(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 2);
    struct stream_config c = config_with(0.3, io_align(io));
    size_t before = mem_in_use();
    struct stream *s = NULL;
    for (uint64_t n = 1; !s; n++) {
        struct err e = {0};
        mem_fail_at(n);
        s = stream_create(&c, io, &e);
        mem_fail_at(0);
        assert_true(s || e.code == ERR_MEMORY);
        assert_true(s || mem_in_use() == before);
    }
    assert_true(mem_in_use() - before <= c.arena_bytes + stream_table_bytes(&c, io_align(io)));
    struct history h = {.random = 11, .layer = LAYERS - 1};
    uint64_t random = 4;
    size_t created = mem_in_use(), peak = mem_peak();
    for (int turn = 0; turn < 100; turn++) {
        next_turn(&h);
        take_turn(s, &h, &random);
        assert_int_equal(mem_in_use(), created);
    }
    assert_int_equal(mem_peak(), peak);
    stream_free(s);
    io_close(io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residency_hits_and_misses_are_those_of_the_reference),
        cmocka_unit_test(the_least_arena_works_and_less_is_refused_with_the_least),
        cmocka_unit_test(slots_lie_in_the_arena_and_hold_the_records_of_their_class),
        cmocka_unit_test(delays_engines_and_depths_change_nothing_that_is_decided),
        cmocka_unit_test(a_failed_read_names_expert_layer_and_file_and_the_next_turn_works),
        cmocka_unit_test(a_turn_may_be_ended_at_any_moment),
        cmocka_unit_test(a_stream_may_be_dropped_in_the_middle_of_a_turn),
        cmocka_unit_test(a_file_truncated_while_open_ends_the_turn_with_its_name),
        cmocka_unit_test(what_no_turn_can_be_is_refused),
        cmocka_unit_test(every_allocation_may_fail_and_a_turn_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
