/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for files of a test, removed with everything in it. */
#ifndef STRATA_TESTS_GGUF_FOLDER_H
#define STRATA_TESTS_GGUF_FOLDER_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test_folder {
    char folder[256];
    char path[600]; /* of the last file that was named */
};

static inline void test_folder_begin(struct test_folder *t)
{
    /* In memory where there is such a place: each file is synced, which a busy drive takes long for. */
    snprintf(t->folder, sizeof t->folder, "/dev/shm/strata-gguf-XXXXXX");
    if (mkdtemp(t->folder))
        return;
    snprintf(t->folder, sizeof t->folder, "%s/strata-gguf-XXXXXX", P_tmpdir);
    if (!mkdtemp(t->folder))
        abort();
}

/* Sets and returns t->path. */
static inline const char *test_folder_name(struct test_folder *t, const char *name)
{
    snprintf(t->path, sizeof t->path, "%s/%s", t->folder, name);
    return t->path;
}

static inline void test_folder_link(struct test_folder *t, const char *name, const char *to)
{
    if (symlink(to, test_folder_name(t, name)))
        abort();
}

static inline const char *test_folder_write(struct test_folder *t, const char *name,
                                            const void *bytes, size_t n)
{
    FILE *f = fopen(test_folder_name(t, name), "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        abort();
    return t->path;
}

static inline void test_folder_end(struct test_folder *t)
{
    DIR *d = opendir(t->folder);
    char path[600];
    for (struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", t->folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(t->folder);
}

#endif
