/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the codebook types taken apart with AVX2: values and signs as bytes, 32 a
 * register, and scales. What is done with them, unpack_i_avx2.c, direct_i_avx2.c and tile_i_madd.c
 * say. */
#ifndef STRATA_CPU_X86_I_BLOCKS_AVX2_H
#define STRATA_CPU_X86_I_BLOCKS_AVX2_H

#include "base/bytes.h"
#include "base/tensor_type.h"
#include "cpu/x86/scales.h"
#include "quant/codebooks.h"

/* Value i is byte i % 32 of values[i / 32], the same byte of signs says 1 or -1, and scale i / 16 is
 * the factor of both. */
struct i_block {
    __m256i values[8]; /* unsigned */
    __m256i signs[8];
    __m128i scales; /* 16 bytes */
};

typedef void i_block_fn(const uint8_t *b, struct i_block *out);

static inline __m128i i_load8(const void *p)
{
    return _mm_loadl_epi64((const __m128i *)p);
}

static inline __m128i i_load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

static inline __m256i i_load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Four bytes as dwords. */
static inline __m128i i_four(const uint8_t *b)
{
    return _mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)bytes_u32(b)));
}

/* Four rows of eight values, eight rows of four, for row numbers as dwords. A file compiled with
 * WITHOUT_GATHERS loads them one by one, their numbers taken out of registers. */
#ifdef WITHOUT_GATHERS
static inline __m128i i_two_rows(const uint64_t *grid, uint64_t numbers)
{
    __m128i row = i_load8(grid + (uint32_t)numbers);
    const __m64 *second = (const __m64 *)(grid + (numbers >> 32));
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(row), second));
}

static inline __m256i i_rows4(const uint64_t *grid, __m128i numbers)
{
    __m128i first = i_two_rows(grid, (uint64_t)_mm_cvtsi128_si64(numbers));
    return _mm256_set_m128i(i_two_rows(grid, (uint64_t)_mm_extract_epi64(numbers, 1)), first);
}

static inline __m128i i_four_rows(const uint32_t *grid, __m128i numbers)
{
    uint64_t low = (uint64_t)_mm_cvtsi128_si64(numbers);
    uint64_t high = (uint64_t)_mm_extract_epi64(numbers, 1);
    __m128i rows = _mm_cvtsi32_si128((int)grid[(uint32_t)low]);
    rows = _mm_insert_epi32(rows, (int)grid[low >> 32], 1);
    rows = _mm_insert_epi32(rows, (int)grid[(uint32_t)high], 2);
    return _mm_insert_epi32(rows, (int)grid[high >> 32], 3);
}

static inline __m256i i_rows8(const uint32_t *grid, __m256i numbers)
{
    __m128i first = i_four_rows(grid, _mm256_castsi256_si128(numbers));
    return _mm256_set_m128i(i_four_rows(grid, _mm256_extracti128_si256(numbers, 1)), first);
}
#else
static inline __m256i i_rows4(const uint64_t *grid, __m128i numbers)
{
    return _mm256_i32gather_epi64((const long long *)grid, numbers, 8);
}

static inline __m256i i_rows8(const uint32_t *grid, __m256i numbers)
{
    return _mm256_i32gather_epi32((const int *)grid, numbers, 4);
}
#endif

/* Group g: its values, and -1 in each byte whose bit of `signs` is 1, else 1. */
static inline void i_put(struct i_block *out, int g, __m256i values, uint32_t signs)
{
    const __m256i byte_of =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i bits = _mm256_shuffle_epi8(_mm256_set1_epi32((int)signs), byte_of);
    __m256i negative = _mm256_cmpeq_epi8(_mm256_and_si256(bits, bit_of), bit_of);
    out->values[g] = values;
    out->signs[g] = _mm256_or_si256(negative, _mm256_set1_epi8(1));
}

/* Values with their signs. */
static inline __m256i i_codes(const struct i_block *block, int g)
{
    return _mm256_sign_epi8(block->values[g], block->signs[g]);
}

/* Sign bytes of seven bits with the eighth bit that makes the number of ones even. */
static inline __m256i i_complete_signs(__m256i bits)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i folded = _mm256_xor_si256(bits, _mm256_srli_epi16(bits, 4));
    folded = _mm256_and_si256(folded, _mm256_set1_epi8(15));
    return _mm256_or_si256(bits, _mm256_shuffle_epi8(parity, folded));
}

/* Eight bytes s to 16 scales 2s + 1, each twice. */
static inline __m128i i_scales_twice(__m128i s)
{
    s = _mm_or_si128(_mm_add_epi8(s, s), _mm_set1_epi8(1));
    return _mm_unpacklo_epi8(s, s);
}

/* IQ2_XXS, IQ3_XXS: signs and scales from the words w of the eight groups. */
static inline __m128i i_split_words(__m256i w, uint32_t signs[8])
{
    const __m256i top = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(3, 3, 7, 7, 11, 11, 15, 15, -1, -1, -1, -1, -1, -1, -1, -1));
    __m256i bits = _mm256_and_si256(w, _mm256_set1_epi32(0x7f));
    for (int i = 1; i < 4; i++) {
        __m256i moved = _mm256_sllv_epi32(w, _mm256_set1_epi32(i));
        moved = _mm256_and_si256(moved, _mm256_set1_epi32(0x7f << 8 * i));
        bits = _mm256_or_si256(bits, moved);
    }
    _mm256_storeu_si256((__m256i *)signs, i_complete_signs(bits));
    /* 2s + 1: the top byte moved to the right by 3. */
    __m256i s = _mm256_or_si256(_mm256_srli_epi32(w, 3), _mm256_set1_epi32(1 << 24));
    s = _mm256_shuffle_epi8(_mm256_and_si256(s, _mm256_set1_epi32(31 << 24)), top);
    return _mm_unpacklo_epi64(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

static inline void i_block_iq2_xxs(const uint8_t *b, struct i_block *out)
{
    const __m256i odd = _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7);
    uint32_t signs[8];
    /* Four row numbers and w, eight times. */
    __m256i low = _mm256_permutevar8x32_epi32(i_load32(b + 2), odd);
    __m256i high = _mm256_permutevar8x32_epi32(i_load32(b + 34), odd);
    out->scales = i_split_words(_mm256_blend_epi32(low, high, 0xf0), signs);
    for (int g = 0; g < 8; g++)
        i_put(out, g, i_rows4(codebook_iq2xxs, i_four(b + 2 + 8 * g)), signs[g]);
}

/* IQ2_XS, IQ2_S: 16 scales 2s + 1 from eight bytes. */
static inline __m128i i_scales_iq2(const uint8_t *b)
{
    __m128i x = i_load8(b);
    x = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4)); /* byte v: scale v in its lower half */
    x = _mm_and_si128(x, _mm_set1_epi8(15));
    return _mm_or_si128(_mm_add_epi8(x, x), _mm_set1_epi8(1));
}

static inline void i_block_iq2_xs(const uint8_t *b, struct i_block *out)
{
    uint32_t signs[8];
    __m256i low = _mm256_srli_epi16(i_load32(b + 2), 9);
    __m256i high = _mm256_srli_epi16(i_load32(b + 34), 9);
    __m256i bits = _mm256_packus_epi16(low, high);
    bits = _mm256_permute4x64_epi64(bits, _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_storeu_si256((__m256i *)signs, i_complete_signs(bits));
    out->scales = i_scales_iq2(b + 66);
    for (int g = 0; g < 8; g++) {
        __m128i q = _mm_cvtepu16_epi32(i_load8(b + 2 + 8 * g));
        __m256i rows = i_rows4(codebook_iq2xs, _mm_and_si128(q, _mm_set1_epi32(511)));
        i_put(out, g, rows, signs[g]);
    }
}

static inline void i_block_iq2_s(const uint8_t *b, struct i_block *out)
{
    const __m128i left = _mm_setr_epi32(8, 6, 4, 2); /* bits 2(t % 4) go to 8 */
    out->scales = i_scales_iq2(b + 74);
    for (int g = 0; g < 8; g++) {
        __m128i high = _mm_sllv_epi32(_mm_set1_epi32(b[66 + g]), left);
        high = _mm_and_si128(high, _mm_set1_epi32(0x300));
        __m128i numbers = _mm_or_si128(i_four(b + 2 + 4 * g), high);
        i_put(out, g, i_rows4(codebook_iq2s, numbers), bytes_u32(b + 34 + 4 * g));
    }
}

static inline void i_block_iq3_xxs(const uint8_t *b, struct i_block *out)
{
    uint32_t signs[8];
    out->scales = i_split_words(i_load32(b + 66), signs);
    for (int g = 0; g < 8; g++) {
        __m256i numbers = _mm256_cvtepu8_epi32(i_load8(b + 2 + 8 * g));
        i_put(out, g, i_rows8(codebook_iq3xxs, numbers), signs[g]);
    }
}

static inline void i_block_iq3_s(const uint8_t *b, struct i_block *out)
{
    const __m256i left = _mm256_setr_epi32(8, 7, 6, 5, 4, 3, 2, 1); /* bit u goes to 8 */
    __m128i s = _mm_cvtsi32_si128((int)bytes_u32(b + 106));
    s = _mm_and_si128(_mm_unpacklo_epi8(s, _mm_srli_epi16(s, 4)), _mm_set1_epi8(15));
    out->scales = i_scales_twice(s);
    for (int g = 0; g < 8; g++) {
        __m256i low = _mm256_cvtepu8_epi32(i_load8(b + 2 + 8 * g));
        __m256i high = _mm256_sllv_epi32(_mm256_set1_epi32(b[66 + g]), left);
        high = _mm256_and_si256(high, _mm256_set1_epi32(256));
        __m256i rows = i_rows8(codebook_iq3s, _mm256_or_si256(low, high));
        i_put(out, g, rows, bytes_u32(b + 74 + 4 * g));
    }
}

/* --- IQ1 --- */

/* Row numbers of two groups: eight low bytes, and the lowest three bits of the dwords `high` on top. */
static inline __m256i iq1_numbers(const uint8_t *low, __m256i high)
{
    high = _mm256_and_si256(_mm256_slli_epi32(high, 8), _mm256_set1_epi32(0x700));
    return _mm256_or_si256(_mm256_cvtepu8_epi32(i_load8(low)), high);
}

/* Eight rows of -1, 0 and 1: 32 values each in low and high. */
static inline void iq1_rows8(__m256i numbers, __m256i rows[2])
{
    rows[0] = i_rows4(codebook_iq1s, _mm256_castsi256_si128(numbers));
    rows[1] = i_rows4(codebook_iq1s, _mm256_extracti128_si256(numbers, 1));
}

/* Groups 2p and 2p + 1 of an IQ1_S block. */
static inline void iq1_s_rows(const uint8_t *b, int p, __m256i rows[2])
{
    const __m256i right = _mm256_setr_epi32(0, 3, 6, 9, 16, 19, 22, 25);
    __m256i words = _mm256_set1_epi32((int)bytes_u32(b + 34 + 4 * p));
    iq1_rows8(iq1_numbers(b + 2 + 8 * p, _mm256_srlv_epi32(words, right)), rows);
}

/* A nibble for each row of groups 2p and 2p + 1 of an IQ1_M block, in the lowest bits of dwords: three
 * bits of its number, and a negative delta. */
static inline __m256i iq1_m_nibbles(const uint8_t *b, int p)
{
    const __m256i right = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm256_srlv_epi32(_mm256_set1_epi32((int)bytes_u32(b + 32 + 4 * p)), right);
}

static inline void iq1_m_rows(const uint8_t *b, int p, __m256i rows[2])
{
    iq1_rows8(iq1_numbers(b + 8 * p, iq1_m_nibbles(b, p)), rows);
}

/* 16 scales 2s + 1 of three bits, four in each word, as words. */
static inline __m256i iq1_m_scales(uint64_t words)
{
    const __m256i four_times = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4,
                                                5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)words), four_times);
    x = _mm256_mullo_epi16(x, _mm256_set1_epi64x(1 << 13 | 1ll << 26 | 1ll << 39 | 1ll << 52));
    x = _mm256_and_si256(_mm256_srli_epi16(x, 12), _mm256_set1_epi16(14));
    return _mm256_or_si256(x, _mm256_set1_epi16(1));
}

/* Words of x (0..7 and 8..15 of a block's 16) as 16 dwords of two equal words. */
static inline void i_store_twice(int32_t pairs[16], __m256i x)
{
    __m256i low = _mm256_unpacklo_epi16(x, x), high = _mm256_unpackhi_epi16(x, x);
    __m256i *out = (__m256i *)pairs;
    _mm256_store_si256(out, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_store_si256(out + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

#endif
