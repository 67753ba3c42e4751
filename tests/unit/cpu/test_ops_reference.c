/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of the CPU backend gives what qwen4exp.md writes, compared with plain code in
 * double precision, on every instruction set of the machine; and says what it refuses. */
#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "cpu/ops.h"
#include "ops_fixture.h"

#define BOUND 3e-6

static const struct backend_limits limits = {.rows = 8,
                                             .n_in = 96,
                                             .expert_rows = 16,
                                             .expert_width = 40,
                                             .embd = 70,
                                             .ctx = 64,
                                             .blocks = 32};
static struct fixture f;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static void norm_reference(const float *x, const float *w, int n, double eps, double *out)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    for (int i = 0; i < n; i++)
        out[i] = x[i] / sqrt(sum / n + eps) * (w ? w[i] : 1);
}

static struct tensor f32_tensor(const float *data, int n_in, int n_out, float scale)
{
    return (struct tensor){data, TYPE_F32, n_in, n_out, scale, NULL};
}

static void norms_divide_by_the_root_of_the_mean_square(void **state)
{
    enum { COUNT = 6, GROUPS = 2, N = 67 };
    float *x = test_floats(COUNT * N, 1), *w = test_floats(GROUPS * N, 2);
    float out[COUNT * N];
    f.b->norm(f.b, x, w, GROUPS, COUNT, N, 1e-6f, out);
    for (int g = 0; g < COUNT; g++) {
        double want[N];
        norm_reference(x + g * N, w + g % GROUPS * N, N, 1e-6, want);
        for (int i = 0; i < N; i++)
            assert_close(out[g * N + i], want[i], BOUND, "norm", (size_t)(g * N + i));
    }
    f.b->norm(f.b, x, w, GROUPS, COUNT, N, 1e-6f, x);
    assert_memory_equal(x, out, sizeof out); /* in place */
    test_free(x);
    test_free(w);
}

static void streams_are_mixed_and_written(void **state)
{
    enum { ROWS = 3, HC = 4, N = 70, RANK = 11 };
    float *low = test_floats(ROWS * RANK, 1), *x = test_floats(ROWS * HC * N, 2);
    float *up = test_floats(HC * N * RANK, 5), gate[ROWS * HC * N];
    float *w = test_floats(ROWS * HC, 3), *y = test_floats(ROWS * N, 4), mixed[ROWS * N];
    struct tensor to_gate = f32_tensor(up, RANK, HC * N, 3);
    f.b->hc_mix(f.b, low, &to_gate, x, ROWS, HC, N, gate, mixed);
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int s = 0; s < HC; s++) {
                double z = 0;
                for (int c = 0; c < RANK; c++)
                    z += 3.0 * up[(s * N + i) * RANK + c] * low[t * RANK + c];
                assert_close(gate[(t * HC + s) * N + i], z, BOUND, "gate", (size_t)i);
                sum += sigmoid(z) * x[(t * HC + s) * N + i];
            }
            assert_close(mixed[t * N + i], sum / HC, BOUND, "hc_mix", (size_t)i);
        }
    float before[ROWS * HC];
    memcpy(before, w, sizeof before);
    f.b->hc_weights(f.b, w, ROWS * HC, HC);
    for (int i = 0; i < ROWS * HC; i++)
        assert_close(w[i], 2 * sigmoid(before[i] / HC), BOUND, "hc_weights", (size_t)i);
    float *written = test_floats(ROWS * HC * N, 2);
    f.b->hc_write(f.b, written, y, w, ROWS, HC, N);
    for (int g = 0; g < ROWS * HC; g++)
        for (int i = 0; i < N; i++) {
            volatile float product = w[g] * y[g / HC * N + i];
            volatile float sum = x[g * N + i] + product; /* two roundings */
            assert_true(written[g * N + i] == sum);
        }
    float *lower = test_floats(ROWS * N, 5), *was = test_floats(ROWS * N, 5);
    f.b->hc_low(f.b, lower, ROWS * N, HC);
    for (int i = 0; i < ROWS * N; i++)
        assert_close(lower[i], silu(was[i] / (double)HC), BOUND, "hc_low", (size_t)i);
    float *all[] = {low, up, x, w, y, written, lower, was};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_free(all[i]);
}

static void convolutions_are_causal_and_dilated_and_keep_their_history(void **state)
{
    enum { ROWS = 14, N = 37, TAPS = 4, DILATION = 3, PAST = (TAPS - 1) * DILATION };
    float *in = test_floats(ROWS * N, 1), *kernel = test_floats(N * TAPS, 2);
    float history[PAST * N] = {0}, out[ROWS * N];
    static const int windows[] = {2, 5, 1, 6};
    for (size_t i = 0, t = 0; i < 4; t += (size_t)windows[i++])
        f.b->conv(f.b, in + t * N, kernel, history, windows[i], N, TAPS, DILATION, out + t * N);
    for (int t = 0; t < ROWS; t++)
        for (int c = 0; c < N; c++) {
            double sum = 0;
            for (int j = 0; j < TAPS; j++) {
                int from = t - (TAPS - 1 - j) * DILATION;
                sum += from < 0 ? 0 : (double)kernel[c * TAPS + j] * in[from * N + c];
            }
            assert_close(out[t * N + c], silu(sum), BOUND, "conv", (size_t)(t * N + c));
        }
    assert_memory_equal(history, in + (ROWS - PAST) * N, sizeof history);
    test_free(in);
    test_free(kernel);
}

enum { NET_ROWS = 5, NET_K = 2, NET_V = 6, NET_D = 20, NET_TAPS = 4,
       NET_WIDTH = (2 * NET_K + NET_V) * NET_D };

/* What the net is given and leaves. */
struct net_values {
    float *qkv, *kernel, *history, *state, *z, *alpha, *beta, *a, *dt, *norm;
    float conv[NET_ROWS * NET_WIDTH], out[NET_ROWS * NET_V * NET_D];
    float conv_shown[NET_ROWS * NET_WIDTH], core[NET_ROWS * NET_V * NET_D];
};

static void net_begin(struct net_values *v)
{
    v->qkv = test_floats(NET_ROWS * NET_WIDTH, 1);
    v->kernel = test_floats(NET_WIDTH * NET_TAPS, 7);
    v->history = test_floats((NET_TAPS - 1) * NET_WIDTH, 8);
    v->alpha = test_floats(NET_ROWS * NET_V, 2);
    v->beta = test_floats(NET_ROWS * NET_V, 3);
    v->dt = test_floats(NET_V, 4);
    v->a = test_floats(NET_V, 5);
    v->state = test_floats(NET_V * NET_D * NET_D, 6);
    v->z = test_floats(NET_ROWS * NET_V * NET_D, 9);
    v->norm = test_floats(NET_D, 10);
    for (int i = 0; i < NET_V; i++)
        v->a[i] = -fabsf(v->a[i]);
}

static void net_end(struct net_values *v)
{
    float *all[] = {v->qkv, v->kernel, v->history, v->alpha, v->beta,
                    v->dt,  v->a,      v->state,   v->z,     v->norm};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_free(all[i]);
}

static struct delta_rows net_rows(struct net_values *v, bool grouped, enum gate_kind gate)
{
    return (struct delta_rows){.rows = NET_ROWS,
                               .n_k = NET_K,
                               .n_v = NET_V,
                               .d = NET_D,
                               .taps = NET_TAPS,
                               .grouped = grouped,
                               .l2_eps = 1e-6f,
                               .eps = 1e-5f,
                               .gate = gate,
                               .kernel = v->kernel,
                               .a = v->a,
                               .dt = v->dt,
                               .norm = v->norm,
                               .qkv = v->qkv,
                               .z = v->z,
                               .history = v->history,
                               .state = v->state,
                               .conv = v->conv,
                               .g = v->alpha,
                               .beta = v->beta,
                               .out = v->out,
                               .conv_shown = v->conv_shown,
                               .core_shown = v->core};
}

/* silu of the convolution of channel c at row t. */
static double net_conv(const struct net_values *v, int t, int c)
{
    double sum = 0;
    for (int j = 0; j < NET_TAPS; j++) {
        int row = t - (NET_TAPS - 1 - j);
        sum += v->kernel[c * NET_TAPS + j] * (double)(row >= 0 ? v->qkv[row * NET_WIDTH + c]
                                                   : v->history[(row + NET_TAPS - 1) * NET_WIDTH + c]);
    }
    return silu(sum);
}

static void check_net(bool grouped, enum gate_kind gate)
{
    static struct net_values v, in;
    net_begin(&v);
    net_begin(&in);
    struct delta_rows r = net_rows(&v, grouped, gate);
    f.b->delta_net(f.b, &r);
    static double conv[NET_ROWS][NET_WIDTH], want[NET_V][NET_D][NET_D];
    for (int t = 0; t < NET_ROWS; t++)
        for (int c = 0; c < NET_WIDTH; c++) {
            conv[t][c] = net_conv(&in, t, c);
            assert_close(v.conv_shown[t * NET_WIDTH + c], conv[t][c], BOUND, "conv", (size_t)c);
        }
    for (int t = 0; t < NET_ROWS; t++)
        for (int h = 0; h < 2 * NET_K; h++) {
            double sum = 0, *x = &conv[t][h * NET_D];
            for (int i = 0; i < NET_D; i++)
                sum += x[i] * x[i];
            for (int i = 0; i < NET_D; i++)
                x[i] /= sqrt(sum + 1e-6) * (h < NET_K ? sqrt(NET_D) : 1);
        }
    for (int i = 0; i < NET_ROWS * NET_WIDTH; i++)
        assert_close(v.conv[i], (&conv[0][0])[i], BOUND, "normed", (size_t)i);
    for (int i = 0; i < NET_ROWS * NET_V; i++) {
        double soft = log1p(exp((double)in.alpha[i] + in.dt[i % NET_V]));
        assert_close(v.alpha[i], in.a[i % NET_V] * soft, BOUND, "g", (size_t)i);
        assert_close(v.beta[i], sigmoid(in.beta[i]), BOUND, "beta", (size_t)i);
    }
    for (int i = 0; i < NET_V * NET_D * NET_D; i++)
        (&want[0][0][0])[i] = in.state[i];
    for (int t = 0; t < NET_ROWS; t++)
        for (int h = 0; h < NET_V; h++) {
            float core[NET_D];
            double normed[NET_D];
            int key = grouped ? h / (NET_V / NET_K) : h % NET_K, at = (t * NET_V + h) * NET_D;
            for (int i = 0; i < NET_D; i++) {
                const double *q = &conv[t][key * NET_D], *k = q + NET_K * NET_D;
                double s = 0, o = 0, decay = exp((double)v.alpha[t * NET_V + h]);
                for (int c = 0; c < NET_D; c++)
                    s += (want[h][i][c] *= decay) * k[c];
                double e = v.beta[t * NET_V + h] * (conv[t][(2 * NET_K + h) * NET_D + i] - s);
                for (int c = 0; c < NET_D; c++)
                    o += (want[h][i][c] += k[c] * e) * q[c];
                assert_close(v.core[at + i], o, BOUND, "core", (size_t)t);
                core[i] = (float)o;
            }
            norm_reference(core, in.norm, NET_D, 1e-5, normed);
            for (int i = 0; i < NET_D; i++) {
                double z = in.z[at + i];
                assert_close(v.out[at + i], normed[i] * (gate == GATE_SILU ? silu(z) : sigmoid(z)),
                             100 * BOUND, "out", (size_t)i);
            }
        }
    for (int i = 0; i < NET_V * NET_D * NET_D; i++)
        assert_close(v.state[i], (&want[0][0][0])[i], BOUND, "state", (size_t)i);
    for (int i = 0; i < (NET_TAPS - 1) * NET_WIDTH; i++)
        assert_true(v.history[i] == in.qkv[(NET_ROWS - NET_TAPS + 1) * NET_WIDTH + i]);
    net_end(&v);
    net_end(&in);
}

static void the_delta_net_follows_its_recurrence(void **state)
{
    check_net(false, GATE_SIGMOID);
    check_net(true, GATE_SILU);
}

/* A window is computed and leaves all as it was; then its first rows are taken in as if they had been
 * run alone. */
static void a_held_delta_net_is_committed_in_part(void **state)
{
    static struct net_values held, plain;
    enum { TAKEN = 3 };
    net_begin(&held);
    net_begin(&plain);
    struct delta_rows a = net_rows(&held, false, GATE_SIGMOID), b = net_rows(&plain, false, GATE_SIGMOID);
    float *state0 = test_floats(NET_V * NET_D * NET_D, 6);
    float *history0 = test_floats((NET_TAPS - 1) * NET_WIDTH, 8);
    a.is_held = true;
    a.conv_shown = a.core_shown = b.conv_shown = b.core_shown = NULL;
    b.rows = TAKEN;
    f.b->delta_net(f.b, &a);
    assert_memory_equal(held.state, state0, NET_V * NET_D * NET_D * sizeof(float));
    assert_memory_equal(held.history, history0, (NET_TAPS - 1) * NET_WIDTH * sizeof(float));
    f.b->delta_net(f.b, &b);
    assert_memory_equal(held.out, plain.out, TAKEN * NET_V * NET_D * sizeof(float));
    a.rows = TAKEN;
    a.is_held = false;
    f.b->conv_advance(f.b, a.qkv, a.history, TAKEN, NET_WIDTH, NET_TAPS - 1);
    f.b->delta_scan(f.b, &a);
    assert_memory_equal(held.state, plain.state, NET_V * NET_D * NET_D * sizeof(float));
    assert_memory_equal(held.history, plain.history, (NET_TAPS - 1) * NET_WIDTH * sizeof(float));
    test_free(state0);
    test_free(history0);
    net_end(&held);
    net_end(&plain);
}

static void heads_are_gated(void **state)
{
    enum { ROWS = 3, HEADS = 2, D = 12 };
    float *x = test_floats(ROWS * HEADS * D, 1), *z = test_floats(ROWS * HEADS * D, 2);
    float out[ROWS * HEADS * D];
    memcpy(out, x, sizeof out);
    f.b->gate(f.b, out, z, HEADS * D, D, ROWS, HEADS, D);
    for (int i = 0; i < ROWS * HEADS * D; i++)
        assert_close(out[i], x[i] * sigmoid(z[i]), BOUND, "gate", (size_t)i);
    test_free(x);
    test_free(z);
}

/* Attention of one row and head over a list of positions. */
static void attention_reference(const float *q, const float *k, const float *v, size_t row,
                                const int *list, int n, int d, double *out)
{
    double top = -INFINITY, sum = 0, score[64];
    for (int i = 0; i < n; i++) {
        score[i] = 0;
        for (int c = 0; c < d; c++)
            score[i] += (double)q[c] * k[(size_t)list[i] * row + (size_t)c];
        score[i] /= sqrt(d);
        top = fmax(top, score[i]);
    }
    for (int c = 0; c < d; c++)
        out[c] = 0;
    for (int i = 0; i < n; i++)
        sum += score[i] = exp(score[i] - top);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < d; c++)
            out[c] += score[i] / sum * v[(size_t)list[i] * row + (size_t)c];
}

enum { CTX = 43, N_KV = 2, N_HEAD = 10, D_HEAD = 24, KV_ROW = N_KV * D_HEAD };

/* Rows of d <= 32 values as a cache of blocks gives them back. */
static void to_blocks(float *x, int rows, int d)
{
    for (int t = 0; t < rows; t++, x += d) {
        float top = 0;
        for (int i = 0; i < d; i++)
            top = fmaxf(top, fabsf(x[i]));
        float scale = half_to_f32(half_from_f32(top / 127));
        for (int i = 0; i < d; i++)
            x[i] = scale * rintf(x[i] / scale);
    }
}

static void blocks_of_a_cache_are_off_by_half_a_step(void **state)
{
    enum { ROWS = 40, HEADS = 3, D = 72, BLOCKS = 3 };
    float *x = test_floats(ROWS * HEADS * D, 7), out[CPU_VALUE_COLUMNS];
    static const float sizes[] = {1, 1e-3f, 1e-6f, 2e-8f, 1e-12f, 0, 1e4f, 127 * 65504.0f};
    for (int t = 0; t < ROWS; t++) {
        for (int i = 0; i < HEADS * D; i++)
            x[t * HEADS * D + i] *= sizes[t % 8] / 4;
        x[t * HEADS * D + 5] = -sizes[t % 8]; /* the largest, so that some scales are exact */
    }
    struct kv_block *cache = test_malloc(ROWS * HEADS * BLOCKS * sizeof *cache);
    f.b->store(f.b, x, ROWS - 7, HEADS, D, cache, KV_Q8_0, 0);
    f.b->store(f.b, x + (ROWS - 7) * HEADS * D, 7, HEADS, D, cache, KV_Q8_0, ROWS - 7);
    fixture_finish(&f);
    for (int h = 0; h < ROWS * HEADS; h++)
        for (int b = 0; b < BLOCKS; b++) {
            const struct kv_block *block = &cache[h * BLOCKS + b];
            float scale = half_to_f32(block->scale), top = 0;
            for (int i = 0; i < KV_BLOCK; i++) {
                int at = b * KV_BLOCK + i;
                if (at >= D) {
                    assert_int_equal(block->q[i], 0);
                    continue;
                }
                float value = x[h * D + at];
                double bound = scale < 0x1p-14f ? 127 * 0x1p-25 : 0.5 * scale;
                assert_true(fabs((double)block->q[i] * scale - value) <= fmax(bound, 0.5 * scale));
                top = fmaxf(top, fabsf(value));
            }
            assert_true(block->scale == half_from_f32(top / 127));
        }
    struct cpu_ops ops;
    cpu_ops_init(&ops, CPU_ISA_C);
    int32_t row = 4;
    ops.gather_rows[KV_Q8_0](cache, HEADS * BLOCKS, &row, 1, 40, out);
    for (int i = 0; i < 48; i++)
        assert_true(out[i] == (i < 40 ? (float)cache[4 * HEADS * BLOCKS + i / 32].q[i % 32] *
                                            half_to_f32(cache[4 * HEADS * BLOCKS + i / 32].scale)
                                      : 0));

    static const float bad[] = {NAN, INFINITY, -INFINITY, 128 * 65504.0f};
    for (int i = 0; i < 4; i++) {
        struct err e;
        err_clear(&e);
        x[D + 40] = bad[i];
        f.b->layer = 2;
        f.b->store(f.b, x, 1, HEADS, D, cache, KV_Q8_0, 0);
        assert_false(f.b->finish(f.b, &e));
        assert_string_equal(
            e.text, "layer 2: a value at position 0 does not fit a half float of the cache");
    }
    f.b->layer = -1;
    test_free(cache);
    test_free(x);
}

static void attention_is_a_softmax_over_the_visible_tokens(void **state)
{
    enum { ROWS = 4, POS = CTX - ROWS, RATIO = 4, STRIDE = 3 };
    float *q = test_floats(ROWS * N_HEAD * D_HEAD, 1), out[ROWS * N_HEAD * D_HEAD];
    float *k = test_floats(CTX * KV_ROW, 2), *v = test_floats(CTX * KV_ROW, 3);
    for (int i = 0; i < CTX * KV_ROW; i++) { /* exact as half floats */
        k[i] = rintf(k[i] * 512) / 256;
        v[i] = rintf(v[i] * 512) / 256;
    }
    int32_t blocks[ROWS * STRIDE] = {0, 3, 8, 1, 2, 7, 2, 5, 9, 0, 1, 2},
                          counts[ROWS] = {3, 2, 3, 1};
    for (int kind = 0; kind < 2 * KV_TYPES; kind++) {
        enum kv_type type = (enum kv_type)(kind / 2);
        struct block_choice choice = {kind % 2 ? RATIO : 0, STRIDE, blocks, counts};
        struct kv_cache cache = {type, test_malloc(CTX * KV_ROW * 4), test_malloc(CTX * KV_ROW * 4),
                                 N_KV, D_HEAD};
        if (type == KV_Q8_0) { /* what the blocks hold */
            to_blocks(k, CTX * N_KV, D_HEAD);
            to_blocks(v, CTX * N_KV, D_HEAD);
        }
        f.b->store(f.b, k, CTX, N_KV, D_HEAD, cache.k, type, 0);
        f.b->store(f.b, v, POS, N_KV, D_HEAD, cache.v, type, 0);
        f.b->store(f.b, v + POS * KV_ROW, ROWS, N_KV, D_HEAD, cache.v, type, POS);
        f.b->attention(f.b, q, &cache, &choice, ROWS, N_HEAD, POS, out);
        for (int t = 0; t < ROWS; t++) {
            int list[CTX], n = 0, tokens = POS + t + 1;
            for (int b = 0; choice.ratio && b < counts[t]; b++)
                for (int i = 0; i < RATIO; i++)
                    list[n++] = blocks[t * STRIDE + b] * RATIO + i;
            for (int p = choice.ratio ? tokens / RATIO * RATIO : 0; p < tokens; p++)
                list[n++] = p;
            for (int h = 0; h < N_HEAD; h++) {
                double want[D_HEAD];
                int kv = h / (N_HEAD / N_KV);
                attention_reference(q + (t * N_HEAD + h) * D_HEAD, k + kv * D_HEAD, v + kv * D_HEAD,
                                    KV_ROW, list, n, D_HEAD, want);
                for (int c = 0; c < D_HEAD; c++)
                    assert_close(out[(t * N_HEAD + h) * D_HEAD + c], want[c], BOUND, "attention",
                                 (size_t)h);
            }
        }
        test_free(cache.k);
        test_free(cache.v);
    }
    test_free(q);
    test_free(k);
    test_free(v);
}

static void rope_reference(double *x, int n_rot, const float *inv_freq, int p, double mscale)
{
    for (int i = 0; i < n_rot / 2; i++) {
        double angle = (float)p * inv_freq[i], a = x[i], b = x[i + n_rot / 2];
        x[i] = (a * cos(angle) - b * sin(angle)) * mscale;
        x[i + n_rot / 2] = (b * cos(angle) + a * sin(angle)) * mscale;
    }
}

static const float inv_freq[] = {1, 0.3f, 0.07f, 0.002f};

static void heads_turn_with_their_position(void **state)
{
    enum { ROWS = 3, HEADS = 4, D = 20, ROW = HEADS * 2 * D, POS = 100000 };
    struct rope rope = {8, 1.25f, inv_freq};
    float *x = test_floats(ROWS * ROW, 1), *w = test_floats(D, 2), out[ROWS * HEADS * D];
    for (int with_norm = 0; with_norm < 2; with_norm++) {
        f.b->norm_rope(f.b, x, ROW, 2 * D, with_norm ? w : NULL, &rope, ROWS, HEADS, D, 1e-6f, POS,
                       out);
        for (int t = 0; t < ROWS; t++)
            for (int h = 0; h < HEADS; h++) {
                double want[D];
                const float *head = x + t * ROW + h * 2 * D;
                for (int i = 0; i < D; i++)
                    want[i] = head[i];
                if (with_norm)
                    norm_reference(head, w, D, 1e-6, want);
                rope_reference(want, rope.n_rot, inv_freq, POS + t, rope.mscale);
                for (int i = 0; i < D; i++)
                    assert_close(out[(t * HEADS + h) * D + i], want[i], BOUND, "norm_rope",
                                 (size_t)i);
            }
    }
    float again[ROWS * HEADS * D]; /* in place, without a norm, as if the heads were all there is */
    memcpy(again, x, sizeof again);
    f.b->norm_rope(f.b, x, HEADS * D, D, NULL, &rope, ROWS, HEADS, D, 1e-6f, POS, out);
    f.b->norm_rope(f.b, again, HEADS * D, D, NULL, &rope, ROWS, HEADS, D, 1e-6f, POS, again);
    assert_memory_equal(again, out, sizeof out);
    test_free(x);
    test_free(w);
}

static void block_keys_are_mean_norm_rope(void **state)
{
    enum { BLOCKS = 5, RATIO = 3, D = 20 };
    struct rope rope = {8, 1, inv_freq};
    float *raw = test_floats(BLOCKS * RATIO * D, 1), *w = test_floats(D, 2);
    float pooled[BLOCKS * D];
    for (int i = 0; i < BLOCKS * RATIO * D; i++)
        raw[i] = rintf(raw[i] * 512) / 256;
    for (int type = 0; type < 2; type++) {
        uint16_t half[BLOCKS * RATIO * D];
        f.b->store(f.b, raw, BLOCKS * RATIO, 1, D, half, KV_F16, 0);
        const void *keys = type == KV_F16 ? (const void *)half : raw;
        f.b->index_pool(f.b, keys, (enum kv_type)type, w, &rope, 0, 2, RATIO, D, 1e-6f, pooled);
        f.b->index_pool(f.b, keys, (enum kv_type)type, w, &rope, 2, BLOCKS - 2, RATIO, D, 1e-6f,
                        pooled);
        for (int b = 0; b < BLOCKS; b++) {
            float mean[D];
            double want[D];
            for (int i = 0; i < D; i++)
                mean[i] = (raw[(b * RATIO) * D + i] + raw[(b * RATIO + 1) * D + i] +
                           raw[(b * RATIO + 2) * D + i]) /
                          RATIO;
            norm_reference(mean, w, D, 1e-6, want);
            rope_reference(want, rope.n_rot, inv_freq, b * RATIO, 1);
            for (int i = 0; i < D; i++)
                assert_close(pooled[b * D + i], want[i], BOUND, "index_pool", (size_t)i);
        }
    }
    test_free(raw);
    test_free(w);
}

static void the_best_blocks_are_chosen_and_ties_go_to_the_lower(void **state)
{
    enum { ROWS = 5, HEADS = 5, D = 16, RATIO = 2, POS = 40, N_BLOCKS = 23, STRIDE = 6 };
    float *q = test_floats(ROWS * HEADS * D, 1), *pooled = test_floats(N_BLOCKS * D, 2);
    memcpy(pooled + 9 * D, pooled + 4 * D, D * sizeof(float)); /* equal scores */
    memcpy(pooled + 14 * D, pooled + 4 * D, D * sizeof(float));
    int32_t blocks[ROWS * STRIDE], counts[ROWS];
    float scores[ROWS * N_BLOCKS];
    for (int stride = 1; stride <= STRIDE; stride++) {
        struct block_choice choice = {RATIO, stride, blocks, counts};
        f.b->index_choose(f.b, q, pooled, ROWS, HEADS, D, POS, &choice, scores, N_BLOCKS);
        for (int t = 0; t < ROWS; t++) {
            int complete = (POS + t + 1) / RATIO;
            float *row = scores + t * N_BLOCKS;
            for (int b = 0; b < complete; b++) {
                double sum = 0;
                for (int h = 0; h < HEADS; h++) {
                    double dot = 0;
                    for (int c = 0; c < D; c++)
                        dot += (double)q[(t * HEADS + h) * D + c] * pooled[b * D + c];
                    sum += dot > 0 ? dot : 0;
                }
                assert_close(row[b], sum / sqrt(D), BOUND, "score", (size_t)b);
            }
            for (int b = complete; b < N_BLOCKS; b++)
                assert_true(isnan(row[b]));
            assert_int_equal(counts[t], stride);
            int found = 0;
            for (int b = 0; b < complete; b++) { /* chosen: fewer than `stride` are before it */
                int before = 0;
                for (int o = 0; o < complete; o++)
                    before += row[o] > row[b] || (row[o] == row[b] && o < b);
                if (before < stride)
                    assert_int_equal(blocks[t * stride + found++], b);
            }
        }
    }
    struct block_choice all = {RATIO, 32, (int32_t[ROWS * 32]){0}, counts};
    f.b->index_choose(f.b, q, pooled, ROWS, HEADS, D, 0, &all, NULL, 0);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[4], 2);
    assert_int_equal(all.blocks[4 * 32 + 1], 1);
    test_free(q);
    test_free(pooled);
}

static void the_router_takes_the_best_and_says_where_it_met_nan(void **state)
{
    enum { ROWS = 3, N = 40, K = 4 };
    float *logits = test_floats(ROWS * N, 1), weights[ROWS * K];
    int32_t ids[ROWS * K];
    struct err e;
    err_clear(&e);
    logits[7] = logits[3] = logits[30] = 2; /* equal and best */
    assert_true(f.b->route(f.b, logits, ROWS, N, K, true, NULL, ids, weights, &e));
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 7);
    assert_int_equal(ids[2], 30);
    for (int again = 0; again < 2; again++) {
        assert_true(f.b->route(f.b, logits, ROWS, N, K, !again, NULL, ids, weights, &e));
        for (int t = 0; t < ROWS; t++) {
            double all = 0, chosen = 0;
            for (int i = 0; i < N; i++)
                all += exp((double)logits[t * N + i]);
            for (int i = 0; i < K; i++)
                chosen += exp((double)logits[t * N + ids[t * K + i]]);
            for (int i = 0; i < K; i++)
                assert_close(weights[t * K + i],
                             exp((double)logits[t * N + ids[t * K + i]]) / (again ? all : chosen),
                             BOUND, "weight", (size_t)i);
        }
    }
    logits[N + 5] = NAN;
    f.b->layer = 11;
    assert_false(f.b->route(f.b, logits, ROWS, N, K, true, NULL, ids, weights, &e));
    assert_int_equal(e.code, ERR_NUMERIC);
    assert_string_equal(e.text, "layer 11: the router's logits of row 1 are not finite");
    f.b->layer = -1;
    fixture_finish(&f); /* told once */
    test_free(logits);
}

enum { EMBD = 70, WIDTH = 40, EXPERTS = 3 };

static double dot_reference(const float *w, const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += w[i] * x[i];
    return sum;
}

static void experts_add_their_weighted_outputs(void **state)
{
    enum { ROWS = 6 };
    float *x = test_floats(ROWS * EMBD, 1), *gate = test_floats(EXPERTS * EMBD * WIDTH, 2);
    float *up = test_floats(EXPERTS * EMBD * WIDTH, 3),
          *down = test_floats(EXPERTS * EMBD * WIDTH, 4);
    static const int32_t rows[EXPERTS][ROWS] = {{0, 1, 2, 3, 4, 5}, {4}, {5, 0, 3}};
    static const int counts[EXPERTS] = {6, 1, 3};
    float *weights = test_floats(ROWS, 5);
    struct expert_job jobs[EXPERTS];
    double want[ROWS * EMBD] = {0};
    for (int j = 0; j < EXPERTS; j++) {
        const float *g = gate + j * EMBD * WIDTH, *u = up + j * EMBD * WIDTH;
        const float *d = down + j * EMBD * WIDTH;
        jobs[j] = (struct expert_job){f32_tensor(g, EMBD, WIDTH, 0.5f),
                                      f32_tensor(u, EMBD, WIDTH, 2),
                                      f32_tensor(d, WIDTH, EMBD, 0.25f),
                                      j,
                                      rows[j],
                                      weights,
                                      counts[j]};
        for (int i = 0; i < counts[j]; i++) {
            double in[EMBD], mid[WIDTH];
            for (int c = 0; c < EMBD; c++)
                in[c] = x[rows[j][i] * EMBD + c];
            for (int r = 0; r < WIDTH; r++)
                mid[r] = silu(dot_reference(g + r * EMBD, in, EMBD) / 2) *
                         dot_reference(u + r * EMBD, in, EMBD) * 2;
            for (int r = 0; r < EMBD; r++)
                want[rows[j][i] * EMBD + r] +=
                    weights[i] * dot_reference(d + r * WIDTH, mid, WIDTH) / 4;
        }
    }
    int64_t sum[ROWS * EMBD] = {0};
    float out[ROWS * EMBD];
    f.b->experts(f.b, x, EMBD, jobs, EXPERTS, sum);
    f.b->routed(f.b, sum, ROWS * EMBD, out);
    for (int i = 0; i < ROWS * EMBD; i++) {
        assert_close(out[i], want[i], BOUND, "experts", (size_t)i);
        assert_true(sum[i] == 0);
    }
    float *all[] = {x, gate, up, down, weights};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_free(all[i]);
}

static void the_shared_expert_is_scaled_by_its_gate(void **state)
{
    enum { ROWS = 6 };
    float *x = test_floats(ROWS * EMBD, 1), *gate = test_floats(EMBD * WIDTH, 2), out[ROWS * EMBD];
    float *up = test_floats(EMBD * WIDTH, 3), *down = test_floats(EMBD * WIDTH, 4);
    float *scale = test_floats(EMBD, 5);
    struct tensor g = f32_tensor(gate, EMBD, WIDTH, 0.5f), u = f32_tensor(up, EMBD, WIDTH, 2);
    struct tensor d = f32_tensor(down, WIDTH, EMBD, 0.25f), s = f32_tensor(scale, EMBD, 1, 4);
    f.b->shared_expert(f.b, x, ROWS, EMBD, &g, &u, &d, &s, out);
    for (int t = 0; t < ROWS; t++) {
        double in[EMBD], mid[WIDTH];
        for (int c = 0; c < EMBD; c++)
            in[c] = x[t * EMBD + c];
        for (int r = 0; r < WIDTH; r++)
            mid[r] = silu(dot_reference(gate + r * EMBD, in, EMBD) / 2) *
                     dot_reference(up + r * EMBD, in, EMBD) * 2;
        double by = sigmoid(4 * dot_reference(scale, in, EMBD));
        for (int r = 0; r < EMBD; r++)
            assert_close(out[t * EMBD + r], by * dot_reference(down + r * WIDTH, mid, WIDTH) / 4,
                         BOUND, "shared expert", (size_t)r);
    }
    struct err e;
    err_clear(&e);
    uint8_t block[34 * EMBD] = {0}; /* Q8_0, which rounds */
    d = (struct tensor){block, TYPE_Q8_0, 32, EMBD, 1, NULL};
    g.n_out = u.n_out = 32;
    gate[3] = INFINITY;
    f.b->shared_expert(f.b, x, 1, EMBD, &g, &u, &d, &s, out);
    assert_false(f.b->finish(f.b, &e));
    assert_string_equal(e.text, "activations inside the shared expert are not finite");
    float *all[] = {x, gate, up, down, scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_free(all[i]);
}

static void outputs_out_of_range_name_layer_and_expert(void **state)
{
    float x[EMBD] = {1}, gate[EMBD * WIDTH] = {0}, down[EMBD * WIDTH] = {0}, weight = 1;
    float up[EMBD * WIDTH] = {0};
    gate[0] = 32; /* silu(32) = 32 */
    up[0] = 1;
    int64_t sum[EMBD] = {0};
    float out[EMBD];
    int32_t row = 0;
    struct expert_job job = {f32_tensor(gate, EMBD, WIDTH, 1),
                             f32_tensor(up, EMBD, WIDTH, 1),
                             f32_tensor(down, WIDTH, EMBD, 1),
                             7,
                             &row,
                             &weight,
                             1};
    struct err e;
    f.b->layer = 2;
    const float bad[] = {0x1p14f, -0x1p14f, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        err_clear(&e);
        down[5 * WIDTH] = bad[i];
        f.b->experts(f.b, x, EMBD, &job, 1, sum);
        assert_false(f.b->finish(f.b, &e));
        assert_string_equal(e.text,
                            "layer 2: an output of expert 7 is not a number below 2^19 in size");
    }
    f.b->layer = -1;
    memset(sum, 0, sizeof sum);
    down[5 * WIDTH] = 0x1.fffffep13f; /* the largest that is allowed */
    f.b->experts(f.b, x, EMBD, &job, 1, sum);
    f.b->routed(f.b, sum, EMBD, out);
    fixture_finish(&f);
    assert_true(out[5] == 0x1.fffffep18f);
}

static void sums_are_rounded_once(void **state)
{
    /* By way of float64 the first would become 9007199254740992 (kernels.md section 4). */
    int64_t sum[] = {((int64_t)1 << 53) + (1 << 29) + 1,
                     -((int64_t)1 << 53) - (1 << 29) - 1,
                     1,
                     -1,
                     0,
                     INT64_MAX,
                     (1 << 24) + 1,
                     (1 << 24) + 3};
    static const float want[] = {
        9007200328482816.0f, -9007200328482816.0f, 1, -1, 0, 0x1p63f, 1 << 24, (1 << 24) + 4};
    float out[8];
    f.b->routed(f.b, sum, 8, out);
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == want[i] * 0x1p-32f);
}

static void rows_are_embedded_repeated_and_added(void **state)
{
    enum { ROWS = 3, N = 70, TIMES = 4 };
    float *table = test_floats(5 * N, 1), *y = test_floats(ROWS * TIMES * N, 2);
    struct tensor w = f32_tensor(table, N, 5, 0.5f);
    static const int32_t ids[] = {4, 0, 4};
    float rows[ROWS * N], many[ROWS * TIMES * N];
    f.b->embed(f.b, &w, ids, ROWS, rows);
    f.b->repeat(f.b, rows, ROWS, N, TIMES, many);
    f.b->add(f.b, many, y, ROWS * TIMES * N);
    for (int i = 0; i < ROWS * TIMES * N; i++) {
        volatile float want = table[ids[i / (TIMES * N)] * N + i % N] * 0.5f;
        want = want + y[i];
        assert_true(many[i] == want);
    }
    memcpy(many, y, sizeof many);
    f.b->add_row(f.b, many, table, ROWS * TIMES, N);
    for (int i = 0; i < ROWS * TIMES * N; i++)
        assert_true(many[i] == y[i] + table[i % N]);
    float *up = test_floats(ROWS * N, 5), product[ROWS * 5];
    f.b->linear(f.b, up, ROWS, N, &(struct product){&w, product}, 1);
    for (int i = 0; i < ROWS * 5; i++) {
        double x[N];
        for (int c = 0; c < N; c++)
            x[c] = up[i / 5 * N + c];
        assert_close(product[i], dot_reference(table + i % 5 * N, x, N) / 2, BOUND, "linear",
                     (size_t)i);
    }
    float *all[] = {table, y, up};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        test_free(all[i]);
}

static void n_gram_gates_follow_the_sign_and_root(void **state)
{
    enum { ROWS = 2, HC = 3, N = 70 };
    float *key = test_floats(ROWS * HC * N, 1), *query = test_floats(ROWS * HC * N, 2);
    float *v = test_floats(ROWS * N, 3), a[ROWS * HC], u[ROWS * HC * N];
    memset(key, 0, N * sizeof(float)); /* d = 0: sign 0 */
    f.b->ple_gate(f.b, key, query, ROWS, HC, N, a);
    f.b->ple_spread(f.b, a, v, ROWS, HC, N, u);
    assert_true(a[0] == 0.5f);
    for (int g = 0; g < ROWS * HC; g++) {
        double d = 0;
        for (int i = 0; i < N; i++)
            d += (double)key[g * N + i] * query[g * N + i];
        d /= sqrt(N);
        double root = sqrt(fmax(fabs(d), 1e-6));
        assert_close(a[g], sigmoid(d > 0 ? root : d < 0 ? -root : 0), BOUND, "ple_gate", (size_t)g);
        for (int i = 0; i < N; i++)
            assert_true(u[g * N + i] == a[g] * v[g / HC * N + i]);
    }
    test_free(key);
    test_free(query);
    test_free(v);
}

static void the_first_problem_is_told_with_its_layer(void **state)
{
    uint16_t cache[4];
    float x[32] = {70000, 1, 2, 3};
    struct err e;
    err_clear(&e);
    f.b->layer = 4;
    f.b->store(f.b, x, 1, 1, 4, cache, KV_F16, 0);
    f.b->layer = 5;
    x[0] = NAN;
    uint8_t block[34] = {0}; /* a row of Q8_0 */
    float y[1];
    struct tensor w = {block, TYPE_Q8_0, 32, 1, 1, NULL};
    f.b->linear(f.b, x, 1, 32, &(struct product){&w, y}, 1);
    assert_false(f.b->finish(f.b, &e));
    assert_string_equal(e.text,
                        "layer 4: a value at position 0 does not fit a half float of the cache");
    err_clear(&e);
    f.b->layer = 3;
    f.b->linear(f.b, x, 1, 32, &(struct product){&w, y}, 1);
    assert_false(f.b->read(f.b, y, y, 4, &e));
    assert_string_equal(e.text, "layer 3: activations are not finite in a matrix product");
    f.b->layer = -1;
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_divide_by_the_root_of_the_mean_square),
        cmocka_unit_test(streams_are_mixed_and_written),
        cmocka_unit_test(convolutions_are_causal_and_dilated_and_keep_their_history),
        cmocka_unit_test(the_delta_net_follows_its_recurrence),
        cmocka_unit_test(a_held_delta_net_is_committed_in_part),
        cmocka_unit_test(heads_are_gated),
        cmocka_unit_test(blocks_of_a_cache_are_off_by_half_a_step),
        cmocka_unit_test(attention_is_a_softmax_over_the_visible_tokens),
        cmocka_unit_test(heads_turn_with_their_position),
        cmocka_unit_test(block_keys_are_mean_norm_rope),
        cmocka_unit_test(the_best_blocks_are_chosen_and_ties_go_to_the_lower),
        cmocka_unit_test(the_router_takes_the_best_and_says_where_it_met_nan),
        cmocka_unit_test(experts_add_their_weighted_outputs),
        cmocka_unit_test(outputs_out_of_range_name_layer_and_expert),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(the_shared_expert_is_scaled_by_its_gate),
        cmocka_unit_test(rows_are_embedded_repeated_and_added),
        cmocka_unit_test(n_gram_gates_follow_the_sign_and_root),
        cmocka_unit_test(the_first_problem_is_told_with_its_layer),
    };
    int failed = 0;
    for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
        if (!cpu_isa_available(isa))
            continue;
        print_message("instruction set %s\n", cpu_isa_name(isa));
        f = fixture_open(2, isa, &limits);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
        fixture_close(&f);
    }
    return failed;
}
