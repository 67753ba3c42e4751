/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GUARD 256
#define PATTERN 0xa5

static const struct check_area *const areas[] = {&check_area_matmul, &check_area_ops};
#define AREAS (sizeof areas / sizeof *areas)

const int check_row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 63, 64, 65, 0};

bool check_ok(struct check *c, bool ok, const char *fmt, ...)
{
    if (ok) {
        c->passed++;
        return true;
    }
    c->failed++;
    va_list args;
    va_start(args, fmt);
    printf("FAIL: ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    return false;
}

void check_skip(struct check *c, const char *fmt, ...)
{
    c->skipped++;
    va_list args;
    va_start(args, fmt);
    printf("SKIP: ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

void check_run_all(struct check *c)
{
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        if (!cpu_isa_available(isa)) {
            check_skip(c, "kernels for %s: this machine does not have it", cpu_isa_name(isa));
            continue;
        }
        for (size_t i = 0; i < AREAS; i++) {
            long failed = c->failed, passed = c->passed;
            areas[i]->run(c, isa);
            printf("%-13s %-10s %6ld passed, %ld failed\n", cpu_isa_name(isa), areas[i]->name,
                   c->passed - passed, c->failed - failed);
        }
    }
}

/* --- inputs --- */

uint32_t check_u32(struct check *c)
{
    c->state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = c->state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

uint32_t check_below(struct check *c, uint32_t n)
{
    return (uint32_t)((uint64_t)check_u32(c) * n >> 32);
}

float check_unit(struct check *c)
{
    return (float)(int32_t)check_u32(c) * 0x1p-31f;
}

static float one_value(struct check *c, enum check_values kind, float denormal)
{
    float sign = check_below(c, 2) ? 1.0f : -1.0f;
    switch (kind) {
    case CHECK_MIXED:
        return check_below(c, 16) ? check_unit(c) * (float)(1u << check_below(c, 21)) /
                                        (float)(1u << check_below(c, 21))
                                  : sign * 0.0f;
    case CHECK_ZEROS:
        return sign * 0.0f;
    case CHECK_DENORMAL:
        return check_unit(c) * denormal;
    case CHECK_HUGE:
        return check_unit(c) * 0x1p107f;
    default:
        return check_unit(c) * (check_below(c, 64) ? 1.0f : 12.0f);
    }
}

/* Value i of CHECK_EXTREMES; what a run of 32 is like is drawn at its first. In one of three fills
 * products vanish and all have one sign: their sum is -0 if nothing else is added, be it 0. */
#define VANISHING 6
static float extreme_value(struct check *c, size_t i, int *run)
{
    float sign = check_below(c, 2) ? 1.0f : -1.0f, unit = check_unit(c);
    if (i == 0)
        *run = check_below(c, 3) ? 0 : sign > 0 ? VANISHING : VANISHING + 1;
    if (i % 32 == 0 && *run < VANISHING)
        *run = (int)check_below(c, VANISHING);
    switch (*run) {
    case 0:
        return sign * 0.0f;
    case 1:
        return unit * 0x1p-126f;
    case 2:
        return sign * 0x1p-149f;
    case 3:
        return sign * 0x1.fffffep127f;
    case 4:
        return i % 32 == 17 ? sign * 0x1.2ced32p126f : unit; /* 1e38 and nothing beside it */
    case VANISHING:
        return fabsf(unit) * 0x1p-126f;
    case VANISHING + 1:
        return -fabsf(unit) * 0x1p-126f;
    default:
        return unit;
    }
}

/* Values that are drawn, which takes long; what goes beyond repeats them. */
#define DRAWN_VALUES 1009

void check_fill(struct check *c, float *x, size_t n, enum check_values kind)
{
    /* Down to a few units of the smallest float, where a scale is rounded coarsely. */
    float denormal = 0x1p-127f / (float)(1u << check_below(c, 22));
    int run = 0;
    for (size_t i = 0; i < n; i++)
        x[i] = kind == CHECK_CONSTANT && i > 0 ? x[0]
               : i >= DRAWN_VALUES             ? x[i - DRAWN_VALUES]
               : kind == CHECK_EXTREMES        ? extreme_value(c, i, &run)
                                               : one_value(c, kind, denormal);
}

void check_fill_bytes(struct check *c, void *p, size_t n)
{
    uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)check_u32(c);
}

bool check_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) && !(a[i] != a[i] && b[i] != b[i]))
            return false;
    }
    return true;
}

/* --- guarded output --- */

struct check_buffer check_buffer_new(size_t bytes, size_t offset)
{
    size_t room = (GUARD + offset + bytes + GUARD + 63) / 64 * 64;
    struct check_buffer b = {.block = aligned_alloc(64, room), .bytes = bytes};
    if (!b.block) {
        fprintf(stderr, "strata-check: out of memory\n");
        exit(1);
    }
    memset(b.block, PATTERN, room);
    b.data = b.block + GUARD + offset;
    return b;
}

bool check_buffer_intact(const struct check_buffer *b)
{
    for (int i = 0; i < GUARD; i++) {
        if (b->data[-1 - i] != PATTERN || b->data[b->bytes + (size_t)i] != PATTERN)
            return false;
    }
    return true;
}

void check_buffer_free(struct check_buffer *b)
{
    free(b->block);
    *b = (struct check_buffer){0};
}

void *check_edge(int slot, size_t bytes)
{
    static uint8_t *memory[CHECK_SLOTS];
    if (!memory[slot]) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        memory[slot] = mmap(NULL, CHECK_EDGE_BYTES + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory[slot] == MAP_FAILED ||
            mprotect(memory[slot] + CHECK_EDGE_BYTES, page, PROT_NONE)) {
            perror("strata-check");
            exit(1);
        }
    }
    return memory[slot] + CHECK_EDGE_BYTES - bytes;
}

/* --- time --- */

/* Of this thread: what other programs take of the core does not count. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool check_bench_wanted(const struct check *c, const char *kernel)
{
    return !c->only || !strcasecmp(c->only, kernel);
}

double check_time(void (*fn)(void *), void *context, int passes)
{
    double taken[32];
    if (passes > 32)
        passes = 32;
    for (int i = 0; i < passes; i++) {
        double start = seconds();
        fn(context);
        taken[i] = seconds() - start;
    }
    qsort(taken, (size_t)passes, sizeof *taken, compare_doubles);
    return taken[passes / 2];
}

#define READ_BYTES ((size_t)256 << 20)

static uint64_t read_sum; /* keeps the loop */

static void read_memory(void *context)
{
    read_sum += mem_read(context, READ_BYTES);
}

void check_bench_all(struct check *c)
{
    struct err e = {0};
    uint8_t *memory = mem_map(READ_BYTES, "what is read", &e); /* large pages, as models have */
    if (!memory) {
        check_skip(c, "memory bandwidth: no %zu bytes", READ_BYTES);
        return;
    }
    memset(memory, 1, READ_BYTES);
    c->memory_gb_s = (double)READ_BYTES * 1e-9 / check_time(read_memory, memory, 9);
    mem_unmap(memory, READ_BYTES);
    printf("memory, one thread, read: %.1f GB/s\n", c->memory_gb_s);
    for (size_t i = 0; i < AREAS; i++) {
        for (enum cpu_isa isa = 0; isa < CPU_ISAS && areas[i]->bench; isa++) {
            if (cpu_isa_available(isa))
                areas[i]->bench(c, isa);
        }
    }
}
