/* SPDX-License-Identifier: Apache-2.0 */
/* The planner against a simulator that knows neither slots nor reads: residency, hits and misses are
 * functions of the history of turns; every wanted expert is handed out once, whole; faults and
 * cancelled turns leave a stream that works. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "layers.h"
#include "stream/arena.h"

/* ---- the reference: a list of residents a class, oldest first ---- */

struct resident {
    int layer, expert;
    bool earned, wanted;
    unsigned sweep, rows;
};

struct reference {
    struct arena_layout arena;
    size_t align;
    struct resident list[ARENA_CLASSES][LAYERS * MOST_EXPERTS];
    int count[ARENA_CLASSES];
    unsigned sweep;
    int last_layer;
    uint64_t hits, misses;
};

static int find(struct reference *m, int k, int layer, int expert)
{
    for (int i = 0; i < m->count[k]; i++)
        if (m->list[k][i].layer == layer && m->list[k][i].expert == expert)
            return i;
    return -1;
}

static struct resident take_out(struct reference *m, int k, int i)
{
    struct resident r = m->list[k][i];
    memmove(&m->list[k][i], &m->list[k][i + 1],
            sizeof r * (size_t)(--m->count[k] - i));
    return r;
}

/* The victim that makes room for a record wanted by `rows` rows, or -1. */
static int reference_victim(struct reference *m, int k, int layer, bool is_band, unsigned rows)
{
    int guests = 0, guest = -1, slots = m->arena.class[k].slots;
    int share = 2 * layers[layer].experts < slots / 2 ? 2 * layers[layer].experts : slots / 2;
    for (int i = 0; i < m->count[k]; i++) {
        struct resident *r = &m->list[k][i], *g = guest < 0 ? r : &m->list[k][guest];
        guests += !r->earned;
        if (!r->earned && !r->wanted &&
            (guest < 0 || r->sweep < g->sweep || (r->sweep == g->sweep && r->rows < g->rows)))
            guest = i;
    }
    for (int i = 0; i < m->count[k]; i++)
        if (!m->list[k][i].wanted &&
            (!is_band || (m->list[k][i].earned && guests < (share ? share : 1))))
            return i;
    bool worth = guest >= 0 && (m->list[k][guest].sweep < m->sweep || m->list[k][guest].rows < rows);
    return is_band && worth ? guest : -1;
}

static void reference_turn(struct reference *m, int layer, const int32_t *ids, int n, bool is_band)
{
    int wanted[MOST_EXPERTS], distinct = 0;
    unsigned rows[MOST_EXPERTS] = {0};
    for (int i = 0; i < n; i++)
        if (!rows[ids[i]]++)
            wanted[distinct++] = ids[i];
    for (int i = 1; i < distinct; i++) /* insertion sort: most rows first, stable */
        for (int j = i; j > 0 && rows[wanted[j]] > rows[wanted[j - 1]]; j--) {
            int x = wanted[j];
            wanted[j] = wanted[j - 1];
            wanted[j - 1] = x;
        }
    if (is_band) {
        m->sweep += layer <= m->last_layer;
        m->last_layer = layer;
    }
    struct arena_layer place = arena_place_layer(&layers[layer], m->align);
    int k = arena_class_of(&m->arena, &place);
    for (int j = 0, i; j < distinct; j++)
        if ((i = find(m, k, layer, wanted[j])) >= 0)
            m->list[k][i].wanted = true;
    bool gave_up = false;
    for (int j = 0; j < distinct; j++) {
        if (find(m, k, layer, wanted[j]) >= 0) {
            m->hits++;
            continue;
        }
        m->misses++;
        if (m->count[k] == m->arena.class[k].slots) {
            int victim = gave_up ? -1 : reference_victim(m, k, layer, is_band, rows[wanted[j]]);
            gave_up = victim < 0;
            if (gave_up)
                continue;
            take_out(m, k, victim);
        }
        m->list[k][m->count[k]++] = (struct resident){
            .layer = layer, .expert = wanted[j], .wanted = true, .earned = !is_band};
    }
    for (int j = distinct - 1, i; j >= 0; j--) {
        if ((i = find(m, k, layer, wanted[j])) < 0)
            continue;
        m->list[k][i].wanted = false;
        if (is_band && m->list[k][i].earned)
            continue;
        struct resident r = take_out(m, k, i);
        r.earned = !is_band;
        r.sweep = is_band ? m->sweep : r.sweep;
        r.rows = is_band ? rows[wanted[j]] : r.rows;
        m->list[k][m->count[k]++] = r;
    }
}

static void check_residents(struct reference *m, const struct stream *s)
{
    int resident = 0, expected = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int x = 0; x < layers[l].experts; x++)
            resident += stream_is_resident(s, l, x);
    for (int k = 0; k < m->arena.classes; k++) {
        expected += m->count[k];
        for (int i = 0; i < m->count[k]; i++)
            if (!stream_is_resident(s, m->list[k][i].layer, m->list[k][i].expert))
                fail_msg("expert %d of layer %d is not resident", m->list[k][i].expert,
                         m->list[k][i].layer);
    }
    assert_int_equal(resident, expected);
}

/* ---- turns ---- */

/* Layers in order, as windows of 1 to 4 rows or as bands; ids favour small numbers. */
struct history {
    uint64_t random;
    int layer, rows, k;
    bool is_band;
    int32_t ids[400];
    int n;
};

static void next_turn(struct history *h)
{
    do {
        h->layer = (h->layer + 1) % LAYERS;
        if (h->layer)
            continue;
        h->is_band = draw(&h->random, 10) == 0;
        h->rows = h->is_band ? 1 + (int)draw(&h->random, 100) : 1 + (int)draw(&h->random, 4);
    } while (!layers[h->layer].experts);
    uint32_t experts = (uint32_t)layers[h->layer].experts;
    h->k = experts < 4 ? (int)experts : 4;
    h->n = h->rows * h->k;
    for (int r = 0; r < h->rows; r++)
        for (int j = 0; j < h->k; j++) {
            uint32_t a = draw(&h->random, experts), b = draw(&h->random, experts);
            h->ids[r * h->k + j] = (int32_t)(a < b ? a : b);
        }
}

/* Takes a turn to its end and checks what is handed out. */
static void take_turn(struct stream *s, const struct history *h, uint64_t *random)
{
    struct err e = {0};
    bool wanted[MOST_EXPERTS] = {false}, was_resident[MOST_EXPERTS] = {false};
    int left = 0, residents = 0;
    for (int i = 0; i < h->n; i++) {
        int x = h->ids[i];
        left += !wanted[x];
        residents += !wanted[x] && stream_is_resident(s, h->layer, x);
        was_resident[x] = stream_is_resident(s, h->layer, x);
        wanted[x] = true;
    }
    if (!stream_begin(s, h->layer, h->ids, h->n, h->is_band, &e))
        fail_msg("%s", e.text);
    struct stream_record out[64];
    int n, most = 1 + (int)draw(random, 64);
    while ((n = stream_next(s, out, most, &e)) > 0) {
        assert_true(n <= most);
        for (int i = 0; i < n; i++) {
            assert_true(wanted[out[i].expert]);
            wanted[out[i].expert] = false;
            assert_true(was_resident[out[i].expert] == (residents > 0)); /* residents first */
            residents -= residents > 0;
        }
        for (int i = 0; i < n; i++)
            assert_true(record_is_right(h->layer, &out[i]));
        left -= n;
    }
    if (n < 0)
        fail_msg("%s", e.text);
    assert_int_equal(left, 0);
    assert_int_equal(stream_next(s, out, 1, &e), 0);
    stream_end(s);
}

/* A drive that is the copy in memory; every `fail_every`-th read fails. */
struct memory_drive {
    ino_t first_file;
    _Atomic unsigned reads;
    _Atomic unsigned fail_every; /* 0: none */
};

static ssize_t read_memory(void *ctx, int fd, void *to, size_t n, off_t offset)
{
    struct memory_drive *d = ctx;
    unsigned every = d->fail_every, read = ++d->reads;
    if (every && read % every == 0) {
        errno = EIO;
        return -1;
    }
    struct stat st;
    if (fstat(fd, &st))
        return -1;
    if (offset >= FILE_BYTES)
        return 0;
    n = n < (size_t)(FILE_BYTES - offset) ? n : (size_t)(FILE_BYTES - offset);
    memcpy(to, file_copy[st.st_ino != d->first_file] + offset, n);
    return (ssize_t)n;
}

static struct io *open_memory(struct memory_drive *d, int depth)
{
    struct stat st;
    assert_int_equal(stat(file_path[0], &st), 0);
    d->first_file = st.st_ino;
    struct err e = {0};
    struct io *io = io_create(file_paths, FILES,
                              &(struct io_options){.depth = depth, .rows_depth = 1,
                                                   .pread = read_memory, .pread_ctx = d},
                              &e);
    assert_non_null(io);
    return io;
}

static struct stream *open_stream(struct io *io, double share)
{
    struct err e = {0};
    struct stream_config c = config_with(share, io_align(io));
    struct stream *s = stream_create(&c, io, &e);
    if (!s)
        fail_msg("%s", e.text);
    return s;
}

static void start_reference(struct reference *m, struct io *io, double share)
{
    struct err e = {0};
    struct stream_config c = config_with(share, io_align(io));
    *m = (struct reference){.align = io_align(io), .last_layer = LAYERS};
    assert_true(arena_cut(&c, m->align, &m->arena, &e));
}

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
    struct io *io = io_create(file_paths, FILES, &(struct io_options){.engine = "sim:delay=1-3ms"}, &e);
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
    assert_true(mem_in_use() - before <=
                c.arena_bytes + stream_table_bytes(&c, io_align(io)));
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
