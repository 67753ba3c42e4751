/* SPDX-License-Identifier: Apache-2.0 */
/* Weight rows as records of bytes for prefill tiles (matmul.h) on machines without VNNI: AVX2, and
 * AVX-512 for which the same files are compiled once more.
 *
 * Codes come in groups of 32, and bytes of a group in the order 0 1 16 17 2 3 18 19 ..: of the two
 * words that vpmaddubsw makes of four codes and four activations, the first belongs to the first 16
 * codes of the group and the second to the other 16. Words of the eight fours of a group are added
 * in 16 bits, and one vpmaddwd applies a scale to each half and widens to 32 bits.
 *
 * Codes are stored with an offset that makes them unsigned. It is taken off in 16 bits where all
 * codes are -16 to 16: a sum may then leave the 16 bits on the way, but its end is at most
 * 16 * 16 * 127 = 32512. Where codes are larger, fewer words are added, and the offset is taken off
 * in 32 bits. */
#ifndef STRATA_CPU_X86_TILE_MADD_H
#define STRATA_CPU_X86_TILE_MADD_H

#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/tile_record.h"

#ifdef __AVX512BW__
#define TILE(name) cpu_tile_##name##_avx512
#else
#define TILE(name) cpu_tile_##name##_avx2
#endif

/* Kernels of the forms that rows have: tile_madd.c. A scale is two words, for the halves of a group
 * of 32 codes. */
extern cpu_tile_fn TILE(32);           /* blocks of 32; codes -16 to 16 plus 16 */
extern cpu_tile_fn TILE(32_halves);    /* the same, a float scale for each 16 in `scale` */
extern cpu_tile_fn TILE(32_min);       /* codes 0 to 31, minus the minimum as a float in `start` */
extern cpu_tile_fn TILE(32_wide);      /* any signed codes */
extern cpu_tile_fn TILE(256);          /* blocks of 256; codes -16 to 16 plus 16 */
extern cpu_tile_fn TILE(256_32);       /* codes -32 to 31 plus 32 */
extern cpu_tile_fn TILE(256_64);       /* codes -62 to 62 plus 64 */
extern cpu_tile_fn TILE(256_wide);     /* any signed codes */
extern cpu_tile_fn TILE(256_min16);    /* codes 0 to 15, a minimum for each 16 */
extern cpu_tile_fn TILE(256_min32);    /* codes 0 to 15, a minimum for each 32 */
extern cpu_tile_fn TILE(256_min32_31); /* codes 0 to 31 */

INLINE __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Lower and upper words of each 16 bytes in turn. */
INLINE __m256i weave_words(__m256i x)
{
    return _mm256_shuffle_epi8(
        x, _mm256_broadcastsi128_si256(
               _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)));
}

/* Writes group g of a record, whose codes are in order. */
INLINE void tile_put(uint8_t *out, int g, __m256i codes)
{
    codes = _mm256_permute4x64_epi64(codes, _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_store_si256((__m256i *)(out + 32 * g), weave_words(codes));
}

/* Writes the 16 scales of block k, one for each 16 codes. */
INLINE void tile_put_scales(uint8_t *out, const struct cpu_tile_layout *l, int k, __m128i bytes)
{
    _mm256_store_si256((__m256i *)(tile_scale(out, l) + 8 * k), _mm256_cvtepi8_epi16(bytes));
}

/* Writes the eight scales of block k, the lower eight bytes. */
INLINE void tile_put_eight_scales(uint8_t *out, const struct cpu_tile_layout *l, int k,
                                  __m128i bytes)
{
    tile_put_scales(out, l, k, _mm_unpacklo_epi8(bytes, bytes));
}

#endif
