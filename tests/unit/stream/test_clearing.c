/* SPDX-License-Identifier: Apache-2.0 */
/* Memory is there before it is used, and no more of it than was asked for; what is written stays. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "stream/clearing.h"

enum { AREAS = 2 };
#define AHEAD ((uint64_t)8 << 20)
static const uint64_t first[AREAS] = {0, (uint64_t)32 << 20};
static const uint64_t bytes[AREAS] = {(uint64_t)32 << 20, (uint64_t)4 << 20};
#define ALL ((size_t)36 << 20)

/* Bytes of memory + from .. + n that have pages. */
static uint64_t there(char *memory, uint64_t from, uint64_t n)
{
    unsigned char map[ALL / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t pages = 0;
    if (mincore(memory + from, n, map))
        return 0;
    for (size_t i = 0; i < n / page; i++)
        pages += map[i] & 1;
    return pages * page;
}

static bool comes_to_be_there(char *memory, uint64_t from, uint64_t n)
{
    for (int i = 0; i < 20000 && there(memory, from, n) < n; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return there(memory, from, n) == n;
}

static bool can_populate(void)
{
#ifdef MADV_POPULATE_WRITE
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool can = !madvise(p, 4096, MADV_POPULATE_WRITE) && there(p, 0, 4096) == 4096;
    munmap(p, 4096);
    return can;
#else
    return false;
#endif
}

/* What was told: bytes of each area, one after the other. */
struct told {
    char *memory;
    _Atomic uint64_t bytes[AREAS];
    atomic_bool is_wrong;
};

static void note_told(void *ctx, char *memory, uint64_t n)
{
    struct told *t = ctx;
    int area = (uint64_t)(memory - t->memory) >= first[1];
    if ((uint64_t)(memory - t->memory) != first[area] + atomic_load(&t->bytes[area]) ||
        there(memory, 0, n) < n)
        atomic_store(&t->is_wrong, true);
    atomic_fetch_add(&t->bytes[area], n);
}

static bool comes_to_be_told(struct told *t, int area)
{
    for (int i = 0; i < 20000 && atomic_load(&t->bytes[area]) < bytes[area]; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return atomic_load(&t->bytes[area]) == bytes[area];
}

static void memory_is_cleared_a_little_ahead(void **state)
{
    if (!can_populate())
        skip();
    char *memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    madvise(memory, ALL, MADV_NOHUGEPAGE);
    memset(memory + 4096, 7, 100);
    struct told told = {.memory = memory};
    struct clearing *c = clearing_start(memory, first, bytes, AREAS, AHEAD, note_told, &told);
    assert_non_null(c);
    assert_true(comes_to_be_there(memory, first[0], AHEAD));
    assert_true(comes_to_be_there(memory, first[1], bytes[1]));
    assert_int_equal(there(memory, AHEAD, bytes[0] - AHEAD), 0);
    assert_int_equal(memory[4096], 7);
    assert_true(comes_to_be_told(&told, 1));
    assert_int_equal(atomic_load(&told.bytes[0]), 0); /* by larger pieces */

    clearing_note(c, 0, AHEAD / 8); /* little: it waits for more */
    clearing_note(c, 0, AHEAD);
    clearing_note(c, 0, AHEAD / 2); /* less than before says nothing */
    assert_true(comes_to_be_there(memory, first[0], 2 * AHEAD));
    assert_int_equal(there(memory, 2 * AHEAD, bytes[0] - 2 * AHEAD), 0);

    clearing_note(c, 0, bytes[0]);
    clearing_note(c, 1, bytes[1]);
    assert_true(comes_to_be_there(memory, first[0], bytes[0]));
    assert_true(comes_to_be_told(&told, 0));
    clearing_stop(c);
    assert_false(atomic_load(&told.is_wrong));
    assert_int_equal(atomic_load(&told.bytes[1]), bytes[1]);
    munmap(memory, ALL);
}

static void it_can_be_stopped_at_any_time(void **state)
{
    for (int i = 0; i < 50; i++) {
        char *memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory != MAP_FAILED);
        struct clearing *c = clearing_start(memory, first, bytes, AREAS, AHEAD, NULL, NULL);
        if (c && i % 2)
            clearing_note(c, i % 3 > 0, bytes[1]);
        clearing_stop(c);
        munmap(memory, ALL);
    }
    clearing_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_cleared_a_little_ahead),
        cmocka_unit_test(it_can_be_stopped_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
