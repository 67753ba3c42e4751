/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 32, 64 and 128 values (gguf-and-quants.md section 2.4, first table).
 *
 * Each type has one function that reads the integer codes of a block; decode multiplies them with
 * the scale, unpack hands them on with the scale of each part of 32 values. Every product here is
 * exact in float32 (section 3 there), so the order of factors does not matter. */
#include "base/bytes.h"
#include "base/half.h"
#include "quant/float_scales.h"
#include "quant/quant.h"

static const int8_t values_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
/* Twice the 4-bit floats E2M1; code 8 is +0. */
static const int8_t values_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float half_at(const uint8_t *b)
{
    return half_to_f32(bytes_u16(b));
}

/* 16 bytes to 32 nibbles: value j is the low nibble of byte j, value j + 16 the high one. */
static void nibbles(const uint8_t *b, int16_t *q)
{
    for (int j = 0; j < 16; j++) {
        q[j] = b[j] & 15;
        q[j + 16] = b[j] >> 4;
    }
}

/* nibbles() with a fifth bit: bit i of h. */
static void nibbles_and_bit(const uint8_t *b, uint32_t h, int16_t *q)
{
    nibbles(b, q);
    for (int i = 0; i < 32; i++)
        q[i] = (int16_t)(q[i] | (h >> i & 1) << 4);
}

static void codes_q4_0(const uint8_t *b, int16_t *q)
{
    nibbles(b + 2, q);
    for (int i = 0; i < 32; i++)
        q[i] = (int16_t)(q[i] - 8);
}

static void codes_q4_1(const uint8_t *b, int16_t *q)
{
    nibbles(b + 4, q);
}

static void codes_q5_0(const uint8_t *b, int16_t *q)
{
    nibbles_and_bit(b + 6, bytes_u32(b + 2), q);
    for (int i = 0; i < 32; i++)
        q[i] = (int16_t)(q[i] - 16);
}

static void codes_q5_1(const uint8_t *b, int16_t *q)
{
    nibbles_and_bit(b + 8, bytes_u32(b + 4), q);
}

/* 32 signed bytes. The pointer's type matters: gcc 12 takes a cast byte as unsigned where it
 * vectorizes with VNNI (kernels.md section 1). */
static void codes_signed(const int8_t *b, int16_t *q)
{
    for (int i = 0; i < 32; i++)
        q[i] = b[i];
}

static void codes_q8_0(const uint8_t *b, int16_t *q)
{
    codes_signed((const int8_t *)b + 2, q);
}

static void codes_q8_1(const uint8_t *b, int16_t *q)
{
    codes_signed((const int8_t *)b + 4, q);
}

static void codes_iq4_nl(const uint8_t *b, int16_t *q)
{
    nibbles(b + 2, q);
    for (int i = 0; i < 32; i++)
        q[i] = values_iq4_nl[q[i]];
}

static void codes_mxfp4(const uint8_t *b, int16_t *q)
{
    nibbles(b + 1, q);
    for (int i = 0; i < 32; i++)
        q[i] = values_fp4[q[i]];
}

static void codes_nvfp4(const uint8_t *b, int16_t *q)
{
    for (int i = 0; i < 64; i++) {
        uint8_t c = b[4 + 8 * (i / 16) + i % 8];
        q[i] = values_fp4[i % 16 < 8 ? c & 15 : c >> 4];
    }
}

static void codes_q1_0(const uint8_t *b, int16_t *q)
{
    for (int i = 0; i < 128; i++)
        q[i] = b[2 + i / 8] >> i % 8 & 1 ? 1 : -1;
}

static void codes_q2_0(const uint8_t *b, int16_t *q)
{
    for (int i = 0; i < 64; i++)
        q[i] = (int16_t)((b[2 + i / 4] >> 2 * (i % 4) & 3) - 1);
}

typedef void codes_fn(const uint8_t *b, int16_t *q);

/* value = q * d, d a half float at byte 0. */
static void decode_scaled(codes_fn *codes, int bytes, int values, const uint8_t *b, float *out,
                          int64_t n)
{
    int16_t q[128];
    for (int64_t k = 0; k < n; k++, b += bytes, out += values) {
        float d = half_at(b);
        codes(b, q);
        for (int i = 0; i < values; i++)
            out[i] = (float)q[i] * d;
    }
}

/* value = q * d + m, half floats at bytes 0 and 2; one rounding, in the sum. */
static void decode_with_min(codes_fn *codes, int bytes, const uint8_t *b, float *out, int64_t n)
{
    int16_t q[32];
    for (int64_t k = 0; k < n; k++, b += bytes, out += 32) {
        float d = half_at(b), m = half_at(b + 2);
        codes(b, q);
        for (int i = 0; i < 32; i++)
            out[i] = (float)q[i] * d + m;
    }
}

static void unpack_scaled(codes_fn *codes, int bytes, int values, const uint8_t *b, int n,
                          struct quant_row *row)
{
    for (int i = 0; i < n; i += values, b += bytes) {
        float d = half_at(b);
        codes(b, row->w + i);
        for (int part = 0; part < values / 32; part++)
            row->d[i / 32 + part] = d;
    }
}

static void unpack_with_min(codes_fn *codes, int bytes, const uint8_t *b, int n,
                            struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += bytes) {
        codes(b, row->w + 32 * k);
        row->d[k] = half_at(b);
        row->dmin[k] = -half_at(b + 2); /* the minimum is subtracted in the product */
        row->m[2 * k] = row->m[2 * k + 1] = 1;
    }
}

static void decode_q4_0(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_q4_0, 18, 32, b, out, n);
}
static void unpack_q4_0(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_scaled(codes_q4_0, 18, 32, b, n, row);
}

static void decode_q4_1(const uint8_t *b, float *out, int64_t n)
{
    decode_with_min(codes_q4_1, 20, b, out, n);
}
static void unpack_q4_1(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_with_min(codes_q4_1, 20, b, n, row);
}

static void decode_q5_0(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_q5_0, 22, 32, b, out, n);
}
static void unpack_q5_0(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_scaled(codes_q5_0, 22, 32, b, n, row);
}

static void decode_q5_1(const uint8_t *b, float *out, int64_t n)
{
    decode_with_min(codes_q5_1, 24, b, out, n);
}
static void unpack_q5_1(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_with_min(codes_q5_1, 24, b, n, row);
}

static void decode_q8_0(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_q8_0, 34, 32, b, out, n);
}
static void unpack_q8_0(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_scaled(codes_q8_0, 34, 32, b, n, row);
}

static void decode_q8_1(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_q8_1, 36, 32, b, out, n);
}

static void decode_iq4_nl(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_iq4_nl, 18, 32, b, out, n);
}
static void unpack_iq4_nl(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_scaled(codes_iq4_nl, 18, 32, b, n, row);
}

static void decode_q1_0(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_q1_0, 18, 128, b, out, n);
}
static void unpack_q1_0(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_scaled(codes_q1_0, 18, 128, b, n, row);
}

static void decode_q2_0(const uint8_t *b, float *out, int64_t n)
{
    decode_scaled(codes_q2_0, 18, 64, b, out, n);
}
static void unpack_q2_0(const uint8_t *b, int n, struct quant_row *row)
{
    unpack_scaled(codes_q2_0, 18, 64, b, n, row);
}

static void decode_mxfp4(const uint8_t *b, float *out, int64_t n)
{
    int16_t q[32];
    for (int64_t k = 0; k < n; k++, b += 17, out += 32) {
        float d = quant_scale_mxfp4(b[0]);
        codes_mxfp4(b, q);
        for (int i = 0; i < 32; i++)
            out[i] = (float)q[i] * d;
    }
}
static void unpack_mxfp4(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 17) {
        codes_mxfp4(b, row->w + 32 * k);
        row->d[k] = quant_scale_mxfp4(b[0]);
    }
}

static void decode_nvfp4(const uint8_t *b, float *out, int64_t n)
{
    int16_t q[64];
    for (int64_t k = 0; k < n; k++, b += 36, out += 64) {
        codes_nvfp4(b, q);
        for (int i = 0; i < 64; i++)
            out[i] = (float)q[i] * quant_scale_nvfp4(b[i / 16]);
    }
}
static void unpack_nvfp4(const uint8_t *b, int n, struct quant_row *row)
{
    for (int i = 0; i < n; i += 64, b += 36) {
        codes_nvfp4(b, row->w + i);
        for (int part = 0; part < 4; part++)
            row->d16[i / 16 + part] = quant_scale_nvfp4(b[part]);
    }
}

const struct quant_traits quant_q4_0 = {
    .form = QUANT_INT32, .decode = decode_q4_0, .unpack = unpack_q4_0};
const struct quant_traits quant_q4_1 = {
    .form = QUANT_INT32, .has_min = true, .decode = decode_q4_1, .unpack = unpack_q4_1};
const struct quant_traits quant_q5_0 = {
    .form = QUANT_INT32, .decode = decode_q5_0, .unpack = unpack_q5_0};
const struct quant_traits quant_q5_1 = {
    .form = QUANT_INT32, .has_min = true, .decode = decode_q5_1, .unpack = unpack_q5_1};
const struct quant_traits quant_q8_0 = {
    .form = QUANT_INT32, .decode = decode_q8_0, .unpack = unpack_q8_0};
const struct quant_traits quant_q8_1 = {.decode = decode_q8_1};
const struct quant_traits quant_iq4_nl = {
    .form = QUANT_INT32, .decode = decode_iq4_nl, .unpack = unpack_iq4_nl};
const struct quant_traits quant_mxfp4 = {
    .form = QUANT_INT32, .decode = decode_mxfp4, .unpack = unpack_mxfp4};
const struct quant_traits quant_nvfp4 = {
    .form = QUANT_INT32, .has_d16 = true, .decode = decode_nvfp4, .unpack = unpack_nvfp4};
const struct quant_traits quant_q1_0 = {
    .form = QUANT_INT32, .decode = decode_q1_0, .unpack = unpack_q1_0};
const struct quant_traits quant_q2_0 = {
    .form = QUANT_INT32, .decode = decode_q2_0, .unpack = unpack_q2_0};
