/* SPDX-License-Identifier: Apache-2.0 */
/* Every hostile file is refused with one line that names what is wrong; every odd file loads and
 * shows its facts. And the runner that says so can tell the two apart. */
#include "base/mem.h"
#include "cases_gguf.h"
#include "cmocka_all.h"
#include "folder.h"

static void test_hostile_files_are_refused(void **state)
{
    struct case_report r = {.verbose = true};
    cases_gguf(DATA "/cases/gguf-hostile/cases.tsv", &r);
    assert_int_equal(r.failed, 0);
    assert_int_equal(r.skipped, 0);
    assert_int_equal(r.passed, 153);
    assert_int_equal(mem_in_use(), 0);
}

static void test_odd_files_load_and_show_their_facts(void **state)
{
    struct case_report r = {.verbose = true};
    cases_gguf(DATA "/cases/gguf-odd/cases.tsv", &r);
    assert_int_equal(r.failed, 0);
    assert_int_equal(r.skipped, 0);
    assert_int_equal(r.passed, 76);
    assert_int_equal(mem_in_use(), 0);
}

/* A table with one right line and wrong expectations: the runner must find each of them. */
static void test_runner_finds_wrong_expectations(void **state)
{
    static const char table[] =
        "file\trule\tmust\tmessage_names\tshows\n"
        "odd/version-2.gguf\tR28\tload\t\tversion=2 tensors=2\n"
        "odd/version-2.gguf\tR28\trefuse\tversion\t\n"
        "odd/version-2.gguf\tR28\tload\t\tversion=3\n"
        "odd/dims-4.gguf\tR28\tload\t\ttensors=1 ne=4x3x2\n"
        "odd/nested-empty.gguf\tR28\tload\t\tt.after=8\n"
        "odd/not-there.gguf\tR28\tload\t\tkeys=1\n"
        "hostile/version-1.gguf\tR03\trefuse\tversion|nonsense\t\n"
        "hostile/split-no-twice/m-00001-of-00003.gguf\tR26\trefuse\tm-00002-of-00003.gguf\t\n"
        "odd/version-2.gguf\tR28\tperhaps\t\t\n";
    struct test_folder t;
    test_folder_begin(&t);
    test_folder_link(&t, "odd", DATA "/cases/gguf-odd");
    test_folder_link(&t, "hostile", DATA "/cases/gguf-hostile");
    test_folder_write(&t, "wrong.tsv", table, sizeof table - 1);
    struct case_report r = {0};
    cases_gguf(t.path, &r);
    test_folder_end(&t);
    assert_int_equal(r.passed, 1);
    assert_int_equal(r.failed, 7);
    assert_int_equal(r.skipped, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_files_are_refused),
        cmocka_unit_test(test_odd_files_load_and_show_their_facts),
        cmocka_unit_test(test_runner_finds_wrong_expectations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
