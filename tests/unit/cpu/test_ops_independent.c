/* SPDX-License-Identifier: Apache-2.0 */
/* The bits of every operation depend neither on threads, nor on how rows are cut into calls, nor on
 * the instruction set (numerics.md): the same tokens pass through all operations in different ways
 * and everything that is left behind must be equal, byte by byte. */
#include <math.h>

#include "ops_fixture.h"

enum {
    TOKENS = 23,
    HC = 4,
    N = 320,
    TAPS = 4,
    DILATION = 3,
    PAST = (TAPS - 1) * DILATION,
    N_K = 2,
    N_V = 4,
    D = 40,
    QKV = 2 * N_K * D + N_V * D,
    N_HEAD = 6,
    N_KV = 2,
    D_HEAD = 40,
    RATIO = 4,
    CHOSEN = 2,
    BLOCKS = TOKENS / RATIO,
    HEADS_I = 5,
    EXPERTS = 9,
    TOP = 3,
    WIDTH = 96,
    N_ROT = 24,
};

static const struct backend_limits limits = {.rows = 7,
                                             .n_in = N,
                                             .expert_rows = TOKENS,
                                             .expert_width = WIDTH,
                                             .embd = N,
                                             .ctx = TOKENS,
                                             .blocks = BLOCKS};

/* What goes in, the same for all. Q8_0 weights, so that products round activations. */
struct input {
    float *x, *streams, *w, *kernel, *qkv, *gates, *attn, *index, *logits;
    uint8_t *gate, *up, *down;
    float inv_freq[N_ROT / 2];
};

/* What is left behind. */
struct output {
    float normed[TOKENS * HC * N], low[TOKENS * N], mixed[TOKENS * N], streams[TOKENS * HC * N];
    float conv[TOKENS * N], history[PAST * N];
    float qkv[TOKENS * QKV], alpha[TOKENS * N_V], beta[TOKENS * N_V];
    float state[N_V * D * D], scan[TOKENS * N_V * D], gated[TOKENS * N_V * D];
    float q[TOKENS * N_HEAD * D_HEAD], index_q[TOKENS * HEADS_I * D_HEAD];
    uint16_t k[TOKENS * N_KV * D_HEAD], v[TOKENS * N_KV * D_HEAD];
    float raw[TOKENS * D_HEAD], pooled[BLOCKS * D_HEAD], scores[TOKENS * BLOCKS];
    int32_t blocks[TOKENS * CHOSEN], counts[TOKENS];
    float sparse[TOKENS * N_HEAD * D_HEAD], dense[TOKENS * N_HEAD * D_HEAD];
    int32_t ids[TOKENS * TOP];
    float weights[TOKENS * TOP], routed[TOKENS * N], product[TOKENS * WIDTH], ple[TOKENS * HC];
    float net_conv[TOKENS * QKV], net_history[(TAPS - 1) * QKV], scan_state[N_V * D * D];
    float shared[TOKENS * N], gate[TOKENS * HC * N];
    int64_t sum[TOKENS * N];
};

static uint8_t *q8_0_rows(size_t rows, size_t n, uint64_t seed)
{
    size_t blocks = rows * n / 32;
    uint8_t *w = test_malloc(blocks * 34);
    for (size_t b = 0; b < blocks; b++) {
        w[b * 34] = (uint8_t)b;
        w[b * 34 + 1] = 0x20; /* about 2^-7 */
        for (int i = 0; i < 32; i++)
            w[b * 34 + 2 + (size_t)i] = (uint8_t)(int)(test_random(&seed) * 127);
    }
    return w;
}

static struct input make_input(void)
{
    struct input in = {
        .x = test_floats(TOKENS * N, 1),
        .streams = test_floats(TOKENS * HC * N, 2),
        .w = test_floats(HC * N, 3),
        .kernel = test_floats(N * TAPS, 4),
        .qkv = test_floats(TOKENS * QKV, 5),
        .gates = test_floats(TOKENS * N_V * D, 6),
        .attn = test_floats(TOKENS * N_HEAD * D_HEAD, 7),
        .index = test_floats(TOKENS * HEADS_I * D_HEAD, 8),
        .logits = test_floats(TOKENS * EXPERTS, 9),
        .gate = q8_0_rows(EXPERTS * WIDTH, N, 10),
        .up = q8_0_rows(EXPERTS * WIDTH, N, 11),
        .down = q8_0_rows(EXPERTS * N, WIDTH, 12),
    };
    for (int i = 0; i < N_ROT / 2; i++)
        in.inv_freq[i] = 1 / (1.0f + (float)i);
    return in;
}

static void free_input(struct input *in)
{
    void *all[] = {in->x,    in->streams, in->w,      in->kernel, in->qkv, in->gates,
                   in->attn, in->index,   in->logits, in->gate,   in->up,  in->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_free(all[i]);
}

static void run_streams(struct backend *b, const struct input *in, struct output *o, int t,
                        int rows)
{
    size_t at = (size_t)t, wide = at * HC * N;
    b->norm(b, in->streams + wide, in->w, HC, rows * HC, N, 1e-6f, o->normed + wide);
    memcpy(o->low + at * N, in->x + at * N, (size_t)rows * N * sizeof(float));
    b->hc_low(b, o->low + at * N, (size_t)rows * N, HC);
    struct tensor to_gate = {in->gate, TYPE_Q8_0, 64, HC * N, 0.5f, NULL};
    b->hc_mix(b, in->streams + at * 64, &to_gate, o->normed + wide, rows, HC, N, o->gate + wide,
              o->mixed + at * N);
    memcpy(o->streams + wide, in->streams + wide, (size_t)rows * HC * N * sizeof(float));
    b->hc_write(b, o->streams + wide, o->mixed + at * N, in->gates + at * HC, rows, HC, N);
    b->ple_gate(b, in->streams + wide, o->normed + wide, rows, HC, N, o->ple + at * HC);
    b->conv(b, in->x + at * N, in->kernel, o->history, rows, N, TAPS, DILATION, o->conv + at * N);
}

static void run_delta(struct backend *b, const struct input *in, struct output *o, int t, int rows)
{
    size_t at = (size_t)t, heads = at * N_V;
    float *x = o->qkv + at * QKV;
    memcpy(x, in->qkv + at * QKV, (size_t)rows * QKV * sizeof(float));
    memcpy(o->alpha + heads, in->gates + heads, (size_t)rows * N_V * sizeof(float));
    memcpy(o->beta + heads, in->x + heads, (size_t)rows * N_V * sizeof(float));
    static const float a[N_V] = {-0.5f, -0.1f, -1, -0.02f};
    struct delta_rows r = {.rows = rows,
                           .n_k = N_K,
                           .n_v = N_V,
                           .d = D,
                           .taps = TAPS,
                           .l2_eps = 1e-6f,
                           .eps = 1e-6f,
                           .gate = GATE_SIGMOID,
                           .kernel = in->kernel,
                           .a = a,
                           .dt = in->w,
                           .norm = in->w,
                           .qkv = x,
                           .z = in->gates + heads * D,
                           .history = o->net_history,
                           .state = o->state,
                           .conv = o->net_conv + at * QKV,
                           .g = o->alpha + heads,
                           .beta = o->beta + heads,
                           .out = o->gated + heads * D};
    b->delta_net(b, &r);
    r.out = o->scan + heads * D;
    r.state = o->scan_state;
    b->delta_scan(b, &r);
}

static void run_attention(struct backend *b, const struct input *in, struct output *o, int t,
                          int rows)
{
    size_t at = (size_t)t, wide = at * N_HEAD * D_HEAD, indexed = at * HEADS_I * D_HEAD;
    struct rope rope = {N_ROT, 1, in->inv_freq};
    b->norm_rope(b, in->attn + wide, N_HEAD * D_HEAD, D_HEAD, in->w, &rope, rows, N_HEAD, D_HEAD,
                 1e-6f, t, o->q + wide);
    b->norm_rope(b, in->index + indexed, HEADS_I * D_HEAD, D_HEAD, in->w, &rope, rows, HEADS_I,
                 D_HEAD, 1e-6f, t, o->index_q + indexed);
    b->store(b, in->qkv + at * N_KV * D_HEAD, rows, N_KV, D_HEAD, o->k, KV_F16, t);
    b->store(b, in->streams + at * N_KV * D_HEAD, rows, N_KV, D_HEAD, o->v, KV_F16, t);
    b->store(b, in->x + at * D_HEAD, rows, 1, D_HEAD, o->raw, KV_F32, t);
    int first = t / RATIO, end = (t + rows) / RATIO;
    b->index_pool(b, o->raw, KV_F32, in->w, &rope, first, end - first, RATIO, D_HEAD, 1e-6f,
                  o->pooled);
    struct block_choice choice = {RATIO, CHOSEN, o->blocks + at * CHOSEN, o->counts + at};
    b->index_choose(b, o->index_q + indexed, o->pooled, rows, HEADS_I, D_HEAD, t, &choice,
                    o->scores + at * BLOCKS, BLOCKS);
    struct kv_cache cache = {KV_F16, o->k, o->v, N_KV, D_HEAD};
    b->attention(b, o->q + wide, &cache, &choice, rows, N_HEAD, t, o->sparse + wide);
    choice.ratio = 0;
    b->attention(b, o->q + wide, &cache, &choice, rows, N_HEAD, t, o->dense + wide);
    b->gate(b, o->dense + wide, in->attn + wide, N_HEAD * D_HEAD, D_HEAD, rows, N_HEAD, D_HEAD);
}

/* Experts in ascending or descending order, one call each or all together. */
static void run_experts(struct backend *b, const struct input *in, struct output *o, int t,
                        int rows, bool together)
{
    size_t at = (size_t)t;
    struct err e;
    err_clear(&e);
    assert_true(b->route(b, in->logits + at * EXPERTS, rows, EXPERTS, TOP, true, NULL, o->ids + at * TOP,
                         o->weights + at * TOP, &e));
    struct expert_job jobs[EXPERTS];
    int32_t list[EXPERTS][TOKENS];
    float weights[EXPERTS][TOKENS];
    for (int i = 0; i < EXPERTS; i++) {
        int x = together ? i : EXPERTS - 1 - i, n = 0;
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < TOP; k++)
                if (o->ids[(t + r) * TOP + k] == x) {
                    list[i][n] = r;
                    weights[i][n++] = o->weights[(t + r) * TOP + k];
                }
        size_t big = (size_t)x * N * WIDTH / 32 * 34;
        jobs[i] = (struct expert_job){{in->gate + big, TYPE_Q8_0, N, WIDTH, 1, NULL},
                                      {in->up + big, TYPE_Q8_0, N, WIDTH, 1, NULL},
                                      {in->down + big, TYPE_Q8_0, WIDTH, N, 1, NULL},
                                      x,
                                      list[i],
                                      weights[i],
                                      n};
    }
    int64_t *sum = o->sum + at * N;
    for (int i = 0; i < (together ? 1 : EXPERTS); i++)
        b->experts(b, in->x + at * N, N, jobs + i, together ? EXPERTS : 1, sum);
    b->routed(b, sum, (size_t)rows * N, o->routed + at * N);
    struct tensor w = {in->gate, TYPE_Q8_0, N, WIDTH, 0.5f, NULL};
    b->linear(b, in->x + at * N, rows, N, &(struct product){&w, o->product + at * WIDTH}, 1);
    struct tensor up = {in->up, TYPE_Q8_0, N, WIDTH, 1, NULL};
    struct tensor down = {in->down, TYPE_Q8_0, WIDTH, N, 1, NULL};
    struct tensor scale = {in->w, TYPE_F32, N, 1, 1, NULL};
    b->shared_expert(b, in->x + at * N, rows, N, &w, &up, &down, &scale, o->shared + at * N);
}

/* All tokens in windows of the given sizes, over and over. */
static void run(const struct input *in, enum cpu_isa isa, int threads, const int *windows,
                bool together, struct output *o)
{
    memset(o, 0, sizeof *o);
    struct fixture f = fixture_open(threads, isa, &limits);
    for (int t = 0, i = 0; t < TOKENS; i = windows[i + 1] ? i + 1 : 0) {
        int rows = windows[i] < TOKENS - t ? windows[i] : TOKENS - t;
        run_streams(f.b, in, o, t, rows);
        run_delta(f.b, in, o, t, rows);
        run_attention(f.b, in, o, t, rows);
        run_experts(f.b, in, o, t, rows, together);
        t += rows;
    }
    fixture_finish(&f);
    fixture_close(&f);
}

/* NaN marks incomplete blocks; its bits may differ. */
static void plain_scores(struct output *o)
{
    for (int i = 0; i < TOKENS * BLOCKS; i++)
        if (isnan(o->scores[i]))
            o->scores[i] = -1;
}

#define SAME(field)                                                                                \
    if (memcmp(got->field, want->field, sizeof got->field))                                        \
    fail_msg(#field " differs with %s, %d threads, windows of %d", cpu_isa_name(isa), threads,     \
             windows[0])

static void compare(const struct output *got, const struct output *want, enum cpu_isa isa,
                    int threads, const int *windows)
{
    SAME(normed);
    SAME(low);
    SAME(mixed);
    SAME(gate);
    SAME(streams);
    SAME(conv);
    SAME(history);
    SAME(net_conv);
    SAME(net_history);
    SAME(scan_state);
    SAME(alpha);
    SAME(beta);
    SAME(scan);
    SAME(state);
    SAME(gated);
    SAME(q);
    SAME(index_q);
    SAME(k);
    SAME(v);
    SAME(raw);
    SAME(pooled);
    SAME(scores);
    SAME(blocks);
    SAME(counts);
    SAME(sparse);
    SAME(dense);
    SAME(ids);
    SAME(weights);
    SAME(routed);
    SAME(product);
    SAME(shared);
    SAME(ple);
    SAME(sum);
}

static void bits_depend_on_nothing_but_the_input(void **state)
{
    static const int one[] = {1, 0}, whole[] = {TOKENS, 0}, uneven[] = {3, 1, 8, 2, 0};
    static const struct {
        int threads;
        const int *windows;
        bool together;
    } ways[] = {
        {1, whole, true}, {1, one, false}, {3, whole, false}, {2, uneven, true}, {5, one, true}};
    struct input in = make_input();
    struct output *want = test_malloc(sizeof *want), *got = test_malloc(sizeof *got);
    run(&in, CPU_ISA_C, 1, whole, true, want);
    plain_scores(want);
    assert_true(want->routed[0] != 0 && want->sparse[0] != want->dense[0]);
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        for (size_t i = 0; cpu_isa_available(isa) && i < sizeof ways / sizeof *ways; i++) {
            run(&in, isa, ways[i].threads, ways[i].windows, ways[i].together, got);
            plain_scores(got);
            compare(got, want, isa, ways[i].threads, ways[i].windows);
        }
    }
    test_free(want);
    test_free(got);
    free_input(&in);
}

/* One row over many blocks is split by blocks, several rows are split by rows. */
static void a_long_index_chooses_the_same_blocks_however_it_is_split(void **state)
{
    enum { ROWS = 3, LONG = 1500, ROOM = 77, POS = LONG * RATIO - ROWS };
    struct backend_limits long_limits = limits;
    long_limits.blocks = LONG;
    float *q = test_floats(ROWS * HEADS_I * D_HEAD, 1), *pooled = test_floats(LONG * D_HEAD, 2);
    int32_t want[ROWS * ROOM], got[ROWS * ROOM], counts[ROWS];
    struct block_choice choice = {RATIO, ROOM, want, counts};
    struct fixture f = fixture_open(1, CPU_ISA_C, &long_limits);
    f.b->index_choose(f.b, q, pooled, ROWS, HEADS_I, D_HEAD, POS, &choice, NULL, 0);
    fixture_close(&f);
    for (int threads = 2; threads <= 4; threads++) {
        f = fixture_open(threads, cpu_isa_best(), &long_limits);
        for (int t = 0; t < ROWS; t++) {
            choice = (struct block_choice){RATIO, ROOM, got + t * ROOM, counts + t};
            f.b->index_choose(f.b, q + t * HEADS_I * D_HEAD, pooled, 1, HEADS_I, D_HEAD, POS + t,
                              &choice, NULL, 0);
            assert_int_equal(counts[t], ROOM);
        }
        assert_memory_equal(got, want, sizeof want);
        choice = (struct block_choice){RATIO, ROOM, got, counts};
        f.b->index_choose(f.b, q, pooled, ROWS, HEADS_I, D_HEAD, POS, &choice, NULL, 0);
        assert_memory_equal(got, want, sizeof want);
        fixture_finish(&f);
        fixture_close(&f);
    }
    test_free(q);
    test_free(pooled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_nothing_but_the_input),
        cmocka_unit_test(a_long_index_chooses_the_same_blocks_however_it_is_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
