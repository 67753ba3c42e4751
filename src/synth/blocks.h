/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as blocks of a number format: drawn ones, and values that are encoded by plain rounding.
 */
#ifndef STRATA_SYNTH_BLOCKS_H
#define STRATA_SYNTH_BLOCKS_H

#include <stddef.h>

#include "base/tensor_type.h"
#include "synth/random.h"

/* n blocks whose weights have about the deviation. Of the quantized types of the mixes. */
void blocks_draw(enum tensor_type type, size_t n, double deviation, struct synth_random *r,
                 uint8_t *out);

/* n values (whole blocks) of a table: F32, BF16, Q8_0, Q6_K, Q4_K. */
void blocks_encode(enum tensor_type type, const float *x, size_t n, uint8_t *out);

#endif
