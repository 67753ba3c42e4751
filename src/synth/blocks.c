/* SPDX-License-Identifier: Apache-2.0 */
#include "synth/blocks.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/half.h"

/* ---- Drawn ---------------------------------------------------------------------------------- */

/* Root mean square of a block of random bytes whose scale is 1. */
static double random_rms(enum tensor_type type)
{
    switch (type) {
    case TYPE_IQ2_XXS:
        return 53.24;
    case TYPE_IQ2_XS:
        return 55.84;
    case TYPE_IQ1_S:
        return 7.189;
    case TYPE_IQ4_NL:
        return 67.26;
    case TYPE_IQ3_S:
        return 140.4;
    case TYPE_Q4_0:
        return 4.627;
    case TYPE_Q5_0:
        return 9.252;
    default:
        assert(type == TYPE_Q8_0);
        return 73.8;
    }
}

static void put_half(uint8_t *to, double v)
{
    bytes_put_u16(to, half_from_f32((float)v));
}

static void fill_bytes(struct synth_random *r, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint8_t eight[8];
        bytes_put_u64(eight, random_u64(r));
        memcpy(out + i, eight, n - i < 8 ? n - i : 8);
    }
}

/* The 12 bytes of eight 6-bit scales and eight 6-bit minimums. */
static void pack_k_scales(const uint8_t *scale, const uint8_t *least, uint8_t *out)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)((scale[i] & 63) | (scale[i + 4] >> 4) << 6);
        out[i + 4] = (uint8_t)((least[i] & 63) | (least[i + 4] >> 4) << 6);
        out[i + 8] = (uint8_t)((scale[i + 4] & 15) | (least[i + 4] & 15) << 4);
    }
}

/* Q4_K, Q5_K: codes are even, the minimum is half their range, so the mean is 0. */
static void draw_k(bool is_q4, double deviation, double wobble, struct synth_random *r, uint8_t *b)
{
    double top = is_q4 ? 15 : 31, spread = sqrt(((top + 1) * (top + 1) - 1) / 12);
    double d = deviation / (32.4 * spread) * wobble;
    uint8_t scale[8];
    for (int i = 0; i < 8; i++)
        scale[i] = (uint8_t)(24 + random_below(r, 17));
    put_half(b, d);
    put_half(b + 2, d * top / 2);
    pack_k_scales(scale, scale, b + 4);
}

static void draw_q6_k(double deviation, double wobble, struct synth_random *r, uint8_t *b)
{
    for (int i = 0; i < 16; i++) {
        int scale = 20 + (int)random_below(r, 25);
        b[192 + i] = (uint8_t)(random_u64(r) >> 63 ? scale : -scale);
    }
    put_half(b + 208, deviation / (18.47 * 32.8) * wobble);
}

/* Q2_0: codes 0..3 mean -1..2; drawn so that the mean is 0. */
static void draw_q2_0(double deviation, double wobble, struct synth_random *r, uint8_t *b)
{
    put_half(b, deviation / 0.867 * wobble);
    for (int i = 0; i < 16; i++) {
        unsigned four = 0;
        for (int j = 0; j < 4; j++) {
            unsigned u = (unsigned)random_below(r, 256);
            four |= (u < 90 ? 0u : u < 167 ? 1u : u < 251 ? 2u : 3u) << 2 * j;
        }
        b[2 + i] = (uint8_t)four;
    }
}

void blocks_draw(enum tensor_type type, size_t n, double deviation, struct synth_random *r,
                 uint8_t *out)
{
    size_t size = tensor_type_info(type)->block_bytes;
    for (size_t i = 0; i < n; i++) {
        uint8_t *b = out + i * size;
        double wobble = (double)random_between(r, 0.7f, 1.3f) / 1.015;
        if (type != TYPE_Q2_0)
            fill_bytes(r, b, size);
        if (type == TYPE_Q4_K || type == TYPE_Q5_K)
            draw_k(type == TYPE_Q4_K, deviation, wobble, r, b);
        else if (type == TYPE_Q6_K)
            draw_q6_k(deviation, wobble, r, b);
        else if (type == TYPE_Q2_0)
            draw_q2_0(deviation, wobble, r, b);
        else
            put_half(b, deviation / random_rms(type) * wobble);
    }
}

/* ---- Encoded -------------------------------------------------------------------------------- */

static float largest(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

static int clip(float x, int least, int most)
{
    int v = (int)rintf(x);
    return v < least ? least : v > most ? most : v;
}

static void encode_q8_0(const float *x, uint8_t *out)
{
    float d = largest(x, 32) / 127;
    bytes_put_u16(out, half_from_f32(d));
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)clip(x[i] / (d > 1e-30f ? d : 1e-30f), -127, 127);
}

static void encode_q6_k(const float *x, uint8_t *out)
{
    float want[16], most = 0;
    for (int i = 0; i < 16; i++) {
        want[i] = largest(x + 16 * i, 16) / 31;
        most = want[i] > most ? want[i] : most;
    }
    uint16_t half = half_from_f32(most / 127);
    float d = half_to_f32(half) > 1e-30f ? half_to_f32(half) : 1e-30f;
    uint8_t code[256];
    for (int i = 0; i < 16; i++) {
        int scale = clip(want[i] / d, 1, 127);
        out[192 + i] = (uint8_t)scale;
        for (int j = 0; j < 16; j++)
            code[16 * i + j] = (uint8_t)(clip(x[16 * i + j] / (d * (float)scale), -32, 31) + 32);
    }
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 32; i++) {
            const uint8_t *q = code + 128 * h + i;
            out[64 * h + i] = (uint8_t)((q[0] & 15) | (q[64] & 15) << 4);
            out[64 * h + 32 + i] = (uint8_t)((q[32] & 15) | (q[96] & 15) << 4);
            out[128 + 32 * h + i] =
                (uint8_t)(q[0] >> 4 | q[32] >> 4 << 2 | q[64] >> 4 << 4 | q[96] >> 4 << 6);
        }
    bytes_put_u16(out + 208, half);
}

static void encode_q4_k(const float *x, uint8_t *out)
{
    float step[8], low[8], most_step = 0, most_low = 0;
    for (int i = 0; i < 8; i++) {
        float least = 0, most = -INFINITY;
        for (int j = 0; j < 32; j++) {
            least = x[32 * i + j] < least ? x[32 * i + j] : least;
            most = x[32 * i + j] > most ? x[32 * i + j] : most;
        }
        low[i] = -least;
        step[i] = (most + low[i]) / 15;
        most_step = step[i] > most_step ? step[i] : most_step;
        most_low = low[i] > most_low ? low[i] : most_low;
    }
    uint16_t half_d = half_from_f32(most_step / 63), half_m = half_from_f32(most_low / 63);
    half_d = half_d ? half_d : 1; /* the smallest that a half can hold */
    half_m = half_m ? half_m : 1;
    float d = half_to_f32(half_d), m = half_to_f32(half_m);
    uint8_t scale[8], least[8];
    bytes_put_u16(out, half_d);
    bytes_put_u16(out + 2, half_m);
    for (int i = 0; i < 8; i++) {
        scale[i] = (uint8_t)clip(step[i] / d, 1, 63);
        least[i] = (uint8_t)clip(low[i] / m, 0, 63);
    }
    pack_k_scales(scale, least, out + 4);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 32; j++) {
            int q = clip((x[32 * i + j] + m * least[i]) / (d * scale[i]), 0, 15);
            uint8_t *to = &out[16 + 32 * (i / 2) + j];
            *to = (uint8_t)(i % 2 ? *to | q << 4 : q);
        }
}

void blocks_encode(enum tensor_type type, const float *x, size_t n, uint8_t *out)
{
    const struct tensor_type_info *t = tensor_type_info(type);
    for (size_t i = 0; i < n; i += t->block_values, out += t->block_bytes) {
        uint32_t u = half_f32_bits(x[i]);
        if (type == TYPE_F32)
            bytes_put_u32(out, u);
        else if (type == TYPE_BF16)
            bytes_put_u16(out, (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16));
        else if (type == TYPE_Q8_0)
            encode_q8_0(x + i, out);
        else if (type == TYPE_Q6_K)
            encode_q6_k(x + i, out);
        else
            encode_q4_k(x + i, out);
    }
}
