/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: what is written is read, whatever is damaged is refused, what was cut is read up to its
 * last whole turn; and replays count what the description of the handed traces says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "stream/replay.h"
#include "stream/trace.h"

#define EXAMPLE TEST_DATA "/own/trace/small.trc"
#define TRACES TEST_DATA "/traces/"

enum { LAYERS = 3, EXPERTS = 300, USED = 2, RANKS = 4 };

static char path[] = "trace-XXXXXX";

/* ---- a small trace -------------------------------------------------------------------------- */

/* Every number is a function of where it stands. */
static int32_t id_at(int turn, int layer, int row, int i)
{
    return (17 * turn + 5 * layer + 3 * row + 101 * i) % EXPERTS;
}

static void put_turn(struct trace_writer *w, int turn, bool is_band, int rows, bool is_whole)
{
    int32_t tokens[8], ids[8 * USED];
    float weights[8 * USED];
    uint16_t guess[8 * RANKS];
    for (int row = 0; row < rows; row++)
        tokens[row] = 1000 * turn + row;
    trace_turn(w, is_band, 0, rows, tokens);
    for (int l = 0; l < LAYERS - 1; l++) { /* the last layer has no experts */
        for (int row = 0; row < rows; row++) {
            for (int i = 0; i < USED; i++) {
                ids[row * USED + i] = id_at(turn, l, row, i);
                weights[row * USED + i] = i ? 0.25f : 0.75f;
            }
            for (int i = 0; i < RANKS; i++)
                guess[row * RANKS + i] = (uint16_t)id_at(turn, l + 1, row, i);
        }
        const uint32_t counts[TRACE_COUNTS] = {1, 2, 3, 4, (uint32_t)turn};
        trace_layer_rows(w, rows, ids, weights, guess, l ? 0 : RANKS, counts);
    }
    trace_turn_end(w, is_whole);
}

static void write_small(const char *to)
{
    struct trace_layer layer[LAYERS] = {{8192, 0}, {4096, 1}, {0, 0}};
    struct trace_head h = {.layers = LAYERS,
                           .experts = EXPERTS,
                           .used = USED,
                           .ranks = RANKS,
                           .layer = layer,
                           .classes = 2,
                           .slots = {100, 60},
                           .has_counts = true,
                           .text = "policy=lru\nmoce=0\n"};
    for (int i = 0; i < 16; i++)
        h.fingerprint[i] = (uint8_t)(i + 1);
    struct err e;
    err_clear(&e);
    struct trace_writer *w = trace_create(to, &h, &e);
    assert_non_null(w);
    trace_mark(w, TRACE_PROMPT_BEGIN, 0, 5);
    put_turn(w, 1, true, 5, true);
    trace_mark(w, TRACE_PROMPT_END, 0, 0);
    put_turn(w, 2, false, 1, true);
    put_turn(w, 3, false, 2, false); /* was cut short: taken back */
    put_turn(w, 4, false, 2, true);
    if (!trace_close(w, "compute_ms=1.5\n", &e))
        fail_msg("%s", e.text);
}

static void check_turn(const struct trace *t, int record, enum trace_kind kind, int turn, int rows)
{
    struct trace_record r;
    trace_record_at(t, record, &r);
    assert_int_equal(r.kind, kind);
    assert_int_equal(r.rows, rows);
    for (int row = 0; row < rows; row++) {
        assert_int_equal(trace_token(t, &r, row), 1000 * turn + row);
        for (int l = 0; l < LAYERS - 1; l++) {
            int32_t ids[USED], guess[RANKS];
            float weights[USED];
            trace_row(t, &r, l, row, ids, weights, guess);
            for (int i = 0; i < USED; i++)
                assert_int_equal(ids[i], id_at(turn, l, row, i));
            assert_true(weights[0] == 0.75f && weights[1] == 0.25f);
            for (int i = 0; i < RANKS; i++)
                assert_int_equal(guess[i], l ? -1 : id_at(turn, l + 1, row, i));
        }
    }
    uint32_t counts[TRACE_COUNTS];
    assert_true(trace_counts(t, &r, 1, counts));
    assert_int_equal(counts[TRACE_WASTED], turn);
}

static void check_small(const char *from)
{
    struct err e;
    err_clear(&e);
    bool is_cut = true;
    struct trace *t = trace_open(from, &is_cut, &e);
    if (!t)
        fail_msg("%s", e.text);
    const struct trace_head *h = trace_head(t);
    char room[16];
    assert_false(is_cut);
    assert_int_equal(trace_version(t), 2);
    assert_int_equal(h->layers, LAYERS);
    assert_int_equal(h->layer[1].record_bytes, 4096);
    assert_int_equal(h->layer[1].class_index, 1);
    assert_int_equal(h->slots[1], 60);
    assert_int_equal(h->fingerprint[15], 16);
    assert_string_equal(trace_value(t, "moce", room, sizeof room), "0");
    assert_string_equal(trace_value(t, "compute_ms", room, sizeof room), "1.5");
    assert_null(trace_value(t, "ms", room, sizeof room));
    assert_int_equal(trace_records(t), 6);
    check_turn(t, 1, TRACE_BAND, 1, 5);
    check_turn(t, 3, TRACE_WINDOW, 2, 1);
    check_turn(t, 4, TRACE_WINDOW, 4, 2);
    trace_free(t);
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    write_small(path);
    check_small(path);
}

static void test_the_example_is_still_written_and_read(void **state)
{
    (void)state;
    check_small(EXAMPLE);
    write_small(path);
    struct err e;
    err_clear(&e);
    size_t a, b;
    char *now = file_read_all(path, 1 << 20, &a, &e),
         *then = file_read_all(EXAMPLE, 1 << 20, &b, &e);
    assert_non_null(now);
    assert_non_null(then);
    assert_int_equal(a, b);
    assert_memory_equal(now, then, a);
    mem_free(now);
    mem_free(then);
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void test_cut_files_are_read_up_to_the_last_whole_turn(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(EXAMPLE, 1 << 20, &n, &e);
    assert_non_null(bytes);
    int most = 0;
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(bytes, cut);
        bool is_cut = false;
        err_clear(&e);
        struct trace *t = trace_open(path, &is_cut, &e);
        if (!t) {
            assert_true(cut < 160 && e.code == ERR_FORMAT);
            continue;
        }
        assert_true(is_cut);
        assert_true(trace_records(t) >= most && trace_records(t) <= 6);
        most = trace_records(t);
        trace_free(t);
    }
    assert_int_equal(most, 6);
    mem_free(bytes);
}

static void test_a_flipped_bit_is_refused(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(EXAMPLE, 1 << 20, &n, &e);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 1 << i % 8;
        write_bytes(bytes, n);
        err_clear(&e);
        bool is_cut = false;
        struct trace *t = trace_open(path, &is_cut, &e);
        /* A length that became larger than the file is like a cut. */
        if (t && !is_cut)
            fail_msg("the bit in byte %zu was not seen", i);
        trace_free(t);
        bytes[i] ^= 1 << i % 8;
    }
    bytes[7] = '3';
    write_bytes(bytes, n);
    err_clear(&e);
    assert_null(trace_open(path, NULL, &e));
    assert_non_null(strstr(e.text, "version 3, this program reads 1 and 2"));
    mem_free(bytes);
}

/* ---- the older form ------------------------------------------------------------------------- */

static void test_plain_decoding_of_a_small_model_becomes_version_1(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    struct trace *t = trace_open(TRACES "gen-1.trc", NULL, &e);
    assert_non_null(t);
    struct trace_head h = *trace_head(t);
    h.classes = 1;
    h.has_counts = true;
    struct trace_writer *w = trace_create(path, &h, &e);
    assert_non_null(w);
    for (int i = 0; i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        int32_t token = (int32_t)trace_token(t, &r, 0), ids[64], guess[64];
        float weights[64];
        uint16_t guessed[64];
        trace_turn(w, false, 0, 1, &token);
        for (int l = 0; l < h.layers; l++) {
            trace_row(t, &r, l, 0, ids, weights, guess);
            for (int j = 0; j < h.ranks; j++)
                guessed[j] = (uint16_t)guess[j];
            trace_layer_rows(w, 1, ids, weights, guessed, guess[0] < 0 ? 0 : h.ranks, NULL);
        }
        trace_turn_end(w, true);
    }
    if (!trace_close(w, NULL, &e))
        fail_msg("%s", e.text);
    trace_free(t);
    size_t a, b;
    char *mine = file_read_all(path, 1 << 24, &a, &e);
    char *handed = file_read_all(TRACES "gen-1.trc", 1 << 24, &b, &e);
    assert_int_equal(a, b);
    assert_memory_equal(mine, handed, a);
    mem_free(mine);
    mem_free(handed);
}

/* ---- replays -------------------------------------------------------------------------------- */

static struct replay_result replay(const struct trace *t, enum policy_kind policy, bool is_bound,
                                   double share)
{
    struct replay_drive drive = {0};
    struct replay_config c = {.policy = policy,
                              .is_bound = is_bound,
                              .window_rows = 1,
                              .ahead.is_off = true,
                              .no_look_ahead = true,
                              .arena_bytes = replay_arena_bytes(t, 1, share)};
    struct replay_result out;
    struct err e;
    err_clear(&e);
    if (!replay_run(t, &c, &drive, &out, &e))
        fail_msg("%s", e.text);
    return out;
}

static double rate(struct replay_result r)
{
    return (double)r.hits / (double)(r.hits + r.misses);
}

/* The table of the traces' description (one arena for all layers, cold), in which the order inside
 * a turn is another one. */
static void test_hit_rates_are_those_of_the_traces(void **state)
{
    (void)state;
    static const struct {
        int slots;
        double lru, best;
    } table[] = {{58, 0.285, 0.552},
                 {115, 0.461, 0.756},
                 {144, 0.573, 0.825},
                 {202, 0.769, 0.923},
                 {288, 0.997, 0.997}};
    struct err e;
    err_clear(&e);
    struct trace *t = trace_open(TRACES "decode-valid.trc", NULL, &e);
    assert_non_null(t);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double share = (table[i].slots + 0.5) / 288;
        struct replay_result lru = replay(t, POLICY_LRU, false, share);
        struct replay_result bound = replay(t, POLICY_LRU, true, share);
        assert_int_equal(lru.slots, table[i].slots);
        if (rate(lru) < table[i].lru - 0.0015 || rate(lru) > table[i].lru + 0.0015)
            fail_msg("LRU, %d slots: %f", table[i].slots, rate(lru));
        /* The bound may leave a record out at once, so it is never below optimal replacement. */
        if (rate(bound) < table[i].best - 0.0006 || rate(bound) > table[i].best + 0.003)
            fail_msg("bound, %d slots: %f", table[i].slots, rate(bound));
    }
    trace_free(t);
}

static void test_no_policy_passes_the_bound(void **state)
{
    (void)state;
    static const char *const files[] = {TRACES "gen-2.trc", TRACES "prefill-valid.trc"};
    static const enum policy_kind policies[] = {POLICY_LRU, POLICY_LFU, POLICY_LAYER};
    for (size_t f = 0; f < 2; f++) {
        struct err e;
        err_clear(&e);
        struct trace *t = trace_open(files[f], NULL, &e);
        assert_non_null(t);
        for (int percent = 20; percent <= 100; percent += 40) {
            struct replay_result bound = replay(t, POLICY_LRU, true, percent / 100.0);
            for (size_t p = 0; p < 3; p++) {
                struct replay_result r = replay(t, policies[p], false, percent / 100.0);
                assert_true(r.hits <= bound.hits);
                assert_int_equal(r.hits + r.misses, bound.hits + bound.misses);
            }
        }
        trace_free(t);
    }
}

static int make_folder(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_folder(void **state)
{
    (void)state;
    return unlink(path);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--write")) { /* makes the example anew */
        write_small(argv[2]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_the_example_is_still_written_and_read),
        cmocka_unit_test(test_cut_files_are_read_up_to_the_last_whole_turn),
        cmocka_unit_test(test_a_flipped_bit_is_refused),
        cmocka_unit_test(test_plain_decoding_of_a_small_model_becomes_version_1),
        cmocka_unit_test(test_hit_rates_are_those_of_the_traces),
        cmocka_unit_test(test_no_policy_passes_the_bound),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
