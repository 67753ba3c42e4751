/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of the types with three values, TQ1_0 and TQ2_0, with AVX2: eight groups of 32 unsigned bytes
 * in order, each of which stands for one less. Nothing outside the block's bytes is read.
 * Source: gguf-and-quants.md section 2.4. */
#ifndef STRATA_CPU_X86_TERNARY_AVX2_H
#define STRATA_CPU_X86_TERNARY_AVX2_H

#include <immintrin.h>

#include "base/bytes.h"

#define TQ1_0_BYTES 54
#define TQ2_0_BYTES 66

typedef void ternary_codes_fn(const uint8_t *b, __m256i codes[8]);

static inline __m256i ternary_load(const uint8_t *b)
{
    return _mm256_loadu_si256((const __m256i *)b);
}

/* Bytes are kept less 128, as signed ones: three times a byte less 128 is, modulo 256, three times
 * the byte less 128. */
static inline __m256i ternary_three_times(__m256i v)
{
    return _mm256_add_epi8(v, _mm256_add_epi8(v, v));
}

/* A digit of base 3: the byte, which was multiplied with a power of three modulo 256, is below 86,
 * below 171 or above. */
static inline __m256i ternary_digit(__m256i v)
{
    __m256i one = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(85 - 128));
    __m256i two = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(170 - 128));
    return _mm256_abs_epi8(_mm256_add_epi8(one, two));
}

/* Four bytes times 1, 3, 9 and 27. */
static inline __m256i ternary_last_bytes(const uint8_t *b)
{
    __m256i v = _mm256_set1_epi32((int)(bytes_u32(b) ^ 0x80808080));
    v = _mm256_blend_epi32(v, ternary_three_times(v), 0xaa);
    return _mm256_blend_epi32(v, ternary_three_times(ternary_three_times(v)), 0xcc);
}

/* Digits 0 to 4 of 32 bytes, of 16 bytes, then 0 to 3 of four bytes. */
static inline void ternary_codes_tq1_0(const uint8_t *b, __m256i codes[8])
{
    const __m256i middle = _mm256_set1_epi8(-128);
    __m256i v = _mm256_xor_si256(ternary_load(b), middle);
    codes[0] = ternary_digit(v);
    for (int g = 1; g < 5; g++) {
        v = ternary_three_times(v);
        codes[g] = ternary_digit(v);
    }
    v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(b + 32)));
    v = _mm256_xor_si256(v, middle);
    v = _mm256_blend_epi32(v, ternary_three_times(v), 0xf0);
    codes[5] = ternary_digit(v);
    v = ternary_three_times(ternary_three_times(v));
    codes[6] = ternary_digit(v);
    v = ternary_three_times(ternary_three_times(v));
    codes[7] = ternary_digit(_mm256_blend_epi32(v, ternary_last_bytes(b + 48), 0xf0));
}

static inline void ternary_codes_tq2_0(const uint8_t *b, __m256i codes[8])
{
    for (int g = 0; g < 8; g++) {
        __m256i v = _mm256_srlv_epi32(ternary_load(b + 32 * (g / 4)), _mm256_set1_epi32(2 * (g % 4)));
        codes[g] = _mm256_and_si256(v, _mm256_set1_epi8(3));
    }
}

#endif
