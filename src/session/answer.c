/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an answer: tokens to whole characters, stop strings taken out. */
#include <string.h>

#include "base/mem.h"
#include "session/session.h"
#include "text/utf8stream.h"

struct strata_text {
    const struct tokenizer *words;
    struct utf8_stream characters;
    struct stop_stream *stops;
    struct json_out whole; /* characters that the stop strings have not seen */
    struct json_out ready;
};

static struct stop_stream *create_stops(const char *const *stops, size_t n, struct err *e)
{
    struct text_view *views = mem_alloc_array(n, sizeof *views, "stop strings", e);
    if (!views)
        return NULL;
    for (size_t i = 0; i < n; i++)
        views[i] = (struct text_view){stops[i], strlen(stops[i])};
    struct stop_stream *s = stop_create(views, n, e);
    mem_free(views);
    return s;
}

struct strata_text *strata_text_create(struct strata_model *m, const char *const *stops,
                                       size_t n_stops, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct strata_text *t = engine_words(m, &e) ? mem_alloc(sizeof *t, "a text stream", &e) : NULL;
    if (t) {
        t->words = m->words;
        t->stops = create_stops(stops, n_stops, &e);
        if (!t->stops) {
            strata_text_free(t);
            t = NULL;
        }
    }
    session_report(error, &e);
    return t;
}

void strata_text_free(struct strata_text *t)
{
    if (!t)
        return;
    stop_free(t->stops);
    json_out_free(&t->whole);
    json_out_free(&t->ready);
    mem_free(t);
}

/* Hands out what is ready. */
static bool give(struct strata_text *t, const char **text, size_t *bytes,
                 struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (t->whole.failed || t->ready.failed)
        err_set(&e, ERR_MEMORY, "no memory for the text of an answer");
    *text = t->ready.bytes ? t->ready.text : "";
    *bytes = t->ready.bytes;
    return session_report(error, &e);
}

bool strata_text_push(struct strata_text *t, int32_t id, const char **text, size_t *bytes,
                      bool *stopped, struct strata_error *error)
{
    struct text_view piece = tokenizer_piece(t->words, id, false);
    t->whole.bytes = 0;
    t->ready.bytes = 0;
    utf8_stream_feed(&t->characters, piece.text, piece.bytes, &t->whole);
    *stopped = stop_feed(t->stops, t->whole.text, t->whole.bytes, &t->ready);
    return give(t, text, bytes, error);
}

bool strata_text_finish(struct strata_text *t, const char **text, size_t *bytes,
                        struct strata_error *error)
{
    t->ready.bytes = 0;
    stop_finish(t->stops, &t->ready);
    return give(t, text, bytes, error);
}
