/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a sidecar. The unfinished file has a name of its own, PATH.part, and a header of its own:
 *
 *     STRPKT01, flags u32, finished layers u32, fingerprint, bytes of the finished file u64,
 *     xxh3-64 of these 40 bytes
 *
 * A layer counts as finished when its records are synced and the header after them is too. At the
 * end the true header takes its place, all is synced, and the file gets its name. Whatever a crash
 * leaves is either taken up again or begun anew. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "stream/pack_inner.h"

#define PART_HEAD_BYTES 48

struct writing {
    struct pack *p;
    const char *path;
    char *part_path;
    int fd;
    int finished;      /* layers */
    uint8_t *record;   /* [largest record] */
    uint8_t *checksum; /* [layers][experts] as they stand in the file; NULL: none */
};

static bool system_error(const struct writing *w, struct err *e)
{
    return err_set(e, ERR_IO, "%s: %s", w->part_path, strerror(errno));
}

static bool put_at(const struct writing *w, uint64_t offset, const void *data, size_t n,
                   struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(w->fd, (const char *)data + done, n - done, (off_t)(offset + done));
        if (k < 0 && errno != EINTR)
            return system_error(w, e);
        done += k > 0 ? (size_t)k : 0;
    }
    return true;
}

/* ---- the header of the unfinished file ------------------------------------------------------ */

static void make_part_head(const struct writing *w, uint8_t out[PART_HEAD_BYTES])
{
    memset(out, 0, PART_HEAD_BYTES);
    memcpy(out, "STRPKT01", 8);
    bytes_put_u32(out + 8, w->p->has_checksums);
    bytes_put_u32(out + 12, (uint32_t)w->finished);
    memcpy(out + 16, w->p->fingerprint, 16);
    bytes_put_u64(out + 32, w->p->file_bytes);
    bytes_put_u64(out + 40, XXH3_64bits(out, 40));
}

static bool finish_layer(struct writing *w, struct err *e)
{
    uint8_t head[PART_HEAD_BYTES];
    if (fdatasync(w->fd))
        return system_error(w, e);
    w->finished++;
    make_part_head(w, head);
    return put_at(w, 0, head, sizeof head, e) && (!fdatasync(w->fd) || system_error(w, e));
}

/* Layers that an earlier run has finished; 0 when the file is not of this model, or not whole. */
static int find_finished(struct writing *w)
{
    uint8_t there[PART_HEAD_BYTES], mine[PART_HEAD_BYTES];
    struct stat st;
    if (pread(w->fd, there, sizeof there, 0) != (ssize_t)sizeof there || fstat(w->fd, &st))
        return 0;
    uint32_t finished = bytes_u32(there + 12);
    if (finished > (uint32_t)w->p->layers)
        return 0;
    w->finished = (int)finished;
    make_part_head(w, mine);
    w->finished = 0;
    const struct pack_layer *last = finished ? &w->p->layer[finished - 1] : NULL;
    uint64_t end = last ? last->first + last->record_bytes * (uint64_t)last->experts : 0;
    return memcmp(there, mine, sizeof mine) || (uint64_t)st.st_size < end ? 0 : (int)finished;
}

/* ---- beginning ------------------------------------------------------------------------------ */

static bool check_room(const struct writing *w, struct err *e)
{
    struct statvfs v;
    struct stat st;
    if (fstatvfs(w->fd, &v) || fstat(w->fd, &st))
        return true;
    uint64_t have = (uint64_t)v.f_bavail * v.f_frsize + (uint64_t)st.st_blocks * 512;
    return have >= w->p->file_bytes ||
           err_set(e, ERR_IO, "%s: %llu bytes are needed, the disk has %llu left", w->path,
                   (unsigned long long)w->p->file_bytes, (unsigned long long)have);
}

static void remove_empty(const struct writing *w)
{
    struct stat st;
    if (!fstat(w->fd, &st) && !st.st_size)
        unlink(w->part_path);
}

static bool open_part(struct writing *w, struct err *e)
{
    size_t room = strlen(w->path) + 8;
    w->part_path = mem_alloc(room, "a path", e);
    if (!w->part_path)
        return false;
    snprintf(w->part_path, room, "%s.part", w->path);
    w->fd = open(w->part_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return system_error(w, e);
    if (flock(w->fd, LOCK_EX | LOCK_NB))
        return err_set(e, ERR_IO, "%s: another process is writing it", w->part_path);
    if (!check_room(w, e)) {
        remove_empty(w);
        return false;
    }
    w->finished = find_finished(w);
    return w->finished || !ftruncate(w->fd, 0) || system_error(w, e);
}

static bool allocate(struct writing *w, struct err *e)
{
    size_t n = 8 * (size_t)w->p->layers * (size_t)w->p->experts;
    w->record = mem_alloc((size_t)pack_largest_record(w->p), "a record", e);
    if (w->p->has_checksums)
        w->checksum = mem_alloc(n, "checksums", e);
    if (!w->record || (w->p->has_checksums && !w->checksum))
        return false;
    return !w->checksum || !w->finished ||
           file_read_at(w->fd, w->part_path, w->p->checksums_at, w->checksum,
                        8 * (size_t)w->finished * (size_t)w->p->experts, e);
}

/* ---- the work ------------------------------------------------------------------------------- */

static bool write_layer(struct writing *w, int l, const struct pack_progress *progress,
                        struct err *e)
{
    struct pack *p = w->p;
    const struct pack_layer *y = &p->layer[l];
    size_t row = 8 * (size_t)l * (size_t)p->experts;
    for (int x = 0; x < y->experts; x++) {
        uint64_t at = y->first + (uint64_t)x * y->record_bytes;
        if (!pack_read_record(p, l, x, w->record, e) ||
            !put_at(w, at, w->record, (size_t)y->record_bytes, e))
            return false;
        if (w->checksum)
            bytes_put_u64(w->checksum + row + 8 * (size_t)x, pack_checksum(p, l, w->record));
        if (!pack_went_on(progress, at + y->record_bytes, p->file_bytes, e))
            return false;
    }
    if (w->checksum &&
        !put_at(w, p->checksums_at + row, w->checksum + row, 8 * (size_t)p->experts, e))
        return false;
    if (!finish_layer(w, e))
        return false;
#ifdef POSIX_FADV_DONTNEED
    for (int i = 0; i < y->parts; i++) /* what was copied once is not wanted again */
        posix_fadvise(y->part[i].fd, (off_t)y->part[i].offset,
                      (off_t)(y->part[i].bytes * (uint64_t)y->experts), POSIX_FADV_DONTNEED);
    posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    return true;
}

static bool sync_folder(const struct writing *w, struct err *e)
{
    const char *slash = strrchr(w->path, '/');
    char *folder = slash
                       ? mem_copy_text(w->path, slash == w->path ? 1 : (size_t)(slash - w->path), e)
                       : mem_copy_text(".", 1, e);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    mem_free(folder);
    if (fd < 0)
        return system_error(w, e);
    bool ok = !fsync(fd) || system_error(w, e);
    close(fd);
    return ok;
}

static bool finish(struct writing *w, struct err *e)
{
    struct pack *p = w->p;
    size_t n = 8 * (size_t)p->layers * (size_t)p->experts;
    uint8_t *header = pack_header(p, w->checksum ? XXH3_64bits(w->checksum, n) : 0, e);
    bool ok = header && put_at(w, 0, header, (size_t)p->header_bytes, e);
    mem_free(header);
    if (!ok)
        return false;
    if (ftruncate(w->fd, (off_t)p->file_bytes) || fsync(w->fd) || rename(w->part_path, w->path))
        return system_error(w, e);
    return sync_folder(w, e);
}

bool pack_write(struct pack *p, const char *path, const struct pack_progress *progress,
                struct err *e)
{
    struct writing w = {.p = p, .path = path, .fd = -1};
    bool ok = open_part(&w, e) && allocate(&w, e);
    for (int l = w.finished; ok && l < p->layers; l++)
        ok = write_layer(&w, l, progress, e);
    ok = ok && finish(&w, e);
    if (w.fd >= 0)
        close(w.fd);
    mem_free(w.record);
    mem_free(w.checksum);
    mem_free(w.part_path);
    return ok;
}
