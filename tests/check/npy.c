/* SPDX-License-Identifier: Apache-2.0 */
#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"

static bool parse(const char *path, const char *p, size_t n, struct npy *a, struct err *e)
{
    char header[512];
    size_t length = n >= 10 ? bytes_u16(p + 8) : 0;
    if (n < 10 || memcmp(p, "\x93NUMPY\x01\x00", 8) || length >= sizeof header || length > n - 10)
        return err_set(e, ERR_FORMAT, "%s: not a .npy file of version 1.0", path);
    memcpy(header, p + 10, length);
    header[length] = 0;
    size_t size;
    if (strstr(header, "'<f4'")) {
        a->type = NPY_F32;
        size = 4;
    } else if (strstr(header, "'<i4'")) {
        a->type = NPY_I32;
        size = 4;
    } else if (strstr(header, "'|b1'")) {
        a->type = NPY_BOOL;
        size = 1;
    } else {
        return err_set(e, ERR_FORMAT, "%s: element type is not <f4, <i4 or |b1", path);
    }
    const char *at = strstr(header, "'shape': (");
    if (!at || strstr(header, "True"))
        return err_set(e, ERR_FORMAT, "%s: header without a shape, or Fortran order", path);
    at += strlen("'shape': (");
    a->count = 1;
    for (a->n_dims = 0; *at && *at != ')';) {
        char *end;
        unsigned long d = strtoul(at, &end, 10);
        if (end == at || a->n_dims == 4 || !mem_mul(a->count, d, &a->count))
            return err_set(e, ERR_FORMAT, "%s: shape cannot be read", path);
        a->dims[a->n_dims++] = d;
        at = end + strspn(end, ", ");
    }
    a->data = p + 10 + length;
    if (a->count > (n - 10 - length) / size)
        return err_set(e, ERR_FORMAT, "%s: %zu values do not fit in the file", path, a->count);
    return true;
}

/* Walks the local headers of a zip whose members are stored. */
static bool parse_zip(struct npy_file *f, const char *path, struct err *e)
{
    for (size_t at = 0; f->n - at >= 30 && !memcmp(f->bytes + at, "PK\3\4", 4);) {
        const char *h = f->bytes + at;
        size_t bytes = bytes_u32(h + 18), name = bytes_u16(h + 26), extra = bytes_u16(h + 28);
        size_t head = 30 + name + extra;
        if (bytes == 0xffffffff && extra >= 20) /* zip64: sizes are in the extra field */
            bytes = bytes_u64(h + 30 + name + 12);
        if (bytes_u16(h + 8) || head > f->n - at || bytes > f->n - at - head || name < 5)
            return err_set(e, ERR_FORMAT, "%s: member %zu is not stored whole", path, f->count);
        void *grown = mem_grow(f->members, (f->count + 1) * sizeof *f->members, "members", e);
        if (!grown)
            return false;
        f->members = grown;
        struct npy_member *m = &f->members[f->count++];
        memset(m, 0, sizeof *m);
        snprintf(m->name, sizeof m->name, "%.*s", (int)name - 4, h + 30);
        if (!parse(path, h + head, bytes, &m->array, e))
            return false;
        at += head + bytes;
    }
    return f->count || err_set(e, ERR_FORMAT, "%s: no member found", path);
}

bool npy_open(struct npy_file *f, const char *path, struct err *e)
{
    *f = (struct npy_file){0};
    f->bytes = file_read_all(path, (size_t)1 << 30, &f->n, e);
    if (!f->bytes)
        return false;
    bool ok;
    if (f->n >= 4 && !memcmp(f->bytes, "PK\3\4", 4)) {
        ok = parse_zip(f, path, e);
    } else {
        f->members = mem_alloc(sizeof *f->members, "member", e);
        f->count = 1;
        ok = f->members && parse(path, f->bytes, f->n, &f->members[0].array, e);
    }
    if (!ok)
        npy_close(f);
    return ok;
}

void npy_close(struct npy_file *f)
{
    mem_free(f->members);
    mem_free(f->bytes);
    *f = (struct npy_file){0};
}
