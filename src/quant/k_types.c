/* SPDX-License-Identifier: Apache-2.0 */
/* The K types: blocks of 256 values with integer scales for 16 or 32 values. Source:
 * gguf-and-quants.md section 2.4; i, l, h, k, g are its names.
 *
 * Range of the integer form w = code * scale, for any bytes: Q2_K 3 * 15 = 45, Q3_K -4 * -32 = 128,
 * Q4_K 15 * 63 = 945, Q5_K 31 * 63 = 1953, Q6_K -32 * -128 = 4096. A block's sum of w * q is then
 * at most 256 * 4096 * 127 < 2^28. Minimums: Q2_K 15, Q4_K and Q5_K 63. */
#include "base/bytes.h"
#include "base/half.h"
#include "quant/block256.h"

enum {
    Q2_K_BYTES = 84,
    Q3_K_BYTES = 110,
    Q4_K_BYTES = 144,
    Q5_K_BYTES = 176,
    Q6_K_BYTES = 210,
    Q8_K_BYTES = 292
};

static float half_at(const uint8_t *b)
{
    return half_to_f32(bytes_u16(b));
}

static void parts_q2_k(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b + 80);
    p->dmin = half_at(b + 82);
    for (int g = 0; g < 16; g++) {
        p->scale[g] = b[g] & 15;
        p->min[g] = b[g] >> 4;
    }
    for (int i = 0; i < 256; i++) {
        int l = i % 32, h = i / 128, k = i % 128 / 32;
        p->code[i] = b[16 + 32 * h + l] >> 2 * k & 3;
    }
}

static void parts_q3_k(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? b[96 + g] & 15 : b[96 + g - 8] >> 4;
        int high = b[104 + g % 4] >> 2 * (g / 4) & 3;
        p->scale[g] = (int8_t)(low + 16 * high - 32);
    }
    for (int i = 0; i < 256; i++) {
        int l = i % 32, h = i / 128, k = i % 128 / 32;
        int low = b[32 + 32 * h + l] >> 2 * k & 3, high = b[l] >> i / 32 & 1;
        p->code[i] = (int8_t)(low - (high ? 0 : 4));
    }
}

/* The twelve bytes S with eight scales and eight minimums of 6 bits, each for 32 values. */
static void scales_q4_k(const uint8_t *S, struct block256 *p)
{
    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? S[g] & 63 : (S[g + 4] & 15) + 16 * (S[g - 4] >> 6);
        int min = g < 4 ? S[g + 4] & 63 : (S[g + 4] >> 4) + 16 * (S[g] >> 6);
        p->scale[2 * g] = p->scale[2 * g + 1] = (int8_t)scale;
        p->min[2 * g] = p->min[2 * g + 1] = (uint8_t)min;
    }
}

/* The 4-bit code of value i in the 128 bytes at q. */
static int nibble_q4_k(const uint8_t *q, int i)
{
    uint8_t c = q[32 * (i / 64) + i % 32];
    return i / 32 % 2 ? c >> 4 : c & 15;
}

static void parts_q4_k(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b);
    p->dmin = half_at(b + 2);
    scales_q4_k(b + 4, p);
    for (int i = 0; i < 256; i++)
        p->code[i] = (int8_t)nibble_q4_k(b + 16, i);
}

static void parts_q5_k(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b);
    p->dmin = half_at(b + 2);
    scales_q4_k(b + 4, p);
    for (int i = 0; i < 256; i++)
        p->code[i] = (int8_t)(nibble_q4_k(b + 48, i) + 16 * (b[16 + i % 32] >> i / 32 & 1));
}

static void parts_q6_k(const uint8_t *b, struct block256 *p)
{
    p->d = half_at(b + 208);
    for (int g = 0; g < 16; g++)
        p->scale[g] = (int8_t)b[192 + g];
    for (int i = 0; i < 256; i++) {
        int l = i % 32, h = i / 128, k = i % 128 / 32;
        uint8_t c = b[64 * h + 32 * (k % 2) + l];
        int low = k < 2 ? c & 15 : c >> 4, high = b[128 + 32 * h + l] >> 2 * k & 3;
        p->code[i] = (int8_t)(low + 16 * high - 32);
    }
}

static void decode_q2_k(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_q2_k, Q2_K_BYTES, true, blocks, out, n_blocks);
}

static void decode_q3_k(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_q3_k, Q3_K_BYTES, false, blocks, out, n_blocks);
}

static void decode_q4_k(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_q4_k, Q4_K_BYTES, true, blocks, out, n_blocks);
}

static void decode_q5_k(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_q5_k, Q5_K_BYTES, true, blocks, out, n_blocks);
}

static void decode_q6_k(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_q6_k, Q6_K_BYTES, false, blocks, out, n_blocks);
}

/* Activations only, so there is no integer form. The sums behind the codes are not needed. */
static void decode_q8_k(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    for (int64_t k = 0; k < n_blocks; k++, blocks += Q8_K_BYTES, out += 256) {
        const int8_t *q = (const int8_t *)blocks + 4;
        float d = half_bits_f32(bytes_u32(blocks));
        for (int i = 0; i < 256; i++)
            out[i] = d * (float)q[i];
    }
}

static void unpack_q2_k(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_q2_k, Q2_K_BYTES, true, row, n, out);
}

static void unpack_q3_k(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_q3_k, Q3_K_BYTES, false, row, n, out);
}

static void unpack_q4_k(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_q4_k, Q4_K_BYTES, true, row, n, out);
}

static void unpack_q5_k(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_q5_k, Q5_K_BYTES, true, row, n, out);
}

static void unpack_q6_k(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_q6_k, Q6_K_BYTES, false, row, n, out);
}

const struct quant_traits quant_q2_k = {
    .form = QUANT_INT256, .has_min = true, .decode = decode_q2_k, .unpack = unpack_q2_k};
const struct quant_traits quant_q3_k = {
    .form = QUANT_INT256, .decode = decode_q3_k, .unpack = unpack_q3_k};
const struct quant_traits quant_q4_k = {
    .form = QUANT_INT256, .has_min = true, .decode = decode_q4_k, .unpack = unpack_q4_k};
const struct quant_traits quant_q5_k = {
    .form = QUANT_INT256, .has_min = true, .decode = decode_q5_k, .unpack = unpack_q5_k};
const struct quant_traits quant_q6_k = {
    .form = QUANT_INT256, .decode = decode_q6_k, .unpack = unpack_q6_k};
const struct quant_traits quant_q8_k = {.form = QUANT_NONE, .decode = decode_q8_k};
