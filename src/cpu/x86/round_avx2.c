/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of activations with AVX2; the same divisions and roundings as quant/round.c. */
#include <immintrin.h>
#include <string.h>

#include "base/half.h"
#include "cpu/x86/x86.h"

/* Largest magnitude as float bits (signed compares do: the sign bit is cleared). */
static uint32_t largest_bits(const float *x, int n)
{
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff), most = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) {
        __m256i v = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        most = _mm256_max_epi32(most, _mm256_and_si256(v, magnitude));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* 16 codes and their sum. */
static __m256i round16(const float *x, __m256 d, int16_t *sum)
{
    __m256i a = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x), d));
    __m256i b = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x + 8), d));
    __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    q = _mm256_max_epi16(_mm256_min_epi16(q, _mm256_set1_epi16(127)), _mm256_set1_epi16(-127));
    __m256i pairs = _mm256_madd_epi16(q, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    *sum = (int16_t)_mm_cvtsi128_si32(s);
    return q;
}

static bool round_row(const float *x, int n, struct quant_act *a, int row)
{
    int16_t *q = a->q + (size_t)row * (size_t)a->stride;
    float *d = a->d + (size_t)row * (size_t)(a->stride / a->block);
    int16_t *bsum = a->bsum + (size_t)row * (size_t)(a->stride / 16);
    int blocks = n / a->block;
    for (int b = 0; b < blocks; b++) {
        int start = b * a->block;
        uint32_t most = largest_bits(x + start, a->block);
        if (most >= 0x7f800000)
            return false;
        d[b] = half_bits_f32(most) / 127;
        if (d[b] == 0) {
            memset(q + start, 0, (size_t)a->block * sizeof *q);
            memset(bsum + start / 16, 0, (size_t)(a->block / 16) * sizeof *bsum);
            continue;
        }
        __m256 scale = _mm256_set1_ps(d[b]);
        for (int i = start; i < start + a->block; i += 16)
            _mm256_storeu_si256((__m256i *)(q + i), round16(x + i, scale, bsum + i / 16));
    }
    memset(q + n, 0, (size_t)(a->stride - n) * sizeof *q);
    memset(d + blocks, 0, (size_t)(a->stride / a->block - blocks) * sizeof *d);
    memset(bsum + n / 16, 0, (size_t)(a->stride - n) / 16 * sizeof *bsum);
    return true;
}

void cpu_set_round_avx2(struct cpu_matmul *m)
{
    m->round = round_row;
}
