/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that the parallel product gives each (weight row, x row) the bits of the one-row kernel,
 * whatever the threads, the company of other rows and products, and the slices, for every
 * instruction set of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/linear.h"

#define N 512
#define ROWS 69 /* more than two tiles a thread of two, which round and pack them at once */
#define OUT 83

static const uint32_t types[] = {TYPE_Q8_0,  TYPE_Q4_K, TYPE_F32, TYPE_Q4_1,
                                 TYPE_NVFP4, TYPE_Q6_K, TYPE_BF16};
#define TYPES (sizeof types / sizeof *types)

static uint8_t *weights[TYPES];
static float x[ROWS * (N + 3)];
static const size_t x_stride = N + 3;

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

/* Random bytes: some scales are inf or NaN, results then are too; the others show the bits. */
static int make_inputs(void **state)
{
    for (size_t k = 0; k < TYPES; k++) {
        size_t bytes = tensor_row_bytes(types[k], N) * OUT;
        weights[k] = malloc(bytes);
        if (!weights[k])
            return -1;
        for (size_t i = 0; i < bytes; i++)
            weights[k][i] = (uint8_t)(random_u32() & (i % 2 ? 0xbf : 0xff));
    }
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(int32_t)random_u32() * 0x1p-31f;
    return 0;
}

static int free_inputs(void **state)
{
    for (size_t k = 0; k < TYPES; k++)
        free(weights[k]);
    return 0;
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], 4) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    }
    return true;
}

/* All products of `types` in one call; y[k][t][r]. */
static void all_products(enum cpu_isa isa, int threads, int max_rows, int t0, int rows, bool exact,
                         float *y)
{
    struct err e = {0};
    struct cpu_matmul table;
    struct cpu_linear_ctx ctx;
    struct cpu_product p[TYPES];
    cpu_matmul_init(&table, isa);
    struct pool *pool = pool_create(threads, &e);
    assert_non_null(pool);
    assert_true(cpu_linear_ctx_init(&ctx, pool, &table, max_rows, N, &e));
    for (size_t k = 0; k < TYPES; k++)
        p[k] =
            (struct cpu_product){{weights[k], types[k], N, OUT}, y + k * (size_t)rows * OUT, OUT, 0};
    assert_true(cpu_linear(&ctx, x + (size_t)t0 * x_stride, x_stride, rows, p, TYPES, exact, &e));
    cpu_linear_ctx_free(&ctx);
    pool_free(pool);
}

static void bits_do_not_depend_on_threads_rows_slices_or_instruction_set(void **state)
{
    float *expected = malloc(sizeof(float) * TYPES * ROWS * OUT),
          *got = malloc(sizeof(float) * TYPES * ROWS * OUT);
    assert_true(expected && got);
    for (int exact = 0; exact < 2; exact++) {
        /* The definition: C, one thread, one x row a call. */
        for (int t = 0; t < ROWS; t++) {
            all_products(CPU_ISA_C, 1, 1, t, 1, exact, got);
            for (size_t k = 0; k < TYPES; k++)
                memcpy(expected + (k * ROWS + (size_t)t) * OUT, got + k * OUT, OUT * sizeof *got);
        }
        for (enum cpu_isa isa = 0; isa < CPU_ISAS; isa++) {
            if (!cpu_isa_available(isa))
                continue;
            static const int plans[][2] = {{1, 1}, {1, 64}, {2, 4}, {3, 7}, {1, 33}, {2, ROWS}};
            for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
                memset(got, 0x55, sizeof(float) * TYPES * ROWS * OUT);
                all_products(isa, plans[i][0], plans[i][1], 0, ROWS, exact, got);
                if (!same(expected, got, TYPES * ROWS * OUT))
                    fail_msg("%s, %d threads, slices of %d rows, exact %d", cpu_isa_name(isa),
                             plans[i][0], plans[i][1], exact);
            }
        }
    }
    free(expected);
    free(got);
}

static void a_range_of_rows_is_that_part_of_the_product(void **state)
{
    struct err e = {0};
    struct cpu_matmul table;
    struct cpu_linear_ctx ctx;
    static float whole[ROWS * OUT], part[20 * 50];
    cpu_matmul_init(&table, cpu_isa_best());
    struct pool *pool = pool_create(1, &e);
    assert_non_null(pool);
    assert_true(cpu_linear_ctx_init(&ctx, pool, &table, ROWS, N, &e));
    struct cpu_weight w = {weights[1], types[1], N, OUT};
    struct cpu_product p = {w, whole, OUT, 0};
    assert_true(cpu_linear(&ctx, x, x_stride, ROWS, &p, 1, false, &e));

    struct cpu_acts acts = {.x = x, .x_stride = x_stride};
    void *memory = aligned_alloc(64, cpu_act_bytes(ROWS, N, 256));
    assert_non_null(memory);
    cpu_act_place(&acts.block256, memory, ROWS, N, 256);
    for (int t = ROWS - 1; t >= 0; t--)
        assert_true(cpu_act_round(&ctx, x + (size_t)t * x_stride, &acts.block256, t));
    /* As they are, and packed: rows that start a tile. */
    for (int packed = 0; packed < 2; packed++) {
        int t0 = packed ? CPU_TILE_ROWS : 5;
        if (packed)
            cpu_act_pack(&ctx, &acts.block256, t0, 20);
        acts.packed = packed;
        memset(part, 0x55, sizeof part);
        cpu_rows(&ctx, 0, &w, 20, 70, &acts, t0, 20, part, 50);
        for (int t = 0; t < 20; t++)
            assert_true(same(whole + (t0 + t) * OUT + 20, part + t * 50, 50));
    }
    free(memory);
    cpu_linear_ctx_free(&ctx);
    pool_free(pool);
}

static void activations_that_are_not_finite_are_an_error(void **state)
{
    struct err e = {0};
    struct cpu_matmul table;
    struct cpu_linear_ctx ctx;
    static float y[ROWS * OUT], rows[ROWS * N];
    cpu_matmul_init(&table, cpu_isa_best());
    struct pool *pool = pool_create(2, &e);
    assert_non_null(pool);
    for (int slice = 1; slice <= ROWS; slice += ROWS - 1) {
        assert_true(cpu_linear_ctx_init(&ctx, pool, &table, slice, N, &e));
        struct cpu_product p = {{weights[0], types[0], N, OUT}, y, OUT, 0};
        assert_true(cpu_linear(&ctx, rows, N, ROWS, &p, 1, false, &e));
        rows[(ROWS - 1) * N + 77] = NAN;
        assert_false(cpu_linear(&ctx, rows, N, ROWS, &p, 1, false, &e));
        assert_int_equal(e.code, ERR_NUMERIC);
        assert_string_equal(e.text, "activations: not a finite number");
        rows[(ROWS - 1) * N + 77] = 0;
        err_clear(&e);
        cpu_linear_ctx_free(&ctx);
    }
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_threads_rows_slices_or_instruction_set),
        cmocka_unit_test(a_range_of_rows_is_that_part_of_the_product),
        cmocka_unit_test(activations_that_are_not_finite_are_an_error),
    };
    return cmocka_run_group_tests_name("linear", tests, make_inputs, free_inputs);
}
