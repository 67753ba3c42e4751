/* SPDX-License-Identifier: Apache-2.0 */
/* NVFP4 times one to four activation rows, straight from the file's bytes (matmul.h, cpu_direct_fn).
 * Compiled twice, with AVX2 and with AVX-512 VNNI.
 *
 * A block is 64 values in 32 bytes, four times 16 with a scale; the low nibbles of eight bytes are
 * values 0 to 7 of the 16, the high ones values 8 to 15. Codes are made unsigned by adding 12, and
 * what that adds is taken off at the end. A group is eight parts of 32 values, one for each chain;
 * the lanes of all registers are parts 0 2 4 6 1 3 5 7 of it. */
#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/unpack_small.h"
#ifdef __AVX512VNNI__
#include "cpu/x86/direct_small_avx512.h" /* three and four rows */
#endif

#define OFFSET 12
#define BLOCK_BYTES 36

struct activations {
    _Alignas(32) int8_t q[CPU_DIRECT_MOST_N]; /* of 64: values for low nibbles, for high ones */
    _Alignas(32) int32_t excess[2][CPU_DIRECT_MOST_N / 32]; /* of both halves of parts, in lanes */
    _Alignas(32) float d[CPU_DIRECT_MOST_N / 32];           /* in lanes */
    int blocks; /* of 64 */
};

INLINE __m256i lanes_of_parts(void)
{
    return _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
}

/* Whole groups: the padding of x has activations, sums and scales of zero. */
static void take_activations(struct activations *out, const struct quant_act *x, int t)
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    const __m256i lanes = lanes_of_parts();
    out->blocks = x->n / 64;
    for (int i = 0; i < x->n; i += 64) {
        __m256i a = _mm256_packs_epi16(load16(q + i), load16(q + i + 16));
        __m256i b = _mm256_packs_epi16(load16(q + i + 32), load16(q + i + 48));
        _mm256_store_si256((__m256i *)(out->q + i), _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_store_si256((__m256i *)(out->q + i + 32), _mm256_permute2x128_si256(a, b, 0x31));
    }
    for (int g = 0; g < x->n / 32; g += 8) {
        __m256i sums = _mm256_permutevar8x32_epi32(load16(bsum + 2 * g), lanes);
        __m256i first = _mm256_madd_epi16(sums, _mm256_set1_epi32(OFFSET));
        __m256i second = _mm256_madd_epi16(sums, _mm256_set1_epi32(OFFSET << 16));
        __m256 d = _mm256_permutevar8x32_ps(_mm256_loadu_ps(scales_of(x, t) + g), lanes);
        _mm256_store_si256((__m256i *)(out->excess[0] + g), first);
        _mm256_store_si256((__m256i *)(out->excess[1] + g), second);
        _mm256_store_ps(out->d + g, d);
    }
}

/* Eight sums, two for each 16 values of the block. */
INLINE __m256i products(__m256i low, __m256i high, const int8_t *q)
{
    __m256i first = _mm256_load_si256((const __m256i *)q);
    __m256i second = _mm256_load_si256((const __m256i *)(q + 32));
#ifdef __AVX512VNNI__
    __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), low, first);
    return _mm256_dpbusd_epi32(sum, high, second);
#else
    /* 4 * 24 * 127 fits 16 bits */
    __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(low, first),
                                   _mm256_maddubs_epi16(high, second));
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
#endif
}

/* Adds the sums less the excess to the chains, scales dw. */
INLINE __m256 add_halves(__m256 chain, __m256 sums, const int32_t *excess, __m256 dw, __m256 dx)
{
    __m256i exact =
        _mm256_sub_epi32(_mm256_castps_si256(sums), _mm256_load_si256((const __m256i *)excess));
    return _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(exact), chain);
}

INLINE __m256 add_group(__m256 chain, const __m256i low[4], const __m256i high[4],
                        const __m256 dw[2], const struct activations *x, int g)
{
    __m256i s[4];
    for (int i = 0; i < 4; i++)
        s[i] = products(low[i], high[i], x->q + 32 * g + 64 * i);
    __m256 a = _mm256_castsi256_ps(_mm256_hadd_epi32(s[0], s[1]));
    __m256 b = _mm256_castsi256_ps(_mm256_hadd_epi32(s[2], s[3]));
    __m256 dx = _mm256_load_ps(x->d + g);
    chain = add_halves(chain, _mm256_shuffle_ps(a, b, 0x88), x->excess[0] + g, dw[0], dx);
    return add_halves(chain, _mm256_shuffle_ps(a, b, 0xdd), x->excess[1] + g, dw[1], dx);
}

/* One weight row times `rows` (at most 4) activation rows. */
INLINE void direct_row(const uint8_t *row, const struct activations *x, const int rows, float *y,
                       size_t y_stride)
{
    const __m256i table = _mm256_broadcastsi128_si256( /* twice the sixteen values, + 12 */
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m128i halves = _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256 chain[4];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int k = 0; k < x->blocks; k += 4, row += 4 * BLOCK_BYTES) {
        __m256i low[4], high[4];
        int32_t scales[4];
        x86_prefetch_ahead(row, 4 * BLOCK_BYTES);
        for (int i = 0; i < 4; i++) {
            /* In place of a block that is not there its activations, all zero, meet another. */
            const uint8_t *b = row + (i < x->blocks - k ? i : 0) * BLOCK_BYTES;
            __m256i v = _mm256_loadu_si256((const __m256i *)(b + 4));
            low[i] = _mm256_shuffle_epi8(table, _mm256_and_si256(v, nibble));
            v = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
            high[i] = _mm256_shuffle_epi8(table, v);
            scales[i] = (int32_t)bytes_u32(b);
        }
        __m128i all = _mm_setr_epi32(scales[0], scales[1], scales[2], scales[3]);
        all = _mm_shuffle_epi8(all, halves);
        __m256 dw[2] = {x86_nvfp4_eight_scales(all),
                        x86_nvfp4_eight_scales(_mm_unpackhi_epi64(all, all))};
        for (int r = 0; r < rows; r++)
            chain[r] = add_group(chain[r], low, high, dw, &x[r], 2 * k);
    }
    const __m256i parts = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(_mm256_permutevar8x32_ps(chain[r], parts));
}

INLINE void direct_rows(const uint8_t *w, int w_rows, const struct quant_act *x, int t,
                        const int rows, float *y, size_t y_stride)
{
    struct activations a[4];
    for (int r = 0; r < rows; r++)
        take_activations(&a[r], x, t + r);
    for (int j = 0; j < w_rows; j++, w += a->blocks * BLOCK_BYTES)
        direct_row(w, a, rows, y + j, y_stride);
}

static void direct_nvfp4(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    direct_rows(w, w_rows, x, t, 1, y, 0);
}

static void window_nvfp4(const void *w, int w_rows, const struct quant_act *x, int t, int rows,
                         float *y, size_t y_stride)
{
#ifdef __AVX512VNNI__
    for (; rows >= 3; rows -= 4, t += 4, y += 4 * y_stride)
        cpu_four_nvfp4(w, w_rows, x, t, rows < 4 ? rows : 4, y, y_stride);
#else
    for (; rows >= 4; rows -= 4, t += 4, y += 4 * y_stride)
        direct_rows(w, w_rows, x, t, 4, y, y_stride);
#endif
    for (; rows >= 2; rows -= 2, t += 2, y += 2 * y_stride)
        direct_rows(w, w_rows, x, t, 2, y, y_stride);
    if (rows > 0)
        direct_nvfp4(w, w_rows, x, t, y);
}

#ifdef __AVX512VNNI__
void cpu_set_direct_nvfp4_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_direct_nvfp4_avx2(struct cpu_matmul *m)
#endif
{
    m->direct[TYPE_NVFP4] = direct_nvfp4;
    m->window[TYPE_NVFP4] = window_nvfp4;
}
