/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fmath.h"

#include <math.h> /* fmaf, fma, rintf, rint: exact operations, not approximations */
#include <stdint.h>

#include "base/half.h"

#define LN2_HIGH 0.693359375f /* few bits: products with small integers are exact */
#define LN2_LOW -2.12194440e-4f
#define LOG2_E 1.44269504f

/* 2^n for -126 <= n <= 127. */
static float power_of_two(int n)
{
    return half_bits_f32((uint32_t)(n + 127) << 23);
}

float fmath_exp(float x)
{
    if (isnan(x))
        return x;
    x = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    float n = rintf(x * LOG2_E);
    float r = fmaf(n, -LN2_LOW, fmaf(n, -LN2_HIGH, x));
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int whole = (int)n, half = whole >> 1; /* rounds down, also below 0 */
    return p * power_of_two(half) * power_of_two(whole - half);
}

/* k ln 2 + log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2). With s = f / (2 + f),
 * log(1 + f) = 2 atanh s = f - h + s (h + R), h = f^2 / 2, R = 2/3 s^2 + 2/5 s^4 + ...; written so
 * that the large parts f and k ln 2 come last. */
static float log_of_sum(float f, float k)
{
    float s = f / (2.0f + f), z = s * s, h = 0.5f * f * f;
    float p = 2.0f / 11;
    p = fmaf(p, z, 2.0f / 9);
    p = fmaf(p, z, 2.0f / 7);
    p = fmaf(p, z, 2.0f / 5);
    p = fmaf(p, z, 2.0f / 3);
    float small = fmaf(s, fmaf(p, z, h), k * LN2_LOW);
    return fmaf(k, LN2_HIGH, f - (h - small));
}

float fmath_log(float x)
{
    if (isnan(x) || x < 0)
        return NAN;
    if (x == 0)
        return -INFINITY;
    if (isinf(x))
        return x;
    int k = 0;
    if (x < 0x1p-126f) { /* denormal: exact in a higher range */
        x *= 0x1p24f;
        k = -24;
    }
    uint32_t bits = half_f32_bits(x);
    /* 0x3f3504f3 is sqrt(1/2): the mantissa is taken from there to just below sqrt(2). */
    int32_t shift = (int32_t)(bits - 0x3f3504f3) >> 23;
    k += shift;
    return log_of_sum(half_bits_f32(bits - ((uint32_t)shift << 23)) - 1.0f, (float)k);
}

float fmath_sigmoid(float x)
{
    float t = fmath_exp(-fabsf(x));
    return (x < 0 ? t : 1.0f) / (1.0f + t);
}

float fmath_silu(float x)
{
    float t = fmath_exp(-fabsf(x));
    return (x < 0 ? x * t : x) / (1.0f + t);
}

float fmath_softplus(float x)
{
    float t = fmath_exp(-fabsf(x));
    /* 1 + t lies in 1..2 and is never formed: above sqrt(2) half of it is taken. */
    float tail = t <= 0.41421356f ? log_of_sum(t, 0) : log_of_sum(0.5f * (t - 1.0f), 1);
    return (x < 0 ? 0.0f : x) + tail;
}

void fmath_sincos(float x, float *sine, float *cosine)
{
    if (!(fabsf(x) < 0x1p30f)) {
        *sine = *cosine = NAN;
        return;
    }
    /* pi/2 in two parts; the first product is exact in the fused operation. */
    const double half_pi = 0x1.921fb54442d18p+0, half_pi_low = 0x1.1a62633145c07p-54;
    double n = rint(x * 0x1.45f306dc9c883p-1);
    double r = fma(-n, half_pi_low, fma(-n, half_pi, x)), z = r * r;
    double s = -1.0 / 39916800;
    s = fma(s, z, 1.0 / 362880);
    s = fma(s, z, -1.0 / 5040);
    s = fma(s, z, 1.0 / 120);
    s = fma(s, z, -1.0 / 6);
    s = fma(s * z, r, r);
    double c = 1.0 / 479001600;
    c = fma(c, z, -1.0 / 3628800);
    c = fma(c, z, 1.0 / 40320);
    c = fma(c, z, -1.0 / 720);
    c = fma(c, z, 1.0 / 24);
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);
    uint32_t quarter = (uint32_t)(int32_t)n & 3;
    double a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
    *sine = (float)(quarter & 2 ? -a : a);
    *cosine = (float)((quarter + 1) & 2 ? -b : b);
}
