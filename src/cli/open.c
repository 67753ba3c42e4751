/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/probe_cache.h"

static void take_note(void *ctx, enum strata_note_level level, const char *text)
{
    if (level == STRATA_NOTE)
        message_note("%s", text);
    else
        message_detail("%s", text);
}

static void show_loading(void *ctx, uint64_t done, uint64_t all)
{
    message_progress("loading: %.0f %%", all ? 100 * (double)done / (double)all : 100.0);
}

static int whole(const struct options *o, enum option which)
{
    return (int)o->value[which].whole;
}

/* What `strata probe` kept of the drive that holds the model, unless another engine is to read. */
static void use_probe(const struct options *o, struct strata_options *wanted)
{
    struct probe p;
    if (option_given(o, OPTION_IO) || !probe_recall(option_text(o, OPTION_MODEL), &p))
        return;
    wanted->drive_gb_s = probe_gb_s(&p);
    probe_latency_us(&p, &wanted->drive_parts);
}

struct strata_model *open_model(const struct options *o, int snapshots, struct strata_error *e)
{
    const char *isa = option_text(o, OPTION_ISA), *popularity = option_text(o, OPTION_POPULARITY);
    struct strata_options wanted = {
        .memory_bytes = o->value[OPTION_MEMORY].whole,
        .arena = option_text(o, OPTION_ARENA),
        .threads = whole(o, OPTION_THREADS),
        .ctx = whole(o, OPTION_CTX),
        .kv = (enum strata_kv)o->value[OPTION_KV].whole,
        .exact_activations = option_given(o, OPTION_EXACT_ACTIVATIONS),
        .isa = isa ? isa : getenv("STRATA_ISA"),
        .band = whole(o, OPTION_BAND),
        .tile = whole(o, OPTION_TILE),
        .window = whole(o, OPTION_WINDOW),
        .draft = (enum strata_draft)o->value[OPTION_DRAFT].whole,
        .draft_model = option_text(o, OPTION_DRAFT_MODEL),
        .draft_rows = (int)o->value[OPTION_DRAFT_ROWS].whole,
        .snapshots = snapshots,
        .io = option_text(o, OPTION_IO),
        .io_depth = whole(o, OPTION_IO_DEPTH),
        .io_urgent = whole(o, OPTION_IO_URGENT),
        .io_split = whole(o, OPTION_IO_SPLIT),
        .replicas = o->replicas,
        .n_replicas = o->n_replicas,
        .read_ahead = option_text(o, OPTION_READ_AHEAD),
        .ahead_margin = (float)o->value[OPTION_AHEAD_MARGIN].real,
        .no_overlap = o->value[OPTION_OVERLAP].whole == 1,
        .policy = option_text(o, OPTION_POLICY),
        .moce = option_text(o, OPTION_MOCE),
        .moce_keep = whole(o, OPTION_MOCE_KEEP),
        .prompt_moce = option_given(o, OPTION_PROMPT_MOCE),
        .shrink = (enum strata_choice)o->value[OPTION_SHRINK].whole,
        .sidecar = option_text(o, OPTION_SIDECAR),
        .popularity = popularity ? popularity : "auto",
        .explain = option_given(o, OPTION_EXPLAIN),
        .profile = option_given(o, OPTION_PROFILE),
        .chat_family = option_text(o, OPTION_CHAT_TEMPLATE),
        .note = take_note,
        .progress = show_loading,
        .cancel = &interrupted,
    };
    use_probe(o, &wanted);
    return strata_model_open(option_text(o, OPTION_MODEL), &wanted, e);
}

/* For the progress of a prompt. */
static struct {
    struct strata_model *model;
    size_t band, all;     /* tokens that go through the layers together; of the prompt */
    double first, tokens; /* where speeds are counted from, and what was reported last */
    int64_t first_us;
    uint64_t first_bytes;
} reading;

bool begin_model(struct strata_model *m, struct strata_error *e)
{
    struct strata_plan plan;
    if (!strata_plan_get(m, &plan, e))
        return false;
    message_detail("the plan: %llu bytes in all, %llu of %llu experts in memory, a context of %d, "
                   "bands of %d, tiles of %d, %d thread%s",
                   (unsigned long long)plan.plan_total, (unsigned long long)plan.slots,
                   (unsigned long long)plan.experts, plan.ctx, plan.band, plan.tile, plan.threads,
                   plan.threads == 1 ? "" : "s");
    reading.model = m;
    reading.band = (size_t)plan.band;
    return strata_model_load(m, e);
}

bool load_model(struct strata_model *m, struct strata_error *e)
{
    bool ok = begin_model(m, e) && strata_model_wait(m, e);
    message_progress_end();
    return ok;
}

/* ---- Prompts -------------------------------------------------------------------------------- */

static uint64_t bytes_read(void)
{
    struct strata_stats s;
    strata_stats_get(reading.model, &s);
    return s.bytes_read;
}

/* A token of the band under way counts as far as it has come through the layers. */
static void show_reading(void *ctx, size_t done, size_t all, int layer, int layers)
{
    size_t under_way = all - done < reading.band ? all - done : reading.band;
    double tokens = (double)done + (layers ? (double)under_way * layer / layers : 0);
    bool is_new = all != reading.all || tokens < reading.tokens;
    reading.all = all;
    reading.tokens = tokens;
    if (is_new) {
        reading.first = tokens;
        reading.first_us = clock_us();
        reading.first_bytes = bytes_read();
    }
    if (all < 64 || is_new || !message_progress_is_due())
        return;
    double us = (double)(clock_us() - reading.first_us) + 1;
    message_progress("reading the prompt: %.0f of %zu tokens, %.1f a second, %.2f GB/s", tokens, all,
                     (tokens - reading.first) * 1e6 / us,
                     (double)(bytes_read() - reading.first_bytes) * 1e-3 / us);
}

const struct strata_pass prompt_pass = {.progress = show_reading, .cancel = &interrupted};

struct strata_render_options render_options(const struct options *o)
{
    static const enum strata_choice choices[] = {STRATA_ON, STRATA_OFF};
    struct strata_render_options r = {
        .effort = option_text(o, OPTION_EFFORT),
        .no_generation_prompt = option_given(o, OPTION_NO_GENERATION_PROMPT),
    };
    if (option_given(o, OPTION_THINK))
        r.think = choices[o->value[OPTION_THINK].whole];
    if (option_given(o, OPTION_PRESERVE_THINKING))
        r.preserve_thinking = choices[o->value[OPTION_PRESERVE_THINKING].whole];
    return r;
}

/* ---- Sampling ------------------------------------------------------------------------------- */

static void set_real(const struct options *o, enum option which, float *out)
{
    if (option_given(o, which))
        *out = (float)o->value[which].real;
}

bool sampling_options(const struct options *o, struct strata_model *m,
                      const struct strata_session *s, struct strata_sampling *out,
                      struct strata_error *e)
{
    if (!strata_sampling_get(s, out) && !strata_sampling_defaults(m, out, e))
        return false;
    set_real(o, OPTION_TEMP, &out->temp);
    set_real(o, OPTION_TOP_P, &out->top_p);
    set_real(o, OPTION_MIN_P, &out->min_p);
    set_real(o, OPTION_REPETITION_PENALTY, &out->repetition_penalty);
    set_real(o, OPTION_PRESENCE_PENALTY, &out->presence_penalty);
    set_real(o, OPTION_FREQUENCY_PENALTY, &out->frequency_penalty);
    if (option_given(o, OPTION_TOP_K))
        out->top_k = whole(o, OPTION_TOP_K);
    if (option_given(o, OPTION_SEED))
        out->seed = o->value[OPTION_SEED].whole;
    return true;
}
