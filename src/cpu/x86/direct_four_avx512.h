/* SPDX-License-Identifier: Apache-2.0 */
/* Three and four activation rows times weight rows with AVX-512: a register holds 16 values of each
 * row, and meets 16 codes that a load repeats for the four. The sums of a block are then one
 * register for all rows, and those of four blocks become, by one tree, one register of four chains
 * of four rows. Lane 4r + p is block p of row r. Four blocks are taken apart before the first of
 * them is multiplied, so that loads do not wait for what was just stored.
 *
 * Signs go to the codes here, which a bias then makes unsigned: it is taken off with the sums of
 * the activations. */
#ifndef STRATA_CPU_X86_DIRECT_FOUR_AVX512_H
#define STRATA_CPU_X86_DIRECT_FOUR_AVX512_H

#include "cpu/x86/direct_avx512.h"

/* gcc would take what was just stored out of its register again, which costs shuffles: a load that
 * repeats 16 bytes costs none. */
#define IN_MEMORY(object) __asm__("" : "+m"(object))

/* A bias that makes codes of up to 255: two products of them do not fit 16 bits. */
#define LARGE_CODES 128

struct four_activations {
    _Alignas(64) int8_t q[4 * CPU_DIRECT_MOST_N];            /* [place / 16][row][16] */
    _Alignas(64) int16_t bsum16[4 * CPU_DIRECT_MOST_N / 16]; /* [block][half][row][8] */
    _Alignas(64) int16_t bsum32[4 * CPU_DIRECT_MOST_N / 32]; /* [block][row][8] */
    _Alignas(64) float d[4 * CPU_DIRECT_MOST_N / 256];       /* [block / 4][row][4] */
    int blocks;
};

/* Row r of the four is row t of x. */
static inline void take_row_of_four(struct four_activations *out, int r, const struct quant_act *x,
                                    int t, const int order[8])
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    for (int k = 0; k < out->blocks; k++) {
        for (int i = 0; i < 8; i++) {
            int8_t *at = out->q + 4 * (256 * k + 32 * i) + 16 * r;
            __m256i v = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + 256 * k + 32 * order[i]));
            _mm_store_si128((__m128i *)at, _mm256_castsi256_si128(v));
            _mm_store_si128((__m128i *)(at + 64), _mm256_extracti128_si256(v, 1));
        }
        __m256i sums = load16(bsum + 16 * k);
        int16_t *at = out->bsum16 + 64 * k + 8 * r;
        _mm_store_si128((__m128i *)at, _mm256_castsi256_si128(sums));
        _mm_store_si128((__m128i *)(at + 32), _mm256_extracti128_si256(sums, 1));
        sums = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
        _mm_store_si128((__m128i *)(out->bsum32 + 32 * k + 8 * r), _mm256_cvtepi32_epi16(sums));
        out->d[k / 4 * 16 + 4 * r + k % 4] = scales_of(x, t)[k];
    }
}

/* Rows t..t+rows-1 of x; the last again where there are three. */
static inline void take_four(struct four_activations *out, const struct quant_act *x, int t,
                             int rows, const int order[8])
{
    out->blocks = x->n / 256;
    for (int k = 0; k < out->blocks; k += 4)
        _mm512_store_ps(out->d + 4 * k, _mm512_setzero_ps());
    for (int r = 0; r < 4; r++)
        take_row_of_four(out, r, x, r < rows ? t + r : t + rows - 1, order);
}

/* Words of a block times the sums of 16 or 32 activations. */
INLINE __m512i four_times_sums(__m256i words, const struct four_activations *x, int k, const int of)
{
    __m512i first = _mm512_broadcast_i32x4(_mm256_castsi256_si128(words));
    if (of == 32)
        return _mm512_madd_epi16(first, _mm512_load_si512(x->bsum32 + 32 * k));
    __m512i second = _mm512_broadcast_i32x4(_mm256_extracti128_si256(words, 1));
    __m512i sum = _mm512_madd_epi16(first, _mm512_load_si512(x->bsum16 + 64 * k));
    return multiply_add(sum, second, _mm512_load_si512(x->bsum16 + 64 * k + 32));
}

/* Makes signed codes unsigned. */
INLINE void add_bias(struct wide_block *w, const int bias)
{
    const __m512i all = _mm512_set1_epi8((char)bias);
    for (int j = 0; j < 4; j++) {
        __m512i plus = _mm512_add_epi8(all, w->codes[j]);
        w->codes[j] = _mm512_mask_sub_epi8(plus, w->negative[j], all, w->codes[j]);
    }
    w->offset =
        _mm256_mullo_epi16(_mm512_castsi512_si256(w->scales), _mm256_set1_epi16((short)-bias));
}

/* The 16 scales, each twice in a dword. */
INLINE __m512i scale_pairs(__m512i scales)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(scales));
    return _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16));
}

/* A block whose codes and scales wait in memory. */
struct stored_block {
    _Alignas(64) uint8_t codes[256];
    int32_t scales[16];
    __m512i first; /* products of the offset */
};

INLINE void store_block(struct wide_block *w, const struct four_activations *x, int k,
                        const struct direct_layout l, struct stored_block *out)
{
    if (l.bias)
        add_bias(w, l.bias);
    for (int j = 0; j < 4; j++)
        _mm512_store_si512(out->codes + 64 * j, w->codes[j]);
    if (!l.scaled) {
        __m512i scales = scale_pairs(w->scales);
        if (l.bias == LARGE_CODES)
            scales = _mm512_srai_epi32(scales, 16);
        _mm512_store_si512(out->scales, scales);
    }
    out->first = _mm512_setzero_si512();
    if (l.offset || l.bias)
        out->first = four_times_sums(w->offset, x, k, l.offset ? l.offset : 16);
}

/* What block k adds to the chains of four rows: lanes to be added, those of row r from 4r on. */
INLINE __m512i sum_of_four(const struct stored_block *w, const int8_t *q,
                           const struct direct_layout l)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i sum[4] = {w->first, zero, zero, zero};
    for (int i = 0; i < 16; i++) {
        __m512i same = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(w->codes + 16 * i)));
        if (l.scaled) {
            sum[i % 4] = multiply_add_bytes(sum[i % 4], same, _mm512_load_si512(q + 64 * i));
            continue;
        }
        __m512i products = _mm512_maddubs_epi16(same, _mm512_load_si512(q + 64 * i));
        sum[i % 4] = multiply_add(sum[i % 4], products,
                                  _mm512_set1_epi32(w->scales[l.scale_32 ? i & ~1 : i]));
    }
    return _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]), _mm512_add_epi32(sum[2], sum[3]));
}

#ifdef __AVX512VNNI__
/* The same for scales of 32 values and codes up to 255, two products of which do not fit 16 bits.
 */
INLINE __m512i sum_of_four_large(const struct stored_block *w, const int8_t *q)
{
    __m512i sum = w->first;
    for (int i = 0; i < 16; i += 2) {
        __m512i s = _mm512_setzero_si512();
        for (int h = i; h < i + 2; h++) {
            __m128i c = _mm_load_si128((const __m128i *)(w->codes + 16 * h));
            s = _mm512_dpbusd_epi32(s, _mm512_broadcast_i32x4(c), _mm512_load_si512(q + 64 * h));
        }
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(s, _mm512_set1_epi32(w->scales[i])));
    }
    return sum;
}
#endif

/* Four scales of blocks for each of four rows. */
INLINE __m512 same_for_rows(__m256 four)
{
    return _mm512_broadcast_f32x4(_mm256_castps256_ps128(four));
}

/* chain + d * sum; `sign` -1: chain - d * sum. */
INLINE __m512 add_to_chain(__m512 chain, __m512 dw, __m512 dx, const __m512i s[4], const int sign)
{
    __m512 sum = _mm512_cvtepi32_ps(sum_quarters(s)), d = _mm512_mul_ps(dw, dx);
    return sign > 0 ? _mm512_fmadd_ps(d, sum, chain) : _mm512_fnmadd_ps(d, sum, chain);
}

/* The block sums of a group. Places without a block keep what they have: their scales are 0. */
struct four_sums {
    __m512i sum[4], min[4];
};

INLINE void direct_four_row(const uint8_t *row, const struct four_activations *x, int rows,
                            const struct direct_layout l, wide_block_fn *take_apart,
                            struct four_sums *sums, float *y, size_t y_stride)
{
    /* Of blocks b mod 8 below 4 and of the others, in turns. */
    __m512 chain = _mm512_setzero_ps(), other = chain;
    struct stored_block stored[4];
    for (int g = 0; g < x->blocks; g += 4) {
        int count = x->blocks - g < 4 ? x->blocks - g : 4;
        const uint8_t *first = row + g * l.block_bytes;
        for (int b = 0; b < count; b++) {
            const uint8_t *at = first + b * l.block_bytes;
            struct wide_block block;
            x86_prefetch_ahead(at, l.block_bytes);
            take_apart(at, &block);
            store_block(&block, x, g + b, l, &stored[b]);
            if (l.min)
                sums->min[b] = four_times_sums(block.min, x, g + b, l.min);
        }
        IN_MEMORY(stored);
        for (int b = 0; b < count; b++) {
            const int8_t *q = x->q + 4 * 256 * (g + b);
#ifdef __AVX512VNNI__
            if (l.bias == LARGE_CODES) {
                sums->sum[b] = sum_of_four_large(&stored[b], q);
                continue;
            }
#endif
            sums->sum[b] = sum_of_four(&stored[b], q, l);
        }
        __m256 d = _mm256_mul_ps(load_d(first, l, count), _mm256_set1_ps(l.d_factor)); /* exact */
        __m512 dx = _mm512_load_ps(x->d + 4 * g), next = chain;
        chain = other;
        other = add_to_chain(next, same_for_rows(d), dx, sums->sum, 1);
        if (l.min) {
            d = x86_load_halves(first + l.d_at + 2, l.block_bytes, count);
            other = add_to_chain(other, same_for_rows(d), dx, sums->min, -1);
        }
    }
    _Alignas(64) float results[16];
    __m512 all = _mm512_add_ps(chain, other);
    all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
    _mm512_store_ps(results, _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1)));
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = results[4 * r];
}

/* Times three or four activation rows. */
INLINE void direct_four(const void *w, int w_rows, const struct quant_act *x, int t, int rows,
                        float *y, size_t y_stride, const int order[8], const struct direct_layout l,
                        wide_block_fn *take_apart)
{
    struct four_activations a;
    struct four_sums sums;
    take_four(&a, x, t, rows, order);
    for (int i = 0; i < 4; i++)
        sums.sum[i] = sums.min[i] = _mm512_setzero_si512();
    const uint8_t *row = w;
    for (int j = 0; j < w_rows; j++, row += a.blocks * l.block_bytes)
        direct_four_row(row, &a, rows, l, take_apart, &sums, y + j, y_stride);
}

/* Whether direct_four can do it: large codes need VNNI. */
INLINE bool can_four(const struct direct_layout l)
{
#ifdef __AVX512VNNI__
    return true;
#else
    return l.bias != LARGE_CODES;
#endif
}

/* direct_TYPE, and window_TYPE but for one and two rows, which are of the name rows_TYPE. */
#define KERNELS(name, take_four_rows, order, ...)                                                  \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              float *y)                                                            \
    {                                                                                              \
        rows_##name(w, w_rows, x, t, 1, y, 0);                                                     \
    }                                                                                              \
    static void window_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              int rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        const struct direct_layout l = {__VA_ARGS__};                                              \
        for (; can_four(l) && rows >= 3; rows -= 4, t += 4, y += 4 * y_stride)                     \
            direct_four(w, w_rows, x, t, rows < 4 ? rows : 4, y, y_stride, order, l,               \
                        take_four_rows);                                                           \
        for (; rows >= 2; rows -= 2, t += 2, y += 2 * y_stride)                                    \
            rows_##name(w, w_rows, x, t, 2, y, y_stride);                                          \
        if (rows > 0)                                                                              \
            rows_##name(w, w_rows, x, t, 1, y, 0);                                                 \
    }

/* direct_TYPE and window_TYPE from take_TYPE. */
#define DIRECT(name, order, ...)                                                                   \
    INLINE void rows_##name(const void *w, int w_rows, const struct quant_act *x, int t,           \
                            const int rows, float *y, size_t y_stride)                             \
    {                                                                                              \
        direct_rows(w, w_rows, x, t, rows, y, y_stride, order,                                     \
                    (struct direct_layout){__VA_ARGS__}, take_##name);                             \
    }                                                                                              \
    KERNELS(name, take_##name, order, __VA_ARGS__)

/* The same with take_woven_TYPE for one and two rows. */
#define DIRECT_WOVEN(name, ...)                                                                    \
    INLINE void rows_##name(const void *w, int w_rows, const struct quant_act *x, int t,           \
                            const int rows, float *y, size_t y_stride)                             \
    {                                                                                              \
        direct_rows(w, w_rows, x, t, rows, y, y_stride, NULL,                                      \
                    (struct direct_layout){.woven = true, __VA_ARGS__}, take_woven_##name);        \
    }                                                                                              \
    KERNELS(name, take_##name, order_of_file, __VA_ARGS__)

#endif
