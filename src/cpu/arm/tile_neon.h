/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill tiles with NEON (matmul.h). The bytes of activations are their codes as they are, signed;
 * so no part of a record corrects them. In place of that, `start` holds what the types with a
 * minimum for each block of 32 take off, minus the minimum as a float. The two scales of a block of
 * NVFP4 lie where other types have their integer scales, as floats. */
#ifndef STRATA_CPU_ARM_TILE_NEON_H
#define STRATA_CPU_ARM_TILE_NEON_H

#include "cpu/arm/rows_neon.h"

INLINE int32_t *tile_scale(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (int32_t *)(record + l->scale);
}

INLINE float *tile_minimum32(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (float *)(record + l->start);
}

INLINE float *tile_d(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (float *)(record + l->d);
}

INLINE float *tile_dmin(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (float *)(record + l->dmin);
}

INLINE int16_t *tile_m(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (int16_t *)(record + l->m);
}

#ifdef __ARM_FEATURE_DOTPROD
#define TILE(name) cpu_tile_##name##_neon_dot
#else
#define TILE(name) cpu_tile_##name##_neon
#endif

/* Kernels of the forms that rows have: tile_neon.c. */
extern cpu_tile_fn TILE(32);            /* blocks of 32 */
extern cpu_tile_fn TILE(32_halves);     /* with two scales */
extern cpu_tile_fn TILE(32_min);        /* with a minimum in `start` */
extern cpu_tile_fn TILE(256);           /* no scales but d */
extern cpu_tile_fn TILE(256_s16);       /* a scale for each 16 */
extern cpu_tile_fn TILE(256_s16_min16); /* and a minimum for each 16 */
extern cpu_tile_fn TILE(256_s32);       /* a scale for each 32 */
extern cpu_tile_fn TILE(256_s32_min32); /* and a minimum for each 32 */

/* The types, a file for each family. */
#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_tile256_neon_dot(struct cpu_matmul *m);
void cpu_set_tile32_neon_dot(struct cpu_matmul *m);
#else
void cpu_set_tile256_neon(struct cpu_matmul *m);
void cpu_set_tile32_neon(struct cpu_matmul *m);
#endif

#endif
