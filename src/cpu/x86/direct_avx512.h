/* SPDX-License-Identifier: Apache-2.0 */
/* Activation rows of a window times weight rows, straight from the file's bytes with AVX-512
 * (matmul.h, cpu_direct_fn): the frame that all types with blocks of 256 values share, for one and
 * two rows; direct_four_avx512.h has that for three and four.
 *
 * Codes stay unsigned bytes: two products of a code and an activation fit 16 bits (2 * 63 * 127),
 * and the multiplication that widens them to 32 bits applies the scale. Eight blocks give eight
 * registers of partial sums, which a tree of unpacks turns into one whose lanes are the chains.
 * Everything up to there is exact, so the bits are those of unpacking. */
#ifndef STRATA_CPU_X86_DIRECT_AVX512_H
#define STRATA_CPU_X86_DIRECT_AVX512_H

#include "cpu/x86/scales.h"
#include "cpu/x86/sums_avx512.h"

#define DIRECT_ROWS 2

/* How a type keeps its blocks. */
struct direct_layout {
    int block_bytes;
    int d_at;       /* of d, and of dmin behind it */
    float d_factor; /* constant power of two in d */
    int offset;     /* activations whose sum a word of the offset multiplies, 16 or 32; 0: none */
    int min;        /* the same of the minimums */
    bool scale_32;  /* 32 values share a scale */
    int bias;       /* signs are kept apart, and codes below this; 0: codes have no signs */
    bool scaled;    /* codes are multiplied with their scales */
    bool woven;     /* places of the activations are those of take_woven */
};

/* d_at of IQ1_M: d is spread over the last eight bytes. */
#define D_OF_IQ1_M (-1)

/* A block taken apart. Places of codes are those of the activations, words of offset and min are
 * in the file's order. */
struct wide_block {
    __m512i codes[4];      /* 64 unsigned bytes each */
    __mmask64 negative[4]; /* of which codes, where there is a bias */
    __m512i scales;        /* words in the lower half: of 16 places each */
    __m512i woven[2];      /* instead, of the words of codes 0 and 1, and of 2 and 3 */
    __m256i offset, min;   /* words; the products of the offset are part of the sum */
};

typedef void wide_block_fn(const uint8_t *b, struct wide_block *out);

/* Blocks of a group: they may belong to several weight rows. */
#define GROUP 8

/* The activation row as bytes, with sums as the types want them. Its first blocks follow once more
 * behind its last: a group that starts in one weight row and ends in another finds all it needs in
 * one piece. */
struct activations {
    _Alignas(64) int8_t q[CPU_DIRECT_MOST_N + 256 * (GROUP - 1)];
    _Alignas(32) int16_t bsum16[CPU_DIRECT_MOST_N / 16 + 16 * (GROUP - 1)];
    _Alignas(16) int16_t bsum32[CPU_DIRECT_MOST_N / 32 + 8 * (GROUP - 1)];
    float d[CPU_DIRECT_MOST_N / 256 + GROUP - 1];
    int blocks;
};

/* What eight blocks add to the chains of each activation row: lanes to be added. */
struct group_sums {
    __m512i sum[DIRECT_ROWS][GROUP];
    __m128i min[DIRECT_ROWS][GROUP];
};

/* The 256 activations at q as bytes, group 4t + m of 8 in quadword t of register m: so the groups
 * of a quadword of weights go to all four registers, and those of a scale to one quadword of them.
 */
static inline void take_woven(const int16_t *q, int8_t *out)
{
    __m512i half[2][2];
    for (int i = 0; i < 4; i++) {
        __m256i first = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + 64 * i));
        __m256i second = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + 64 * i + 32));
        half[i / 2][i % 2] = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    }
    for (int m = 0; m < 4; m++) {
        __m512i at =
            _mm512_add_epi64(_mm512_setr_epi64(0, 4, 8, 12, 0, 4, 8, 12), _mm512_set1_epi64(m));
        __m512i a = _mm512_permutex2var_epi64(half[0][0], at, half[0][1]);
        __m512i b = _mm512_permutex2var_epi64(half[1][0], at, half[1][1]);
        _mm512_store_si512(out + 64 * m, _mm512_mask_blend_epi64(0xf0, a, b));
    }
}

/* 32 codes of 16 bits to bytes; order[i] is the group of 32 values that stands at place i. NULL:
 * they are woven. */
static inline void take_activations(struct activations *out, const struct quant_act *x, int t,
                                    const int order[8])
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    const float *d = scales_of(x, t);
    out->blocks = x->n / 256;
    for (int k = 0; k < out->blocks; k++) {
        for (int i = 0; order && i < 8; i++) {
            __m512i words = _mm512_loadu_si512(q + 256 * k + 32 * order[i]);
            _mm256_store_si256((__m256i *)(out->q + 256 * k + 32 * i), _mm512_cvtepi16_epi8(words));
        }
        if (!order)
            take_woven(q + 256 * k, out->q + 256 * k);
        __m256i sums = load16(bsum + 16 * k);
        _mm256_store_si256((__m256i *)(out->bsum16 + 16 * k), sums);
        sums = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
        _mm_store_si128((__m128i *)(out->bsum32 + 8 * k), _mm256_cvtepi32_epi16(sums));
        out->d[k] = d[k];
    }
    for (int i = 0, k = out->blocks; i < GROUP - 1; i++, k++) {
        memcpy(out->q + 256 * k, out->q + 256 * i, 256);
        memcpy(out->bsum16 + 16 * k, out->bsum16 + 16 * i, 16 * sizeof *out->bsum16);
        memcpy(out->bsum32 + 8 * k, out->bsum32 + 8 * i, 8 * sizeof *out->bsum32);
        out->d[k] = out->d[i];
    }
}

/* Places of the groups in the file's order. */
static const int order_of_file[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Lane i is the sum of the lanes of s[i]. */
INLINE __m256i sum_narrow(const __m128i *s)
{
    __m256i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_set_m128i(s[i + 4], s[i]);
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]), _mm256_hadd_epi32(a[2], a[3]));
}

/* The scales of `count` blocks as x86_load_halves gives them. */
INLINE __m256 load_d(const uint8_t *first, const struct direct_layout l, int count)
{
    if (l.d_at == D_OF_IQ1_M)
        return x86_load_iq1_m_halves(first, l.block_bytes, count);
    return x86_load_halves(first + l.d_at, l.block_bytes, count);
}

/* Four scales from `first` on, each for eight words. */
INLINE __m512i four_scales(__m512i scales, int first)
{
    const __m512i eighths =
        _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002, 0x2000200020002,
                          0x3000300030003, 0x3000300030003);
    __m512i index = _mm512_add_epi16(eighths, _mm512_set1_epi16((short)first));
    return _mm512_permutexvar_epi16(index, scales);
}

/* Words of a block times the sums of 16 or 32 activations. */
INLINE __m256i times_sums(__m256i words, const struct activations *x, int k, const int of)
{
    if (of == 16)
        return _mm256_madd_epi16(words, load16(x->bsum16 + 16 * k));
    __m128i sums = _mm_load_si128((const __m128i *)(x->bsum32 + 8 * k));
    return _mm256_zextsi128_si256(_mm_madd_epi16(_mm256_castsi256_si128(words), sums));
}

/* Sets place `at` of all rows of `out` to what block k of a row adds. A weight's sign goes to its
 * activation. */
INLINE void add_block(const struct wide_block *w, const struct activations *x, int k,
                      const int rows, const struct direct_layout l, struct group_sums *out, int at)
{
    const __m512i zero = _mm512_setzero_si512();
    for (int r = 0; r < rows; r++) {
        __m512i sum = zero, before = zero;
        if (l.offset)
            sum = _mm512_zextsi256_si512(times_sums(w->offset, &x[r], k, l.offset));
        for (int j = 0; j < 4; j++) {
            __m512i q = _mm512_load_si512(x[r].q + 256 * k + 64 * j);
            if (l.bias)
                q = _mm512_mask_sub_epi8(q, w->negative[j], zero, q);
            if (l.scaled) {
                sum = multiply_add_bytes(sum, w->codes[j], q);
                continue;
            }
            __m512i products = _mm512_maddubs_epi16(w->codes[j], q);
            if (!l.woven)
                sum = multiply_add(sum, products, four_scales(w->scales, 4 * j));
            else if (j % 2) /* four products fit 16 bits: 4 * 63 * 127 */
                sum = multiply_add(sum, _mm512_add_epi16(before, products), w->woven[j / 2]);
            before = products;
        }
        out->sum[r][at] = sum;
        if (l.min) {
            __m256i min = times_sums(w->min, &x[r], k, l.min);
            out->min[r][at] = _mm256_castsi256_si128(min);
            if (l.min == 16)
                out->min[r][at] = _mm_add_epi32(out->min[r][at], _mm256_extracti128_si256(min, 1));
        }
    }
}

/* Sums `n` rows of `blocks` <= 4 chains that stand one behind another, each as add_tree does with
 * +0 for the chains that are missing. */
INLINE void add_short_trees(__m256 chain, int blocks, int n, float *y)
{
    _Alignas(32) float sum[8];
    __m256 all = _mm256_add_ps(chain, _mm256_setzero_ps()); /* no -0 */
    if (blocks == 3)                                        /* as four, the last is +0 */
        all = _mm256_maskz_permutexvar_ps(0x77, _mm256_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0), all);
    if (blocks > 2)
        all = _mm256_add_ps(all, _mm256_permute_ps(all, 0x4e));
    if (blocks > 1)
        all = _mm256_add_ps(all, _mm256_permute_ps(all, 0xb1));
    _mm256_store_ps(sum, all);
    for (int i = 0, step = blocks == 3 ? 4 : blocks; i < n; i++)
        y[i] = sum[i * step];
}

/* What a group adds to the chains: scales and sums as floats. */
struct products {
    __m256 d[DIRECT_ROWS], sum[DIRECT_ROWS], dmin[DIRECT_ROWS], min[DIRECT_ROWS];
};

/* The chains of a weight row and each activation row. Chain b mod 8 is in the lane that block b has
 * in its group: rows that start within a group have all lanes turned, which add_tree does not see.
 */
struct chains {
    __m256 of[DIRECT_ROWS];
    int done; /* blocks that are in them */
    float *y;
    size_t y_stride;
};

/* Ends a weight row. */
INLINE void end_row(struct chains *c, const int rows)
{
    for (int r = 0; r < rows; r++) {
        c->y[(size_t)r * c->y_stride] = add_tree(c->of[r]);
        c->of[r] = _mm256_setzero_ps();
    }
    c->y++;
    c->done = 0;
}

/* Adds what lanes `from` to `to` - 1 of the group say. */
INLINE void add_lanes(struct chains *c, const int rows, const struct direct_layout l,
                      const struct products *p, int from, int to)
{
    __mmask8 lanes = (__mmask8)((1 << to) - (1 << from));
    for (int r = 0; r < rows; r++) {
        c->of[r] = _mm256_mask3_fmadd_ps(p->d[r], p->sum[r], c->of[r], lanes);
        if (l.min)
            c->of[r] = _mm256_mask3_fnmadd_ps(p->dmin[r], p->min[r], c->of[r], lanes);
    }
}

/* The next `count` blocks, at `w`, times the blocks of the activation rows from block k on. What
 * `sums` holds where no block is counts for nothing. */
INLINE void direct_group(const uint8_t *w, const int count, const struct activations *x, int k,
                         const int rows, const struct direct_layout l, wide_block_fn *take_apart,
                         struct group_sums *sums, struct chains *c)
{
    const int blocks = x->blocks;
    struct products p;
    for (int b = 0; b < count; b++) {
        const uint8_t *at = w + b * l.block_bytes;
        x86_prefetch_ahead(at, l.block_bytes);
        struct wide_block block;
        take_apart(at, &block);
        add_block(&block, x, k + b, rows, l, sums, b);
    }
    __m256 dw = load_d(w, l, count), dmin = dw;
    dw = _mm256_mul_ps(dw, _mm256_set1_ps(l.d_factor)); /* exact */
    if (l.min)
        dmin = x86_load_halves(w + l.d_at + 2, l.block_bytes, count);
    for (int r = 0; r < rows; r++) {
        __m256 dx = _mm256_loadu_ps(x[r].d + k);
        p.d[r] = _mm256_mul_ps(dw, dx);
        p.sum[r] = _mm256_cvtepi32_ps(sum_wide(sums->sum[r]));
        if (l.min) {
            p.dmin[r] = _mm256_mul_ps(dmin, dx);
            p.min[r] = _mm256_cvtepi32_ps(sum_narrow(sums->min[r]));
        }
    }
    if (blocks <= 4) { /* whole rows */
        add_lanes(c, rows, l, &p, 0, 8);
        for (int r = 0; r < rows; r++) {
            add_short_trees(c->of[r], blocks, count / blocks, c->y + (size_t)r * c->y_stride);
            c->of[r] = _mm256_setzero_ps();
        }
        c->y += count / blocks;
        return;
    }
    for (int from = 0; from < count;) {
        int to = from + blocks - c->done < count ? from + blocks - c->done : count;
        add_lanes(c, rows, l, &p, from, to);
        c->done += to - from;
        from = to;
        if (c->done == blocks)
            end_row(c, rows);
    }
}

/* Weight rows are one stream of blocks, of which eight make a group, or those of as many whole rows
 * as there is room for where a row has at most four. */
INLINE void direct_rows(const void *w, int w_rows, const struct quant_act *x, int t, const int rows,
                        float *y, size_t y_stride, const int order[8], const struct direct_layout l,
                        wide_block_fn *take_apart)
{
    struct activations a[DIRECT_ROWS];
    struct group_sums sums;
    struct chains c = {.y = y, .y_stride = y_stride};
    for (int r = 0; r < rows; r++) {
        take_activations(&a[r], x, t + r, order);
        c.of[r] = _mm256_setzero_ps();
        for (int i = 0; i < GROUP; i++) {
            sums.sum[r][i] = _mm512_setzero_si512();
            sums.min[r][i] = _mm_setzero_si128();
        }
    }
    const uint8_t *first = w;
    const int blocks = a->blocks, group = blocks <= 4 ? GROUP / blocks * blocks : GROUP;
    int left = w_rows * blocks, k = 0;
    for (; group == GROUP && left >= GROUP; left -= GROUP, first += GROUP * l.block_bytes) {
        direct_group(first, GROUP, a, k, rows, l, take_apart, &sums, &c);
        k = (k + GROUP) % blocks;
    }
    for (; left > 0; left -= group, first += group * l.block_bytes)
        direct_group(first, left < group ? left : group, a, k, rows, l, take_apart, &sums, &c);
}

#endif
