/* SPDX-License-Identifier: Apache-2.0 */
/* `strata bench`: how fast a model runs here. Prompt and answer are timed apart, several times,
 * each from an empty state; ids are taken and invented exactly as the peers' program does, so that
 * both do the same work. With several depths one text passes them all: what was fed and answered at
 * one of them is part of what lies before the next. */
#include "cli/bench.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/profile.h"
#include "gguf/gguf.h"

#define DEPTHS_MOST 32

/* ids[0 .. forced - 1] come from the file; decoding beyond them takes the best token. */
struct bench {
    const struct options *o;
    struct strata_model *model;
    struct strata_session *session;
    struct strata_model_info info;
    int32_t *ids; /* [last depth + prompt + tokens] */
    size_t forced, prompt, tokens, reps;
    size_t depth[DEPTHS_MOST], n_depths;
    double *latency_ms; /* [tokens] */
    /* [n_depths][reps], tok/s; before: of the tokens between the depth and what came before it */
    double *before, *prefill, *decode;
    struct json_out list; /* of the repetitions */
    uint64_t bytes_per_token;
    double memory_gb_s;
    struct profile profile; /* of the last repetition */
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *values, size_t n, double q)
{
    if (!n)
        return 0;
    qsort(values, n, sizeof *values, compare);
    double at = q * (double)(n - 1);
    size_t below = (size_t)at;
    double part = at - (double)below;
    return below + 1 < n ? values[below] * (1 - part) + values[below + 1] * part : values[below];
}

static double per_second(size_t n, int64_t us)
{
    return us > 0 ? (double)n * 1e6 / (double)us : 0;
}

/* ---- What is fed ---------------------------------------------------------------------------- */

static size_t whole(const struct options *o, enum option which, size_t otherwise)
{
    return option_given(o, which) ? (size_t)o->value[which].whole : otherwise;
}

static size_t need_of(const struct bench *b)
{
    return b->depth[b->n_depths - 1] + b->prompt + b->tokens;
}

/* Each depth lies behind what is fed at the one before it. */
static bool read_depths(struct bench *b, struct strata_error *e)
{
    const char *list = option_text(b->o, OPTION_DEPTH), *at = list ? list : "0";
    for (;; at++) {
        char *end;
        errno = 0;
        unsigned long n = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || (*end && *end != ',') || errno || n > INT_MAX)
            return fail(e, STRATA_USAGE, "--depth %s: it must be a number, or several and commas",
                        list);
        if (b->n_depths == DEPTHS_MOST)
            return fail(e, STRATA_USAGE, "--depth: more than %d depths", DEPTHS_MOST);
        if (b->n_depths && n < need_of(b))
            return fail(e, STRATA_USAGE, "--depth %s: %lu is less than what lies before it, %zu", list,
                        n, need_of(b));
        b->depth[b->n_depths++] = n;
        at = end;
        if (!*at)
            return true;
    }
}

/* Ids that a file does not give are those of xorshift64, as in the peers' program. */
static void invent_ids(struct bench *b, size_t from, size_t need)
{
    uint64_t s = 88172645463325252u, vocab = (uint64_t)b->info.vocab;
    for (size_t i = from; i < need; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        b->ids[i] = (int32_t)(s % (vocab > 512 ? vocab - 256 : vocab));
    }
}

static bool read_ids(struct bench *b, struct strata_error *e)
{
    size_t need = need_of(b), n = 0;
    int32_t *given = NULL;
    const char *path = option_text(b->o, OPTION_IDS);
    if (path) {
        size_t bytes;
        char *text = input_read(path, &bytes, e);
        bool ok = text && input_ids(text, bytes, strcmp(path, "-") ? path : "stdin", b->info.vocab,
                                    &given, &n, e);
        mem_free(text);
        if (!ok)
            return false;
    }
    struct err low;
    err_clear(&low);
    b->ids = mem_alloc_array(need, sizeof *b->ids, "ids", &low);
    b->forced = n < need ? n : need;
    if (b->ids) {
        if (b->forced)
            memcpy(b->ids, given, b->forced * sizeof *given);
        invent_ids(b, b->forced, need);
    }
    mem_free(given);
    return take_error(e, &low);
}

static bool allocate(struct bench *b, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    b->latency_ms = mem_alloc_array(b->tokens + 1, sizeof *b->latency_ms, "latencies", &low);
    size_t results = b->n_depths * b->reps;
    b->before = mem_alloc_array(results, sizeof *b->before, "results", &low);
    b->prefill = mem_alloc_array(results, sizeof *b->prefill, "results", &low);
    b->decode = mem_alloc_array(results, sizeof *b->decode, "results", &low);
    return take_error(e, &low);
}

/* ---- What a token moves --------------------------------------------------------------------- */

/* Weights that a decode step of one token touches: the trunk, but of a table of embeddings one row,
 * and the experts that it uses. */
static bool count_bytes(struct bench *b, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    struct gguf_file *f = gguf_open(b->info.path, &low);
    if (!f)
        return take_error(e, &low);
    const struct gguf_tensor *table = gguf_tensor_find(f, "token_embd.weight");
    b->bytes_per_token = b->info.trunk_bytes;
    if (table && gguf_tensor_find(f, "output.weight"))
        b->bytes_per_token -= table->bytes - table->bytes / (table->ne[1] ? table->ne[1] : 1);
    if (b->info.experts)
        b->bytes_per_token +=
            b->info.expert_bytes / (uint64_t)b->info.experts * (uint64_t)b->info.experts_used;
    gguf_close(f);
    return true;
}

/* ---- One repetition ------------------------------------------------------------------------- */

static const struct strata_pass quiet = {.cancel = &interrupted};

/* Feeds ids[from .. to - 1]; their speed in tokens a second, 0 of none. */
static bool feed(struct bench *b, size_t from, size_t to, double *speed, struct strata_error *e)
{
    int64_t began = clock_us();
    if (to > from && !strata_feed(b->session, b->ids + from, to - from, &quiet, e))
        return false;
    *speed = to > from ? per_second(to - from, clock_us() - began) : 0;
    return true;
}

/* The best token is found after every step, as in a greedy answer. */
static bool decode(struct bench *b, size_t at, double *speed, struct strata_error *e)
{
    const struct strata_sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    int32_t next = b->tokens ? b->ids[at] : 0;
    bool has_logits = strata_logits(b->session) != NULL;
    if (!strata_answer_begin(b->session, &greedy, e) ||
        (has_logits && b->tokens && !strata_sample(b->session, &next, e)))
        return false;
    int64_t began = clock_us(), before = began;
    for (size_t i = 0; i < b->tokens; i++) {
        if (at + i < b->forced)
            next = b->ids[at + i];
        if (!strata_step(b->session, &next, 1, &quiet, e) || !strata_sample(b->session, &next, e))
            return false;
        int64_t now = clock_us();
        b->latency_ms[i] = (double)(now - before) / 1e3;
        before = now;
    }
    *speed = b->tokens ? per_second(b->tokens, clock_us() - began) : 0;
    return true;
}

static void put_number(struct json_out *out, const char *key, double value)
{
    json_putf(out, ", \"%s\": ", key);
    json_put_f64(out, value);
}

/* The keys of --stats but for the speeds, which the repetition has measured itself. */
static bool put_stats(const struct strata_stats *stats, struct json_out *out)
{
    char *text = strata_stats_json(stats);
    struct err ignored;
    err_clear(&ignored);
    struct json_doc *d = text ? json_parse(text, strlen(text), "statistics", &ignored) : NULL;
    const struct json *all = d ? json_root(d) : NULL;
    for (size_t i = 0; all && i < all->count; i++) {
        if (!strcmp(all->keys[i].text, "prefill_tok_s") ||
            !strcmp(all->keys[i].text, "decode_tok_s"))
            continue;
        json_puts(out, ", ");
        json_put_string(out, all->keys[i].text, all->keys[i].bytes);
        json_puts(out, ": ");
        json_put_value(out, &all->items[i]);
    }
    json_free(d);
    strata_free(text);
    return all != NULL;
}

static void note_repetition(struct bench *b, size_t depth, size_t rep)
{
    struct json_out *out = &b->list;
    struct strata_stats stats;
    size_t r = depth * b->reps + rep;
    strata_stats_get(b->model, &stats);
    json_putf(out, "%s{\"depth\": %zu", out->bytes ? ", " : "", b->depth[depth]);
    put_number(out, "depth_tok_s", b->before[r]);
    put_number(out, "prefill_tok_s", b->prefill[r]);
    put_number(out, "decode_tok_s", b->decode[r]);
    double first = b->tokens ? b->latency_ms[0] : 0;
    json_puts(out, ", \"token_ms\": [");
    for (size_t i = 0; i < b->tokens; i++) {
        json_puts(out, i ? ", " : "");
        json_put_f64(out, b->latency_ms[i]);
    }
    json_puts(out, "]");
    put_number(out, "decode_ms_p50",
               bench_quantile(b->latency_ms, b->tokens, 0.5)); /* sorts them */
    put_number(out, "decode_ms_p95", bench_quantile(b->latency_ms, b->tokens, 0.95));
    put_number(out, "decode_ms_first", first);
    if (!put_stats(&stats, out))
        out->failed = true;
    json_puts(out, "}");
    message_progress("repetition %zu of %zu, depth %zu: prompt %.2f, answer %.2f tokens a second",
                     rep + 1, b->reps, b->depth[depth], b->prefill[r], b->decode[r]);
}

static bool repeat(struct bench *b, struct strata_error *e)
{
    double
        ignored; /* depths are compared: the first must not be the only one that finds no experts */
    if (b->n_depths > 1 && (!feed(b, 0, b->prompt, &ignored, e)))
        return false;
    for (size_t rep = 0; rep < b->reps; rep++) {
        size_t at = 0;
        if (!strata_session_reset(b->session, e))
            return false;
        for (size_t d = 0; d < b->n_depths; d++) {
            size_t r = d * b->reps + rep, depth = b->depth[d];
            if (!feed(b, at, depth, &b->before[r], e))
                return false;
            strata_stats_reset(b->model);
            at = depth + b->prompt;
            if (!feed(b, depth, at, &b->prefill[r], e) || !decode(b, at, &b->decode[r], e))
                return false;
            at += b->tokens;
            note_repetition(b, d, rep);
        }
        if (!strata_trace_end(b->model, e)) /* the first alone began with a cold arena */
            return false;
    }
    message_progress_end();
    return true;
}

/* ---- The result ----------------------------------------------------------------------------- */

static void put_speeds(struct json_out *out, const char *key, double *values, size_t n)
{
    char name[64];
    double median = bench_quantile(values, n, 0.5); /* which sorts them */
    put_number(out, key, median);
    snprintf(name, sizeof name, "%s_min", key);
    put_number(out, name, values[0]);
    snprintf(name, sizeof name, "%s_max", key);
    put_number(out, name, values[n - 1]);
}

/* Of the depth number d: speeds of all repetitions. */
static void put_depth(struct bench *b, size_t d, struct json_out *out)
{
    put_speeds(out, "depth_tok_s", b->before + d * b->reps, b->reps);
    put_speeds(out, "prefill_tok_s", b->prefill + d * b->reps, b->reps);
    put_speeds(out, "decode_tok_s", b->decode + d * b->reps, b->reps);
}

/* With several depths the keys that are there for one are those of the last. */
static bool print_json(struct bench *b, const struct strata_stats *s,
                       const struct strata_plan *plan, struct strata_error *e)
{
    struct json_out out = {0};
    struct strata_version v;
    strata_version_get(&v);
    json_putf(&out, "{\"engine\": \"strata %s (%s)\", \"model\": ", v.version, v.commit);
    const char *path = option_text(b->o, OPTION_MODEL);
    json_put_string(&out, path, strlen(path));
    json_putf(&out, ", \"n_prompt\": %zu, \"n_gen\": %zu, \"depth\": %zu, \"threads\": %d",
              b->prompt, b->tokens, b->depth[b->n_depths - 1], plan->threads);
    json_putf(&out, ", \"slots\": %llu, \"experts\": %llu, \"plan_total\": %llu",
              (unsigned long long)plan->slots, (unsigned long long)plan->experts,
              (unsigned long long)plan->plan_total);
    json_putf(&out, ", \"forced_ids\": %s", b->forced == need_of(b) ? "true" : "false");
    put_number(&out, "load_s", s->load_s);
    json_putf(&out, ", \"peak_rss_bytes\": %llu", (unsigned long long)s->peak_rss);
    put_depth(b, b->n_depths - 1, &out);
    json_puts(&out, ", \"depths\": [");
    for (size_t d = 0; d < b->n_depths; d++) {
        json_putf(&out, "%s{\"depth\": %zu", d ? ", " : "", b->depth[d]);
        put_depth(b, d, &out);
        json_puts(&out, "}");
    }
    json_puts(&out, "]");
    json_putf(&out, ", \"bytes_per_token\": %llu", (unsigned long long)b->bytes_per_token);
    put_number(&out, "memory_gb_s", b->memory_gb_s);
    double *last = b->decode + (b->n_depths - 1) * b->reps;
    double gb_s = (double)b->bytes_per_token * bench_quantile(last, b->reps, 0.5) * 1e-9;
    put_number(&out, "memory_share", b->memory_gb_s > 0 ? gb_s / b->memory_gb_s : 0);
    json_puts(&out, ", \"reps\": [");
    json_put(&out, b->list.text ? b->list.text : "", b->list.bytes);
    json_puts(&out, "]");
    profile_keys(&b->profile, b->memory_gb_s, &out);
    json_puts(&out, "}\n");
    out.failed |= b->list.failed;
    return output_json(&out, e);
}

static void put_row(struct bench *b, const char *what, size_t tokens, double *values,
                    struct json_out *out)
{
    if (!tokens)
        return;
    double median = bench_quantile(values, b->reps, 0.5);
    json_putf(out, "%s %6zu token%s  %9.2f a second  (%.2f to %.2f, %zu repetition%s)\n", what,
              tokens, tokens == 1 ? " " : "s", median, values[0], values[b->reps - 1], b->reps,
              b->reps == 1 ? "" : "s");
}

static bool print_text(struct bench *b, const struct strata_stats *s, struct strata_error *e)
{
    struct json_out out = {0};
    for (size_t d = 0; d < b->n_depths; d++) {
        if (b->n_depths > 1)
            json_putf(&out, "behind %zu token%s:\n", b->depth[d], b->depth[d] == 1 ? "" : "s");
        if (!b->prompt && !b->tokens)
            put_row(b, "depth ", b->depth[d] - (d ? b->depth[d - 1] : 0), b->before + d * b->reps,
                    &out);
        put_row(b, "prompt", b->prompt, b->prefill + d * b->reps, &out);
        put_row(b, "answer", b->tokens, b->decode + d * b->reps, &out);
    }
    double *last = b->decode + (b->n_depths - 1) * b->reps;
    double gb_s = (double)b->bytes_per_token * bench_quantile(last, b->reps, 0.5) * 1e-9;
    json_putf(&out, "weights %.1f MB a token: %.2f of the %.2f GB/s that memory gives\n",
              (double)b->bytes_per_token * 1e-6, gb_s, b->memory_gb_s);
    json_putf(&out, "loading %.2f s, peak memory %.0f MiB\n", s->load_s,
              (double)s->peak_rss / (1 << 20));
    profile_table(&b->profile, b->memory_gb_s, &out);
    return output_json(&out, e);
}

static void release_model(struct bench *b)
{
    strata_session_free(b->session);
    strata_model_free(b->model);
    b->session = NULL;
    b->model = NULL;
}

static bool print_result(struct bench *b, struct strata_error *e)
{
    struct strata_stats s;
    struct strata_plan plan;
    strata_stats_get(b->model, &s);
    if (!strata_plan_get(b->model, &plan, e))
        return false;
    profile_take(b->model, b->o, &b->profile);
    release_model(b); /* so that its plan has the room */
    b->memory_gb_s = strata_memory_speed(plan.threads, plan.plan_total - plan.program);
    return option_given(b->o, OPTION_JSON) ? print_json(b, &s, &plan, e) : print_text(b, &s, e);
}

/* ---- All of it ------------------------------------------------------------------------------ */

/* The context is what the measurement needs, unless --ctx says more. */
static struct options with_context(const struct options *o, size_t need)
{
    struct options own = *o;
    if (!option_given(o, OPTION_CTX))
        own.value[OPTION_CTX] = (struct option_value){.given = true, .whole = need ? need : 1};
    return own;
}

static bool prepare(struct bench *b, struct strata_error *e)
{
    const char *trace = option_text(b->o, OPTION_TRACE);
    if (!read_depths(b, e))
        return false;
    size_t need = need_of(b);
    if (!need)
        return fail(e, STRATA_USAGE, "-p 0 and -n 0 without --depth: there is nothing to time");
    if (need > INT_MAX)
        return fail(e, STRATA_USAGE, "%zu tokens are more than a context can hold", need);
    struct options own = with_context(b->o, need);
    b->model = open_model(&own, 0, e);
    struct strata_plan plan;
    if (!b->model || !strata_model_info(b->model, &b->info, e) ||
        !strata_plan_get(b->model, &plan, e))
        return false;
    if (need > (size_t)plan.ctx)
        return fail(e, STRATA_USAGE,
                    "depth, prompt and answer are %zu tokens, the context holds %d", need,
                    plan.ctx);
    return read_ids(b, e) && allocate(b, e) && count_bytes(b, e) && load_model(b->model, e) &&
           (!trace || strata_trace_begin(b->model, trace, option_trace_guesses(b->o), e)) &&
           (b->session = strata_session_create(b->model, e)) != NULL;
}

enum status command_bench(const struct options *o)
{
    if (option_given(o, OPTION_ARMS))
        return bench_arms(o);
    interrupt_listen(false);
    struct strata_error e = {0};
    struct bench b = {.o = o,
                      .prompt = whole(o, OPTION_BENCH_PROMPT, 512),
                      .tokens = whole(o, OPTION_BENCH_TOKENS, 64),
                      .reps = whole(o, OPTION_REPS, 3)};
    bool ok = prepare(&b, &e) && repeat(&b, &e) && print_result(&b, &e);
    json_out_free(&b.list);
    mem_free(b.decode);
    mem_free(b.prefill);
    mem_free(b.before);
    mem_free(b.latency_ms);
    mem_free(b.ids);
    release_model(&b);
    return ok ? STATUS_DONE : message_error(&e);
}
