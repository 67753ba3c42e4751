/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with blocks of 32, 64 and 128 values as records for prefill tiles, with NEON.
 * Compiled with and without the dot product extension only for the names of the products. */
#include "cpu/arm/tile_neon.h"
#include "cpu/arm/types32_neon.h"

INLINE void unpack(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out, const int bytes,
                   const int values, const enum scaling scaling, codes32_fn *codes, d32_fn *d)
{
    const int parts = values / 32;
    float *halves = (float *)tile_scale(out, l), *minimum = tile_minimum32(out, l);
    for (int i = 0; i < l->n / 32; i += parts, b += bytes) {
        for (int p = 0; p < parts; p++) {
            struct codes_32 x = codes(b, p);
            vst1q_s8((int8_t *)out + 32 * (i + p), x.c[0]);
            vst1q_s8((int8_t *)out + 32 * (i + p) + 16, x.c[1]);
            if (scaling == HALVES) {
                halves[2 * (i + p)] = d(b, 2 * p);
                halves[2 * (i + p) + 1] = d(b, 2 * p + 1);
            } else {
                tile_d(out, l)[i + p] = d(b, p);
            }
            if (scaling == WITH_MINIMUM)
                minimum[i + p] = -half_at(b + 2);
        }
    }
}

#define UNPACK(name, TYPE, bytes, values, scaling)                                               \
    static void unpack_##name(const uint8_t *row, const struct cpu_tile_layout *l, uint8_t *out) \
    {                                                                                            \
        unpack(row, l, out, bytes, values, scaling, codes_##name, d_##name);                     \
    }
TYPES_32(UNPACK)

/* The product of a form. */
INLINE cpu_tile_fn *product(enum scaling scaling)
{
    return scaling == HALVES ? TILE(32_halves) : scaling == WITH_MINIMUM ? TILE(32_min) : TILE(32);
}

#define SET(name, TYPE, bytes, values, scaling) \
    m->tile[TYPE_##TYPE] = (struct cpu_tile){unpack_##name, product(scaling)};

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_tile32_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_tile32_neon(struct cpu_matmul *m)
#endif
{
    TYPES_32(SET)
}
