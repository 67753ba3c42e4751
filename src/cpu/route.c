/* SPDX-License-Identifier: Apache-2.0 */
/* The router: which experts a row takes, and how much of each (qwen4exp.md 2.7). */
#include <math.h>
#include <string.h>

#include "cpu/state.h"

struct route_job {
    struct cpu_backend *c;
    const float *logits;
    int n, k;
    bool renormalise;
    int32_t *ids;
    float *weights;
    _Atomic int bad;
};

/* The k best of n, best first; equal: the lower index. best [k] holds their values. */
static void k_best(const float *p, int n, int k, int32_t *ids, float *best)
{
    int held = 0;
    for (int i = 0; i < n; i++) {
        if (held == k && !(p[i] > best[k - 1]))
            continue;
        int at = held < k ? held++ : k - 1;
        for (; at > 0 && p[i] > best[at - 1]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = p[i];
        ids[at] = i;
    }
}

static void route_part(void *ctx, size_t first, size_t end, int worker)
{
    struct route_job *j = ctx;
    const struct cpu_ops *ops = &j->c->ops;
    float *p = cpu_worker_area(j->c, worker);
    for (size_t t = first; t < end; t++) {
        int32_t *ids = j->ids + t * (size_t)j->k;
        float *weights = j->weights + t * (size_t)j->k;
        memcpy(p, j->logits + t * (size_t)j->n, (size_t)j->n * sizeof(float));
        float total = ops->softmax(p, j->n, 1);
        if (!isfinite(total))
            cpu_first_bad(&j->bad, (int)t);
        ops->divide(p, total, 1, j->n);
        k_best(p, j->n, j->k, ids, weights);
        if (!j->renormalise)
            continue;
        float sum = 0;
        for (int i = 0; i < j->k; i++)
            sum += weights[i];
        for (int i = 0; i < j->k; i++)
            weights[i] /= sum;
    }
}

bool cpu_route(struct backend *b, const float *logits, int rows, int n, int k, bool renormalise,
               int32_t *ids, float *weights, struct err *e)
{
    struct cpu_backend *c = cpu_of(b);
    if (k < 1 || k > n || (size_t)n > c->scratch.worker_floats) {
        cpu_problem(c, "the router takes %d of %d experts, which is out of range", k, n);
    } else {
        struct route_job j = {c, logits, n, k, renormalise, ids, weights, INT_MAX};
        cpu_split(c, (size_t)rows, (double)rows * n * 6, route_part, &j);
        if (j.bad != INT_MAX)
            cpu_problem(c, "the router's logits of row %d are not finite", j.bad);
    }
    return b->finish(b, e);
}
