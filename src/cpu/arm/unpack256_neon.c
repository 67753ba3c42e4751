/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 256 values to their integer form with NEON. */
#include "cpu/arm/types256_neon.h"

INLINE void unpack(const uint8_t *b, int n, struct quant_row *out, const int bytes,
                   codes256_fn *codes, scales256_fn *scales, d256_fn *d, const bool with_min,
                   mins256_fn *mins)
{
    for (int k = 0; k < n / 256; k++, b += bytes) {
        int8_t scale[16];
        vst1q_s8(scale, scales(b));
        out->d[k] = d(b);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            struct codes_32 x = codes(b, g);
            for (int h = 0; h < 2; h++) {
                int16_t *w = out->w + 256 * k + 32 * g + 16 * h;
                int8x16_t s = vdupq_n_s8(scale[2 * g + h]);
                vst1q_s16(w, vmull_s8(vget_low_s8(x.c[h]), vget_low_s8(s)));
                vst1q_s16(w + 8, vmull_high_s8(x.c[h], s));
            }
        }
        if (!with_min)
            continue;
        struct mins_256 m = mins(b);
        out->dmin[k] = m.dmin;
        vst1q_s16(out->m + 16 * k, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(m.m))));
        vst1q_s16(out->m + 16 * k + 8, vreinterpretq_s16_u16(vmovl_high_u8(m.m)));
    }
}

#define UNPACK(name, TYPE, bytes, scale_values, mins, min_values)                       \
    static void unpack_##name(const uint8_t *row, int n, struct quant_row *out)         \
    {                                                                                   \
        unpack(row, n, out, bytes, codes_##name, scales_##name, d_##name, min_values != 0, mins); \
    }
TYPES_256(UNPACK)

#define SET(name, TYPE, bytes, scale_values, mins, min_values) \
    m->unpack[TYPE_##TYPE] = unpack_##name;

void cpu_set_unpack256_neon(struct cpu_matmul *m)
{
    TYPES_256(SET)
}
