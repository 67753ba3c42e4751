/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the IQ1 types in the form that x86 kernels use: rows of 16 bits fill an 8 KiB table,
 * where codebook_iq1s has 16 KiB. Made once by x86_iq1_init; constant from then on. */
#ifndef STRATA_CPU_X86_IQ1_ROWS_H
#define STRATA_CPU_X86_IQ1_ROWS_H

#include <stdint.h>

struct x86_iq1 {
    /* Rows of codebook_iq1s; value j plus 1 in bits 2j and 2j + 1, in both halves. */
    uint32_t rows[2048];
    /* For each upper nibble of an IQ1_S scale word (sign of delta, scale s): the words
     * (2s + 1) * (8 * v +- 1) for v = -1, 0, 1. The fourth is not used. */
    int16_t levels[16][4];
};

extern struct x86_iq1 x86_iq1;

/* Fills x86_iq1; later calls do nothing. Any thread. */
void x86_iq1_init(void);

#endif
