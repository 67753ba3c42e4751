/* SPDX-License-Identifier: Apache-2.0 */
/* The codebook types with blocks of 256 values. Source: gguf-and-quants.md section 2.4; t (group of
 * eight), g (group of 32), v (group of 16) are its names.
 *
 * Range of the integer form w = code * scale, for any bytes: IQ2_* 43 * 31 = 1333, IQ3_XXS
 * 62 * 31 = 1922, IQ3_S 15 * 31 = 465, IQ1_* 9 * 15 = 135, IQ4_XS -127 * -32 = 4064. */
#include "base/bytes.h"
#include "base/half.h"
#include "quant/block256.h"
#include "quant/codebooks.h"

enum {
    IQ2_XXS_BYTES = 66,
    IQ2_XS_BYTES = 74,
    IQ2_S_BYTES = 82,
    IQ3_XXS_BYTES = 98,
    IQ3_S_BYTES = 110,
    IQ1_S_BYTES = 50,
    IQ1_M_BYTES = 56,
    IQ4_XS_BYTES = 136
};

static float half_at(const uint8_t *b)
{
    return half_to_f32(bytes_u16(b));
}

/* `width` values of a grid row to code, negative where the sign bit of the value is 1. */
static void put_signed(uint64_t row, int width, int signs, int8_t *code)
{
    for (int j = 0; j < width; j++) {
        int value = (int)(row >> 8 * j & 255);
        code[j] = (int8_t)(signs >> j & 1 ? -value : value);
    }
}

/* (d * (0.5 + s) * 0.25) * grid = d / 8 * (2s + 1) * grid */
static void parts_iq2_xxs(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b) * 0.125f;
    for (int g = 0; g < 8; g++) {
        uint32_t w = bytes_u32(b + 2 + 8 * g + 4);
        p->scale[2 * g] = p->scale[2 * g + 1] = (int8_t)(2 * (w >> 28) + 1);
        for (int t = 4 * g; t < 4 * g + 4; t++) {
            uint64_t row = codebook_iq2xxs[b[2 + 8 * g + t % 4]];
            put_signed(row, 8, codebook_ksigns[w >> 7 * (t % 4) & 127], p->code + 8 * t);
        }
    }
}

/* Eight bytes with a scale s of four bits for each 16 values; the integer scale is 2s + 1. */
static void scales_iq2(const uint8_t *b, int8_t scale[16])
{
    for (int v = 0; v < 16; v++)
        scale[v] = (int8_t)(2 * (v % 2 ? b[v / 2] >> 4 : b[v / 2] & 15) + 1);
}

static void parts_iq2_xs(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b) * 0.125f;
    scales_iq2(b + 66, p->scale);
    for (int t = 0; t < 32; t++) {
        uint16_t q = bytes_u16(b + 2 + 2 * t);
        put_signed(codebook_iq2xs[q & 511], 8, codebook_ksigns[q >> 9], p->code + 8 * t);
    }
}

static void parts_iq2_s(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b) * 0.125f;
    scales_iq2(b + 74, p->scale);
    for (int t = 0; t < 32; t++) {
        int row = b[2 + t] + 256 * (b[66 + t / 4] >> 2 * (t % 4) & 3);
        put_signed(codebook_iq2s[row], 8, b[34 + t], p->code + 8 * t);
    }
}

/* (d * (0.5 + s) * 0.5) * grid = d / 4 * (2s + 1) * grid. A row of the grid has four values, so a
 * group of eight and its sign byte take two. */
static void parts_iq3_xxs(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b) * 0.25f;
    for (int g = 0; g < 8; g++) {
        uint32_t w = bytes_u32(b + 66 + 4 * g);
        p->scale[2 * g] = p->scale[2 * g + 1] = (int8_t)(2 * (w >> 28) + 1);
        for (int t = 4 * g; t < 4 * g + 4; t++) {
            int signs = codebook_ksigns[w >> 7 * (t % 4) & 127];
            put_signed(codebook_iq3xxs[b[2 + 2 * t]], 4, signs, p->code + 8 * t);
            put_signed(codebook_iq3xxs[b[2 + 2 * t + 1]], 4, signs >> 4, p->code + 8 * t + 4);
        }
    }
}

static void parts_iq3_s(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b);
    for (int g = 0; g < 8; g++) {
        uint8_t c = b[106 + g / 2];
        p->scale[2 * g] = p->scale[2 * g + 1] = (int8_t)(2 * (g % 2 ? c >> 4 : c & 15) + 1);
    }
    for (int u = 0; u < 64; u++) {
        int row = b[2 + u] + 256 * (b[66 + u / 8] >> u % 8 & 1);
        put_signed(codebook_iq3s[row], 4, b[74 + u / 2] >> 4 * (u % 2), p->code + 4 * u);
    }
}

/* (d * (2s + 1)) * (grid + delta) = d / 8 * (2s + 1) * (8 * grid + 8 * delta), delta = +-1/8 */
static void put_iq1(int row, bool negative_delta, int8_t code[8])
{
    for (int j = 0; j < 8; j++) {
        int value = (int8_t)(codebook_iq1s[row] >> 8 * j & 255);
        code[j] = (int8_t)(8 * value + (negative_delta ? -1 : 1));
    }
}

static void parts_iq1_s(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b) * 0.125f;
    for (int g = 0; g < 8; g++) {
        uint16_t w = bytes_u16(b + 34 + 2 * g);
        p->scale[2 * g] = p->scale[2 * g + 1] = (int8_t)(2 * (w >> 12 & 7) + 1);
        for (int t = 4 * g; t < 4 * g + 4; t++)
            put_iq1(b[2 + t] + 256 * (w >> 3 * (t % 4) & 7), w >> 15, p->code + 8 * t);
    }
}

/* d is spread over the upper four bits of the four scale words. */
static void parts_iq1_m(const uint8_t *b, struct block256 *p)
{
    unsigned d = 0;
    for (int n = 0; n < 4; n++) {
        uint16_t w = bytes_u16(b + 48 + 2 * n);
        d |= (unsigned)(w >> 12) << 4 * n;
        for (int v = 4 * n; v < 4 * n + 4; v++)
            p->scale[v] = (int8_t)(2 * (w >> 3 * (v % 4) & 7) + 1);
    }
    p->d = half_to_f32((uint16_t)d) * 0.125f;
    for (int t = 0; t < 32; t++) {
        int n = b[32 + t / 2] >> 4 * (t % 2) & 15;
        put_iq1(b[t] + 256 * (n & 7), n >> 3, p->code + 8 * t);
    }
}

static void parts_iq4_xs(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b);
    uint16_t H = bytes_u16(b + 2);
    for (int g = 0; g < 8; g++) {
        int low = g % 2 ? b[4 + g / 2] >> 4 : b[4 + g / 2] & 15;
        int scale = low + 16 * (H >> 2 * g & 3) - 32;
        p->scale[2 * g] = p->scale[2 * g + 1] = (int8_t)scale;
        const uint8_t *q = b + 8 + 16 * g;
        for (int j = 0; j < 16; j++) {
            p->code[32 * g + j] = codebook_iq4nl[q[j] & 15];
            p->code[32 * g + 16 + j] = codebook_iq4nl[q[j] >> 4];
        }
    }
}

static void decode_iq2_xxs(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq2_xxs, IQ2_XXS_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq2_xs(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq2_xs, IQ2_XS_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq2_s(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq2_s, IQ2_S_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq3_xxs(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq3_xxs, IQ3_XXS_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq3_s(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq3_s, IQ3_S_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq1_s(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq1_s, IQ1_S_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq1_m(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq1_m, IQ1_M_BYTES, false, blocks, out, n_blocks);
}

static void decode_iq4_xs(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_iq4_xs, IQ4_XS_BYTES, false, blocks, out, n_blocks);
}

static void unpack_iq2_xxs(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq2_xxs, IQ2_XXS_BYTES, false, row, n, out);
}

static void unpack_iq2_xs(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq2_xs, IQ2_XS_BYTES, false, row, n, out);
}

static void unpack_iq2_s(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq2_s, IQ2_S_BYTES, false, row, n, out);
}

static void unpack_iq3_xxs(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq3_xxs, IQ3_XXS_BYTES, false, row, n, out);
}

static void unpack_iq3_s(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq3_s, IQ3_S_BYTES, false, row, n, out);
}

static void unpack_iq1_s(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq1_s, IQ1_S_BYTES, false, row, n, out);
}

static void unpack_iq1_m(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq1_m, IQ1_M_BYTES, false, row, n, out);
}

static void unpack_iq4_xs(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_iq4_xs, IQ4_XS_BYTES, false, row, n, out);
}

const struct quant_traits quant_iq2_xxs = {
    .form = QUANT_INT256, .decode = decode_iq2_xxs, .unpack = unpack_iq2_xxs};
const struct quant_traits quant_iq2_xs = {
    .form = QUANT_INT256, .decode = decode_iq2_xs, .unpack = unpack_iq2_xs};
const struct quant_traits quant_iq2_s = {
    .form = QUANT_INT256, .decode = decode_iq2_s, .unpack = unpack_iq2_s};
const struct quant_traits quant_iq3_xxs = {
    .form = QUANT_INT256, .decode = decode_iq3_xxs, .unpack = unpack_iq3_xxs};
const struct quant_traits quant_iq3_s = {
    .form = QUANT_INT256, .decode = decode_iq3_s, .unpack = unpack_iq3_s};
const struct quant_traits quant_iq1_s = {
    .form = QUANT_INT256, .decode = decode_iq1_s, .unpack = unpack_iq1_s};
const struct quant_traits quant_iq1_m = {
    .form = QUANT_INT256, .decode = decode_iq1_m, .unpack = unpack_iq1_m};
const struct quant_traits quant_iq4_xs = {
    .form = QUANT_INT256, .decode = decode_iq4_xs, .unpack = unpack_iq4_xs};
