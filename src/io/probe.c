/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "io/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define RECORD_BYTES ((uint64_t)3 << 19)
#define POINT_MS 300
#define CANCEL_MS 20    /* how often a wait looks at the cancel flag */
#define READS_LEAST 8   /* a point, however slow the drive */
#define READS_MOST 8192 /* whose latencies are kept */
#define FILE_BYTES ((uint64_t)256 << 20)
#define PIECE_BYTES ((size_t)1 << 20)
#define ROW_BYTES 4096

/* Depths with whole records, then one record in pieces, then rows. */
static const struct shape {
    bool is_row;
    int depth, parts;
} shapes[] = {{false, 1, 1},  {false, 2, 1}, {false, 4, 1}, {false, 8, 1}, {false, 16, 1},
              {false, 32, 1}, {false, 1, 2}, {false, 1, 4}, {false, 1, 8}, {true, 1, 1},
              {true, 8, 1},   {true, 24, 1}, {true, 64, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
_Static_assert(SHAPES <= PROBE_POINTS, "every shape has a point");

/* One point while it is measured. A read r of `depth` lies at memory + r * read_bytes. */
struct measuring {
    const struct probe_options *o;
    const char *path;
    struct io *io;
    struct io_queue *queue;
    char *memory;
    size_t piece_bytes; /* a multiple of the alignment */
    int depth, parts;
    uint64_t places; /* that a read may begin at, in units of the alignment */
    uint64_t random;
    int64_t began[64]; /* of each read that is under way */
    int left[64];      /* its pieces */
    double *latency;   /* [READS_MOST] */
    uint64_t reads;    /* finished */
};

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void submit(struct measuring *m, int r)
{
    size_t read_bytes = m->piece_bytes * (size_t)m->parts;
    uint64_t offset = draw(&m->random) % m->places * io_align(m->io);
    m->began[r] = clock_us();
    m->left[r] = m->parts;
    for (int p = 0; p < m->parts; p++)
        io_submit(m->queue, IO_URGENT, 0, offset + (uint64_t)p * m->piece_bytes, m->piece_bytes,
                  m->memory + (size_t)r * read_bytes + (size_t)p * m->piece_bytes,
                  (uint64_t)(r * m->parts + p));
}

static bool take(struct measuring *m, const struct io_completion *c, bool go_on, struct err *e)
{
    if (c->error)
        return io_explain(m->io, c, e);
    int r = (int)c->tag / m->parts;
    if (--m->left[r])
        return true;
    m->latency[m->reads++ % READS_MOST] = (double)(clock_us() - m->began[r]);
    if (go_on)
        submit(m, r);
    return true;
}

static bool is_cancelled(const struct probe_options *o, struct err *e)
{
    if (o->cancel && atomic_load(o->cancel))
        err_set(e, ERR_INTERRUPTED, "interrupted");
    return e->code != ERR_NONE;
}

/* Of all threads, in microseconds. */
static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Keeps `depth` reads under way for the time; returns the microseconds that all of them took. After
 * an error some may be under way still. */
static int64_t keep_reading(struct measuring *m, struct err *e)
{
    int64_t began = clock_us(),
            end = began + (m->o->point_ms ? m->o->point_ms : POINT_MS) * INT64_C(1000);
    for (int r = 0; r < m->depth; r++)
        submit(m, r);
    while (io_outstanding(m->queue) && !is_cancelled(m->o, e)) {
        struct io_completion done[64];
        int n = io_wait_for(m->queue, done, 64, CANCEL_MS);
        bool go_on = clock_us() < end || m->reads < READS_LEAST;
        for (int i = 0; i < n; i++)
            if (!take(m, &done[i], go_on, e))
                go_on = false;
    }
    return clock_us() - began;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool measure(struct measuring *m, struct probe_point *out, struct err *e)
{
    int64_t cpu = cpu_us(), us = keep_reading(m, e);
    if (e->code != ERR_NONE)
        return false;
    size_t n = m->reads < READS_MOST ? (size_t)m->reads : READS_MOST;
    qsort(m->latency, n, sizeof *m->latency, compare);
    uint64_t bytes = (uint64_t)m->piece_bytes * (uint64_t)m->parts;
    *out = (struct probe_point){
        .bytes = bytes,
        .depth = m->depth,
        .parts = m->parts,
        .gb_s = us > 0 ? (double)(bytes * m->reads) * 1e-3 / (double)us : 0,
        .p50_us = m->latency[n / 2],
        .p99_us = m->latency[n * 99 / 100],
        .cpu_us = (double)(cpu_us() - cpu) / (double)m->reads,
    };
    return true;
}

/* Everything of one point: an engine of its depth, memory, a queue. */
static bool probe_point(const char *path, const struct probe_options *o, const struct shape *s,
                        struct probe *out, double *latency, struct err *e)
{
    struct io_options io_options = {
        .engine = o->engine, .depth = s->depth * s->parts, .ahead_kept = 1};
    struct measuring m = {.o = o,
                          .path = path,
                          .depth = s->depth,
                          .parts = s->parts,
                          .latency = latency,
                          .random = (uint64_t)out->points + 1};
    m.io = io_create(&path, 1, &io_options, e);
    if (!m.io)
        return false;
    size_t align = io_align(m.io);
    uint64_t record = s->is_row ? ROW_BYTES : o->record_bytes ? o->record_bytes : RECORD_BYTES;
    m.piece_bytes = mem_round_up(((size_t)record - 1) / (size_t)s->parts + 1, align);
    size_t read_bytes = m.piece_bytes * (size_t)s->parts, room = read_bytes * (size_t)s->depth;
    uint64_t size = io_file_bytes(m.io, 0);
    bool ok = size >= read_bytes;
    if (ok) {
        m.places = (size - read_bytes) / align + 1;
        m.memory = mem_map(room, "reads", e);
        m.queue = m.memory ? io_queue_create(m.io, s->depth * s->parts, e) : NULL;
        ok = m.queue && measure(&m, &out->point[out->points], e);
    } else {
        err_set(e, ERR_UNSUPPORTED, "%s: has %llu bytes, a read of one record needs %zu", path,
                (unsigned long long)size, read_bytes);
    }
    snprintf(out->engine, sizeof out->engine, "%s", io_engine_name(m.io));
    out->is_direct = io_is_direct(m.io, 0);
    if (m.queue)
        io_queue_close(m.queue);
    io_close(m.io);
    mem_unmap(m.memory, room);
    return ok;
}

bool probe_file(const char *path, const struct probe_options *o, struct probe *out, struct err *e)
{
    *out = (struct probe){0};
    double *latency = mem_alloc_array(READS_MOST, sizeof *latency, "latencies", e);
    bool ok = latency != NULL;
    for (; ok && out->points < SHAPES; out->points += ok) {
        if (o->progress)
            o->progress(o->ctx, out->points, SHAPES);
        ok = probe_point(path, o, &shapes[out->points], out, latency, e);
    }
    mem_free(latency);
    return ok;
}

/* Bytes that no drive makes smaller. */
static bool fill_file(int fd, const char *path, const struct probe_options *o, struct err *e)
{
    uint8_t *piece = mem_alloc(PIECE_BYTES, "data to write", e);
    uint64_t random = 1;
    bool ok = piece != NULL;
    for (uint64_t done = 0; ok && done < FILE_BYTES; done += PIECE_BYTES) {
        for (size_t i = 0; i < PIECE_BYTES; i += 8) {
            uint64_t v = draw(&random);
            memcpy(piece + i, &v, 8);
        }
        ok = !is_cancelled(o, e);
        for (size_t at = 0; ok && at < PIECE_BYTES;) { /* a full disk takes a part first */
            ssize_t n = write(fd, piece + at, PIECE_BYTES - at);
            at += n > 0 ? (size_t)n : 0;
            if (n < 0 && errno != EINTR)
                ok = err_set(e, ERR_IO, "%s: a file of 256 MiB cannot be written: %s", path,
                             strerror(errno));
        }
    }
    if (ok && fsync(fd) != 0)
        ok = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    mem_free(piece);
    return ok;
}

bool probe_folder(const char *folder, const struct probe_options *o, struct probe *out,
                  struct err *e)
{
    size_t room = strlen(folder) + 32;
    char *path = mem_alloc(room, "a path", e);
    if (!path)
        return false;
    snprintf(path, room, "%s/.strata-probe-XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    bool ok = fd >= 0 ||
              err_set(e, ERR_IO, "%s: a file cannot be made here: %s", folder, strerror(errno));
    char without_name[32];
    snprintf(without_name, sizeof without_name, "/proc/self/fd/%d", fd);
    /* A program that is killed leaves nothing behind where the file can be read without its name. */
    bool has_name = fd >= 0 && (access(without_name, R_OK) != 0 || unlink(path) != 0);
    ok = ok && fill_file(fd, path, o, e) && probe_file(has_name ? path : without_name, o, out, e);
    if (fd >= 0)
        close(fd);
    if (has_name)
        unlink(path);
    mem_free(path);
    return ok;
}

double probe_gb_s(const struct probe *p)
{
    double best = 0;
    for (int i = 0; i < p->points; i++)
        if (p->point[i].bytes > ROW_BYTES && p->point[i].gb_s > best)
            best = p->point[i].gb_s;
    return best;
}

double probe_latency_us(const struct probe *p, int *parts)
{
    double best = 0;
    *parts = 1;
    for (int i = 0; i < p->points; i++) {
        const struct probe_point *at = &p->point[i];
        /* Pieces must be worth it: one more command is a cost that this figure does not show. */
        double worth = best * (at->parts > *parts ? 0.9 : 1);
        if (at->bytes > ROW_BYTES && at->depth == 1 && (!best || at->p50_us < worth)) {
            best = at->p50_us;
            *parts = at->parts;
        }
    }
    return best;
}

/* The least deep point of one piece, of rows or of records. */
static const struct probe_point *shallowest(const struct probe *p, bool of_rows)
{
    const struct probe_point *best = NULL;
    for (int i = 0; i < p->points; i++) {
        const struct probe_point *at = &p->point[i];
        if (at->parts == 1 && (at->bytes <= ROW_BYTES) == of_rows &&
            (!best || at->depth < best->depth))
            best = at;
    }
    return best;
}

/* What a read alone takes besides moving its bytes. */
static double delay_of(const struct probe_point *at, double bytes_us)
{
    double us = at->p50_us - (bytes_us > 0 ? (double)at->bytes * at->depth / bytes_us : 0);
    return us > 0 ? us : 0;
}

/* Time of processors, which grows with the bytes from that of a row. */
static void cpu_of(const struct probe_point *row, const struct probe_point *record,
                   struct io_drive *d)
{
    d->cpu_us = record->cpu_us;
    if (!row || row->cpu_us <= 0 || row->cpu_us >= record->cpu_us || row->bytes >= record->bytes)
        return;
    d->cpu_byte_us = (record->cpu_us - row->cpu_us) / (double)(record->bytes - row->bytes);
    d->cpu_us = row->cpu_us - d->cpu_byte_us * (double)row->bytes;
    d->cpu_us = d->cpu_us > 0 ? d->cpu_us : 0;
}

struct io_drive probe_drive(const struct probe *p)
{
    const struct probe_point *row = shallowest(p, true), *record = shallowest(p, false);
    struct io_drive d = {.bytes_us = probe_gb_s(p) * 1e3};
    double of_row = row ? delay_of(row, d.bytes_us) : 0;
    double of_record = record ? delay_of(record, d.bytes_us) : of_row;
    if (!row || of_row > of_record)
        of_row = of_record;
    d.delay_us = of_row;
    if (row && record && record->bytes > row->bytes) {
        d.delay_byte_us = (of_record - of_row) / (double)(record->bytes - row->bytes);
        d.delay_us -= d.delay_byte_us * (double)row->bytes;
        d.delay_us = d.delay_us > 0 ? d.delay_us : 0;
    }
    if (record && record->cpu_us > 0)
        cpu_of(row, record, &d);
    return d;
}
