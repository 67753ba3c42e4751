/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the backend's operations share: backends, random values, memory. */
#ifndef STRATA_TEST_OPS_FIXTURE_H
#define STRATA_TEST_OPS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cpu/backend.h"

struct fixture {
    struct pool *pool;
    struct backend *b;
};

static inline struct fixture fixture_open(int threads, enum cpu_isa isa,
                                          const struct backend_limits *limits)
{
    struct err e;
    err_clear(&e);
    struct fixture f = {.pool = pool_create(threads, &e)};
    assert_non_null(f.pool);
    f.b = cpu_backend_create(f.pool, isa, false, &e);
    assert_non_null(f.b);
    size_t before = mem_in_use();
    assert_true(f.b->reserve(f.b, limits, &e));
    size_t took = mem_in_use() - before, said = f.b->reserve_bytes(f.b, limits);
    assert_true(took >= said && took - said < 256); /* the heap's own head of a block */
    return f;
}

static inline void fixture_close(struct fixture *f)
{
    f->b->free(f->b);
    pool_free(f->pool);
}

/* The operations so far met no problem. */
static inline void fixture_finish(struct fixture *f)
{
    struct err e;
    err_clear(&e);
    if (!f->b->finish(f->b, &e))
        fail_msg("%s", e.text);
}

/* -1..1, the same numbers in every run. */
static inline float test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static inline float *test_floats(size_t n, uint64_t seed)
{
    float *x = test_malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = test_random(&seed);
    return x;
}

static inline void assert_close(double got, double want, double bound, const char *what, size_t at)
{
    double size = want < 0 ? -want : want, off = got - want;
    off = off < 0 ? -off : off;
    if (!(off <= bound * (1 + size)))
        fail_msg("%s at %zu: %.9g instead of %.9g", what, at, got, want);
}

#endif
