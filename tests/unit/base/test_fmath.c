/* SPDX-License-Identifier: Apache-2.0 */
/* The elementary functions stay within the bounds that their header promises, against long double,
 * over inputs spread through all floats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fmath.h"
#include "base/half.h"

#define STEP 4999 /* bit patterns between two tried inputs */

/* Distance in units of the last place of a float of the true value's size. */
static double ulps(float got, long double want)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (fabsl(want) >= 0x1.ffffffp127L)
        return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    int exponent;
    frexpl(want, &exponent);
    return (double)(fabsl(got - want) / ldexpl(1, (exponent < -125 ? -125 : exponent) - 24));
}

static long double true_sigmoid(long double x)
{
    return 1 / (1 + expl(-x));
}

static long double true_silu(long double x)
{
    return x / (1 + expl(-x));
}

static long double true_softplus(long double x)
{
    return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

static void check(float (*f)(float), long double (*want)(long double), float low, float high,
                  double bound)
{
    double worst = 0;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += STEP) {
        float x = half_bits_f32((uint32_t)bits);
        if (!(x >= low && x <= high))
            continue;
        double u = ulps(f(x), want(x));
        if (!(u <= worst)) {
            worst = u;
            if (!(u <= bound))
                fail_msg("%a: %g ulp", (double)x, u);
        }
    }
    assert_true(worst > 0); /* something was compared */
}

static void test_exp(void **state)
{
    (void)state;
    check(fmath_exp, expl, -INFINITY, INFINITY, 2);
    assert_true(fmath_exp(0) == 1);
    assert_true(fmath_exp(-INFINITY) == 0);
    assert_true(isinf(fmath_exp(INFINITY)));
    assert_true(isnan(fmath_exp(NAN)));
    assert_true(fmath_exp(-103.0f) == 0x1p-149f);
}

static void test_log(void **state)
{
    (void)state;
    check(fmath_log, logl, 0x1p-149f, 0x1.fffffep127f, 2);
    assert_true(fmath_log(1) == 0);
    assert_true(fmath_log(0) == -INFINITY);
    assert_true(fmath_log(INFINITY) == INFINITY);
    assert_true(isnan(fmath_log(-1)));
    assert_true(isnan(fmath_log(NAN)));
}

static void test_sigmoid_silu(void **state)
{
    (void)state;
    check(fmath_sigmoid, true_sigmoid, -87, 1000, 3);
    check(fmath_silu, true_silu, -87, 1000, 3);
    assert_true(fmath_sigmoid(0) == 0.5f);
    assert_true(fmath_sigmoid(-1e30f) == 0);
    assert_true(fmath_silu(-1e30f) == 0);
    assert_true(fmath_silu(1e30f) == 1e30f);
    assert_true(isnan(fmath_sigmoid(NAN)) && isnan(fmath_silu(NAN)));
}

static void test_softplus(void **state)
{
    (void)state;
    check(fmath_softplus, true_softplus, -87, 1e30f, 2);
    for (float x = 20.5f; x < 200; x += 0.37f)
        assert_true(fmath_softplus(x) == x);
    assert_true(isnan(fmath_softplus(NAN)));
}

static void test_sincos(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += STEP) {
        float x = half_bits_f32((uint32_t)bits), s, c;
        if (!(fabsf(x) <= 1e6f))
            continue;
        fmath_sincos(x, &s, &c);
        if (ulps(s, sinl(x)) > 1 || ulps(c, cosl(x)) > 1)
            fail_msg("%a: %a %a", (double)x, (double)s, (double)c);
    }
    float s, c;
    for (int i = 0; i < 300000; i++) { /* rope: the position itself is the largest angle */
        fmath_sincos((float)i, &s, &c);
        assert_true(ulps(s, sinl(i)) <= 1 && ulps(c, cosl(i)) <= 1);
    }
    fmath_sincos(INFINITY, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),          cmocka_unit_test(test_log),
        cmocka_unit_test(test_sigmoid_silu), cmocka_unit_test(test_softplus),
        cmocka_unit_test(test_sincos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
