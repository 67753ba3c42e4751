/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cases_gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "gguf/listing.h"

#define TABLE_BYTES_MOST ((size_t)16 << 20)
#define PATH_BYTES 4096
#define COLUMNS_MOST 16

/* A line of the table; a column that the table lacks is an empty text. */
struct gguf_case {
    const char *file, *must, *words, *shows;
    char path[PATH_BYTES];
};

/* ---- refuse ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Replaces the name after the last slash of a path. */
static void set_name(char path[PATH_BYTES], const char *name)
{
    char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    snprintf(path + folder, PATH_BYTES - folder, "%s", name);
}

/* Does the message hold every word? A word that is a file name says which part is at fault:
 * `at_fault` then becomes its path. */
static bool has_words(const char *message, const char *words, char at_fault[PATH_BYTES])
{
    bool all = true;
    while (*words) {
        char word[256];
        size_t n = strcspn(words, "|");
        snprintf(word, sizeof word, "%.*s", (int)n, words);
        if (!strstr(message, word))
            all = false;
        if (ends_with(word, ".gguf"))
            set_name(at_fault, word);
        words += n + (words[n] == '|');
    }
    return all;
}

static bool is_clear_refusal(const struct gguf_case *c, const char *message)
{
    char at_fault[PATH_BYTES];
    snprintf(at_fault, sizeof at_fault, "%s", c->path);
    bool all = has_words(message, c->words, at_fault);
    size_t n = strlen(at_fault);
    return all && !strchr(message, '\n') && strncmp(message, at_fault, n) == 0 && message[n] == ':';
}

static void run_refuse(const struct gguf_case *c, const char *tsv_path, struct case_report *r)
{
    struct err e = {0};
    struct gguf_file *g = gguf_open(c->path, &e);
    char expected[512];
    snprintf(expected, sizeof expected, "a refusal with %s", c->words);
    if (!g && is_clear_refusal(c, e.text))
        case_pass(r);
    else
        case_fail(r, tsv_path, c->file, expected, g ? "a file that loads" : e.text);
    gguf_close(g);
}

/* ---- load ---- */

/* A listed value as the column `shows` writes it: numbers joined by x, texts as they are. */
static void write_value(const struct json *v, char *out, size_t room)
{
    size_t used = 0;
    *out = 0;
    if (!v)
        snprintf(out, room, "nothing");
    else if (v->kind == JSON_TRUE || v->kind == JSON_FALSE)
        snprintf(out, room, v->kind == JSON_TRUE ? "true" : "false");
    else if (v->kind == JSON_NUMBER || v->kind == JSON_STRING)
        snprintf(out, room, "%s", v->text);
    else if (v->kind == JSON_ARRAY)
        for (size_t i = 0; i < v->count && used + 1 < room; i++) {
            char item[64];
            write_value(&v->items[i], item, sizeof item);
            used += (size_t)snprintf(out + used, room - used, "%s%s", i ? "x" : "", item);
        }
}

/* Where the listing shows a fact: `type` and `ne` of the first tensor, counts, else a key. */
static const struct json *find_fact(const struct json *listing, const char *name)
{
    static const char *const counts[] = {"version", "alignment", "keys", "tensors", "files"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(name, counts[i]) == 0)
            return json_get(listing, name);
    if (strcmp(name, "type") != 0 && strcmp(name, "ne") != 0)
        return json_get(json_get(listing, "kv"), name);
    const struct json *tensors = json_get(listing, "tensor_list");
    return tensors && tensors->count ? json_get(&tensors->items[0], name) : NULL;
}

/* Compares all facts; on the first that differs `got` says what is shown. */
static bool shows_facts(const struct json *listing, const char *shows, char *got, size_t room)
{
    while (*shows) {
        char fact[256], value[256];
        size_t n = strcspn(shows, " ");
        snprintf(fact, sizeof fact, "%.*s", (int)n, shows);
        shows += n + (shows[n] == ' ');
        char *equals = strchr(fact, '=');
        if (!equals)
            continue;
        *equals = 0;
        write_value(find_fact(listing, fact), value, sizeof value);
        if (strcmp(value, equals + 1) != 0) {
            snprintf(got, room, "%s=%s", fact, value);
            return false;
        }
    }
    return true;
}

static void run_load(const struct gguf_case *c, const char *tsv_path, struct case_report *r)
{
    struct err e = {0};
    struct json_out out = {0};
    struct json_doc *listing = NULL;
    char got[600] = "";
    struct gguf_file *g = gguf_open(c->path, &e);
    if (g && gguf_list_json(g, (struct gguf_listing){true, true}, &out, &e))
        listing = json_parse(out.text, out.bytes, "listing", &e);
    if (listing && shows_facts(json_root(listing), c->shows, got, sizeof got))
        case_pass(r);
    else
        case_fail(r, tsv_path, c->file, *c->shows ? c->shows : "a file that loads",
                  listing ? got : e.text);
    json_free(listing);
    json_out_free(&out);
    gguf_close(g);
}

/* ---- the table ---- */

/* Cuts a line at its tabs; returns the number of cells. */
static int split_cells(char *line, char *cells[COLUMNS_MOST])
{
    int n = 0;
    while (n < COLUMNS_MOST) {
        cells[n++] = line;
        line = strchr(line, '\t');
        if (!line)
            break;
        *line++ = 0;
    }
    return n;
}

struct columns {
    char *names[COLUMNS_MOST];
    int count;
};

static const char *cell(const struct columns *columns, const char *name, char **cells, int n)
{
    for (int i = 0; i < columns->count && i < n; i++)
        if (strcmp(columns->names[i], name) == 0)
            return cells[i];
    return "";
}

static void run_line(const struct columns *columns, char *line, const char *tsv_path,
                     struct case_report *r)
{
    char *cells[COLUMNS_MOST];
    int n = split_cells(line, cells);
    struct gguf_case c = {
        .file = cell(columns, "file", cells, n),
        .must = cell(columns, "must", cells, n),
        .words = cell(columns, "message_names", cells, n),
        .shows = cell(columns, "shows", cells, n),
    };
    snprintf(c.path, sizeof c.path, "%s", tsv_path);
    set_name(c.path, c.file);
    if (strcmp(c.must, "refuse") == 0)
        run_refuse(&c, tsv_path, r);
    else if (strcmp(c.must, "load") == 0)
        run_load(&c, tsv_path, r);
    else
        case_skip(r, tsv_path, c.file, "the column must is neither refuse nor load");
}

void cases_gguf(const char *tsv_path, struct case_report *r)
{
    struct err e = {0};
    size_t bytes;
    char *text = file_read_all(tsv_path, TABLE_BYTES_MOST, &bytes, &e);
    if (!text) {
        case_fail(r, tsv_path, "table", "a table of cases", e.text);
        return;
    }
    struct columns columns = {0};
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (!columns.count)
            columns.count = split_cells(line, columns.names);
        else if (*line)
            run_line(&columns, line, tsv_path, r);
    }
    mem_free(text);
}
