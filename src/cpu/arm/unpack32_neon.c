/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 32, 64 and 128 values to their integer form with NEON. */
#include "cpu/arm/types32_neon.h"

INLINE void unpack(const uint8_t *b, int n, struct quant_row *out, const int bytes,
                   const int values, const enum scaling scaling, codes32_fn *codes, d32_fn *d)
{
    const int parts = values / 32;
    for (int i = 0; i < n / 32; i++) {
        int p = i % parts;
        struct codes_32 x = codes(b, p);
        for (int h = 0; h < 2; h++) {
            vst1q_s16(out->w + 32 * i + 16 * h, vmovl_s8(vget_low_s8(x.c[h])));
            vst1q_s16(out->w + 32 * i + 16 * h + 8, vmovl_high_s8(x.c[h]));
        }
        if (scaling == HALVES) {
            out->d16[2 * i] = d(b, 2 * p);
            out->d16[2 * i + 1] = d(b, 2 * p + 1);
        } else {
            out->d[i] = d(b, p);
        }
        if (scaling == WITH_MINIMUM) {
            out->dmin[i] = -half_at(b + 2); /* the minimum is subtracted in the product */
            out->m[2 * i] = out->m[2 * i + 1] = 1;
        }
        if (p == parts - 1)
            b += bytes;
    }
}

#define UNPACK(name, TYPE, bytes, values, scaling)                              \
    static void unpack_##name(const uint8_t *row, int n, struct quant_row *out) \
    {                                                                           \
        unpack(row, n, out, bytes, values, scaling, codes_##name, d_##name);    \
    }
TYPES_32(UNPACK)

#define SET(name, TYPE, bytes, values, scaling) m->unpack[TYPE_##TYPE] = unpack_##name;

void cpu_set_unpack32_neon(struct cpu_matmul *m)
{
    TYPES_32(SET)
}
