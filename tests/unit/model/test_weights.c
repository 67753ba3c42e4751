/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in memory: every matrix has its bytes of the file and every vector its values, whether the
 * memory is the backend's own or another device's, and where the file has no direct I/O. What fails or
 * is given up meanwhile is told to who waits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../gguf/folder.h"
#include "base/file.h"
#include "base/mem.h"
#include "cpu/backend.h"
#include "model/weights.h"
#include "quant/quant.h"

enum { MATRICES_MOST = 512 };

struct asked {
    struct tensor matrix[MATRICES_MOST];
    const struct gguf_tensor *of[MATRICES_MOST];
    int64_t first[MATRICES_MOST];
    const float *vector[MATRICES_MOST];
    int n;
};

static int64_t backwards(int64_t r, const void *ctx)
{
    return *(const int64_t *)ctx - 1 - r;
}

/* Every tensor of two dimensions as a matrix, or its middle rows, or its rows from behind; every other
 * one as a vector. */
static void ask_for_all(struct weights *w, const struct gguf_file *g, struct asked *a)
{
    struct err e = {0};
    for (size_t i = 0; i < gguf_tensor_count(g) && a->n < MATRICES_MOST; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int64_t n_in = (int64_t)t->ne[0], rows = (int64_t)t->ne[1];
        int k = a->n++;
        bool ok;
        a->of[k] = t;
        if (t->ne[2] > 1 || t->ne[3] > 1) {
            a->n--;
            continue;
        }
        if (rows == 1) {
            ok = weights_vector(w, &a->vector[k], n_in, &e, "%s", t->name);
        } else if (i % 3 == 0 && rows > 4) {
            a->first[k] = 1;
            ok = weights_matrix_slice(w, &a->matrix[k], n_in, rows, 1, rows - 3, &e, "%s", t->name);
        } else if (i % 3 == 1) {
            a->first[k] = -1;
            ok = weights_matrix_rows(w, &a->matrix[k], n_in, rows, rows, backwards, &rows, &e, "%s",
                                     t->name);
        } else {
            ok = weights_matrix(w, &a->matrix[k], n_in, rows, &e, "%s", t->name);
        }
        if (!ok)
            fail_msg("%s", e.text);
    }
}

static void expect_bytes_of_the_file(const struct gguf_file *g, const struct asked *a)
{
    struct err e = {0};
    for (int k = 0; k < a->n; k++) {
        const struct gguf_tensor *t = a->of[k];
        char *file = mem_alloc(t->bytes, "tensor", &e);
        assert_true(file && file_read_at(gguf_part_fd(g, t->part), t->name, t->offset, file, t->bytes, &e));
        size_t row = (size_t)(t->bytes / t->ne[1]);
        if (a->vector[k]) {
            float *values = mem_alloc_array(t->ne[0], sizeof *values, "vector", &e);
            quant_decode(t->type, file, values, t->ne[0]);
            assert_memory_equal(a->vector[k], values, t->ne[0] * sizeof *values);
            mem_free(values);
        }
        const struct tensor *m = &a->matrix[k];
        for (int r = 0; m->data && r < m->n_out; r++) {
            size_t from = a->first[k] < 0 ? (size_t)(m->n_out - 1 - r) : (size_t)(a->first[k] + r);
            assert_memory_equal((const char *)m->data + (size_t)r * row, file + from * row, row);
        }
        assert_true(m->data || a->vector[k]);
        mem_free(file);
    }
}

static uint64_t most_told;

static bool tell(void *ctx, uint64_t done, uint64_t all)
{
    assert_true(done <= all && done >= most_told);
    most_told = done;
    return true;
}

/* A file that takes the model's name when it is open. */
static const char *taken_by;

/* Returns the runs. */
static size_t load(const char *path, bool host_visible)
{
    struct err e = {0};
    struct pool *pool = pool_create(1, &e);
    struct backend *b = cpu_backend_create(pool, cpu_isa_best(), false, &e);
    struct gguf_file *g = gguf_open(path, &e);
    if (!b || !g)
        fail_msg("%s", e.text);
    b->host_visible = host_visible;
    struct weights w;
    static struct asked a;
    a = (struct asked){0};
    weights_init(&w, g);
    ask_for_all(&w, g, &a);
    assert_true(weights_place(&w, &e));
    assert_true(!taken_by || !rename(taken_by, path));
    most_told = 0;
    if (!weights_load(&w, b, tell, NULL, &e) || !weights_wait(&w, WEIGHTS_ALL, NULL, &e))
        fail_msg("%s", e.text);
    assert_null(w.loading);
    size_t runs = w.n_runs;
    assert_true(a.n > 10 && runs && runs < (size_t)a.n);
    expect_bytes_of_the_file(g, &a);
    weights_free(&w);
    gguf_close(g);
    b->free(b);
    pool_free(pool);
    return runs;
}

static const char *const models[] = {"q4e_ngram", "q4e_fused", "q3m_mix", "q3n_legacy", "q35_fused"};
#define MODELS (sizeof models / sizeof *models)

static void every_weight_is_that_of_the_file(void **state)
{
    for (size_t i = 0; i < MODELS; i++) {
        char path[512];
        snprintf(path, sizeof path, TEST_DATA "/fixtures/models/%s.gguf", models[i]);
        load(path, true);
        load(path, false);
    }
    /* Experts lie between its runs, which are longer than a read. */
    assert_true(load(SHIPPED "/strata-demo.gguf", true) > 2);
    load(SHIPPED "/strata-demo.gguf", false);
}

static void copy_file(const char *from, const char *to)
{
    struct err e = {0};
    struct file_writer out;
    size_t n;
    char *bytes = file_read_all(from, (size_t)1 << 30, &n, &e);
    if (!bytes || !file_write_begin(&out, to, 0600, &e) || !file_write(&out, bytes, n, &e) ||
        !file_write_commit(&out, &e))
        fail_msg("%s", e.text);
    mem_free(bytes);
}

/* A file in memory: many systems have no direct I/O there. */
static void where_there_is_no_direct_io_too(void **state)
{
    struct test_folder folder;
    char from[512];
    test_folder_begin(&folder);
    snprintf(from, sizeof from, TEST_DATA "/fixtures/models/%s.gguf", models[0]);
    const char *path = test_folder_name(&folder, "copy.gguf");
    copy_file(from, path);
    load(path, true);
    load(path, false);
    test_folder_end(&folder);
}

/* Beside the program, where most systems have direct I/O. */
static const char changing[] = "weights-test.gguf";

static void write_q4e(const char *to)
{
    char from[512];
    snprintf(from, sizeof from, TEST_DATA "/fixtures/models/%s.gguf", models[0]);
    copy_file(from, to);
}

/* Also in the middle of a block, where a direct read cannot go on. */
static void a_file_that_has_become_shorter_says_where_it_ends(void **state)
{
    for (int less = 1; less < 12000; less += 1777) {
        struct err e = {0};
        struct pool *pool = pool_create(1, &e);
        struct backend *b = cpu_backend_create(pool, cpu_isa_best(), false, &e);
        struct weights w;
        static struct asked a;
        a = (struct asked){0};
        write_q4e(changing);
        struct gguf_file *g = gguf_open(changing, &e);
        weights_init(&w, g);
        ask_for_all(&w, g, &a);
        assert_true(weights_place(&w, &e));
        assert_int_equal(truncate(changing, (off_t)gguf_part_bytes(g, 0) - less), 0);
        assert_false(weights_load(&w, b, NULL, NULL, &e) && weights_wait(&w, WEIGHTS_ALL, NULL, &e));
        if (e.code != ERR_IO || !strstr(e.text, "the file ends after") || !strstr(e.text, changing))
            fail_msg("%d bytes less: %s", less, e.text);
        weights_free(&w);
        gguf_close(g);
        b->free(b);
        pool_free(pool);
    }
    unlink(changing);
}

/* The weights are those of the file whose shapes were looked at, not of what has its name now. */
static void a_file_that_takes_its_name_is_not_read(void **state)
{
    static const char other[] = "weights-test-other.gguf";
    struct err e = {0};
    write_q4e(changing);
    size_t n;
    char *bytes = file_read_all(changing, (size_t)1 << 30, &n, &e);
    memset(bytes, 0x11, n);
    struct file_writer out;
    assert_true(file_write_begin(&out, other, 0600, &e) && file_write(&out, bytes, n, &e) &&
                file_write_commit(&out, &e));
    mem_free(bytes);
    taken_by = other;
    load(changing, true);
    taken_by = NULL;
    unlink(changing);
}

/* ---- while it is read ----------------------------------------------------------------------- */

struct asked_model {
    struct pool *pool;
    struct backend *backend;
    struct gguf_file *file;
    struct weights w;
    struct asked asked;
};

static struct asked_model *ask(const char *path)
{
    static struct asked_model m;
    struct err e = {0};
    m = (struct asked_model){.pool = pool_create(1, &e), .file = gguf_open(path, &e)};
    m.backend = cpu_backend_create(m.pool, cpu_isa_best(), false, &e);
    if (!m.backend || !m.file)
        fail_msg("%s", e.text);
    m.backend->host_visible = false;
    weights_init(&m.w, m.file);
    ask_for_all(&m.w, m.file, &m.asked);
    assert_true(weights_place(&m.w, &e));
    return &m;
}

static void forget(struct asked_model *m)
{
    weights_free(&m->w);
    gguf_close(m->file);
    m->backend->free(m->backend);
    pool_free(m->pool);
}

static bool never(void *ctx, uint64_t done, uint64_t all)
{
    return false;
}

static void who_waits_may_end_it(void **state)
{
    struct err e = {0};
    struct asked_model *m = ask(SHIPPED "/strata-demo.gguf");
    assert_false(weights_load(&m->w, m->backend, never, NULL, &e));
    assert_int_equal(e.code, ERR_INTERRUPTED);
    forget(m);
}

static void an_error_comes_to_everybody_who_waits(void **state)
{
    struct test_folder folder;
    test_folder_begin(&folder);
    const char *path = test_folder_name(&folder, "cut.gguf");
    copy_file(TEST_DATA "/fixtures/models/q4e_ngram.gguf", path);
    struct asked_model *m = ask(path);
    struct err e = {0};
    assert_int_equal(truncate(path, 8192), 0);
    bool ok = weights_load(&m->w, m->backend, NULL, NULL, &e);
    assert_true(ok || strstr(e.text, "cut.gguf"));
    for (int i = 0; i < 2; i++) {
        e = (struct err){0};
        assert_false(weights_wait(&m->w, WEIGHTS_ALL, NULL, &e));
        assert_int_equal(e.code, ERR_IO);
        assert_non_null(strstr(e.text, "cut.gguf"));
    }
    forget(m);
    test_folder_end(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_is_that_of_the_file),
        cmocka_unit_test(where_there_is_no_direct_io_too),
        cmocka_unit_test(a_file_that_has_become_shorter_says_where_it_ends),
        cmocka_unit_test(a_file_that_takes_its_name_is_not_read),
        cmocka_unit_test(who_waits_may_end_it),
        cmocka_unit_test(an_error_comes_to_everybody_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
