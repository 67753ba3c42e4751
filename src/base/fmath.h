/* SPDX-License-Identifier: Apache-2.0 */
/* The elementary functions of every kernel and of the sampler: the project's one definition, the
 * same bits on every machine (numerics.md section 1). Built from adds, multiplies, divisions and
 * fused multiply-adds in a fixed order, no library function; SIMD kernels repeat the same steps.
 * Tested against long double. A NaN gives NaN. */
#ifndef STRATA_BASE_FMATH_H
#define STRATA_BASE_FMATH_H

/* e^x, within 2 ulp, also where the result is denormal. Below -104 it is 0, above 89 infinite.
 * n = round half to even of x * log2 e; r = x - n ln 2 in two steps; degree 7 in Horner form;
 * then times 2^(n/2) and 2^(n - n/2), so that a denormal result is rounded once. */
float fmath_exp(float x);

/* Natural logarithm, within 2 ulp. 0 gives -inf, below 0 NaN, inf stays inf. */
float fmath_log(float x);

/* 1 / (1 + e^-x) and x / (1 + e^-x), within 3 ulp for x >= -87 (below, e^x is denormal and has
 * fewer digits). With t = e^-|x| they are {1, x} / (1 + t) for x >= 0 and {t, x t} / (1 + t) below,
 * so that nothing overflows. */
float fmath_sigmoid(float x);
float fmath_silu(float x);

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), within 2 ulp where the result is normal. */
float fmath_softplus(float x);

/* Sine and cosine of x radians, each within 1 ulp for |x| < 2^30 (computed in float64 and rounded
 * once); NaN beyond. */
void fmath_sincos(float x, float *sine, float *cosine);

#endif
