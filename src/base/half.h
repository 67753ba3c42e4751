/* SPDX-License-Identifier: Apache-2.0 */
/* Half floats. Both directions are exact but for the one rounding (to nearest even) of f32 to f16;
 * denormals, inf and NaN are kept. Source: gguf-and-quants.md section 3. */
#ifndef STRATA_BASE_HALF_H
#define STRATA_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float half_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float half_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31)
        return half_bits_f32(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return half_bits_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f; /* exact, zero included */
    return half_bits_f32(sign | half_f32_bits(f));
}

static inline uint16_t half_from_f32(float f)
{
    uint32_t u = half_f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff)); /* NaN, quiet */
    if (a >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more: inf */
    if (a < 0x38800000) {                 /* below 2^-14: denormal, counted in units of 2^-24 */
        float m = half_bits_f32(a) + 0.5f; /* 0.5 has 2^-24 as its last bit: rounds half to even */
        return (uint16_t)(sign | (half_f32_bits(m) - 0x3f000000));
    }
    uint32_t odd = a >> 13 & 1;
    return (uint16_t)(sign | ((a + 0xfff + odd - 0x38000000) >> 13));
}

static inline float half_bf16_to_f32(uint16_t h)
{
    return half_bits_f32((uint32_t)h << 16);
}

#endif
