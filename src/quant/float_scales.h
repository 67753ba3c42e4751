/* SPDX-License-Identifier: Apache-2.0 */
/* One-byte scales of the 4-bit float types (gguf-and-quants.md section 2.4). */
#ifndef STRATA_QUANT_FLOAT_SCALES_H
#define STRATA_QUANT_FLOAT_SCALES_H

#include "base/half.h"

/* 2^(e - 128); the two smallest are denormal. 255 is no NaN. */
static inline float quant_scale_mxfp4(uint32_t e)
{
    return half_bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

/* Half of an unsigned 8-bit float with 4 bits of exponent and 3 of mantissa; the top bit is
 * ignored, 7f is 0. */
static inline float quant_scale_nvfp4(uint8_t byte)
{
    int exponent = byte >> 3 & 15, mantissa = byte & 7;
    if (byte == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)mantissa * 0x1p-10f;
    return (1 + (float)mantissa / 8) * half_bits_f32((uint32_t)(exponent - 8 + 127) << 23);
}

#endif
