/* SPDX-License-Identifier: Apache-2.0 */
/* Types with three values: their integer form with AVX2, and times one to four activation rows
 * (direct_avx2.h). There are no scales inside a block, so that the sums of all its products stay in
 * 16 bits until the end. */
#include "cpu/x86/direct_avx2.h"
#include "cpu/x86/ternary_avx2.h"

INLINE void unpack(const uint8_t *b, int n, struct quant_row *out, const int block_bytes,
                   ternary_codes_fn *take_apart)
{
    for (int k = 0; k < n / 256; k++, b += block_bytes) {
        __m256i codes[8];
        x86_prefetch_ahead(b, block_bytes);
        take_apart(b, codes);
        out->d[k] = x86_half_at(b + block_bytes - 2);
        for (int g = 0; g < 8; g++) {
            __m256i v = _mm256_sub_epi8(codes[g], _mm256_set1_epi8(1));
            __m256i *w = (__m256i *)(out->w + 256 * k + 32 * g);
            _mm256_store_si256(w, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v)));
            _mm256_store_si256(w + 1, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v, 1)));
        }
    }
}

/* A sum is at most 8 * 2 * 3 * 127 before the activations are taken off once. */
INLINE void blocks_ternary(const uint8_t *b, const struct activations *x, int k, int rows,
                           struct group_sums *out, int at, ternary_codes_fn *take_apart)
{
    __m256i codes[8];
    take_apart(b, codes);
    for (int r = 0; r < rows; r++) {
        const int8_t *q = x[r].q + 256 * k;
        __m256i sum = _mm256_maddubs_epi16(codes[0], _mm256_load_si256((const __m256i *)q));
        for (int g = 1; g < 8; g++) {
            __m256i v = _mm256_load_si256((const __m256i *)(q + 32 * g));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes[g], v));
        }
        sum = _mm256_sub_epi16(sum, load16(x[r].bsum16 + 16 * k));
        out->sum[r][at] = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    }
}

/* unpack_TYPE, direct_TYPE and window_TYPE. */
#define TERNARY(name, bytes)                                                                       \
    static void unpack_##name(const uint8_t *row, int n, struct quant_row *out)                    \
    {                                                                                              \
        unpack(row, n, out, bytes, ternary_codes_##name);                                          \
    }                                                                                              \
    INLINE void blocks_##name(const uint8_t *b, const struct activations *x, int k, int rows,      \
                              struct group_sums *out, int at)                                      \
    {                                                                                              \
        blocks_ternary(b, x, k, rows, out, at, ternary_codes_##name);                              \
    }                                                                                              \
    DIRECT_AND_WINDOW(name, bytes, (bytes) - 2, 1, false)

TERNARY(tq1_0, TQ1_0_BYTES)
TERNARY(tq2_0, TQ2_0_BYTES)

void cpu_set_ternary_avx2(struct cpu_matmul *m)
{
    m->unpack[TYPE_TQ1_0] = unpack_tq1_0;
    m->direct[TYPE_TQ1_0] = direct_tq1_0;
    m->window[TYPE_TQ1_0] = window_tq1_0;
    m->unpack[TYPE_TQ2_0] = unpack_tq2_0;
    m->direct[TYPE_TQ2_0] = direct_tq2_0;
    m->window[TYPE_TQ2_0] = window_tq2_0;
}
