/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a weight row's record for prefill tiles (matmul.h). */
#ifndef STRATA_CPU_X86_TILE_RECORD_H
#define STRATA_CPU_X86_TILE_RECORD_H

#include "cpu/matmul.h"

static inline int32_t *tile_scale(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (int32_t *)(record + l->scale);
}

static inline int32_t *tile_start(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (int32_t *)(record + l->start);
}

static inline float *tile_d(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (float *)(record + l->d);
}

static inline float *tile_dmin(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (float *)(record + l->dmin);
}

static inline int16_t *tile_m(uint8_t *record, const struct cpu_tile_layout *l)
{
    return (int16_t *)(record + l->m);
}

#endif
