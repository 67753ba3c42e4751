/* SPDX-License-Identifier: Apache-2.0 */
/* Scales and minimums of blocks with 256 values, for AVX2 and wider.
 * Source: gguf-and-quants.md section 2.4. */
#ifndef STRATA_CPU_X86_SCALES_H
#define STRATA_CPU_X86_SCALES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* The half float at b. A NaN may come out quiet where the C function keeps it signalling. */
static inline float x86_half_at(const uint8_t *b)
{
    uint16_t half;
    memcpy(&half, b, 2);
    return _cvtsh_ss(half);
}

/* The half floats at `at`, `step` bytes apart, as floats; lanes from `count` on are 0. Joined in
 * general registers: a wide load of halves that were just stored would wait until they are in the
 * cache. */
static inline __m256 x86_load_halves(const uint8_t *at, int step, int count)
{
    uint64_t four[2] = {0, 0};
    for (int b = 0; b < 8 && b < count; b++) {
        uint16_t half;
        memcpy(&half, at + b * step, 2);
        four[b / 4] |= (uint64_t)half << 16 * (b % 4);
    }
    return _mm256_cvtph_ps(_mm_set_epi64x((int64_t)four[1], (int64_t)four[0]));
}

/* Asks for the lines of a block that lies 2 KiB further. Inlined by force: gcc 12 takes a function
 * that does nothing but ask for a function without effects, and drops the calls before it would
 * inline them.
 * On a Xeon of the Sapphire Rapids kind, one thread and weights in memory, this made Q2_0 1.8, Q6_K
 * 1.3, IQ2_XS and Q8_0 1.2 times as fast. 1, 1.5, 2 and 3 KiB were within a tenth, 4 KiB cost Q6_K
 * and Q8_0 an eighth, and so far ahead more is read in vain behind the end of a short piece; into
 * the L2 cache alone was no faster. */
static inline __attribute__((always_inline)) void x86_prefetch_ahead(const uint8_t *b,
                                                                     int block_bytes)
{
    for (int i = 0; i < block_bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)b + 2048 + (uintptr_t)i), _MM_HINT_T0);
}

/* Q4_K, Q5_K: from the 16 bytes d, dmin, S[12] the bytes sc0..sc7 mn0..mn7. With S as three words
 * of four bytes: sc0..3 = S0, mn0..3 = S1, sc4..7 = low half of S2, mn4..7 = its high half; the
 * upper two bits of sc4..7 and mn4..7 are those of S0 and S1. */
static inline __m128i x86_q4_k_scales(const uint8_t *b)
{
    __m128i head = _mm_loadu_si128((const __m128i *)b);
    __m128i low = _mm_shuffle_epi32(head, _MM_SHUFFLE(3, 2, 3, 1)); /* S0 S2 S1 S2 */
    low = _mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4));
    low = _mm_and_si128(low, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    __m128i high = _mm_shuffle_epi32(head, _MM_SHUFFLE(2, 2, 1, 1)); /* S0 S0 S1 S1 */
    high = _mm_srli_epi32(high, 2);
    high = _mm_and_si128(high, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
    return _mm_or_si128(low, high);
}

/* Q4_K, Q5_K: the minimums of x86_q4_k_scales, each twice, as 16 words. */
static inline __m256i x86_q4_k_mins(__m128i scales)
{
    const __m128i twice = _mm_setr_epi8(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
    return _mm256_cvtepu8_epi16(_mm_shuffle_epi8(scales, twice));
}

/* Q3_K: the scales less 32 from the 12 bytes at S, as 16 signed bytes. */
static inline __m128i x86_q3_k_scales(const uint8_t *S)
{
    int32_t high_bits;
    memcpy(&high_bits, S + 8, 4);
    __m128i low = _mm_loadl_epi64((const __m128i *)S);
    low = _mm_srlv_epi64(_mm_unpacklo_epi64(low, low), _mm_set_epi64x(4, 0));
    low = _mm_and_si128(low, _mm_set1_epi8(15));
    __m128i high = _mm_srlv_epi32(_mm_set1_epi32(high_bits), _mm_setr_epi32(0, 2, 4, 6));
    high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
    return _mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32));
}

/* Sixteen signed bytes as words, each twice: a 32-bit load with broadcast then gives a register
 * full of one scale, which needs no shuffle. */
static inline void x86_store_pairs(int32_t pairs[16], __m128i bytes)
{
    const __m128i low = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m128i high = _mm_add_epi8(low, _mm_set1_epi8(8));
    _mm256_store_si256((__m256i *)pairs, _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, low)));
    _mm256_store_si256((__m256i *)pairs + 1, _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, high)));
}

/* IQ4_XS: from bytes 2..7 of the block at b the eight scales less 32, each as two equal words. */
static inline __m256i x86_iq4_xs_scales(const uint8_t *b)
{
    uint16_t H;
    int32_t L;
    memcpy(&H, b + 2, 2);
    memcpy(&L, b + 4, 4);
    __m256i low =
        _mm256_srlv_epi32(_mm256_set1_epi32(L), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    __m256i high =
        _mm256_srlv_epi32(_mm256_set1_epi32(H << 4), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    low = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_and_si256(high, _mm256_set1_epi32(48));
    __m256i scale = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
    return _mm256_blend_epi16(scale, _mm256_slli_epi32(scale, 16), 0xaa);
}

static inline void x86_iq4_xs_scale_pairs(const uint8_t *b, int32_t pairs[8])
{
    _mm256_store_si256((__m256i *)pairs, x86_iq4_xs_scales(b));
}

/* NVFP4: the scales of the lowest four or eight bytes, as quant_scale_nvfp4. The four bits of exponent
 * and three of mantissa are a half float's that is 2^-8 of the byte's value, denormal ones too. */
static inline __m256 x86_nvfp4_eight_scales(__m128i bytes)
{
    __m128i words = _mm_cvtepu8_epi16(bytes);
    __m128i zero = _mm_cmpeq_epi16(words, _mm_set1_epi16(0x7f));
    words = _mm_and_si128(_mm_slli_epi16(words, 7), _mm_set1_epi16(0x3f80));
    words = _mm_andnot_si128(zero, words);
    return _mm256_mul_ps(_mm256_cvtph_ps(words), _mm256_set1_ps(128));
}

static inline __m128 x86_nvfp4_scales(__m128i bytes)
{
    return _mm256_castps256_ps128(x86_nvfp4_eight_scales(bytes));
}

/* IQ1_M: the half float d, in the upper four bits of its four scale words. */
static inline uint16_t x86_iq1_m_half(uint64_t words)
{
    return (uint16_t)((words >> 12 & 0xf) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) |
                      (words >> 48 & 0xf000));
}

/* The same of blocks at `at`, in whose last eight bytes the words are, as x86_load_halves. */
static inline __m256 x86_load_iq1_m_halves(const uint8_t *at, int block_bytes, int count)
{
    uint64_t four[2] = {0, 0};
    for (int b = 0; b < 8 && b < count; b++) {
        uint64_t words;
        memcpy(&words, at + (b + 1) * block_bytes - 8, 8);
        four[b / 4] |= (uint64_t)x86_iq1_m_half(words) << 16 * (b % 4);
    }
    return _mm256_cvtph_ps(_mm_set_epi64x((int64_t)four[1], (int64_t)four[0]));
}

/* d / 8. */
static inline float x86_iq1_m_d(uint64_t words)
{
    return _cvtsh_ss(x86_iq1_m_half(words)) * 0.125f;
}

#endif
