/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/ops.h"

void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa)
{
    cpu_ops_set_vector_c(ops);
    cpu_ops_set_reduce_c(ops);
    cpu_ops_set_net_c(ops);
    (void)isa;
}
