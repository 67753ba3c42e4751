/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-connections (qwen4exp.md 2.3): the residual is hc parallel streams; a module reads one
 * vector from them and says with which weights the result is written back. */
#ifndef STRATA_MODEL_HYPER_H
#define STRATA_MODEL_HYPER_H

#include "model/weights.h"

struct hyper_params {
    int hc, embd, rank;
    float eps;
};

struct hyper_weights {
    const float *norm;   /* [hc][embd] */
    struct tensor down;  /* hc * embd -> rank */
    struct tensor up;    /* rank -> hc * embd */
    struct tensor inject; /* hc * embd -> hc; n_out 0: the final mixer has none */
};

struct hyper_scratch {
    float *normed; /* [tile][hc][embd] */
    float *gate;   /* [tile][hc][embd] */
    float *low;    /* [tile][rank] */
};

/* Asks for PREFIX_norm, PREFIX_down, PREFIX_up and, if wanted, PREFIX_inject. */
bool hyper_bind(struct weights *w, struct hyper_weights *out, const struct hyper_params *p,
                bool inject, const char *prefix, struct err *e);

/* y [rows][embd] = hc_read(x), w [rows][hc] its write weights (NULL for the final mixer).
 * x [rows][hc][embd]. */
void hyper_read(struct backend *b, const struct hyper_params *p, const struct hyper_weights *w,
                const float *x, int rows, const struct hyper_scratch *s, float *y, float *write);

#endif
