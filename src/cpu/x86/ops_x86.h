/* SPDX-License-Identifier: Apache-2.0 */
/* What each x86 file of element kernels puts into struct cpu_ops. A function may only be called on
 * a machine that has the set of its name. */
#ifndef STRATA_CPU_X86_OPS_X86_H
#define STRATA_CPU_X86_OPS_X86_H

#include "cpu/ops.h"

void cpu_ops_set_vector_avx2(struct cpu_ops *ops);
void cpu_ops_set_reduce_avx2(struct cpu_ops *ops);
void cpu_ops_set_net_avx2(struct cpu_ops *ops);

void cpu_ops_set_vector_avx512(struct cpu_ops *ops);
void cpu_ops_set_reduce_avx512(struct cpu_ops *ops);
void cpu_ops_set_net_avx512(struct cpu_ops *ops);

#endif
