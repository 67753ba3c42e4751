/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/output.h"

/* Rows that came together, all of one width. */
struct piece {
    size_t rows, width;
};

struct entry {
    char name[64];
    enum strata_element type;
    bool is_whole; /* no rows: the last array of this name counts */
    int n_dims;
    size_t dims[NPY_DIMS]; /* of a row; dims[0] is the widest seen */
    struct piece *pieces;
    size_t n, room;
};

struct dump {
    char *folder;
    struct entry *entries;
    size_t n, room;
    struct strata_error error;
};

struct dump *dump_create(const char *folder, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fail(e, STRATA_IO, "%s: %s", folder, strerror(errno));
        return NULL;
    }
    struct dump *d = mem_alloc(sizeof *d, "a dump", &low);
    if (d)
        d->folder = mem_copy_text(folder, strlen(folder), &low);
    if (!take_error(e, &low)) {
        dump_free(d);
        return NULL;
    }
    return d;
}

/* Grows *items, of `size` bytes each, so that one more fits. */
static void *room_for_one(void *items, size_t n, size_t *room, size_t size, struct strata_error *e)
{
    if (n < *room)
        return items;
    struct err low;
    err_clear(&low);
    size_t more = *room ? *room * 2 : 16;
    void *grown = mem_grow(items, more * size, "a dump", &low);
    if (!grown) {
        take_error(e, &low);
        return NULL;
    }
    *room = more;
    return grown;
}

static void part_path(const struct dump *d, const char *name, const char *end, char out[4096])
{
    snprintf(out, 4096, "%s/%s%s", d->folder, name, end);
}

static struct entry *find_entry(struct dump *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (!strcmp(d->entries[i].name, name))
            return &d->entries[i];
    return NULL;
}

static struct entry *add_entry(struct dump *d, const char *name, enum strata_element type,
                               int n_dims)
{
    struct entry *grown = room_for_one(d->entries, d->n, &d->room, sizeof *grown, &d->error);
    if (!grown)
        return NULL;
    d->entries = grown;
    struct entry *t = &d->entries[d->n++];
    *t = (struct entry){.type = type, .n_dims = n_dims};
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static bool append(struct dump *d, struct entry *t, const void *data, size_t bytes)
{
    char path[4096];
    part_path(d, t->name, ".npy.part", path);
    bool is_first = t->n == 0 || t->is_whole;
    FILE *f = fopen(path, is_first ? "we" : "ae");
    bool ok = f && fwrite(data, 1, bytes, f) == bytes;
    if (f && fclose(f) != 0)
        ok = false;
    return ok || fail(&d->error, STRATA_IO, "%s: %s", path, strerror(errno));
}

void dump_take(void *ctx, const char *name, enum strata_element type, const void *data, int rows,
               int n_dims, const int *dims)
{
    struct dump *d = ctx;
    if (d->error.code != STRATA_OK)
        return;
    struct entry *t = find_entry(d, name);
    if (!t && !(t = add_entry(d, name, type, n_dims)))
        return;
    struct piece *grown = room_for_one(t->pieces, t->n, &t->room, sizeof *grown, &d->error);
    if (!grown)
        return;
    t->pieces = grown;
    t->is_whole = rows == 0;
    size_t width = 1;
    for (int i = 0; i < n_dims; i++) {
        width *= (size_t)dims[i];
        if (i > 0 || t->dims[0] < (size_t)dims[0])
            t->dims[i] = (size_t)dims[i];
    }
    struct piece p = {rows ? (size_t)rows : 1, width};
    if (!append(d, t, data, p.rows * p.width * npy_element_bytes(type)))
        return;
    if (t->is_whole)
        t->n = 0;
    t->pieces[t->n++] = p;
}

/* ---- From the parts to an array ------------------------------------------------------------- */

static void fill_up(enum strata_element type, void *row, size_t from, size_t to)
{
    memset((char *)row + from * npy_element_bytes(type), 0, (to - from) * npy_element_bytes(type));
    if (type == STRATA_F32)
        for (size_t i = from; i < to; i++)
            ((float *)row)[i] = NAN;
}

static bool copy_rows(const struct entry *t, FILE *from, struct file_writer *w, size_t width,
                      struct err *low)
{
    size_t element = npy_element_bytes(t->type);
    char *row = mem_alloc_array(width, element, "a row of a dump", low);
    for (size_t i = 0; row && i < t->n; i++) {
        fill_up(t->type, row, t->pieces[i].width, width);
        for (size_t j = 0; j < t->pieces[i].rows; j++) {
            if (fread(row, element, t->pieces[i].width, from) != t->pieces[i].width)
                err_set(low, ERR_IO, "%s.part: ends too early", w->path);
            if (low->code || !file_write(w, row, width * element, low))
                break;
        }
        if (low->code)
            break;
    }
    mem_free(row);
    return low->code == ERR_NONE;
}

static bool write_array(const struct dump *d, const struct entry *t, struct strata_error *e)
{
    char part[4096], path[4096], header[NPY_HEADER_MOST];
    part_path(d, t->name, ".npy.part", part);
    part_path(d, t->name, ".npy", path);
    size_t dims[NPY_DIMS + 1] = {0}, width = 1;
    for (size_t i = 0; i < t->n; i++)
        dims[0] += t->pieces[i].rows;
    for (int i = 0; i < t->n_dims; i++)
        width *= dims[i + 1] = t->dims[i];
    const size_t *shape = t->is_whole ? dims + 1 : dims;
    size_t header_bytes = npy_header(header, t->type, shape, t->n_dims + !t->is_whole);

    FILE *from = fopen(part, "re");
    if (!from)
        return fail(e, STRATA_IO, "%s: %s", part, strerror(errno));
    struct err low;
    err_clear(&low);
    struct file_writer w;
    bool ok = output_begin(&w, path, e);
    if (ok && (!file_write(&w, header, header_bytes, &low) ||
               !copy_rows(t, from, &w, width, &low) || !file_write_commit(&w, &low))) {
        file_write_abort(&w);
        ok = take_error(e, &low);
    }
    fclose(from);
    return ok;
}

bool dump_finish(struct dump *d, struct strata_error *e)
{
    if (d->error.code != STRATA_OK)
        return fail(e, d->error.code, "%s", d->error.text);
    for (size_t i = 0; i < d->n; i++)
        if (!write_array(d, &d->entries[i], e))
            return false;
    return true;
}

void dump_free(struct dump *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++) {
        char path[4096];
        part_path(d, d->entries[i].name, ".npy.part", path);
        unlink(path);
        mem_free(d->entries[i].pieces);
    }
    mem_free(d->entries);
    mem_free(d->folder);
    mem_free(d);
}
