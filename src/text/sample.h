/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the next token from logits. The same logits, options, history and position give the same
 * token on every machine: arithmetic and random numbers are ours (numerics.md section 1).
 *
 * The order (commands.md section 2): penalties, temperature, top-k, top-p, min-p, then one draw. A
 * sampler holds nothing but work space, so there is no state to save: the penalties read the ids so
 * far, and the draw for a position depends on seed and position alone. */
#ifndef STRATA_TEXT_SAMPLE_H
#define STRATA_TEXT_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"

struct sampling {
    float temp;               /* 0: greedy, the lowest id among the largest scores */
    int top_k;                /* 0: off */
    float top_p;              /* the fewest tokens whose probabilities together reach it; 1: off */
    float min_p;              /* nothing below this part of the largest probability; 0: off */
    float repetition_penalty; /* 1: off. Once for each different id of the last 64: positive scores
                               * are divided by it, others multiplied */
    float presence_penalty;   /* taken off once for each different id of the answer */
    float frequency_penalty;  /* taken off for each time that an id is in the answer */
    uint64_t seed;
};

#define SAMPLING_WINDOW 64 /* tokens that the repetition penalty looks at */

/* The file's `general.sampling.*` (temp, top_k, top_p, min_p, penalty_repeat), for what it does not
 * say temperature 0.7, top-k 20, top-p 0.9 and no penalties; seed 0. The result is checked. */
bool sampling_defaults(const struct gguf_file *g, struct sampling *out, struct err *e);

/* Every value is in its range: ERR_USAGE and a sentence that names it otherwise. */
bool sampling_check(const struct sampling *p, struct err *e);

struct sampler;

/* Work space for a vocabulary of n_vocab tokens, and its size in bytes. */
struct sampler *sampler_create(size_t n_vocab, struct err *e);
size_t sampler_memory(size_t n_vocab);
void sampler_free(struct sampler *s);

/* Chooses the id for position n_ids. logits: [n_vocab]. ids: [n_ids], all before it, the answer
 * from answer_start on. Options as sampling_check accepts them. Allocates nothing. A NaN, a
 * positive infinity, or no finite logit at all is ERR_NUMERIC. */
bool sampler_choose(struct sampler *s, const struct sampling *p, const float *logits,
                    const int32_t *ids, size_t n_ids, size_t answer_start, int32_t *id,
                    struct err *e);

/* The draw for a position: 0 <= x < 1, a multiple of 2^-53. */
double sampling_draw(uint64_t seed, uint64_t position);

#endif
