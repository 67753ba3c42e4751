/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/knee.h"

#include <math.h>

#include "base/mem.h"
#include "stream/sort.h"

#define ASSUMED_POWER 1.4

void knee_assume(struct knee_curve *out)
{
    out->is_counted = false;
    for (int i = 0; i <= KNEE_STEPS; i++)
        out->missed[i] = pow(1 - (double)i / KNEE_STEPS, ASSUMED_POWER);
}

bool knee_count(struct knee_curve *out, const uint32_t *counts, size_t records)
{
    uint64_t *sorted = mem_alloc_array(records, sizeof *sorted, "counts", NULL);
    double all = 0, held = 0;
    if (!sorted)
        return false;
    for (size_t r = 0; r < records; r++) { /* in halves; the largest shall come first */
        uint64_t halves = counts[r] ? 2 * (uint64_t)counts[r] : 1;
        sorted[r] = UINT64_MAX - halves;
        all += (double)halves;
    }
    sort_u64(sorted, records);
    size_t r = 0;
    for (int i = 0; i <= KNEE_STEPS; i++) {
        for (; r < records * (size_t)i / KNEE_STEPS; r++)
            held += (double)(UINT64_MAX - sorted[r]);
        out->missed[i] = i < KNEE_STEPS ? 1 - held / all : 0;
    }
    out->is_counted = true;
    mem_free(sorted);
    return true;
}

double knee_missed(const struct knee_curve *c, double share)
{
    double at = share * KNEE_STEPS;
    if (!(at > 0))
        return c->missed[0];
    if (at >= KNEE_STEPS)
        return c->missed[KNEE_STEPS];
    int below = (int)at;
    double part = at - below;
    return c->missed[below] * (1 - part) + c->missed[below + 1] * part;
}

double knee_share(const struct knee_curve *c, double work, double reading, double least)
{
    double knee = least;
    for (int i = 1; i <= KNEE_STEPS; i++) {
        double share = (double)i / KNEE_STEPS;
        double before = work + reading * c->missed[i - 1], after = work + reading * c->missed[i];
        if (share > knee && before >= after * (1 + KNEE_GAIN))
            knee = share;
    }
    return knee;
}
