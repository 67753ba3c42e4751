/* SPDX-License-Identifier: Apache-2.0 */
/* `strata run`: continues a text. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/profile.h"
#include "cli/report.h"
#include "session/session.h"

struct run {
    const struct options *o;
    struct strata_model *model;
    struct strata_session *session;
    struct strata_sampling sampling;
    int32_t *ids; /* the prompt, mem_free */
    size_t n;
    struct answer answer;
    bool is_ended; /* its line */
    struct strata_stats stats; /* at the end */
    bool has_outlook;
    struct session_outlook outlook;
    struct profile profile;
    double memory_gb_s;
};

/* ---- The prompt ----------------------------------------------------------------------------- */

/* Ids of the library, copied into memory of ours so that there is one way to free them. */
static bool keep_ids(struct run *r, int32_t *ids, size_t n, struct strata_error *e)
{
    struct err low;
    err_clear(&low);
    r->ids = mem_alloc_array(n, sizeof *ids, "the prompt", &low);
    if (r->ids && n)
        memcpy(r->ids, ids, n * sizeof *ids);
    r->n = n;
    strata_free(ids);
    return take_error(e, &low);
}

/* One user message, rendered as the model expects it. */
static bool encode_chat(struct run *r, const char *text, size_t bytes, struct strata_error *e)
{
    struct json_out messages = {0};
    json_puts(&messages, "[{\"role\": \"user\", \"content\": ");
    json_put_string(&messages, text, bytes);
    json_puts(&messages, "}]");
    struct strata_render_options how = render_options(r->o);
    note_idle_effort(r->o, r->model);
    struct strata_prompt *p = NULL;
    if (messages.failed)
        fail(e, STRATA_MEMORY, "no memory for the prompt");
    else
        p = strata_render(r->model, messages.text, NULL, &how, e);
    json_out_free(&messages);
    int32_t *ids;
    size_t n;
    bool ok = p && strata_prompt_ids(r->model, p, &ids, &n, e) && keep_ids(r, ids, n, e);
    strata_prompt_free(p);
    return ok;
}

static bool encode(struct run *r, const char *text, size_t bytes, struct strata_error *e)
{
    if (option_given(r->o, OPTION_CHAT))
        return encode_chat(r, text, bytes, e);
    int32_t *ids;
    size_t n;
    enum strata_special mode =
        option_given(r->o, OPTION_SPECIAL) ? STRATA_SPECIAL_ALL : STRATA_SPECIAL_USER;
    return strata_encode(r->model, text, bytes, mode, &ids, &n, e) && keep_ids(r, ids, n, e);
}

static bool read_ids(struct run *r, const char *path, struct strata_error *e)
{
    struct strata_model_info info;
    if (!strata_model_info(r->model, &info, e))
        return false;
    size_t bytes;
    char *text = input_read(path, &bytes, e);
    bool ok = text && input_ids(text, bytes, strcmp(path, "-") ? path : "stdin", info.vocab,
                                &r->ids, &r->n, e);
    mem_free(text);
    return ok;
}

static bool read_prompt(struct run *r, struct strata_error *e)
{
    const struct options *o = r->o;
    const char *path = o->word ? "-" : option_text(o, OPTION_FILE);
    bool ok = true;
    if (option_given(o, OPTION_IDS)) {
        ok = read_ids(r, option_text(o, OPTION_IDS), e);
    } else if (option_given(o, OPTION_PROMPT)) {
        const char *text = option_text(o, OPTION_PROMPT);
        ok = encode(r, text, strlen(text), e);
    } else if (path) {
        size_t bytes;
        char *text = input_read(path, &bytes, e);
        ok = text && encode(r, text, bytes, e);
        mem_free(text);
    }
    if (ok && r->n == 0 && !option_given(o, OPTION_LOAD))
        return fail(e, STRATA_FORMAT, "the prompt is empty: there is nothing to continue");
    return ok;
}

/* Before any work: does the prompt fit into the context? */
static bool check_length(struct run *r, struct strata_error *e)
{
    struct strata_plan plan;
    if (!strata_plan_get(r->model, &plan, e))
        return false;
    if (r->n > (size_t)plan.ctx)
        return fail(e, STRATA_UNSUPPORTED,
                    "the prompt has %zu tokens, the context holds %d: --ctx %zu would hold it",
                    r->n, plan.ctx, r->n);
    return true;
}

/* ---- The run -------------------------------------------------------------------------------- */

static bool start(struct run *r, struct strata_error *e)
{
    const char *saved = option_text(r->o, OPTION_LOAD);
    if (!output_can_begin(option_text(r->o, OPTION_SAVE), e) ||
        !output_can_begin(option_text(r->o, OPTION_STATS), e))
        return false;
    struct strata_model_info unused; /* a model that cannot run is refused before its words are */
    if (!strata_model_info(r->model, &unused, e) || !read_prompt(r, e) || !check_length(r, e) ||
        !begin_model(r->model, e))
        return false;
    const char *trace = option_text(r->o, OPTION_TRACE);
    if (trace && !strata_trace_begin(r->model, trace, option_trace_guesses(r->o), e))
        return false;
    if (option_given(r->o, OPTION_EXPLAIN) && !strata_explain_begin(r->model, e))
        return false;
    r->session = strata_session_create(r->model, e);
    bool ok = r->session && (!saved || strata_load(r->session, saved, &prompt_pass, e)) &&
              strata_feed(r->session, r->ids, r->n, &prompt_pass, e);
    message_progress_end();
    return ok;
}

static bool show_text(void *ctx, enum answer_part part, const char *text, size_t bytes,
                      struct strata_error *e)
{
    const struct run *r = ctx;
    return option_given(r->o, OPTION_JSON) || output_text(text, bytes, e);
}

/* A state without a new prompt goes on as it would have, with the penalties of its answer. */
static bool begin_answer(struct run *r, struct strata_error *e)
{
    struct strata_sampling saved;
    bool had = strata_sampling_get(r->session, &saved);
    if (!sampling_options(r->o, r->model, r->session, &r->sampling, e))
        return false;
    if (had && r->n == 0 && memcmp(&saved, &r->sampling, sizeof saved) == 0)
        return true;
    return strata_answer_begin(r->session, &r->sampling, e);
}

static bool generate(struct run *r, struct strata_error *e)
{
    const struct options *o = r->o;
    struct answer_request request = {
        .model = r->model,
        .session = r->session,
        .stops = o->stops,
        .n_stops = o->n_stops,
        .most = option_given(o, OPTION_TOKENS) ? (size_t)o->value[OPTION_TOKENS].whole : SIZE_MAX,
        .feeds_last = option_given(o, OPTION_SAVE),
        .show = show_text,
        .ctx = r,
    };
    return begin_answer(r, e) && (request.most == 0 || answer_generate(&request, &r->answer, e));
}

/* ---- The end -------------------------------------------------------------------------------- */

static bool print_json(struct run *r, struct strata_error *e)
{
    struct json_out out = {0};
    struct answer *a = &r->answer;
    json_puts(&out, "{\"text\": ");
    json_put_string(&out, a->text.text ? a->text.text : "", a->text.bytes);
    json_puts(&out, ", \"ids\": [");
    for (size_t i = 0; i < a->n; i++)
        json_putf(&out, "%s%d", i ? ", " : "", a->ids[i]);
    json_putf(
        &out,
        "], \"prompt_tokens\": %zu, \"tokens\": %zu, \"finish_reason\": \"%s\", \"seed\": %llu, ",
        r->n, a->n, answer_finish_name(a->finish), (unsigned long long)r->sampling.seed);
    report_keys(&r->stats, &out);
    if (r->has_outlook)
        report_outlook_keys(&r->outlook, &out);
    profile_keys(&r->profile, r->memory_gb_s, &out);
    json_puts(&out, "}\n");
    return output_json(&out, e);
}

/* Ends the answer's line where a person looks at it, and where what comes next on stderr would stand
 * behind it in the same file or pipe. */
static bool end_answer(const struct run *r, bool has_message, struct strata_error *e)
{
    const struct json_out *text = &r->answer.text;
    if (!text->bytes || option_given(r->o, OPTION_JSON))
        return true;
    if (output_is_terminal())
        return output_write("\n", 1, e);
    if (has_message && text->text[text->bytes - 1] != '\n' && output_is_where_messages_are())
        fputc('\n', stderr);
    return true;
}

/* The line about the run on stderr. */
static bool print_line(struct run *r, struct strata_error *e)
{
    if (!end_answer(r, !option_given(r->o, OPTION_QUIET), e))
        return false;
    r->is_ended = true;
    struct json_out line = {0};
    bool is_drawn = !option_given(r->o, OPTION_SEED) && r->sampling.temp > 0 && r->answer.n > 0;
    report_line(&r->stats, r->answer.n, is_drawn ? &r->sampling.seed : NULL,
                r->has_outlook ? &r->outlook : NULL, &line);
    if (!line.failed)
        message_note("%s%s", r->answer.finish == ANSWER_INTERRUPTED ? "interrupted; " : "",
                     line.text);
    json_out_free(&line);
    return true;
}

static void release(struct run *r)
{
    strata_session_free(r->session);
    strata_model_free(r->model);
    r->session = NULL;
    r->model = NULL;
}

/* What memory gives is measured when the model has left it. */
static bool measure(struct run *r, struct strata_error *e)
{
    struct strata_plan plan;
    if (!strata_plan_get(r->model, &plan, e))
        return false;
    profile_take(r->model, r->o, &r->profile);
    release(r);
    r->memory_gb_s = strata_memory_speed(plan.threads, plan.plan_total - plan.program);
    return true;
}

static void print_profile(const struct run *r)
{
    struct json_out table = {0};
    profile_table(&r->profile, r->memory_gb_s, &table);
    if (table.bytes && !table.failed)
        message_note("%.*s", (int)table.bytes - 1, table.text);
    json_out_free(&table);
}

static bool print_end(struct run *r, struct strata_error *e)
{
    bool is_json = option_given(r->o, OPTION_JSON);
    r->has_outlook = report_outlook(r->model, option_text(r->o, OPTION_MODEL), &r->outlook);
    if ((!is_json && !print_line(r, e)) ||
        (option_given(r->o, OPTION_EXPLAIN) && !report_waits(r->model, e)) ||
        (option_given(r->o, OPTION_PROFILE) && !measure(r, e)))
        return false;
    if (is_json)
        return print_json(r, e);
    print_profile(r);
    return true;
}

static bool write_files(struct run *r, struct strata_error *e)
{
    const char *state = option_text(r->o, OPTION_SAVE), *figures = option_text(r->o, OPTION_STATS);
    if ((state && !strata_save(r->session, state, e)) || !strata_trace_end(r->model, e))
        return false;
    strata_stats_get(r->model, &r->stats);
    return !figures || report_file(figures, &r->stats, e);
}

enum status command_run(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct run r = {.o = o, .model = open_model(o, 0, &e)};
    r.answer.finish = ANSWER_LENGTH;
    bool ok =
        r.model && start(&r, &e) && generate(&r, &e) && write_files(&r, &e) && print_end(&r, &e);
    if (!ok && e.code == STRATA_INTERRUPTED && r.model && option_given(o, OPTION_JSON)) {
        r.answer.finish = ANSWER_INTERRUPTED;
        strata_stats_get(r.model, &r.stats);
        struct strata_error second = {0};
        print_json(&r, &second);
    }
    bool was_interrupted = r.answer.finish == ANSWER_INTERRUPTED;
    struct strata_error ignored = {0};
    if (!ok && !r.is_ended)
        end_answer(&r, e.code != STRATA_INTERRUPTED, &ignored);
    answer_free(&r.answer);
    mem_free(r.ids);
    release(&r);
    if (!ok)
        return message_error(&e);
    return was_interrupted ? STATUS_INTERRUPTED : STATUS_DONE;
}
