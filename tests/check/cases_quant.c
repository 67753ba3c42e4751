/* SPDX-License-Identifier: Apache-2.0 */
#include "cases_quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "cpu/linear.h"

#define TOLERANCE 4e-6
#define MOST_FILE_BYTES ((size_t)256 << 20)
#define MOST_N (1 << 20)

/* One manifest while it runs. */
struct run {
    const char *path;
    struct case_report *r;
    struct cpu_matmul tables[CPU_ISAS]; /* of those that the machine has */
};

static const char *text_of(const struct json *v, const char *key)
{
    const struct json *t = json_get(v, key);
    return t && t->kind == JSON_STRING ? t->text : "";
}

static int64_t integer_of(const struct json *v, const char *key)
{
    int64_t n;
    return json_i64(json_get(v, key), &n) ? n : -1;
}

static void fail_reason(struct run *run, const char *name, const char *expected, const char *got)
{
    case_fail(run->r, run->path, name, expected, got);
}

/* A file beside the manifest; NULL and a failed case `name` when it cannot be read. */
static void *read_beside(struct run *run, const char *name, const char *file, size_t *bytes)
{
    char path[4096];
    struct err e = {0};
    const char *slash = strrchr(run->path, '/');
    int folder = slash ? (int)(slash - run->path) + 1 : 0;
    snprintf(path, sizeof path, "%.*s%s", folder, run->path, file);
    void *data = file_read_all(path, MOST_FILE_BYTES, bytes, &e);
    if (!data)
        fail_reason(run, name, "a file that can be read", e.text);
    return data;
}

/* --- decoding --- */

static void decode_set(struct run *run, uint32_t type, const struct json *set,
                       const float *expected, const float *values, size_t n_values)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    int64_t first = integer_of(set, "first_block"), blocks = integer_of(set, "blocks");
    char name[128], want[64], got[64];
    snprintf(name, sizeof name, "%s decode, %s", info->name, text_of(set, "kind"));
    int64_t have = (int64_t)(n_values / info->block_values);
    if (first < 0 || blocks < 0 || first > have || blocks > have - first) {
        fail_reason(run, name, "a set inside the blocks", "one that is not");
        return;
    }
    size_t end = (size_t)(first + blocks) * info->block_values;
    for (size_t i = (size_t)first * info->block_values; i < end; i++) {
        if (half_f32_bits(expected[i]) == half_f32_bits(values[i]) ||
            (isnan(expected[i]) && isnan(values[i])))
            continue;
        snprintf(want, sizeof want, "value %zu: %.9g", i, (double)expected[i]);
        snprintf(got, sizeof got, "%.9g", (double)values[i]);
        fail_reason(run, name, want, got);
        return;
    }
    case_pass(run->r);
}

/* The type's number when name and number agree with the format, else a failed case and -1. */
static int64_t type_of(struct run *run, const struct json *v)
{
    int64_t id = integer_of(v, "id");
    const struct tensor_type_info *info = tensor_type_info(id < 0 ? UINT32_MAX : (uint32_t)id);
    if (id >= 0 && id < TENSOR_TYPES && info->block_values &&
        !strcmp(info->name, text_of(v, "name")))
        return id;
    fail_reason(run, text_of(v, "name"), "a type of the format", "another name or number");
    return -1;
}

static void run_type(struct run *run, const struct json *v)
{
    int64_t type = type_of(run, v);
    if (type < 0)
        return;
    const struct tensor_type_info *info = tensor_type_info((uint32_t)type);
    struct err e = {0};
    size_t bytes = 0, value_bytes = 0;
    uint8_t *blocks = read_beside(run, info->name, text_of(v, "blocks_file"), &bytes);
    float *expected = read_beside(run, info->name, text_of(v, "values_file"), &value_bytes);
    size_t n = bytes / info->block_bytes * info->block_values;
    float *values = mem_alloc_array(n, sizeof *values, "decoded values", &e);
    const struct json *sets = json_get(v, "sets");
    if (blocks && expected && (!values || value_bytes != n * sizeof *values || !sets)) {
        fail_reason(run, info->name, "as many values as the blocks hold", "another number");
    } else if (blocks && expected) {
        quant_decode((uint32_t)type, blocks, values, n);
        for (size_t i = 0; i < sets->count; i++)
            decode_set(run, (uint32_t)type, &sets->items[i], expected, values, n);
    }
    mem_free(values);
    mem_free(expected);
    mem_free(blocks);
}

/* --- dot products --- */

/* 32 values as Q8_0 (gguf-and-quants.md section 4): scale rounded to half, codes made with the
 * unrounded one, halves away from zero. */
static float encode_q8_0(const float *x, int16_t *q)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, inverse = d == 0 ? 0 : 1 / d;
    for (int i = 0; i < 32; i++)
        q[i] = (int16_t)roundf(x[i] * inverse);
    return half_to_f32(half_from_f32(d));
}

/* 256 values as Q8_K: the value of largest magnitude becomes -127, so scales have a sign. */
static float encode_q8_k(const float *x, int16_t *q)
{
    float most = 0;
    for (int i = 0; i < 256; i++) {
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    }
    float r = most == 0 ? 0 : -127 / most;
    for (int i = 0; i < 256; i++)
        q[i] = (int16_t)fminf(127, rintf(r * x[i]));
    return most == 0 ? 0 : 1 / r;
}

static void encode_row(const float *x, struct quant_act *a)
{
    for (int i = 0; i < a->n; i += a->block)
        a->d[i / a->block] =
            a->block == 32 ? encode_q8_0(x + i, a->q + i) : encode_q8_k(x + i, a->q + i);
    for (int i = 0; i < a->n; i++)
        a->bsum[i / 16] = (int16_t)(a->bsum[i / 16] + a->q[i]);
}

/* A row, its activations and what is expected of them. */
struct dot_case {
    uint32_t type;
    int n;
    struct cpu_weight w;
    const float *x;
    double dot, sum_abs, dot_act, sum_abs_act;
    bool has_act;
};

static void judge(struct run *run, const struct dot_case *c, enum cpu_isa isa, const char *how,
                  float y, double expected, double magnitude)
{
    char name[128], want[64], got[64];
    if (fabs((double)y - expected) <= TOLERANCE * magnitude) {
        case_pass(run->r);
        return;
    }
    snprintf(name, sizeof name, "%s dot of %d, %s, %s", tensor_type_info(c->type)->name, c->n, how,
             cpu_isa_name(isa));
    snprintf(want, sizeof want, "%.9g within %.2g", expected, TOLERANCE * magnitude);
    snprintf(got, sizeof got, "%.9g", (double)y);
    fail_reason(run, name, want, got);
}

/* Both kinds of activations with one instruction set. */
static void run_dot_isa(struct run *run, const struct dot_case *c, enum cpu_isa isa,
                        struct pool *pool, const struct quant_act *encoded)
{
    struct err e = {0};
    struct cpu_linear_ctx ctx;
    if (!cpu_linear_ctx_init(&ctx, pool, &run->tables[isa], 1, c->n, &e)) {
        fail_reason(run, tensor_type_info(c->type)->name, "memory", e.text);
        return;
    }
    struct cpu_acts acts = {.x = c->x, .x_stride = (size_t)c->n, .exact = true};
    float y;
    cpu_rows(&ctx, 0, &c->w, 0, 1, &acts, 0, 1, &y, 1);
    judge(run, c, isa, "float activations", y, c->dot, c->sum_abs);
    if (c->has_act && encoded->block) {
        acts.exact = false;
        *(encoded->block == 32 ? &acts.block32 : &acts.block256) = *encoded;
        cpu_rows(&ctx, 0, &c->w, 0, 1, &acts, 0, 1, &y, 1);
        judge(run, c, isa, "encoded activations", y, c->dot_act, c->sum_abs_act);
    }
    cpu_linear_ctx_free(&ctx);
}

static void run_dot(struct run *run, const struct dot_case *c)
{
    struct err e = {0};
    int block = cpu_act_block(c->type);
    struct quant_act encoded = {0};
    void *memory = mem_alloc(block ? cpu_act_bytes(1, c->n, block) : 0, "activations", &e);
    struct pool *pool = pool_create(1, &e);
    if (!memory || !pool) {
        fail_reason(run, tensor_type_info(c->type)->name, "memory", e.text);
    } else {
        if (block) {
            cpu_act_place(&encoded, memory, 1, c->n, block);
            encode_row(c->x, &encoded);
        }
        for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
            if (cpu_isa_available(isa))
                run_dot_isa(run, c, isa, pool, &encoded);
        }
    }
    if (pool)
        pool_free(pool);
    mem_free(memory);
}

/* One row of the manifest against the rows file. */
static void run_dot_row(struct run *run, uint32_t type, const struct json *row, const uint8_t *rows,
                        size_t rows_bytes)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    struct dot_case c = {.type = type};
    int64_t n = integer_of(row, "n"), offset = integer_of(row, "offset");
    int64_t bytes = integer_of(row, "bytes");
    char name[64], file[64];
    snprintf(name, sizeof name, "%s dot of %lld", info->name, (long long)n);
    bool sane =
        n > 0 && n <= MOST_N && n % info->block_values == 0 && offset >= 0 && bytes >= 0 &&
        (uint64_t)bytes == tensor_row_bytes(type, (uint64_t)n) && (uint64_t)offset <= rows_bytes &&
        (uint64_t)bytes <= rows_bytes - (uint64_t)offset &&
        json_f64(json_get(row, "dot"), &c.dot) && json_f64(json_get(row, "sum_abs"), &c.sum_abs);
    if (!sane) {
        fail_reason(run, name, "a row inside the rows file with dot and sum_abs", "another");
        return;
    }
    c.has_act = json_f64(json_get(row, "dot_act"), &c.dot_act) &&
                json_f64(json_get(row, "sum_abs_act"), &c.sum_abs_act);
    c.n = (int)n;
    c.w = (struct cpu_weight){rows + offset, type, c.n, 1};
    size_t x_bytes;
    snprintf(file, sizeof file, "dot/act-%d.f32.bin", c.n);
    float *x = read_beside(run, name, file, &x_bytes);
    if (x && x_bytes == (size_t)n * sizeof *x) {
        c.x = x;
        run_dot(run, &c);
    } else if (x) {
        fail_reason(run, name, "as many activations as the row has values", "another number");
    }
    mem_free(x);
}

static void run_dots(struct run *run, const struct json *v)
{
    int64_t type = type_of(run, v);
    const struct json *rows = json_get(v, "rows");
    size_t bytes;
    if (type < 0 || !rows)
        return;
    if (quant_traits((uint32_t)type)->form == QUANT_NONE) {
        case_skip(run->r, run->path, text_of(v, "name"), "not a weight type");
        return;
    }
    uint8_t *data = read_beside(run, text_of(v, "name"), text_of(v, "rows_file"), &bytes);
    for (size_t i = 0; data && i < rows->count; i++)
        run_dot_row(run, (uint32_t)type, &rows->items[i], data, bytes);
    mem_free(data);
}

void cases_quant(const char *manifest_path, struct case_report *r)
{
    struct run run = {.path = manifest_path, .r = r};
    struct err e = {0};
    size_t bytes;
    char *text = file_read_all(manifest_path, MOST_FILE_BYTES, &bytes, &e);
    struct json_doc *doc = text ? json_parse(text, bytes, manifest_path, &e) : NULL;
    if (!doc) {
        fail_reason(&run, "manifest", "JSON that can be read", e.text);
        mem_free(text);
        return;
    }
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        if (cpu_isa_available(isa))
            cpu_matmul_init(&run.tables[isa], isa);
    }
    const struct json *types = json_get(json_root(doc), "types");
    const struct json *dot = json_get(json_root(doc), "dot");
    for (size_t i = 0; types && i < types->count; i++)
        run_type(&run, &types->items[i]);
    for (size_t i = 0; dot && i < dot->count; i++)
        run_dots(&run, &dot->items[i]);
    json_free(doc);
    mem_free(text);
}
