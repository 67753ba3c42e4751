/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 256 values times one activation row (direct_neon.h). Compiled twice, with
 * the dot product extension and without. */
#include "cpu/arm/direct_neon.h"
#include "cpu/arm/types256_neon.h"

/* Lanes to be added: the sum of codes times scales times activations of one block. */
INLINE int32x4_t block_sum(const uint8_t *b, const int8_t *q, const int scale_values,
                           codes256_fn *codes, scales256_fn *scales)
{
    int32_t scale[16];
    const int32x4_t zero = vdupq_n_s32(0);
    int32x4_t sum = zero;
    if (scale_values) {
        int8x16_t s = scales(b);
        int16x8_t low = vmovl_s8(vget_low_s8(s)), high = vmovl_high_s8(s);
        vst1q_s32(scale, vmovl_s16(vget_low_s16(low)));
        vst1q_s32(scale + 4, vmovl_high_s16(low));
        vst1q_s32(scale + 8, vmovl_s16(vget_low_s16(high)));
        vst1q_s32(scale + 12, vmovl_high_s16(high));
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        struct codes_32 x = codes(b, g);
        int8x16_t q0 = vld1q_s8(q + 32 * g), q1 = vld1q_s8(q + 32 * g + 16);
        if (scale_values == 0) {
            sum = dot_bytes(dot_bytes(sum, x.c[0], q0), x.c[1], q1);
        } else if (scale_values == 32) {
            int32x4_t p = dot_bytes(dot_bytes(zero, x.c[0], q0), x.c[1], q1);
            sum = vmlaq_n_s32(sum, p, scale[2 * g]);
        } else {
            sum = vmlaq_n_s32(sum, dot_bytes(zero, x.c[0], q0), scale[2 * g]);
            sum = vmlaq_n_s32(sum, dot_bytes(zero, x.c[1], q1), scale[2 * g + 1]);
        }
    }
    return sum;
}

INLINE int32x4_t min_sum(uint8x16_t mins, const int16_t *bsum)
{
    int16_t m[16];
    vst1q_s16(m, vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(mins))));
    vst1q_s16(m + 8, vreinterpretq_s16_u16(vmovl_high_u8(mins)));
    return times_sums(m, bsum);
}

INLINE void direct(const uint8_t *b, int w_rows, const struct quant_act *x, int t, float *y,
                   const int bytes, const int scale_values, codes256_fn *codes,
                   scales256_fn *scales, d256_fn *d, const bool with_min, mins256_fn *mins)
{
    struct activations a;
    take_activations(&a, x, t);
    for (int r = 0; r < w_rows; r++) {
        struct chains_8 chains = chains_8_zero();
        for (int g = 0; g < a.blocks; g += 8) {
            int32x4_t sum[8] = {0}, min[8] = {0};
            float dw[8] = {0}, dmin[8] = {0};
            int count = a.blocks - g < 8 ? a.blocks - g : 8;
            for (int i = 0; i < count; i++, b += bytes) {
                prefetch_ahead(b, bytes);
                sum[i] = block_sum(b, a.q + 256 * (g + i), scale_values, codes, scales);
                dw[i] = d(b);
                if (with_min) {
                    struct mins_256 m = mins(b);
                    dmin[i] = m.dmin;
                    min[i] = min_sum(m.m, a.bsum + 16 * (g + i));
                }
            }
            add_group(&chains, dw, a.d + g, sum, count);
            if (with_min)
                take_group(&chains, dmin, a.d + g, min, count);
        }
        y[r] = chains_8_sum(&chains);
    }
}

#define DIRECT(name, TYPE, bytes, scale_values, mins, min_values)                              \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,     \
                              float *y)                                                        \
    {                                                                                          \
        direct(w, w_rows, x, t, y, bytes, scale_values, codes_##name, scales_##name, d_##name, \
               min_values != 0, mins);                                                         \
    }
TYPES_256(DIRECT)

#define SET(name, TYPE, bytes, scale_values, mins, min_values) \
    m->direct[TYPE_##TYPE] = direct_##name;

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_direct256_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_direct256_neon(struct cpu_matmul *m)
#endif
{
    TYPES_256(SET)
}
