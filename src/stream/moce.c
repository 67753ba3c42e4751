/* SPDX-License-Identifier: Apache-2.0 */
/* Cache-aware routing (docs/streaming.md, "MoCE"): residents get a bonus of lambda times the usual
 * spread of the layer's logits. Everything here is a function of the history of turns: which
 * records are logically resident, and what routing was like before. */
#include <string.h>

#include "stream/inner.h"

#define MEAN_ROWS 256 /* the running mean of the spread looks back about as far */
#define LAMBDA_MOST 2.0
#define LAMBDA_STEP 0.02 /* of the controller, a row that displaces nothing */

void stream_set_moce(struct stream *s, const struct stream_moce *m)
{
    s->moce = *m;
    for (int l = 0; l < s->layers; l++)
        s->routing[l].lambda = m->lambda;
}

const float *stream_bonus(struct stream *s, int layer, bool is_band, int *keep)
{
    const struct layer_routing *r = &s->routing[layer];
    if ((s->moce.lambda <= 0 && s->moce.budget <= 0) || (is_band && !s->moce.for_prompts))
        return NULL;
    float bonus = (float)(r->lambda * r->spread);
    for (int x = 0; x < s->layer[layer].experts; x++)
        s->bonus[x] = is_resident(s, layer, x) ? bonus : 0;
    *keep = s->moce.keep;
    return s->bonus;
}

/* Up by a little for every row, down by as much as the row displaced above the budget; and to
 * nothing while the mean of all rows is above it. */
static void control(struct stream *s, struct layer_routing *r, double displaced)
{
    double budget = s->moce.budget;
    r->lambda += LAMBDA_STEP * (1 - displaced / budget);
    if (r->lambda < 0 || r->displaced > budget * (double)r->rows)
        r->lambda = 0;
    if (r->lambda > LAMBDA_MOST)
        r->lambda = LAMBDA_MOST;
}

void stream_note_routing(struct stream *s, int layer, const float *displaced, const float *spread,
                         int rows)
{
    struct layer_routing *r = &s->routing[layer];
    for (int i = 0; i < rows; i++) {
        r->rows++;
        r->spread += (spread[i] - r->spread) / (double)(r->rows < MEAN_ROWS ? r->rows : MEAN_ROWS);
        r->displaced += displaced[i];
        s->displaced += displaced[i];
        s->displaced_rows++;
        if (s->moce.budget > 0)
            control(s, r, displaced[i]);
    }
}
