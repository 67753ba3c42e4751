/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt lookup: what followed the last time that the conversation was at the same words. */
#ifndef STRATA_SESSION_LOOKUP_H
#define STRATA_SESSION_LOOKUP_H

#include <stdint.h>

/* Guesses what follows ids[0..n-1]: what follows the longest match of their end with an earlier
 * place (the latest of equally long ones), up to `most` ids; a match that overlaps the end goes on
 * as a repetition. Returns how many, 0 when no end of LOOKUP_LEAST ids occurs earlier.
 * *matched: ids that match, LOOKUP_ENOUGH at most. */
int lookup_guess(const int32_t *ids, int n, int most, int32_t *out, int *matched);

#define LOOKUP_LEAST 3   /* shorter matches are chance */
#define LOOKUP_ENOUGH 16 /* longer ones are not told apart */

#endif
