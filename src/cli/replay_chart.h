/* SPDX-License-Identifier: Apache-2.0 */
/* Hit rate over the size of the arena, a line for each policy, as SVG. */
#ifndef STRATA_CLI_REPLAY_CHART_H
#define STRATA_CLI_REPLAY_CHART_H

#include "base/json.h"
#include "stream/replay.h"

struct replay_row {
    const char *policy, *read_ahead, *moce; /* policy: a policy's name, or "bound" */
    struct replay_result result;
    double share, hit_rate;
};

/* Of the rows without reading ahead (which changes no hit) and with the first strength of MoCE. */
void replay_chart(const struct replay_row *rows, int n, struct json_out *out);

#endif
