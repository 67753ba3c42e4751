/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of the types with three values, TQ1_0 and TQ2_0, with AVX-512: four registers of 64 unsigned
 * bytes in order, each of which stands for one less. Nothing outside the block's bytes is read.
 * Source: gguf-and-quants.md section 2.4. */
#ifndef STRATA_CPU_X86_TERNARY_AVX512_H
#define STRATA_CPU_X86_TERNARY_AVX512_H

#include <immintrin.h>

#include "base/bytes.h"

#define TQ1_0_BYTES 54
#define TQ2_0_BYTES 66

typedef void ternary_codes_fn(const uint8_t *b, __m512i codes[4]);

static inline __m512i ternary_load_twice(const uint8_t *b)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b));
}

/* Bytes times the powers of three that the words of `powers` say for two of them, modulo 256. */
static inline __m512i ternary_times(__m512i bytes, __m512i powers)
{
    const __m512i low = _mm512_set1_epi16(0xff);
    __m512i even = _mm512_mullo_epi16(bytes, powers);
    __m512i odd = _mm512_mullo_epi16(_mm512_andnot_si512(low, bytes), powers);
    return _mm512_ternarylogic_epi64(low, even, odd, 0xca); /* where `low` is set even, else odd */
}

/* A digit of base 3: the byte, which was multiplied with a power of three modulo 256, is below 86,
 * below 171 or above. */
static inline __m512i ternary_digit(__m512i v)
{
    __mmask64 one = _mm512_cmpgt_epu8_mask(v, _mm512_set1_epi8(85));
    __mmask64 two = _mm512_cmpgt_epu8_mask(v, _mm512_set1_epi8((char)170));
    __m512i digit = _mm512_maskz_mov_epi8(one, _mm512_set1_epi8(1));
    return _mm512_mask_mov_epi8(digit, two, _mm512_set1_epi8(2));
}

/* A word four times. */
#define TERNARY_WORDS(word) (0x0001000100010001 * (int64_t)(word))

/* Powers of three for each quarter of a register. */
static inline __m512i ternary_quarters(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return _mm512_setr_epi64(TERNARY_WORDS(a), TERNARY_WORDS(a), TERNARY_WORDS(b), TERNARY_WORDS(b),
                             TERNARY_WORDS(c), TERNARY_WORDS(c), TERNARY_WORDS(d),
                             TERNARY_WORDS(d));
}

/* Digits 0 to 4 of 32 bytes, of 16 bytes, then 0 to 3 of four bytes. */
static inline void ternary_codes_tq1_0(const uint8_t *b, __m512i codes[4])
{
    /* the fourth quarter: 1, 3, 9 and 27 for the four bytes */
    const __m512i last =
        _mm512_setr_epi64(TERNARY_WORDS(9), TERNARY_WORDS(9), TERNARY_WORDS(27), TERNARY_WORDS(27),
                          TERNARY_WORDS(81), TERNARY_WORDS(81), 0x0003000300010001,
                          0x001b001b00090009);
    __m128i sixteen = _mm_loadu_si128((const __m128i *)(b + 32));
    __m512i v = ternary_load_twice(b);
    codes[0] = ternary_digit(ternary_times(v, ternary_quarters(1, 1, 3, 3)));
    codes[1] = ternary_digit(ternary_times(v, ternary_quarters(9, 9, 27, 27)));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, sixteen);
    codes[2] = ternary_digit(ternary_times(v, ternary_quarters(81, 81, 1, 3)));
    v = _mm512_broadcast_i32x4(sixteen);
    v = _mm512_mask_set1_epi32(v, 0xf000, (int)bytes_u32(b + 48));
    codes[3] = ternary_digit(ternary_times(v, last));
}

static inline void ternary_codes_tq2_0(const uint8_t *b, __m512i codes[4])
{
    const __m512i first = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    for (int j = 0; j < 4; j++) {
        __m512i shift = _mm512_add_epi64(first, _mm512_set1_epi64(4 * (j % 2)));
        __m512i v = _mm512_srlv_epi64(ternary_load_twice(b + 32 * (j / 2)), shift);
        codes[j] = _mm512_and_si512(v, _mm512_set1_epi8(3));
    }
}

#endif
