/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/answer.h"

#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"

/* The ids that open and close reasoning, -1 where the vocabulary has none. */
struct marks {
    int32_t open, close;
};

struct generation {
    const struct answer_request *r;
    struct answer *out;
    struct strata_text *text, *reasoning;
    struct marks marks;
    enum answer_part part;
    bool skips_breaks; /* line breaks that only set the parts apart */
    struct strata_error error; /* of taking a token */
};

const char *answer_finish_name(enum answer_finish f)
{
    static const char *const names[] = {"stop", "length", "interrupted"};
    return names[f];
}

void answer_free(struct answer *a)
{
    json_out_free(&a->text);
    json_out_free(&a->reasoning);
    mem_free(a->ids);
    *a = (struct answer){0};
}

/* The id of a text that is one token, or -1. */
static int32_t mark_id(struct strata_model *m, const char *text)
{
    int32_t *ids, id = -1;
    size_t n;
    struct strata_error e;
    if (!strata_encode(m, text, strlen(text), STRATA_SPECIAL_USER, &ids, &n, &e))
        return -1;
    if (n == 1)
        id = ids[0];
    strata_free(ids);
    return id;
}

static bool begin(struct generation *g, struct strata_error *e)
{
    const struct answer_request *r = g->r;
    struct err low;
    err_clear(&low);
    size_t room = (size_t)strata_context(r->session) + 1;
    g->out->ids = mem_alloc_array(room < r->most ? room : r->most, sizeof *g->out->ids,
                                  "the ids of an answer", &low);
    if (!take_error(e, &low))
        return false;
    g->marks = (struct marks){-1, -1};
    if (r->splits_reasoning)
        g->marks = (struct marks){mark_id(r->model, "<think>"), mark_id(r->model, "</think>")};
    g->part = r->begins_with_reasoning && g->marks.close >= 0 ? ANSWER_REASONING : ANSWER_TEXT;
    g->text = strata_text_create(r->model, r->stops, r->n_stops, e);
    g->reasoning = g->text ? strata_text_create(r->model, NULL, 0, e) : NULL;
    return g->reasoning != NULL;
}

static struct strata_text *stream_of(struct generation *g)
{
    return g->part == ANSWER_TEXT ? g->text : g->reasoning;
}

static bool show(struct generation *g, const char *text, size_t bytes, struct strata_error *e)
{
    if (g->skips_breaks) {
        while (bytes && (*text == '\n' || *text == '\r')) {
            text++;
            bytes--;
        }
        g->skips_breaks = bytes == 0;
    }
    struct json_out *whole = g->part == ANSWER_TEXT ? &g->out->text : &g->out->reasoning;
    json_put(whole, text, bytes);
    if (whole->failed)
        return fail(e, STRATA_MEMORY, "no memory for the text of an answer");
    return !bytes || g->r->show(g->r->ctx, g->part, text, bytes, e);
}

/* Text that was held back is shown: the part or the answer ends. */
static bool finish_part(struct generation *g, struct strata_error *e)
{
    const char *text;
    size_t bytes;
    return strata_text_finish(stream_of(g), &text, &bytes, e) && show(g, text, bytes, e);
}

/* Takes the text of one token; *stopped: it completed a stop text. */
static bool take(struct generation *g, int32_t id, bool *stopped, struct strata_error *e)
{
    *stopped = false;
    bool opens = g->part == ANSWER_TEXT && g->out->n == 1 && id == g->marks.open;
    bool closes = g->part == ANSWER_REASONING && id == g->marks.close;
    if ((opens || closes) && id >= 0) {
        if (!finish_part(g, e))
            return false;
        g->part = opens ? ANSWER_REASONING : ANSWER_TEXT;
        g->skips_breaks = true;
        return true;
    }
    const char *text;
    size_t bytes;
    return strata_text_push(stream_of(g), id, &text, &bytes, stopped, e) && show(g, text, bytes, e);
}

static bool is_full(const struct generation *g)
{
    return strata_position(g->r->session) == strata_context(g->r->session);
}

/* Takes the next token of the answer; sets out->finish as if it were the last. */
static bool take_token(void *ctx, int32_t id)
{
    struct generation *g = ctx;
    struct answer *out = g->out;
    bool stopped;
    out->finish = ANSWER_STOPPED;
    if (strata_token_is_end(g->r->model, id))
        return false;
    out->ids[out->n++] = id;
    if (!take(g, id, &stopped, &g->error) || stopped)
        return false;
    out->finish = ANSWER_LENGTH;
    return out->n < g->r->most;
}

/* Tokens until the answer ends, which sets out->finish. */
static bool loop(struct generation *g, struct strata_error *e)
{
    static const struct strata_pass pass = {.cancel = &interrupted};
    const struct answer_request *r = g->r;
    g->out->finish = ANSWER_LENGTH;
    if (!r->most)
        return true;
    if (!strata_answer(r->session, r->most, take_token, g, &pass, e)) {
        g->out->finish = ANSWER_INTERRUPTED;
        if (e->code != STRATA_INTERRUPTED)
            return false;
        *e = (struct strata_error){0};
        return true;
    }
    if (g->error.code)
        *e = g->error;
    return !g->error.code;
}

bool answer_generate(const struct answer_request *r, struct answer *out, struct strata_error *e)
{
    *out = (struct answer){0};
    struct generation g = {.r = r, .out = out};
    bool ok = begin(&g, e);
    int before = strata_position(r->session);
    if (ok) {
        ok = loop(&g, e);
        struct strata_error second = {0};
        if (!finish_part(&g, ok ? e : &second))
            ok = false;
    }
    size_t fed = (size_t)(strata_position(r->session) - before);
    if (ok && r->feeds_last && fed < out->n && !is_full(&g))
        ok = strata_step(r->session, &out->ids[fed], 1, NULL, e);
    strata_text_free(g.text);
    strata_text_free(g.reasoning);
    return ok;
}
