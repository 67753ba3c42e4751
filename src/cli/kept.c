/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/kept.h"

#include <stdio.h>

#include "base/cache.h"
#include "base/file.h"
#include "base/mem.h"
#include "session/session.h"

#define KEPT_BYTES_MOST ((size_t)64 << 10)

void kept_write(const char *name, const struct json_out *text)
{
    char path[4096];
    struct err ignored;
    err_clear(&ignored);
    struct file_writer w;
    if (text->failed || !cache_path(name, true, path, sizeof path) ||
        !file_write_begin(&w, path, 0600, &ignored))
        return;
    if (file_write(&w, text->text, text->bytes, &ignored))
        file_write_commit(&w, &ignored);
    else
        file_write_abort(&w);
}

char *kept_read(const char *name, size_t *bytes)
{
    char path[4096];
    struct err ignored;
    err_clear(&ignored);
    return cache_path(name, false, path, sizeof path)
               ? file_read_all(path, KEPT_BYTES_MOST, bytes, &ignored)
               : NULL;
}

/* ---- The time of a token -------------------------------------------------------------------- */

bool kept_is_compute(double ms)
{
    return ms > 0 && ms <= 1e6;
}

static bool compute_name(struct strata_model *m, char *out, size_t room)
{
    char setup[SESSION_SETUP_BYTES];
    struct err ignored;
    err_clear(&ignored);
    if (!session_setup_name(m, setup, sizeof setup, &ignored))
        return false;
    int n = snprintf(out, room, "compute-%s.json", setup);
    return n > 0 && (size_t)n < room;
}

void kept_write_compute(struct strata_model *m, double ms)
{
    char name[2 * SESSION_SETUP_BYTES];
    struct json_out out = {0};
    if (!kept_is_compute(ms) || !compute_name(m, name, sizeof name))
        return;
    json_puts(&out, "{\"compute_ms\": ");
    json_put_f64(&out, ms);
    json_puts(&out, "}\n");
    kept_write(name, &out);
    json_out_free(&out);
}

double kept_read_compute(struct strata_model *m)
{
    char name[2 * SESSION_SETUP_BYTES];
    size_t bytes;
    double ms = 0;
    struct err ignored;
    err_clear(&ignored);
    char *text = compute_name(m, name, sizeof name) ? kept_read(name, &bytes) : NULL;
    struct json_doc *d = text ? json_parse(text, bytes, name, &ignored) : NULL;
    const struct json *said = d ? json_get(json_root(d), "compute_ms") : NULL;
    if (!said || !json_f64(said, &ms) || !kept_is_compute(ms))
        ms = 0;
    json_free(d);
    mem_free(text);
    return ms;
}
