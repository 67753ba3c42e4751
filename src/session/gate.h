/* SPDX-License-Identifier: Apache-2.0 */
/* How many rows a decode window shall have when some of its ids are guesses: as many as bring the
 * most expected ids for the time that windows of so many rows were measured to take (more rows need
 * more experts). Results do not depend on it, so clocks may decide. Pure arithmetic, no clock. */
#ifndef STRATA_SESSION_GATE_H
#define STRATA_SESSION_GATE_H

#define GATE_ROWS_MOST 8

/* Where a guess comes from: each kind has chances of its own. */
enum guess_kind { GUESS_SHORT_MATCH, GUESS_LONG_MATCH, GUESS_MODEL, GUESS_KINDS };

struct draft_gate {
    double us[GATE_ROWS_MOST + 1];    /* smoothed time of a window of so many rows; 0: not known */
    double fresh[GATE_ROWS_MOST + 1]; /* weight of the next time of so many rows */
    /* [kind][k]: that guess k, counted from 1, is right when all before it are. */
    double chance[GUESS_KINDS][GATE_ROWS_MOST];
    int since_plain; /* choices of more than one row, one after the other */
    int best;        /* the last choice that guesses did not limit */
    int waited;      /* choices since one deeper was tried */
    int patience;    /* choices until the next time */
};

void gate_init(struct draft_gate *g);

/* Rows of the next window, 1 to `guesses` + 1. guess_us: what one guess costs beside the window. */
int gate_rows(struct draft_gate *g, enum guess_kind kind, int guesses, double guess_us);

/* What a window of `rows` rows took, and that of its guesses the first `judged` were compared with
 * what followed, of which the first `right` were right. */
void gate_learn(struct draft_gate *g, enum guess_kind kind, int rows, int judged, int right,
                double us);

#endif
