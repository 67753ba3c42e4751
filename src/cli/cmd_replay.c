/* SPDX-License-Identifier: Apache-2.0 */
/* `strata replay`: what other arenas, policies and guesses would have given for a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/kept.h"
#include "cli/output.h"
#include "cli/probe_cache.h"
#include "cli/replay_chart.h"
#include "gguf/gguf.h"
#include "stream/replay.h"

#define WORDS_MOST 32

/* What a row of the table was made with, and what came out. */
struct rows {
    struct replay_row *row;
    int n, room;
};

struct words {
    char text[256];
    const char *word[WORDS_MOST];
    int n;
};

struct job {
    const struct options *o;
    struct trace *trace;
    struct io_drive drive;
    struct replay_drive with;
    int window_rows;
    struct words shares, aheads, moces;
    struct rows rows;
    bool has_live, matches;
    uint64_t live_hits, live_misses;
    struct replay_result own;
    bool has_own;
};

/* ---- What is asked for ---------------------------------------------------------------------- */

/* A list divided by commas. */
static bool split_words(const char *name, const char *list, struct words *out,
                        struct strata_error *e)
{
    if (strlen(list) >= sizeof out->text)
        return fail(e, STRATA_USAGE, "%s: the list is too long", name);
    strcpy(out->text, list);
    for (char *at = out->text; at;) {
        if (out->n == WORDS_MOST)
            return fail(e, STRATA_USAGE, "%s: more than %d values", name, WORDS_MOST);
        out->word[out->n++] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = 0;
    }
    return true;
}

static bool read_lists(struct job *j, struct strata_error *e)
{
    const struct options *o = j->o;
    const char *shares = option_text(o, OPTION_SHARES), *aheads = option_text(o, OPTION_AHEADS);
    const char *moces = option_text(o, OPTION_MOCES);
    return split_words("--shares", shares ? shares : "5,10,15,20,25,30,40,50,60,70,80,90,100",
                       &j->shares, e) &&
           split_words("--read-ahead", aheads ? aheads : "off,auto", &j->aheads, e) &&
           split_words("--moce", moces ? moces : "0", &j->moces, e);
}

static bool read_number(const char *name, const char *text, double least, double most, double *out,
                        struct strata_error *e)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= least && *out <= most))
        return fail(e, STRATA_USAGE, "%s: \"%s\" is not a number from %g to %g", name, text, least,
                    most);
    return true;
}

/* -m: the model whose drive is meant; the trace must be one of it, where it says of which it is. */
static bool check_model(struct job *j, struct strata_error *e)
{
    const char *path = option_text(j->o, OPTION_MODEL);
    uint8_t print[16];
    struct err low;
    err_clear(&low);
    struct gguf_file *g = path ? gguf_open(path, &low) : NULL;
    if (g && gguf_fingerprint(g, print, &low) && trace_version(j->trace) > 1 &&
        memcmp(print, trace_head(j->trace)->fingerprint, sizeof print))
        err_set(&low, ERR_FORMAT, "%s: the trace is of another model than %s", j->o->word, path);
    gguf_close(g);
    return take_error(e, &low) && low.code == ERR_NONE;
}

/* --drive: a probe's JSON; else what was measured on the device that holds the model, or without -m
 * the trace. */
static bool read_drive(struct job *j, struct strata_error *e)
{
    const char *path = option_text(j->o, OPTION_DRIVE), *model = option_text(j->o, OPTION_MODEL);
    const char *beside = model ? model : j->o->word;
    char text[64];
    struct probe probe;
    if (path) {
        size_t bytes;
        char *json = input_read(path, &bytes, e);
        struct err low;
        err_clear(&low);
        bool ok = json && probe_read_json(json, bytes, path, &probe, &low);
        mem_free(json);
        if (!ok)
            return take_error(e, &low) && ok;
        j->with.drive = &j->drive;
    } else if (probe_recall(beside, &probe)) {
        j->with.drive = &j->drive;
        if (!model)
            message_detail("times are those of the drive that holds %s; -m MODEL takes the model's",
                           beside);
    } else {
        message_note("the drive of %s was not measured (strata probe): reads are taken to cost "
                     "nothing", beside);
    }
    if (j->with.drive)
        j->drive = probe_drive(&probe);
    const char *compute = trace_value(j->trace, "compute_ms", text, sizeof text);
    double ms = compute ? strtod(compute, NULL) : 0;
    if (option_given(j->o, OPTION_COMPUTE))
        j->with.compute_ms = j->o->value[OPTION_COMPUTE].real;
    else if (kept_is_compute(ms))
        j->with.compute_ms = ms;
    return true;
}

static bool open_trace(struct job *j, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    bool is_cut;
    j->trace = trace_open(j->o->word, &is_cut, &low);
    if (!j->trace)
        return take_error(e, &low);
    if (is_cut)
        message_note("%s: has no end; what is whole of it is used", j->o->word);
    return true;
}

/* ---- The run itself ------------------------------------------------------------------------- */

/* The run's own configuration once more: it must count what the run counted. */
static bool check_own(struct job *j, struct strata_error *e)
{
    struct replay_config own;
    j->has_own = replay_own_config(j->trace, &own);
    j->window_rows = j->has_own ? own.window_rows : replay_window_rows(j->trace);
    j->has_live = j->has_own && replay_live(j->trace, &j->live_hits, &j->live_misses);
    if (!j->has_own)
        return true;
    own.cancel = &interrupted;
    struct err low;
    err_clear(&low);
    if (!replay_run(j->trace, &own, &j->with, &j->own, &low))
        return take_error(e, &low);
    j->matches = j->has_live && j->own.hits == j->live_hits && j->own.misses == j->live_misses;
    return true;
}

/* ---- The table ------------------------------------------------------------------------------ */

static bool add_row(struct job *j, const char *policy, const struct replay_config *c,
                    const char *ahead, const char *moce, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    struct rows *r = &j->rows;
    if (r->n == r->room) {
        int room = r->room * 2 + 64;
        struct replay_row *more = mem_grow(r->row, (size_t)room * sizeof *more, "rows", &low);
        if (!more)
            return take_error(e, &low);
        r->row = more;
        r->room = room;
    }
    struct replay_row *row = &r->row[r->n];
    *row = (struct replay_row){.policy = policy, .read_ahead = ahead, .moce = moce};
    message_progress("replaying: row %d", r->n + 1);
    if (!replay_run(j->trace, c, &j->with, &row->result, &low))
        return take_error(e, &low);
    const struct replay_result *x = &row->result;
    row->share = x->records ? (double)x->slots / (double)x->records : 0;
    row->hit_rate = x->hits + x->misses ? (double)x->hits / (double)(x->hits + x->misses) : 0;
    r->n++;
    return true;
}

/* `off`, `auto`, K, or one of these words before a colon and K or `auto`: other guesses. */
static bool read_ahead(const char *word, struct stream_ahead *out, struct strata_error *e)
{
    static const struct {
        const char *name;
        enum stream_guess_kind kind;
        int distance;
    } kinds[] = {{"router2:", STREAM_GUESS_ROUTER, 2},
                 {"previous:", STREAM_GUESS_PREVIOUS, 1},
                 {"previous2:", STREAM_GUESS_PREVIOUS, 2},
                 {"table:", STREAM_GUESS_TABLE, 1},
                 {"table2:", STREAM_GUESS_TABLE, 2}};
    double ranks = 0;
    *out = (struct stream_ahead){.is_off = !strcmp(word, "off")};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(word, kinds[i].name, strlen(kinds[i].name))) {
            out->kind = kinds[i].kind;
            out->distance = kinds[i].distance;
            word += strlen(kinds[i].name);
        }
    out->has_guard = !strcmp(word, "auto");
    if (!out->is_off && !out->has_guard &&
        !read_number("--read-ahead", word, 1, STREAM_RANKS_MOST, &ranks, e))
        return false;
    if (ranks != floor(ranks))
        return fail(e, STRATA_USAGE, "--read-ahead: \"%s\" is not a whole number", word);
    out->ranks = (int)ranks;
    return true;
}

static bool add_share(struct job *j, double share, struct strata_error *e)
{
    static const enum policy_kind policies[] = {POLICY_LRU, POLICY_LFU, POLICY_LAYER};
    struct replay_config c = {.arena_bytes = replay_arena_bytes(j->trace, j->window_rows, share),
                              .window_rows = j->window_rows,
                              .cancel = &interrupted};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int a = 0; a < j->aheads.n; a++)
            for (int m = 0; m < j->moces.n; m++) {
                double strength;
                const char *ahead = j->aheads.word[a];
                if (!read_number("--moce", j->moces.word[m], 0, 10, &strength, e) ||
                    !read_ahead(ahead, &c.ahead, e))
                    return false;
                if (!replay_has_guesses(j->trace, &c))
                    return fail(e, STRATA_USAGE,
                                "%s: has no router's guesses two layers ahead, for --read-ahead "
                                "%s: --trace-guesses 2 of `run` writes them", j->o->word, ahead);
                c.policy = policies[p];
                c.no_look_ahead = c.ahead.is_off;
                c.moce = (float)strength;
                if (!add_row(j, policy_name(policies[p]), &c, ahead, j->moces.word[m], e))
                    return false;
            }
    c = (struct replay_config){
        .is_bound = true, .arena_bytes = c.arena_bytes, .window_rows = j->window_rows,
        .cancel = &interrupted};
    return add_row(j, "bound", &c, "off", "0", e);
}

static bool add_all(struct job *j, struct strata_error *e)
{
    for (int i = 0; i < j->shares.n; i++) {
        double percent;
        if (!read_number("--shares", j->shares.word[i], 0, 100, &percent, e) ||
            !add_share(j, percent / 100, e))
            return false;
    }
    message_progress_end();
    return true;
}

/* ---- Printing ------------------------------------------------------------------------------- */

static void put_real(struct json_out *out, const char *key, double v, bool is_known)
{
    json_putf(out, ", \"%s\": ", key);
    if (is_known)
        json_put_f64(out, v);
    else
        json_puts(out, "null");
}

/* The run's own configuration; in windows, if there are any, of a token. */
static void put_own(const struct job *j, struct json_out *out)
{
    const struct replay_result *r = &j->own;
    bool has_time = j->with.drive != NULL;
    json_putf(out, "{\"hits\": %llu, \"misses\": %llu", (unsigned long long)r->hits,
              (unsigned long long)r->misses);
    put_real(out, "hits_per_token", r->hits_per_token, true);
    put_real(out, "misses_per_token", r->misses_per_token, true);
    put_real(out, "useful_per_token", r->useful_per_token, true);
    put_real(out, "late_per_token", r->late_per_token, true);
    put_real(out, "wasted_per_token", r->wasted_per_token, true);
    put_real(out, "wait_ms_per_token", r->wait_ms_per_token, has_time);
    put_real(out, "tok_s", r->tok_s, has_time && r->tok_s > 0);
    json_puts(out, "}");
}

static void put_json(const struct job *j, struct json_out *out)
{
    bool has_time = j->with.drive != NULL;
    json_puts(out, "{\"live\": ");
    if (j->has_live)
        json_putf(out, "{\"hits\": %llu, \"misses\": %llu}", (unsigned long long)j->live_hits,
                  (unsigned long long)j->live_misses);
    else
        json_puts(out, "null");
    json_puts(out, ", \"replayed\": ");
    if (j->has_own)
        put_own(j, out);
    else
        json_puts(out, "null");
    json_putf(out, ", \"match\": %s, \"rows\": [",
              !j->has_live ? "null"
              : j->matches ? "true"
                           : "false");
    for (int i = 0; i < j->rows.n; i++) {
        const struct replay_row *r = &j->rows.row[i];
        json_putf(out, "%s{\"policy\": \"%s\", \"slots\": %llu, \"share\": ", i ? ", " : "",
                  r->policy, (unsigned long long)r->result.slots);
        json_put_f64(out, r->share);
        json_puts(out, ", \"read_ahead\": ");
        json_put_string(out, r->read_ahead, strlen(r->read_ahead));
        put_real(out, "moce", strtod(r->moce, NULL), true);
        json_putf(out, ", \"hits\": %llu, \"misses\": %llu, \"hit_rate\": ",
                  (unsigned long long)r->result.hits, (unsigned long long)r->result.misses);
        json_put_f64(out, r->hit_rate);
        bool is_bound = !strcmp(r->policy, "bound");
        put_real(out, "wait_ms_per_token", r->result.wait_ms_per_token, has_time && !is_bound);
        put_real(out, "tok_s", r->result.tok_s, has_time && r->result.tok_s > 0);
        json_puts(out, "}");
    }
    json_puts(out, "]}\n");
}

static void put_csv(const struct job *j, struct json_out *out)
{
    bool has_time = j->with.drive != NULL;
    json_puts(out,
              "policy,slots,share,read_ahead,moce,hits,misses,hit_rate,wait_ms_per_token,tok_s\n");
    for (int i = 0; i < j->rows.n; i++) {
        const struct replay_row *r = &j->rows.row[i];
        json_putf(out, "%s,%llu,%.4f,%s,%s,%llu,%llu,%.4f,", r->policy,
                  (unsigned long long)r->result.slots, r->share, r->read_ahead, r->moce,
                  (unsigned long long)r->result.hits, (unsigned long long)r->result.misses,
                  r->hit_rate);
        if (has_time && strcmp(r->policy, "bound"))
            json_putf(out, "%.4f", r->result.wait_ms_per_token);
        json_puts(out, ",");
        if (has_time && r->result.tok_s > 0)
            json_putf(out, "%.3f", r->result.tok_s);
        json_puts(out, "\n");
    }
}

static void put_table(const struct job *j, struct json_out *out)
{
    bool has_time = j->with.drive != NULL;
    const struct trace_head *h = trace_head(j->trace);
    json_putf(out, "%s: %d layer%s of %d expert%s, %d used\n", j->o->word, h->layers,
              h->layers == 1 ? "" : "s", h->experts, h->experts == 1 ? "" : "s", h->used);
    if (j->has_live)
        json_putf(out, "the run: %llu hits, %llu misses; replayed: %llu, %llu: %s\n",
                  (unsigned long long)j->live_hits, (unsigned long long)j->live_misses,
                  (unsigned long long)j->own.hits, (unsigned long long)j->own.misses,
                  j->matches ? "the same" : "NOT THE SAME");
    else
        json_puts(out, "the trace has no counts of its run: nothing proves this replay\n");
    json_puts(out,
              "policy  slots  share    read-ahead  moce    hits  misses  hit rate  useful  wasted"
              "  wait ms/token  tok/s\n");
    for (int i = 0; i < j->rows.n; i++) {
        const struct replay_row *r = &j->rows.row[i];
        json_putf(out, "%-6s %6llu  %4.0f%%  %12s  %4s %7llu %7llu    %.4f", r->policy,
                  (unsigned long long)r->result.slots, 100 * r->share, r->read_ahead, r->moce,
                  (unsigned long long)r->result.hits, (unsigned long long)r->result.misses,
                  r->hit_rate);
        if (strcmp(r->policy, "bound") != 0)
            json_putf(out, " %7llu %7llu", (unsigned long long)(r->result.useful + r->result.late),
                      (unsigned long long)r->result.wasted);
        if (has_time && strcmp(r->policy, "bound"))
            json_putf(out, "  %13.3f", r->result.wait_ms_per_token);
        if (has_time && r->result.tok_s > 0)
            json_putf(out, "  %5.2f", r->result.tok_s);
        json_puts(out, "\n");
    }
}

static bool print_all(struct job *j, struct strata_error *e)
{
    const char *svg = option_text(j->o, OPTION_SVG);
    struct json_out chart = {0}, out = {0};
    if (svg) {
        replay_chart(j->rows.row, j->rows.n, &chart);
        bool ok = !chart.failed && output_file(svg, chart.text, chart.bytes, e);
        json_out_free(&chart);
        if (!ok)
            return fail(e, STRATA_MEMORY, "no memory for the chart");
    }
    if (option_given(j->o, OPTION_JSON))
        put_json(j, &out);
    else if (option_given(j->o, OPTION_CSV))
        put_csv(j, &out);
    else
        put_table(j, &out);
    return output_json(&out, e);
}

enum status command_replay(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct job j = {.o = o};
    bool ok = open_trace(&j, &e) && check_model(&j, &e) && read_lists(&j, &e) &&
              read_drive(&j, &e) && check_own(&j, &e) && add_all(&j, &e) && print_all(&j, &e);
    if (ok && j.has_live && !j.matches)
        ok = fail(
            &e, STRATA_FORMAT,
            "%s: the replay has %llu hits and %llu misses, the run had %llu and %llu: do not trust "
            "the other rows",
            o->word, (unsigned long long)j.own.hits, (unsigned long long)j.own.misses,
            (unsigned long long)j.live_hits, (unsigned long long)j.live_misses);
    mem_free(j.rows.row);
    trace_free(j.trace);
    return ok ? STATUS_DONE : message_error(&e);
}
