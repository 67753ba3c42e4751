/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"

int file_open(const char *path, uint64_t *bytes, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        err_set(e, ERR_IO, "%s: %s", path, errno == ENOENT ? "no such file" : strerror(errno));
        return -1;
    }
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        err_set(e, ERR_IO, "%s: not a regular file", path);
        return -1;
    }
    *bytes = (uint64_t)st.st_size;
    return fd;
}

int file_open_direct(const char *path, size_t *align)
{
    *align = 4096;
#ifdef O_DIRECT
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0)
        return -1;
#ifdef STATX_DIOALIGN
    struct statx sx;
    if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) && sx.stx_mask & STATX_DIOALIGN) {
        size_t m = sx.stx_dio_mem_align, o = sx.stx_dio_offset_align;
        if (!m || !o) {
            close(fd);
            return -1;
        }
        *align = m > o ? m : o;
        return fd;
    }
#endif
    struct stat st;
    if (!fstat(fd, &st) && st.st_blksize > 0 && st.st_blksize <= 1 << 20 &&
        !(st.st_blksize & (st.st_blksize - 1)))
        *align = (size_t)st.st_blksize;
    return fd;
#else
    return -1;
#endif
}

bool file_read_at(int fd, const char *path, uint64_t offset, void *to, size_t n, struct err *e)
{
    size_t done = 0;
    while (done < n) {
        ssize_t r = pread(fd, (char *)to + done, n - done, (off_t)(offset + done));
        if (r < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (r < 0)
            return err_set(e, ERR_IO, "%s: reading %zu bytes at %llu: %s", path, n,
                           (unsigned long long)offset, strerror(errno));
        if (r == 0)
            return err_set(e, ERR_IO, "%s: reading %zu bytes at %llu: the file ends after %zu", path,
                           n, (unsigned long long)offset, done);
        done += (size_t)r;
    }
    return true;
}

bool file_read_direct(int fd, uint64_t offset, void *to, size_t span, size_t need)
{
    for (size_t done = 0; done < need;) {
        ssize_t r = pread(fd, (char *)to + done, span - done, (off_t)(offset + done));
        if (r == 0 || (r < 0 && errno != EINTR && errno != EAGAIN))
            return false;
        done += r > 0 ? (size_t)r : 0;
    }
    return true;
}

bool file_is_same(int fd, int other)
{
    struct stat a, b;
    return !fstat(fd, &a) && !fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void file_read_ahead_off(int fd)
{
#ifdef POSIX_FADV_RANDOM
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
#else
    (void)fd;
#endif
}

void file_close(int fd)
{
    close(fd);
}

char *file_read_all(const char *path, size_t most, size_t *bytes, struct err *e)
{
    uint64_t size;
    int fd = file_open(path, &size, e);
    if (fd < 0)
        return NULL;
    char *text = NULL;
    if (size > most)
        err_set(e, ERR_FORMAT, "%s: %llu bytes, more than %zu", path, (unsigned long long)size, most);
    else
        text = mem_alloc((size_t)size + 1, path, e);
    if (text && !file_read_at(fd, path, 0, text, (size_t)size, e)) {
        mem_free(text);
        text = NULL;
    }
    close(fd);
    *bytes = (size_t)size;
    return text;
}

static bool write_failed(struct file_writer *w, const char *what, struct err *e)
{
    return err_set(e, ERR_IO, "%s: %s: %s", w->path, what, strerror(errno));
}

/* The folder of a path into folder[0..room-1]; returns the name in it, NULL: it does not fit. */
static const char *split_path(const char *path, char *folder, size_t room)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + (slash == path) : 1;
    if (n >= room)
        return NULL;
    memcpy(folder, slash ? path : ".", n);
    folder[n] = 0;
    return slash ? slash + 1 : path;
}

/* Removes a temporary file whose writer has died: regular, ours, and locked by nobody, which tells
 * of writers whose process number means nothing here. */
static void remove_leftover(int folder, const char *name)
{
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        !flock(fd, LOCK_EX | LOCK_NB))
        unlinkat(folder, name, 0);
    close(fd);
}

/* What processes that were killed have left of writing `path`. Nothing depends on it. */
static void remove_leftovers(const char *path)
{
    char folder[4096], *end;
    const char *name = split_path(path, folder, sizeof folder);
    size_t n = name ? strlen(name) : 0;
    DIR *d = n ? opendir(folder) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, name, n) || strncmp(f->d_name + n, ".tmp-", 5))
            continue;
        const char *digits = f->d_name + n + 5;
        long pid = *digits >= '1' && *digits <= '9' ? strtol(digits, &end, 10) : 0;
        if (pid > 0 && !*end && pid == (pid_t)pid && kill((pid_t)pid, 0) && errno == ESRCH)
            remove_leftover(dirfd(d), f->d_name);
    }
    if (d)
        closedir(d);
}

/* The name that is to be replaced: of a link that of the file it leads to, so that the link stays. */
static char *final_path(const char *path, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) || !S_ISLNK(st.st_mode))
        return mem_copy_text(path, strlen(path), e);
    char *target = realpath(path, NULL);
    if (!target)
        err_set(e, ERR_IO, "%s: a link to what is not there: %s", path, strerror(errno));
    char *own = target ? mem_copy_text(target, strlen(target), e) : NULL;
    free(target);
    return own;
}

bool file_write_begin(struct file_writer *w, const char *path, unsigned mode, struct err *e)
{
    struct stat st;
    *w = (struct file_writer){.fd = -1};
    if (!*path)
        return err_set(e, ERR_IO, "a file without a name cannot be written");
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "%s: not a regular file, it is not replaced", path);
    w->path = final_path(path, e);
    size_t n = w->path ? strlen(w->path) + 32 : 0;
    w->temporary = w->path ? mem_alloc(n, "file name", e) : NULL;
    if (!w->temporary) {
        file_write_abort(w);
        return false;
    }
    remove_leftovers(w->path);
    snprintf(w->temporary, n, "%s.tmp-%ld", w->path, (long)getpid());
    w->fd = open(w->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
    if (w->fd < 0) {
        write_failed(w, "cannot write", e);
        file_write_abort(w);
        return false;
    }
    flock(w->fd, LOCK_EX | LOCK_NB); /* as long as it is open nobody takes it for a leftover */
    return true;
}

bool file_write_has_room(struct file_writer *w, uint64_t bytes, struct err *e)
{
    struct statvfs v;
    if (fstatvfs(w->fd, &v))
        return true;
    uint64_t left = (uint64_t)v.f_bavail * v.f_frsize;
    return left >= bytes ||
           err_set(e, ERR_IO, "%s: %llu bytes are needed, the disk has %llu left", w->path,
                   (unsigned long long)bytes, (unsigned long long)left);
}

bool file_write_at(struct file_writer *w, uint64_t offset, const void *data, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = pwrite(w->fd, (const char *)data + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return write_failed(w, "writing", e);
        done += (size_t)r;
    }
    return true;
}

bool file_write(struct file_writer *w, const void *data, size_t n, struct err *e)
{
    if (!file_write_at(w, w->bytes, data, n, e))
        return false;
    w->bytes += n;
    return true;
}

static bool sync_folder(const char *path)
{
    char folder[4096];
    if (!split_path(path, folder, sizeof folder))
        return false;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = !fsync(fd) || errno == EINVAL;
    close(fd);
    return ok;
}

bool file_write_commit(struct file_writer *w, struct err *e)
{
    bool ok = !fsync(w->fd) || write_failed(w, "fsync", e);
    ok = ok && (!rename(w->temporary, w->path) || write_failed(w, "rename", e));
    if (ok) {
        mem_free(w->temporary);
        w->temporary = NULL;
        ok = sync_folder(w->path) || write_failed(w, "fsync of the folder", e);
    }
    file_write_abort(w);
    return ok;
}

void file_write_abort(struct file_writer *w)
{
    if (w->fd >= 0) {
        close(w->fd);
        if (w->temporary)
            unlink(w->temporary);
    }
    mem_free(w->temporary);
    mem_free(w->path);
    *w = (struct file_writer){.fd = -1};
}
