/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table on the drive. A request is sorted, so that each distinct row is read once and the
 * drive is passed in one direction:
 *
 *     key[]   sorted: row << 24 | place in the request      5|2  5|7  9|0  12|1 ...
 *     read    the first key of each row                     ^         ^    ^
 *
 * Up to ROWS_QUEUED reads have a buffer and are with the engine, which decides how many are in
 * flight; when one arrives its row is copied to every place that wants it, and its buffer is used
 * for the next. Rows that were read last are kept and not read again. */
#include "stream/stream.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "stream/row_cache.h"
#include "stream/sort.h"

#define ROWS_QUEUED 1024
#define CANCEL_MS 20 /* how often a wait looks at the caller's cancel flag */
#define PLACE_BITS 24

struct stream_rows {
    struct io *io;
    struct io_queue *queue;
    int file;
    uint64_t table_offset, rows;
    size_t row_bytes, room; /* of a buffer: the aligned superset of any row */
    int most_rows, buffers;
    char *memory; /* [buffers][room], then [most_rows][row_bytes] */
    size_t memory_bytes;
    char *answer;  /* the second part of it */
    uint64_t *key; /* [most_rows] */
    int *key_of;   /* [buffers]: first key of the row that is read into it */
    int *spare;    /* [buffers]: those that nothing is read into */
    int spares;
    int wanted, next; /* keys of the request; the next that has not been asked for */
    bool has_failed;
    struct err error;
    const _Atomic bool *cancel;
    struct row_cache *cache;
    uint64_t bytes_read, wait_us, cache_hits;
};

static size_t room_of_row(size_t row_bytes, size_t io_align)
{
    return mem_round_up(row_bytes + io_align - 1, io_align);
}

static int buffers_for(int most_rows)
{
    return most_rows < ROWS_QUEUED ? most_rows : ROWS_QUEUED;
}

size_t stream_rows_memory(size_t row_bytes, int most_rows, size_t io_align)
{
    int buffers = buffers_for(most_rows);
    return sizeof(struct stream_rows) + (size_t)buffers * (room_of_row(row_bytes, io_align) + 8) +
           (size_t)most_rows * (row_bytes + 8) + io_queue_memory(buffers, 0) +
           row_cache_memory(row_bytes) + 4096;
}

static bool allocate(struct stream_rows *r, struct err *e)
{
    size_t buffers = (size_t)r->buffers, most = (size_t)r->most_rows, answer;
    if (!mem_mul(most, r->row_bytes, &answer) ||
        !mem_add(buffers * r->room, answer, &r->memory_bytes))
        return err_set(e, ERR_MEMORY, "out of memory: %d rows of %zu bytes", r->most_rows,
                       r->row_bytes);
    r->memory = mem_map(r->memory_bytes, "rows", e);
    r->answer = r->memory ? r->memory + buffers * r->room : NULL;
    r->key = mem_alloc_array(most, sizeof *r->key, "rows", e);
    r->key_of = mem_alloc_array(buffers, sizeof *r->key_of, "rows", e);
    r->spare = mem_alloc_array(buffers, sizeof *r->spare, "rows", e);
    r->queue = io_queue_create(r->io, r->buffers, e);
    r->cache = row_cache_create(r->row_bytes, e);
    return r->cache && r->memory && r->key && r->key_of && r->spare && r->queue;
}

struct stream_rows *stream_rows_create(struct io *io, int file, uint64_t table_offset,
                                       uint64_t rows, size_t row_bytes, int most_rows,
                                       struct err *e)
{
    uint64_t bytes, end;
    if (!row_bytes || row_bytes > 1 << 24 || rows >> (64 - PLACE_BITS) ||
        __builtin_mul_overflow(rows, (uint64_t)row_bytes, &bytes) ||
        __builtin_add_overflow(table_offset, bytes, &end) || end > io_file_bytes(io, file)) {
        err_set(e, ERR_FORMAT,
                "%s: a table of %llu rows of %zu bytes at %llu passes the file's end",
                io_file_path(io, file), (unsigned long long)rows, row_bytes,
                (unsigned long long)table_offset);
        return NULL;
    }
    if (most_rows < 1 || most_rows >> PLACE_BITS) {
        err_set(e, ERR_USAGE, "%d rows in one request; 1 to %d are possible", most_rows,
                (1 << PLACE_BITS) - 1);
        return NULL;
    }
    struct stream_rows *r = mem_alloc(sizeof *r, "rows", e);
    if (!r)
        return NULL;
    *r = (struct stream_rows){.io = io,
                              .file = file,
                              .table_offset = table_offset,
                              .rows = rows,
                              .row_bytes = row_bytes,
                              .room = room_of_row(row_bytes, io_align(io)),
                              .most_rows = most_rows,
                              .buffers = buffers_for(most_rows)};
    if (!allocate(r, e)) {
        stream_rows_free(r);
        return NULL;
    }
    for (; r->spares < r->buffers; r->spares++)
        r->spare[r->spares] = r->spares;
    return r;
}

void stream_rows_free(struct stream_rows *r)
{
    if (!r)
        return;
    io_queue_close(r->queue);
    row_cache_free(r->cache);
    mem_unmap(r->memory, r->memory_bytes);
    mem_free(r->key);
    mem_free(r->key_of);
    mem_free(r->spare);
    mem_free(r);
}

static uint64_t row_of_key(uint64_t key)
{
    return key >> PLACE_BITS;
}

/* Copies a row to every place of the request that wants it, from key k on. */
static void answer(struct stream_rows *r, int k, const void *bytes)
{
    uint64_t row = row_of_key(r->key[k]);
    for (; k < r->wanted && row_of_key(r->key[k]) == row; k++)
        memcpy(r->answer + (r->key[k] & ((1 << PLACE_BITS) - 1)) * r->row_bytes, bytes,
               r->row_bytes);
}

static void read_row(struct stream_rows *r, uint64_t row)
{
    uint64_t align = io_align(r->io), from = r->table_offset + row * r->row_bytes;
    uint64_t first = from & ~(align - 1), end = mem_round_up(from + r->row_bytes, align);
    int b = r->spare[--r->spares];
    r->key_of[b] = r->next;
    io_submit(r->queue, IO_ROWS, r->file, first, (size_t)(end - first),
              r->memory + (size_t)b * r->room, (uint64_t)b);
}

/* Answers what is kept, asks for other rows as long as there are buffers. */
static void ask(struct stream_rows *r)
{
    while (r->next < r->wanted && r->spares && !r->has_failed) {
        uint64_t row = row_of_key(r->key[r->next]);
        const void *kept = row_cache_find(r->cache, row);
        if (kept)
            answer(r, r->next, kept);
        else
            read_row(r, row);
        r->cache_hits += kept != NULL;
        while (r->next < r->wanted && row_of_key(r->key[r->next]) == row)
            r->next++;
    }
}

static void note_arrival(struct stream_rows *r, const struct io_completion *c)
{
    int b = (int)c->tag, k = r->key_of[b];
    uint64_t row = row_of_key(r->key[k]);
    r->spare[r->spares++] = b;
    if (c->error) {
        struct err why = {0};
        io_explain(r->io, c, &why);
        r->has_failed = true;
        err_set(&r->error, why.code, "row %llu of the n-gram table: %s", (unsigned long long)row,
                why.text);
        return;
    }
    r->bytes_read += c->bytes;
    uint64_t shift = (r->table_offset + row * r->row_bytes) & (io_align(r->io) - 1);
    answer(r, k, r->memory + (size_t)b * r->room + shift);
    row_cache_put(r->cache, row, r->memory + (size_t)b * r->room + shift);
}

/* Takes completions until none is outstanding; what has not started is given up if told to. False
 * when the caller does not want to wait. */
static bool drain(struct stream_rows *r, bool give_up, struct err *e)
{
    struct io_completion c[32];
    for (int b = 0; give_up && b < r->buffers && io_outstanding(r->queue); b++)
        if (io_cancel(r->queue, (uint64_t)b))
            r->spare[r->spares++] = b;
    while (io_outstanding(r->queue)) {
        int n = io_wait_for(r->queue, c, 32, CANCEL_MS);
        for (int i = 0; i < n; i++)
            note_arrival(r, &c[i]);
        if (!n && r->cancel && atomic_load(r->cancel))
            return err_set(e, ERR_INTERRUPTED, "interrupted");
        if (!give_up)
            ask(r);
    }
    return true;
}

bool stream_rows_begin(struct stream_rows *r, const uint64_t *rows, int n, struct err *e)
{
    if (!drain(r, true, e))
        return false;
    assert(r->spares == r->buffers && n >= 0 && n <= r->most_rows);
    r->has_failed = false;
    err_clear(&r->error);
    r->wanted = r->next = 0;
    for (int i = 0; i < n; i++) {
        if (rows[i] >= r->rows)
            return err_set(e, ERR_NUMERIC, "row %llu of the n-gram table, which has %llu",
                           (unsigned long long)rows[i], (unsigned long long)r->rows);
        r->key[i] = rows[i] << PLACE_BITS | (uint64_t)i;
    }
    sort_u64(r->key, (size_t)n);
    r->wanted = n;
    ask(r);
    return true;
}

bool stream_rows_wait(struct stream_rows *r, const void **bytes, struct err *e)
{
    int64_t start = clock_us();
    bool is_there = drain(r, false, e);
    r->wait_us += (uint64_t)(clock_us() - start);
    *bytes = r->answer;
    if (!is_there)
        return false;
    return !r->has_failed || err_set(e, r->error.code, "%s", r->error.text);
}

void stream_rows_set_cancel(struct stream_rows *r, const _Atomic bool *cancel)
{
    r->cancel = cancel;
}

void stream_rows_add_stats(const struct stream_rows *r, struct stream_stats *out)
{
    out->bytes_rows += r->bytes_read;
    out->bytes_read += r->bytes_read;
    out->wait_us += r->wait_us;
    out->row_cache_hits += r->cache_hits;
}
