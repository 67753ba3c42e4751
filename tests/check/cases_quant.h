/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of number formats: blocks with their values, rows with their dot products. */
#ifndef STRATA_CHECK_CASES_QUANT_H
#define STRATA_CHECK_CASES_QUANT_H

#include "cases.h"

/* Runs a manifest.json with the keys types and dot; the files it names lie beside it.
 * Types: every set of blocks decodes to the values, bit for bit (NaN equals NaN).
 * Dot: for every instruction set of this machine the float kernels meet `dot` and the integer
 * kernels, fed with the activations as the fixture encodes them, meet `dot_act`, to 4e-6 of the sum
 * of magnitudes. */
void cases_quant(const char *manifest_path, struct case_report *r);

#endif
