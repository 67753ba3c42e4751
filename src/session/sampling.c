/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the next id of a session. */
#include <sys/random.h>

#include "base/clock.h"
#include "session/session.h"

static struct sampling from_public(const struct strata_sampling *p)
{
    return (struct sampling){
        .temp = p->temp,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .seed = p->seed,
    };
}

static struct strata_sampling to_public(const struct sampling *p)
{
    return (struct strata_sampling){
        .temp = p->temp,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .seed = p->seed,
    };
}

static uint32_t fresh_seed(void)
{
    uint32_t seed;
    if (getentropy(&seed, sizeof seed))
        seed = (uint32_t)clock_us();
    return seed;
}

bool strata_sampling_defaults(struct strata_model *m, struct strata_sampling *out,
                              struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct sampling p;
    if (sampling_defaults(m->file, &p, &e)) {
        *out = to_public(&p);
        out->seed = fresh_seed();
    }
    return session_report(error, &e);
}

bool strata_answer_begin(struct strata_session *s, const struct strata_sampling *p,
                         struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct sampling own = from_public(p);
    if (sampling_check(&own, &e)) {
        s->sampling = own;
        s->has_sampling = true;
        s->answer_start = s->n_ids;
    }
    return session_report(error, &e);
}

bool strata_sampling_get(const struct strata_session *s, struct strata_sampling *out)
{
    if (s->has_sampling)
        *out = to_public(&s->sampling);
    return s->has_sampling;
}

bool session_can_choose(const struct strata_session *s, struct err *e)
{
    if (!s->has_sampling)
        return err_set(e, ERR_USAGE, "%s: sampling before an answer was begun", s->model->path);
    return strata_logits(s) ||
           err_set(e, ERR_USAGE, "%s: sampling from an empty session: feed at least one token",
                   s->model->path);
}

bool session_choose(struct strata_session *s, const float *logits, int n, int32_t *id,
                    struct err *e)
{
    return sampler_choose(s->sampler, &s->sampling, logits, s->ids, (size_t)n,
                          (size_t)s->answer_start, id, e);
}

bool strata_sample(struct strata_session *s, int32_t *id, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (session_can_choose(s, &e))
        session_choose(s, s->logits, s->n_ids, id, &e);
    return session_report(error, &e);
}
