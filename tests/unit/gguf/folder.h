/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder for files of a test, removed with everything in it: at the end, or by the next
 * test that begins one. */
#ifndef STRATA_TESTS_GGUF_FOLDER_H
#define STRATA_TESTS_GGUF_FOLDER_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_FOLDER "strata-test-" /* then the process that made it */

struct test_folder {
    char folder[256];
    char path[600]; /* of the last file that was named */
};

/* With the files in it. */
static inline void test_folder_remove(const char *folder)
{
    DIR *d = opendir(folder);
    char path[600];
    for (struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

/* Removes what tests that were killed have left: folders of processes that are no more. */
static inline void test_folder_clean(const char *place)
{
    DIR *d = opendir(place);
    char path[300];
    int owner;
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (sscanf(entry->d_name, TEST_FOLDER "%d-", &owner) == 1 && kill(owner, 0) &&
            errno == ESRCH) {
            snprintf(path, sizeof path, "%s/%s", place, entry->d_name);
            test_folder_remove(path);
        }
    if (d)
        closedir(d);
}

static inline void test_folder_begin(struct test_folder *t)
{
    /* In memory where there is such a place: each file is synced, which a busy drive takes long
     * for. */
    const char *const places[] = {"/dev/shm", P_tmpdir};
    for (int i = 0; i < 2; i++) {
        test_folder_clean(places[i]);
        snprintf(t->folder, sizeof t->folder, "%s/" TEST_FOLDER "%d-XXXXXX", places[i],
                 (int)getpid());
        if (mkdtemp(t->folder))
            return;
    }
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
    test_folder_remove(t->folder);
}

#endif
