/* SPDX-License-Identifier: Apache-2.0 */
/* The ladder of element kernels: C, then each instruction set replaces what it has. */
#include "cpu/ops.h"

#if defined(__x86_64__)
#include "cpu/x86/ops_x86.h"
#elif defined(__aarch64__)
#include "cpu/arm/arm.h"
#endif

void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa)
{
    cpu_ops_set_vector_c(ops);
    cpu_ops_set_reduce_c(ops);
    cpu_ops_set_net_c(ops);
#if defined(__x86_64__)
    if (isa < CPU_ISA_AVX2)
        return;
    cpu_ops_set_vector_avx2(ops);
    cpu_ops_set_reduce_avx2(ops);
    cpu_ops_set_net_avx2(ops);
    if (isa == CPU_ISA_AVX2)
        return;
    cpu_ops_set_vector_avx512(ops);
    cpu_ops_set_reduce_avx512(ops);
    cpu_ops_set_net_avx512(ops);
#elif defined(__aarch64__)
    if (isa < CPU_ISA_NEON_PLAIN)
        return;
    cpu_ops_set_vector_neon(ops);
    cpu_ops_set_reduce_neon(ops);
    cpu_ops_set_net_neon(ops);
#endif
}
