/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/probe_cache.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "cli/kept.h"

void probe_put_json(const struct probe *p, const char *path, struct json_out *out)
{
    json_puts(out, "{");
    if (path) {
        json_puts(out, "\"file\": ");
        json_put_string(out, path, strlen(path));
        json_puts(out, ", ");
    }
    json_putf(out, "\"engine\": \"%s\", \"direct\": %s, \"points\": [", p->engine,
              p->is_direct ? "true" : "false");
    for (int i = 0; i < p->points; i++) {
        const struct probe_point *at = &p->point[i];
        json_putf(out,
                  "%s{\"bytes\": %llu, \"depth\": %d, \"parts\": %d, \"gb_s\": ", i ? ", " : "",
                  (unsigned long long)at->bytes, at->depth, at->parts);
        json_put_f64(out, at->gb_s);
        json_puts(out, ", \"p50_us\": ");
        json_put_f64(out, at->p50_us);
        json_puts(out, ", \"p99_us\": ");
        json_put_f64(out, at->p99_us);
        json_puts(out, ", \"cpu_us\": ");
        json_put_f64(out, at->cpu_us);
        json_puts(out, "}");
    }
    json_puts(out, "]}\n");
}

#define SLOWEST_GB_S 1e-4 /* no drive is slower, and what divides by it stays in range */

/* ---- Reading -------------------------------------------------------------------------------- */

static bool read_whole(const struct json *v, const char *key, int64_t most, int64_t *out)
{
    const struct json *n = json_get(v, key);
    return n && json_i64(n, out) && *out > 0 && *out <= most;
}

/* Up to 1e8: no read takes 100 seconds, and times of many can be added up as nanoseconds. */
static bool read_real(const struct json *v, const char *key, double *out)
{
    const struct json *n = json_get(v, key);
    double is;
    if (!n || !json_f64(n, &is) || !(is > 0 && is <= 1e8))
        return false;
    *out = is;
    return true;
}

static bool read_point(const struct json *v, struct probe_point *out)
{
    int64_t bytes, depth, parts;
    if (!read_whole(v, "bytes", INT64_C(1) << 40, &bytes) ||
        !read_whole(v, "depth", 4096, &depth) || !read_whole(v, "parts", 4096, &parts))
        return false;
    out->bytes = (uint64_t)bytes;
    out->depth = (int)depth;
    out->parts = (int)parts;
    read_real(v, "cpu_us", &out->cpu_us); /* not in files of older programs */
    return read_real(v, "gb_s", &out->gb_s) && out->gb_s >= SLOWEST_GB_S && read_real(v, "p50_us", &out->p50_us) &&
           read_real(v, "p99_us", &out->p99_us);
}

bool probe_read_json(const char *text, size_t bytes, const char *name, struct probe *out,
                     struct err *e)
{
    *out = (struct probe){0};
    struct json_doc *d = json_parse(text, bytes, name, e);
    if (!d)
        return false;
    const struct json *root = json_root(d), *points = json_get(root, "points");
    const struct json *engine = json_get(root, "engine");
    bool ok =
        points && points->kind == JSON_ARRAY && points->count > 0 && points->count <= PROBE_POINTS;
    if (ok && engine && engine->kind == JSON_STRING)
        snprintf(out->engine, sizeof out->engine, "%s", engine->text);
    const struct json *direct = json_get(root, "direct");
    out->is_direct = direct && direct->kind == JSON_TRUE;
    for (size_t i = 0; ok && i < points->count; i++, out->points++)
        ok = read_point(&points->items[i], &out->point[i]);
    json_free(d);
    return ok || err_set(e, ERR_FORMAT, "%s: not what `strata probe --json` prints", name);
}

/* ---- The kept file -------------------------------------------------------------------------- */

static bool name_of_drive(const char *path, char *out, size_t room)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    snprintf(out, room, "probe-%llx.json", (unsigned long long)st.st_dev);
    return true;
}

void probe_keep(const struct probe *p, const char *path)
{
    char name[64];
    struct json_out text = {0};
    probe_put_json(p, NULL, &text);
    if (name_of_drive(path, name, sizeof name))
        kept_write(name, &text);
    json_out_free(&text);
}

bool probe_recall(const char *path, struct probe *out)
{
    char name[64];
    struct err ignored;
    err_clear(&ignored);
    size_t bytes;
    char *text = name_of_drive(path, name, sizeof name) ? kept_read(name, &bytes) : NULL;
    bool ok = text && probe_read_json(text, bytes, name, out, &ignored);
    mem_free(text);
    return ok;
}
