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

void report_line(const struct strata_stats *s, uint64_t answered, const uint64_t *seed,
                 struct json_out *out)
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

void report_outlook(struct strata_model *m, const char *path)
{
    struct probe p;
    struct session_outlook out;
    struct err ignored;
    err_clear(&ignored);
    kept_write_compute(m, session_compute_ms(m));
    if (!probe_recall(path, &p))
        return;
    struct io_drive drive = probe_drive(&p);
    if (!session_forecast_run(m, &drive, &out, &ignored) || !out.is_known)
        return;
    message_note(
        "forecast for the answer: %.1f to %.1f tokens a second, waiting %.1f to %.1f ms for "
        "the drive; it was %.1f, waiting %.1f ms",
        out.tok_s.least, out.tok_s.most, out.wait_ms.least, out.wait_ms.most, out.real_tok_s,
        out.real_wait_ms);
}

bool report_waits(struct strata_model *m, struct strata_error *e)
{
    char *text = strata_explain_text(m, e);
    if (text)
        message_note("%.*s", (int)strlen(text) - 1, text); /* without its last line end */
    strata_free(text);
    return text != NULL;
}
