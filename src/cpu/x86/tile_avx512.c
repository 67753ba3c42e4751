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

/* 16 rows of 16 dwords: rows become columns. */
INLINE void transpose16(__m512i *v)
{
    __m512i t[16], u[16];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    /* u[4 i + c], 128-bit lane L: column 4 L + c of rows 4 i to 4 i + 3 */
    for (int i = 0; i < 16; i += 4) {
        u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        __m512i even_low = _mm512_shuffle_i32x4(u[c], u[4 + c], 0x88);
        __m512i odd_low = _mm512_shuffle_i32x4(u[c], u[4 + c], 0xdd);
        __m512i even_high = _mm512_shuffle_i32x4(u[8 + c], u[12 + c], 0x88);
        __m512i odd_high = _mm512_shuffle_i32x4(u[8 + c], u[12 + c], 0xdd);
        v[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
        v[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        v[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
        v[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
}

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

/* 64 codes as bytes, plus 128. */
INLINE __m512i load_codes(const int16_t *q)
{
    __m256i low = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q));
    __m256i high = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + 32));
    return _mm512_xor_si512(tile_halves(low, high), _mm512_set1_epi8(-128));
}

static void pack(const struct quant_act *x, int t0, int rows, struct cpu_tile_acts *out)
{
    size_t stride = (size_t)x->stride;
    for (int k = 0; k < x->n; k += 64) {
        __m512i v[16];
        for (int r = 0; r < 16; r++)
            v[r] = load_codes(x->q + row_of(t0, rows, r) * stride + k);
        transpose16(v);
        for (int j = 0; j < 16; j++)
            _mm512_store_si512(out->q + 16 * k + 64 * j, v[j]);
    }
    int blocks = (int)mem_round_up((size_t)(x->n / x->block), 8);
    if (x->block == 32) {
        pack_dwords(x->d, stride / 32, blocks, t0, rows, out->d);
        return;
    }
    for (int b = 0; b < x->n / 256; b++) {
        for (int r = 0; r < 16; r++)
            out->d[16 * b + r] = x->d[row_of(t0, rows, r) * (stride / 256) + (size_t)b];
    }
    pack_dwords(x->bsum, stride / 32, x->n / 32, t0, rows, out->bsum16);
    const __m512i ones = _mm512_set1_epi16(1);
    for (int i = 0; i < x->n / 64; i++) {
        __m512i even = _mm512_madd_epi16(_mm512_load_si512(out->bsum16 + 64 * i), ones);
        __m512i odd = _mm512_madd_epi16(_mm512_load_si512(out->bsum16 + 64 * i + 32), ones);
        even = _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
        _mm512_store_si512(out->bsum32 + 32 * i, even);
    }
}

/* --- products --- */

/* What a form of rows has. Constant in each kernel. */
struct form {
    int block;
    int scale_values, min_values; /* codes of a scale, of a minimum; 0: none */
};

INLINE __m512i broadcast(const uint8_t *p)
{
    int32_t dword;
    memcpy(&dword, p, 4);
    return _mm512_set1_epi32(dword);
}

INLINE __m512 broadcast_float(const uint8_t *p)
{
    return _mm512_castsi512_ps(broadcast(p));
}

/* sum[r] += codes k to k + count - 1 of weight row r times the activations. */
INLINE void add_products(const uint8_t *const *w, const uint8_t *q, size_t k, const int count,
                         __m512i *sum)
{
#pragma GCC unroll 8
    for (int i = 0; i < count; i += 4) {
        __m512i x = _mm512_load_si512(q + 16 * (k + (size_t)i));
#pragma GCC unroll 8
        for (int r = 0; r < W_ROWS; r++)
            sum[r] = _mm512_dpbusd_epi32(sum[r], x, broadcast(w[r] + k + (size_t)i));
    }
}

/* chain[r] += the minimums of block b, subtracted. */
INLINE void subtract_minimums(const uint8_t *const *w, const struct cpu_tile_layout *l,
                              const struct cpu_tile_acts *x, size_t b, const int values,
                              __m512 *chain)
{
    const int pairs = 128 / values;
    const int16_t *bsum = (values == 16 ? x->bsum16 : x->bsum32) + 32 * b * (size_t)pairs;
    __m512 dx = _mm512_load_ps(x->d + 16 * b);
    __m512i sum[W_ROWS];
    for (int r = 0; r < W_ROWS; r++)
        sum[r] = _mm512_setzero_si512();
    for (int i = 0; i < pairs; i++) {
        __m512i sums = _mm512_load_si512(bsum + 32 * i);
        size_t at = l->m + 4 * (b * (size_t)pairs + (size_t)i);
#pragma GCC unroll 8
        for (int r = 0; r < W_ROWS; r++)
            sum[r] = _mm512_dpwssd_epi32(sum[r], sums, broadcast(w[r] + at));
    }
#pragma GCC unroll 8
    for (int r = 0; r < W_ROWS; r++) {
        __m512 d = _mm512_mul_ps(broadcast_float(w[r] + l->dmin + 4 * b), dx);
        chain[r] = _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(sum[r]), chain[r]);
    }
}

/* chain[r] += block b. */
INLINE void add_block(const uint8_t *const *w, const struct cpu_tile_layout *l,
                      const struct cpu_tile_acts *x, size_t b, const struct form f, __m512 *chain)
{
    __m512i sum[W_ROWS];
    size_t k = b * (size_t)f.block;
    for (int r = 0; r < W_ROWS; r++)
        sum[r] = broadcast(w[r] + l->start + 4 * b);
    if (!f.scale_values) {
        for (int i = 0; i < f.block; i += 32)
            add_products(w, x->q, k + (size_t)i, 32, sum);
    } else {
        for (int i = 0; i < f.block; i += f.scale_values) {
            __m512i part[W_ROWS];
            for (int r = 0; r < W_ROWS; r++)
                part[r] = _mm512_setzero_si512();
            add_products(w, x->q, k + (size_t)i, f.scale_values, part);
            size_t at = l->scale + 4 * ((k + (size_t)i) / (size_t)f.scale_values);
#pragma GCC unroll 8
            for (int r = 0; r < W_ROWS; r++)
                sum[r] =
                    _mm512_add_epi32(sum[r], _mm512_mullo_epi32(part[r], broadcast(w[r] + at)));
        }
    }
    __m512 dx = _mm512_load_ps(x->d + 16 * b);
#pragma GCC unroll 8
    for (int r = 0; r < W_ROWS; r++) {
        __m512 d = _mm512_mul_ps(broadcast_float(w[r] + l->d + 4 * b), dx);
        chain[r] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum[r]), chain[r]);
    }
    if (f.min_values)
        subtract_minimums(w, l, x, b, f.min_values, chain);
}

/* Chains i with i + 4, + 2, + 1. */
INLINE __m512 add_chains(float chains[CHAINS][W_ROWS][16], int r)
{
    __m512 s[4];
    for (int p = 0; p < 4; p++)
        s[p] = _mm512_add_ps(_mm512_load_ps(chains[p][r]), _mm512_load_ps(chains[p + 4][r]));
    return _mm512_add_ps(_mm512_add_ps(s[0], s[2]), _mm512_add_ps(s[1], s[3]));
}

INLINE void multiply(const uint8_t *records, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride,
                     const struct form f)
{
    _Alignas(64) float chains[CHAINS][W_ROWS][16];
    const uint8_t *w[W_ROWS];
    size_t blocks = (size_t)(l->n / f.block);
    for (int r = 0; r < W_ROWS; r++)
        w[r] = records + (size_t)(r < w_rows ? r : w_rows - 1) * l->bytes;
    for (size_t p = 0; p < CHAINS; p++) {
        __m512 chain[W_ROWS];
        for (int r = 0; r < W_ROWS; r++)
            chain[r] = _mm512_setzero_ps();
        for (size_t b = p; b < blocks; b += CHAINS)
            add_block(w, l, x, b, f, chain);
        for (int r = 0; r < W_ROWS; r++)
            _mm512_store_ps(chains[p][r], chain[r]);
    }
    __m512i v[16];
    for (int r = 0; r < 16; r++)
        v[r] = r < W_ROWS ? _mm512_castps_si512(add_chains(chains, r)) : _mm512_setzero_si512();
    transpose16(v);
    __mmask16 there = (__mmask16)((1u << w_rows) - 1);
    for (int t = 0; t < 16 && t < rows; t++)
        _mm512_mask_storeu_ps(y + (size_t)t * y_stride, there, _mm512_castsi512_ps(v[t]));
}

void cpu_tile32(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){32, 0, 0});
}

void cpu_tile256_min16(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                       const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){256, 0, 16});
}

void cpu_tile256_s16(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){256, 16, 0});
}

void cpu_tile256_s32(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){256, 32, 0});
}

void cpu_tile256_s32_min32(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                           const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)
{
    multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){256, 32, 32});
}

void cpu_set_tile_avx512_vnni(struct cpu_matmul *m)
{
    m->tile_pack = pack;
}
