/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill tiles with AVX-512 VNNI: eight weight rows times 16 activation rows (kernels.md
 * section 3). Lanes are activation rows, so nothing is added across lanes and each register is
 * one sum. vpdpbusd takes its unsigned operand from a register and its signed one from memory with
 * broadcast: activations are q + 128, and a sum starts at minus what that adds too much.
 *
 * Blocks are walked chain by chain (b mod 8), so that a chain stays in its register; the integer
 * sums are exact, so the bits are those of the C dot product. */
#include "base/mem.h"
#include "cpu/x86/tile_avx512.h"
#include "cpu/x86/x86.h"

#define W_ROWS CPU_TILE_W_ROWS
#define CHAINS 8

/* --- activations --- */

/* The row of lane r of a tile. */
static inline size_t row_of(int t0, int rows, int r)
{
    return (size_t)(t0 + (r < rows ? r : rows - 1));
}

/* `count` dwords (a multiple of eight) of each row, `stride` apart, to out[dword][row]. */
static void pack_dwords(const void *from, size_t stride, int count, int t0, int rows, void *out)
{
    for (int i = 0; i < count; i += 16) {
        __mmask16 there = count - i < 16 ? 0xff : 0xffff;
        __m512i v[16];
        for (int r = 0; r < 16; r++)
            v[r] = _mm512_maskz_loadu_epi32(there, (const int32_t *)from +
                                                       row_of(t0, rows, r) * stride + i);
        transpose16(v);
        for (int j = 0; j < 16 && i + j < count; j++)
            _mm512_store_si512((int32_t *)out + (i + j) * 16, v[j]);
    }
}

/* 64 codes as bytes. */
INLINE __m512i load_codes(const int16_t *q)
{
    __m256i low = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q));
    __m256i high = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + 32));
    return tile_halves(low, high);
}

/* flip: of the bits of codes. */
INLINE void pack_rows(const struct quant_act *x, int t0, int rows, struct cpu_tile_acts *out,
                      const __m512i flip)
{
    size_t stride = (size_t)x->stride;
    for (int k = 0; k < x->n; k += 64) {
        __m512i v[16];
        for (int r = 0; r < 16; r++)
            v[r] = load_codes(x->q + row_of(t0, rows, r) * stride + k);
        transpose16(v);
        for (int j = 0; j < 16; j++)
            _mm512_store_si512(out->q + 16 * k + 64 * j, _mm512_xor_si512(v[j], flip));
    }
    int sums = (int)mem_round_up((size_t)(x->n / 32), 8);
    pack_dwords(x->bsum, stride / 32, sums, t0, rows, out->bsum16);
    if (x->block == 32) {
        pack_dwords(x->d, stride / 32, sums, t0, rows, out->d);
        return;
    }
    for (int b = 0; b < x->n / 256; b++) {
        for (int r = 0; r < 16; r++)
            out->d[16 * b + r] = x->d[row_of(t0, rows, r) * (stride / 256) + (size_t)b];
    }
    const __m512i ones = _mm512_set1_epi16(1);
    for (int i = 0; i < x->n / 64; i++) {
        __m512i even = _mm512_madd_epi16(_mm512_load_si512(out->bsum16 + 64 * i), ones);
        __m512i odd = _mm512_madd_epi16(_mm512_load_si512(out->bsum16 + 64 * i + 32), ones);
        even = _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
        _mm512_store_si512(out->bsum32 + 32 * i, even);
    }
}

/* Codes plus 128. */
static void pack(const struct quant_act *x, int t0, int rows, struct cpu_tile_acts *out)
{
    pack_rows(x, t0, rows, out, _mm512_set1_epi8(-128));
}

void cpu_tile_pack_signed(const struct quant_act *x, int t0, int rows, struct cpu_tile_acts *out)
{
    pack_rows(x, t0, rows, out, _mm512_setzero_si512());
}

/* --- products --- */

/* What a form of rows has. Constant in each kernel. */
struct form {
    int block;
    int scale_values, min_values; /* codes of a scale, of a minimum; 0: none */
    bool halves;                  /* a float scale for each 16 codes */
};

/* Eight rows of eight floats: rows become columns. */
INLINE void transpose8(__m256 *v)
{
    __m256 t[8], u[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    /* u[4 i + c], 128-bit lane L: column 4 L + c of rows 4 i to 4 i + 3 */
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int c = 0; c < 4; c++) {
        v[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        v[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
}

/* Results: v[r], lane t, to y[t * y_stride + r], for r < w_rows and t < rows. */
INLINE void put_columns(__m256 *v, int w_rows, int rows, float *y, size_t y_stride)
{
    __mmask8 there = (__mmask8)((1u << w_rows) - 1);
    transpose8(v);
    for (int t = 0; t < 8 && t < rows; t++)
        _mm256_mask_storeu_ps(y + (size_t)t * y_stride, there, v[t]);
}

INLINE __m256 eight_of_16(__m512 x, int first)
{
    return first ? _mm512_extractf32x8_ps(x, 1) : _mm512_castps512_ps256(x);
}

INLINE __m256 eight_of_8(__m256 x, int first)
{
    return x;
}

#define LANES 16
#include "cpu/x86/tile_products_avx512.h"
#define LANES 8
#include "cpu/x86/tile_products_avx512.h"

INLINE void multiply(const uint8_t *records, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride,
                     const struct form f)
{
    if (rows > 8)
        multiply_16(records, w_rows, l, x, rows, y, y_stride, f);
    else
        multiply_8(records, w_rows, l, x, rows, y, y_stride, f);
}

void cpu_tile32(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 32});
}

void cpu_tile32_min(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                    const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 32, .min_values = 32});
}

void cpu_tile32_halves(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                       const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 32, .halves = true});
}

void cpu_tile256(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                 const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 256});
}

void cpu_tile256_min16(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                       const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 256, .min_values = 16});
}

void cpu_tile256_s16(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 256, .scale_values = 16});
}

void cpu_tile256_s32(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){.block = 256, .scale_values = 32});
}

void cpu_tile256_s32_min32(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                           const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride,
             (struct form){.block = 256, .scale_values = 32, .min_values = 32});
}

void cpu_set_tile_avx512_vnni(struct cpu_matmul *m)
{
    m->tile_pack = pack;
}
