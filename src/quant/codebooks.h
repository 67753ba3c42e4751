/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the codebook types (gguf-and-quants.md section 2.5). codebooks.c is written by
 * gen_codebooks.py. Value j of a row is byte j of its number, counted from the low end. */
#ifndef STRATA_QUANT_CODEBOOKS_H
#define STRATA_QUANT_CODEBOOKS_H

#include <stdint.h>

/* Rows of eight values. */
extern const uint64_t codebook_iq2xxs[256], codebook_iq2xs[512], codebook_iq2s[1024]; /* 8 25 43 */
extern const uint64_t codebook_iq1s[2048];                                            /* -1 0 1 */

/* Rows of four values: iq3xxs 4 12 20 28 36 44 52 62, iq3s 1 3 5 7 9 11 13 15. */
extern const uint32_t codebook_iq3xxs[256], codebook_iq3s[512];

/* Entry s: s, with bit 7 set where that makes the number of ones even. */
extern const uint8_t codebook_ksigns[128];
/* The same as masks: byte j is 255 where bit j is 1, else 0. */
extern const uint64_t codebook_ksign_masks[128];

/* The values of 4-bit codes. mxfp4 holds doubled values. */
extern const int8_t codebook_iq4nl[16], codebook_mxfp4[16];

#endif
