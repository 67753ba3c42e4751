/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/x86/grids.h"

#include <pthread.h>

#include "quant/codebooks.h"

struct x86_grids x86_grids;

/* Value j of a row of a codebook. */
static int value(uint64_t row, int j)
{
    return (int8_t)(row >> 8 * j & 255);
}

static void widen8(int16_t (*out)[8], const uint64_t *rows, int count)
{
    for (int r = 0; r < count; r++)
        for (int j = 0; j < 8; j++)
            out[r][j] = (int16_t)value(rows[r], j);
}

static void widen4(int16_t (*out)[4], const uint32_t *rows, int count)
{
    for (int r = 0; r < count; r++)
        for (int j = 0; j < 4; j++)
            out[r][j] = (int16_t)value(rows[r], j);
}

static void fill_signs(int16_t out[8], int bits)
{
    for (int j = 0; j < 8; j++)
        out[j] = bits >> j & 1 ? -1 : 1;
}

static void fill(void)
{
    struct x86_grids *g = &x86_grids;
    widen8(g->iq2xxs, codebook_iq2xxs, 256);
    widen8(g->iq2xs, codebook_iq2xs, 512);
    widen8(g->iq2s, codebook_iq2s, 1024);
    widen4(g->iq3xxs, codebook_iq3xxs, 256);
    widen4(g->iq3s, codebook_iq3s, 512);
    for (int r = 0; r < 2048; r++) {
        uint32_t bits = 0;
        for (int j = 0; j < 8; j++)
            bits |= (uint32_t)(value(codebook_iq1s[r], j) + 1) << 2 * j;
        g->iq1s[r] = bits | bits << 16;
    }
    for (int top = 0; top < 16; top++)
        for (int v = 0; v < 3; v++) {
            int code = 8 * (v - 1) + (top >> 3 ? -1 : 1);
            g->iq1s_levels[top][v] = (int16_t)((2 * (top & 7) + 1) * code);
        }
    for (int bits = 0; bits < 256; bits++)
        fill_signs(g->sign[bits], bits);
    for (int bits = 0; bits < 128; bits++)
        fill_signs(g->ksign[bits], codebook_ksigns[bits]);
}

void x86_grids_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}
