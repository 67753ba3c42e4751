/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a model's experts are worth having in memory (docs/streaming.md, "The knee"): how many
 * records a token misses over the size of the arena, and from which size on more buys almost
 * nothing. */
#ifndef STRATA_STREAM_KNEE_H
#define STRATA_STREAM_KNEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KNEE_STEPS 20  /* sizes that are tried: steps of 5 % of all experts */
#define KNEE_GAIN 0.02 /* of the tokens a second that a step must buy */
/* Tokens from which on counts say more than what is assumed of every model. */
#define KNEE_TOKENS_LEAST 1024
/* Bytes a second, where they have not been measured: of the drive, and of weights in memory. */
#define KNEE_DRIVE_BYTES_S 2e9
#define KNEE_MEMORY_BYTES_S 20e9

struct knee_curve {
    double missed[KNEE_STEPS + 1]; /* share of a token's records, with 0, 5, .. 100 % in memory */
    bool is_counted;               /* it is this model's */
};

/* What is taken of a model that nothing is known of: (1 - share)^1.4, which the recorded routing
 * traces show. */
void knee_assume(struct knee_curve *out);
/* From how often each of `records` records (at least 1) was used: those used most are in memory. What
 * was never used counts as half a use. False: no memory to sort them; *out is as it was. */
bool knee_count(struct knee_curve *out, const uint32_t *counts, size_t records);
/* Between the steps. */
double knee_missed(const struct knee_curve *c, double share);
/* The least share from which on no step buys KNEE_GAIN more tokens a second, of a token that takes
 * `work` and, if it misses all its records, `reading` more. At least `least`. */
double knee_share(const struct knee_curve *c, double work, double reading, double least);

#endif
