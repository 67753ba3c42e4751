/* SPDX-License-Identifier: Apache-2.0 */
/* The header, reading and checking. Writing is pack_write.c. */
#include "stream/pack.h"

#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "stream/pack_inner.h"

#define PART_ALIGN 64
#define FLAG_CHECKSUMS 1u
#define FIXED_BYTES 64
#define PART_BYTES 24
#define LAYER_BYTES (24 + PACK_PARTS * PART_BYTES)
#define SECTION_BYTES 32
#define SECTION_CHECKSUMS 1u

/* ---- layout --------------------------------------------------------------------------------- */

static uint64_t front_bytes(const struct pack *p)
{
    return FIXED_BYTES + (uint64_t)p->layers * LAYER_BYTES +
           (p->has_checksums ? SECTION_BYTES : 0) + 8;
}

bool pack_lay_out(struct pack *p, struct err *e)
{
    p->experts = 0;
    for (int l = 0; l < p->layers; l++)
        p->experts = p->layer[l].experts > p->experts ? p->layer[l].experts : p->experts;
    uint64_t at = p->header_bytes = mem_round_up(front_bytes(p), PACK_ALIGN);
    p->checksums_at = at;
    if (p->has_checksums)
        at += mem_round_up(8 * (uint64_t)p->layers * (uint64_t)p->experts, PACK_ALIGN);
    for (int l = 0; l < p->layers; l++) {
        struct pack_layer *y = &p->layer[l];
        uint64_t record = 0, all;
        for (int i = 0; y->experts && i < y->parts; i++) {
            y->part[i].at = record;
            if (__builtin_add_overflow(record, y->part[i].bytes, &record) ||
                record > UINT64_MAX / 2)
                return err_set(e, ERR_FORMAT, "%s: the experts of layer %d are too large",
                               y->part[i].path, l);
            record = mem_round_up(record, PART_ALIGN);
        }
        y->record_bytes = mem_round_up(record, PACK_ALIGN);
        y->first = at;
        if (__builtin_mul_overflow(y->record_bytes, (uint64_t)y->experts, &all) ||
            __builtin_add_overflow(at, all, &at))
            return err_set(e, ERR_FORMAT, "the experts of layer %d are too large", l);
    }
    p->file_bytes = at;
    return true;
}

/* ---- header --------------------------------------------------------------------------------- */

static void put_layer(uint8_t *to, const struct pack_layer *y)
{
    bytes_put_u64(to, y->record_bytes);
    bytes_put_u64(to + 8, y->first);
    bytes_put_u32(to + 16, (uint32_t)y->experts);
    bytes_put_u32(to + 20, (uint32_t)(y->experts ? y->parts : 0));
    for (int i = 0; y->experts && i < y->parts; i++) {
        bytes_put_u64(to + 24 + i * PART_BYTES, y->part[i].at);
        bytes_put_u64(to + 32 + i * PART_BYTES, y->part[i].bytes);
        bytes_put_u32(to + 40 + i * PART_BYTES, y->part[i].type);
    }
}

uint8_t *pack_header(const struct pack *p, uint64_t checksums_hash, struct err *e)
{
    uint8_t *h = mem_alloc((size_t)p->header_bytes, "the header of a sidecar", e);
    if (!h)
        return NULL;
    size_t front = (size_t)front_bytes(p);
    memcpy(h, "STRPCK01", 8);
    bytes_put_u32(h + 8, (uint32_t)front);
    bytes_put_u32(h + 12, p->has_checksums ? FLAG_CHECKSUMS : 0);
    bytes_put_u64(h + 16, p->file_bytes);
    memcpy(h + 24, p->fingerprint, 16);
    bytes_put_u32(h + 40, (uint32_t)p->layers);
    bytes_put_u32(h + 44, (uint32_t)p->experts);
    bytes_put_u32(h + 48, PACK_ALIGN);
    bytes_put_u32(h + 52, p->has_checksums ? 1 : 0); /* sections */
    uint8_t *at = h + FIXED_BYTES;
    for (int l = 0; l < p->layers; l++, at += LAYER_BYTES)
        put_layer(at, &p->layer[l]);
    if (p->has_checksums) {
        bytes_put_u32(at, SECTION_CHECKSUMS);
        bytes_put_u64(at + 8, p->checksums_at);
        bytes_put_u64(at + 16, 8 * (uint64_t)p->layers * (uint64_t)p->experts);
        bytes_put_u64(at + 24, checksums_hash);
    }
    bytes_put_u64(h + front - 8, XXH3_64bits(h, front - 8));
    return h;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* What a header begins with: is it one, of this model, and which flags? */
static bool check_front(struct pack *p, const uint8_t front[FIXED_BYTES], const char *path,
                        uint64_t size, struct err *e)
{
    if (memcmp(front, "STRPCK", 6))
        return err_set(e, ERR_FORMAT, "%s: not a sidecar of strata", path);
    if (memcmp(front + 6, "01", 2))
        return err_set(e, ERR_FORMAT, "%s: a sidecar of version %.2s, this program reads 01", path,
                       (const char *)front + 6);
    if (memcmp(front + 24, p->fingerprint, 16))
        return err_set(e, ERR_FORMAT, "%s: belongs to another model", path);
    uint32_t flags = bytes_u32(front + 12);
    if (flags & ~FLAG_CHECKSUMS)
        return err_set(e, ERR_FORMAT, "%s: flags %#x are not known", path, flags);
    p->has_checksums = flags & FLAG_CHECKSUMS;
    if (!pack_lay_out(p, e))
        return false;
    return size == p->file_bytes ||
           err_set(e, ERR_FORMAT, "%s: has %llu bytes, a sidecar of this model has %llu", path,
                   (unsigned long long)size, (unsigned long long)p->file_bytes);
}

/* The header must be the one that would be written, but for the hash of the checksums. */
static bool check_header(struct pack *p, int fd, const char *path, uint64_t *checksums_hash,
                         struct err *e)
{
    uint8_t *there = mem_alloc((size_t)p->header_bytes, "the header of a sidecar", e), *mine = NULL;
    bool ok = there && file_read_at(fd, path, 0, there, (size_t)p->header_bytes, e);
    if (ok) {
        *checksums_hash = p->has_checksums ? bytes_u64(there + front_bytes(p) - 16) : 0;
        mine = pack_header(p, *checksums_hash, e);
        ok = mine && (!memcmp(there, mine, (size_t)p->header_bytes) ||
                      err_set(e, ERR_FORMAT, "%s: the header is damaged", path));
    }
    mem_free(there);
    mem_free(mine);
    return ok;
}

static bool read_checksums(struct pack *p, int fd, const char *path, uint64_t hash, struct err *e)
{
    size_t n = (size_t)p->layers * (size_t)p->experts;
    if (!p->has_checksums)
        return true;
    p->checksum = mem_alloc_array(n, sizeof *p->checksum, "checksums", e);
    if (!p->checksum || !file_read_at(fd, path, p->checksums_at, p->checksum, 8 * n, e))
        return false;
    if (XXH3_64bits(p->checksum, 8 * n) != hash)
        return err_set(e, ERR_FORMAT, "%s: the checksums of the records are damaged", path);
    for (size_t i = 0; i < n; i++)
        p->checksum[i] = bytes_u64(&p->checksum[i]);
    return true;
}

bool pack_open(struct pack *p, const char *path, struct err *e)
{
    uint64_t size, hash;
    uint8_t front[FIXED_BYTES];
    int fd = file_open(path, &size, e);
    if (fd < 0)
        return false;
    bool ok =
        (size >= FIXED_BYTES || err_set(e, ERR_FORMAT, "%s: not a sidecar of strata", path)) &&
        file_read_at(fd, path, 0, front, sizeof front, e) && check_front(p, front, path, size, e) &&
        check_header(p, fd, path, &hash, e) && read_checksums(p, fd, path, hash, e);
    file_close(fd);
    if (!ok) {
        mem_free(p->checksum);
        p->checksum = NULL;
    }
    return ok;
}

/* ---- records -------------------------------------------------------------------------------- */

bool pack_read_record(const struct pack *p, int layer, int expert, uint8_t *to, struct err *e)
{
    const struct pack_layer *y = &p->layer[layer];
    memset(to, 0, (size_t)y->record_bytes);
    for (int i = 0; i < y->parts; i++)
        if (!file_read_at(y->part[i].fd, y->part[i].path,
                          y->part[i].offset + (uint64_t)expert * y->part[i].bytes,
                          to + y->part[i].at, (size_t)y->part[i].bytes, e))
            return false;
    return true;
}

uint64_t pack_checksum(const struct pack *p, int layer, const void *record)
{
    return XXH3_64bits(record, (size_t)p->layer[layer].record_bytes);
}

static bool verify_record(struct pack *p, int fd, const char *path, int layer, int expert,
                          uint8_t *room, struct err *e)
{
    const struct pack_layer *y = &p->layer[layer];
    size_t n = (size_t)y->record_bytes;
    if (!file_read_at(fd, path, y->first + (uint64_t)expert * n, room, n, e) ||
        !pack_read_record(p, layer, expert, room + n, e))
        return false;
    if (memcmp(room, room + n, n))
        return err_set(e, ERR_FORMAT, "%s: expert %d of layer %d is not as the model has it", path,
                       expert, layer);
    size_t at = (size_t)layer * (size_t)p->experts + (size_t)expert;
    if (p->checksum && p->checksum[at] != pack_checksum(p, layer, room))
        return err_set(e, ERR_FORMAT, "%s: the checksum of expert %d of layer %d is wrong", path,
                       expert, layer);
    return true;
}

uint64_t pack_largest_record(const struct pack *p)
{
    uint64_t most = 0;
    for (int l = 0; l < p->layers; l++)
        most = p->layer[l].record_bytes > most ? p->layer[l].record_bytes : most;
    return most;
}

bool pack_went_on(const struct pack_progress *progress, uint64_t done, uint64_t all, struct err *e)
{
    if (progress && progress->done)
        progress->done(progress->ctx, done, all);
    if (progress && progress->cancel && atomic_load(progress->cancel))
        return err_set(e, ERR_INTERRUPTED, "interrupted");
    return true;
}

bool pack_verify(struct pack *p, const char *path, const struct pack_progress *progress,
                 struct err *e)
{
    uint64_t size;
    int fd = file_open(path, &size, e);
    uint8_t *room =
        fd >= 0 ? mem_alloc(2 * (size_t)pack_largest_record(p), "two records", e) : NULL;
    bool ok = room != NULL;
    for (int l = 0; ok && l < p->layers; l++)
        for (int x = 0; ok && x < p->layer[l].experts; x++)
            ok = verify_record(p, fd, path, l, x, room, e) &&
                 pack_went_on(progress, p->layer[l].first + (uint64_t)x * p->layer[l].record_bytes,
                              size, e);
    mem_free(room);
    if (fd >= 0)
        file_close(fd);
    return ok;
}
