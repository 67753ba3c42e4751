/* SPDX-License-Identifier: Apache-2.0 */
/* Proves the rounding of activations (numerics.md section 2): scale, halves to even, limits, zero
 * padding, sums, and that inf and NaN are seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "quant/quant.h"

#define N 320 /* ten blocks of 32; padded to 512 */
#define STRIDE 512

static int16_t q[2][STRIDE], bsum[2][STRIDE / 16];
static float d[2][STRIDE / 32];

static struct quant_act act(int n, int block)
{
    memset(q, 0x55, sizeof q);
    memset(d, 0x55, sizeof d);
    memset(bsum, 0x55, sizeof bsum);
    return (struct quant_act){n, 2, block, q[0], d[0], bsum[0], STRIDE, NULL};
}

static void scale_is_the_largest_magnitude_over_127(void **state)
{
    float x[N] = {0};
    struct quant_act a = act(N, 32);
    x[3] = -2.54f;
    x[4] = 1.27f;
    x[40] = 127;
    assert_true(quant_round_row(x, N, &a, 1));
    assert_true(d[1][0] == 2.54f / 127);
    assert_int_equal(q[1][3], -127);
    assert_int_equal(q[1][4], (int)rintf(1.27f / (2.54f / 127)));
    assert_true(d[1][1] == 1);
    assert_int_equal(q[1][40], 127);
    for (int b = 2; b < 10; b++)
        assert_true(d[1][b] == 0);
}

static void halves_go_to_even(void **state)
{
    float x[N] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -125.5f};
    static const int expected[] = {127, 0, 2, 2, 0, -2, -2, 126, -126};
    struct quant_act a = act(N, 32);
    assert_true(quant_round_row(x, N, &a, 0));
    for (int i = 0; i < 9; i++)
        assert_int_equal(q[0][i], expected[i]);
}

static void padding_is_zero_and_sums_are_of_sixteen(void **state)
{
    float x[N];
    struct quant_act a = act(N, 32);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 37) - 11;
    assert_true(quant_round_row(x, N, &a, 0));
    for (int i = N; i < STRIDE; i++)
        assert_int_equal(q[0][i], 0);
    for (int b = N / 32; b < STRIDE / 32; b++)
        assert_true(d[0][b] == 0);
    for (int s = 0; s < STRIDE / 16; s++) {
        int sum = 0;
        for (int i = 0; i < 16; i++)
            sum += q[0][16 * s + i];
        assert_int_equal(bsum[0][s], sum);
    }
    assert_int_equal(q[1][0], 0x5555); /* the other row is not touched */
}

static void denormal_scales_keep_codes_in_range(void **state)
{
    float x[N] = {0};
    struct quant_act a = act(N, 32);
    x[0] = 190 * 0x1p-149f; /* 190 / 127 rounds to 1 unit: the quotient is 190 */
    x[1] = -190 * 0x1p-149f;
    x[32] = 60 * 0x1p-149f; /* below half a unit: scale 0 */
    assert_true(quant_round_row(x, N, &a, 0));
    assert_true(d[0][0] == 0x1p-149f);
    assert_int_equal(q[0][0], 127);
    assert_int_equal(q[0][1], -127);
    assert_true(d[0][1] == 0);
    assert_int_equal(q[0][32], 0);
}

static void blocks_of_256_have_one_scale(void **state)
{
    float x[256];
    struct quant_act a = act(256, 256);
    for (int i = 0; i < 256; i++)
        x[i] = (float)(i - 100);
    assert_true(quant_round_row(x, 256, &a, 1));
    assert_true(*(a.d + STRIDE / 256) == 155.0f / 127);
    for (int i = 0; i < 256; i++)
        assert_int_equal(q[1][i], (int)rintf(x[i] / (155.0f / 127)));
}

static void inf_and_nan_are_seen_anywhere(void **state)
{
    float x[N] = {1};
    struct quant_act a = act(N, 32);
    assert_true(quant_round_row(x, N, &a, 0));
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < N; i += 7) {
            x[i] = bad[k];
            assert_false(quant_round_row(x, N, &a, 0));
            x[i] = 0;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_is_the_largest_magnitude_over_127),
        cmocka_unit_test(halves_go_to_even),
        cmocka_unit_test(padding_is_zero_and_sums_are_of_sixteen),
        cmocka_unit_test(denormal_scales_keep_codes_in_range),
        cmocka_unit_test(blocks_of_256_have_one_scale),
        cmocka_unit_test(inf_and_nan_are_seen_anywhere),
    };
    return cmocka_run_group_tests_name("round", tests, NULL, NULL);
}
