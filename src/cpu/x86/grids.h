/* SPDX-License-Identifier: Apache-2.0 */
/* The codebooks in the form in which x86 kernels load them: values as words, so that a row of eight
 * is one 128-bit load and a row of four one 64-bit load, without any widening. Made once from
 * quant/codebooks.h by x86_grids_init; constant from then on. */
#ifndef STRATA_CPU_X86_GRIDS_H
#define STRATA_CPU_X86_GRIDS_H

#include <stdint.h>

struct x86_grids {
    _Alignas(64) int16_t iq2xxs[256][8];
    int16_t iq2xs[512][8];
    int16_t iq2s[1024][8];
    int16_t iq3xxs[256][4];
    int16_t iq3s[512][4];
    /* Rows of eight values of two bits, value j + 1 at bit 2j, twice in each entry. */
    uint32_t iq1s[2048];
    /* For each upper nibble of an IQ1_S scale word (sign of delta, scale s): the words
     * (2s + 1) * (8 * v +- 1) for v = -1, 0, 1; the fourth is not used. */
    int16_t iq1s_levels[16][4];
    int16_t sign[256][8];  /* 1, or -1 where the bit of the value is 1 */
    int16_t ksign[128][8]; /* the same for signs of seven bits (codebook_ksigns) */
};

extern struct x86_grids x86_grids;

/* Fills x86_grids; later calls do nothing. Any thread. */
void x86_grids_init(void);

#endif
