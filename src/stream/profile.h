/* SPDX-License-Identifier: Apache-2.0 */
/* The popularity profile (STRPOP01, docs/formats.md): how many tokens used each expert, learned
 * from use and kept beside the model. It decides what is read before anybody asks, never an output.
 */
#ifndef STRATA_STREAM_PROFILE_H
#define STRATA_STREAM_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct profile {
    uint8_t fingerprint[16]; /* of the model */
    int layers;
    const int *experts; /* [layers] of each layer */
    uint64_t tokens;    /* that were counted */
    uint32_t *counts;   /* layer after layer, expert after expert */
};

/* Reads a profile of the model that `p` describes (fingerprint, layers, experts) into tokens and
 * counts. False, with one sentence, when the file is missing, damaged, newer, or another model's;
 * counts and tokens are then as they were. */
bool profile_read(const char *path, struct profile *p, struct err *e);
/* Replaces the file in one step. */
bool profile_write(const char *path, const struct profile *p, struct err *e);

#endif
