/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix kernels: y = W x for weight rows of any type (numerics.md section 2).
 * A table of function pointers is filled with C first, then each instruction set replaces what it
 * has (dispatch.c). Every entry of a type has the bits of the C entry. */
#ifndef STRATA_CPU_MATMUL_H
#define STRATA_CPU_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/isa.h"
#include "quant/quant.h"

/* float rows: y[t * y_stride] = 32-chain dot of the decoded weight row with x row t, t < rows.
 * w points to one weight row of its type in the file's bytes. */
typedef void cpu_dot_float_fn(const void *w, const float *x, size_t x_stride, int n, int rows,
                              float *y, size_t y_stride);

/* y[t * y_stride + r] for w_rows rows of float32 weights, w_stride floats apart, and rows t < rows
 * of x, with the bits of cpu_dot_float_fn: registers hold several of both. */
typedef void cpu_tile_float_fn(const float *w, size_t w_stride, int w_rows, const float *x,
                               size_t x_stride, int n, int rows, float *y, size_t y_stride);

/* The same for weight rows of a float type, one after the other in the file's bytes, and at most
 * CPU_WINDOW_FLOAT_ROWS rows of x: a window. */
#define CPU_WINDOW_FLOAT_ROWS 4
typedef void cpu_window_float_fn(const void *w, int w_rows, const float *x, size_t x_stride, int n,
                                 int rows, float *y, size_t y_stride);

/* n values of a weight row of a float type, exactly, for tiles. */
typedef void cpu_widen_fn(const void *w, int n, float *out);

/* integer rows: y[t * y_stride] for rows t0..t0+rows-1 of the activations. */
typedef void cpu_dot_int_fn(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                            float *y, size_t y_stride);

/* Decoding: y[r] for w_rows weight rows, one after the other in the file's bytes, and activation
 * row t, with the bits of unpacking each row and cpu_dot_int_fn, but without writing the integers
 * to memory. x->n is at most CPU_DIRECT_MOST_N. */
#define CPU_DIRECT_MOST_N 16384
#define CPU_SHORT_N 1024 /* what is a short row, for kernels that take several side by side */
typedef void cpu_direct_fn(const void *w, int w_rows, const struct quant_act *x, int t, float *y);

/* The same for activation rows t to t + rows - 1, results to y[i * y_stride + r]: weights are read
 * and taken apart once for several of them. */
typedef void cpu_window_fn(const void *w, int w_rows, const struct quant_act *x, int t, int rows,
                           float *y, size_t y_stride);

/* Prefill: products of up to CPU_TILE_W_ROWS weight rows and CPU_TILE_ROWS activation rows, whose
 * lanes are activation rows. A weight row is a record of bytes: its codes as bytes, then these
 * parts, each at an offset that n alone gives (cpu_tile_layout). What is said here is how AVX-512
 * with VNNI has it; other sets may have other codes, and use room that is not needed for others. */
#define CPU_TILE_ROWS 16
#define CPU_TILE_W_ROWS 8

struct cpu_tile_layout {
    int n;
    size_t scale; /* int32, one for each 16 or 32 codes; types with sub-block scales */
    size_t start; /* int32 [n / act block], -128 * sum of scale * code: activations are q + 128 */
    size_t d;     /* float [n / act block] */
    size_t dmin;  /* float [n / 256], types with minimums */
    size_t m;     /* int16, one for each 16 or 32 codes; types with minimums */
    size_t bytes; /* of the record, a multiple of 64 */
};

/* CPU_TILE_ROWS activation rows side by side. */
struct cpu_tile_acts {
    uint8_t *q;      /* [n / 4][row][4] codes plus 128; signed codes for panels */
    float *d;        /* [n / block][row] */
    int16_t *bsum16; /* [n / 32][row][2] sums of 16 codes; blocks of 256 only */
    int16_t *bsum32; /* [n / 64][row][2] sums of 32 codes; blocks of 256 only */
};

/* One weight row from the file's bytes to its record. */
typedef void cpu_tile_unpack_fn(const uint8_t *row, const struct cpu_tile_layout *l, uint8_t *out);
/* y[t * y_stride + r] for the records r < w_rows at w and rows t < rows of x, with the bits of
 * cpu_dot_int_fn. */
typedef void cpu_tile_fn(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                         const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride);
/* Rows t0..t0+rows-1 of x to a tile; lanes without a row repeat the last. */
typedef void cpu_tile_pack_fn(const struct quant_act *x, int t0, int rows,
                              struct cpu_tile_acts *out);

struct cpu_tile {
    cpu_tile_unpack_fn *unpack; /* NULL: the type has no tile form */
    cpu_tile_fn *multiply;
};

/* Prefill, all in one: y[t * y_stride + r] for w_rows (at most CPU_PANEL_W_ROWS) weight rows of n
 * values, one after the other in the file's bytes, and rows t < rows (at most CPU_PANEL_ROWS) of the
 * activation tiles x, with the bits of cpu_dot_int_fn. scratch: 64-byte aligned, of cpu_panel_bytes(n)
 * (cpu/linear.h). Activations are packed by the table's tile_pack. */
#define CPU_PANEL_W_ROWS 32
#define CPU_PANEL_ROWS 256
typedef void cpu_panel_fn(const void *w, int w_rows, int n, const struct cpu_tile_acts *x, int rows,
                          void *scratch, float *y, size_t y_stride);

/* Rounding of one activation row; as quant_round_row. */
typedef bool cpu_round_fn(const float *x, int n, struct quant_act *a, int row);

struct cpu_matmul {
    cpu_dot_float_fn *dot_float[TENSOR_TYPES]; /* QUANT_FLOAT types; --exact-activations decodes a
                                                  row of another type and takes TYPE_F32 */
    cpu_window_float_fn *window_float[TENSOR_TYPES]; /* F16, BF16; NULL: there is none */
    cpu_widen_fn *widen[TENSOR_TYPES]; /* F16, BF16; NULL: quant_decode */
    cpu_tile_float_fn *tile_float;     /* NULL: there is none */
    quant_unpack_fn *unpack[TENSOR_TYPES];     /* QUANT_INT32 and QUANT_INT256 types */
    cpu_direct_fn *direct[TENSOR_TYPES];       /* NULL: the type has no such kernel */
    cpu_direct_fn *direct_short[TENSOR_TYPES]; /* for weight rows up to CPU_SHORT_N; NULL: direct */
    cpu_window_fn *window[TENSOR_TYPES];       /* the same; those who have it have direct */
    struct cpu_tile tile[TENSOR_TYPES];
    cpu_tile_pack_fn *tile_pack; /* where any type has a tile form */
    cpu_panel_fn *panel[TENSOR_TYPES]; /* NULL: there is none; takes the place of tile, whose kernels
                                          cannot read what this table packs */
    cpu_dot_int_fn *dot_int32, *dot_int32_min, *dot_int32_d16;
    cpu_dot_int_fn *dot_int256, *dot_int256_min;
    cpu_round_fn *round;
};

/* The table of one instruction set; the machine must have it. */
void cpu_matmul_init(struct cpu_matmul *m, enum cpu_isa isa);
/* That of a machine with other traits: so that one proves what others take. It must have VBMI where they say so. */
void cpu_matmul_init_as(struct cpu_matmul *m, enum cpu_isa isa, struct cpu_traits traits);

#endif
