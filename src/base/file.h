/* SPDX-License-Identifier: Apache-2.0 */
/* Files: opening, whole reads, direct I/O, and writes that leave the old file or the new one. */
#ifndef STRATA_BASE_FILE_H
#define STRATA_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Opens a regular file for reading. -1 and "PATH: no such file" / "PATH: not a regular file" / the
 * system's words. *bytes gets the size. */
int file_open(const char *path, uint64_t *bytes, struct err *e);

/* A second descriptor of the same file for direct I/O (no page cache), or -1 without an error when
 * the file system has none. *align gets what offset, length and memory must be multiples of. */
int file_open_direct(const char *path, size_t *align);

/* Reads exactly n bytes; short reads are continued, EINTR and EAGAIN retried. The message names
 * path, offset and how much there was. */
bool file_read_at(int fd, const char *path, uint64_t offset, void *to, size_t n, struct err *e);

/* Reads through a descriptor of file_open_direct: offset, memory and span are multiples of its
 * alignment; `need` of the span's bytes must come (the file may end inside it). False: they did not,
 * which file_read_at may yet do, or says why. */
bool file_read_direct(int fd, uint64_t offset, void *to, size_t span, size_t need);

/* Whether two descriptors are of one file, and not of what has taken its name meanwhile. */
bool file_is_same(int fd, int other);

/* Reads of it come in no order: the system fetches what is asked for and nothing behind it. */
void file_read_ahead_off(int fd);

void file_close(int fd);

/* Whole file into memory (NUL-terminated), refused above `most` bytes. Freed with mem_free. */
char *file_read_all(const char *path, size_t most, size_t *bytes, struct err *e);

/* Atomic writing: temporary name in the same folder, write, fsync, rename, fsync of the folder.
 * file_write_begin -> any number of file_write -> file_write_commit or file_write_abort.
 * What is there already must be a regular file: a device or a folder is not replaced, and of a link
 * the file that it leads to is. Temporary
 * files that killed writers of the same path have left are removed. */
struct file_writer {
    int fd;
    uint64_t bytes;
    char *path, *temporary;
};
bool file_write_begin(struct file_writer *w, const char *path, unsigned mode, struct err *e);
/* Whether the disk has room for `bytes` more; the error says how much it has. */
bool file_write_has_room(struct file_writer *w, uint64_t bytes, struct err *e);
bool file_write(struct file_writer *w, const void *data, size_t n, struct err *e);
/* Overwrites bytes already written (headers with checksums). */
bool file_write_at(struct file_writer *w, uint64_t offset, const void *data, size_t n, struct err *e);
bool file_write_commit(struct file_writer *w, struct err *e);
void file_write_abort(struct file_writer *w);

#endif
