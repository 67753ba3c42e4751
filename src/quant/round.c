/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations to 8 bits (numerics.md section 2), the definition. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "quant/quant.h"

/* Largest magnitude of n values as float bits, which order like the values; inf and NaN are above
 * every finite number. */
static uint32_t largest_bits(const float *x, int n)
{
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        uint32_t bits = half_f32_bits(x[i]) & 0x7fffffff;
        if (bits > most)
            most = bits;
    }
    return most;
}

/* One block of finite values; returns its scale. */
static float round_block(const float *x, int n, float largest, int16_t *q)
{
    float d = largest / 127;
    for (int i = 0; i < n; i++) {
        /* lrintf rounds halves to even; the quotient passes 127 only when d is denormal. */
        long code = d == 0 ? 0 : lrintf(x[i] / d);
        q[i] = (int16_t)(code > 127 ? 127 : code < -127 ? -127 : code);
    }
    return d;
}

bool quant_round_row(const float *x, int n, struct quant_act *a, int row)
{
    int16_t *q = a->q + (size_t)row * a->stride;
    float *d = a->d + (size_t)row * (a->stride / a->block);
    int16_t *bsum = a->bsum + (size_t)row * (a->stride / 16);
    int blocks = n / a->block;
    for (int b = 0; b < blocks; b++) {
        uint32_t most = largest_bits(x + b * a->block, a->block);
        if (most >= 0x7f800000)
            return false;
        d[b] = round_block(x + b * a->block, a->block, half_bits_f32(most), q + b * a->block);
    }
    memset(q + n, 0, (size_t)(a->stride - n) * sizeof *q);
    memset(d + blocks, 0, (size_t)(a->stride / a->block - blocks) * sizeof *d);
    for (int s = 0; s < a->stride / 16; s++) {
        bsum[s] = 0;
        for (int i = 0; i < 16; i++)
            bsum[s] = (int16_t)(bsum[s] + q[16 * s + i]);
    }
    return true;
}
