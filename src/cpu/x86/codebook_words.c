/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/x86/codebook_words.h"

#include <pthread.h>

#include "quant/codebooks.h"

struct x86_codebooks x86_codebooks;
struct x86_iq1 x86_iq1;

static void fill_iq1(void)
{
    for (int r = 0; r < 2048; r++) {
        uint32_t bits = 0;
        for (int j = 0; j < 8; j++) {
            int value = (int8_t)(codebook_iq1s[r] >> 8 * j & 255);
            bits |= (uint32_t)(value + 1) << 2 * j;
        }
        x86_iq1.rows[r] = bits | bits << 16;
    }
    for (int top = 0; top < 16; top++)
        for (int v = -1; v <= 1; v++) {
            int code = 8 * v + (top >> 3 ? -1 : 1);
            x86_iq1.levels[top][v + 1] = (int16_t)((2 * (top & 7) + 1) * code);
        }
}

/* The bytes of a row as their numbers in `levels`, `bits` for each. */
static uint16_t word_of_row(uint64_t row, int values, const uint8_t *levels, int bits)
{
    unsigned word = 0;
    for (int j = 0; j < values; j++) {
        unsigned level = 0;
        while (levels[level] != (row >> 8 * j & 255))
            level++;
        word |= level << bits * j;
    }
    return (uint16_t)word;
}

static void fill(void)
{
    static const uint8_t iq2[] = {8, 25, 43}, iq3_xxs[] = {4, 12, 20, 28, 36, 44, 52, 62},
                         iq3_s[] = {1, 3, 5, 7, 9, 11, 13, 15};
    for (int r = 0; r < 512; r++) {
        if (r < 256) {
            x86_codebooks.iq2_xxs[r] = word_of_row(codebook_iq2xxs[r], 8, iq2, 2);
            x86_codebooks.iq3_xxs[r] = word_of_row(codebook_iq3xxs[r], 4, iq3_xxs, 3);
        }
        x86_codebooks.iq2_xs[r] = word_of_row(codebook_iq2xs[r], 8, iq2, 2);
        x86_codebooks.iq3_s[r] = word_of_row(codebook_iq3s[r], 4, iq3_s, 3);
    }
    fill_iq1();
}

void x86_codebooks_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}
