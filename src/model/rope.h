/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding from the metadata (qwen4exp.md 2.2, other-archs.md 4.3). */
#ifndef STRATA_MODEL_ROPE_H
#define STRATA_MODEL_ROPE_H

#include "backend/backend.h"
#include "model/hparams.h"

/* Sections give each pair one of several positions. For text they are equal, so that sections
 * change nothing, unless they leave a pair without a position: that is refused. */
enum rope_sections {
    ROPE_SECTIONS_UNUSED, /* the key has no meaning in this architecture */
    ROPE_SECTIONS_OPTIONAL,
    ROPE_SECTIONS_REQUIRED,
};

/* How an architecture reads the keys `rope.*`. */
struct rope_rules {
    int rotated;  /* n_rot when the file does not say; 0: it must say */
    float base;   /* the same for rope.freq_base */
    bool scaling; /* linear and YaRN are understood; other kinds are always refused */
    enum rope_sections sections;
};

/* Reads base, rotated part, sections and scaling for heads of d_head values.
 * out->inv_freq: mem_free, also after an error. */
bool rope_read(struct hparams *h, int d_head, const struct rope_rules *rules, struct rope *out);

#endif
