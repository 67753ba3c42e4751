/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding from the metadata (qwen4exp.md 2.2, other-archs.md 4.3). */
#ifndef STRATA_MODEL_ROPE_H
#define STRATA_MODEL_ROPE_H

#include "backend/backend.h"
#include "model/hparams.h"

/* Reads base, rotated part, sections and scaling for heads of d_head values. `part`: n_rot when the
 * file does not say, 0: it must say. `default_base`: likewise. `scaling`: linear and YaRN are understood, else refused; other kinds always are.
 * Sections that leave a pair unrotated are refused. out->inv_freq: mem_free. */
bool rope_read(struct hparams *h, int d_head, int part, float default_base, bool scaling,
               struct rope *out);

#endif
