/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of weights: decode to float, and the integer form that matrix products use.
 * Formats: gguf-and-quants.md section 2. Rule of the products: numerics.md section 2.
 *
 * The C functions here are the definition; src/cpu holds SIMD versions with the same bits. */
#ifndef STRATA_QUANT_QUANT_H
#define STRATA_QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tensor_type.h"

/* How a row takes part in a product. */
enum quant_form {
    QUANT_NONE,   /* no weight type (Q8_1, Q8_K, I8.., F64) */
    QUANT_FLOAT,  /* F32, F16, BF16: float32 activations, 32 chains (numerics.md section 1) */
    QUANT_INT32,  /* activation blocks of 32 values */
    QUANT_INT256, /* activation blocks of 256 values */
};

/* One weight row in integer form. The caller owns the arrays, each 64-byte aligned and with room
 * for n rounded up to 256 values; an unpack function fills what its type uses.
 *
 * QUANT_INT256: w[i] = code * sub-block scale (fits 16 bits for every type), the block is
 *     d[b] * sum w*q, and for types with minimums minus dmin[b] * sum m[j] * bsum16[j].
 *     d holds the power of two that makes an i-quant's scales integers (kernels.md section 2).
 * QUANT_INT32: w[i] = code, d per block of 32 (parts of a 64 or 128 block repeat it);
 *     Q4_1, Q5_1: dmin[b] = -m, m[2b] = m[2b+1] = 1, so that the same second fma applies;
 *     NVFP4: d16[2b], d16[2b+1] are the scales of the two halves of part b and take the place of d;
 *     its two integers are added to the chain one after the other. */
struct quant_row {
    int16_t *w;   /* [n] */
    float *d;     /* [n / act block] */
    float *dmin;  /* [n / act block] */
    int16_t *m;   /* [n / 16] minimum codes, one for each 16 values */
    float *d16;   /* [n / 16] NVFP4 only */
};

/* One or more activation rows rounded to 8 bits (numerics.md section 2), codes widened to 16 bits
 * for the multiply-add instructions. Strides in elements. */
struct quant_act {
    int n;         /* values a row */
    int rows;
    int block;     /* 32 or 256 */
    int16_t *q;    /* [rows][stride] -127..127 */
    float *d;      /* [rows][stride / block] */
    int16_t *bsum; /* [rows][stride / 16] sums of 16 codes */
    int stride;    /* n rounded up to 256; codes, sums and scales of the padding are zero */
    void *tiles;   /* the same rows packed for prefill (cpu/linear.h), or NULL */
};

typedef void quant_decode_fn(const uint8_t *blocks, float *out, int64_t n_blocks);
typedef void quant_unpack_fn(const uint8_t *row, int n, struct quant_row *out);

struct quant_traits {
    enum quant_form form;
    bool has_min;             /* dmin and m are used */
    bool has_d16;             /* NVFP4 */
    quant_decode_fn *decode;  /* every type of the spec has one */
    quant_unpack_fn *unpack;  /* QUANT_INT32 and QUANT_INT256 */
};

/* Never NULL; types that are unknown have no decode. */
const struct quant_traits *quant_traits(uint32_t type);

/* n values (a multiple of the block) to float32, bit-exact (gguf-and-quants.md section 3). */
void quant_decode(uint32_t type, const void *blocks, float *out, uint64_t n);

/* Rounds one row of n floats into row `row` of a. Returns false when x holds inf or NaN. */
bool quant_round_row(const float *x, int n, struct quant_act *a, int row);

/* One file per family of types; the table in quant.c is made of these. */
extern const struct quant_traits quant_plain_f32, quant_plain_f16, quant_plain_bf16, quant_plain_f64,
    quant_plain_i8, quant_plain_i16, quant_plain_i32, quant_plain_i64;      /* plain.c */
extern const struct quant_traits quant_q4_0, quant_q4_1, quant_q5_0, quant_q5_1, quant_q8_0,
    quant_q8_1, quant_iq4_nl, quant_mxfp4, quant_nvfp4, quant_q1_0, quant_q2_0; /* small_blocks.c */
extern const struct quant_traits quant_q2_k, quant_q3_k, quant_q4_k, quant_q5_k, quant_q6_k,
    quant_q8_k;                                                              /* k_types.c */
extern const struct quant_traits quant_iq2_xxs, quant_iq2_xs, quant_iq2_s, quant_iq3_xxs,
    quant_iq3_s, quant_iq1_s, quant_iq1_m, quant_iq4_xs;                     /* i_types.c */
extern const struct quant_traits quant_tq1_0, quant_tq2_0;                   /* ternary.c */

#endif
