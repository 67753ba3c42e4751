/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that the small-block types have in common; AVX2 with F16C. */
#ifndef STRATA_CPU_X86_UNPACK_SMALL_H
#define STRATA_CPU_X86_UNPACK_SMALL_H

#include <immintrin.h>

#include "base/bytes.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/x86.h"

/* 16 bytes to 32 nibbles, first the low ones, then the high ones. */
static inline __m256i nibbles(const uint8_t *b)
{
    __m128i c = _mm_loadu_si128((const __m128i *)b);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(c), _mm_srli_epi16(c, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

#endif
