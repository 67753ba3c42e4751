/* SPDX-License-Identifier: Apache-2.0 */
/* The whole planner at random: prompts, windows, guesses good and bad, fillings, hot lists, turns
 * cut short. The logical state stays that of a simulator that knows nothing of guesses and reads,
 * no record is in two slots, and every wanted expert is handed out once.
 *
 *     test_stream_planner [TURNS] */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "reference.h"
#include "stream/inner.h"

static int turns_wanted = 20000;
static struct reference model;

/* What must hold between any two calls. */
static void check_slots(const struct stream *s)
{
    int residents = 0, seen[ARENA_CLASSES][SLOT_GONE + 1] = {{0}};
    for (int i = 0; i < s->arena.slots; i++) {
        const struct slot *t = &s->slot[i];
        seen[t->class_index][t->role]++;
        bool holds = t->role == SLOT_RESIDENT || t->role == SLOT_STAGED || t->role == SLOT_PASSING;
        if (holds && s->home[t->layer][t->expert] != i)
            fail_msg("slot %d holds expert %d of layer %d, whose home is elsewhere", i, t->expert,
                     t->layer);
        assert_true(t->role == SLOT_DROPPED || holds || !t->reads_left);
        assert_true(!t->is_pinned || s->turn.is_active);
        residents += t->role == SLOT_RESIDENT;
    }
    int homes = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int x = 0; x < layers[l].experts; x++) {
            homes += s->home[l][x] >= 0;
            residents -= stream_is_resident(s, l, x);
        }
    assert_int_equal(residents, 0);
    for (int c = 0; c < s->arena.classes; c++) {
        const struct pool *p = &s->pool[c];
        homes -= seen[c][SLOT_RESIDENT] + seen[c][SLOT_STAGED] + seen[c][SLOT_PASSING];
        assert_int_equal(p->residents, seen[c][SLOT_RESIDENT]);
        assert_int_equal(p->passing, seen[c][SLOT_PASSING]);
        assert_int_equal(p->free_count, seen[c][SLOT_FREE]);
        assert_true(p->staged <= seen[c][SLOT_STAGED] && p->residents <= p->capacity);
        assert_true(p->staged + p->passing <= s->arena.class[c].staging + p->borrowed);
    }
    assert_int_equal(homes, 0);
}

/* A guess at the turn that comes next: some of what it will select, some not. */
static void guess_next(struct stream *s, const struct history *h, uint64_t *random)
{
    struct history next = *h;
    int32_t ids[100 * 8];
    next_turn(&next);
    if (next.layer <= h->layer)
        return;
    int experts = layers[next.layer].experts, rows = h->rows, ranks = experts < 8 ? experts : 8;
    for (int i = 0; i < rows * ranks; i++)
        ids[i] = draw(random, 2) ? next.ids[draw(random, (uint32_t)next.n)]
                                 : (int32_t)draw(random, (uint32_t)experts);
    stream_guess(s, next.layer, ids, NULL, rows, ranks, h->is_band);
}

/* A turn, perhaps with a guess at the next, perhaps cut short. */
static void one_turn(struct stream *s, const struct history *h, uint64_t *random)
{
    struct err e = {0};
    struct stream_record out[64];
    bool wanted[MOST_EXPERTS] = {false};
    int n, left = 0, calls = draw(random, 20) ? 1000 : (int)draw(random, 3);
    for (int i = 0; i < h->n; i++) {
        left += !wanted[h->ids[i]];
        wanted[h->ids[i]] = true;
    }
    if (!stream_begin(s, h->layer, h->ids, h->n, h->is_band, &e))
        fail_msg("%s", e.text);
    if (draw(random, 5))
        guess_next(s, h, random);
    check_slots(s);
    while (calls-- > 0 && (n = stream_next(s, out, 1 + (int)draw(random, 64), &e))) {
        if (n < 0)
            fail_msg("%s", e.text);
        for (int i = 0; i < n; i++, left--) {
            assert_true(wanted[out[i].expert]);
            wanted[out[i].expert] = false;
            assert_true(record_is_right(h->layer, &out[i]));
        }
    }
    assert_true(!left || calls < 0);
    stream_end(s);
    check_slots(s);
}

/* Some names twice, and whatever was resident: nothing logical may follow from it. */
static void fill_names(struct stream *s, uint64_t *random)
{
    struct stream_name names[40];
    for (int i = 0; i < 40; i++) {
        do
            names[i].layer = (int32_t)draw(random, LAYERS);
        while (!layers[names[i].layer].experts);
        names[i].expert = (int32_t)draw(random, (uint32_t)layers[names[i].layer].experts);
    }
    stream_fill_names(s, names, 40);
}

static void fill(struct stream *s, uint64_t *random)
{
    uint32_t counts[LAYERS * MOST_EXPERTS];
    for (int i = 0; i < stream_records(s); i++)
        counts[i] = draw(random, 30);
    stream_set_counts(s, counts, 1000);
    stream_fill(s);
}

static void run(double share, const struct stream_config *options, struct io *io, int turns)
{
    struct err e = {0};
    struct stream_config c = config_with(share, io_align(io));
    c.ahead = options->ahead;
    c.split = options->split;
    struct stream *s = stream_create(&c, io, &e);
    if (!s)
        fail_msg("%s", e.text);
    start_reference(&model, io, share);
    struct history h = {.random = 5, .layer = LAYERS - 1};
    uint64_t random = 8;
    fill(s, &random);
    for (int turn = 0; turn < turns; turn++) {
        int before = h.layer;
        next_turn(&h);
        if (h.layer < before) { /* a new pass */
            if (h.is_band && draw(&random, 2)) {
                stream_prompt_begin(s, h.rows);
                reference_prompt_begin(&model, h.rows);
            } else if (!draw(&random, 8)) {
                stream_prompt_end(s);
                reference_prompt_end(&model);
                fill_names(s, &random);
            } else if (!draw(&random, 8)) {
                fill(s, &random);
            }
        }
        one_turn(s, &h, &random);
        reference_turn(&model, h.layer, h.ids, h.n, h.is_band);
        if (turn % 16 == 0 || turn < 500)
            check_residents(&model, s);
        if (!draw(&random, 40)) /* the pass is given up, another begins */
            h.layer = LAYERS - 1;
    }
    struct stream_stats stats;
    stream_get_stats(s, &stats);
    assert_int_equal(stats.hits, model.hits);
    assert_int_equal(stats.misses, model.misses);
    print_message(
        "%.0f %%: %llu hits, %llu misses, %llu useful, %llu late, %llu wasted, %llu cancelled\n",
        share * 100, (unsigned long long)stats.hits, (unsigned long long)stats.misses,
        (unsigned long long)stats.ahead_useful, (unsigned long long)stats.ahead_late,
        (unsigned long long)stats.ahead_wasted, (unsigned long long)stats.ahead_cancelled);
    assert_true(share > 0.9 || stats.ahead_useful + stats.ahead_late > 0);
    stream_free(s);
}

static void the_logical_state_is_that_of_the_reference_whatever_is_guessed(void **state)
{
    static const double shares[] = {0, 0.1, 0.3, 0.6, 1, 0.2, 0.2};
    static const struct stream_config options[] = {
        {.split = 1},
        {.split = 3, .ahead = {.ranks = 6, .has_guard = true}},
        {.ahead = {.is_off = true}},
        {.ahead = {.kind = STREAM_GUESS_PREVIOUS}},
        {.ahead = {.kind = STREAM_GUESS_TABLE, .ranks = 8}},
        {.ahead = {.kind = STREAM_GUESS_TABLE, .distance = 2}},
        {.ahead = {.kind = STREAM_GUESS_PREVIOUS, .distance = 2}},
    };
    struct memory_drive drive = {0};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct io *io = open_memory(&drive, i & 1 ? 2 : 8);
        run(shares[i], &options[i % 2], io, turns_wanted / 10);
        run(shares[i], &options[i], io, turns_wanted / 10);
        io_close(io);
    }
}

static void delays_change_nothing_logical(void **state)
{
    struct err e = {0};
    static const char *const engines[] = {"sim:delay=0-3ms,seed=3", "uring"};
    for (size_t i = 0; i < 2; i++) {
        struct io *io = io_create(file_paths, FILES,
                                  &(struct io_options){.engine = engines[i], .depth = 4}, &e);
        run(0.2, &(struct stream_config){.ahead = {.ranks = 8}}, io, i ? 1000 : 200);
        io_close(io);
    }
}

/* Slots may go and come back: residents that are left are right, and everything is handed out. */
static void slots_may_be_given_back_and_taken_again(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream *s = open_stream(io, 0.5);
    struct history h = {.random = 6, .layer = LAYERS - 1};
    uint64_t random = 9;
    int all = 0;
    for (int turn = 0; turn < 3000; turn++) {
        next_turn(&h);
        one_turn(s, &h, &random);
        if (turn % 7)
            continue;
        int n = draw(&random, 2) ? (int)draw(&random, 40) + 1 : -1 - (int)draw(&random, 40);
        all += stream_resize(s, n);
        assert_true(all >= 0 && all < (int)stream_slots(s));
        check_slots(s);
    }
    while (stream_resize(s, -50))
        ;
    for (int c = 0; c < s->arena.classes; c++)
        assert_int_equal(s->pool[c].capacity, s->arena.class[c].slots);
    stream_free(s);
    io_close(io);
}

/* What is filled takes the places of residents. A prompt that wants other experts more leaves the
 * filled ones without a place, and there may be more of them than staging has room for. */
static void filled_records_that_get_no_place_do_not_hold_slots_that_others_need(void **state)
{
    enum { EXPERTS = 200, BYTES = 512 };
    const struct stream_layer layer = {.experts = EXPERTS, .parts = 1, .part = {{0, 0, BYTES}}};
    struct memory_drive drive = {0};
    struct err e = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream_config c = {.layers = 1, .layer = &layer, .window_rows = 4, .experts_used = 4};
    uint64_t least = stream_least_bytes(&c, io_align(io)), all = stream_all_bytes(&c, io_align(io));
    c.arena_bytes = least + (all - least) / 4;
    struct stream *s = stream_create(&c, io, &e);
    assert_non_null(s);
    uint32_t counts[EXPERTS];
    int32_t ids[EXPERTS + EXPERTS / 2];
    struct stream_record out[16];
    for (int x = 0; x < EXPERTS; x++)
        counts[x] = (uint32_t)(EXPERTS - x); /* the first are said to be popular, the last are wanted most */
    for (int i = 0; i < EXPERTS + EXPERTS / 2; i++)
        ids[i] = i < EXPERTS ? i : i - EXPERTS / 2;
    stream_set_counts(s, counts, 1000);
    stream_fill(s);
    for (int band = 0; band < 2; band++) {
        stream_prompt_begin(s, 75);
        assert_true(stream_begin(s, 0, ids, EXPERTS + EXPERTS / 2, true, &e));
        int got = 0, n;
        while ((n = stream_next(s, out, 16, &e)) > 0)
            for (int i = 0; i < n; i++, got++)
                assert_memory_equal(out[i].part[0], file_copy[0] + out[i].expert * BYTES, BYTES);
        assert_int_equal(n, 0);
        assert_int_equal(got, EXPERTS);
        stream_end(s);
        stream_prompt_end(s);
    }
    stream_free(s);
    io_close(io);
}

/* Counts as a foreign profile may hold them: near the end they stay there, and they age. */
static void counts_near_their_end_do_not_wrap(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct err e = {0};
    struct stream_config c = config_with(0.5, io_align(io));
    uint32_t counts[LAYERS * MOST_EXPERTS];
    const uint64_t given[] = {1000, UINT64_MAX};
    for (int i = 0; i < 2; i++) {
        struct stream *s = stream_create(&c, io, &e);
        assert_non_null(s);
        for (int r = 0; r < stream_records(s); r++)
            counts[r] = UINT32_MAX - 1;
        stream_set_counts(s, counts, given[i]);
        int32_t ids[16];
        for (int j = 0; j < 16; j++)
            ids[j] = j % 4;
        struct stream_record out[16];
        assert_true(stream_begin(s, 0, ids, 16, false, &e));
        while (stream_next(s, out, 16, &e) > 0)
            ;
        stream_end(s);
        uint64_t tokens;
        const uint32_t *now = stream_counts(s, &tokens);
        uint32_t half = (UINT32_MAX - 1) / 2; /* so many tokens were too many: all are halved */
        for (int x = 0; x < 5; x++)
            assert_int_equal(now[x], x == 4 ? (i ? half : UINT32_MAX - 1) : i ? half + 4 : UINT32_MAX);
        assert_true(tokens == (i ? UINT64_MAX / 2 : 1004));
        stream_free(s);
    }
    io_close(io);
}

/* ---- hot lists ---- */

/* What an earlier stream had in memory is read into a new one, in its order, in front of what was
 * popular; nothing is resident by that, and what is selected then was ahead of time. */
static void a_hot_list_fills_another_stream_in_the_same_order(void **state)
{
    struct memory_drive drive = {0};
    struct io *io = open_memory(&drive, 4);
    struct stream *a = open_stream(io, 0.3), *b = open_stream(io, 0.3);
    struct history h = {.random = 6, .layer = LAYERS - 1};
    uint64_t random = 9;
    static struct stream_name hot[LAYERS * MOST_EXPERTS], again[LAYERS * MOST_EXPERTS];
    for (int turn = 0; turn < 500; turn++) {
        next_turn(&h);
        take_turn(a, &h, &random);
    }
    int n = stream_hot_list(a, hot, LAYERS * MOST_EXPERTS);
    assert_true(n > 10);
    fill(b, &random);
    for (unsigned reads = 0; reads != drive.reads || !reads;) { /* all have come, and nobody has looked */
        reads = drive.reads;
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    stream_fill_names(b, hot, n);
    check_slots(b);
    assert_true(stream_hot_list(b, again, LAYERS * MOST_EXPERTS) >= n);
    assert_memory_equal(hot, again, sizeof *hot * (size_t)n);
    assert_int_equal(stream_hot_list(b, again, 3), 3);
    for (int l = 0; l < LAYERS; l++)
        for (int x = 0; x < layers[l].experts; x++)
            assert_false(stream_is_resident(b, l, x));
    stream_fill_names(b, (struct stream_name[]){{-1, 0}, {2, 0}, {LAYERS, 1}, {0, 40}}, 4);
    struct err e = {0};
    struct stream_record record;
    struct stream_stats stats;
    assert_true(stream_begin(b, hot[0].layer, &hot[0].expert, 1, false, &e));
    assert_int_equal(stream_next(b, &record, 1, &e), 1);
    assert_int_equal(record.expert, hot[0].expert);
    stream_end(b);
    stream_get_stats(b, &stats);
    assert_int_equal(stats.misses, 1); /* logically */
    assert_int_equal(stats.ahead_useful + stats.ahead_late, 1);
    stream_free(a);
    stream_free(b);
    io_close(io);
}

int main(int argc, char **argv)
{
    turns_wanted = argc > 1 ? atoi(argv[1]) : turns_wanted;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logical_state_is_that_of_the_reference_whatever_is_guessed),
        cmocka_unit_test(delays_change_nothing_logical),
        cmocka_unit_test(slots_may_be_given_back_and_taken_again),
        cmocka_unit_test(filled_records_that_get_no_place_do_not_hold_slots_that_others_need),
        cmocka_unit_test(counts_near_their_end_do_not_wrap),
        cmocka_unit_test(a_hot_list_fills_another_stream_in_the_same_order),
    };
    return cmocka_run_group_tests(tests, write_layers, remove_layers);
}
