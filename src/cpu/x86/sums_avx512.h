/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with AVX-512, with VNNI where the file is compiled for it. */
#ifndef STRATA_CPU_X86_SUMS_AVX512_H
#define STRATA_CPU_X86_SUMS_AVX512_H

#include "cpu/x86/dot_int.h"

/* sum + the products of words, pairs of them added. */
INLINE __m512i multiply_add(__m512i sum, __m512i a, __m512i b)
{
#ifdef __AVX512VNNI__
    return _mm512_dpwssd_epi32(sum, a, b);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

/* sum + the products of unsigned bytes below 129 and signed ones, four of them added. */
INLINE __m512i multiply_add_bytes(__m512i sum, __m512i a, __m512i b)
{
#ifdef __AVX512VNNI__
    return _mm512_dpbusd_epi32(sum, a, b);
#else
    return multiply_add(sum, _mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1));
#endif
}

/* Lane i is the sum of the lanes of s[i]. */
INLINE __m256i sum_wide(const __m512i *s)
{
    __m256i half[2];
    for (int h = 0; h < 2; h++, s += 4) {
        __m512i a =
            _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
        __m512i b =
            _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
        a = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        half[h] = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    }
    return _mm256_add_epi32(_mm256_permute2x128_si256(half[0], half[1], 0x20),
                            _mm256_permute2x128_si256(half[0], half[1], 0x31));
}

/* Lane 4r + p is the sum of lanes 4r to 4r + 3 of s[p]. */
INLINE __m512i sum_quarters(const __m512i s[4])
{
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

#endif
