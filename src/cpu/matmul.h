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

/* integer rows: y[t * y_stride] for rows t0..t0+rows-1 of the activations. */
typedef void cpu_dot_int_fn(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                            float *y, size_t y_stride);

/* Decoding: y[r] for w_rows weight rows, one after the other in the file's bytes, and activation row
 * t, with the bits of unpacking each row and cpu_dot_int_fn, but without writing the integers to
 * memory. x->n is at most CPU_DIRECT_MOST_N. */
#define CPU_DIRECT_MOST_N 16384
typedef void cpu_direct_fn(const void *w, int w_rows, const struct quant_act *x, int t, float *y);

/* Rounding of one activation row; as quant_round_row. */
typedef bool cpu_round_fn(const float *x, int n, struct quant_act *a, int row);

struct cpu_matmul {
    cpu_dot_float_fn *dot_float[TENSOR_TYPES]; /* QUANT_FLOAT types; --exact-activations decodes a
                                                  row of another type and takes TYPE_F32 */
    quant_unpack_fn *unpack[TENSOR_TYPES];     /* QUANT_INT32 and QUANT_INT256 types */
    cpu_direct_fn *direct[TENSOR_TYPES];       /* NULL: the type has no such kernel */
    cpu_dot_int_fn *dot_int32, *dot_int32_min, *dot_int32_d16;
    cpu_dot_int_fn *dot_int256, *dot_int256_min;
    cpu_round_fn *round;
};

/* The table of one instruction set; the machine must have it. */
void cpu_matmul_init(struct cpu_matmul *m, enum cpu_isa isa);

#endif
