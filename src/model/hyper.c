/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hyper.h"

bool hyper_bind(struct weights *w, struct hyper_weights *out, const struct hyper_params *p,
                bool inject, const char *prefix, struct err *e)
{
    int64_t flat = (int64_t)p->hc * p->embd;
    return weights_vector(w, &out->norm, flat, e, "%s_norm.weight", prefix) &&
           weights_matrix(w, &out->down, flat, p->rank, e, "%s_down.weight", prefix) &&
           weights_matrix(w, &out->up, p->rank, flat, e, "%s_up.weight", prefix) &&
           (!inject || weights_matrix(w, &out->inject, flat, p->hc, e, "%s_inject.weight", prefix));
}

void hyper_read(struct backend *b, const struct hyper_params *p, const struct hyper_weights *w,
                const float *x, int rows, const struct hyper_scratch *s, float *y, float *write)
{
    int flat = p->hc * p->embd;
    b->norm(b, x, w->norm, p->hc, rows * p->hc, p->embd, p->eps, s->normed);
    b->linear(b, s->normed, rows, flat,
              (struct product[]){{&w->down, s->low}, {&w->inject, write}}, write ? 2 : 1);
    b->hc_low(b, s->low, (size_t)rows * (size_t)p->rank, p->hc);
    b->hc_mix(b, s->low, &w->up, s->normed, rows, p->hc, p->embd, s->gate, y);
    if (write)
        b->hc_weights(b, write, (size_t)rows * (size_t)p->hc, p->hc);
}
