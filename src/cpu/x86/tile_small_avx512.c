/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the types with blocks of 32, 64 and 128 values as records for prefill tiles, with AVX-512
 * VNNI. Nothing outside the row's bytes is read. */
#include "cpu/x86/small_codes_avx512.h"
#include "cpu/x86/tile_avx512.h"

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

/* The corrections of halves of blocks, four blocks at a time. */
static void put_half_starts(const struct cpu_tile_layout *l, uint8_t *out)
{
    const __m256i ones = _mm256_set1_epi8(1), in_turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    int32_t *start = tile_start(out, l);
    int blocks = l->n / 32;
    for (int g = 0; g < blocks; g += 4) {
        __m256i sum[4];
        for (int b = 0; b < 4; b++) {
            sum[b] = _mm256_setzero_si256();
            if (g + b < blocks)
                sum[b] = _mm256_dpbusd_epi32(
                    sum[b], ones, _mm256_load_si256((const __m256i *)(out + 32 * (g + b))));
        }
        __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(sum[0], sum[1]),
                                         _mm256_hadd_epi32(sum[2], sum[3]));
        sums = _mm256_slli_epi32(_mm256_permutevar8x32_epi32(sums, in_turn), 7);
        sums = _mm256_sub_epi32(_mm256_setzero_si256(), sums);
        _mm256_storeu_si256((__m256i *)(start + 2 * g), sums);
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

/* With minus the minimum, which is behind the scale. */
INLINE void unpack32_min(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out,
                         const int block_bytes, codes_fn *codes)
{
    float *minimum = (float *)tile_scale(out, l);
    unpack32(b, l, out, block_bytes, codes, x86_half_at);
    for (int k = 0; k < l->n / 32; k++, b += block_bytes)
        minimum[k] = -x86_half_at(b + 2);
}

static void unpack_q4_1(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32_min(b, l, out, 20, codes_q4_1);
}

static void unpack_q5_1(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    unpack32_min(b, l, out, 24, codes_q5_1);
}

static void unpack_nvfp4(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    float *halves = (float *)tile_scale(out, l);
    for (int i = 0; i < l->n; i += 64, b += 36) {
        x86_prefetch_ahead(b, 36);
        for (int part = 0; part < 2; part++)
            _mm256_store_si256((__m256i *)(out + i + 32 * part), codes_nvfp4(b, part));
        _mm_storeu_ps(halves + i / 16, x86_nvfp4_scales(_mm_cvtsi32_si128((int)bytes_u32(b))));
    }
    put_half_starts(l, out);
}

static void unpack_q1_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    float *d = tile_d(out, l);
    for (int i = 0; i < l->n; i += 128, b += 18) {
        x86_prefetch_ahead(b, 18);
        for (int half = 0; half < 2; half++)
            _mm512_storeu_si512(out + i + 64 * half, codes_q1_0(b, half));
        for (int part = 0; part < 4; part++)
            d[i / 32 + part] = x86_half_at(b);
    }
    put_starts(l, out);
}

static void unpack_q2_0(const uint8_t *b, const struct cpu_tile_layout *l, uint8_t *out)
{
    float *d = tile_d(out, l);
    for (int i = 0; i < l->n; i += 64, b += 18) {
        x86_prefetch_ahead(b, 18);
        _mm512_storeu_si512(out + i, codes_q2_0(b));
        d[i / 32] = d[i / 32 + 1] = x86_half_at(b);
    }
    put_starts(l, out);
}

void cpu_set_tile_small_avx512_vnni(struct cpu_matmul *m)
{
    m->tile[TYPE_Q4_0] = (struct cpu_tile){unpack_q4_0, cpu_tile32};
    m->tile[TYPE_Q4_1] = (struct cpu_tile){unpack_q4_1, cpu_tile32_min};
    m->tile[TYPE_Q5_1] = (struct cpu_tile){unpack_q5_1, cpu_tile32_min};
    m->tile[TYPE_NVFP4] = (struct cpu_tile){unpack_nvfp4, cpu_tile32_halves};
    m->tile[TYPE_Q5_0] = (struct cpu_tile){unpack_q5_0, cpu_tile32};
    m->tile[TYPE_Q8_0] = (struct cpu_tile){unpack_q8_0, cpu_tile32};
    m->tile[TYPE_IQ4_NL] = (struct cpu_tile){unpack_iq4_nl, cpu_tile32};
    m->tile[TYPE_MXFP4] = (struct cpu_tile){unpack_mxfp4, cpu_tile32};
    m->tile[TYPE_Q1_0] = (struct cpu_tile){unpack_q1_0, cpu_tile32};
    m->tile[TYPE_Q2_0] = (struct cpu_tile){unpack_q2_0, cpu_tile32};
}
