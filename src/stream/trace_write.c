/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/half.h"
#include "base/mem.h"
#include "stream/trace.h"

#define BUFFER_BYTES ((size_t)256 << 10)
#define V1_HEAD_BYTES 32
#define V1_NO_EXPERT 255

struct trace_writer {
    char *path;
    int fd;
    int used, ranks, layers, experts;
    bool has_counts, has_far;
    int layers_with_experts;
    uint8_t *buffer;
    size_t buffered;
    uint64_t written; /* bytes before the buffer */
    uint64_t records;
    uint64_t windows, bands;
    bool is_plain; /* every window has one row */
    XXH3_state_t *hash, *hash_at_turn;
    uint64_t turn_at; /* where the turn under way began */
    bool in_turn;
    struct err failure;
};

/* ---- bytes ---- */

static void flush(struct trace_writer *w)
{
    size_t done = 0;
    while (done < w->buffered && w->failure.code == ERR_NONE) {
        ssize_t n = write(w->fd, w->buffer + done, w->buffered - done);
        if (n < 0 && errno != EINTR)
            err_set(&w->failure, ERR_IO, "%s: %s", w->path, strerror(errno));
        done += n > 0 ? (size_t)n : 0;
    }
    w->written += w->buffered;
    w->buffered = 0;
}

static void put(struct trace_writer *w, const void *data, size_t n)
{
    if (w->failure.code != ERR_NONE)
        return;
    XXH3_64bits_update(w->hash, data, n);
    for (const uint8_t *from = data; n;) {
        size_t piece = BUFFER_BYTES - w->buffered;
        piece = piece < n ? piece : n;
        memcpy(w->buffer + w->buffered, from, piece);
        w->buffered += piece;
        from += piece;
        n -= piece;
        if (w->buffered == BUFFER_BYTES)
            flush(w);
    }
}

static void put_u16(struct trace_writer *w, uint16_t v)
{
    uint8_t b[2];
    bytes_put_u16(b, v);
    put(w, b, sizeof b);
}

static void put_u32(struct trace_writer *w, uint32_t v)
{
    uint8_t b[4];
    bytes_put_u32(b, v);
    put(w, b, sizeof b);
}

static void put_u64(struct trace_writer *w, uint64_t v)
{
    uint8_t b[8];
    bytes_put_u64(b, v);
    put(w, b, sizeof b);
}

/* ---- the header ---- */

static void put_head(struct trace_writer *w, const struct trace_head *h)
{
    size_t text = h->text ? strlen(h->text) : 0;
    put(w, w->has_far ? "STRTRC03" : "STRTRC02", 8);
    put_u32(w, (uint32_t)(56 + text + 12 * (size_t)h->layers + 4 * (size_t)h->classes));
    put_u32(w, (uint32_t)h->layers);
    put_u32(w, (uint32_t)h->experts);
    put_u32(w, (uint32_t)h->used);
    put_u32(w, (uint32_t)h->ranks);
    put(w, h->fingerprint, 16);
    put_u32(w, h->has_counts);
    put_u32(w, (uint32_t)text);
    put_u32(w, (uint32_t)h->classes);
    put(w, h->text ? h->text : "", text);
    for (int l = 0; l < h->layers; l++) {
        put_u64(w, h->layer[l].record_bytes);
        put_u32(w, h->layer[l].class_index);
    }
    for (int c = 0; c < h->classes; c++)
        put_u32(w, h->slots[c]);
}

static void free_writer(struct trace_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    XXH3_freeState(w->hash);
    XXH3_freeState(w->hash_at_turn);
    mem_free(w->buffer);
    mem_free(w->path);
    mem_free(w);
}

struct trace_writer *trace_create(const char *path, const struct trace_head *h, struct err *e)
{
    struct trace_writer *w = mem_alloc(sizeof *w, "a trace", e);
    if (!w)
        return NULL;
    w->fd = -1;
    w->used = h->used;
    w->ranks = h->ranks;
    w->layers = h->layers;
    w->experts = h->experts;
    w->has_counts = h->has_counts;
    w->has_far = h->guess_layers == 2;
    w->is_plain = true;
    for (int l = 0; l < h->layers; l++)
        w->layers_with_experts += h->layer[l].record_bytes > 0;
    w->path = mem_copy_text(path, strlen(path), e);
    w->buffer = mem_alloc(BUFFER_BYTES, "a trace", e);
    w->hash = XXH3_createState();
    w->hash_at_turn = XXH3_createState();
    bool ok = w->path && w->buffer && w->hash && w->hash_at_turn;
    if (ok) {
        XXH3_64bits_reset(w->hash);
        w->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        ok = w->fd >= 0 || err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    } else {
        err_set(e, ERR_MEMORY, "out of memory: a trace");
    }
    if (!ok) {
        free_writer(w);
        return NULL;
    }
    put_head(w, h);
    return w;
}

/* ---- records ---- */

static void put_record(struct trace_writer *w, enum trace_kind kind, uint32_t session,
                       uint32_t rows)
{
    uint8_t k = (uint8_t)kind;
    put(w, &k, 1);
    put_u32(w, session);
    put_u32(w, rows);
    w->records++;
}

void trace_mark(struct trace_writer *w, enum trace_kind kind, uint32_t session, uint32_t rows)
{
    put_record(w, kind, session, rows);
}

void trace_turn(struct trace_writer *w, bool is_band, uint32_t session, int rows,
                const int32_t *tokens)
{
    flush(w);
    w->turn_at = w->written;
    w->in_turn = true;
    XXH3_copyState(w->hash_at_turn, w->hash);
    put_record(w, is_band ? TRACE_BAND : TRACE_WINDOW, session, (uint32_t)rows);
    for (int i = 0; i < rows; i++)
        put_u32(w, (uint32_t)tokens[i]);
    *(is_band ? &w->bands : &w->windows) += 1;
    w->is_plain = w->is_plain && (is_band || rows == 1);
}

static void put_guess(struct trace_writer *w, const struct trace_guess *g, int row)
{
    for (int i = 0; i < w->ranks; i++)
        put_u16(w, i < g->ranks ? g->ids[row * g->ranks + i] : TRACE_NO_EXPERT);
}

void trace_layer_rows(struct trace_writer *w, int rows, const int32_t *ids, const float *weights,
                      const struct trace_guess guess[], const uint32_t counts[TRACE_COUNTS])
{
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < w->used; i++)
            put_u16(w, (uint16_t)ids[row * w->used + i]);
        for (int i = 0; i < w->used; i++)
            put_u32(w, half_f32_bits(weights[row * w->used + i]));
        put_guess(w, &guess[0], row);
    }
    for (int i = 0; w->has_counts && i < TRACE_COUNTS; i++)
        put_u32(w, counts ? counts[i] : 0);
    for (int row = 0; w->has_far && row < rows; row++)
        put_guess(w, &guess[1], row);
}

void trace_turn_end(struct trace_writer *w, bool is_whole)
{
    if (is_whole || !w->in_turn || w->failure.code != ERR_NONE) {
        w->in_turn = false;
        return;
    }
    flush(w);
    if (ftruncate(w->fd, (off_t)w->turn_at) || lseek(w->fd, (off_t)w->turn_at, SEEK_SET) < 0)
        err_set(&w->failure, ERR_IO, "%s: %s", w->path, strerror(errno));
    XXH3_copyState(w->hash, w->hash_at_turn);
    w->written = w->turn_at;
    w->records--;
    w->in_turn = false;
}

/* ---- the end ---- */

/* STRTRC01 has ids of 8 bits and no place for what a run was like, or for guesses two layers ahead. */
static bool fits_version_1(const struct trace_writer *w)
{
    return !w->has_far && w->experts < V1_NO_EXPERT + 1 && w->layers_with_experts == w->layers && w->is_plain &&
           ((w->windows > 0 && !w->bands) || (w->bands == 1 && !w->windows));
}

static void put_v1_row(struct file_writer *f, const struct trace *t, const struct trace_record *r,
                       int layer, int row, struct err *e)
{
    const struct trace_head *h = trace_head(t);
    int32_t ids[256], guess[256];
    float weights[256];
    uint8_t bytes[256 * 6];
    size_t n = 0;
    trace_row(t, r, layer, row, ids, weights, guess);
    for (int i = 0; i < h->used; i++)
        bytes[n++] = (uint8_t)ids[i];
    for (int i = 0; i < h->used; i++, n += 4)
        bytes_put_u32(bytes + n, half_f32_bits(weights[i]));
    for (int i = 0; i < h->ranks; i++)
        bytes[n++] = guess[i] < 0 ? V1_NO_EXPERT : (uint8_t)guess[i];
    file_write(f, bytes, n, e);
}

static void put_v1_records(struct file_writer *f, const struct trace *t, struct err *e)
{
    for (int i = 0; i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        if (r.kind != TRACE_WINDOW && r.kind != TRACE_BAND)
            continue;
        for (int row = 0; row < r.rows && e->code == ERR_NONE; row++) {
            uint8_t token[4];
            bytes_put_u32(token, trace_token(t, &r, row));
            file_write(f, token, sizeof token, e);
            for (int l = 0; l < trace_head(t)->layers && e->code == ERR_NONE; l++)
                put_v1_row(f, t, &r, l, row, e);
        }
    }
}

/* Writes the file once more in the older form. */
static bool rewrite_as_version_1(const char *path, bool is_prefill, struct err *e)
{
    struct trace *t = trace_open(path, NULL, e);
    if (!t)
        return false;
    const struct trace_head *h = trace_head(t);
    uint32_t rows = 0;
    for (int i = 0; i < trace_records(t); i++) {
        struct trace_record r;
        trace_record_at(t, i, &r);
        rows += r.kind == TRACE_WINDOW || r.kind == TRACE_BAND ? (uint32_t)r.rows : 0;
    }
    const uint32_t numbers[] = {
        rows,      (uint32_t)h->layers, (uint32_t)h->experts, (uint32_t)h->used, (uint32_t)h->ranks,
        is_prefill};
    uint8_t head[V1_HEAD_BYTES] = "STRTRC01";
    for (int i = 0; i < 6; i++)
        bytes_put_u32(head + 8 + 4 * i, numbers[i]);
    struct file_writer f;
    bool ok = file_write_begin(&f, path, 0666, e);
    if (ok) {
        if (file_write(&f, head, sizeof head, e))
            put_v1_records(&f, t, e);
        ok = e->code == ERR_NONE && file_write_commit(&f, e);
        if (!ok)
            file_write_abort(&f);
    }
    trace_free(t);
    return ok;
}

bool trace_close(struct trace_writer *w, const char *text, struct err *e)
{
    trace_turn_end(w, false);
    if (text && *text) {
        put_record(w, TRACE_TEXT, 0, (uint32_t)strlen(text));
        put(w, text, strlen(text));
    }
    put(w, "END!", 4);
    put_u64(w, w->records);
    put_u64(w, XXH3_64bits_digest(w->hash));
    flush(w);
    bool ok = w->failure.code == ERR_NONE || err_set(e, w->failure.code, "%s", w->failure.text);
    ok = ok && (!fits_version_1(w) || rewrite_as_version_1(w->path, w->bands > 0, e));
    free_writer(w);
    return ok;
}
