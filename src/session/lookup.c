/* SPDX-License-Identifier: Apache-2.0 */
#include "session/lookup.h"

/* How many ids before `end` equal the last ones of ids[0..n-1]. */
static int match_length(const int32_t *ids, int n, int end)
{
    int length = 0;
    while (length < LOOKUP_ENOUGH && length < end && ids[end - 1 - length] == ids[n - 1 - length])
        length++;
    return length;
}

int lookup_guess(const int32_t *ids, int n, int most, int32_t *out, int *matched)
{
    int best = 0, from = 0;
    for (int end = n - 1; end > 0 && best < LOOKUP_ENOUGH; end--) {
        if (ids[end - 1] != ids[n - 1])
            continue;
        int length = match_length(ids, n, end);
        if (length > best) {
            best = length;
            from = end;
        }
    }
    *matched = best;
    if (best < LOOKUP_LEAST)
        return 0;
    for (int i = 0; i < most; i++) /* ids[from] follows the match; the period is n - from */
        out[i] = ids[from + i % (n - from)];
    return most > 0 ? most : 0;
}
