/* SPDX-License-Identifier: Apache-2.0 */
/* Plain element types (gguf-and-quants.md section 2.3): one value a block, the usual conversion to
 * float32, halves to even. F32, F16 and BF16 are weights and are multiplied as floats. */
#include <string.h>

#include "base/bytes.h"
#include "base/half.h"
#include "quant/quant.h"

static void decode_f32(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = half_bits_f32(bytes_u32(b + 4 * i));
}

static void decode_f16(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = half_to_f32(bytes_u16(b + 2 * i));
}

static void decode_bf16(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = half_bf16_to_f32(bytes_u16(b + 2 * i));
}

static void decode_f64(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = bytes_u64(b + 8 * i);
        double v;
        memcpy(&v, &bits, 8);
        out[i] = (float)v;
    }
}

static void decode_i8(const uint8_t *b, float *out, int64_t n)
{
    const int8_t *v = (const int8_t *)b;
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)v[i];
}

static void decode_i16(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int16_t)bytes_u16(b + 2 * i);
}

static void decode_i32(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)bytes_u32(b + 4 * i);
}

static void decode_i64(const uint8_t *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int64_t)bytes_u64(b + 8 * i);
}

const struct quant_traits quant_plain_f32 = {.form = QUANT_FLOAT, .decode = decode_f32};
const struct quant_traits quant_plain_f16 = {.form = QUANT_FLOAT, .decode = decode_f16};
const struct quant_traits quant_plain_bf16 = {.form = QUANT_FLOAT, .decode = decode_bf16};
const struct quant_traits quant_plain_f64 = {.decode = decode_f64};
const struct quant_traits quant_plain_i8 = {.decode = decode_i8};
const struct quant_traits quant_plain_i16 = {.decode = decode_i16};
const struct quant_traits quant_plain_i32 = {.decode = decode_i32};
const struct quant_traits quant_plain_i64 = {.decode = decode_i64};
