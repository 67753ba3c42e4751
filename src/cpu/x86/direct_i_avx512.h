/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the codebook types (i_blocks_avx512.h) for the kernels of direct_avx512.h. */
#ifndef STRATA_CPU_X86_DIRECT_I_AVX512_H
#define STRATA_CPU_X86_DIRECT_I_AVX512_H

#include "cpu/x86/direct_four_avx512.h"
#include "cpu/x86/i_blocks_avx512.h"

INLINE void take_i(const uint8_t *b, struct wide_block *out, i_block_fn *take_apart)
{
    struct i_block block;
    take_apart(b, &block);
    for (int j = 0; j < 4; j++) {
        out->codes[j] = block.rows[j];
        out->negative[j] = block.signs[j];
    }
    out->scales = block.scales;
}

#define TAKE_I(name)                                                                               \
    INLINE void take_##name(const uint8_t *b, struct wide_block *out)                              \
    {                                                                                              \
        take_i(b, out, i_block_##name);                                                            \
    }

/* take_TYPE, direct_TYPE and window_TYPE; values of grids are below 64. */
#define DIRECT_I(name, ...)                                                                        \
    TAKE_I(name)                                                                                   \
    DIRECT(name, order_of_file, .bias = 64, __VA_ARGS__)

#endif
