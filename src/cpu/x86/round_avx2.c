/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations with AVX2, 256 values at a time; the same codes as quant/round.c. */
#include <immintrin.h>
#include <string.h>

#include "cpu/x86/round.h"
#include "cpu/x86/x86.h"

#define INLINE static inline __attribute__((always_inline))

#define PARTS ROUND_PARTS

/* `count`, of parts that are there (the others are zeros), and `is_wide`, blocks of 256, are constant
 * where all parts are. */

INLINE __m256i larger_lane(__m256i a, __m256i b)
{
    return _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

INLINE __m256i larger_pair(__m256i a, __m256i b)
{
    return _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

INLINE __m256i largest_of_part(const float *x)
{
    __m256i most = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int k = 0; k < 32; k += 8) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(x + k));
        most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_set1_epi32(0x7fffffff), bits));
    }
    return most;
}

/* Lane i: the largest magnitude of part i, or of all in blocks of 256, as float bits (signed compares
 * do: the sign bit is cleared). */
INLINE __m256i largest(const float *x, const int count, const bool is_wide)
{
    __m256i m[PARTS];
#pragma GCC unroll 8
    for (int i = 0; i < PARTS; i++)
        m[i] = i < count ? largest_of_part(x + 32 * i) : _mm256_setzero_si256();
    if (is_wide) {
#pragma GCC unroll 8
        for (int i = 1; i < PARTS; i++)
            m[0] = _mm256_max_epi32(m[0], m[i]);
        m[0] = _mm256_max_epi32(m[0], _mm256_permute2x128_si256(m[0], m[0], 0x01));
        m[0] = _mm256_max_epi32(m[0], _mm256_shuffle_epi32(m[0], 0x4e));
        return _mm256_max_epi32(m[0], _mm256_shuffle_epi32(m[0], 0xb1));
    }
    __m256i low = larger_pair(larger_lane(m[0], m[1]), larger_lane(m[2], m[3]));
    __m256i high = larger_pair(larger_lane(m[4], m[5]), larger_lane(m[6], m[7]));
    return _mm256_max_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

/* Codes of a part, eight a register; returns sums of four codes, in each half two of the first 16 and
 * two of the others. */
INLINE __m256i put_codes(int16_t *to, const __m256i code[4])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i first = _mm256_packs_epi32(code[0], code[1]);
    __m256i second = _mm256_packs_epi32(code[2], code[3]);
    _mm256_storeu_si256((__m256i *)to, _mm256_permute4x64_epi64(first, 0xd8));
    _mm256_storeu_si256((__m256i *)(to + 16), _mm256_permute4x64_epi64(second, 0xd8));
    __m256i pairs =
        _mm256_packs_epi32(_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones));
    return _mm256_madd_epi16(pairs, ones);
}

INLINE __m256 lane_everywhere(__m256 x, int i)
{
    return _mm256_permutevar8x32_ps(x, _mm256_set1_epi32(i));
}

/* Codes by products. False when one of them is too close to call. */
INLINE bool multiply(const float *x, const int count, __m256 one_by_d, int16_t *to,
                     __m256i fours[PARTS])
{
    __m256 most = _mm256_setzero_ps(), least = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < PARTS; i++) {
        fours[i] = _mm256_setzero_si256();
        if (i >= count)
            continue;
        __m256 by = lane_everywhere(one_by_d, i);
        __m256i code[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m256 t = _mm256_mul_ps(_mm256_loadu_ps(x + 32 * i + 8 * k), by);
            code[k] = _mm256_cvtps_epi32(t);
            __m256 rest = _mm256_sub_ps(t, _mm256_cvtepi32_ps(code[k]));
            most = _mm256_max_ps(most, rest);
            least = _mm256_min_ps(least, rest);
        }
        fours[i] = put_codes(to + 32 * i, code);
    }
    most = _mm256_max_ps(most, _mm256_sub_ps(_mm256_setzero_ps(), least));
    __m256 close = _mm256_cmp_ps(most, _mm256_set1_ps(ROUND_FAR_FROM_WHOLE), _CMP_GT_OQ);
    return _mm256_movemask_ps(close) == 0;
}

/* Sums of 16 codes, two a part. */
INLINE __m256i block_sums(const __m256i fours[PARTS])
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i eights[4], halves[2];
    for (int i = 0; i < 4; i++)
        eights[i] = _mm256_madd_epi16(_mm256_packs_epi32(fours[2 * i], fours[2 * i + 1]), ones);
    for (int i = 0; i < 2; i++)
        halves[i] = _mm256_packs_epi32(eights[2 * i], eights[2 * i + 1]);
    return _mm256_add_epi16(_mm256_permute2x128_si256(halves[0], halves[1], 0x20),
                            _mm256_permute2x128_si256(halves[0], halves[1], 0x31));
}

/* Codes by divisions, of any d; returns the sums. */
static __attribute__((noinline)) __m256i divide(const float *x, int count, __m256 all_d, int16_t *to)
{
    __m256i fours[PARTS];
    for (int i = 0; i < PARTS; i++) {
        fours[i] = _mm256_setzero_si256();
        if (i >= count)
            continue;
        __m256 d = lane_everywhere(all_d, i);
        __m256 counts = _mm256_cmp_ps(d, _mm256_setzero_ps(), _CMP_NEQ_OQ);
        __m256i code[4];
        for (int k = 0; k < 4; k++) {
            __m256 t = _mm256_div_ps(_mm256_loadu_ps(x + 32 * i + 8 * k), d);
            code[k] = _mm256_cvtps_epi32(_mm256_and_ps(t, counts));
            code[k] = _mm256_min_epi32(code[k], _mm256_set1_epi32(127));
            code[k] = _mm256_max_epi32(code[k], _mm256_set1_epi32(-127));
        }
        fours[i] = put_codes(to + 32 * i, code);
    }
    return block_sums(fours);
}

/* Memory of a row is that of a multiple of 256 values (quant_act): scales and sums of parts that are
 * not there are written as zeros. */
INLINE bool round_parts(const float *x, const int count, const bool is_wide, int16_t *q, float *d,
                        int16_t *bsum)
{
    __m256i most = largest(x, count, is_wide);
    __m256i too_large = _mm256_cmpgt_epi32(most, _mm256_set1_epi32(0x7f7fffff));
    if (!_mm256_testz_si256(too_large, too_large))
        return false;
    __m256 all_d = _mm256_div_ps(_mm256_castsi256_ps(most), _mm256_set1_ps(127));
    if (is_wide)
        d[0] = _mm256_cvtss_f32(all_d);
    else
        _mm256_storeu_ps(d, all_d);
    __m256 usual = _mm256_and_ps(_mm256_cmp_ps(all_d, _mm256_set1_ps(ROUND_LEAST_D), _CMP_GE_OQ),
                                 _mm256_cmp_ps(all_d, _mm256_set1_ps(ROUND_MOST_D), _CMP_LE_OQ));
    __m256 by = _mm256_and_ps(usual, _mm256_div_ps(_mm256_set1_ps(1), all_d));
    __m256 zero = _mm256_cmp_ps(all_d, _mm256_setzero_ps(), _CMP_EQ_OQ);
    bool others = _mm256_movemask_ps(_mm256_or_ps(usual, zero)) != 0xff;
    __m256i fours[PARTS];
    bool ok = !others && multiply(x, count, by, q, fours);
    _mm256_storeu_si256((__m256i *)bsum, ok ? block_sums(fours) : divide(x, count, all_d, q));
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
    memset(q + n, 0, (size_t)(a->stride - n) * sizeof *q);
    return ok && round_parts(x + full, (n - full) / 32, false, q + full, d + full / 32,
                             bsum + full / 16);
}

void cpu_set_round_avx2(struct cpu_matmul *m)
{
    m->round = round_row;
}
