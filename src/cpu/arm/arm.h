/* SPDX-License-Identifier: Apache-2.0 */
/* What each file of NEON kernels puts into the tables. Files whose kernels multiply bytes are
 * compiled twice: for every ARMv8 processor, and with the dot product extension (names that end in
 * _dot), which may only be called on a machine that has it. */
#ifndef STRATA_CPU_ARM_ARM_H
#define STRATA_CPU_ARM_ARM_H

#include "cpu/matmul.h"
#include "cpu/ops.h"

void cpu_set_round_neon(struct cpu_matmul *m);
void cpu_set_dot_float_neon(struct cpu_matmul *m);
void cpu_set_dot_int_neon(struct cpu_matmul *m);
void cpu_set_unpack256_neon(struct cpu_matmul *m);
void cpu_set_unpack32_neon(struct cpu_matmul *m);

void cpu_set_direct256_neon(struct cpu_matmul *m);
void cpu_set_direct256_neon_dot(struct cpu_matmul *m);
void cpu_set_direct32_neon(struct cpu_matmul *m);
void cpu_set_direct32_neon_dot(struct cpu_matmul *m);
void cpu_set_window256_neon(struct cpu_matmul *m);
void cpu_set_window256_neon_dot(struct cpu_matmul *m);
void cpu_set_window32_neon(struct cpu_matmul *m);
void cpu_set_window32_neon_dot(struct cpu_matmul *m);
void cpu_set_tile_neon(struct cpu_matmul *m); /* the pack, and the types */
void cpu_set_tile_neon_dot(struct cpu_matmul *m);

void cpu_ops_set_vector_neon(struct cpu_ops *ops);
void cpu_ops_set_reduce_neon(struct cpu_ops *ops);
void cpu_ops_set_net_neon(struct cpu_ops *ops);

#endif
