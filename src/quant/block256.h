/* SPDX-License-Identifier: Apache-2.0 */
/* What all types with blocks of 256 values have in common: a block is 256 small codes, an integer
 * scale for each 16 of them, a float scale d, and for some types minimums. A type only says how it
 * packs these parts; decode and integer form follow from them.
 *
 *     value[i] = (d * scale[i / 16]) * code[i] - dmin * min[i / 16]
 *
 * d holds the power of two that makes an i-quant's scales integers (kernels.md section 2, "Integer
 * forms"); such a division is exact, so the decoded bits are those of the spec. */
#ifndef STRATA_QUANT_BLOCK256_H
#define STRATA_QUANT_BLOCK256_H

#include <stdint.h>

#include "quant/quant.h"

struct block256 {
    float d, dmin; /* dmin: types with minimums only */
    int8_t code[256];
    int8_t scale[16];
    uint8_t min[16]; /* types with minimums only */
};

/* Takes one block apart; for types without minimums dmin and min are left alone. */
typedef void block256_parts_fn(const uint8_t *b, struct block256 *parts);

/* n_blocks blocks of block_bytes each to float32. */
static inline void block256_decode(block256_parts_fn *parts_of, int block_bytes, bool has_min,
                                   const uint8_t *blocks, float *out, int64_t n_blocks)
{
    struct block256 p;
    for (int64_t k = 0; k < n_blocks; k++, blocks += block_bytes, out += 256) {
        parts_of(blocks, &p);
        for (int i = 0; i < 256; i++) {
            out[i] = (p.d * (float)p.scale[i / 16]) * (float)p.code[i];
            if (has_min)
                out[i] -= p.dmin * (float)p.min[i / 16];
        }
    }
}

/* One row of n values to its integer form. A code times a scale fits 16 bits, since both are
 * signed bytes: at most 128 * 128. */
static inline void block256_unpack(block256_parts_fn *parts_of, int block_bytes, bool has_min,
                                   const uint8_t *row, int n, struct quant_row *out)
{
    struct block256 p;
    for (int k = 0; k < n / 256; k++, row += block_bytes) {
        parts_of(row, &p);
        out->d[k] = p.d;
        for (int i = 0; i < 256; i++)
            out->w[256 * k + i] = (int16_t)(p.code[i] * p.scale[i / 16]);
        if (!has_min)
            continue;
        out->dmin[k] = p.dmin;
        for (int i = 0; i < 16; i++)
            out->m[16 * k + i] = p.min[i];
    }
}

#endif
