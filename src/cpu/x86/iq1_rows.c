/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/x86/iq1_rows.h"

#include <pthread.h>

#include "quant/codebooks.h"

struct x86_iq1 x86_iq1;

static void fill(void)
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

void x86_iq1_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}
