/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations with AVX-512, 256 values at a time; the same codes as quant/round.c. */
#include <immintrin.h>
#include <string.h>

#include "cpu/x86/x86.h"

#define INLINE static inline __attribute__((always_inline))

/* A division takes as long as all the rest, so quotients are products with 1 / d first. Both are
 * roundings of the same number below 127.1 and at most 2^-15 apart, so the codes are the same unless
 * a product is closer than that to the middle between two; then 256 values are divided after all. */
#define FAR_FROM_WHOLE (0.5f - 0x1p-15f)
/* d whose reciprocal is as exact as any. */
#define LEAST_D 0x1p-100f
#define MOST_D 0x1p100f

#define PARTS 8 /* of 32 values */

/* Parts from `count` on are not there: zeros. */
struct values {
    const float *x;
    int count;
    int16_t *q;
    __m512i pairs[PARTS]; /* sums of two codes: of the first 16 in the lower half */
};

INLINE __m512i larger_lane(__m512i a, __m512i b)
{
    return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINE __m512i larger_pair(__m512i a, __m512i b)
{
    return _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Lane i: the largest magnitude of part i, as float bits. */
static __m256i largest(const struct values *v)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i m[PARTS];
#pragma GCC unroll 8
    for (int i = 0; i < PARTS; i++) {
        m[i] = _mm512_setzero_si512();
        if (i < v->count)
            m[i] = _mm512_max_epi32(
                _mm512_and_si512(magnitude, _mm512_loadu_si512(v->x + 32 * i)),
                _mm512_and_si512(magnitude, _mm512_loadu_si512(v->x + 32 * i + 16)));
    }
    __m512i low = larger_pair(larger_lane(m[0], m[1]), larger_lane(m[2], m[3]));
    __m512i high = larger_pair(larger_lane(m[4], m[5]), larger_lane(m[6], m[7]));
    low = _mm512_max_epi32(_mm512_shuffle_i64x2(low, high, 0x88),
                           _mm512_shuffle_i64x2(low, high, 0xdd));
    return _mm512_castsi512_si256(_mm512_max_epi32(_mm512_shuffle_i64x2(low, low, 0x88),
                                                   _mm512_shuffle_i64x2(low, low, 0xdd)));
}

INLINE void put_codes(struct values *v, int i, __m512i first, __m512i second)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i q = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(first, second));
    _mm512_storeu_si512(v->q + 32 * i, q);
    v->pairs[i] = _mm512_madd_epi16(q, _mm512_set1_epi16(1));
}

INLINE __m512 lane_everywhere(__m256 x, int i)
{
    return _mm512_permutexvar_ps(_mm512_set1_epi32(i), _mm512_castps256_ps512(x));
}

/* Codes by products. False when one of them is too close to call. */
static bool multiply(struct values *v, __m256 one_by_d)
{
    __m512 most[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int i = 0; i < v->count; i++) {
        __m512 by = lane_everywhere(one_by_d, i);
        __m512i q[2];
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            __m512 t = _mm512_mul_ps(_mm512_loadu_ps(v->x + 32 * i + 16 * k), by);
            q[k] = _mm512_cvtps_epi32(t);
            /* 0xb: the larger magnitude */
            most[k] = _mm512_range_ps(most[k], _mm512_sub_ps(t, _mm512_cvtepi32_ps(q[k])), 0xb);
        }
        put_codes(v, i, q[0], q[1]);
    }
    most[0] = _mm512_max_ps(most[0], most[1]);
    return _mm512_cmp_ps_mask(most[0], _mm512_set1_ps(FAR_FROM_WHOLE), _CMP_GT_OQ) == 0;
}

/* Codes by divisions, of any d. */
static void divide(struct values *v, __m256 all_d)
{
    for (int i = 0; i < v->count; i++) {
        __m512 d = lane_everywhere(all_d, i);
        __mmask16 counts = _mm512_cmp_ps_mask(d, _mm512_setzero_ps(), _CMP_NEQ_OQ);
        __m512i q[2];
        for (int k = 0; k < 2; k++) {
            __m512 t = _mm512_maskz_div_ps(counts, _mm512_loadu_ps(v->x + 32 * i + 16 * k), d);
            q[k] = _mm512_min_epi32(_mm512_cvtps_epi32(t), _mm512_set1_epi32(127));
            q[k] = _mm512_max_epi32(q[k], _mm512_set1_epi32(-127));
        }
        put_codes(v, i, q[0], q[1]);
    }
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
static __m256i block_sums(const struct values *v)
{
    const __m512i *p = v->pairs;
    __m512i low = add_pair(add_lane(p[0], p[1]), add_lane(p[2], p[3]));
    __m512i high = add_pair(add_lane(p[4], p[5]), add_lane(p[6], p[7]));
    /* The first sums of parts 0 to 3, their second ones, and those of parts 4 to 7. */
    low = _mm512_add_epi32(_mm512_shuffle_i64x2(low, high, 0x88),
                           _mm512_shuffle_i64x2(low, high, 0xdd));
    __m512i first = _mm512_shuffle_i64x2(low, low, 0x88);
    __m512i second = _mm512_slli_epi32(_mm512_shuffle_i64x2(low, low, 0xdd), 16);
    return _mm512_castsi512_si256(_mm512_mask_blend_epi16(0xaaaaaaaa, first, second));
}

static bool round_row(const float *x, int n, struct quant_act *a, int row)
{
    int16_t *q = a->q + (size_t)row * (size_t)a->stride;
    float *d = a->d + (size_t)row * (size_t)(a->stride / a->block);
    int16_t *bsum = a->bsum + (size_t)row * (size_t)(a->stride / 16);
    const __m256 zero = _mm256_setzero_ps();
    const bool is_wide = a->block == 256;
    for (int k = 0; k < n; k += 256) {
        struct values v = {.x = x + k, .count = n - k < 256 ? (n - k) / 32 : PARTS, .q = q + k};
        __mmask8 there = (__mmask8)((1u << v.count) - 1);
        __m256i most = largest(&v);
        if (_mm256_cmpgt_epi32_mask(most, _mm256_set1_epi32(0x7f7fffff)))
            return false;
        if (is_wide)
            most = _mm256_set1_epi32(_mm512_reduce_max_epi32(_mm512_castsi256_si512(most)));
        __m256 all_d = _mm256_div_ps(_mm256_castsi256_ps(most), _mm256_set1_ps(127));
        _mm256_mask_storeu_ps(d + k / (is_wide ? 256 : 32), is_wide ? 1 : there, all_d);
        __mmask8 usual = _mm256_cmp_ps_mask(all_d, _mm256_set1_ps(LEAST_D), _CMP_GE_OQ) &
                         _mm256_cmp_ps_mask(all_d, _mm256_set1_ps(MOST_D), _CMP_LE_OQ);
        __m256 by = _mm256_maskz_div_ps(usual, _mm256_set1_ps(1), all_d);
        __mmask8 others = (__mmask8)~usual & _mm256_cmp_ps_mask(all_d, zero, _CMP_NEQ_OQ);
        if (others || !multiply(&v, by))
            divide(&v, all_d);
        for (int i = v.count; i < PARTS; i++)
            v.pairs[i] = _mm512_setzero_si512();
        _mm256_mask_storeu_epi32(bsum + k / 16, there, block_sums(&v));
    }
    memset(q + n, 0, (size_t)(a->stride - n) * sizeof *q);
    memset(d + n / a->block, 0, (size_t)((a->stride - n) / a->block) * sizeof *d);
    memset(bsum + n / 16, 0, (size_t)(a->stride - n) / 16 * sizeof *bsum);
    return true;
}

void cpu_set_round_avx512(struct cpu_matmul *m)
{
    m->round = round_row;
}
