/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with blocks of 256 values as records for prefill tiles, with NEON. Compiled
 * with and without the dot product extension only for the names of the products. */
#include "cpu/arm/tile_neon.h"
#include "cpu/arm/types256_neon.h"

INLINE void put_scales(int32_t *out, int8x16_t s, const int values)
{
    int16x8_t low = vmovl_s8(vget_low_s8(s)), high = vmovl_high_s8(s);
    int32x4_t v[4] = {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                      vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
    if (values == 16) {
        for (int i = 0; i < 4; i++)
            vst1q_s32(out + 4 * i, v[i]);
    } else { /* every second one */
        vst1q_s32(out, vuzp1q_s32(v[0], v[1]));
        vst1q_s32(out + 4, vuzp1q_s32(v[2], v[3]));
    }
}

INLINE void put_mins(int16_t *out, uint8x16_t m, const int values)
{
    int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(m)));
    int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(m));
    if (values == 16) {
        vst1q_s16(out, low);
        vst1q_s16(out + 8, high);
    } else {
        vst1q_s16(out, vuzp1q_s16(low, high));
    }
}

INLINE void unpack(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out, const int bytes,
                   const int scale_values, codes256_fn *codes, scales256_fn *scales, d256_fn *d,
                   mins256_fn *mins, const int min_values)
{
    for (int k = 0; k < l->n / 256; k++, b += bytes) {
        int8_t *q = (int8_t *)out + 256 * k;
        tile_d(out, l)[k] = d(b);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            struct codes_32 x = codes(b, g);
            vst1q_s8(q + 32 * g, x.c[0]);
            vst1q_s8(q + 32 * g + 16, x.c[1]);
        }
        if (scale_values)
            put_scales(tile_scale(out, l) + 256 / scale_values * k, scales(b), scale_values);
        if (min_values) {
            struct mins_256 m = mins(b);
            tile_dmin(out, l)[k] = m.dmin;
            put_mins(tile_m(out, l) + 256 / min_values * k, m.m, min_values);
        }
    }
}

#define UNPACK(name, TYPE, bytes, scale_values, mins, min_values)                                \
    static void unpack_##name(const uint8_t *row, const struct cpu_tile_layout *l, uint8_t *out) \
    {                                                                                            \
        unpack(row, l, out, bytes, scale_values, codes_##name, scales_##name, \
               d_##name, mins, min_values);                                                      \
    }
TYPES_256(UNPACK)

/* The product of a form. */
INLINE cpu_tile_fn *product(int scale_values, int min_values)
{
    if (scale_values == 0)
        return TILE(256);
    if (scale_values == 16)
        return min_values ? TILE(256_s16_min16) : TILE(256_s16);
    return min_values ? TILE(256_s32_min32) : TILE(256_s32);
}

#define SET(name, TYPE, bytes, scale_values, mins, min_values) \
    m->tile[TYPE_##TYPE] = (struct cpu_tile){unpack_##name, product(scale_values, min_values)};

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_tile256_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_tile256_neon(struct cpu_matmul *m)
#endif
{
    TYPES_256(SET)
}
