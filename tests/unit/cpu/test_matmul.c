/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that the C products, the definition of all others, are what numerics.md says: the order of
 * sums is seen in values that cancel, sizes are compared with exact sums in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/dot.h"
#include "cpu/linear.h"

#define N 1280 /* a multiple of every block, five blocks of 256 and forty of 32 */

static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float random_unit(void)
{
    return (float)(int32_t)random_u32() * 0x1p-31f;
}

/* gcc 12 with VNNI takes the cast byte as unsigned where it vectorizes (kernels.md section 1).
 * The flags of this file are those of the C definition. */
static int signed_bytes(const uint8_t *p, const int8_t *x)
{
    int s = 0;
    for (int i = 0; i < 32; i++)
        s += (int8_t)p[i] * x[i];
    return s;
}

static void the_flags_of_the_definition_keep_bytes_signed(void **state)
{
    for (int round = 0; round < 1000; round++) {
        uint8_t p[32];
        int8_t x[32];
        long expected = 0;
        for (int i = 0; i < 32; i++) {
            p[i] = (uint8_t)random_u32();
            x[i] = (int8_t)random_u32();
            expected += (p[i] < 128 ? (long)p[i] : (long)p[i] - 256) * (long)x[i];
        }
        assert_int_equal(signed_bytes(p, x), expected);
    }
}

/* 1e8 + 1 is 1e8 in float32: 1 survives only where it is added after the other two cancelled. */
static float float_cancel(int big, int minus_big, int one)
{
    float w[96] = {0}, x[96], y = 5;
    for (int i = 0; i < 96; i++)
        x[i] = 1;
    w[big] = 1e8f;
    w[minus_big] = -1e8f;
    w[one] = 1;
    cpu_dot_f32_c(w, x, 96, 96, 1, &y, 1);
    return y;
}

static void float_rows_are_summed_in_32_chains_and_a_tree(void **state)
{
    assert_true(float_cancel(0, 64, 32) == 0); /* one chain, in order of k */
    assert_true(float_cancel(0, 32, 64) == 1);
    assert_true(float_cancel(0, 64, 1) == 1); /* another chain */
    assert_true(float_cancel(0, 64, 33) == 1);
    assert_true(float_cancel(0, 16, 8) == 1); /* i with i + 16 before i with i + 8 */
    assert_true(float_cancel(0, 8, 16) == 0);
    assert_true(float_cancel(3, 11, 7) == 1); /* + 8 before + 4 */
    assert_true(float_cancel(3, 7, 11) == 0);
    assert_true(float_cancel(1, 5, 3) == 1); /* + 4 before + 2 */
    assert_true(float_cancel(1, 3, 5) == 0);
    assert_true(float_cancel(0, 2, 1) == 1); /* + 2 before + 1 */
    assert_true(float_cancel(0, 1, 2) == 0);
}

/* One code of 1 in each of three blocks of 32, scales as above. */
static float block_cancel(int big, int minus_big, int one)
{
    enum { BLOCKS = 24 };
    int16_t w[BLOCKS * 32] = {0}, q[BLOCKS * 32] = {0}, sums[BLOCKS * 2] = {0};
    float d[BLOCKS] = {0}, dx[BLOCKS], y = 5;
    struct quant_row row = {.w = w, .d = d};
    struct quant_act act = {BLOCKS * 32, 1, 32, q, dx, sums, BLOCKS * 32, NULL};
    for (int b = 0; b < BLOCKS; b++) {
        w[32 * b + b] = 1;
        q[32 * b + b] = 1;
        dx[b] = 1;
    }
    d[big] = 1e8f;
    d[minus_big] = -1e8f;
    d[one] = 1;
    cpu_dot_int_c(&row, &act, 0, 1, &y, 1);
    return y;
}

static void blocks_are_summed_in_8_chains_and_a_tree(void **state)
{
    assert_true(block_cancel(0, 16, 8) == 0); /* one chain, in order of blocks */
    assert_true(block_cancel(0, 8, 16) == 1);
    assert_true(block_cancel(0, 8, 1) == 1);
    assert_true(block_cancel(1, 5, 3) == 1); /* + 4 before + 2 */
    assert_true(block_cancel(1, 3, 5) == 0);
    assert_true(block_cancel(0, 2, 1) == 1); /* + 2 before + 1 */
    assert_true(block_cancel(0, 1, 2) == 0);
}

/* A row of random blocks whose values are finite and of ordinary size. */
static void random_row(uint32_t type, uint8_t *blocks)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    float values[256], most;
    for (int i = 0; i < N; i += info->block_values, blocks += info->block_bytes) {
        do {
            for (int k = 0; k < info->block_bytes; k++)
                blocks[k] = (uint8_t)random_u32();
            quant_decode(type, blocks, values, info->block_values);
            most = 0;
            for (int k = 0; k < info->block_values; k++)
                most = fabsf(values[k]) < 1e30f ? fmaxf(most, fabsf(values[k])) : INFINITY;
        } while (!(most > 1e-3f && most < 8));
    }
}

/* y and the sum of magnitudes must agree with the exact sum of w * x to 4e-6 of the latter. */
static void assert_near(uint32_t type, float y, const float *w, const double *x)
{
    double sum = 0, magnitude = 0;
    for (int i = 0; i < N; i++) {
        sum += (double)w[i] * x[i];
        magnitude += fabs((double)w[i] * x[i]);
    }
    if (!(fabs((double)y - sum) <= 4e-6 * magnitude))
        fail_msg("%s: %.9g, exact %.9g, magnitude %.9g", tensor_type_info(type)->name, (double)y,
                 sum, magnitude);
}

static void products_of_every_type_are_the_exact_sum(void **state)
{
    static float x[N], w[N];
    static double rounded[N];
    uint8_t *blocks = malloc(N * sizeof(float));
    struct quant_row row = {malloc(N * 2), malloc(N * 4), malloc(N * 4), malloc(N * 2),
                            malloc(N * 4)};
    struct cpu_matmul m;
    struct quant_act act;
    assert_true(blocks && row.w && row.d && row.dmin && row.m && row.d16);
    cpu_matmul_init(&m, CPU_ISA_C);
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        const struct quant_traits *t = quant_traits(type);
        if (t->form == QUANT_NONE)
            continue;
        float y;
        for (int i = 0; i < N; i++)
            x[i] = random_unit();
        random_row(type, blocks);
        quant_decode(type, blocks, w, N);
        int block = cpu_act_block(type);
        for (int i = 0; i < N && block == 0; i++)
            rounded[i] = (double)x[i];
        if (block == 0) {
            m.dot_float[type](blocks, x, N, N, 1, &y, 1);
            assert_near(type, y, w, rounded);
            continue;
        }
        void *memory = malloc(cpu_act_bytes(1, N, block) + 64);
        assert_non_null(memory);
        cpu_act_place(&act, memory, 1, N, block);
        assert_true(m.round(x, N, &act, 0));
        for (int i = 0; i < N; i++)
            rounded[i] = (double)act.d[i / block] * act.q[i];
        m.unpack[type](blocks, N, &row);
        cpu_dot_int_fn *dot = block == 256 ? (t->has_min ? m.dot_int256_min : m.dot_int256)
                              : t->has_d16 ? m.dot_int32_d16
                              : t->has_min ? m.dot_int32_min
                                           : m.dot_int32;
        dot(&row, &act, 0, 1, &y, 1);
        assert_near(type, y, w, rounded);
        free(memory);
    }
    free(blocks);
    free(row.w);
    free(row.d);
    free(row.dmin);
    free(row.m);
    free(row.d16);
}

/* A type that a greater set has no tile for would be slower there than with a lesser one. */
static void a_set_has_each_kind_of_kernel_that_a_lesser_one_has(void **state)
{
    static struct cpu_matmul lesser, m;
    enum cpu_isa before = CPU_ISA_C;
    cpu_matmul_init(&lesser, before);
    for (enum cpu_isa isa = CPU_ISA_C + 1; isa < CPU_ISAS; isa++) {
        if (!cpu_isa_available(isa))
            continue;
        cpu_matmul_init(&m, isa);
        for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
            bool tile = lesser.tile[type].unpack || lesser.panel[type];
            if ((tile && !m.tile[type].unpack && !m.panel[type]) ||
                (lesser.direct[type] && !m.direct[type]) ||
                (lesser.direct_short[type] && !m.direct_short[type]) ||
                (lesser.window[type] && !m.window[type]) ||
                (lesser.widen[type] && !m.widen[type]) || (lesser.tile_float && !m.tile_float))
                fail_msg("%s lacks a kernel of %s for %s", cpu_isa_name(isa), cpu_isa_name(before),
                         tensor_type_info(type)->name);
        }
        lesser = m;
        before = isa;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_flags_of_the_definition_keep_bytes_signed),
        cmocka_unit_test(float_rows_are_summed_in_32_chains_and_a_tree),
        cmocka_unit_test(blocks_are_summed_in_8_chains_and_a_tree),
        cmocka_unit_test(products_of_every_type_are_the_exact_sum),
        cmocka_unit_test(a_set_has_each_kind_of_kernel_that_a_lesser_one_has),
    };
    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
