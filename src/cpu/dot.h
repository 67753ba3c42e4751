/* SPDX-License-Identifier: Apache-2.0 */
/* The C dot products, the definition of the products in cpu/matmul.h. */
#ifndef STRATA_CPU_DOT_H
#define STRATA_CPU_DOT_H

#include "cpu/matmul.h"

cpu_dot_float_fn cpu_dot_f32_c, cpu_dot_f16_c, cpu_dot_bf16_c;

/* Blocks of 32 and of 256 values: the block of the activations tells. */
cpu_dot_int_fn cpu_dot_int_c;
cpu_dot_int_fn cpu_dot_int_min_c; /* with minimums */
cpu_dot_int_fn cpu_dot_int_d16_c; /* two scales in each block of 32 (NVFP4) */

#endif
