/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with blocks of 32, 64 and 128 values as records for prefill tiles, with AVX-512
 * VNNI. Nothing outside the row's bytes is read. */
#include "cpu/x86/tile_avx512.h"
#include "cpu/x86/unpack_small.h"
#include "quant/codebooks.h"
#include "quant/float_scales.h"

/* Blocks of 32: 32 codes, and the scale where it is not the half float at the block's start. */
typedef __m256i codes_fn(const uint8_t *b);
typedef float scale_fn(const uint8_t *b);

/* The corrections of all blocks, eight at a time. */
static void put_starts(const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m256i ones = _mm256_set1_epi8(1);
    int32_t *start = tile_start(out, l);
    int blocks = l->n / 32;
    for (int g = 0; g < blocks; g += 8) {
        __m256i sum[8];
        for (int b = 0; b < 8; b++) {
            sum[b] = _mm256_setzero_si256();
            if (g + b < blocks)
                sum[b] = _mm256_dpbusd_epi32(
                    sum[b], ones, _mm256_load_si256((const __m256i *)(out + 32 * (g + b))));
        }
        __m256i sums = _mm256_slli_epi32(sum_lanes(sum), 7);
        sums = _mm256_sub_epi32(_mm256_setzero_si256(), sums);
        _mm256_storeu_si256((__m256i *)(start + g), sums);
    }
}

INLINE void unpack32(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                     const int block_bytes, codes_fn *codes, scale_fn *scale)
{
    float *d = tile_d(out, l);
    for (int k = 0; k < l->n / 32; k++, b += block_bytes) {
        x86_prefetch_ahead(b, block_bytes);
        _mm256_store_si256((__m256i *)(out + 32 * k), codes(b));
        d[k] = scale(b);
    }
    put_starts(l, out);
}

INLINE __m256i codes_q4_0(const uint8_t *b)
{
    return _mm256_sub_epi8(nibbles(b + 2), _mm256_set1_epi8(8));
}

/* low - 16 = low | f0 where the fifth bit is clear. */
INLINE __m256i codes_q5_0(const uint8_t *b)
{
    return _mm256_or_si256(nibbles(b + 6), _mm256_maskz_set1_epi8(~bytes_u32(b + 2), -16));
}

INLINE __m256i codes_q8_0(const uint8_t *b)
{
    return _mm256_loadu_si256((const __m256i *)(b + 2));
}

INLINE __m256i look_up(const int8_t *table, __m256i index)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

INLINE __m256i codes_iq4_nl(const uint8_t *b)
{
    return look_up(codebook_iq4nl, nibbles(b + 2));
}

INLINE __m256i codes_mxfp4(const uint8_t *b)
{
    return look_up(codebook_mxfp4, nibbles(b + 1));
}

INLINE float scale_mxfp4(const uint8_t *b)
{
    return quant_scale_mxfp4(b[0]);
}

static void unpack_q4_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32(b, l, out, 18, codes_q4_0, x86_half_at);
}

static void unpack_q5_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32(b, l, out, 22, codes_q5_0, x86_half_at);
}

static void unpack_q8_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32(b, l, out, 34, codes_q8_0, x86_half_at);
}

static void unpack_iq4_nl(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32(b, l, out, 18, codes_iq4_nl, x86_half_at);
}

static void unpack_mxfp4(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32(b, l, out, 17, codes_mxfp4, scale_mxfp4);
}

/* Bits as codes 1 and -1. */
static void unpack_q1_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    float *d = tile_d(out, l);
    for (int i = 0; i < l->n; i += 128, b += 18) {
        x86_prefetch_ahead(b, 18);
        for (int half = 0; half < 2; half++) {
            __mmask64 set = bytes_u64(b + 2 + 8 * half);
            __m512i codes = _mm512_mask_blend_epi8(set, _mm512_set1_epi8(-1), _mm512_set1_epi8(1));
            _mm512_storeu_si512(out + i + 64 * half, codes);
        }
        for (int part = 0; part < 4; part++)
            d[i / 32 + part] = x86_half_at(b);
    }
    put_starts(l, out);
}

/* Codes 0 to 3 stand for -1 to 2. */
static void unpack_q2_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    /* Byte i as dword i, its four codes moved to the four bytes. */
    const __m512i three = _mm512_set1_epi8(3), one = _mm512_set1_epi8(1);
    float *d = tile_d(out, l);
    for (int i = 0; i < l->n; i += 64, b += 18) {
        x86_prefetch_ahead(b, 18);
        __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(b + 2)));
        v = _mm512_or_si512(v, _mm512_slli_epi32(v, 12)); /* code 2 to bit 16, 3 to 18 */
        v = _mm512_or_si512(v, _mm512_slli_epi32(v, 6));  /* code 1 to bit 8, 3 to 24 */
        _mm512_storeu_si512(out + i, _mm512_sub_epi8(_mm512_and_si512(v, three), one));
        d[i / 32] = d[i / 32 + 1] = x86_half_at(b);
    }
    put_starts(l, out);
}

void cpu_set_tile_small_avx512_vnni(struct cpu_matmul *m)
{
    m->tile[TYPE_Q4_0] = (struct cpu_tile){unpack_q4_0, cpu_tile32};
    m->tile[TYPE_Q5_0] = (struct cpu_tile){unpack_q5_0, cpu_tile32};
    m->tile[TYPE_Q8_0] = (struct cpu_tile){unpack_q8_0, cpu_tile32};
    m->tile[TYPE_IQ4_NL] = (struct cpu_tile){unpack_iq4_nl, cpu_tile32};
    m->tile[TYPE_MXFP4] = (struct cpu_tile){unpack_mxfp4, cpu_tile32};
    m->tile[TYPE_Q1_0] = (struct cpu_tile){unpack_q1_0, cpu_tile32};
    m->tile[TYPE_Q2_0] = (struct cpu_tile){unpack_q2_0, cpu_tile32};
}
