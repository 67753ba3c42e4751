/* SPDX-License-Identifier: Apache-2.0 */
/* `strata plan`: what memory a run takes, and how fast it is expected to be. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/kept.h"
#include "cli/output.h"
#include "cli/probe_cache.h"
#include "session/session.h"
#include "stream/replay.h"

static void show_progress(void *ctx, int done, int all)
{
    message_progress("measuring the drive: point %d of %d", done + 1, all);
}

/* --drive, --probe, else what is kept for the drive that holds the model. `*found` says whether. */
static bool find_drive(const struct options *o, struct probe *out, bool *found, struct err *e)
{
    const char *model = option_text(o, OPTION_MODEL), *path = option_text(o, OPTION_DRIVE);
    *found = true;
    if (path) {
        struct strata_error failure = {0};
        size_t bytes;
        char *json = input_read(path, &bytes, &failure);
        bool ok = json ? probe_read_json(json, bytes, path, out, e)
                       : err_set(e, ERR_IO, "%s", failure.text);
        mem_free(json);
        return ok;
    }
    if (option_given(o, OPTION_PROBE)) {
        struct probe_options wanted = {.progress = show_progress, .cancel = &interrupted};
        bool ok = probe_file(model, &wanted, out, e);
        message_progress_end();
        if (ok)
            probe_keep(out, model);
        return ok;
    }
    *found = probe_recall(model, out);
    if (!*found)
        message_note("the drive was not measured: --probe does, `strata probe` too");
    return true;
}

/* The time of a token besides waiting: as it is said, as in the trace, or as kept of the last run. */
static double compute_ms(const struct options *o, struct strata_model *m, const struct trace *t)
{
    char text[64];
    const char *traced = t ? trace_value(t, "compute_ms", text, sizeof text) : NULL;
    if (option_given(o, OPTION_COMPUTE))
        return o->value[OPTION_COMPUTE].real;
    double ms = traced ? strtod(traced, NULL) : 0;
    return kept_is_compute(ms) ? ms : traced ? 0 : kept_read_compute(m);
}

/* --forecast: with all that is known, saying what is not. */
static bool forecast(const struct options *o, struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    const char *path = option_text(o, OPTION_PLAN_TRACE);
    struct probe probe;
    struct io_drive rate;
    struct replay_drive drive = {0};
    bool found = false, is_cut;
    struct trace *t = path ? trace_open(path, &is_cut, &e) : NULL;
    if (!e.code && find_drive(o, &probe, &found, &e)) {
        drive.compute_ms = compute_ms(o, m, t);
        if (found)
            rate = probe_drive(&probe);
        drive.drive = found ? &rate : NULL;
        if (drive.compute_ms <= 0)
            message_note(
                "the time of a token besides waiting is not known: a run of 16 tokens tells, "
                "--compute says it, or a --trace of a run");
        session_forecast(m, t, &drive, &e);
    }
    trace_free(t);
    return take_error(error, &e);
}

/* Without --forecast: by what is kept, if all of it is. */
static bool expect(const struct options *o, struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct probe probe;
    bool is_probed = probe_recall(option_text(o, OPTION_MODEL), &probe);
    double ms = kept_read_compute(m);
    if (is_probed && ms > 0) {
        struct io_drive rate = probe_drive(&probe);
        session_forecast(m, NULL, &(struct replay_drive){.drive = &rate, .compute_ms = ms}, &e);
    } else if (!e.code && m->plan.experts && !option_given(o, OPTION_JSON)) {
        const char *missing = is_probed ? "a run that answered 16 tokens"
                              : ms > 0  ? "`strata probe MODEL`"
                                        : "`strata probe MODEL` and a run that answered 16 tokens";
        message_note("how many tokens a second to expect is shown after %s", missing);
    }
    return take_error(error, &e);
}

/* What only a forecast needs asks for one. */
static bool wants_forecast(const struct options *o)
{
    return option_given(o, OPTION_FORECAST) || option_given(o, OPTION_DRIVE) ||
           option_given(o, OPTION_PLAN_TRACE) || option_given(o, OPTION_PROBE) ||
           option_given(o, OPTION_COMPUTE);
}

enum status command_plan(const struct options *o)
{
    struct strata_error e = {0};
    struct strata_model *m = open_model(o, 0, &e);
    bool is_json = option_given(o, OPTION_JSON);
    bool ok = m && (wants_forecast(o) ? forecast(o, m, &e) : expect(o, m, &e));
    char *text = ok ? strata_plan_text(m, is_json, &e) : NULL;
    ok = text && output_write(text, strlen(text), &e) && (!is_json || output_write("\n", 1, &e));
    strata_free(text);
    strata_model_free(m);
    return ok ? STATUS_DONE : message_error(&e);
}
