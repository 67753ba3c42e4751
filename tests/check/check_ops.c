/* SPDX-License-Identifier: Apache-2.0 */
/* Element kernels (cpu/ops.h) of every instruction set against C. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "check.h"
#include "cpu/ops.h"

/* Further kinds of values: those that functions treat apart, and the range where exp matters. */
#define VALUES_SPECIAL CHECK_VALUES
#define VALUES_EXP (CHECK_VALUES + 1)
#define KINDS (CHECK_VALUES + 2)

/* Which table computes: the C definition, or the one that is checked. */
enum { C, SIMD, BOTH };

static struct cpu_ops tables[BOTH];

/* One call of one kernel with both tables. */
struct trial {
    struct check *c;
    const char *isa, *kernel;
    int kind, n;
    struct check_buffer out[BOTH]; /* the same content before the call */
};

static void fill(struct trial *t, float *x, size_t n)
{
    static const float special[] = {0,         -0.0f,    1,        -1,        20,
                                    -20,       87,       -87,      88.5f,     -88.5f,
                                    89,        -104,     0x1p19f,  -0x1p19f,  0x1.fffffep18f,
                                    65504,     65519,    65520,    0x1p-24f,  0x1p-25f,
                                    0x1p-149f, 0x1p127f, INFINITY, -INFINITY, NAN};
    if (t->kind < CHECK_VALUES)
        check_fill(t->c, x, n, (enum check_values)t->kind);
    for (size_t i = 0; t->kind >= CHECK_VALUES && i < n; i++) {
        if (t->kind == VALUES_EXP)
            x[i] = check_unit(t->c) * 120;
        else
            x[i] = check_below(t->c, 8)
                       ? check_unit(t->c)
                       : special[check_below(t->c, sizeof special / sizeof *special)];
    }
}

/* Input that ends at a page that must not be read. */
static float *input(struct trial *t, int slot, size_t n)
{
    float *x = check_edge(slot, n * sizeof *x);
    fill(t, x, n);
    return x;
}

/* Input at any alignment; freed by the caller. */
static float *plain_input(struct trial *t, size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    if (!x)
        exit(1);
    fill(t, x, n);
    return x;
}

/* Room for `bytes` of output at any multiple of `unit` bytes, filled with floats of the trial's
 * kind in both tables' buffers. */
static void open_units(struct trial *t, size_t bytes, uint32_t unit)
{
    size_t offset = (size_t)unit * check_below(t->c, 64 / unit);
    for (int w = 0; w < BOTH; w++)
        t->out[w] = check_buffer_new(bytes, offset);
    float *content = plain_input(t, bytes / sizeof(float));
    memcpy(t->out[C].data, content, bytes / sizeof(float) * sizeof(float));
    free(content);
    memcpy(t->out[SIMD].data, t->out[C].data, bytes);
}

static void open_out(struct trial *t, size_t bytes)
{
    open_units(t, bytes, sizeof(float));
}

static float *floats(struct trial *t, int which)
{
    return (float *)t->out[which].data;
}

static void close_out(struct trial *t, bool same, int variant)
{
    same = same && check_buffer_intact(&t->out[SIMD]);
    check_ok(t->c, same, "%s %s, n %d, values %d, variant %d", t->isa, t->kernel, t->n, t->kind,
             variant);
    for (int w = 0; w < BOTH; w++)
        check_buffer_free(&t->out[w]);
}

static void close_floats(struct trial *t, int variant)
{
    close_out(t, check_same(floats(t, C), floats(t, SIMD), t->out[C].bytes / sizeof(float)),
              variant);
}

static size_t row_bytes(const struct trial *t)
{
    return (size_t)t->n * sizeof(float);
}

/* --- plain values --- */

static void try_add(struct trial *t)
{
    const float *y = input(t, 0, (size_t)t->n);
    open_out(t, row_bytes(t));
    for (int w = 0; w < BOTH; w++)
        tables[w].add(floats(t, w), y, t->n);
    close_floats(t, 0);
}

static void try_add_scaled(struct trial *t)
{
    const float *y = input(t, 0, (size_t)t->n);
    float s = *input(t, 1, 1);
    open_out(t, row_bytes(t));
    for (int w = 0; w < BOTH; w++)
        tables[w].add_scaled(floats(t, w), y, s, t->n);
    close_floats(t, 0);
}

static void try_add_positive(struct trial *t)
{
    const float *y = input(t, 0, (size_t)t->n);
    open_out(t, row_bytes(t));
    for (int w = 0; w < BOTH; w++)
        tables[w].add_positive(floats(t, w), y, t->n);
    close_floats(t, 0);
}

static void try_scale(struct trial *t)
{
    const float *x = input(t, 0, (size_t)t->n);
    float s = *input(t, 1, 1);
    for (int in_place = 0; in_place < 2; in_place++) {
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            tables[w].scale(floats(t, w), in_place ? floats(t, w) : x, s, t->n);
        close_floats(t, in_place);
    }
}

static void try_divide(struct trial *t)
{
    float a = *input(t, 0, 1), b = *input(t, 1, 1);
    for (int once = 0; once < 2; once++) {
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            tables[w].divide(floats(t, w), a, once ? 1 : b, t->n);
        close_floats(t, once);
    }
}

static void try_silu_divided(struct trial *t)
{
    for (int divisor = 1; divisor <= 4; divisor += 3) {
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            tables[w].silu_divided(floats(t, w), (float)divisor, t->n);
        close_floats(t, divisor);
    }
}

/* mul_sigmoid and mul_silu: out apart, the same as x, the same as z. */
static void try_gated(struct trial *t, bool silu)
{
    const float *x = input(t, 0, (size_t)t->n), *z = input(t, 1, (size_t)t->n);
    for (int place = 0; place < 3; place++) {
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++) {
            float *out = floats(t, w);
            const float *from = place == 1 ? out : x, *gate = place == 2 ? out : z;
            if (silu)
                tables[w].mul_silu(out, from, gate, t->n);
            else
                tables[w].mul_sigmoid(out, from, gate, t->n);
        }
        close_floats(t, place);
    }
}

static void try_mul_sigmoid(struct trial *t)
{
    try_gated(t, false);
}

static void try_mul_silu(struct trial *t)
{
    try_gated(t, true);
}

static void try_to_f16(struct trial *t)
{
    const float *x = input(t, 0, (size_t)t->n);
    bool finite[BOTH];
    open_units(t, (size_t)t->n * sizeof(uint16_t), sizeof(uint16_t));
    for (int w = 0; w < BOTH; w++)
        finite[w] = tables[w].to_f16(x, t->n, (uint16_t *)t->out[w].data);
    bool same = !memcmp(t->out[C].data, t->out[SIMD].data, t->out[C].bytes);
    close_out(t, same && finite[C] == finite[SIMD], finite[C]);
}

static void try_from_f16(struct trial *t)
{
    uint16_t *x = check_edge(0, (size_t)t->n * sizeof *x);
    check_fill_bytes(t->c, x, (size_t)t->n * sizeof *x);
    open_out(t, row_bytes(t));
    for (int w = 0; w < BOTH; w++)
        tables[w].from_f16(x, t->n, floats(t, w));
    close_floats(t, 0);
}

/* --- sums --- */

static void try_dot(struct trial *t)
{
    const float *a = input(t, 0, (size_t)t->n), *b = input(t, 1, (size_t)t->n);
    open_out(t, sizeof(float));
    for (int w = 0; w < BOTH; w++)
        *floats(t, w) = tables[w].dot(a, b, t->n);
    close_floats(t, 0);
}

static void try_norm(struct trial *t)
{
    const float *x = input(t, 0, (size_t)t->n), *weight = input(t, 1, (size_t)t->n);
    for (int in_place = 0; in_place < 2; in_place++) {
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            tables[w].norm(in_place ? floats(t, w) : x, weight, t->n, 1e-6f, floats(t, w));
        close_floats(t, in_place);
    }
}

static void try_softmax(struct trial *t)
{
    for (int v = 0; v < 2; v++) {
        float sum[BOTH];
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            sum[w] = tables[w].softmax(floats(t, w), t->n, v ? 11.3137085f : 1);
        bool same = check_same(&sum[C], &sum[SIMD], 1);
        close_out(t, same && check_same(floats(t, C), floats(t, SIMD), (size_t)t->n), v);
    }
}

/* Units of a cache that end at a page that must not be read. Blocks have values behind a row's end
 * too, which must not count. */
static void *cache_rows(struct trial *t, enum kv_type type, size_t values)
{
    if (type == KV_F32)
        return input(t, 1, values);
    if (type == KV_Q8_0) {
        struct kv_block *b = check_edge(1, values * sizeof *b);
        for (size_t i = 0; i < values; i++) {
            b[i].scale = (uint16_t)check_below(t->c, 0x7c00); /* any that is finite */
            for (int q = 0; q < KV_BLOCK; q++)
                b[i].q[q] = (int8_t)((int)check_below(t->c, 255) - 127);
        }
        return b;
    }
    uint16_t *x = check_edge(1, values * sizeof *x);
    float *wide = plain_input(t, values);
    tables[C].to_f16(wide, (int)values, x);
    free(wide);
    return x;
}

/* A list of rows, in order or not; NULL: all rows from the first. */
static const int32_t *row_list(struct trial *t, int32_t *list, int count, bool listed)
{
    for (int i = 0; i < count; i++)
        list[i] = (int32_t)check_below(t->c, (uint32_t)count);
    return listed ? list : NULL;
}

static const int counts[] = {1, 2, 3, 4, 5, 7, 31, 32, 33, 65, 100};
#define COUNTS (int)(sizeof counts / sizeof *counts)

static void try_dot_rows(struct trial *t, enum kv_type type)
{
    int32_t list[128];
    size_t n = (size_t)t->n;
    int count = counts[check_below(t->c, COUNTS)];
    for (int heads = 1; n <= 256 && heads <= CPU_OPS_HEADS; heads++) {
        size_t units = kv_units(type, n);
        size_t stride = units + check_below(t->c, 3), out = (size_t)count + 1;
        const void *rows = cache_rows(t, type, (size_t)(count - 1) * stride + units);
        const int32_t *index = row_list(t, list, count, heads % 2);
        float *q = plain_input(t, (size_t)heads * n);
        open_out(t, (size_t)heads * out * sizeof(float)); /* what lies between rows must stay */
        for (int w = 0; w < BOTH; w++)
            tables[w].dot_rows[type](q, n, heads, rows, stride, index, count, t->n, floats(t, w),
                                     out);
        close_floats(t, 1000 * heads + count);
        free(q);
    }
}

static void try_dot_rows_f32(struct trial *t)
{
    try_dot_rows(t, KV_F32);
}

static void try_dot_rows_f16(struct trial *t)
{
    try_dot_rows(t, KV_F16);
}

static void try_dot_rows_q8_0(struct trial *t)
{
    try_dot_rows(t, KV_Q8_0);
}

static void try_gather_rows(struct trial *t, enum kv_type type)
{
    int32_t list[128];
    size_t n = (size_t)t->n;
    if (n > CPU_VALUE_COLUMNS)
        return;
    int count = counts[check_below(t->c, COUNTS)];
    for (int listed = 0; listed < 2; listed++) {
        size_t units = kv_units(type, n), stride = units + check_below(t->c, 3);
        const void *rows = cache_rows(t, type, (size_t)(count - 1) * stride + units);
        const int32_t *index = row_list(t, list, count, listed);
        open_out(t, (size_t)count * CPU_VALUE_COLUMNS * sizeof(float));
        for (int w = 0; w < BOTH; w++)
            tables[w].gather_rows[type](rows, stride, index, count, t->n, floats(t, w));
        close_floats(t, 2 * count + listed);
    }
}

static void try_gather_rows_f32(struct trial *t)
{
    try_gather_rows(t, KV_F32);
}

static void try_gather_rows_f16(struct trial *t)
{
    try_gather_rows(t, KV_F16);
}

static void try_gather_rows_q8_0(struct trial *t)
{
    try_gather_rows(t, KV_Q8_0);
}

#define PART_FLOATS (CPU_CHAINS * CPU_OPS_HEADS * CPU_VALUE_COLUMNS)

static void try_weigh_tile(struct trial *t)
{
    int count = counts[check_below(t->c, COUNTS)];
    for (int heads = 1; t->n <= CPU_VALUE_COLUMNS && heads <= CPU_OPS_HEADS; heads++) {
        size_t stride = (size_t)count + 2;
        const float *v = input(t, 1, (size_t)count * CPU_VALUE_COLUMNS);
        float *weights = plain_input(t, (size_t)heads * stride);
        open_out(t, PART_FLOATS * sizeof(float));
        for (int w = 0; w < BOTH; w++)
            tables[w].weigh_tile(weights, stride, heads, v, count, t->n, heads % 2, floats(t, w));
        close_floats(t, 1000 * heads + count);
        free(weights);
    }
}

static void try_sum_chains(struct trial *t)
{
    for (int heads = 1; t->n <= CPU_VALUE_COLUMNS && heads <= CPU_OPS_HEADS; heads++) {
        const float *part = input(t, 0, PART_FLOATS);
        size_t stride = (size_t)t->n + 1;
        open_out(t, (size_t)heads * stride * sizeof(float));
        for (int w = 0; w < BOTH; w++)
            tables[w].sum_chains(part, heads, t->n, floats(t, w), stride);
        close_floats(t, heads);
    }
}

/* --- parts of layers --- */

static void try_hc_mix(struct trial *t)
{
    for (int hc = 1; hc <= 4; hc++) {
        size_t stride = (size_t)t->n + 3, values = (size_t)(hc - 1) * stride + (size_t)t->n;
        const float *gate = input(t, 0, values), *x = input(t, 1, values);
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            tables[w].hc_mix(gate, x, stride, hc, t->n, floats(t, w));
        close_floats(t, hc);
    }
}

static void try_spread_taps(struct trial *t)
{
    for (int taps = 1; taps <= 5; taps++) {
        const float *kernel = input(t, 0, (size_t)(taps * t->n));
        open_out(t, (size_t)taps * (row_bytes(t) + sizeof(float))); /* one between two rows stays */
        for (int w = 0; w < BOTH; w++)
            tables[w].spread_taps(kernel, taps, t->n, floats(t, w), (size_t)t->n + 1);
        close_floats(t, taps);
    }
}

static void try_conv(struct trial *t)
{
    for (int taps = 1; taps <= 5; taps++) {
        const float *x = input(t, 0, (size_t)(taps * t->n)), *in[5];
        const float *kernel = input(t, 1, (size_t)(taps * t->n));
        for (int j = 0; j < taps; j++)
            in[j] = x + (taps - 1 - j) * t->n;
        open_out(t, row_bytes(t));
        for (int w = 0; w < BOTH; w++)
            tables[w].conv(in, kernel, (size_t)t->n, taps, t->n, floats(t, w));
        close_floats(t, taps);
    }
}

static void try_delta_step(struct trial *t)
{
    size_t d = (size_t)t->n;
    if (d > 256)
        return;
    const float *q = input(t, 0, d), *k = input(t, 1, d);
    float *v = plain_input(t, d);
    float decay = 0.5f + 0.5f * check_unit(t->c), beta = check_unit(t->c);
    open_out(t, (d * d + d) * sizeof(float)); /* the state, then the output */
    for (int w = 0; w < BOTH; w++)
        tables[w].delta_step(floats(t, w), q, k, v, decay, beta, t->n, floats(t, w) + d * d);
    close_floats(t, 0);
    free(v);
}

static void try_rope(struct trial *t)
{
    int half = t->n / 2;
    const float *cosine = input(t, 0, (size_t)half), *sine = input(t, 1, (size_t)half);
    open_out(t, row_bytes(t));
    for (int w = 0; w < BOTH; w++)
        tables[w].rope(floats(t, w), cosine, sine, half);
    close_floats(t, 0);
}

static int64_t random_sum(struct trial *t)
{
    return (int64_t)((uint64_t)check_u32(t->c) << 32 | check_u32(t->c));
}

static void put_sum(struct trial *t, size_t i, int64_t value)
{
    for (int w = 0; w < BOTH; w++)
        ((int64_t *)t->out[w].data)[i] = value;
}

static void try_routed_add(struct trial *t)
{
    const float *x = input(t, 0, (size_t)t->n);
    bool ok[BOTH];
    float weight = check_below(t->c, 4) ? check_unit(t->c) : 1;
    open_units(t, (size_t)t->n * sizeof(int64_t), sizeof(int64_t));
    for (size_t i = 0; i < (size_t)t->n; i++)
        put_sum(t, i, random_sum(t) >> 4); /* far from where a sum could wrap */
    for (int w = 0; w < BOTH; w++)
        ok[w] = tables[w].routed_add((int64_t *)t->out[w].data, x, weight, t->n);
    bool same = !ok[C] || !memcmp(t->out[C].data, t->out[SIMD].data, t->out[C].bytes);
    close_out(t, same && ok[C] == ok[SIMD], ok[C]);
}

static void try_routed_out(struct trial *t)
{
    static const int64_t edges[] = {((int64_t)1 << 53) + (1 << 29) + 1,
                                    INT64_MAX,
                                    INT64_MIN,
                                    (1 << 24) + 1,
                                    -((1 << 24) + 3),
                                    0};
    size_t n = (size_t)t->n;
    open_units(t, n * (sizeof(int64_t) + sizeof(float)),
               sizeof(int64_t)); /* the sums, then the output */
    for (size_t i = 0; i < n; i++)
        put_sum(t, i, i % 3 ? random_sum(t) >> check_below(t->c, 64) : edges[check_below(t->c, 6)]);
    for (int w = 0; w < BOTH; w++)
        tables[w].routed_out((int64_t *)t->out[w].data, t->n, floats(t, w) + 2 * n);
    close_out(t, !memcmp(t->out[C].data, t->out[SIMD].data, t->out[C].bytes), 0);
}

static const struct {
    const char *name;
    void (*try)(struct trial *t);
} kernels[] = {
    {"add", try_add},
    {"add_scaled", try_add_scaled},
    {"add_positive", try_add_positive},
    {"scale", try_scale},
    {"divide", try_divide},
    {"silu_divided", try_silu_divided},
    {"mul_sigmoid", try_mul_sigmoid},
    {"mul_silu", try_mul_silu},
    {"to_f16", try_to_f16},
    {"from_f16", try_from_f16},
    {"dot", try_dot},
    {"norm", try_norm},
    {"softmax", try_softmax},
    {"dot_rows f16", try_dot_rows_f16},
    {"dot_rows f32", try_dot_rows_f32},
    {"dot_rows q8_0", try_dot_rows_q8_0},
    {"gather_rows f16", try_gather_rows_f16},
    {"gather_rows f32", try_gather_rows_f32},
    {"gather_rows q8_0", try_gather_rows_q8_0},
    {"weigh_tile", try_weigh_tile},
    {"sum_chains", try_sum_chains},
    {"hc_mix", try_hc_mix},
    {"spread_taps", try_spread_taps},
    {"conv", try_conv},
    {"delta_step", try_delta_step},
    {"rope", try_rope},
    {"routed_add", try_routed_add},
    {"routed_out", try_routed_out},
};
#define KERNELS (sizeof kernels / sizeof *kernels)

/* Fails to build when the struct has a kernel that the list above does not. */
_Static_assert(sizeof(struct cpu_ops) == KERNELS * sizeof(void (*)(void)),
               "a kernel of struct cpu_ops is not checked");

static const int lengths[] = {1,  2,  3,  5,  7,  8,  9,  12, 15,  16,  17,  20,  24,  31, 32,
                              33, 40, 47, 63, 64, 65, 80, 96, 127, 128, 160, 256, 320, 999};

static void run(struct check *c, enum cpu_isa isa)
{
    cpu_ops_init(&tables[C], CPU_ISA_C);
    cpu_ops_init(&tables[SIMD], isa);
    if (isa == CPU_ISA_C)
        return; /* what the others are compared with; tests/unit/cpu proves it */
    for (size_t k = 0; k < KERNELS; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int kind = 0; kind < KINDS; kind++) {
                struct trial t = {c, cpu_isa_name(isa), kernels[k].name, kind, lengths[i], {{0}}};
                kernels[k].try(&t);
            }
}

/* --- benchmark: the shapes of Qwen3.8-Flash-Next, data in the cache --- */

#define TOKENS 2048 /* that a query of sparse attention sees */

struct bench {
    const struct cpu_ops *ops;
    float *x, *y, *z, *out;
    uint16_t *cache; /* [TOKENS][2 * 256] */
    int64_t *sum;
    int times;
};

static void bench_norm(struct bench *b)
{
    b->ops->norm(b->x, b->y, 2560, 1e-6f, b->out);
}

static void bench_softmax(struct bench *b)
{
    b->ops->softmax(b->out, TOKENS, 16);
}

static void bench_dot_rows(struct bench *b)
{
    b->ops->dot_rows[KV_F16](b->x, 256, 4, b->cache, 512, NULL, TOKENS, 256, b->out, TOKENS);
}

static void bench_gather_rows(struct bench *b)
{
    b->ops->gather_rows[KV_F16](b->cache, 512, NULL, 1024, 64, b->z);
}

static void bench_dot_rows_q8_0(struct bench *b)
{
    b->ops->dot_rows[KV_Q8_0](b->x, 256, 4, b->cache, 16, NULL, TOKENS, 256, b->out, TOKENS);
}

static void bench_gather_rows_q8_0(struct bench *b)
{
    b->ops->gather_rows[KV_Q8_0](b->cache, 16, NULL, 1024, 64, b->z);
}

static void bench_weigh_tile(struct bench *b)
{
    b->ops->weigh_tile(b->x, 1024, 4, b->z, 1024, 64, false, b->out);
}

static void bench_sum_chains(struct bench *b)
{
    b->ops->sum_chains(b->z, 4, 64, b->out, 64);
}

static void bench_hc_mix(struct bench *b)
{
    b->ops->hc_mix(b->x, b->y, 2560, 4, 2560, b->out);
}

static void bench_hc_write(struct bench *b)
{
    b->ops->add_scaled(b->out, b->y, 0.5f, 2560);
}

static void bench_conv(struct bench *b)
{
    const float *in[] = {b->x, b->x + 256, b->x + 512, b->x + 768};
    b->ops->conv(in, b->y, 256, 4, 256, b->out);
}

static void bench_delta_step(struct bench *b)
{
    b->ops->delta_step(b->z, b->x, b->x + 128, b->x + 256, 0.99f, 0.5f, 128, b->out);
}

static void bench_mul_silu(struct bench *b)
{
    b->ops->mul_silu(b->out, b->x, b->y, 640);
}

static void bench_routed_add(struct bench *b)
{
    b->ops->routed_add(b->sum, b->x, 0.1f, 2560);
}

static void bench_routed_out(struct bench *b)
{
    b->ops->routed_out(b->sum, 2560, b->out);
}

static const struct {
    const char *name;
    void (*call)(struct bench *b);
    double elements;
} benches[] = {
    {"norm", bench_norm, 2560},
    {"softmax", bench_softmax, TOKENS},
    {"dot_rows f16", bench_dot_rows, 4.0 * TOKENS * 256},
    {"dot_rows q8_0", bench_dot_rows_q8_0, 4.0 * TOKENS * 256},
    {"gather_rows f16", bench_gather_rows, 1024 * 64},
    {"gather_rows q8_0", bench_gather_rows_q8_0, 1024 * 64},
    {"weigh_tile", bench_weigh_tile, 4 * 1024 * 64},
    {"sum_chains", bench_sum_chains, 4 * 64},
    {"hc_mix", bench_hc_mix, 4 * 2560},
    {"add_scaled", bench_hc_write, 2560},
    {"conv", bench_conv, 256},
    {"delta_step", bench_delta_step, 128 * 128},
    {"mul_silu", bench_mul_silu, 640},
    {"routed_add", bench_routed_add, 2560},
    {"routed_out", bench_routed_out, 2560},
};

struct timed {
    struct bench *b;
    size_t kernel;
};

static void repeat_kernel(void *context)
{
    struct timed *t = context;
    for (int i = 0; i < t->b->times; i++)
        benches[t->kernel].call(t->b);
}

static void bench(struct check *c, enum cpu_isa isa)
{
    enum { VALUES = 32 * 2560 }; /* of each array, enough for every kernel */
    struct bench b = {.ops = &tables[SIMD]};
    cpu_ops_init(&tables[SIMD], isa);
    float *values = calloc(4 * VALUES, sizeof *values);
    b.cache = calloc(TOKENS * 512, sizeof *b.cache);
    b.sum = calloc(2560, sizeof *b.sum);
    if (!values || !b.cache || !b.sum) {
        check_skip(c, "benchmark of element kernels: no memory");
        return;
    }
    check_fill(c, values, 4 * VALUES, CHECK_ORDINARY);
    b.x = values;
    b.y = values + VALUES;
    b.z = values + 2 * VALUES;
    b.out = values + 3 * VALUES;
    for (size_t k = 0; k < sizeof benches / sizeof *benches; k++) {
        b.times = 1 + (int)((isa == CPU_ISA_C ? 1e5 : 1e7) / benches[k].elements);
        struct timed t = {&b, k};
        double seconds = check_time(repeat_kernel, &t, 7) / b.times;
        printf("%-15s %-13s %8.2f us, %6.3f ns an element\n", benches[k].name, cpu_isa_name(isa),
               seconds * 1e6, seconds * 1e9 / benches[k].elements);
    }
    free(values);
    free(b.cache);
    free(b.sum);
}

const struct check_area check_area_ops = {.name = "ops", .run = run, .bench = bench};
