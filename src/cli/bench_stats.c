/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of an arm's runs, for `strata bench --arms`. */
#include "cli/bench.h"

/* What the only repetition of a run says. */
static const struct json *stats_of(struct json_doc *run)
{
    const struct json *reps = json_get(json_root(run), "reps");
    return reps && reps->kind == JSON_ARRAY && reps->count == 1 ? &reps->items[0] : NULL;
}

double bench_stats_median(struct json_doc *const *runs, size_t n, const char *key, double *room)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_get(stats_of(runs[i]), key);
        found += v && json_f64(v, &room[found]);
    }
    return bench_quantile(room, found, 0.5);
}

void bench_stats_put(struct json_doc *const *runs, size_t n, double *room, struct json_out *out)
{
    const struct json *first = stats_of(runs[0]);
    json_puts(out, ", \"stats\": {");
    bool is_first = true;
    for (size_t k = 0; first && k < first->count; k++) {
        if (first->items[k].kind == JSON_ARRAY)
            continue; /* times of tokens are those of one run */
        json_puts(out, is_first ? "" : ", ");
        is_first = false;
        json_put_string(out, first->keys[k].text, first->keys[k].bytes);
        json_puts(out, ": ");
        json_put_f64(out, bench_stats_median(runs, n, first->keys[k].text, room));
    }
    json_puts(out, "}");
}

bool bench_stats_put_run(struct json_doc *run, struct json_out *out)
{
    const struct json *rep = stats_of(run);
    for (size_t i = 0; rep && i < rep->count; i++) {
        json_puts(out, ", ");
        json_put_string(out, rep->keys[i].text, rep->keys[i].bytes);
        json_puts(out, ": ");
        json_put_value(out, &rep->items[i]);
    }
    return rep != NULL;
}

void bench_stats_put_title(struct json_out *out)
{
    json_putf(out, "\n%-20s %8s %29s %10s %12s %11s\n", "reading", "hits",
              "ahead useful, late, wasted", "wait ms", "prompt ahead", "drive busy");
}

void bench_stats_put_row(struct json_doc *const *runs, size_t n, const char *name, double *room,
                         struct json_out *out)
{
    static const char *const keys[] = {
        "decode_hits",        "decode_misses",        "decode_ahead_useful", "decode_ahead_late",
        "decode_ahead_wasted", "decode_wait_s",       "decode_tokens",       "prefill_ahead_share",
        "prefill_drive_busy_share"};
    double v[sizeof keys / sizeof *keys];
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        v[k] = bench_stats_median(runs, n, keys[k], room);
    double all = v[0] + v[1];
    json_putf(out, "%-20s %6.1f %% %9.0f %9.0f %9.0f %10.2f %10.1f %% %9.1f %%\n", name,
              all > 0 ? 100 * v[0] / all : 0, v[2], v[3], v[4], v[6] > 0 ? 1e3 * v[5] / v[6] : 0,
              100 * v[7], 100 * v[8]);
}
