/* SPDX-License-Identifier: Apache-2.0 */
/* Finds cases in directories and tells their kinds apart by their keys, never by their names (but
 * for pieces.tsv). What fits no kind is not a case. */
#include "cases_main.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cases_gguf.h"
#include "cases_model.h"
#include "cases_quant.h"
#include "cases_text.h"

#define FILE_MOST ((size_t)256 << 20)
#define DIRS_MOST 64

struct walk {
    struct case_report *r;
    struct cases_context text;
    const char *models_dir;
    bool failed;
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool has(const struct json *v, const char *key)
{
    return json_get(v, key) != NULL;
}

/* Kinds of lines that later versions will run. */
static const char *later_kind(const struct json *v)
{
    if (has(v, "format") && has(v, "steps"))
        return "tool calls are not supported yet";
    if (has(v, "api") && has(v, "sse"))
        return "event streams are not supported yet";
    if ((has(v, "raw") || has(v, "raw_base64") || has(v, "raw_parts")) && has(v, "expect"))
        return "HTTP is not supported yet";
    return NULL;
}

static void run_lines(struct walk *w, const char *path, const char *text, size_t bytes)
{
    int line_no = 0;
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        char name[32];
        struct err e = {0};
        snprintf(name, sizeof name, "line %d", ++line_no);
        struct json_doc *d = n ? json_parse(at, n, name, &e) : NULL;
        const char *later = d ? later_kind(json_root(d)) : NULL;
        if (later)
            case_skip(w->r, path, name, later);
        else if (d)
            cases_text_line(json_root(d), path, line_no, &w->text, w->r);
        else if (n)
            case_fail(w->r, path, name, "JSON", e.text);
        json_free(d);
        at += n + 1;
    }
}

static void run_json(struct walk *w, const char *path, const char *text, size_t bytes)
{
    struct json_doc *d = json_parse(text, bytes, path, NULL);
    const struct json *v = d ? json_root(d) : NULL;
    if (v && has(v, "types") && has(v, "dot") && ends_with(path, "/manifest.json"))
        cases_quant(path, w->r);
    else if (v && has(v, "format") && has(v, "model") && has(v, "prompts"))
        cases_model(v, path, w->models_dir, w->r);
    json_free(d);
}

/* First line of a table with the columns of the GGUF cases. */
static bool is_gguf_table(const char *text)
{
    char head[256];
    snprintf(head, sizeof head, "%.*s", (int)strcspn(text, "\n"), text);
    return strstr(head, "file") && strstr(head, "rule") && strstr(head, "must");
}

static void run_file(struct walk *w, const char *path)
{
    bool lines = ends_with(path, ".jsonl"), json = ends_with(path, ".json");
    bool table = ends_with(path, "/cases.tsv"), pieces = ends_with(path, "/pieces.tsv");
    if (!lines && !json && !table && !pieces)
        return;
    struct err e = {0};
    size_t bytes;
    char *text = file_read_all(path, FILE_MOST, &bytes, &e);
    if (!text)
        case_fail(w->r, path, "file", "a readable file", e.text);
    else if (lines)
        run_lines(w, path, text, bytes);
    else if (json)
        run_json(w, path, text, bytes);
    else if (pieces)
        cases_text_pieces(path, &w->text, w->r);
    else if (is_gguf_table(text))
        cases_gguf(path, w->r);
    mem_free(text);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void walk(struct walk *w, const char *folder)
{
    struct dirent **list;
    int n = scandir(folder, &list, NULL, by_name);
    if (n < 0) {
        fprintf(stderr, "%s: not a folder that can be read\n", folder);
        w->failed = true;
        return;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && !stat(path, &st)) {
            if (S_ISDIR(st.st_mode))
                walk(w, path);
            else if (S_ISREG(st.st_mode))
                run_file(w, path);
        }
        free(list[i]);
    }
    free(list);
}

static long counted(const struct case_report *r)
{
    return r->passed + r->failed + r->skipped;
}

/* Fills the folders of `w`; false after one sentence on stderr. */
static bool parse(struct walk *w, int argc, char **argv, const char **dirs, size_t *n_dirs,
                  const char **vocab)
{
    const char *given = NULL;
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "-v")) {
            w->r->verbose = true;
        } else if (!strcmp(argv[i], "--vocab") && value) {
            given = argv[++i];
        } else if (!strcmp(argv[i], "--models") && value) {
            w->models_dir = argv[++i];
        } else if (!strcmp(argv[i], "--server") && value) {
            i++; /* for the HTTP cases, which are skipped so far */
        } else if (argv[i][0] == '-' || *n_dirs == DIRS_MOST) {
            fprintf(stderr, "strata-check cases: \"%s\" is not understood\n", argv[i]);
            return false;
        } else {
            dirs[(*n_dirs)++] = argv[i];
        }
    }
    if (!*n_dirs) {
        fprintf(stderr, "usage: strata-check cases [--vocab DIR] [--models DIR] [-v] DIR...\n");
        return false;
    }
    w->text.vocab_dirs = vocab;
    if (given) {
        vocab[w->text.n_vocab_dirs++] = given;
        return true;
    }
    for (size_t i = 0; i < *n_dirs; i++)
        vocab[w->text.n_vocab_dirs++] = dirs[i];
    vocab[w->text.n_vocab_dirs++] = BUILD_VOCAB; /* what the build unpacked */
    return true;
}

int cases_main(int argc, char **argv)
{
    const char *dirs[DIRS_MOST], *vocab[DIRS_MOST + 1];
    size_t n_dirs = 0;
    struct case_report r = {0};
    struct walk w = {.r = &r};
    if (!parse(&w, argc, argv, dirs, &n_dirs, vocab))
        return 2;
    for (size_t i = 0; i < n_dirs; i++) {
        long before = counted(&r);
        walk(&w, dirs[i]);
        if (counted(&r) == before && !w.failed) {
            fprintf(stderr, "%s: no case found\n", dirs[i]);
            w.failed = true;
        }
    }
    cases_context_close(&w.text);
    printf("%ld passed, %ld failed, %ld skipped\n", r.passed, r.failed, r.skipped);
    return r.failed || w.failed ? 1 : 0;
}
