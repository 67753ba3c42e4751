/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel checker's frame: random inputs, guarded output, counting, timing.
 *
 * How to add kernels: write check_NAME.c with one `const struct check_area check_area_NAME`,
 * declare it below and name it in the table of check.c. Its `run` is called once for every instruction set
 * that the machine has (C too) and compares each kernel of its table with the C kernel bit for bit.
 * A kernel must not be able to exist without being checked: walk the table of function pointers,
 * or let a _Static_assert compare its size with the list of what is checked (check_matmul.c). */
#ifndef STRATA_CHECK_H
#define STRATA_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/isa.h"

struct check {
    long passed, failed, skipped;
    uint64_t state;     /* of the random numbers; the same in every run */
    double memory_gb_s; /* benchmarks: what one thread reads from memory */
    const char *only;   /* benchmarks: the one kernel to time, or NULL for all */
};

struct check_area {
    const char *name;
    void (*run)(struct check *c, enum cpu_isa isa);
    void (*bench)(struct check *c, enum cpu_isa isa); /* NULL: none */
};

extern const struct check_area check_area_matmul; /* check_matmul.c */
extern const struct check_area check_area_ops;    /* check_ops.c */

/* Counts one comparison. A failure prints one line with the message. Returns ok. */
bool check_ok(struct check *c, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Counts something that could not be run and prints why. */
void check_skip(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Kernel checks of all areas, or benchmarks; called by main. */
void check_run_all(struct check *c);
void check_bench_all(struct check *c);

/* --- inputs --- */

uint32_t check_u32(struct check *c);
/* 0..n-1. */
uint32_t check_below(struct check *c, uint32_t n);
/* -1..1. */
float check_unit(struct check *c);

/* What a run of floats looks like. All are finite. */
enum check_values {
    CHECK_ORDINARY,  /* -1..1, one in 64 twelve times as large */
    CHECK_MIXED,     /* exponents from 2^-20 to 2^20, zeros of both signs */
    CHECK_ZEROS,     /* +0 and -0 */
    CHECK_DENORMAL,  /* below 2^-126 */
    CHECK_HUGE,      /* up to the largest float / 2^20 */
    CHECK_CONSTANT,  /* one value everywhere */
    CHECK_EXTREMES,  /* runs of 32: zeros, denormals, largest floats, one spike in small ones, .. */
    CHECK_VALUES
};
void check_fill(struct check *c, float *x, size_t n, enum check_values kind);
void check_fill_bytes(struct check *c, void *p, size_t n);
/* Weights that a sane file does not have: n values (a multiple of the block) of any bytes, whose
 * scales, for floats the values, are denormal, zeros of both signs, the largest, inf or NaN. Those
 * that are not finite are few, so that they do not hide what becomes of the others. */
void check_fill_hostile(struct check *c, uint32_t type, uint8_t *blocks, int n);

/* Same bits, or NaN in both (numerics.md: payload and sign of NaN are free). */
bool check_same(const float *a, const float *b, size_t n);

/* Row counts that kernels must do, ended by 0. */
extern const int check_row_counts[];

/* --- output with guard zones --- */

/* Memory of `bytes` that starts `offset` bytes (0..63) after a multiple of 64, filled with a
 * pattern, with 256 bytes of the pattern before and behind. Ends the program when there is none. */
struct check_buffer {
    uint8_t *block; /* what was allocated */
    uint8_t *data;
    size_t bytes;
};
struct check_buffer check_buffer_new(size_t bytes, size_t offset);
/* False when something wrote outside data[0..bytes-1]. */
bool check_buffer_intact(const struct check_buffer *b);
void check_buffer_free(struct check_buffer *b);

/* Memory for input: `bytes` that end where a page starts that must not be read (a weight row may be
 * the last thing of a mapped file). The same memory serves for every call with the same slot. */
#define CHECK_SLOTS 2
#define CHECK_EDGE_BYTES (1 << 20)
void *check_edge(int slot, size_t bytes);

/* --- time --- */

/* False when the user asked for another kernel (or type) only. Letters of any case. */
bool check_bench_wanted(const struct check *c, const char *kernel);

/* Median seconds of `passes` calls of fn. */
double check_time(void (*fn)(void *), void *context, int passes);

#endif
