/* SPDX-License-Identifier: Apache-2.0 */
#include "session/state_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"

/* Layout of the header: fixed fields, ids padded to 8 bytes, section table, checksum. */
enum {
    FIXED_BYTES = 80,
    ENTRY_BYTES = 88,
    CHECKSUM_BYTES = 8,
    MOST_SECTIONS = 4096,
    NAME_BYTES = 32,
    MOST_DIMS = 6,
};

enum element { ELEMENT_BYTE, ELEMENT_F16, ELEMENT_F32, ELEMENT_Q8_0, ELEMENTS };

/* Bytes of d values, d the last dimension of a section; ELEMENT_Q8_0 is whole blocks of 32. */
static uint64_t values_bytes(uint32_t element, uint64_t d)
{
    if (element == ELEMENT_Q8_0)
        return kv_units(KV_Q8_0, d) * sizeof(struct kv_block);
    return d * (element == ELEMENT_BYTE ? 1 : element == ELEMENT_F16 ? 2 : 4);
}

struct state_section {
    char name[NAME_BYTES];
    uint32_t element;
    uint32_t n_dims;
    uint32_t dims[MOST_DIMS];
    uint64_t offset, bytes, checksum;
};

static uint64_t padded(uint64_t n)
{
    return (n + 7) & ~(uint64_t)7;
}

static uint64_t header_bytes(uint64_t position, uint64_t sections)
{
    return FIXED_BYTES + padded(position * 4) + sections * ENTRY_BYTES + CHECKSUM_BYTES;
}

/* ---- Writing -------------------------------------------------------------------------------- */

/* Shape of an item's used part: units of a per-token item come first. */
static void section_of_item(const struct model_state *s, const struct state_item *item,
                            struct state_section *out)
{
    static const uint32_t elements[] = {
        [STATE_F32] = ELEMENT_F32, [STATE_F16] = ELEMENT_F16, [STATE_Q8_0] = ELEMENT_Q8_0};
    *out = (struct state_section){.element = elements[item->element]};
    memcpy(out->name, item->name, strnlen(item->name, NAME_BYTES - 1));
    out->bytes = state_item_bytes(s, item);
    if (item->per_token)
        out->dims[out->n_dims++] = (uint32_t)(out->bytes / item->unit_bytes);
    for (int i = 0; i < item->n_dims; i++)
        out->dims[out->n_dims++] = item->dims[i];
}

static void put_section(uint8_t *p, const struct state_section *s)
{
    memcpy(p, s->name, NAME_BYTES);
    bytes_put_u32(p + 32, s->element);
    bytes_put_u32(p + 36, s->n_dims);
    for (int i = 0; i < MOST_DIMS; i++)
        bytes_put_u32(p + 40 + 4 * i, s->dims[i]);
    bytes_put_u64(p + 64, s->offset);
    bytes_put_u64(p + 72, s->bytes);
    bytes_put_u64(p + 80, s->checksum);
}

/* One section's content, and zeros up to the next multiple of 8. */
static bool write_section(struct file_writer *w, struct state_section *s, const void *data,
                          struct err *e)
{
    static const uint8_t zeros[8];
    s->offset = w->bytes;
    s->checksum = XXH3_64bits(data, s->bytes);
    return file_write(w, data, s->bytes, e) &&
           file_write(w, zeros, (size_t)(padded(s->bytes) - s->bytes), e);
}

static bool write_items(struct file_writer *w, const struct model_state *s,
                        struct state_section *sections, int *n, struct err *e)
{
    for (int i = 0; i < s->n_items; i++) {
        if (s->items[i].derived)
            continue;
        struct state_section *section = &sections[(*n)++];
        section_of_item(s, &s->items[i], section);
        void *host = mem_alloc(section->bytes, "a part of the state to save", e);
        bool ok =
            host && model_state_read_item(s, i, host, e) && write_section(w, section, host, e);
        mem_free(host);
        if (!ok)
            return false;
    }
    return true;
}

static void put_header(uint8_t *p, uint64_t bytes, uint64_t file_bytes,
                       const struct state_header *h, const int32_t *ids,
                       const struct state_section *sections, int n)
{
    memcpy(p, "STRSES01", 8);
    bytes_put_u32(p + 8, (uint32_t)bytes);
    bytes_put_u32(p + 12, 0);
    bytes_put_u64(p + 16, file_bytes);
    memcpy(p + 24, h->model, STATE_FINGERPRINT);
    memcpy(p + 40, h->bits, STATE_FINGERPRINT);
    bytes_put_u64(p + 56, h->position);
    bytes_put_u64(p + 64, h->ctx);
    bytes_put_u32(p + 72, (uint32_t)n);
    for (uint64_t i = 0; i < h->position; i++)
        bytes_put_u32(p + FIXED_BYTES + 4 * i, (uint32_t)ids[i]);
    uint8_t *entry = p + FIXED_BYTES + padded(h->position * 4);
    for (int i = 0; i < n; i++, entry += ENTRY_BYTES)
        put_section(entry, &sections[i]);
    bytes_put_u64(entry, XXH3_64bits(p, bytes - CHECKSUM_BYTES));
}

static bool write_all(struct file_writer *w, const struct state_header *h,
                      const struct model_state *s, const struct state_block *blocks, int n_blocks,
                      struct state_section *sections, uint8_t *header, uint64_t bytes,
                      struct err *e)
{
    /* Room for the header first; its content is known when the sections are written. */
    if (!file_write(w, header, bytes, e))
        return false;
    int n = 0;
    if (!write_items(w, s, sections, &n, e))
        return false;
    for (int i = 0; i < n_blocks; i++) {
        struct state_section *b = &sections[n++];
        *b = (struct state_section){.element = ELEMENT_BYTE,
                                    .n_dims = 1,
                                    .dims = {(uint32_t)blocks[i].bytes},
                                    .bytes = blocks[i].bytes};
        memcpy(b->name, blocks[i].name, strnlen(blocks[i].name, NAME_BYTES - 1));
        if (!write_section(w, b, blocks[i].data, e))
            return false;
    }
    put_header(header, bytes, w->bytes, h, s->ids, sections, n);
    return file_write_at(w, 0, header, bytes, e);
}

bool state_file_write(const char *path, const struct state_header *h, const struct model_state *s,
                      const struct state_block *blocks, int n_blocks, struct err *e)
{
    int n = n_blocks;
    for (int i = 0; i < s->n_items; i++)
        n += !s->items[i].derived;
    uint64_t bytes = header_bytes(h->position, (uint64_t)n);
    if (bytes > UINT32_MAX)
        return err_set(e, ERR_UNSUPPORTED, "%s: a session of %llu tokens is too long for a file",
                       path, (unsigned long long)h->position);
    for (int i = 0; i < n_blocks; i++)
        if (blocks[i].bytes > UINT32_MAX)
            return err_set(e, ERR_UNSUPPORTED, "%s: section %s has %zu bytes, more than 2^32 - 1",
                           path, blocks[i].name, blocks[i].bytes);
    uint64_t all = bytes;
    for (int i = 0; i < s->n_items; i++)
        all += s->items[i].derived ? 0 : padded(state_item_bytes(s, &s->items[i]));
    for (int i = 0; i < n_blocks; i++)
        all += padded(blocks[i].bytes);
    struct state_section *sections = mem_alloc_array((size_t)n, sizeof *sections, "saving", e);
    uint8_t *header = mem_alloc(bytes, "saving", e);
    struct file_writer w;
    bool ok = sections && header && file_write_begin(&w, path, 0600, e);
    if (ok) {
        ok = file_write_has_room(&w, all, e) &&
             write_all(&w, h, s, blocks, n_blocks, sections, header, bytes, e);
        if (ok)
            ok = file_write_commit(&w, e);
        else
            file_write_abort(&w);
    }
    mem_free(header);
    mem_free(sections);
    return ok;
}

/* ---- Reading -------------------------------------------------------------------------------- */

static bool damaged(const char *path, struct err *e, const char *field, uint64_t value,
                    uint64_t expected)
{
    return err_set(e, ERR_FORMAT, "%s: %s is %llu where %llu is expected: the file is damaged",
                   path, field, (unsigned long long)value, (unsigned long long)expected);
}

static bool check_magic(const char *path, const uint8_t *p, struct err *e)
{
    if (memcmp(p, "STRSES", 6) != 0) {
        char shown[40];
        return err_set(e, ERR_FORMAT, "%s: not a saved session (begins with '%s')", path,
                       err_escape(shown, sizeof shown, p, 8));
    }
    if (memcmp(p + 6, "01", 2) != 0) {
        char shown[16];
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: saved session of version %s, this program reads version 01", path,
                       err_escape(shown, sizeof shown, p + 6, 2));
    }
    return true;
}

/* The checksum of the header, in pieces: nothing has been believed so far. */
static bool check_header_sum(const struct state_file *f, uint64_t bytes, struct err *e)
{
    XXH3_state_t *sum = XXH3_createState();
    if (!sum)
        return err_set(e, ERR_MEMORY, "%s: no memory for a checksum", f->path);
    XXH3_64bits_reset(sum);
    uint8_t piece[4096], stored[CHECKSUM_BYTES];
    uint64_t end = bytes - CHECKSUM_BYTES, at = 0;
    bool ok = true;
    while (ok && at < end) {
        size_t n = end - at < sizeof piece ? (size_t)(end - at) : sizeof piece;
        ok = file_read_at(f->fd, f->path, at, piece, n, e);
        if (ok)
            XXH3_64bits_update(sum, piece, n);
        at += n;
    }
    uint64_t got = XXH3_64bits_digest(sum);
    XXH3_freeState(sum);
    if (!ok || !file_read_at(f->fd, f->path, end, stored, sizeof stored, e))
        return false;
    if (bytes_u64(stored) != got)
        return err_set(e, ERR_FORMAT, "%s: the checksum of the header does not fit: damaged",
                       f->path);
    return true;
}

static bool check_section(const struct state_file *f, uint32_t i, const uint8_t *p, uint64_t *at,
                          uint64_t file_bytes, struct err *e)
{
    struct state_section *s = &f->sections[i];
    memcpy(s->name, p, NAME_BYTES);
    s->element = bytes_u32(p + 32);
    s->n_dims = bytes_u32(p + 36);
    s->offset = bytes_u64(p + 64);
    s->bytes = bytes_u64(p + 72);
    s->checksum = bytes_u64(p + 80);
    if (!s->name[0] || s->name[NAME_BYTES - 1])
        return err_set(e, ERR_FORMAT, "%s: section %u has no proper name", f->path, i);
    char shown[160];
    err_escape(shown, sizeof shown, s->name, strlen(s->name));
    if (s->element >= ELEMENTS)
        return err_set(e, ERR_FORMAT, "%s: section %s has the unknown element type %u", f->path,
                       shown, s->element);
    if (s->n_dims < 1 || s->n_dims > MOST_DIMS)
        return err_set(e, ERR_FORMAT, "%s: section %s has %u dimensions", f->path, shown,
                       s->n_dims);
    for (uint32_t d = 0; d < s->n_dims; d++)
        s->dims[d] = bytes_u32(p + 40 + 4 * d);
    uint64_t bytes = values_bytes(s->element, s->dims[s->n_dims - 1]);
    bool wraps = false;
    for (uint32_t d = 0; d + 1 < s->n_dims; d++)
        wraps |= __builtin_mul_overflow(bytes, (uint64_t)s->dims[d], &bytes);
    if (wraps || s->bytes != bytes || s->offset != *at || s->bytes > file_bytes - *at ||
        padded(s->bytes) > file_bytes - *at)
        return err_set(e, ERR_FORMAT, "%s: section %s (%llu bytes at %llu) does not fit its place",
                       f->path, shown, (unsigned long long)s->bytes, (unsigned long long)s->offset);
    for (uint32_t before = 0; before < i; before++)
        if (strcmp(f->sections[before].name, s->name) == 0)
            return err_set(e, ERR_FORMAT, "%s: section %s is there twice", f->path, shown);
    *at += padded(s->bytes);
    return true;
}

static bool read_table(struct state_file *f, uint64_t header, uint64_t file_bytes, struct err *e)
{
    f->sections = mem_alloc_array(f->n_sections, sizeof *f->sections, "a section table", e);
    if (!f->sections)
        return false;
    uint64_t entry = header - CHECKSUM_BYTES - (uint64_t)f->n_sections * ENTRY_BYTES, at = header;
    for (uint32_t i = 0; i < f->n_sections; i++, entry += ENTRY_BYTES) {
        uint8_t p[ENTRY_BYTES];
        if (!file_read_at(f->fd, f->path, entry, p, sizeof p, e) ||
            !check_section(f, i, p, &at, file_bytes, e))
            return false;
    }
    if (at != file_bytes)
        return damaged(f->path, e, "the end of the last section", at, file_bytes);
    return true;
}

bool state_file_open(struct state_file *f, const char *path, struct err *e)
{
    *f = (struct state_file){.fd = -1, .path = path};
    uint64_t file_bytes;
    f->fd = file_open(path, &file_bytes, e);
    if (f->fd < 0)
        return false;
    uint8_t p[FIXED_BYTES];
    if (file_bytes < FIXED_BYTES + CHECKSUM_BYTES)
        return err_set(e, ERR_FORMAT, "%s: %llu bytes are too few for a saved session", path,
                       (unsigned long long)file_bytes);
    if (!file_read_at(f->fd, path, 0, p, sizeof p, e) || !check_magic(path, p, e))
        return false;
    uint64_t header = bytes_u32(p + 8);
    memcpy(f->head.model, p + 24, STATE_FINGERPRINT);
    memcpy(f->head.bits, p + 40, STATE_FINGERPRINT);
    f->head.position = bytes_u64(p + 56);
    f->head.ctx = bytes_u64(p + 64);
    f->n_sections = bytes_u32(p + 72);
    if (bytes_u32(p + 12))
        return err_set(e, ERR_UNSUPPORTED, "%s: unknown flags %#x", path, bytes_u32(p + 12));
    if (bytes_u32(p + 76))
        return damaged(path, e, "a reserved field", bytes_u32(p + 76), 0);
    if (bytes_u64(p + 16) != file_bytes)
        return damaged(path, e, "the size of the file", file_bytes, bytes_u64(p + 16));
    if (header > file_bytes)
        return damaged(path, e, "the size of the file", file_bytes, header);
    if (f->head.position > header / 4 || f->n_sections > MOST_SECTIONS ||
        header != header_bytes(f->head.position, f->n_sections))
        return err_set(
            e, ERR_FORMAT, "%s: a header of %llu bytes does not hold %llu tokens and %u sections",
            path, (unsigned long long)header, (unsigned long long)f->head.position, f->n_sections);
    return check_header_sum(f, header, e) && read_table(f, header, file_bytes, e);
}

void state_file_close(struct state_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    mem_free(f->sections);
    *f = (struct state_file){.fd = -1};
}

bool state_file_ids(const struct state_file *f, int32_t *out, struct err *e)
{
    size_t n = (size_t)f->head.position;
    if (!file_read_at(f->fd, f->path, FIXED_BYTES, out, n * 4, e))
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)bytes_u32(&out[i]);
    return true;
}

static const struct state_section *find(const struct state_file *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_sections; i++)
        if (strcmp(f->sections[i].name, name) == 0)
            return &f->sections[i];
    return NULL;
}

static bool read_section(const struct state_file *f, const struct state_section *s, void *to,
                         struct err *e)
{
    if (!file_read_at(f->fd, f->path, s->offset, to, (size_t)s->bytes, e))
        return false;
    if (XXH3_64bits(to, (size_t)s->bytes) != s->checksum)
        return err_set(e, ERR_FORMAT, "%s: the checksum of section %s does not fit: damaged",
                       f->path, s->name);
    return true;
}

static bool same_shape(const struct state_section *a, const struct state_section *b)
{
    return a->element == b->element && a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, a->n_dims * sizeof *a->dims) == 0 && a->bytes == b->bytes;
}

bool state_file_items(const struct state_file *f, struct model_state *s, struct err *e)
{
    for (int i = 0; i < s->n_items; i++) {
        if (s->items[i].derived)
            continue;
        struct state_section wanted;
        section_of_item(s, &s->items[i], &wanted);
        const struct state_section *got = find(f, wanted.name);
        if (!got)
            return err_set(e, ERR_FORMAT, "%s: section %s is missing", f->path, wanted.name);
        if (!same_shape(got, &wanted))
            return err_set(e, ERR_FORMAT, "%s: section %s has another shape than the model's state",
                           f->path, wanted.name);
        void *host = mem_alloc((size_t)got->bytes, "a part of a saved state", e);
        bool ok = host && read_section(f, got, host, e) && model_state_write_item(s, i, host, e);
        mem_free(host);
        if (!ok)
            return false;
    }
    return true;
}

bool state_file_block(const struct state_file *f, const char *name, size_t most, void **data,
                      size_t *bytes, struct err *e)
{
    *data = NULL;
    *bytes = 0;
    const struct state_section *s = find(f, name);
    if (!s)
        return true;
    if (s->element != ELEMENT_BYTE || s->n_dims != 1 || s->bytes > most)
        return err_set(e, ERR_FORMAT, "%s: section %s of %llu bytes is not what it should be",
                       f->path, name, (unsigned long long)s->bytes);
    char *p = mem_alloc((size_t)s->bytes + 1, "a section of a saved state", e);
    if (!p || !read_section(f, s, p, e)) {
        mem_free(p);
        return false;
    }
    *data = p;
    *bytes = (size_t)s->bytes;
    return true;
}
