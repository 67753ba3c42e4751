/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations with NEON; the same divisions and roundings as quant/round.c. */
#include "base/half.h"
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

/* Largest magnitude as float bits. */
static uint32_t largest_bits(const float *x, int n)
{
    uint32x4_t magnitude = vdupq_n_u32(0x7fffffff), most = vdupq_n_u32(0);
    for (int i = 0; i < n; i += 4)
        most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), magnitude));
    return vmaxvq_u32(most);
}

/* Eight codes: quotients rounded half to even, which narrowing saturates to 16 bits. */
static int16x8_t round8(const float *x, float32x4_t d)
{
    int32x4_t a = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x), d));
    int32x4_t b = vcvtnq_s32_f32(vdivq_f32(vld1q_f32(x + 4), d));
    int16x8_t q = vqmovn_high_s32(vqmovn_s32(a), b);
    return vmaxq_s16(vminq_s16(q, vdupq_n_s16(127)), vdupq_n_s16(-127));
}

static bool round_row(const float *x, int n, struct quant_act *a, int row)
{
    int16_t *q = a->q + (size_t)row * (size_t)a->stride;
    float *d = a->d + (size_t)row * (size_t)(a->stride / a->block);
    int16_t *bsum = a->bsum + (size_t)row * (size_t)(a->stride / 16);
    int blocks = n / a->block;
    for (int b = 0; b < blocks; b++) {
        int start = b * a->block;
        uint32_t most = largest_bits(x + start, a->block);
        if (most >= 0x7f800000)
            return false;
        d[b] = half_bits_f32(most) / 127;
        if (d[b] == 0) {
            memset(q + start, 0, (size_t)a->block * sizeof *q);
            memset(bsum + start / 16, 0, (size_t)(a->block / 16) * sizeof *bsum);
            continue;
        }
        float32x4_t scale = vdupq_n_f32(d[b]);
        for (int i = start; i < start + a->block; i += 16) {
            int16x8_t first = round8(x + i, scale), second = round8(x + i + 8, scale);
            vst1q_s16(q + i, first);
            vst1q_s16(q + i + 8, second);
            bsum[i / 16] = vaddvq_s16(vaddq_s16(first, second));
        }
    }
    memset(q + n, 0, (size_t)(a->stride - n) * sizeof *q);
    memset(d + blocks, 0, (size_t)(a->stride / a->block - blocks) * sizeof *d);
    memset(bsum + n / 16, 0, (size_t)(a->stride - n) / 16 * sizeof *bsum);
    return true;
}

void cpu_set_round_neon(struct cpu_matmul *m)
{
    m->round = round_row;
}
