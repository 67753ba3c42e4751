/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the codebooks in the forms that x86 kernels use, a few bits a value. Made once by
 * x86_codebooks_init; constant from then on. */
#ifndef STRATA_CPU_X86_CODEBOOK_WORDS_H
#define STRATA_CPU_X86_CODEBOOK_WORDS_H

#include <stdint.h>

struct x86_codebooks {
    /* Eight values of 8, 25 and 43, as 0, 1 and 2: value j in bits 2j and 2j + 1. */
    _Alignas(64) uint16_t iq2_xxs[256], iq2_xs[512];
    /* Four values, their numbers from the smallest on: value j in the three bits from 3j on. */
    _Alignas(64) uint16_t iq3_xxs[256], iq3_s[512];
};

struct x86_iq1 {
    /* Rows of codebook_iq1s; value j plus 1 in bits 2j and 2j + 1, in both halves: 8 KiB, where the
     * codebook has 16. */
    uint32_t rows[2048];
    /* For each upper nibble of an IQ1_S scale word (sign of delta, scale s): the words
     * (2s + 1) * (8 * v +- 1) for v = -1, 0, 1. The fourth is not used. */
    int16_t levels[16][4];
};

extern struct x86_codebooks x86_codebooks;
extern struct x86_iq1 x86_iq1;

/* Fills both; later calls do nothing. Any thread. */
void x86_codebooks_init(void);

#endif
