/* SPDX-License-Identifier: Apache-2.0 */
/* Weight rows as records of bytes for prefill tiles (matmul.h), with AVX-512 VNNI: the
 * corrections that its codes give. */
#ifndef STRATA_CPU_X86_TILE_AVX512_H
#define STRATA_CPU_X86_TILE_AVX512_H

#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/tile_record.h"

/* Kernels of the forms that rows have: tile_avx512.c. */
extern cpu_tile_fn cpu_tile32;            /* blocks of 32 */
extern cpu_tile_fn cpu_tile32_min;        /* and minus the minimum of each, a float, in `scale` */
extern cpu_tile_fn cpu_tile32_halves;     /* a float scale for each 16 in `scale`, and a correction
                                             for each in `start` and the room of `d` behind it */
extern cpu_tile_fn cpu_tile256;           /* 256, no scales inside a block */
extern cpu_tile_fn cpu_tile256_min16;     /* the same, a minimum for each 16 */
extern cpu_tile_fn cpu_tile256_s16;       /* a scale for each 16 */
extern cpu_tile_fn cpu_tile256_s32;       /* a scale for each 32 */
extern cpu_tile_fn cpu_tile256_s32_min32; /* and a minimum for each 32 */

/* cpu_tile_pack_fn with signed codes. */
extern cpu_tile_pack_fn cpu_tile_pack_signed;

/* The correction of a block of 256 codes. scale[j]: lane i is the scale of codes 64 j + 4 i to
 * 64 j + 4 i + 3. */
INLINE int32_t tile_start256(const __m512i codes[4], const __m512i scale[4])
{
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    for (int j = 0; j < 4; j++) {
        __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, codes[j]);
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(fours, scale[j]));
    }
    return -128 * _mm512_reduce_add_epi32(sum);
}

/* Writes a block of 256 codes with 16 scales, dwords, and its correction. */
INLINE void tile_put_s16(uint8_t *out, const struct cpu_tile_layout *l, int k,
                         const __m512i codes[4], __m512i scales)
{
    const __m512i fours = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i scale[4];
    for (int j = 0; j < 4; j++) {
        _mm512_storeu_si512(out + 256 * k + 64 * j, codes[j]);
        __m512i index = _mm512_add_epi32(fours, _mm512_set1_epi32(4 * j));
        scale[j] = _mm512_permutexvar_epi32(index, scales);
    }
    _mm512_storeu_si512(tile_scale(out, l) + 16 * k, scales);
    tile_start(out, l)[k] = tile_start256(codes, scale);
}

/* The same with eight scales. */
INLINE void tile_put_s32(uint8_t *out, const struct cpu_tile_layout *l, int k,
                         const __m512i codes[4], __m256i scales)
{
    const __m512i eights = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m512i scale[4];
    for (int j = 0; j < 4; j++) {
        _mm512_storeu_si512(out + 256 * k + 64 * j, codes[j]);
        __m512i index = _mm512_add_epi32(eights, _mm512_set1_epi32(2 * j));
        scale[j] = _mm512_permutexvar_epi32(index, _mm512_castsi256_si512(scales));
    }
    _mm256_storeu_si256((__m256i *)(tile_scale(out, l) + 8 * k), scales);
    tile_start(out, l)[k] = tile_start256(codes, scale);
}

/* x in the lower half, y in the upper. */
INLINE __m512i tile_halves(__m256i x, __m256i y)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
}

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

#endif
