/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/report.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/kept.h"
#include "cli/output.h"
#include "cli/probe_cache.h"
#include "session/session.h"

static void put_bytes(uint64_t bytes, struct json_out *out)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    json_putf(out, "%.*f %s", unit && value < 100 ? 1 : 0, value, units[unit]);
}

static void put_speed(const char *what, uint64_t tokens, double tok_s, struct json_out *out)
{
    json_putf(out, "%s %llu token%s", what, (unsigned long long)tokens, tokens == 1 ? "" : "s");
    if (tok_s > 0)
        json_putf(out, " at %.*f a second", tok_s < 100 ? 1 : 0, tok_s);
}

static void put_experts(const struct strata_stats *s, struct json_out *out)
{
    uint64_t all = s->hits + s->misses;
    if (!all)
        return;
    uint64_t tokens = s->prefill_tokens + s->decode_tokens;
    json_putf(out, "; experts: %llu were in memory (%.1f %%), %llu had to be read",
              (unsigned long long)s->hits, 100 * (double)s->hits / (double)all,
              (unsigned long long)s->misses);
    if (tokens)
        json_putf(out, " (%.1f a token)", (double)s->misses / (double)tokens);
    if (s->ahead_useful + s->ahead_late + s->ahead_wasted)
        json_putf(out, ", ahead of time %llu useful, %llu late, %llu wasted",
                  (unsigned long long)s->ahead_useful, (unsigned long long)s->ahead_late,
                  (unsigned long long)s->ahead_wasted);
    if (s->moce_displaced > 0)
        json_putf(out, ", displaced probability %.4f", s->moce_displaced);
}

static void put_range(const struct plan_range *r, struct json_out *out)
{
    json_putf(out, "%.1f", r->least);
    if (r->most > r->least)
        json_putf(out, " to %.1f", r->most);
}

/* What a forecast takes from elsewhere than this model, machine and drive. */
static void put_assumed(const struct session_outlook *o, struct json_out *out)
{
    const char *const assumed[] = {o->reads && o->by_trunk ? "the drive as the trunk was read"
                                                           : NULL,
                                   o->reads && !o->by_profile ? "routing as in other models" : NULL,
                                   o->by_itself ? "computing as in this run" : NULL};
    const char *before = " (";
    for (size_t i = 0; i < sizeof assumed / sizeof *assumed; i++) {
        if (!assumed[i])
            continue;
        json_putf(out, "%s%s", before, assumed[i]);
        before = ", ";
    }
    if (*before == ',')
        json_puts(out, ")");
}

static void put_outlook(const struct session_outlook *o, struct json_out *out)
{
    json_puts(out, "; forecast was ");
    if (o->reads || !o->by_itself) {
        put_range(&o->tok_s, out);
        json_puts(out, " a second, ");
    }
    if (o->reads) {
        json_puts(out, "waiting ");
        put_range(&o->wait_ms, out);
        json_puts(out, " ms a token");
    } else {
        json_puts(out, "no waiting");
    }
    put_assumed(o, out);
}

void report_line(const struct strata_stats *s, uint64_t answered, const uint64_t *seed,
                 const struct session_outlook *outlook, struct json_out *out)
{
    put_speed("prompt", s->prefill_tokens, s->prefill_tok_s, out);
    put_speed(", answer", answered, s->decode_tok_s, out);
    if (s->drafted)
        json_putf(out, ", %llu of %llu guesses right", (unsigned long long)s->accepted,
                  (unsigned long long)s->drafted);
    put_experts(s, out);
    json_puts(out, "; read ");
    put_bytes(s->bytes_read, out);
    json_putf(out, ", waited %.1f ms a token; memory ", s->wait_ms_per_token);
    put_bytes(s->peak_rss, out);
    json_puts(out, " of the ");
    put_bytes(s->plan_total, out);
    json_puts(out, " planned");
    if (outlook)
        put_outlook(outlook, out);
    if (seed)
        json_putf(out, "; seed %llu", (unsigned long long)*seed);
}

void report_keys(const struct strata_stats *s, struct json_out *out)
{
    char *json = strata_stats_json(s);
    size_t n = json ? strlen(json) : 0;
    if (n >= 2)
        json_put(out, json + 1, n - 2);
    else
        out->failed = true;
    strata_free(json);
}

bool report_file(const char *path, const struct strata_stats *s, struct strata_error *e)
{
    struct json_out out = {0};
    json_puts(&out, "{");
    report_keys(s, &out);
    json_puts(&out, "}\n");
    bool ok = out.failed ? fail(e, STRATA_MEMORY, "no memory for the figures")
                         : output_file(path, out.text, out.bytes, e);
    json_out_free(&out);
    return ok;
}

bool report_outlook(struct strata_model *m, const char *path, struct session_outlook *out)
{
    struct probe p;
    struct io_drive drive;
    struct err ignored;
    err_clear(&ignored);
    bool is_probed = probe_recall(path, &p);
    if (is_probed)
        drive = probe_drive(&p);
    bool ok =
        session_forecast_run(m, is_probed ? &drive : NULL, kept_read_compute(m), out, &ignored);
    kept_write_compute(m, session_compute_ms(m));
    return ok && out->is_known;
}

static void put_pair(const char *key, const struct plan_range *r, struct json_out *out)
{
    json_putf(out, "\"%s\": [", key);
    json_put_f64(out, r->least);
    json_puts(out, ", ");
    json_put_f64(out, r->most);
    json_puts(out, "], ");
}

void report_outlook_keys(const struct session_outlook *o, struct json_out *out)
{
    json_puts(out, ", \"forecast\": {");
    put_pair("tok_s", &o->tok_s, out);
    put_pair("wait_ms", &o->wait_ms, out);
    json_putf(out, "\"drive\": \"%s\", \"routing\": \"%s\", \"computing\": \"%s\"}",
              !o->reads     ? "unused"
              : o->by_trunk ? "trunk"
                            : "probe",
              !o->reads       ? "unused"
              : o->by_profile ? "profile"
                              : "assumed",
              o->by_itself ? "run" : "kept");
}

bool report_waits(struct strata_model *m, struct strata_error *e)
{
    char *text = strata_explain_text(m, e);
    if (text)
        message_note("%.*s", (int)strlen(text) - 1, text); /* without its last line end */
    strata_free(text);
    return text != NULL;
}
