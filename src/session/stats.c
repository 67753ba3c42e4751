/* SPDX-License-Identifier: Apache-2.0 */
/* What a model has done since it was loaded, and which program this is. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/json.h"
#include "cpu/isa.h"
#include "session/commit.h"
#include "session/session.h"
#include "session/version.h"

static uint64_t peak_rss(void)
{
#ifdef __linux__
    /* Not ru_maxrss, which a program inherits from whoever started it. */
    unsigned long long kilobytes = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1)
            break;
    if (f)
        fclose(f);
    if (kilobytes)
        return kilobytes * 1024;
#endif
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
#ifdef __APPLE__
    return (uint64_t)r.ru_maxrss;
#else
    return (uint64_t)r.ru_maxrss * 1024;
#endif
}

static double per_second(uint64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static struct stream_stats read_so_far(const struct strata_model *m)
{
    struct stream_stats s = {0};
    if (m->stream)
        stream_get_stats(m->stream, &s);
    if (m->rows)
        stream_rows_add_stats(m->rows, &s);
    return s;
}

void strata_stats_get(const struct strata_model *m, struct strata_stats *out)
{
    const struct session_counters *c = &m->counters;
    struct stream_stats s = read_so_far(m);
    const struct stream_stats *before = &m->stream_before;
    *out = (struct strata_stats){
        .prefill_tokens = c->prefill_tokens,
        .decode_tokens = c->decode_tokens,
        .prefill_s = (double)c->prefill_us * 1e-6,
        .decode_s = (double)c->decode_us * 1e-6,
        .load_s = (double)c->load_us * 1e-6,
        .drafted = c->drafted,
        .accepted = c->accepted,
        .hits = s.hits - before->hits,
        .misses = s.misses - before->misses,
        .bytes_read = s.bytes_read - before->bytes_read,
        .ahead_useful = s.ahead_useful - before->ahead_useful,
        .ahead_late = s.ahead_late - before->ahead_late,
        .ahead_wasted = s.ahead_wasted - before->ahead_wasted,
        .ahead_cancelled = s.ahead_cancelled - before->ahead_cancelled,
        .bytes_ahead = s.bytes_ahead - before->bytes_ahead,
        .moce_displaced = s.displaced,
        .bytes_urgent = s.bytes_urgent - before->bytes_urgent,
        .bytes_rows = s.bytes_rows - before->bytes_rows,
        .peak_rss = peak_rss(),
        .plan_total = m->plan.plan_total,
    };
    out->prefill_tok_s = per_second(out->prefill_tokens, out->prefill_s);
    out->decode_tok_s = per_second(out->decode_tokens, out->decode_s);
    out->drive_busy_gb_s = per_second(out->bytes_read, out->prefill_s + out->decode_s) * 1e-9;
    out->drive_busy_s = (double)(s.drive_busy_us - before->drive_busy_us) * 1e-6;
    out->wait_s = (double)(s.wait_us - before->wait_us) * 1e-6;
    uint64_t tokens = out->prefill_tokens + out->decode_tokens;
    if (tokens)
        out->wait_ms_per_token = out->wait_s * 1e3 / (double)tokens;
}

void strata_stats_reset(struct strata_model *m)
{
    m->counters = (struct session_counters){.load_us = m->counters.load_us};
    m->stream_before = read_so_far(m);
    if (m->laps)
        laps_reset(m->laps);
}

struct number {
    const char *key;
    bool is_real;
    uint64_t whole;
    double real;
};

char *strata_stats_json(const struct strata_stats *s)
{
    const struct number numbers[] = {
        {"prefill_tokens", false, s->prefill_tokens, 0},
        {"decode_tokens", false, s->decode_tokens, 0},
        {"prefill_s", true, 0, s->prefill_s},
        {"decode_s", true, 0, s->decode_s},
        {"load_s", true, 0, s->load_s},
        {"prefill_tok_s", true, 0, s->prefill_tok_s},
        {"decode_tok_s", true, 0, s->decode_tok_s},
        {"drafted", false, s->drafted, 0},
        {"accepted", false, s->accepted, 0},
        {"hits", false, s->hits, 0},
        {"misses", false, s->misses, 0},
        {"ahead_useful", false, s->ahead_useful, 0},
        {"ahead_late", false, s->ahead_late, 0},
        {"ahead_wasted", false, s->ahead_wasted, 0},
        {"ahead_cancelled", false, s->ahead_cancelled, 0},
        {"bytes_read", false, s->bytes_read, 0},
        {"bytes_urgent", false, s->bytes_urgent, 0},
        {"bytes_ahead", false, s->bytes_ahead, 0},
        {"bytes_rows", false, s->bytes_rows, 0},
        {"drive_busy_gb_s", true, 0, s->drive_busy_gb_s},
        {"drive_busy_s", true, 0, s->drive_busy_s},
        {"wait_s", true, 0, s->wait_s},
        {"wait_ms_per_token", true, 0, s->wait_ms_per_token},
        {"moce_displaced", true, 0, s->moce_displaced},
        {"peak_rss", false, s->peak_rss, 0},
        {"plan_total", false, s->plan_total, 0},
    };
    struct json_out o = {0};
    json_puts(&o, "{");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_putf(&o, "%s\"%s\": ", i ? ", " : "", numbers[i].key);
        if (numbers[i].is_real)
            json_put_f64(&o, numbers[i].real);
        else
            json_putf(&o, "%llu", (unsigned long long)numbers[i].whole);
    }
    json_puts(&o, "}");
    if (o.failed) {
        json_out_free(&o);
        return NULL;
    }
    return o.text;
}

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

void strata_version_get(struct strata_version *out)
{
    *out = (struct strata_version)
    {
        .version = STRATA_VERSION, .commit = STRATA_COMMIT, .compiler = COMPILER,
#if defined(__x86_64__)
        .kernels = "c avx2 avx512-plain avx512",
#else
        .kernels = "c",
#endif
        .chosen = cpu_isa_name(cpu_isa_best()), .numerics = STRATA_NUMERICS,
    };
}
