/* SPDX-License-Identifier: Apache-2.0 */
/* 8 floats at once: the functions of base/fmath.h and the sums of numerics.md section 1 with the
 * bits of the C definition, and loads and stores that take what is left of a row. */
#ifndef STRATA_CPU_X86_MATH_AVX2_H
#define STRATA_CPU_X86_MATH_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Lanes that `left` values fill: all for 8 or more, none for 0 or less. */
static inline __m256i lanes_8(int left)
{
    __m256i number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), number);
}

/* `left` values, at most 8; the other lanes are 0 and their memory is not touched. */
static inline __m256 load_8(const float *p, int left)
{
    return left >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, lanes_8(left));
}

static inline void store_8(float *p, __m256 x, int left)
{
    if (left >= 8)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, lanes_8(left), x);
}

static inline __m256 load_half_8(const uint16_t *p, int left)
{
    if (left >= 8)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
    uint16_t part[8] = {0};
    if (left > 0)
        memcpy(part, p, (size_t)left * sizeof *p);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)part));
}

/* 2^n for -126 <= n <= 127. */
static inline __m256 power_of_two_8(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* fmath_exp */
static inline __m256 exp_8(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x); /* a NaN in the second operand stays */
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    p = _mm256_mul_ps(p, power_of_two_8(half));
    return _mm256_mul_ps(p, power_of_two_8(_mm256_sub_epi32(whole, half)));
}

/* e^-|x| */
static inline __m256 exp_of_minus_size_8(__m256 x)
{
    return exp_8(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));
}

static inline __m256 sigmoid_8(__m256 x)
{
    __m256 t = exp_of_minus_size_8(x), one = _mm256_set1_ps(1);
    __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
    return _mm256_div_ps(_mm256_blendv_ps(one, t, negative), _mm256_add_ps(one, t));
}

static inline __m256 silu_8(__m256 x)
{
    __m256 t = exp_of_minus_size_8(x);
    __m256 negative = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ);
    return _mm256_div_ps(_mm256_blendv_ps(x, _mm256_mul_ps(x, t), negative),
                         _mm256_add_ps(_mm256_set1_ps(1), t));
}

/* The 32 chains of a sum, eight to a register. */
struct chains_8 {
    __m256 c[4];
};

static inline struct chains_8 chains_8_zero(void)
{
    __m256 zero = _mm256_setzero_ps();
    return (struct chains_8){{zero, zero, zero, zero}};
}

/* Chain register r takes a * b; of the last values of a row only `left` count. The others must not
 * be touched, not even by adding 0, which turns -0 into +0. */
static inline void chains_8_fma(struct chains_8 *s, int r, __m256 a, __m256 b, int left)
{
    __m256 next = _mm256_fmadd_ps(a, b, s->c[r]);
    if (left < 8)
        next = _mm256_blendv_ps(s->c[r], next, _mm256_castsi256_ps(lanes_8(left)));
    s->c[r] = next;
}

/* i + 16 and i + 8 of the tree. */
static inline __m256 chains_8_fold(const struct chains_8 *s)
{
    return _mm256_add_ps(_mm256_add_ps(s->c[0], s->c[2]), _mm256_add_ps(s->c[1], s->c[3]));
}

/* The rest of the tree: i + 4, + 2, + 1. */
static inline float tree_8(__m256 s)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

static inline float chains_8_sum(const struct chains_8 *s)
{
    return tree_8(chains_8_fold(s));
}

#endif
