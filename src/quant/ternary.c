/* SPDX-License-Identifier: Apache-2.0 */
/* The types with three values, blocks of 256. Source: gguf-and-quants.md section 2.4.
 * The integer form is the code itself: -1..1 for TQ1_0, -1..2 for TQ2_0. */
#include "base/bytes.h"
#include "base/half.h"
#include "quant/block256.h"

enum { TQ1_0_BYTES = 54, TQ2_0_BYTES = 66 };

/* Digit n of the five digits of base 3 in a byte, less 1. */
static int8_t digit_tq1_0(uint8_t c, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    uint8_t x = (uint8_t)(c * power[n]);
    return (int8_t)((3 * x >> 8) - 1);
}

static void no_scales(struct block256 *p)
{
    for (int v = 0; v < 16; v++)
        p->scale[v] = 1;
}

static void parts_tq1_0(const uint8_t *b, struct block256 *p)
{
    p->d = half_to_f32(bytes_u16(b + 52));
    no_scales(p);
    for (int i = 0; i < 160; i++)
        p->code[i] = digit_tq1_0(b[i % 32], i / 32);
    for (int r = 0; r < 80; r++)
        p->code[160 + r] = digit_tq1_0(b[32 + r % 16], r / 16);
    for (int r = 0; r < 16; r++)
        p->code[240 + r] = digit_tq1_0(b[48 + r % 4], r / 4);
}

static void parts_tq2_0(const uint8_t *b, struct block256 *p)
{
    p->d = half_to_f32(bytes_u16(b + 64));
    no_scales(p);
    for (int i = 0; i < 256; i++) {
        int l = i % 32, h = i / 128, k = i % 128 / 32;
        p->code[i] = (int8_t)((b[32 * h + l] >> 2 * k & 3) - 1);
    }
}

static void decode_tq1_0(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_tq1_0, TQ1_0_BYTES, false, blocks, out, n_blocks);
}

static void decode_tq2_0(const uint8_t *blocks, float *out, int64_t n_blocks)
{
    block256_decode(parts_tq2_0, TQ2_0_BYTES, false, blocks, out, n_blocks);
}

static void unpack_tq1_0(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_tq1_0, TQ1_0_BYTES, false, row, n, out);
}

static void unpack_tq2_0(const uint8_t *row, int n, struct quant_row *out)
{
    block256_unpack(parts_tq2_0, TQ2_0_BYTES, false, row, n, out);
}

const struct quant_traits quant_tq1_0 = {
    .form = QUANT_INT256, .decode = decode_tq1_0, .unpack = unpack_tq1_0};
const struct quant_traits quant_tq2_0 = {
    .form = QUANT_INT256, .decode = decode_tq2_0, .unpack = unpack_tq2_0};
