/* SPDX-License-Identifier: Apache-2.0 */
/* Several activation rows times weight rows, straight from the file's bytes with NEON (matmul.h,
 * cpu_window_fn): weights are taken apart once for up to eight rows, which are the lanes, and their
 * codes stay in registers. Lanes without a row repeat the last. */
#ifndef STRATA_CPU_ARM_WINDOW_NEON_H
#define STRATA_CPU_ARM_WINDOW_NEON_H

#include "cpu/arm/direct_neon.h"
#include "cpu/arm/lanes_neon.h"

#define WINDOW_LANES 8

/* 4 * quads activation rows, `lanes`, side by side. */
struct window {
    _Alignas(64) int8_t q[WINDOW_LANES * CPU_DIRECT_MOST_N]; /* [n / 16][quad][4][row][4] */
    float d[WINDOW_LANES * CPU_DIRECT_MOST_N / 32];          /* [n / block][row] */
    int16_t sum[WINDOW_LANES * CPU_DIRECT_MOST_N / 16];      /* [n / min_values][row] */
};

/* min_values: values whose activations' sums a minimum is multiplied with, 16 or 32; 0: none. */
INLINE void take_window(struct window *out, const struct quant_act *x, int t, int rows,
                        const int quads, const int min_values)
{
    const int lanes = 4 * quads;
    for (int i = 0; i < quads; i++) {
        const int16_t *q[4];
        for (int r = 0; r < 4; r++) {
            int lane = 4 * i + r, row = t + (lane < rows ? lane : rows - 1);
            const int16_t *sum = sums_of(x, row);
            q[r] = codes_of(x, row);
            for (int b = 0; b < x->n / x->block; b++)
                out->d[b * lanes + lane] = scales_of(x, row)[b];
            for (int j = 0; min_values && j < x->n / min_values; j++)
                out->sum[j * lanes + lane] =
                    (int16_t)(min_values == 16 ? sum[j] : sum[2 * j] + sum[2 * j + 1]);
        }
        for (int k = 0; k < x->n; k += 16)
            pack_four(q, k, out->q + k * lanes + 64 * i, 16);
    }
}

#ifdef __ARM_FEATURE_DOTPROD
/* Adds 16 codes times the activations at q. */
INLINE void sum_16(int8x16_t codes, const int8_t *q, const int quads, const int most,
                   int32x4_t *sum)
{
    for (int i = 0; i < quads; i++) {
        int8x16x4_t four = vld1q_s8_x4(q + 64 * i);
        sum[i] = dot_lane(sum[i], four.val[0], codes, 0);
        sum[i] = dot_lane(sum[i], four.val[1], codes, 1);
        sum[i] = dot_lane(sum[i], four.val[2], codes, 2);
        sum[i] = dot_lane(sum[i], four.val[3], codes, 3);
    }
}

/* The same for 32. */
INLINE void sum_32(const struct codes_32 c, const int8_t *q, const int quads, const int most,
                   int32x4_t *sum)
{
    sum_16(c.c[0], q, quads, most, sum);
    sum_16(c.c[1], q + 16 * 4 * quads, quads, most, sum);
}
#else
/* Products with words of four codes that are not added to 32 bits yet: lanes 4r to 4r + 3 of both
 * are of row r, `words` products each. */
struct open {
    int16x8_t low, high;
    int words;
};

/* Adds the products of word j of the codes, whose size is at most `most`. Those of a row are closed
 * when it is the last word or their sum, when they are added in pairs, might leave 16 bits. */
INLINE void add_word(struct open *s, int32x4_t *sum, int8x16_t q, int8x16_t codes, const int j,
                     const bool is_last, const int most)
{
    int8x16_t w = word(codes, j);
    if (s->words++ == 0) {
        s->low = vmull_s8(vget_low_s8(w), vget_low_s8(q));
        s->high = vmull_high_s8(w, q);
    } else {
        s->low = vmlal_s8(s->low, vget_low_s8(w), vget_low_s8(q));
        s->high = vmlal_high_s8(s->high, w, q);
    }
    if (!is_last && 2 * (s->words + 1) * most * 127 <= INT16_MAX)
        return;
    *sum = vpadalq_s16(*sum, vpaddq_s16(s->low, s->high));
    s->words = 0;
}

INLINE void add_words(struct open *s, int32x4_t *sum, const int8_t *q, int8x16_t codes,
                      const bool is_last, const int most)
{
    int8x16x4_t four = vld1q_s8_x4(q);
    add_word(s, sum, four.val[0], codes, 0, false, most);
    add_word(s, sum, four.val[1], codes, 1, false, most);
    add_word(s, sum, four.val[2], codes, 2, false, most);
    add_word(s, sum, four.val[3], codes, 3, is_last, most);
}

/* Adds 16 codes times the activations at q. */
INLINE void sum_16(int8x16_t codes, const int8_t *q, const int quads, const int most,
                   int32x4_t *sum)
{
    for (int i = 0; i < quads; i++) {
        struct open s = {.words = 0};
        add_words(&s, &sum[i], q + 64 * i, codes, true, most);
    }
}

/* The same for 32. */
INLINE void sum_32(const struct codes_32 c, const int8_t *q, const int quads, const int most,
                   int32x4_t *sum)
{
    for (int i = 0; i < quads; i++) {
        struct open s = {.words = 0};
        add_words(&s, &sum[i], q + 64 * i, c.c[0], false, most);
        add_words(&s, &sum[i], q + 64 * (quads + i), c.c[1], true, most);
    }
}
#endif

/* Adds a block's sums times d to its chain. */
INLINE void add_sums(float d, const float *dx, const int32x4_t *sum, const int quads,
                     float32x4_t *chain)
{
    for (int i = 0; i < quads; i++)
        chain[i] = vfmaq_f32(chain[i], vmulq_n_f32(vld1q_f32(dx + 4 * i), d),
                             vcvtq_f32_s32(sum[i]));
}

/* The same, taken off. */
INLINE void take_sums(float d, const float *dx, const int32x4_t *sum, const int quads,
                      float32x4_t *chain)
{
    for (int i = 0; i < quads; i++)
        chain[i] = vfmsq_f32(chain[i], vmulq_n_f32(vld1q_f32(dx + 4 * i), d),
                             vcvtq_f32_s32(sum[i]));
}

/* Adds what the weight block at b, which begins with block k of the activations, gives to the
 * chains: [CHAINS][quads]. */
typedef void window_add_fn(const uint8_t *b, const struct window *x, size_t k, const int quads,
                           float32x4_t *chains);

/* 4 * quads activation rows. A weight block is `bytes` for `parts` blocks of activations. */
INLINE void window_lanes(const uint8_t *b, int w_rows, const struct quant_act *x, int t, int rows,
                         float *y, size_t y_stride, const int quads, const int bytes,
                         const int parts, const int min_values, window_add_fn *add)
{
    struct window a;
    const size_t blocks = (size_t)(x->n / x->block);
    take_window(&a, x, t, rows, quads, min_values);
    for (int r = 0; r < w_rows; r++) {
        float32x4_t chains[CHAINS * 2];
        float results[WINDOW_LANES];
        for (int i = 0; i < CHAINS * quads; i++)
            chains[i] = vdupq_n_f32(0);
        for (size_t k = 0; k < blocks; k += (size_t)parts, b += bytes) {
            prefetch_ahead(b, bytes);
            add(b, &a, k, quads, chains);
        }
        for (int i = 0; i < quads; i++)
            vst1q_f32(results + 4 * i, add_chains(chains + i, quads));
        for (int i = 0; i < rows; i++)
            y[(size_t)i * y_stride + (size_t)r] = results[i];
    }
}

/* least_4: rows from which on lanes for four take fewer instructions than rows that are no lanes
 * (`few`); least_8: from which on lanes for eight take fewer than lanes for four and `few`. Counted
 * under emulation. */
INLINE void window_rows(const uint8_t *w, int w_rows, const struct quant_act *x, int t, int rows,
                        float *y, size_t y_stride, const int bytes, const int parts,
                        const int min_values, window_add_fn *add, const int least_4,
                        const int least_8, cpu_window_fn *few)
{
    for (; rows >= least_8; rows -= 8, t += 8, y += 8 * y_stride)
        window_lanes(w, w_rows, x, t, rows < 8 ? rows : 8, y, y_stride, 2, bytes, parts,
                     min_values, add);
    if (rows >= least_4) {
        window_lanes(w, w_rows, x, t, rows < 4 ? rows : 4, y, y_stride, 1, bytes, parts,
                     min_values, add);
        rows -= 4, t += 4, y += 4 * y_stride;
    }
    if (rows > 0)
        few(w, w_rows, x, t, rows, y, y_stride);
}

#endif
