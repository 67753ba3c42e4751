/* SPDX-License-Identifier: Apache-2.0 */
/* `strata logits`: the scores of the vocabulary after every id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/dump.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/report.h"

struct logits {
    const struct options *o;
    struct strata_model *model;
    struct strata_session *session;
    int32_t *ids;
    size_t n, vocab;
    struct file_writer file;   /* when --out is given */
    struct strata_error error; /* of writing, while a pass is under way */
    struct dump *dump;
};

static bool read_ids(struct logits *l, struct strata_error *e)
{
    const char *path = option_text(l->o, OPTION_IDS), *name = strcmp(path, "-") ? path : "stdin";
    struct strata_model_info info;
    if (!strata_model_info(l->model, &info, e))
        return false;
    l->vocab = (size_t)info.vocab;
    size_t bytes;
    char *text = input_read(path, &bytes, e);
    bool ok = text && input_ids(text, bytes, name, info.vocab, &l->ids, &l->n, e);
    mem_free(text);
    if (ok && l->n == 0)
        return fail(e, STRATA_FORMAT, "%s: holds no ids", name);
    return ok;
}

static bool check_fits(struct logits *l, struct strata_error *e)
{
    size_t cut = (size_t)l->o->value[OPTION_CUT].whole;
    struct strata_plan plan;
    if (!strata_plan_get(l->model, &plan, e))
        return false;
    if (l->n > (size_t)plan.ctx)
        return fail(e, STRATA_UNSUPPORTED,
                    "there are %zu ids, the context holds %d: --ctx %zu would hold them", l->n,
                    plan.ctx, l->n);
    if (cut > l->n)
        return fail(e, STRATA_USAGE, "--cut %zu is behind the last of the %zu id%s", cut, l->n,
                    l->n == 1 ? "" : "s");
    return true;
}

/* ---- Writing -------------------------------------------------------------------------------- */

static bool write_rows(struct logits *l, const float *rows, size_t n)
{
    struct err low;
    err_clear(&low);
    file_write(&l->file, rows, n * l->vocab * sizeof *rows, &low);
    return take_error(&l->error, &low);
}

static bool begin_file(struct logits *l, struct strata_error *e)
{
    const char *path = option_text(l->o, OPTION_OUT);
    if (!path)
        return true;
    if (!output_begin(&l->file, path, e))
        return false;
    char header[NPY_HEADER_MOST];
    size_t dims[2] = {option_given(l->o, OPTION_LAST) ? 1 : l->n, l->vocab};
    size_t bytes = npy_header(header, STRATA_F32, dims, 2);
    struct err low;
    err_clear(&low);
    file_write(&l->file, header, bytes, &low);
    return take_error(e, &low);
}

static bool end_file(struct logits *l, struct strata_error *e)
{
    if (!l->file.path)
        return true;
    if (option_given(l->o, OPTION_LAST) && !write_rows(l, strata_logits(l->session), 1))
        return fail(e, l->error.code, "%s", l->error.text);
    struct err low;
    err_clear(&low);
    file_write_commit(&l->file, &low);
    return take_error(e, &low);
}

static bool take_rows(void *ctx, size_t first, size_t rows, const float *logits)
{
    return write_rows(ctx, logits, rows);
}

static void take_dump(void *ctx, const char *name, enum strata_element type, const void *data,
                      int rows, int n_dims, const int *dims)
{
    const struct logits *l = ctx;
    dump_take(l->dump, name, type, data, rows, n_dims, dims);
}

/* ---- Feeding -------------------------------------------------------------------------------- */

/* Feeds ids[from .. to - 1]: as a prompt, or with --window as decode steps. */
static bool feed(struct logits *l, size_t from, size_t to, struct strata_error *e)
{
    struct strata_pass pass = prompt_pass;
    pass.ctx = l;
    if (l->file.path && !option_given(l->o, OPTION_LAST))
        pass.logits = take_rows;
    if (l->dump)
        pass.dump = take_dump;
    size_t window = (size_t)l->o->value[OPTION_WINDOW].whole;
    bool ok = true;
    if (!window) {
        ok = strata_feed(l->session, l->ids + from, to - from, &pass, e);
    } else {
        while (ok && from < to) {
            size_t rows = to - from < window ? to - from : window;
            ok = strata_step(l->session, l->ids + from, (int)rows, &pass, e);
            from += rows;
        }
    }
    message_progress_end();
    if (l->error.code != STRATA_OK) /* the pass was stopped by it */
        *e = l->error;
    return ok;
}

/* A name for the state of --cut, beside what is written. */
static char *state_path(struct logits *l, struct strata_error *e)
{
    const char *beside = l->file.path ? l->file.path : option_text(l->o, OPTION_DUMP);
    struct err low;
    err_clear(&low);
    size_t room = strlen(beside) + 16;
    char *path = mem_alloc(room, "a file name", &low);
    if (!take_error(e, &low))
        return NULL;
    snprintf(path, room, "%s.cut-XXXXXX", beside);
    int fd = mkstemp(path);
    if (fd < 0) {
        fail(e, STRATA_IO, "%s: a temporary file cannot be made", path);
        mem_free(path);
        return NULL;
    }
    close(fd);
    return path;
}

/* Saves, drops the session and goes on with a new one. */
static bool cut(struct logits *l, struct strata_error *e)
{
    char *path = state_path(l, e);
    if (!path)
        return false;
    bool ok = strata_save(l->session, path, e);
    if (ok) {
        strata_session_free(l->session);
        l->session = strata_session_create(l->model, e);
        ok = l->session && strata_load(l->session, path, &prompt_pass, e);
    }
    unlink(path);
    mem_free(path);
    return ok;
}

static bool feed_all(struct logits *l, struct strata_error *e)
{
    size_t at = (size_t)l->o->value[OPTION_CUT].whole;
    return (!at || (feed(l, 0, at, e) && cut(l, e))) && (at == l->n || feed(l, at, l->n, e));
}

static bool open_dump(struct logits *l, struct strata_error *e)
{
    const char *folder = option_text(l->o, OPTION_DUMP);
    return !folder || (l->dump = dump_create(folder, e)) != NULL;
}

static bool begin_notes(struct logits *l, struct strata_error *e)
{
    const char *path = option_text(l->o, OPTION_TRACE);
    return (!path || strata_trace_begin(l->model, path, option_trace_guesses(l->o), e)) &&
           (!option_given(l->o, OPTION_EXPLAIN) || strata_explain_begin(l->model, e));
}

enum status command_logits(const struct options *o)
{
    interrupt_listen(false);
    struct strata_error e = {0};
    struct logits l = {.o = o, .model = open_model(o, 0, &e), .file.fd = -1};
    bool ok = l.model && read_ids(&l, &e) && check_fits(&l, &e) && begin_file(&l, &e) &&
              open_dump(&l, &e) && load_model(l.model, &e) && begin_notes(&l, &e) &&
              (l.session = strata_session_create(l.model, &e)) != NULL && feed_all(&l, &e) &&
              strata_trace_end(l.model, &e) && (!l.dump || dump_finish(l.dump, &e)) &&
              end_file(&l, &e) &&
              (!option_given(o, OPTION_EXPLAIN) || report_waits(l.model, &e));
    dump_free(l.dump);
    file_write_abort(&l.file);
    strata_session_free(l.session);
    mem_free(l.ids);
    strata_model_free(l.model);
    return ok ? STATUS_DONE : message_error(&e);
}
