/* SPDX-License-Identifier: Apache-2.0 */
/* A simulator of the logical cache that knows neither slots nor reads, random histories of turns,
 * and a turn that is driven to its end and checked. */
#ifndef STRATA_TESTS_STREAM_REFERENCE_H
#define STRATA_TESTS_STREAM_REFERENCE_H

#include <stdatomic.h>
#include <sys/stat.h>

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
    int count[ARENA_CLASSES], borrowed[ARENA_CLASSES];
    bool is_prompt;
    int prompt_rows; /* to come */
    unsigned sweep;
    int last_layer;
    uint64_t hits, misses;
};

static inline int find(struct reference *m, int k, int layer, int expert)
{
    for (int i = 0; i < m->count[k]; i++)
        if (m->list[k][i].layer == layer && m->list[k][i].expert == expert)
            return i;
    return -1;
}

static inline struct resident take_out(struct reference *m, int k, int i)
{
    struct resident r = m->list[k][i];
    memmove(&m->list[k][i], &m->list[k][i + 1], sizeof r * (size_t)(--m->count[k] - i));
    return r;
}

/* The victim that makes room for a record wanted by `rows` rows, or -1. */
static inline int reference_victim(struct reference *m, int k, int layer, bool is_band,
                                   unsigned rows)
{
    int guests = 0, guest = -1, slots = m->arena.class[k].slots;
    int share = 2 * layers[layer].experts < slots / 2 ? 2 * layers[layer].experts : slots / 2;
    share -= m->borrowed[k];
    for (int i = 0; i < m->count[k]; i++) {
        struct resident *r = &m->list[k][i], *g = guest < 0 ? r : &m->list[k][guest];
        guests += !r->earned;
        if (!r->earned && !r->wanted && r->layer <= layer &&
            (guest < 0 || r->sweep < g->sweep || (r->sweep == g->sweep && r->rows < g->rows)))
            guest = i;
    }
    for (int i = 0; i < m->count[k]; i++)
        if (!m->list[k][i].wanted && (!is_band || (m->list[k][i].earned && guests < share)))
            return i;
    bool worth =
        guest >= 0 && (m->list[k][guest].sweep < m->sweep || m->list[k][guest].rows < rows);
    return is_band && worth ? guest : -1;
}

static inline int class_of(const struct reference *m, int layer)
{
    struct arena_layer place = arena_place_layer(&layers[layer], m->align);
    return arena_class_of(&m->arena, &place);
}

static inline int places(const struct reference *m, int k)
{
    return m->arena.class[k].slots - m->borrowed[k];
}

static inline void reference_prompt_end(struct reference *m)
{
    if (!m->is_prompt)
        return;
    m->is_prompt = false;
    for (int k = 0; k < m->arena.classes; k++)
        m->borrowed[k] = 0;
}

/* In a prompt's last band a class keeps borrowed what belongs to its layers that are to come. */
static inline void reference_give_back(struct reference *m, int layer, int k)
{
    int of_class = 0, later = 0;
    for (int l = 0; l < LAYERS; l++) {
        of_class += layers[l].experts && class_of(m, l) == k;
        later += layers[l].experts && class_of(m, l) == k && l > layer;
    }
    int most = m->arena.class[k].slots * later / of_class;
    if (m->is_prompt && m->prompt_rows <= 0 && m->borrowed[k] > most)
        m->borrowed[k] = most;
}

static inline void reference_prompt_begin(struct reference *m, int rows)
{
    reference_prompt_end(m);
    m->is_prompt = true;
    m->prompt_rows = rows;
    m->last_layer = LAYERS;
    for (int k = 0; k < m->arena.classes; k++) {
        const struct arena_class *a = &m->arena.class[k];
        int most = rows * 4, experts = 0;
        for (int l = 0; l < LAYERS; l++)
            if (layers[l].experts > experts && class_of(m, l) == k)
                experts = layers[l].experts;
        experts -= m->count[k] * experts / (int)a->records;
        most = (most < experts ? most : experts) + (rows < experts ? rows : experts);
        most = most < a->slots / 2 ? most : a->slots / 2;
        most = most < a->slots - a->least ? most : a->slots - a->least;
        m->borrowed[k] = (uint64_t)a->slots >= a->records ? 0 : most;
        while (m->count[k] > places(m, k))
            take_out(m, k, 0);
    }
}

static inline void reference_turn(struct reference *m, int layer, const int32_t *ids, int n,
                                  bool is_band)
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
    if (!is_band)
        reference_prompt_end(m);
    m->sweep += is_band && layer <= m->last_layer;
    m->last_layer = is_band ? layer : m->last_layer;
    m->prompt_rows -= layer == 0 ? n / 4 : 0; /* 4 experts a row */
    int k = class_of(m, layer);
    if (is_band)
        reference_give_back(m, layer, k);
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
        if (m->count[k] == places(m, k)) {
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

static inline void check_residents(struct reference *m, const struct stream *s)
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

/* Layers in order, as windows of 1 to 8 rows or as bands; ids favour small numbers. */
struct history {
    uint64_t random;
    int layer, rows, k;
    bool is_band;
    int32_t ids[400];
    int n;
};

static inline void next_turn(struct history *h)
{
    do {
        h->layer = (h->layer + 1) % LAYERS;
        if (h->layer)
            continue;
        h->is_band = draw(&h->random, 10) == 0;
        h->rows = h->is_band ? 1 + (int)draw(&h->random, 100) : 1 + (int)draw(&h->random, 8);
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
static inline void take_turn(struct stream *s, const struct history *h, uint64_t *random)
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

static inline ssize_t read_memory(void *ctx, int fd, void *to, size_t n, off_t offset)
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

static inline struct io *open_memory(struct memory_drive *d, int depth)
{
    struct stat st;
    assert_int_equal(stat(file_path[0], &st), 0);
    d->first_file = st.st_ino;
    struct err e = {0};
    struct io *io = io_create(
        file_paths, FILES,
        &(struct io_options){.depth = depth, .rows_depth = 1, .pread = read_memory, .pread_ctx = d},
        &e);
    assert_non_null(io);
    return io;
}

static inline struct stream *open_stream(struct io *io, double share)
{
    struct err e = {0};
    struct stream_config c = config_with(share, io_align(io));
    struct stream *s = stream_create(&c, io, &e);
    if (!s)
        fail_msg("%s", e.text);
    return s;
}

static inline void start_reference(struct reference *m, struct io *io, double share)
{
    struct err e = {0};
    struct stream_config c = config_with(share, io_align(io));
    *m = (struct reference){.align = io_align(io), .last_layer = LAYERS};
    assert_true(arena_cut(&c, m->align, &m->arena, &e));
}

#endif
