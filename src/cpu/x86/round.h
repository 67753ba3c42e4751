/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations on x86. A division takes as long as all the rest, so quotients are products
 * with 1 / d first. Both are roundings of the same number below 127.1 and at most 2^-15 apart, so the
 * codes are the same unless a product is closer than that to the middle between two; then 256 values
 * are divided after all. */
#ifndef STRATA_CPU_X86_ROUND_H
#define STRATA_CPU_X86_ROUND_H

/* Products at most this far from a whole number have the code of the quotient. */
#define ROUND_FAR_FROM_WHOLE (0.5f - 0x1p-15f)
/* d whose reciprocal is as exact as any. */
#define ROUND_LEAST_D 0x1p-100f
#define ROUND_MOST_D 0x1p100f

#define ROUND_PARTS 8 /* of 32 values, that are rounded together */

#endif
