/* SPDX-License-Identifier: Apache-2.0 */
/* Everything here goes through the public API, as a user would. Each prompt is fed whole, and once
 * more in small windows, mostly token by token: those two must have the same bits. */
#include "cases_model.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "gguf/gguf.h"
#include "npy.h"
#include "strata.h"

/* The demo model's fixture (its README): bounds for what its json leaves out. */
#define ROUNDED_MOST 0.02     /* of max_abs_logit, activations rounded to 8 bits */
#define CLOSE_CALL_MOST 1e-3  /* where a router gap is below this, the sums may choose otherwise */

/* Rows that are fed one by one where weights are decoded for exact activations, which is slow; those
 * behind them in windows of WIDE. */
#define SINGLE_MOST 48
#define WIDE 7

struct run {
    struct case_report *r;
    const char *path;         /* of the json */
    const struct json *root;
    const char *mode;         /* for names of cases: "", "exact", "act8" */
    bool rounded;             /* activations are rounded to 8 bits */
    struct strata_model *m;
    int vocab;
};

struct prompt {
    const char *name;
    const struct json *json;
    int32_t *ids;
    size_t n;
    float *logits; /* [n][vocab] */
};

static void fail(struct run *u, const char *prompt, const char *what, const char *expected,
                 const char *got)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s%s %s", prompt, *u->mode ? " " : "", u->mode, what);
    case_fail(u->r, u->path, name, expected, got);
}

static void outcome(struct run *u, const char *prompt, const char *what, bool ok, const char *expected,
                    const char *got)
{
    if (ok)
        case_pass(u->r);
    else
        fail(u, prompt, what, expected, got);
}

static int32_t *int_list(const struct json *list, size_t *n)
{
    *n = list && list->kind == JSON_ARRAY ? list->count : 0;
    int32_t *out = malloc((*n + 1) * sizeof *out);
    for (size_t i = 0; out && i < *n; i++) {
        int64_t v = -1;
        json_i64(&list->items[i], &v);
        out[i] = (int32_t)v;
    }
    return out;
}

static void beside(const struct run *u, const char *file, char *out, size_t bytes)
{
    const char *slash = strrchr(u->path, '/');
    snprintf(out, bytes, "%.*s%s", slash ? (int)(slash - u->path + 1) : 0, u->path, file);
}

static bool open_array(struct run *u, const struct prompt *p, const char *key, struct npy_file *out)
{
    char path[4096];
    struct err e = {0};
    beside(u, json_get(p->json, key)->text, path, sizeof path);
    if (!npy_open(out, path, &e)) {
        fail(u, p->name, key, "a readable array", e.text);
        return false;
    }
    if (!strcmp(key, "layers") || (out->members[0].array.type == NPY_F32 && out->members[0].array.n_dims))
        return true;
    fail(u, p->name, key, "an array of float32", "another");
    npy_close(out);
    return false;
}

static double number(const struct json *v, double missing)
{
    double d;
    return v && json_f64(v, &d) ? d : missing;
}

static int best(const float *x, int n)
{
    int b = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[b])
            b = i;
    return b;
}

/* ---- feeding -------------------------------------------------------------------------------- */

struct sink {
    float *to;
    int vocab;
};

static bool take(void *ctx, size_t first, size_t rows, const float *logits)
{
    struct sink *s = ctx;
    memcpy(s->to + first * (size_t)s->vocab, logits, rows * (size_t)s->vocab * sizeof(float));
    return true;
}

/* Collected intermediates: rows of one name one after the other. */
struct collected {
    struct part {
        char name[64];
        enum strata_element type;
        char *data;
        size_t bytes, rows, row_bytes;
    } *parts;
    size_t n;
};

static void collect(void *ctx, const char *name, enum strata_element type, const void *data, int rows,
                    int n_dims, const int *dims)
{
    struct collected *c = ctx;
    size_t bytes = type == STRATA_BOOL ? 1 : 4, i = 0;
    for (int d = 0; d < n_dims; d++)
        bytes *= (size_t)dims[d];
    while (i < c->n && strcmp(c->parts[i].name, name))
        i++;
    if (i == c->n) {
        c->parts = realloc(c->parts, (c->n + 1) * sizeof *c->parts);
        c->parts[c->n++] = (struct part){.type = type, .row_bytes = bytes};
        snprintf(c->parts[i].name, sizeof c->parts[i].name, "%s", name);
    }
    struct part *p = &c->parts[i];
    if (!rows) /* a whole array: the last one counts */
        p->bytes = 0;
    size_t more = bytes * (size_t)(rows ? rows : 1);
    p->data = realloc(p->data, p->bytes + more);
    memcpy(p->data + p->bytes, data, more);
    p->bytes += more;
    p->rows = rows ? p->rows + (size_t)rows : 1;
}

static const struct part *find_part(const struct collected *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->parts[i].name, name))
            return &c->parts[i];
    return NULL;
}

static void free_collected(struct collected *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->parts[i].data);
    free(c->parts);
}

/* Rows of the small window at row i of a prompt. */
static int window_at(const struct run *u, const struct prompt *p, size_t i)
{
    if (strcmp(u->mode, "exact") || i < SINGLE_MOST)
        return 1;
    return p->n - i < WIDE ? (int)(p->n - i) : WIDE;
}

/* A new session with the prompt in it; logits of all rows. NULL after a failure, which is counted. */
static struct strata_session *feed(struct run *u, const struct prompt *p, bool in_windows,
                                   float *logits, struct collected *c)
{
    struct strata_error e = {0};
    struct sink sink = {logits, u->vocab};
    struct strata_pass pass = {.ctx = c ? (void *)c : (void *)&sink};
    struct strata_session *s = strata_session_create(u->m, &e);
    bool ok = s != NULL;
    if (c)
        pass.dump = collect;
    else
        pass.logits = take;
    if (!in_windows)
        ok = ok && strata_feed(s, p->ids, p->n, &pass, &e);
    for (size_t i = 0, rows; in_windows && ok && i < p->n; i += rows) {
        sink.to = logits + i * (size_t)u->vocab;
        rows = (size_t)window_at(u, p, i);
        ok = strata_step(s, &p->ids[i], (int)rows, &pass, &e);
    }
    if (ok)
        return s;
    fail(u, p->name, "feeding", "logits", e.text);
    strata_session_free(s);
    return NULL;
}

/* ---- what is compared ----------------------------------------------------------------------- */

/* Logits at the stored positions against the array `key`. */
static void check_logits(struct run *u, const struct prompt *p, const char *key, double allowed)
{
    struct npy_file gold;
    char want[64], got[96];
    size_t n;
    int32_t *at = int_list(json_get(p->json, "positions"), &n);
    if (!open_array(u, p, key, &gold)) {
        free(at);
        return;
    }
    const float *g = gold.members[0].array.data;
    double worst = 0, most = number(json_get(p->json, "max_abs_logit"), 1);
    bool fits = gold.members[0].array.count == n * (size_t)u->vocab;
    for (size_t i = 0; fits && i < n; i++)
        for (size_t v = 0; v < (size_t)u->vocab; v++) {
            double d = fabs((double)p->logits[(size_t)at[i] * (size_t)u->vocab + v] -
                            (double)g[i * (size_t)u->vocab + v]);
            worst = d > worst || d != d ? d : worst;
        }
    snprintf(want, sizeof want, "at most %.3g of %.4g", allowed, most);
    snprintf(got, sizeof got, "%.3g of it", worst / most);
    outcome(u, p->name, key, fits && worst <= allowed * most, want,
            fits ? got : "an array of another size");
    npy_close(&gold);
    free(at);
}

/* Root mean square of the difference as a part of that of the golden logits. */
static void check_rms(struct run *u, const struct prompt *p, double allowed)
{
    struct npy_file gold;
    char want[64], got[64];
    size_t n;
    int32_t *at = int_list(json_get(p->json, "positions"), &n);
    if (!open_array(u, p, "logits", &gold)) {
        free(at);
        return;
    }
    const float *g = gold.members[0].array.data;
    double squares = 0, off = 0;
    bool fits = gold.members[0].array.count == n * (size_t)u->vocab;
    for (size_t i = 0; fits && i < n; i++)
        for (size_t v = 0; v < (size_t)u->vocab; v++) {
            double x = (double)g[i * (size_t)u->vocab + v];
            double d = (double)p->logits[(size_t)at[i] * (size_t)u->vocab + v] - x;
            squares += x * x;
            off += d * d;
        }
    snprintf(want, sizeof want, "at most %.3g", allowed);
    snprintf(got, sizeof got, "%.3g", sqrt(off / squares));
    outcome(u, p->name, "rms", fits && sqrt(off) <= allowed * sqrt(squares), want,
            fits ? got : "an array of another size");
    npy_close(&gold);
    free(at);
}

static void check_argmax(struct run *u, const struct prompt *p)
{
    size_t n;
    int32_t *want = int_list(json_get(p->json, "argmax"), &n);
    char expected[32], got[64];
    bool ok = true;
    for (size_t i = 0; ok && i < n && i < p->n; i++) {
        int b = best(p->logits + i * (size_t)u->vocab, u->vocab);
        ok = b == want[i];
        snprintf(expected, sizeof expected, "%d", want[i]);
        snprintf(got, sizeof got, "%d at position %zu", b, i);
    }
    outcome(u, p->name, "argmax", ok, expected, got);
    free(want);
}

static void check_greedy(struct run *u, const struct prompt *p, struct strata_session *s)
{
    size_t n;
    int32_t *want = int_list(json_get(p->json, "greedy"), &n), id;
    char expected[32], got[96];
    struct strata_error e = {0};
    bool ok = strata_answer_begin(s, &(struct strata_sampling){.top_p = 1, .repetition_penalty = 1}, &e);
    snprintf(got, sizeof got, "%.90s", e.text);
    for (size_t i = 0; ok && i < n; i++) {
        ok = strata_sample(s, &id, &e) && strata_step(s, &id, 1, NULL, &e) && id == want[i];
        snprintf(expected, sizeof expected, "%d", want[i]);
        if (e.code)
            snprintf(got, sizeof got, "%.90s", e.text);
        else
            snprintf(got, sizeof got, "%d at step %zu", id, i);
    }
    outcome(u, p->name, "greedy", ok, expected, got);
    free(want);
}

/* Value i of an array that may lie at any address, as members of an archive do. */
static double float_at(const void *data, size_t i)
{
    float f;
    memcpy(&f, (const char *)data + i * sizeof f, sizeof f);
    return (double)f;
}

static int32_t int_at(const void *data, size_t i)
{
    return (int32_t)bytes_u32((const char *)data + i * sizeof(int32_t));
}

static bool same_value(const struct npy *gold, size_t i, const struct part *mine, size_t j, double abs,
                       double rel)
{
    if (gold->type == NPY_BOOL)
        return !((const char *)gold->data)[i] == !mine->data[j];
    if (gold->type == NPY_I32)
        return int_at(gold->data, i) == int_at(mine->data, j);
    double g = float_at(gold->data, i), x = float_at(mine->data, j);
    return (isnan(g) && isnan(x)) || fabs(x - g) <= abs + rel * fabs(g);
}

/* One stored intermediate: rows at the listed positions, or a whole array. */
static void check_layer(struct run *u, const struct prompt *p, const char *name, const struct npy *gold,
                        const struct collected *c, const int32_t *at, size_t n_at)
{
    const struct json *tol = json_get(u->root, "layers_tolerance");
    double abs = number(json_get(tol, "abs"), 0), rel = number(json_get(tol, "rel"), 0);
    const struct part *mine = find_part(c, name);
    size_t width = gold->type == NPY_BOOL ? 1 : 4;
    bool whole = strstr(name, ".gdn_state") != NULL;
    size_t row = whole || !n_at ? gold->count : gold->count / n_at;
    char got[96] = "nothing of this name", want[64] = "an intermediate";
    if (mine && mine->row_bytes != row * width)
        snprintf(got, sizeof got, "rows of %zu values", mine->row_bytes / width);
    bool ok = mine && mine->row_bytes == row * width;
    for (size_t i = 0; ok && i < (whole ? 1 : n_at); i++)
        for (size_t j = 0; ok && j < row; j++) {
            size_t k = whole ? j : (size_t)at[i] * row + j;
            ok = (k + 1) * width <= mine->bytes && same_value(gold, i * row + j, mine, k, abs, rel);
            if (!ok && gold->type == NPY_F32 && (k + 1) * width <= mine->bytes) {
                snprintf(want, sizeof want, "%g", float_at(gold->data, i * row + j));
                snprintf(got, sizeof got, "%g in row %zu, value %zu",
                         float_at(mine->data, k), whole ? 0 : (size_t)at[i], j);
            }
        }
    outcome(u, p->name, name, ok, want, got);
}

static void check_layers(struct run *u, const struct prompt *p, const struct collected *c)
{
    struct npy_file gold;
    size_t n;
    if (!json_get(p->json, "layers") || !open_array(u, p, "layers", &gold))
        return;
    int32_t *at = int_list(json_get(p->json, "layers_positions"), &n);
    for (size_t i = 0; i < gold.count; i++)
        check_layer(u, p, gold.members[i].name, &gold.members[i].array, c, at, n);
    free(at);
    npy_close(&gold);
}

/* `ngram_rows` [token][head] against the only N.ple_rows. */
static void check_ngram_rows(struct run *u, const struct prompt *p, const struct collected *c)
{
    const struct json *rows = json_get(p->json, "ngram_rows");
    const struct part *mine = NULL;
    for (size_t i = 0; i < c->n; i++)
        if (strstr(c->parts[i].name, ".ple_rows"))
            mine = &c->parts[i];
    if (!rows)
        return;
    bool ok = mine && mine->rows == rows->count;
    for (size_t t = 0; ok && t < rows->count; t++) {
        ok = rows->items[t].count * sizeof(int32_t) == mine->row_bytes;
        for (size_t h = 0; ok && h < rows->items[t].count; h++) {
            int64_t want = -1;
            json_i64(&rows->items[t].items[h], &want);
            ok = want == int_at(mine->data, t * rows->items[t].count + h);
        }
    }
    outcome(u, p->name, "ngram_rows", ok, "the rows of the hash", "others");
}

/* `experts` [layer][token][rank], and the trace: the residual after each layer. */
static void check_trace(struct run *u, const struct prompt *p, const struct collected *c)
{
    const struct json *experts = json_get(p->json, "experts");
    char name[64];
    for (size_t l = 0; experts && !u->rounded && l < experts->count; l++) {
        const struct json *layer = &experts->items[l];
        snprintf(name, sizeof name, "%zu.expert_ids", l);
        const struct part *mine = find_part(c, name);
        bool ok = mine && mine->rows == layer->count;
        for (size_t t = 0; ok && t < layer->count; t++) {
            ok = layer->items[t].count * sizeof(int32_t) == mine->row_bytes;
            for (size_t k = 0; ok && k < layer->items[t].count; k++) {
                int64_t want = -1;
                json_i64(&layer->items[t].items[k], &want);
                ok = want == int_at(mine->data, t * layer->items[t].count + k);
            }
        }
        outcome(u, p->name, name, ok, "the experts of the reference", "others");
    }
    struct npy_file gold;
    if (u->rounded || !json_get(p->json, "trace") || !open_array(u, p, "trace", &gold))
        return;
    const struct npy *g = &gold.members[0].array;
    size_t layers = g->dims[0], count = layers ? g->count / layers : 0;
    for (size_t l = 0; l < layers; l++) {
        snprintf(name, sizeof name, l + 1 < layers ? "%zu.in" : "out", l + 1);
        const struct part *mine = find_part(c, name);
        bool ok = mine && mine->bytes == count * sizeof(float);
        for (size_t i = 0; ok && i < count; i++) {
            double want = float_at(g->data, l * count + i);
            double got = float_at(mine->data, i);
            ok = fabs(want - got) <= 1e-4 + 1e-3 * fabs(want);
        }
        outcome(u, p->name, name, ok, "the residual of the reference", "another");
    }
    npy_close(&gold);
}

/* The draft layer's logits: row i joins the token at i + 1 with the residual at i. */
static void check_mtp(struct run *u, const struct prompt *p, const struct collected *c)
{
    struct npy_file gold;
    char want[64], got[96];
    if (!open_array(u, p, "mtp", &gold))
        return;
    const float *g = gold.members[0].array.data;
    const struct part *mine = find_part(c, "draft");
    size_t count = (p->n - 1) * (size_t)u->vocab;
    bool fits = mine && gold.members[0].array.count == count && mine->bytes == count * sizeof *g;
    double allowed = number(json_get(json_get(u->root, "tolerance"), "value"), 0), most = 1, off = 0;
    for (size_t i = 0; fits && i < count; i++) {
        double d = fabs(float_at(mine->data, i) - (double)g[i]);
        off = d > off || d != d ? d : off;
        most = fmax(most, fabs((double)g[i]));
    }
    snprintf(want, sizeof want, "at most %.3g of %.4g", allowed, most);
    snprintf(got, sizeof got, "%.3g of it", off / most);
    outcome(u, p->name, "mtp", fits && off <= allowed * most, want,
            fits ? got : "an array of another size");
    npy_close(&gold);
}

static bool has_intermediates(const struct prompt *p)
{
    return json_get(p->json, "layers") || json_get(p->json, "ngram_rows") ||
           json_get(p->json, "experts") || json_get(p->json, "trace") ||
           json_get(p->json, "mtp");
}

static bool all_positions(const struct prompt *p, const char *key)
{
    size_t n;
    int32_t *at = int_list(json_get(p->json, key), &n);
    bool ok = at != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = at[i] >= 0 && (size_t)at[i] < p->n;
    free(at);
    return ok;
}

/* What the comparisons index by and read; false after a failure, which is counted. */
static bool well_formed(struct run *u, const struct prompt *p)
{
    static const char *const lists[] = {"positions", "layers_positions"};
    static const char *const arrays[] = {"logits", "act8", "layers", "trace", "mtp"};
    if (!p->ids || !p->n) {
        fail(u, p->name, "tokens", "a list of ids", "none");
        return false;
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!all_positions(p, lists[i])) {
            fail(u, p->name, lists[i], "places in the prompt", "one outside");
            return false;
        }
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const struct json *file = json_get(p->json, arrays[i]);
        if (file ? file->kind != JSON_STRING : i == 0) {
            fail(u, p->name, arrays[i], "the name of an array", file ? "another value" : "nothing");
            return false;
        }
    }
    return true;
}

static void check_prompt(struct run *u, struct prompt *p)
{
    if (!well_formed(u, p))
        return;
    size_t bytes = p->n * (size_t)u->vocab * sizeof(float);
    float *steps = malloc(bytes);
    struct collected c = {0};
    p->logits = malloc(bytes);
    struct strata_session *s = feed(u, p, false, p->logits, NULL);
    struct strata_session *t = s ? feed(u, p, true, steps, NULL) : NULL;
    struct strata_session *d = t && has_intermediates(p) ? feed(u, p, false, NULL, &c) : NULL;
    if (t && (d || !has_intermediates(p))) {
        const struct json *root = u->root;
        double exact = number(json_get(json_get(root, "tolerance"), "value"), 0);
        outcome(u, p->name, "small windows", !memcmp(p->logits, steps, bytes),
                "the bits of the whole prompt", "others");
        if (!u->rounded) {
            if (number(json_get(p->json, "min_router_gap"), 1) < CLOSE_CALL_MOST)
                exact = fmax(exact, CLOSE_CALL_MOST);
            check_logits(u, p, "logits", exact);
            if (json_get(p->json, "argmax"))
                check_argmax(u, p);
        } else if (json_get(p->json, "act8")) {
            check_logits(u, p, "act8", number(json_get(json_get(root, "tolerance_act8"), "value"), 0));
            check_rms(u, p, number(json_get(json_get(root, "tolerance_rms"), "value"), 0));
        } else if (json_get(p->json, "greedy")) {
            check_logits(u, p, "logits", ROUNDED_MOST);
        }
        if (json_get(p->json, "greedy"))
            check_greedy(u, p, s);
        check_layers(u, p, &c);
        check_ngram_rows(u, p, &c);
        check_trace(u, p, &c);
    }
    if (d && json_get(p->json, "mtp") && !u->rounded)
        check_mtp(u, p, &c);
    strata_session_free(s);
    strata_session_free(t);
    strata_session_free(d);
    free_collected(&c);
    free(steps);
    free(p->logits);
}

/* ---- models --------------------------------------------------------------------------------- */

/* Whether a prompt has golden logits of the draft layer. */
static bool has_mtp(const struct run *u)
{
    const struct json *prompts = json_get(u->root, "prompts");
    for (size_t i = 0; i < prompts->count; i++)
        if (json_get(&prompts->items[i], "mtp"))
            return true;
    return false;
}

/* Tokens that the longest prompt and its continuation take. */
static int longest(const struct json *prompts)
{
    size_t most = 1;
    for (size_t i = 0; i < prompts->count; i++) {
        const struct json *tokens = json_get(&prompts->items[i], "tokens");
        const struct json *greedy = json_get(&prompts->items[i], "greedy");
        size_t n = (tokens ? tokens->count : 0) + (greedy ? greedy->count : 0);
        most = n > most ? n : most;
    }
    return most < INT_MAX ? (int)most : INT_MAX;
}

static bool open_model(struct run *u, const char *gguf, bool exact)
{
    struct strata_error e = {0};
    struct strata_model_info info;
    struct strata_options o = {.kv = STRATA_KV_F32, .exact_activations = exact, .sessions = 3,
                               .draft = has_mtp(u) ? STRATA_DRAFT_MTP : STRATA_DRAFT_AUTO,
                               .ctx = longest(json_get(u->root, "prompts"))};
    u->m = strata_model_open(gguf, &o, &e);
    if (u->m && strata_model_load(u->m, &e) && strata_model_info(u->m, &info, &e)) {
        u->vocab = info.vocab;
        return true;
    }
    fail(u, gguf, "opening", "a model", e.text);
    strata_model_free(u->m);
    return false;
}

static void run_prompts(struct run *u, const char *gguf, bool exact)
{
    const struct json *prompts = json_get(u->root, "prompts");
    if (!open_model(u, gguf, exact))
        return;
    for (size_t i = 0; i < prompts->count; i++) {
        struct prompt p = {.name = prompts->keys[i].text, .json = &prompts->items[i]};
        p.ids = int_list(json_get(p.json, "tokens"), &p.n);
        check_prompt(u, &p);
        free(p.ids);
    }
    strata_model_free(u->m);
}

/* A copy of the model with the named tensors set to zero: only the rule for equal scores decides. */
static bool write_with_zeros(const char *gguf, const struct json *names, const char *to, struct err *e)
{
    size_t bytes;
    struct gguf_file *g = gguf_open(gguf, e);
    char *data = g ? file_read_all(gguf, (size_t)1 << 30, &bytes, e) : NULL;
    struct file_writer w;
    bool ok = data != NULL;
    for (size_t i = 0; ok && i < names->count; i++) {
        const struct gguf_tensor *t = gguf_tensor_find(g, names->items[i].text ? names->items[i].text : "");
        ok = t || err_set(e, ERR_FORMAT, "%s: no tensor %s", gguf, names->items[i].text);
        if (ok)
            memset(data + t->offset, 0, t->bytes);
    }
    ok = ok && file_write_begin(&w, to, 0600, e);
    if (ok)
        ok = file_write(&w, data, bytes, e) ? file_write_commit(&w, e) : (file_write_abort(&w), false);
    mem_free(data);
    gguf_close(g);
    return ok;
}

/* What has to be the best id at the listed positions of the prompt that `ties` names. */
static void check_ties(struct run *u, const struct json *ties)
{
    struct prompt p = {.name = "ties"};
    size_t n, n_want;
    const struct json *name = json_get(ties, "prompt");
    const struct json *prompt = name && name->text ? json_get(json_get(u->root, "prompts"), name->text) : NULL;
    p.ids = int_list(json_get(prompt, "tokens"), &p.n);
    p.logits = malloc((p.n + 1) * (size_t)u->vocab * sizeof(float));
    p.json = ties;
    int32_t *at = int_list(json_get(ties, "positions"), &n);
    int32_t *want = int_list(json_get(ties, "argmax"), &n_want);
    struct strata_session *s = p.n ? feed(u, &p, false, p.logits, NULL) : NULL;
    bool ok = s && n == n_want && all_positions(&p, "positions");
    for (size_t i = 0; ok && i < n; i++)
        ok = best(p.logits + (size_t)at[i] * (size_t)u->vocab, u->vocab) == want[i];
    outcome(u, "ties", "argmax", ok, "the lower block of equal scores", "another choice");
    strata_session_free(s);
    free(at);
    free(want);
    free(p.ids);
    free(p.logits);
}

static void run_ties(struct run *u, const char *gguf)
{
    const struct json *ties = json_get(u->root, "ties"), *zero = json_get(ties, "zero");
    char path[] = "/tmp/strata-check-XXXXXX";
    struct err e = {0};
    if (!zero || zero->kind != JSON_ARRAY) {
        fail(u, "ties", "zero", "a list of tensors", "none");
        return;
    }
    int fd = mkstemp(path);
    if (fd >= 0)
        close(fd);
    if (fd < 0 || !write_with_zeros(gguf, zero, path, &e)) {
        fail(u, "ties", "copy", "a model with zeros", e.text);
    } else if (open_model(u, path, false)) {
        check_ties(u, ties);
        strata_model_free(u->m);
    }
    unlink(path);
}

static bool is_quantized(const char *gguf)
{
    struct gguf_file *g = gguf_open(gguf, NULL);
    bool quantized = false;
    for (size_t i = 0; g && i < gguf_tensor_count(g); i++)
        quantized |= tensor_type_info(gguf_tensor_at(g, i)->type)->block_values > 1;
    gguf_close(g);
    return quantized;
}

void cases_model(const struct json *root, const char *path, const char *models_dir,
                 struct case_report *r)
{
    struct run u = {.r = r, .path = path, .root = root, .mode = ""};
    const char *name = json_get(root, "model")->text;
    char gguf[4096], up[4096];
    if (!name || json_get(root, "prompts")->kind != JSON_OBJECT) {
        case_fail(r, path, "model and prompts", "a file and named prompts", "other values");
        return;
    }
    beside(&u, name, gguf, sizeof gguf);
    beside(&u, "../../models/", up, sizeof up);
    if (access(gguf, R_OK))
        snprintf(gguf, sizeof gguf, "%.2000s%.2000s", up, name);
    if (access(gguf, R_OK) && models_dir)
        snprintf(gguf, sizeof gguf, "%.2000s/%.2000s", models_dir, name);
    if (access(gguf, R_OK)) {
        case_skip(r, path, name, "the model is not there (--models DIR)");
        return;
    }
    if (is_quantized(gguf)) {
        u.mode = "exact";
        run_prompts(&u, gguf, true);
        u.mode = "act8";
        u.rounded = true;
        run_prompts(&u, gguf, false);
    } else {
        run_prompts(&u, gguf, false);
    }
    u.mode = "";
    u.rounded = false;
    if (json_get(root, "ties"))
        run_ties(&u, gguf);
}
