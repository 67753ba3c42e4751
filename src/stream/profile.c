/* SPDX-License-Identifier: Apache-2.0 */
/* The file, all numbers little-endian:
 *
 *      0  "STRPOP01"                 48  layers u32
 *      8  header bytes u32: 88       52  records u32, of all layers
 *     12  flags u32: 0               56  section: offset u64, bytes u64, xxh3-64
 *     16  file bytes u64             80  xxh3-64 of the 80 bytes before
 *     24  model fingerprint          88  the section: for each layer its experts u32, then for each
 *     40  tokens counted u64             layer and expert a count u32; zeros up to a multiple of 8
 */
#include "stream/profile.h"

#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"

enum { HEADER_BYTES = 88, MOST_BYTES = 1 << 28 };
static const char magic[] = "STRPOP01";

static uint64_t count_records(const struct profile *p)
{
    uint64_t records = 0;
    for (int l = 0; l < p->layers; l++)
        records += (uint64_t)p->experts[l];
    return records;
}

static uint64_t section_bytes(const struct profile *p)
{
    return 4 * ((uint64_t)p->layers + count_records(p));
}

static uint64_t file_bytes(const struct profile *p)
{
    return HEADER_BYTES + ((section_bytes(p) + 7) & ~(uint64_t)7);
}

/* ---- reading ---- */

static bool check_header(const char *path, const uint8_t *f, uint64_t bytes,
                         const struct profile *p, struct err *e)
{
    if (bytes < HEADER_BYTES || memcmp(f, magic, 6))
        return err_set(e, ERR_FORMAT, "%s: not a popularity profile", path);
    if (memcmp(f, magic, 8))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: version %.2s of a popularity profile; this program reads 01", path,
                       (const char *)f + 6);
    if (bytes_u64(f + 80) != XXH3_64bits(f, 80) || bytes_u32(f + 8) != HEADER_BYTES)
        return err_set(e, ERR_FORMAT, "%s: the header is damaged", path);
    if (bytes_u32(f + 12))
        return err_set(e, ERR_UNSUPPORTED, "%s: flags %#x are not known", path, bytes_u32(f + 12));
    if (bytes_u64(f + 16) != bytes)
        return err_set(e, ERR_FORMAT, "%s: %llu bytes, the header says %llu", path,
                       (unsigned long long)bytes, (unsigned long long)bytes_u64(f + 16));
    if (memcmp(f + 24, p->fingerprint, 16))
        return err_set(e, ERR_FORMAT, "%s: it belongs to another model", path);
    return true;
}

/* The header is sound and the model's own. */
static bool check_section(const char *path, const uint8_t *f, uint64_t bytes,
                          const struct profile *p, struct err *e)
{
    bool fits = bytes == file_bytes(p) && bytes_u32(f + 48) == (uint32_t)p->layers &&
                bytes_u32(f + 52) == count_records(p) && bytes_u64(f + 56) == HEADER_BYTES &&
                bytes_u64(f + 64) == section_bytes(p);
    for (int l = 0; fits && l < p->layers; l++)
        fits = bytes_u32(f + HEADER_BYTES + 4 * l) == (uint32_t)p->experts[l];
    if (!fits)
        return err_set(e, ERR_FORMAT, "%s: its layers and experts are not those of the model",
                       path);
    return bytes_u64(f + 72) == XXH3_64bits(f + HEADER_BYTES, section_bytes(p)) ||
           err_set(e, ERR_FORMAT, "%s: the counts are damaged", path);
}

bool profile_read(const char *path, struct profile *p, struct err *e)
{
    size_t bytes;
    uint8_t *f = (uint8_t *)file_read_all(path, MOST_BYTES, &bytes, e);
    bool ok = f && check_header(path, f, bytes, p, e) && check_section(path, f, bytes, p, e);
    if (ok) {
        const uint8_t *counts = f + HEADER_BYTES + 4 * (size_t)p->layers;
        p->tokens = bytes_u64(f + 40);
        for (size_t r = 0; r < count_records(p); r++)
            p->counts[r] = bytes_u32(counts + 4 * r);
    }
    mem_free(f);
    return ok;
}

/* ---- writing ---- */

static void put_header(uint8_t *f, const struct profile *p)
{
    memcpy(f, magic, 8);
    bytes_put_u32(f + 8, HEADER_BYTES);
    bytes_put_u64(f + 16, file_bytes(p));
    memcpy(f + 24, p->fingerprint, 16);
    bytes_put_u64(f + 40, p->tokens);
    bytes_put_u32(f + 48, (uint32_t)p->layers);
    bytes_put_u32(f + 52, (uint32_t)count_records(p));
    bytes_put_u64(f + 56, HEADER_BYTES);
    bytes_put_u64(f + 64, section_bytes(p));
    bytes_put_u64(f + 72, XXH3_64bits(f + HEADER_BYTES, section_bytes(p)));
    bytes_put_u64(f + 80, XXH3_64bits(f, 80));
}

bool profile_write(const char *path, const struct profile *p, struct err *e)
{
    struct file_writer w;
    size_t bytes = (size_t)file_bytes(p);
    uint8_t *f = mem_alloc(bytes, "the popularity profile", e);
    if (!f)
        return false;
    uint8_t *at = f + HEADER_BYTES;
    for (int l = 0; l < p->layers; l++, at += 4)
        bytes_put_u32(at, (uint32_t)p->experts[l]);
    for (size_t r = 0; r < count_records(p); r++, at += 4)
        bytes_put_u32(at, p->counts[r]);
    put_header(f, p);
    bool ok = file_write_begin(&w, path, 0644, e);
    if (ok && !file_write(&w, f, bytes, e)) {
        file_write_abort(&w);
        ok = false;
    }
    ok = ok && file_write_commit(&w, e);
    mem_free(f);
    return ok;
}
