/* SPDX-License-Identifier: Apache-2.0 */
#include "session/gate.h"

#include <string.h>

/* Before anything is known. The first guess is judged at every step, also at those that do not use
 * it, so that its chance is soon learned for nothing. */
#define FIRST_CHANCE 0.5
#define LATER_CHANCE 0.75
#define SECOND_ROW 1.3 /* time of two rows by that of one, until it was measured */

/* A window has to promise so much more than a plain step: what it is judged by was measured, and
 * the best of several measured things is worse than it looks. */
#define WORTH_IT 1.03

#define LEARN_TIME 0.2
#define LEARN_TRIED 0.5 /* time of a length that was not used for long */
#define LEARN_CHANCE 0.1
#define OUTLIER 4 /* a measured time counts as at most this many times what was usual */

/* One row is timed again after so many windows of more, or a first time that was too long (the
 * machine was busy, experts had to be read) would be held against it for ever. */
#define PLAIN_AGAIN 64

/* One deeper is tried after so many choices, then after twice as many, .. */
#define PATIENCE_LEAST 8
#define PATIENCE_MOST 128

void gate_init(struct draft_gate *g)
{
    memset(g, 0, sizeof *g);
    for (int kind = 0; kind < GUESS_KINDS; kind++)
        for (int k = 1; k < GATE_ROWS_MOST; k++)
            g->chance[kind][k] = k == 1 ? FIRST_CHANCE : LATER_CHANCE;
    for (int rows = 1; rows <= GATE_ROWS_MOST; rows++)
        g->fresh[rows] = 1;
    g->best = 1;
    g->patience = PATIENCE_LEAST;
}

/* Time of a window that is one row longer than what was measured. */
static double estimate(const struct draft_gate *g, int rows)
{
    if (rows == 2)
        return g->us[1] * SECOND_ROW;
    return g->us[rows - 1] + (g->us[rows - 1] - g->us[1]) / (rows - 2);
}

/* The rows with the most expected ids a time; unknown lengths are entered one by one. */
static int best_rows(const struct draft_gate *g, enum guess_kind kind, int most, double guess_us)
{
    int best = 1;
    double all_right = 1, expected = 1, best_rate = WORTH_IT / g->us[1];
    for (int rows = 2; rows <= most; rows++) {
        double us = g->us[rows] > 0 ? g->us[rows] : estimate(g, rows);
        all_right *= g->chance[kind][rows - 1];
        expected += all_right;
        double rate = expected / (us + (rows - 1) * guess_us);
        if (rate > best_rate) {
            best_rate = rate;
            best = rows;
        }
        if (!(g->us[rows] > 0))
            break;
    }
    return best;
}

int gate_rows(struct draft_gate *g, enum guess_kind kind, int guesses, double guess_us)
{
    int most = guesses + 1 < GATE_ROWS_MOST ? guesses + 1 : GATE_ROWS_MOST;
    if (most == 1 || !(g->us[1] > 0))
        return 1;
    int best = best_rows(g, kind, most, guess_us);
    g->since_plain = best > 1 ? g->since_plain + 1 : 0;
    if (g->since_plain == PLAIN_AGAIN) {
        g->since_plain = 0;
        g->fresh[1] = LEARN_TRIED;
        return 1;
    }
    if (best == most)
        return best;
    if (best > g->best)
        g->patience = PATIENCE_LEAST;
    g->best = best;
    if (++g->waited < g->patience)
        return best;
    g->waited = 0;
    if (g->patience < PATIENCE_MOST)
        g->patience *= 2;
    if (g->us[best + 1] > 0)
        g->fresh[best + 1] = LEARN_TRIED;
    return best + 1;
}

void gate_learn(struct draft_gate *g, enum guess_kind kind, int rows, int judged, int right,
                double us)
{
    double *usual = &g->us[rows];
    if (*usual > 0 && us > OUTLIER * *usual)
        us = OUTLIER * *usual;
    *usual += g->fresh[rows] * (us - *usual);
    g->fresh[rows] = LEARN_TIME;
    for (int k = 1; k <= judged && k < GATE_ROWS_MOST && k <= right + 1; k++) {
        double outcome = k <= right ? 1 : 0;
        g->chance[kind][k] += LEARN_CHANCE * (outcome - g->chance[kind][k]);
    }
}
