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

struct stream_stats stats_of_reads(const struct strata_model *m)
{
    struct stream_stats s = {0};
    if (m->stream)
        stream_get_stats(m->stream, &s);
    if (m->rows)
        stream_rows_add_stats(m->rows, &s);
    return s;
}

/* The counters of `a` plus `sign` times those of `b`; the displaced mass stays that of `a`. */
static struct stream_stats combined(const struct stream_stats *a, int sign,
                                    const struct stream_stats *b)
{
    struct stream_stats out = *a;
    const struct {
        uint64_t *to, by;
    } pairs[] = {{&out.hits, b->hits},
                 {&out.misses, b->misses},
                 {&out.window_hits, b->window_hits},
                 {&out.window_misses, b->window_misses},
                 {&out.ahead_useful, b->ahead_useful},
                 {&out.ahead_late, b->ahead_late},
                 {&out.ahead_wasted, b->ahead_wasted},
                 {&out.ahead_cancelled, b->ahead_cancelled},
                 {&out.bytes_read, b->bytes_read},
                 {&out.bytes_urgent, b->bytes_urgent},
                 {&out.bytes_ahead, b->bytes_ahead},
                 {&out.bytes_rows, b->bytes_rows},
                 {&out.wait_us, b->wait_us},
                 {&out.turns, b->turns},
                 {&out.drive_busy_us, b->drive_busy_us},
                 {&out.drive_wanted_us, b->drive_wanted_us},
                 {&out.staging_empty, b->staging_empty},
                 {&out.row_cache_hits, b->row_cache_hits},
                 {&out.major_faults, b->major_faults}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        *pairs[i].to += sign > 0 ? pairs[i].by : 0 - pairs[i].by;
    return out;
}

void stats_note_prompt(struct strata_model *m, const struct stream_stats *before)
{
    struct stream_stats now = stats_of_reads(m), part = combined(&now, -1, before);
    m->counters.prefill = combined(&m->counters.prefill, 1, &part);
}

static double busy_share(const struct stream_stats *s)
{
    double share = s->drive_wanted_us ? (double)s->drive_busy_us / (double)s->drive_wanted_us : 1;
    return share < 1 ? share : 1; /* the two clocks are read one after the other */
}

static struct strata_reading reading_of(const struct stream_stats *s)
{
    struct strata_reading r = {
        .hits = s->hits,
        .misses = s->misses,
        .ahead_useful = s->ahead_useful,
        .ahead_late = s->ahead_late,
        .ahead_wasted = s->ahead_wasted,
        .ahead_cancelled = s->ahead_cancelled,
        .read_bytes = s->bytes_read,
        .wait_s = (double)s->wait_us * 1e-6,
        .drive_busy_s = (double)s->drive_busy_us * 1e-6,
        .drive_busy_share = busy_share(s),
    };
    if (s->misses)
        r.ahead_share = (double)(s->ahead_useful + s->ahead_late) / (double)s->misses;
    return r;
}

void strata_stats_get(const struct strata_model *m, struct strata_stats *out)
{
    const struct session_counters *c = &m->counters;
    struct stream_stats now = stats_of_reads(m), s = combined(&now, -1, &m->stream_before);
    struct stream_stats decode = combined(&s, -1, &c->prefill);
    *out = (struct strata_stats){
        .prefill_tokens = c->prefill_tokens,
        .decode_tokens = c->decode_tokens,
        .prefill_s = (double)c->prefill_us * 1e-6,
        .decode_s = (double)c->decode_us * 1e-6,
        .load_s = (double)(m->load_us + session_trunk_us(m)) * 1e-6,
        .drafted = c->drafted,
        .accepted = c->accepted,
        .hits = s.hits,
        .misses = s.misses,
        .ahead_useful = s.ahead_useful,
        .ahead_late = s.ahead_late,
        .ahead_wasted = s.ahead_wasted,
        .ahead_cancelled = s.ahead_cancelled,
        .bytes_read = s.bytes_read,
        .bytes_urgent = s.bytes_urgent,
        .bytes_ahead = s.bytes_ahead,
        .bytes_rows = s.bytes_rows,
        .drive_busy_s = (double)s.drive_busy_us * 1e-6,
        .drive_busy_share = busy_share(&s),
        .staging_empty = s.staging_empty,
        .row_cache_hits = s.row_cache_hits,
        .major_faults = s.major_faults,
        .moce_displaced = s.displaced,
        .prefill = reading_of(&c->prefill),
        .decode = reading_of(&decode),
        .peak_rss = peak_rss(),
        .plan_total = m->plan.plan_total,
    };
    out->prefill_tok_s = per_second(out->prefill_tokens, out->prefill_s);
    out->decode_tok_s = per_second(out->decode_tokens, out->decode_s);
    out->drive_busy_gb_s = per_second(s.bytes_urgent + s.bytes_ahead, out->drive_busy_s) * 1e-9;
    out->wait_s = (double)s.wait_us * 1e-6;
    uint64_t tokens = out->prefill_tokens + out->decode_tokens;
    if (tokens)
        out->wait_ms_per_token = out->wait_s * 1e3 / (double)tokens;
}

void strata_stats_reset(struct strata_model *m)
{
    m->counters = (struct session_counters){0};
    m->stream_before = stats_of_reads(m);
    if (m->laps)
        laps_reset(m->laps);
}

struct number {
    const char *key;
    bool is_real;
    uint64_t whole;
    double real;
};

static void put_numbers(const char *before, const struct number *numbers, size_t n,
                        struct json_out *o)
{
    for (size_t i = 0; i < n; i++) {
        json_putf(o, "%s\"%s%s\": ", o->bytes > 1 ? ", " : "", before, numbers[i].key);
        if (numbers[i].is_real)
            json_put_f64(o, numbers[i].real);
        else
            json_putf(o, "%llu", (unsigned long long)numbers[i].whole);
    }
}

static void put_reading(const char *before, const struct strata_reading *r, struct json_out *o)
{
    const struct number numbers[] = {
        {"hits", false, r->hits, 0},
        {"misses", false, r->misses, 0},
        {"ahead_useful", false, r->ahead_useful, 0},
        {"ahead_late", false, r->ahead_late, 0},
        {"ahead_wasted", false, r->ahead_wasted, 0},
        {"ahead_cancelled", false, r->ahead_cancelled, 0},
        {"read_bytes", false, r->read_bytes, 0},
        {"ahead_share", true, 0, r->ahead_share},
        {"wait_s", true, 0, r->wait_s},
        {"drive_busy_s", true, 0, r->drive_busy_s},
        {"drive_busy_share", true, 0, r->drive_busy_share},
    };
    put_numbers(before, numbers, sizeof numbers / sizeof *numbers, o);
}

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
        {"drive_busy_s", true, 0, s->drive_busy_s},
        {"drive_busy_gb_s", true, 0, s->drive_busy_gb_s},
        {"drive_busy_share", true, 0, s->drive_busy_share},
        {"staging_empty", false, s->staging_empty, 0},
        {"row_cache_hits", false, s->row_cache_hits, 0},
        {"major_faults", false, s->major_faults, 0},
        {"wait_s", true, 0, s->wait_s},
        {"wait_ms_per_token", true, 0, s->wait_ms_per_token},
        {"moce_displaced", true, 0, s->moce_displaced},
        {"peak_rss", false, s->peak_rss, 0},
        {"plan_total", false, s->plan_total, 0},
    };
    struct json_out o = {0};
    json_puts(&o, "{");
    put_numbers("", numbers, sizeof numbers / sizeof *numbers, &o);
    put_reading("prefill_", &s->prefill, &o);
    put_reading("decode_", &s->decode, &o);
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
        .kernels = "c avx2 avx512-plain avx512 amx",
#elif defined(__aarch64__)
        .kernels = "c neon-plain neon",
#else
        .kernels = "c",
#endif
        .chosen = cpu_isa_name(cpu_isa_best()), .numerics = STRATA_NUMERICS,
    };
}
