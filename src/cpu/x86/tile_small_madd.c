/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with blocks of 32, 64 and 128 values as records for prefill tiles
 * (tile_madd.h). Nothing outside the row's bytes is read. */
#include "cpu/x86/tile_madd.h"
#include "cpu/x86/unpack_small.h"
#include "quant/codebooks.h"
#include "quant/float_scales.h"

/* 32 codes of a part of the block at b, as the form takes them. */
typedef __m256i codes_fn(const uint8_t *b, int part);
typedef float scale_fn(const uint8_t *b);

INLINE void unpack(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                   const int block_bytes, const int parts, codes_fn *codes, scale_fn *scale)
{
    float *d = tile_d(out, l);
    for (int g = 0; g < l->n / 32; g += parts, b += block_bytes) {
        x86_prefetch_ahead(b, block_bytes);
        for (int part = 0; part < parts; part++) {
            tile_put(out, g + part, codes(b, part));
            d[g + part] = scale(b);
        }
    }
}

/* The same with minus the minimum, which is behind the scale. */
INLINE void unpack_min(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                       const int block_bytes, codes_fn *codes)
{
    float *minimum = (float *)tile_start(out, l);
    for (int g = 0; g < l->n / 32; g++, b += block_bytes) {
        x86_prefetch_ahead(b, block_bytes);
        tile_put(out, g, codes(b, 0));
        tile_d(out, l)[g] = x86_half_at(b);
        minimum[g] = -x86_half_at(b + 2);
    }
}

INLINE __m256i plus(__m256i codes, char offset)
{
    return _mm256_add_epi8(codes, _mm256_set1_epi8(offset));
}

INLINE __m256i look_up(const int8_t *table, __m256i index)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

/* `value` in byte i where bit i of the four bytes at b is 1, else 0. */
INLINE __m256i spread_bits(const uint8_t *b, char value)
{
    const __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bytes_u32(b)), byte);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(v, _mm256_set1_epi8(value));
}

INLINE __m256i codes_q4_0(const uint8_t *b, int part)
{
    return plus(nibbles(b + 2), 16 - 8);
}

INLINE __m256i codes_q4_1(const uint8_t *b, int part)
{
    return nibbles(b + 4);
}

INLINE __m256i codes_q5_0(const uint8_t *b, int part)
{
    return _mm256_or_si256(nibbles(b + 6), spread_bits(b + 2, 16));
}

INLINE __m256i codes_q5_1(const uint8_t *b, int part)
{
    return _mm256_or_si256(nibbles(b + 8), spread_bits(b + 4, 16));
}

INLINE __m256i codes_q8_0(const uint8_t *b, int part)
{
    return load_bytes(b + 2);
}

INLINE __m256i codes_iq4_nl(const uint8_t *b, int part)
{
    return look_up(codebook_iq4nl, nibbles(b + 2));
}

INLINE __m256i codes_mxfp4(const uint8_t *b, int part)
{
    return plus(look_up(codebook_mxfp4, nibbles(b + 1)), 16);
}

/* Bits as codes 1 and -1. */
INLINE __m256i codes_q1_0(const uint8_t *b, int part)
{
    return plus(spread_bits(b + 2 + 4 * part, 2), 16 - 1);
}

/* Byte i as dword i, its four codes moved to the four bytes; 0 to 3 stand for -1 to 2. */
INLINE __m256i codes_q2_0(const uint8_t *b, int part)
{
    __m256i v =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(b + 2 + 8 * part)));
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 12)); /* code 2 to bit 16, 3 to 18 */
    v = _mm256_or_si256(v, _mm256_slli_epi32(v, 6));  /* code 1 to bit 8, 3 to 24 */
    return plus(_mm256_and_si256(v, _mm256_set1_epi8(3)), 16 - 1);
}

INLINE float scale_mxfp4(const uint8_t *b)
{
    return quant_scale_mxfp4(b[0]);
}

#define UNPACK(name, block_bytes, parts, scale)                                                  \
    static void unpack_##name(const uint8_t *row, const struct cpu_tile_layout *l, uint8_t *out) \
    {                                                                                            \
        unpack(row, l, out, block_bytes, parts, codes_##name, scale);                            \
    }

UNPACK(q4_0, 18, 1, x86_half_at)
UNPACK(q5_0, 22, 1, x86_half_at)
UNPACK(q8_0, 34, 1, x86_half_at)
UNPACK(iq4_nl, 18, 1, x86_half_at)
UNPACK(mxfp4, 17, 1, scale_mxfp4)
UNPACK(q1_0, 18, 4, x86_half_at)
UNPACK(q2_0, 18, 2, x86_half_at)

static void unpack_q4_1(const uint8_t *row, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_min(row, l, out, 20, codes_q4_1);
}

static void unpack_q5_1(const uint8_t *row, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack_min(row, l, out, 24, codes_q5_1);
}

/* 16 codes of eight bytes, first their low nibbles, have a scale. */
static void unpack_nvfp4(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    float *halves = (float *)tile_scale(out, l);
    for (int g = 0; g < l->n / 32; g += 2, b += 36) {
        x86_prefetch_ahead(b, 36);
        for (int part = 0; part < 2; part++) {
            __m256i index = _mm256_permute4x64_epi64(nibbles(b + 4 + 16 * part), 0xd8);
            tile_put(out, g + part, plus(look_up(codebook_mxfp4, index), 16));
            for (int half = 0; half < 2; half++)
                halves[2 * (g + part) + half] = quant_scale_nvfp4(b[2 * part + half]);
        }
    }
}

#ifdef __AVX512BW__
void cpu_set_tile_small_avx512(struct cpu_matmul *m)
#else
void cpu_set_tile_small_avx2(struct cpu_matmul *m)
#endif
{
    m->tile[TYPE_Q4_0] = (struct cpu_tile){unpack_q4_0, TILE(32)};
    m->tile[TYPE_Q4_1] = (struct cpu_tile){unpack_q4_1, TILE(32_min)};
    m->tile[TYPE_Q5_0] = (struct cpu_tile){unpack_q5_0, TILE(32)};
    m->tile[TYPE_Q5_1] = (struct cpu_tile){unpack_q5_1, TILE(32_min)};
    m->tile[TYPE_Q8_0] = (struct cpu_tile){unpack_q8_0, TILE(32_wide)};
    m->tile[TYPE_IQ4_NL] = (struct cpu_tile){unpack_iq4_nl, TILE(32_wide)};
    m->tile[TYPE_MXFP4] = (struct cpu_tile){unpack_mxfp4, TILE(32)};
    m->tile[TYPE_NVFP4] = (struct cpu_tile){unpack_nvfp4, TILE(32_halves)};
    m->tile[TYPE_Q1_0] = (struct cpu_tile){unpack_q1_0, TILE(32)};
    m->tile[TYPE_Q2_0] = (struct cpu_tile){unpack_q2_0, TILE(32)};
}
