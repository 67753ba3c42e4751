/* SPDX-License-Identifier: Apache-2.0 */
/* 16 floats at once: the functions of base/fmath.h and the sums of numerics.md section 1 with the
 * bits of the C definition, and loads that take what is left of a row. */
#ifndef STRATA_CPU_X86_MATH_AVX512_H
#define STRATA_CPU_X86_MATH_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define ALL_16 ((__mmask16)0xffff)

/* Lanes that `left` values fill: all for 16 or more, none for 0 or less. */
static inline __mmask16 lanes_16(int left)
{
    return left >= 16 ? ALL_16 : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

static inline __m512 load_16(const float *p, __mmask16 lanes)
{
    return _mm512_maskz_loadu_ps(lanes, p);
}

static inline __m512 load_half_16(const uint16_t *p, __mmask16 lanes)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p));
}

/* fmath_exp. scalef multiplies by 2^n with one rounding, as the C code's two factors do. */
static inline __m512 exp_16(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x); /* a NaN in the second operand stays */
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* e^-|x| */
static inline __m512 exp_of_minus_size_16(__m512 x)
{
    return exp_16(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
}

static inline __m512 sigmoid_16(__m512 x)
{
    __m512 t = exp_of_minus_size_16(x), one = _mm512_set1_ps(1);
    __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_div_ps(_mm512_mask_mov_ps(one, negative, t), _mm512_add_ps(one, t));
}

static inline __m512 silu_16(__m512 x)
{
    __m512 t = exp_of_minus_size_16(x);
    __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_div_ps(_mm512_mask_mul_ps(x, negative, x, t),
                         _mm512_add_ps(_mm512_set1_ps(1), t));
}

/* The rest of the tree once i and i + 16 are added: i + 8, + 4, + 2, + 1. */
static inline float tree_16(__m512 s)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* The same for four sums at once, which takes half as many instructions. */
static inline __m128 tree_4x16(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    __m512 s =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, s));
}

#endif
