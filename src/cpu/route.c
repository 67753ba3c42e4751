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
    const struct route_bonus *bonus;
    int32_t *ids;
    float *weights;
    _Atomic int bad;
};

/* The k best of x (plus `bonus`, unless NULL) that are none of the k_taken first ids, behind those,
 * best first; equal: the lower index. best [k] holds their values. */
static void k_best(const float *x, const float *bonus, int n, int k_taken, int k, int32_t *ids,
                   float *best)
{
    int held = k_taken;
    for (int i = 0; i < n; i++) {
        float v = bonus ? x[i] + bonus[i] : x[i];
        bool is_taken = held == k && !(v > best[k - 1]);
        for (int j = 0; j < k_taken; j++)
            is_taken = is_taken || ids[j] == i;
        if (is_taken)
            continue;
        int at = held < k ? held++ : k - 1;
        for (; at > k_taken && v > best[at - 1]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = v;
        ids[at] = i;
    }
}

/* Orders the k ids by p, best first (equal: the lower index), into weights. */
static void order_by_weight(const float *p, int k, int32_t *ids, float *weights)
{
    for (int i = 0; i < k; i++) {
        int32_t x = ids[i];
        int at = i;
        for (; at > 0 && (p[x] > weights[at - 1] || (p[x] == weights[at - 1] && x < ids[at - 1]));
             at--) {
            ids[at] = ids[at - 1];
            weights[at] = weights[at - 1];
        }
        ids[at] = x;
        weights[at] = p[x];
    }
}

/* The exact choice is in ids and weights; what the bonus makes of it takes its place. */
static void apply_bonus(const struct route_job *j, const float *z, const float *p, size_t t,
                        int32_t *ids, float *weights)
{
    const struct route_bonus *b = j->bonus;
    float least = z[0], most = z[0], before = 0, after = 0, values[ROUTE_BONUS_MOST];
    bool any = false;
    for (int i = 0; i < j->n; i++) {
        least = z[i] < least ? z[i] : least;
        most = z[i] > most ? z[i] : most;
        any = any || b->bonus[i] != 0;
    }
    b->spread[t] = most - least;
    b->displaced[t] = 0;
    if (!any || b->keep >= j->k)
        return;
    for (int i = 0; i < j->k; i++)
        before += weights[i];
    k_best(z, b->bonus, j->n, b->keep > 0 ? b->keep : 0, j->k, ids, values);
    order_by_weight(p, j->k, ids, weights);
    for (int i = 0; i < j->k; i++)
        after += weights[i];
    b->displaced[t] = before > after ? before - after : 0;
}

static void route_part(void *ctx, size_t first, size_t end, int worker)
{
    struct route_job *j = ctx;
    const struct cpu_ops *ops = &j->c->ops;
    float *p = cpu_worker_area(j->c, worker);
    for (size_t t = first; t < end; t++) {
        const float *z = j->logits + t * (size_t)j->n;
        int32_t *ids = j->ids + t * (size_t)j->k;
        float *weights = j->weights + t * (size_t)j->k;
        memcpy(p, z, (size_t)j->n * sizeof(float));
        float total = ops->softmax(p, j->n, 1);
        if (!isfinite(total))
            cpu_first_bad(&j->bad, (int)t);
        ops->divide(p, total, 1, j->n);
        k_best(p, NULL, j->n, 0, j->k, ids, weights);
        if (j->bonus)
            apply_bonus(j, z, p, t, ids, weights);
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
               const struct route_bonus *bonus, int32_t *ids, float *weights, struct err *e)
{
    struct cpu_backend *c = cpu_of(b);
    backend_lap(b, LAP_ROUTER);
    if (k < 1 || k > n || (size_t)n > c->scratch.worker_floats || (bonus && k > ROUTE_BONUS_MOST)) {
        cpu_problem(c, "the router takes %d of %d experts, which is out of range", k, n);
    } else {
        struct route_job j = {c, logits, n, k, renormalise, bonus, ids, weights, INT_MAX};
        cpu_split(c, (size_t)rows, (double)rows * n * 6, route_part, &j);
        if (j.bad != INT_MAX)
            cpu_problem(c, "the router's logits of row %d are not finite", j.bad);
    }
    return b->finish(b, e);
}
