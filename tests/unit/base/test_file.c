/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that writing a file leaves the old one or the new one, and replaces nothing but files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/cache.h"
#include "base/file.h"
#include "base/mem.h"

static char folder[] = "/tmp/strata-file-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    struct file_writer w;
    struct err e = {0};
    assert_true(file_write_begin(&w, path, 0600, &e));
    assert_true(file_write(&w, text, strlen(text), &e));
    assert_true(file_write_commit(&w, &e));
}

static void assert_text(const char *path, const char *want)
{
    size_t n;
    struct err e = {0};
    char *text = file_read_all(path, 100, &n, &e);
    assert_non_null(text);
    assert_string_equal(text, want);
    mem_free(text);
}

static void a_new_file_replaces_an_old_one_when_it_is_whole(void **state)
{
    (void)state;
    const char *path = in_folder("text");
    struct file_writer w;
    struct err e = {0};
    write_text(path, "old");
    assert_true(file_write_begin(&w, path, 0600, &e));
    assert_true(file_write(&w, "new", 3, &e));
    assert_text(path, "old");
    assert_true(file_write_commit(&w, &e));
    assert_text(path, "new");
    unlink(path);
}

static void an_aborted_write_leaves_nothing_behind(void **state)
{
    (void)state;
    struct file_writer w;
    struct err e = {0};
    assert_true(file_write_begin(&w, in_folder("text"), 0600, &e));
    assert_true(file_write(&w, "new", 3, &e));
    file_write_abort(&w);
    /* The folder can only be removed, and made again, when it is empty. */
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void what_is_no_file_is_not_replaced(void **state)
{
    (void)state;
    const char *path = in_folder("pipe");
    struct file_writer w;
    struct err e = {0};
    struct stat st;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(file_write_begin(&w, path, 0600, &e));
    assert_non_null(strstr(e.text, "/pipe: not a regular file, it is not replaced"));
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    unlink(path);
    err_clear(&e);
    assert_false(file_write_begin(&w, folder, 0600, &e));
    assert_non_null(strstr(e.text, "not a regular file"));
}

/* A writer that is killed; returns its number, which is nobody's then. */
static pid_t die_writing(const char *path)
{
    pid_t pid = fork();
    if (!pid) {
        struct file_writer w;
        _exit(!file_write_begin(&w, path, 0600, NULL) || !file_write(&w, "ne", 2, NULL));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return pid;
}

static bool is_there(const char *name, long number)
{
    char path[160];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s.tmp-%ld", folder, name, number);
    return !lstat(path, &st);
}

static void of_a_link_the_file_is_replaced_and_the_link_stays(void **state)
{
    char target[64], link[64], text[64];
    struct file_writer w;
    struct err e = {0};
    snprintf(target, sizeof target, "file-test-target-%d", (int)getpid());
    snprintf(link, sizeof link, "file-test-link-%d", (int)getpid());
    write_text(target, "old");
    assert_int_equal(symlink(target, link), 0);
    assert_true(file_write_begin(&w, link, 0600, &e) && file_write(&w, "new", 3, &e) &&
                file_write_commit(&w, &e));
    assert_int_equal(readlink(link, text, sizeof text), strlen(target));
    assert_text(target, "new");
    assert_int_equal(unlink(target), 0);
    assert_false(file_write_begin(&w, link, 0600, &e));
    assert_non_null(strstr(e.text, "a link to what is not there"));
    assert_int_equal(unlink(link), 0);
    err_clear(&e);
    assert_false(file_write_begin(&w, "", 0600, &e));
    assert_non_null(strstr(e.text, "without a name"));
}

static void what_a_killed_writer_has_left_is_removed_by_the_next(void **state)
{
    (void)state;
    char path[128], other[128], link[160];
    snprintf(path, sizeof path, "%s/text", folder);
    snprintf(other, sizeof other, "%s/text2", folder);
    struct file_writer living;
    struct err e = {0};
    assert_true(file_write_begin(&living, other, 0600, &e)); /* its number is ours, and it lives */
    pid_t first = die_writing(path), second = die_writing(other);
    assert_true(is_there("text", first) && is_there("text2", second));
    snprintf(link, sizeof link, "%s.tmp-%ld", path, (long)second);
    assert_int_equal(symlink(other, link), 0);
    write_text(path, "whole");
    assert_false(is_there("text", first));
    assert_true(is_there("text", second)); /* no regular file */
    assert_true(is_there("text2", second) && is_there("text2", getpid())); /* of another path */
    unlink(link);
    assert_true(file_write_commit(&living, &e));
    write_text(other, "whole");
    assert_false(is_there("text2", second));
    assert_text(path, "whole");
    unlink(path);
    unlink(other);
}

static const char *dirname_of(char *path)
{
    *strrchr(path, '/') = 0;
    return path;
}

static void the_cache_is_where_the_environment_says_and_is_made_when_it_is_written(void **state)
{
    (void)state;
    char path[256], expected[256], below[64], most[300];
    snprintf(below, sizeof below, "%s/home", folder);
    assert_int_equal(mkdir(below, 0700), 0);
    assert_int_equal(setenv("HOME", below, 1), 0);
    /* A relative path is none. */
    assert_int_equal(setenv("XDG_CACHE_HOME", "here", 1), 0);
    snprintf(expected, sizeof expected, "%s/.cache/strata/file", below);
    assert_true(cache_path("file", false, path, sizeof path));
    assert_string_equal(path, expected);
    assert_int_equal(rmdir(below), 0); /* nothing was made for a look */
    assert_int_equal(mkdir(below, 0700), 0);
    assert_true(cache_path("file", true, path, sizeof path));
    write_text(path, "kept");
    assert_text(expected, "kept");
    unlink(path);
    snprintf(path, sizeof path, "%s/.cache/strata", below);
    assert_int_equal(rmdir(path), 0);
    assert_false(cache_path("file", true, most, strlen(expected))); /* no room for the zero */
    assert_int_equal(rmdir(dirname_of(path)), 0);
    assert_int_equal(rmdir(below), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    snprintf(expected, sizeof expected, "%s/strata/file", folder);
    assert_true(cache_path("file", false, path, sizeof path));
    assert_string_equal(path, expected);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(cache_path("file", false, path, sizeof path));
}

static void room_is_looked_for_before_anything_is_written(void **state)
{
    (void)state;
    const char *path = in_folder("large");
    struct file_writer w;
    struct err e = {0};
    write_text(path, "old");
    assert_true(file_write_begin(&w, path, 0600, &e));
    assert_true(file_write_has_room(&w, 1, &e));
    assert_false(file_write_has_room(&w, UINT64_MAX / 2, &e));
    assert_non_null(strstr(e.text, path));
    assert_non_null(strstr(e.text, "9223372036854775807 bytes are needed"));
    file_write_abort(&w);
    assert_text(path, "old");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_file_replaces_an_old_one_when_it_is_whole),
        cmocka_unit_test(an_aborted_write_leaves_nothing_behind),
        cmocka_unit_test(what_is_no_file_is_not_replaced),
        cmocka_unit_test(room_is_looked_for_before_anything_is_written),
        cmocka_unit_test(of_a_link_the_file_is_replaced_and_the_link_stays),
        cmocka_unit_test(what_a_killed_writer_has_left_is_removed_by_the_next),
        cmocka_unit_test(the_cache_is_where_the_environment_says_and_is_made_when_it_is_written),
    };
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
