/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/npy_rows.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"

#define HEADER_MOST 4096

struct npy_rows {
    char *path;
    int fd;
    uint64_t at;
    size_t width;
};

/* "(12, 34)" behind 'shape':; the text is NUL-terminated. */
static bool read_shape(const char *header, unsigned long long *rows, unsigned long long *width)
{
    const char *shape = strstr(header, "'shape':");
    return strstr(header, "'<f4'") && strstr(header, "'fortran_order': False") && shape &&
           sscanf(shape, "'shape': (%llu, %llu)", rows, width) == 2;
}

static bool read_header(struct npy_rows *f, uint64_t size, size_t rows, struct err *e)
{
    uint8_t start[12];
    char header[HEADER_MOST + 1];
    unsigned long long there = 0, width = 0;
    if (size < sizeof start || !file_read_at(f->fd, f->path, 0, start, sizeof start, e))
        return err_set(e, ERR_FORMAT, "%s: not a .npy file", f->path);
    bool is_long = start[6] >= 2;
    size_t bytes = is_long ? bytes_u32(start + 8) : bytes_u16(start + 8);
    f->at = (is_long ? 12 : 10) + bytes;
    if (memcmp(start, "\x93NUMPY", 6) || bytes > HEADER_MOST || f->at > size)
        return err_set(e, ERR_FORMAT, "%s: not a .npy file", f->path);
    if (!file_read_at(f->fd, f->path, f->at - bytes, header, bytes, e))
        return false;
    header[bytes] = 0;
    if (!read_shape(header, &there, &width))
        return err_set(e, ERR_FORMAT, "%s: not float32 in two dimensions", f->path);
    if (width != f->width || there < rows || size - f->at < (uint64_t)rows * f->width * 4)
        return err_set(e, ERR_FORMAT, "%s: %llu rows of %llu values, wanted are %zu of %zu",
                       f->path, there, width, rows, f->width);
    return true;
}

struct npy_rows *npy_rows_open(const char *path, size_t rows, size_t width, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    uint64_t size;
    struct npy_rows *f = mem_alloc(sizeof *f, "a file of logits", &low);
    if (f) {
        f->width = width;
        f->path = mem_copy_text(path, strlen(path), &low);
        f->fd = f->path ? file_open(path, &size, &low) : -1;
        if (f->fd < 0 || !read_header(f, size, rows, &low)) {
            npy_rows_close(f);
            f = NULL;
        }
    }
    take_error(e, &low);
    return f;
}

bool npy_rows_read(struct npy_rows *f, float *out, size_t n, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    size_t bytes = n * f->width * sizeof *out;
    file_read_at(f->fd, f->path, f->at, out, bytes, &low);
    f->at += bytes;
    return take_error(e, &low);
}

void npy_rows_close(struct npy_rows *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        file_close(f->fd);
    mem_free(f->path);
    mem_free(f);
}
