/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations with AVX-512, 256 values at a time; the same codes as quant/round.c. */
#include <immintrin.h>
#include <string.h>

#include "cpu/x86/round.h"
#include "cpu/x86/x86.h"

#define INLINE static inline __attribute__((always_inline))

#define PARTS ROUND_PARTS

/* All parts are rounded by code of its own, so that what is between the steps stays in registers:
 * `count` and `is_wide`, blocks of 256, are constant there. Parts from `count` on are not there: zeros. */

INLINE __m512i larger_lane(__m512i a, __m512i b)
{
    return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE __m512i larger_pair(__m512i a, __m512i b)
{
    return _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

INLINE __m512i largest_of_part(const float *x)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    return _mm512_max_epi32(_mm512_and_si512(magnitude, _mm512_loadu_si512(x)),
                            _mm512_and_si512(magnitude, _mm512_loadu_si512(x + 16)));
}

/* Lane i: the largest magnitude of part i, or of all in blocks of 256, as float bits. */
INLINE __m256i largest(const float *x, const int count, const bool is_wide)
{
    __m512i m[PARTS];
#pragma GCC unroll 8
    for (int i = 0; i < PARTS; i++)
        m[i] = i < count ? largest_of_part(x + 32 * i) : _mm512_setzero_si512();
    if (is_wide) {
#pragma GCC unroll 8
        for (int i = 1; i < PARTS; i++)
            m[0] = _mm512_max_epi32(m[0], m[i]);
        return _mm256_set1_epi32(_mm512_reduce_max_epi32(m[0]));
    }
    __m512i low = larger_pair(larger_lane(m[0], m[1]), larger_lane(m[2], m[3]));
    __m512i high = larger_pair(larger_lane(m[4], m[5]), larger_lane(m[6], m[7]));
    low = _mm512_max_epi32(_mm512_shuffle_i64x2(low, high, 0x88),
                           _mm512_shuffle_i64x2(low, high, 0xdd));
    return _mm512_castsi512_si256(_mm512_max_epi32(_mm512_shuffle_i64x2(low, low, 0x88),
                                                   _mm512_shuffle_i64x2(low, low, 0xdd)));
}

/* 32 codes; returns sums of two: of the first 16 in the lower half. */
INLINE __m512i put_codes(int16_t *to, __m512i first, __m512i second)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i q = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(first, second));
    _mm512_storeu_si512(to, q);
    return _mm512_madd_epi16(q, _mm512_set1_epi16(1));
}

INLINE __m512 lane_everywhere(__m256 x, int i)
{
    return _mm512_permutexvar_ps(_mm512_set1_epi32(i), _mm512_castps256_ps512(x));
}

/* Codes by products, and their pairs. False when one of them is too close to call. */
INLINE bool multiply(const float *x, const int count, __m256 one_by_d, int16_t *to,
                     __m512i pairs[PARTS])
{
    __m512 most[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 8
    for (int i = 0; i < PARTS; i++) {
        pairs[i] = _mm512_setzero_si512();
        if (i >= count)
            continue;
        __m512 by = lane_everywhere(one_by_d, i);
        __m512i q[2];
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            __m512 t = _mm512_mul_ps(_mm512_loadu_ps(x + 32 * i + 16 * k), by);
            q[k] = _mm512_cvtps_epi32(t);
            /* 0xb: the larger magnitude */
            most[k] = _mm512_range_ps(most[k], _mm512_sub_ps(t, _mm512_cvtepi32_ps(q[k])), 0xb);
        }
        pairs[i] = put_codes(to + 32 * i, q[0], q[1]);
    }
    most[0] = _mm512_max_ps(most[0], most[1]);
    return _mm512_cmp_ps_mask(most[0], _mm512_set1_ps(ROUND_FAR_FROM_WHOLE), _CMP_GT_OQ) == 0;
}

INLINE __m512i add_lane(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE __m512i add_pair(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Sums of 16 codes, two a part. */
INLINE __m256i block_sums(const __m512i p[PARTS])
{
    __m512i low = add_pair(add_lane(p[0], p[1]), add_lane(p[2], p[3]));
    __m512i high = add_pair(add_lane(p[4], p[5]), add_lane(p[6], p[7]));
    /* The first sums of parts 0 to 3, their second ones, and those of parts 4 to 7. */
    low = _mm512_add_epi32(_mm512_shuffle_i64x2(low, high, 0x88),
                           _mm512_shuffle_i64x2(low, high, 0xdd));
    __m512i first = _mm512_shuffle_i64x2(low, low, 0x88);
    __m512i second = _mm512_slli_epi32(_mm512_shuffle_i64x2(low, low, 0xdd), 16);
    return _mm512_castsi512_si256(_mm512_mask_blend_epi16(0xaaaaaaaa, first, second));
}

/* Codes by divisions, of any d; returns the sums. */
static __attribute__((noinline)) __m256i divide(const float *x, int count, __m256 all_d, int16_t *to)
{
    __m512i pairs[PARTS];
    for (int i = 0; i < PARTS; i++) {
        pairs[i] = _mm512_setzero_si512();
        if (i >= count)
            continue;
        __m512 d = lane_everywhere(all_d, i);
        __mmask16 counts = _mm512_cmp_ps_mask(d, _mm512_setzero_ps(), _CMP_NEQ_OQ);
        __m512i q[2];
        for (int k = 0; k < 2; k++) {
            __m512 t = _mm512_maskz_div_ps(counts, _mm512_loadu_ps(x + 32 * i + 16 * k), d);
            q[k] = _mm512_min_epi32(_mm512_cvtps_epi32(t), _mm512_set1_epi32(127));
            q[k] = _mm512_max_epi32(q[k], _mm512_set1_epi32(-127));
        }
        pairs[i] = put_codes(to + 32 * i, q[0], q[1]);
    }
    return block_sums(pairs);
}

INLINE bool round_parts(const float *x, const int count, const bool is_wide, int16_t *q, float *d,
                        int16_t *bsum)
{
    const __m256 zero = _mm256_setzero_ps();
    __mmask8 there = (__mmask8)((1u << count) - 1);
    __m256i most = largest(x, count, is_wide);
    if (_mm256_cmpgt_epi32_mask(most, _mm256_set1_epi32(0x7f7fffff)))
        return false;
    __m256 all_d = _mm256_div_ps(_mm256_castsi256_ps(most), _mm256_set1_ps(127));
    _mm256_mask_storeu_ps(d, is_wide ? 1 : there, all_d);
    __mmask8 usual = _mm256_cmp_ps_mask(all_d, _mm256_set1_ps(ROUND_LEAST_D), _CMP_GE_OQ) &
                     _mm256_cmp_ps_mask(all_d, _mm256_set1_ps(ROUND_MOST_D), _CMP_LE_OQ);
    __m256 by = _mm256_maskz_div_ps(usual, _mm256_set1_ps(1), all_d);
    __mmask8 others = (__mmask8)~usual & _mm256_cmp_ps_mask(all_d, zero, _CMP_NEQ_OQ);
    __m512i pairs[PARTS];
    bool ok = !others && multiply(x, count, by, q, pairs);
    _mm256_mask_storeu_epi32(bsum, there, ok ? block_sums(pairs) : divide(x, count, all_d, q));
    return true;
}

static bool round_row(const float *x, int n, struct quant_act *a, int row)
{
    int16_t *q = a->q + (size_t)row * (size_t)a->stride;
    float *d = a->d + (size_t)row * (size_t)(a->stride / a->block);
    int16_t *bsum = a->bsum + (size_t)row * (size_t)(a->stride / 16);
    int full = n / 256 * 256;
    bool ok = true;
    if (a->block == 256) {
        for (int k = 0; ok && k < n; k += 256)
            ok = round_parts(x + k, PARTS, true, q + k, d + k / 256, bsum + k / 16);
        return ok;
    }
    for (int k = 0; ok && k < full; k += 256)
        ok = round_parts(x + k, PARTS, false, q + k, d + k / 32, bsum + k / 16);
    if (full == n)
        return ok;
    ok = ok && round_parts(x + full, (n - full) / 32, false, q + full, d + full / 32, bsum + full / 16);
    memset(q + n, 0, (size_t)(a->stride - n) * sizeof *q);
    memset(d + n / 32, 0, (size_t)(a->stride - n) / 32 * sizeof *d);
    memset(bsum + n / 16, 0, (size_t)(a->stride - n) / 16 * sizeof *bsum);
    return ok;
}

void cpu_set_round_avx512(struct cpu_matmul *m)
{
    m->round = round_row;
}
