/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: what is written is read, whatever is damaged is refused, what was cut is read up to its
 * last whole turn; and replays count what the description of the handed traces says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "stream/replay.h"
#include "stream/trace.h"

#define EXAMPLE TEST_DATA "/own/trace/small.trc"
#define FAR_EXAMPLE TEST_DATA "/own/trace/far.trc" /* the same with guesses two layers ahead */
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
    uint16_t guess[8 * RANKS], far[8 * RANKS];
    for (int row = 0; row < rows; row++)
        tokens[row] = 1000 * turn + row;
    trace_turn(w, is_band, 0, rows, tokens);
    for (int l = 0; l < LAYERS - 1; l++) { /* the last layer has no experts */
        for (int row = 0; row < rows; row++) {
            for (int i = 0; i < USED; i++) {
                ids[row * USED + i] = id_at(turn, l, row, i);
                weights[row * USED + i] = i ? 0.25f : 0.75f;
            }
            for (int i = 0; i < RANKS; i++) {
                guess[row * RANKS + i] = (uint16_t)id_at(turn, l + 1, row, i);
                far[row * RANKS + i] = (uint16_t)id_at(turn, l + 2, row, i);
            }
        }
        const uint32_t counts[TRACE_COUNTS] = {1, 2, 3, 4, (uint32_t)turn};
        const struct trace_guess made[] = {{guess, l ? 0 : RANKS}, {far, l ? 0 : RANKS}};
        trace_layer_rows(w, rows, ids, weights, made, counts);
    }
    trace_turn_end(w, is_whole);
}

static void write_small(const char *to, int guess_layers)
{
    struct trace_layer layer[LAYERS] = {{8192, 0}, {4096, 1}, {0, 0}};
    struct trace_head h = {.layers = LAYERS,
                           .experts = EXPERTS,
                           .used = USED,
                           .ranks = RANKS,
                           .guess_layers = guess_layers,
                           .layer = layer,
                           .classes = 2,
                           .slots = {100, 60},
                           .has_counts = true,
                           .text = guess_layers == 1 ? "policy=lru\nmoce=0\n"
                                                     : "policy=lru\nwindow_rows=2\n"
                                                       "arena_bytes=700000\nread_ahead=2\n"
                                                       "moce=0\n"};
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
            int32_t ids[USED], guess[RANKS], far[RANKS];
            float weights[USED];
            bool has_far = trace_far_guess(t, &r, l, row, far);
            assert_int_equal(has_far, trace_head(t)->guess_layers == 2);
            trace_row(t, &r, l, row, ids, weights, guess);
            for (int i = 0; i < USED; i++)
                assert_int_equal(ids[i], id_at(turn, l, row, i));
            assert_true(weights[0] == 0.75f && weights[1] == 0.25f);
            for (int i = 0; i < RANKS; i++)
                assert_int_equal(guess[i], l ? -1 : id_at(turn, l + 1, row, i));
            for (int i = 0; has_far && i < RANKS; i++)
                assert_int_equal(far[i], l ? -1 : id_at(turn, l + 2, row, i));
        }
    }
    uint32_t counts[TRACE_COUNTS];
    assert_true(trace_counts(t, &r, 1, counts));
    assert_int_equal(counts[TRACE_WASTED], turn);
}

static void check_small(const char *from, int guess_layers)
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
    assert_int_equal(trace_version(t), 1 + guess_layers);
    assert_int_equal(h->layers, LAYERS);
    assert_int_equal(h->guess_layers, guess_layers);
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
    for (int guess_layers = 1; guess_layers <= 2; guess_layers++) {
        write_small(path, guess_layers);
        check_small(path, guess_layers);
    }
}

static void check_example(const char *example, int guess_layers)
{
    check_small(example, guess_layers);
    write_small(path, guess_layers);
    struct err e;
    err_clear(&e);
    size_t a, b;
    char *now = file_read_all(path, 1 << 20, &a, &e),
         *then = file_read_all(example, 1 << 20, &b, &e);
    assert_non_null(now);
    assert_non_null(then);
    assert_int_equal(a, b);
    assert_memory_equal(now, then, a);
    mem_free(now);
    mem_free(then);
}

static void test_the_examples_are_still_written_and_read(void **state)
{
    (void)state;
    check_example(EXAMPLE, 1);
    check_example(FAR_EXAMPLE, 2);
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void check_cuts(const char *example)
{
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(example, 1 << 20, &n, &e);
    assert_non_null(bytes);
    int most = 0;
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(bytes, cut);
        bool is_cut = false;
        err_clear(&e);
        struct trace *t = trace_open(path, &is_cut, &e);
        if (!t) {
            assert_true(cut < 225 && e.code == ERR_FORMAT);
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

static void test_cut_files_are_read_up_to_the_last_whole_turn(void **state)
{
    (void)state;
    check_cuts(EXAMPLE);
    check_cuts(FAR_EXAMPLE);
}

static void check_flips(const char *example)
{
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(example, 1 << 20, &n, &e);
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
    bytes[7] = '4';
    write_bytes(bytes, n);
    err_clear(&e);
    assert_null(trace_open(path, NULL, &e));
    assert_non_null(strstr(e.text, "version 4, this program reads 1, 2 and 3"));
    mem_free(bytes);
}

static void test_a_flipped_bit_is_refused(void **state)
{
    (void)state;
    check_flips(EXAMPLE);
    check_flips(FAR_EXAMPLE);
}

static void refuses(const char *bytes, size_t n, const char *why)
{
    struct err e;
    err_clear(&e);
    write_bytes(bytes, n);
    assert_null(trace_open(path, NULL, &e));
    if (e.code != ERR_FORMAT || !strstr(e.text, why))
        fail_msg("\"%s\" does not say: %s", e.text, why);
}

/* In a file without its end, whose checksum nobody can compare. */
static void test_wrong_guesses_two_layers_ahead_are_refused(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(FAR_EXAMPLE, 1 << 20, &n, &e);
    assert_non_null(bytes);
    n -= 20;
    struct trace *t;
    char *last = bytes + n - strlen("compute_ms=1.5\n");
    assert_memory_equal(last, "compute_ms=1.5\n", 15);
    /* The last window has two rows; behind its last layer's there are but the text and its head. */
    uint8_t *far = (uint8_t *)last - 9 - 2 * 2 * RANKS;
    assert_int_equal(bytes_u16(far), TRACE_NO_EXPERT); /* layer 1 made none */
    for (int i = 0; i < 2 * RANKS; i++) {
        bytes_put_u16(far + 2 * i, EXPERTS);
        refuses(bytes, n, "a guess that does not exist");
        bytes_put_u16(far + 2 * i, TRACE_NO_EXPERT - 1);
        refuses(bytes, n, "a guess that does not exist");
        bytes_put_u16(far + 2 * i, EXPERTS - 1);
    }
    write_bytes(bytes, n);
    t = trace_open(path, NULL, &e);
    assert_non_null(t);
    trace_free(t);
    mem_free(bytes);
}

/* Sizes whose sum no file can have, and windows that no run makes: what counts with them would pass
 * the largest number. */
static void test_sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(FAR_EXAMPLE, 1 << 20, &n, &e);
    assert_non_null(bytes);
    n -= 20;
    uint8_t *layer = (uint8_t *)bytes + 56 + bytes_u32((uint8_t *)bytes + 48);
    assert_int_equal(bytes_u64(layer), 8192);
    for (int shift = 42; shift <= 63; shift++) { /* times 300 experts */
        bytes_put_u64(layer, (uint64_t)1 << shift);
        refuses(bytes, n, "a layer's record size");
    }
    bytes_put_u64(layer, (uint64_t)1 << 41); /* alone it could be */
    bytes_put_u64(layer + 12, (uint64_t)1 << 41);
    refuses(bytes, n, "a layer's record size");
    bytes_put_u64(layer + 12, 4096);
    bytes_put_u64(layer, 8192);
    struct trace *t = trace_open(FAR_EXAMPLE, NULL, &e);
    struct trace_record r;
    trace_record_at(t, trace_records(t) - 2, &r);
    assert_int_equal(r.kind, TRACE_WINDOW);
    uint8_t *rows = NULL;
    for (uint8_t *at = layer; !rows && at < (uint8_t *)bytes + n; at++)
        if (!memcmp(at, r.at - 9, 20))
            rows = at + 5;
    assert_int_equal(bytes_u32(rows), 2);
    trace_free(t);
    bytes_put_u32(rows, 1025);
    refuses(bytes, n, "a record of too many rows");
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
    h.guess_layers = 1;
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
            const struct trace_guess made[] = {{guessed, guess[0] < 0 ? 0 : h.ranks}, {NULL, 0}};
            trace_layer_rows(w, 1, ids, weights, made, NULL);
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

/* Four layers; every token uses experts that none before it has used. One layer ahead nothing that
 * is guessed is right, two layers ahead everything. */
static void write_far_right(int tokens)
{
    enum { L = 4, N = 2 };
    struct trace_layer layer[L] = {{4096, 0}, {4096, 0}, {4096, 0}, {4096, 0}};
    struct trace_head h = {.layers = L,
                           .experts = EXPERTS,
                           .used = N,
                           .ranks = N,
                           .guess_layers = 2,
                           .layer = layer,
                           .classes = 1,
                           .slots = {16}};
    struct err e;
    err_clear(&e);
    struct trace_writer *w = trace_create(path, &h, &e);
    assert_non_null(w);
    for (int32_t k = 0; k < tokens; k++) {
        trace_turn(w, false, 0, 1, &k);
        for (int l = 0; l < L; l++) {
            int32_t ids[N] = {N * k, N * k + 1};
            uint16_t wrong[N] = {(uint16_t)(298 - k), (uint16_t)(299 - k)};
            uint16_t right[N] = {(uint16_t)ids[0], (uint16_t)ids[1]};
            const struct trace_guess made[] = {{wrong, l + 1 < L ? N : 0},
                                               {right, l + 2 < L ? N : 0}};
            trace_layer_rows(w, 1, ids, (const float[]){0.75f, 0.25f}, made, NULL);
        }
        trace_turn_end(w, true);
    }
    if (!trace_close(w, NULL, &e))
        fail_msg("%s", e.text);
}

static void test_guesses_two_layers_ahead_are_replayed(void **state)
{
    (void)state;
    enum { TOKENS = 20 };
    struct err e;
    struct replay_drive drive = {0};
    struct replay_result out[2];
    for (int distance = 1; distance <= 2; distance++) {
        write_far_right(TOKENS);
        err_clear(&e);
        struct trace *t = trace_open(path, NULL, &e);
        assert_non_null(t);
        assert_int_equal(trace_version(t), 3); /* more than 255 experts */
        struct replay_config c = {.window_rows = 1,
                                  .ahead = {.ranks = 2, .distance = distance},
                                  .arena_bytes = replay_arena_bytes(t, 1, 0.2)};
        if (!replay_run(t, &c, &drive, &out[distance - 1], &e))
            fail_msg("%s", e.text);
        trace_free(t);
    }
    /* Two experts of four layers are missed; two layers ahead those of the last two are there. */
    assert_true(out[0].hits == 0 && out[0].misses == 8 * TOKENS);
    assert_true(out[1].hits == 0 && out[1].misses == 8 * TOKENS);
    assert_true(out[0].useful + out[0].late == 0 && out[0].wasted > 0);
    assert_int_equal(out[1].useful + out[1].late, 4 * TOKENS);
    assert_int_equal(out[1].wasted, 0);
}

/* The run's own configuration is text of the file, so it may say anything. */
static void test_a_foreign_configuration_is_none(void **state)
{
    (void)state;
    static const char *const foreign[] = {"-1", " 0", "65", "-9", "2x", "+-", "\n=", "au"};
    struct err e;
    err_clear(&e);
    size_t n;
    char *bytes = file_read_all(FAR_EXAMPLE, 1 << 20, &n, &e);
    assert_non_null(bytes);
    const char key[] = "read_ahead=2\nmoce"; /* one more character fits in place of the line's end */
    char *at = bytes;
    while (memcmp(at, key, strlen(key)) != 0)
        at++;
    n -= 20;
    for (size_t i = 0; i <= sizeof foreign / sizeof *foreign; i++) {
        bool is_own = i == sizeof foreign / sizeof *foreign;
        memcpy(at + strlen("read_ahead="), is_own ? "2\n" : foreign[i], 2);
        if (!is_own)
            memcpy(at + strlen("read_ahead=??"), "\noce", 4);
        else
            memcpy(at + strlen("read_ahead=2\n"), "moce", 4);
        write_bytes(bytes, n);
        struct trace *t = trace_open(path, NULL, &e);
        struct replay_config c;
        assert_non_null(t);
        assert_int_equal(replay_own_config(t, &c), is_own);
        assert_true(!is_own || (c.ahead.ranks == 2 && c.arena_bytes == 700000));
        trace_free(t);
    }
    mem_free(bytes);
}

static void test_a_replay_refuses_what_it_cannot_know(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    struct trace *t = trace_open(TRACES "gen-1.trc", NULL, &e);
    assert_non_null(t);
    struct replay_drive drive = {0};
    struct replay_result out;
    struct replay_config c = {.window_rows = 1,
                              .ahead = {.ranks = 4, .distance = 2},
                              .arena_bytes = replay_arena_bytes(t, 1, 0.5)};
    assert_false(replay_run(t, &c, &drive, &out, &e));
    assert_true(e.code == ERR_USAGE && strstr(e.text, "no router's guesses two layers ahead"));
    const double wrong[] = {NAN, INFINITY, -INFINITY, -1e-9, 1.1 * REPLAY_COMPUTE_MS_MOST};
    c.ahead.distance = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        drive.compute_ms = wrong[i];
        err_clear(&e);
        assert_false(replay_run(t, &c, &drive, &out, &e));
        assert_true(e.code == ERR_USAGE && strstr(e.text, "the time of a token besides waiting"));
    }
    trace_free(t);
}

static void test_a_replay_can_be_called_off(void **state)
{
    (void)state;
    atomic_bool cancel;
    struct err e;
    err_clear(&e);
    struct trace *t = trace_open(TRACES "gen-1.trc", NULL, &e);
    assert_non_null(t);
    atomic_init(&cancel, true);
    for (int is_bound = 0; is_bound < 2; is_bound++) {
        struct replay_drive drive = {0};
        struct replay_result out;
        struct replay_config c = {.window_rows = 1,
                                  .is_bound = is_bound,
                                  .arena_bytes = replay_arena_bytes(t, 1, 0.5),
                                  .cancel = &cancel};
        err_clear(&e);
        assert_false(replay_run(t, &c, &drive, &out, &e));
        assert_int_equal(e.code, ERR_INTERRUPTED);
    }
    trace_free(t);
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
    if (argc == 4 && !strcmp(argv[1], "--write")) { /* makes the examples anew */
        write_small(argv[2], 1);
        write_small(argv[3], 2);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_the_examples_are_still_written_and_read),
        cmocka_unit_test(test_cut_files_are_read_up_to_the_last_whole_turn),
        cmocka_unit_test(test_a_flipped_bit_is_refused),
        cmocka_unit_test(test_wrong_guesses_two_layers_ahead_are_refused),
        cmocka_unit_test(test_sizes_that_cannot_be_are_refused),
        cmocka_unit_test(test_plain_decoding_of_a_small_model_becomes_version_1),
        cmocka_unit_test(test_hit_rates_are_those_of_the_traces),
        cmocka_unit_test(test_no_policy_passes_the_bound),
        cmocka_unit_test(test_guesses_two_layers_ahead_are_replayed),
        cmocka_unit_test(test_a_foreign_configuration_is_none),
        cmocka_unit_test(test_a_replay_refuses_what_it_cannot_know),
        cmocka_unit_test(test_a_replay_can_be_called_off),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
