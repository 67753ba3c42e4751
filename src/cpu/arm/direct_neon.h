/* SPDX-License-Identifier: Apache-2.0 */
/* One activation row times weight rows, straight from the file's bytes with NEON (matmul.h,
 * cpu_direct_fn): the activations as bytes. */
#ifndef STRATA_CPU_ARM_DIRECT_NEON_H
#define STRATA_CPU_ARM_DIRECT_NEON_H

#include "cpu/arm/rows_neon.h"

struct activations {
    _Alignas(16) int8_t q[CPU_DIRECT_MOST_N];
    const int16_t *bsum;
    const float *d;
    int blocks;
};

INLINE void take_activations(struct activations *out, const struct quant_act *x, int t)
{
    const int16_t *q = codes_of(x, t);
    out->bsum = sums_of(x, t);
    out->d = scales_of(x, t);
    out->blocks = x->n / x->block;
    for (int i = 0; i < x->n; i += 16)
        vst1q_s8(out->q + i, narrow(q + i));
}

/* Asks for the lines of a block that lies 2 KiB further. */
INLINE void prefetch_ahead(const uint8_t *b, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)b + 2048 + (uintptr_t)i));
}

#endif
