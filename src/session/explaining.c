/* SPDX-License-Identifier: Apache-2.0 */
/* `--explain`: what the slowest passes waited for, and why it was not there. It is told of every
 * wait by the stream and takes those for rows of a table from their statistics, so that the times
 * add up to all that was waited. What it holds has one size, which the plan counts. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "session/engine.h"

#define SLOWEST 5 /* passes that are shown */
#define WAITS 24  /* of a pass, the longest; the others are only summed */

/* A pass of the network, and what lay between it and the one before. */
struct explained_pass {
    int position, rows;
    int64_t us;
    uint64_t wait_us, rows_us; /* waited in all; of this for rows of a table */
    uint64_t other_us;         /* for records that are not in `wait` */
    int waits, others;
    struct stream_wait wait[WAITS]; /* the longest first */
};

struct explaining {
    uint64_t us[STREAM_WHYS], times[STREAM_WHYS]; /* of everything */
    uint64_t rows_us, rows_before_us;
    int64_t trunk_before_us;
    int64_t began_us;
    struct explained_pass now;
    int n;
    struct explained_pass slowest[SLOWEST]; /* the slowest first */
};

size_t explaining_bytes(void)
{
    return sizeof(struct explaining);
}

/* ---- Taking notes --------------------------------------------------------------------------- */

static void note_wait(void *ctx, const struct stream_wait *w)
{
    struct explaining *x = ctx;
    struct explained_pass *p = &x->now;
    x->us[w->why] += w->us;
    x->times[w->why]++;
    p->wait_us += w->us;
    int at = p->waits;
    while (at > 0 && p->wait[at - 1].us < w->us)
        at--;
    if (p->waits == WAITS) { /* the shortest makes room */
        p->other_us += at < WAITS ? p->wait[WAITS - 1].us : w->us;
        p->others++;
    }
    p->waits += p->waits < WAITS;
    if (at == WAITS)
        return;
    memmove(&p->wait[at + 1], &p->wait[at], (size_t)(p->waits - 1 - at) * sizeof *w);
    p->wait[at] = *w;
}

static uint64_t rows_waited_us(const struct strata_model *m)
{
    struct stream_stats s = {0};
    if (m->rows)
        stream_rows_add_stats(m->rows, &s);
    return s.wait_us;
}

static void note_rows(struct strata_model *m, struct explaining *x)
{
    uint64_t now = rows_waited_us(m), us = now - x->rows_before_us;
    x->rows_before_us = now;
    x->rows_us += us;
    x->now.rows_us += us;
    x->now.wait_us += us;
}

void explaining_pass_begins(struct strata_model *m)
{
    if (m->explaining)
        m->explaining->began_us = clock_us();
}

void explaining_pass_ends(struct strata_model *m, int position, int rows, bool is_band)
{
    struct explaining *x = m->explaining;
    if (!x)
        return;
    note_rows(m, x);
    struct explained_pass *p = &x->now;
    p->us = clock_us() - x->began_us;
    p->position = position;
    p->rows = rows;
    int at = x->n;
    while (at > 0 && x->slowest[at - 1].us < p->us)
        at--;
    if (!is_band && at < SLOWEST) {
        x->n += x->n < SLOWEST;
        memmove(&x->slowest[at + 1], &x->slowest[at], (size_t)(x->n - 1 - at) * sizeof *p);
        x->slowest[at] = *p;
    }
    *p = (struct explained_pass){0};
}

bool strata_explain_begin(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    if (!m->options.explain || !m->is_loaded)
        err_set(&e, ERR_USAGE,
                "%s: explaining waits needs a model that was opened for it and loaded", m->path);
    struct explaining *x =
        e.code || m->explaining ? NULL : mem_alloc(sizeof *x, "explanations", &e);
    if (x) {
        x->rows_before_us = rows_waited_us(m);
        x->trunk_before_us = session_trunk_us(m);
        m->explaining = x;
        if (m->stream)
            stream_set_watch(m->stream, &(struct stream_watch){x, note_wait});
    }
    return session_report(error, &e);
}

void explaining_free(struct strata_model *m)
{
    mem_free(m->explaining);
    m->explaining = NULL;
}

/* ---- Telling -------------------------------------------------------------------------------- */

static const char *const why_names[STREAM_WHYS] = {
    [STREAM_NEVER_SEEN] = "never seen in the arena",
    [STREAM_EVICTED] = "evicted before",
    [STREAM_RANK] = "guessed at a rank that is not read ahead",
    [STREAM_CROWDED] = "guessed, but no slot was idle to read it into",
    [STREAM_LATE] = "read ahead, but late",
    [STREAM_CANCELLED] = "its reading was cancelled before",
    [STREAM_NO_SLOT] = "a slot that was still being read into",
    [STREAM_CUT_SHORT] = "waits that an error or Ctrl-C ended",
};

static void put_why(const struct stream_wait *w, struct json_out *out)
{
    unsigned detail = w->detail;
    switch (w->why) {
    case STREAM_EVICTED:
        json_putf(out, "evicted %u turn%s ago", detail, detail == 1 ? "" : "s");
        break;
    case STREAM_RANK:
        json_putf(out, "guessed at rank %u, behind those that are read ahead", detail);
        break;
    case STREAM_CROWDED:
        json_putf(out, "guessed at rank %u, but no slot was idle to read it into", detail);
        break;
    case STREAM_LATE:
        if (detail < STREAM_RANKS_MOST)
            json_putf(out, "guessed at rank %u, but late by %llu us", detail,
                      (unsigned long long)w->us);
        else
            json_putf(out, "read ahead, but late by %llu us", (unsigned long long)w->us);
        break;
    default:
        json_puts(out, why_names[w->why]);
    }
}

static void put_pass(const struct explained_pass *p, struct json_out *out)
{
    json_putf(out, "token %d", p->position);
    if (p->rows > 1)
        json_putf(out, " to %d", p->position + p->rows - 1);
    json_putf(out, ": %.1f ms, waited %.1f ms\n", (double)p->us * 1e-3, (double)p->wait_us * 1e-3);
    for (int i = 0; i < p->waits; i++) {
        const struct stream_wait *w = &p->wait[i];
        if (w->expert >= 0)
            json_putf(out, "  %7llu us  layer %d, expert %d: ", (unsigned long long)w->us, w->layer,
                      w->expert);
        else
            json_putf(out, "  %7llu us  layer %d: ", (unsigned long long)w->us, w->layer);
        put_why(w, out);
        json_puts(out, "\n");
    }
    if (p->others)
        json_putf(out, "  %7llu us  %d shorter waits\n", (unsigned long long)p->other_us,
                  p->others);
    if (p->rows_us)
        json_putf(out, "  %7llu us  rows of the n-gram table\n", (unsigned long long)p->rows_us);
}

char *strata_explain_text(struct strata_model *m, struct strata_error *error)
{
    struct err e;
    err_clear(&e);
    struct explaining *x = m->explaining;
    struct json_out out = {0};
    if (!x) {
        err_set(&e, ERR_USAGE, "%s: nothing is being explained", m->path);
        session_report(error, &e);
        return NULL;
    }
    note_rows(m, x);
    uint64_t sum = x->rows_us;
    for (int i = 0; i < STREAM_WHYS; i++)
        sum += x->us[i];
    json_putf(&out, "waited %llu us in all\n", (unsigned long long)sum);
    for (int i = 0; i < STREAM_WHYS; i++)
        if (x->times[i])
            json_putf(&out, "  %9llu us, %llu times: %s\n", (unsigned long long)x->us[i],
                      (unsigned long long)x->times[i], why_names[i]);
    if (x->rows_us)
        json_putf(&out, "  %9llu us: rows of the n-gram table\n", (unsigned long long)x->rows_us);
    json_puts(&out, x->n ? "the slowest tokens of the answer:\n" : "no token of an answer\n");
    for (int i = 0; i < x->n; i++)
        put_pass(&x->slowest[i], &out);
    int64_t trunk_us = session_trunk_us(m) - x->trunk_before_us;
    if (trunk_us)
        json_putf(&out, "besides, the first tokens waited %lld us for weights that were being loaded\n",
                  (long long)trunk_us);
    if (out.failed) {
        err_set(&e, ERR_MEMORY, "%s: no memory for the explanation", m->path);
        json_out_free(&out);
    }
    session_report(error, &e);
    return out.text;
}
