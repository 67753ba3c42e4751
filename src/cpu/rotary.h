/* SPDX-License-Identifier: Apache-2.0 */
/* The angles of the rotary embedding at one position (qwen4exp.md 2.2). Private to src/cpu. */
#ifndef STRATA_CPU_ROTARY_H
#define STRATA_CPU_ROTARY_H

#include "base/fmath.h"
#include "cpu/state.h"

#define ROTARY_PAIRS 256

struct rotary {
    float cosine[ROTARY_PAIRS], sine[ROTARY_PAIRS];
};

/* Records a problem when there are more pairs than a struct rotary holds. */
static inline bool rotary_fits(struct cpu_backend *c, const struct rope *rope)
{
    if (rope->n_rot / 2 <= ROTARY_PAIRS)
        return true;
    cpu_problem(c, "a rotary embedding turns %d dimensions, more than %d", rope->n_rot,
                2 * ROTARY_PAIRS);
    return false;
}

static inline void rotary_at(struct rotary *r, const struct rope *rope, int position)
{
    for (int i = 0; i < rope->n_rot / 2; i++) {
        float sine, cosine;
        fmath_sincos((float)position * rope->inv_freq[i], &sine, &cosine);
        r->cosine[i] = cosine * rope->mscale;
        r->sine[i] = sine * rope->mscale;
    }
}

#endif
