/* SPDX-License-Identifier: Apache-2.0 */
/* Routing traces of the demo model through the planner, without the model: hits are those of the
 * traces' own tables, guesses are worth what those say, and policies can be compared. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "stream/inner.h"

enum { LAYERS = 12, EXPERTS = 24, USED = 4, RECORD = 4 + LAYERS * (5 * USED + EXPERTS) };
#ifdef __SANITIZE_THREAD__
/* It is so slow, and more texts or arenas show it no other threads. */
enum { TEXTS = 1, SLOTS_STEP = 115, TABLE_STEP = 4 };
#else
enum { TEXTS = 4, SLOTS_STEP = 43, TABLE_STEP = 1 };
#endif

struct trace {
    uint8_t *data;
    int tokens;
};

static struct trace open_trace(const char *name)
{
    char path[512];
    size_t bytes;
    struct err e = {0};
    snprintf(path, sizeof path, TEST_DATA "/traces/%s.trc", name);
    struct trace t = {.data = (uint8_t *)file_read_all(path, 1 << 24, &bytes, &e)};
    if (!t.data)
        fail_msg("%s", e.text);
    assert_memory_equal(t.data, "STRTRC01", 8);
    t.tokens = (int)bytes_u32(t.data + 8);
    assert_int_equal(bytes, 32 + (size_t)t.tokens * RECORD);
    return t;
}

static const uint8_t *ids_of(const struct trace *t, int token, int layer)
{
    return t->data + 32 + (size_t)token * RECORD + 4 + (size_t)layer * (5 * USED + EXPERTS);
}

static void widen(const uint8_t *from, int n, int32_t *to)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i];
}

/* Records of one page, so that a share of the arena is an exact number of slots. */
static struct stream *open_stream(struct io *io, int slots, const struct stream_config *options)
{
    static struct stream_layer layers[LAYERS];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct err e = {0};
    for (int l = 0; l < LAYERS; l++)
        layers[l] = (struct stream_layer){
            .experts = EXPERTS, .parts = 1, .part = {{0, (uint64_t)l * EXPERTS * page, page}}};
    struct stream_config c = *options;
    c.layers = LAYERS;
    c.layer = layers;
    c.window_rows = 1;
    c.experts_used = USED;
    c.arena_bytes = (uint64_t)slots * page + stream_staging_bytes(&c, io_align(io));
    struct stream *s = stream_create(&c, io, &e);
    if (!s)
        fail_msg("%s", e.text);
    assert_int_equal(stream_slots(s), slots);
    return s;
}

static struct io *open_io(void)
{
    struct err e = {0};
    const char *paths[] = {"none"};
    struct io *io =
        io_create(paths, 1, &(struct io_options){.engine = "fake", .fake_bytes = 1 << 26}, &e);
    assert_non_null(io);
    return io;
}

/* Token by token, each a window of one row, with all ranks of the guess. */
static void replay(struct stream *s, const struct trace *t, bool with_guesses)
{
    struct err e = {0};
    int32_t ids[EXPERTS];
    struct stream_record out[USED];
    for (int k = 0; k < t->tokens; k++)
        for (int l = 0; l < LAYERS; l++) {
            widen(ids_of(t, k, l), USED, ids);
            assert_true(stream_begin(s, l, ids, USED, false, &e));
            widen(ids_of(t, k, l) + 5 * USED, EXPERTS, ids);
            if (with_guesses && l + 1 < LAYERS)
                stream_guess(s, l + 1, ids, NULL, 1, EXPERTS, false);
            while (stream_next(s, out, USED, &e) > 0)
                ;
            stream_end(s);
        }
}

static double hit_rate(const struct trace *t, int slots, const struct stream_config *options)
{
    struct io *io = open_io();
    struct stream *s = open_stream(io, slots, options);
    struct stream_stats stats;
    replay(s, t, true);
    stream_get_stats(s, &stats);
    stream_free(s);
    io_close(io);
    assert_int_equal(stats.hits + stats.misses, t->tokens * LAYERS * USED);
    return (double)stats.hits / (double)(stats.hits + stats.misses);
}

static void lru_hits_are_those_of_the_table(void **state)
{
    static const struct {
        int slots;
        double lru, best;
    } table[] = {{29, 0, 0.377},      {58, 0.285, 0.552},  {86, 0.368, 0.666},  {115, 0.461, 0.756},
                 {144, 0.573, 0.825}, {173, 0.675, 0.880}, {202, 0.769, 0.923}, {230, 0.858, 0.956},
                 {259, 0.934, 0.981}, {288, 0.997, 0.997}};
    struct trace t = open_trace("decode-valid");
    for (size_t i = 0; i < sizeof table / sizeof *table; i += TABLE_STEP) {
        double rate[3];
        for (int kind = 0; kind < 3; kind++)
            rate[kind] = hit_rate(&t, table[i].slots,
                                  &(struct stream_config){.policy = (enum policy_kind)kind});
        print_message("%d slots: lru %.3f, lfu %.3f, layer %.3f, at best %.3f\n", table[i].slots,
                      rate[0], rate[1], rate[2], table[i].best);
        assert_true(fabs(rate[0] - table[i].lru) < 0.002);
        for (int kind = 0; kind < 3; kind++)
            assert_true(rate[kind] <= table[i].best + 0.0005);
    }
    mem_free(t.data);
}

/* What the default of a run rests on: LFU has more hits than both others in all texts as soon as the
 * arena holds two tokens' experts, and is never worse than LRU. */
static void lfu_is_best_on_all_traces_where_two_tokens_fit(void **state)
{
    static const char *const names[] = {"gen-1", "gen-2", "gen-3", "decode-valid"};
    for (int n = 0; n < TEXTS; n++) {
        struct trace t = open_trace(names[n]);
        for (int slots = 58; slots < 288; slots += SLOTS_STEP) {
            double rate[3];
            for (int kind = 0; kind < 3; kind++)
                rate[kind] =
                    hit_rate(&t, slots, &(struct stream_config){.policy = (enum policy_kind)kind});
            print_message("%s, %d slots: lru %.3f, lfu %.3f, layer %.3f\n", names[n], slots,
                          rate[0], rate[1], rate[2]);
            assert_true(rate[1] >= rate[0] && rate[2] >= rate[0]);
            assert_true(slots < 2 * LAYERS * USED || rate[1] > rate[2] - 0.0005);
        }
        mem_free(t.data);
    }
}

static void guesses_are_worth_what_the_table_says_and_change_no_hit(void **state)
{
    static const double useful[] = {.996, .969, .863, .610, .250, .114, .056, .031, .021, .013};
    struct trace t = open_trace("decode-valid");
    struct io *io = open_io();
    struct stream *s = open_stream(io, 144, &(struct stream_config){0});
    struct stream_stats stats;
    replay(s, &t, true);
    for (int rank = 0; rank < 10; rank++) {
        double tried = 0, won = 0;
        for (int l = 1; l < LAYERS; l++) {
            tried += s->guesses[l].tried[rank];
            won += s->guesses[l].won[rank];
        }
        assert_true(fabs(won / tried - useful[rank]) < 0.1 * useful[rank] + 0.01);
    }
    stream_get_stats(s, &stats);
    double share = (double)stats.ahead_useful / (double)(stats.ahead_useful + stats.ahead_wasted);
    print_message("useful %llu, late %llu, wasted %llu, cancelled %llu of %llu misses\n",
                  (unsigned long long)stats.ahead_useful, (unsigned long long)stats.ahead_late,
                  (unsigned long long)stats.ahead_wasted, (unsigned long long)stats.ahead_cancelled,
                  (unsigned long long)stats.misses);
    assert_true(share > 0.5 && stats.ahead_useful > stats.misses * 8 / 10);
    stream_free(s);
    io_close(io);
    double without = hit_rate(&t, 144, &(struct stream_config){.ahead = {.is_off = true}});
    double with = (double)stats.hits / (double)(stats.hits + stats.misses);
    assert_true(with == without);
    mem_free(t.data);
}

static void ways_to_guess_can_be_compared(void **state)
{
    static const char *const names[] = {"router", "previous", "table"};
    struct trace t = open_trace("gen-1");
    for (int kind = 0; kind < 3; kind++) {
        struct io *io = open_io();
        struct stream_config c = {.ahead = {.kind = (enum stream_guess_kind)kind, .ranks = USED}};
        struct stream *s = open_stream(io, 40, &c); /* more, and the last token's are all there */
        struct stream_stats stats;
        if (kind)
            for (int l = 0; l < LAYERS; l++)
                assert_int_equal(stream_guess_ranks(s, l, false), 0);
        replay(s, &t, kind == STREAM_GUESS_ROUTER);
        stream_get_stats(s, &stats);
        print_message("%s: %llu useful, %llu wasted\n", names[kind],
                      (unsigned long long)stats.ahead_useful,
                      (unsigned long long)stats.ahead_wasted);
        assert_true(stats.ahead_useful > 100);
        stream_free(s);
        io_close(io);
    }
    mem_free(t.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_hits_are_those_of_the_table),
        cmocka_unit_test(lfu_is_best_on_all_traces_where_two_tokens_fit),
        cmocka_unit_test(guesses_are_worth_what_the_table_says_and_change_no_hit),
        cmocka_unit_test(ways_to_guess_can_be_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
