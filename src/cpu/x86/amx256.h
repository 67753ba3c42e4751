/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of the types with blocks of 256 values. A code times its scale has up to 16 bits: it is
 * split into two bytes, so that nothing is scaled inside a block; sum = first + (second << shift). */
#ifndef STRATA_CPU_X86_AMX256_H
#define STRATA_CPU_X86_AMX256_H

#include "cpu/x86/amx.h"

/* The bytes of one block of a panel: [four times 64 values][first, second][weight row][64]. */
#define AMX_SECOND (AMX_ROWS * 64)
#define AMX_STEP (2 * AMX_SECOND)
#define AMX_BLOCK (4 * AMX_STEP)

/* How a type is split. Constant in each kernel. */
struct amx_form {
    int block_bytes;
    int second;          /* AMX_NONE .. */
    bool first_unsigned; /* bytes */
    bool second_unsigned;
    int shift;
    bool negative; /* the sum is that of the values times -1 */
    int mins;      /* minimums of a block: 0, 8 or 16 */
};

enum { AMX_NONE, AMX_ADDED, AMX_SHIFTED };

/* Where a block goes; codes: the row's bytes, d, dmin and m: its own. */
struct amx_out {
    uint8_t *codes;
    float *d, *dmin;
    int16_t *m;
};

typedef void amx_block_fn(const uint8_t *b, const struct amx_out *out);

INLINE void amx_put_first(const struct amx_out *out, int j, __m512i v)
{
    _mm512_store_si512(out->codes + j * AMX_STEP, v);
}

INLINE void amx_put_second(const struct amx_out *out, int j, __m512i v)
{
    _mm512_store_si512(out->codes + j * AMX_STEP + AMX_SECOND, v);
}

/* 64 signed codes times signed scales, whose bytes are the upper ones of the words in `scale`; the
 * form is unsigned low bytes and signed high bytes. */
INLINE void amx_put_words(const struct amx_out *out, int j, __m512i codes, __m512i scale)
{
    const __m512i low = _mm512_set1_epi16(0xff);
    __m512i even = _mm512_mulhi_epi16(_mm512_slli_epi16(codes, 8), scale);
    __m512i odd = _mm512_mulhi_epi16(_mm512_andnot_si512(low, codes), scale);
    /* 0xca: bits of the first where `low` is set, else of the second */
    amx_put_first(out, j, _mm512_ternarylogic_epi32(low, even, _mm512_slli_epi16(odd, 8), 0xca));
    amx_put_second(out, j, _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(even, 8), odd, 0xca));
}

/* The scales of the 64 values j as words, each in the lane of its 16 values; of 16 words. */
INLINE __m512i amx_scales_of_16(__m512i scales, int j)
{
    const __m512i lanes = _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002,
                                            0x2000200020002, 0x3000300030003, 0x3000300030003);
    return _mm512_permutexvar_epi16(_mm512_add_epi16(lanes, _mm512_set1_epi16((short)(4 * j))),
                                    scales);
}

/* The same for scales of 32 values, of eight words. */
INLINE __m512i amx_scales_of_32(__m512i scales, int j)
{
    __m512i halves = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);
    return _mm512_permutexvar_epi16(_mm512_add_epi16(halves, _mm512_set1_epi16((short)(2 * j))),
                                    scales);
}

/* --- products --- */

#define AMX_PRODUCT(is_unsigned, sum, w, x)                                                        \
    do {                                                                                           \
        if (is_unsigned)                                                                           \
            _tile_dpbusd(sum, w, x);                                                               \
        else                                                                                       \
            _tile_dpbssd(sum, w, x);                                                               \
    } while (0)

/* Sums of block `codes` for the activations at q in tiles 0 to 3: first and second of 16 weight rows,
 * then of the other 16. */
INLINE void amx_products(const uint8_t *codes, const uint8_t *q, int groups,
                         const struct amx_form f)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const uint8_t *w = codes + j * AMX_STEP;
        _tile_loadd(6, q + j * AMX_TILE, 64);
        _tile_loadd(4, w, 64);
        AMX_PRODUCT(f.first_unsigned, 0, 4, 6);
        if (f.second == AMX_SHIFTED) {
            _tile_loadd(5, w + AMX_SECOND, 64);
            AMX_PRODUCT(f.second_unsigned, 1, 5, 6);
        } else if (f.second == AMX_ADDED) {
            _tile_loadd(5, w + AMX_SECOND, 64);
            AMX_PRODUCT(f.second_unsigned, 0, 5, 6);
        }
        if (groups == 1)
            continue;
        _tile_loadd(4, w + AMX_TILE, 64);
        AMX_PRODUCT(f.first_unsigned, 2, 4, 6);
        if (f.second == AMX_SHIFTED) {
            _tile_loadd(5, w + AMX_SECOND + AMX_TILE, 64);
            AMX_PRODUCT(f.second_unsigned, 3, 5, 6);
        } else if (f.second == AMX_ADDED) {
            _tile_loadd(5, w + AMX_SECOND + AMX_TILE, 64);
            AMX_PRODUCT(f.second_unsigned, 2, 5, 6);
        }
    }
}

INLINE void amx_store(int32_t *sums, int groups, const struct amx_form f)
{
    _tile_stored(0, sums, 64);
    if (f.second == AMX_SHIFTED)
        _tile_stored(1, sums + AMX_SUMS, 64);
    if (groups == 2) {
        _tile_stored(2, sums + 256, 64);
        if (f.second == AMX_SHIFTED)
            _tile_stored(3, sums + AMX_SUMS + 256, 64);
    }
    AMX_FENCE();
}

/* Block b of an activation tile, whose sums are there. */
struct amx_step {
    const struct cpu_tile_acts *x;
    int b;
    const int32_t *sums;
    float *chain, *sum; /* of the activation tile */
    const float *second, *third;
};

/* The minimums of a row: sum of minimum times block sum. */
INLINE __m512i amx_minimums(const int16_t *m, const int16_t *bsum, const int mins)
{
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < mins / 2; i++) {
        int32_t pair;
        memcpy(&pair, m + 2 * i, 4);
        sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(bsum + 32 * i), _mm512_set1_epi32(pair));
    }
    return sum;
}

/* Adds a block to its chains. */
INLINE void amx_add_rows(const struct amx_panel *p, const struct amx_step *s, int w_rows,
                         const bool is_first, const int end, const struct amx_form f)
{
    __m512 dx = _mm512_load_ps(s->x->d + 16 * s->b);
    const int16_t *bsum = f.mins == 16 ? s->x->bsum16 + 256 * s->b : s->x->bsum32 + 128 * s->b;
    const int32_t *sums = s->sums;
    const float *dw = p->d, *dmin = p->dmin, *second = s->second, *third = s->third;
    const int16_t *m = p->m;
    float *chains = s->chain, *to = s->sum;
#pragma GCC unroll 4
    for (int r = 0; r < w_rows; r++) {
        __m512i sum = _mm512_load_si512(sums + 16 * r);
        if (f.second == AMX_SHIFTED)
            sum = _mm512_add_epi32(sum, _mm512_slli_epi32(_mm512_load_si512(sums + AMX_SUMS + 16 * r),
                                                          (unsigned)f.shift));
        __m512 d = _mm512_mul_ps(_mm512_set1_ps(dw[r]), dx);
        __m512 chain = is_first ? _mm512_setzero_ps() : _mm512_load_ps(chains + 16 * r);
        if (f.negative)
            chain = _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(sum), chain);
        else
            chain = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum), chain);
        if (f.mins) {
            __m512i min = amx_minimums(m + f.mins * r, bsum, f.mins);
            d = _mm512_mul_ps(_mm512_set1_ps(dmin[r]), dx);
            chain = _mm512_fnmadd_ps(d, _mm512_cvtepi32_ps(min), chain);
        }
        amx_put(end, chains + 16 * r, to + 16 * r, second + 16 * r, third + 16 * r, chain);
    }
}

INLINE void amx_finish(const struct amx_panel *p, const struct amx_step *s, int w_rows,
                       bool is_first, int end, const struct amx_form f)
{
    if (end == AMX_KEEP) {
        if (is_first)
            amx_add_rows(p, s, w_rows, true, AMX_KEEP, f);
        else
            amx_add_rows(p, s, w_rows, false, AMX_KEEP, f);
    } else if (is_first && end == AMX_ADD) {
        amx_add_rows(p, s, w_rows, true, AMX_ADD, f);
    } else if (is_first && end == AMX_ADD_TWO) {
        amx_add_rows(p, s, w_rows, true, AMX_ADD_TWO, f);
    } else if (is_first) {
        amx_add_rows(p, s, w_rows, true, AMX_ADD_ALL, f);
    } else if (end == AMX_ADD) {
        amx_add_rows(p, s, w_rows, false, AMX_ADD, f);
    } else if (end == AMX_ADD_TWO) {
        amx_add_rows(p, s, w_rows, false, AMX_ADD_TWO, f);
    } else {
        amx_add_rows(p, s, w_rows, false, AMX_ADD_ALL, f);
    }
}

/* Multiplies a block, which is taken apart, with all activation tiles. The sums of a tile are added
 * while the products of the next are made. i: which chain of the order. */
INLINE void amx_block(const struct amx_panel *p, int w_rows, int b, const struct cpu_tile_acts *x,
                      int tiles, int i, bool is_first, bool is_last, const struct amx_form f)
{
    int end = is_last ? amx_end_of(i) : AMX_KEEP, groups = w_rows > 16 ? 2 : 1;
    struct amx_step last = {0};
    for (int t = 0; t <= tiles; t++) {
        if (t < tiles)
            amx_products(p->codes, x[t].q + 4096 * (size_t)b, groups, f);
        if (t > 0)
            amx_finish(p, &last, w_rows, is_first, end, f);
        if (t == tiles)
            break;
        amx_store(p->sums, groups, f);
        last = (struct amx_step){x + t,
                                 b,
                                 p->sums,
                                 amx_chain_at(p, i, t),
                                 amx_sum_at(p, i, t),
                                 p->part[1] + (size_t)t * AMX_SUMS,
                                 p->part[2] + (size_t)t * AMX_SUMS};
    }
}

INLINE void amx_panel256(const uint8_t *w, int w_rows, int n, const struct cpu_tile_acts *x,
                         int rows, void *scratch, float *y, size_t y_stride,
                         const struct amx_form f, amx_block_fn *take_apart)
{
    struct amx_panel p;
    int blocks = n / 256, tiles = (rows + 15) / 16;
    size_t row_bytes = (size_t)blocks * (size_t)f.block_bytes;
    amx_place(&p, scratch);
    p.d = (float *)(p.codes + AMX_BLOCK);
    p.dmin = p.d + AMX_ROWS;
    p.m = (int16_t *)(p.dmin + AMX_ROWS);
    _tile_loadconfig(&cpu_amx_64);
    for (int i = 0; i < 8; i++) {
        if (amx_order[i] >= blocks)
            cpu_amx_empty_chain(&p, i, tiles);
        for (int b = amx_order[i]; b < blocks; b += 8) {
            const uint8_t *at = w + (size_t)b * (size_t)f.block_bytes;
            for (int r = 0; r < w_rows; r++, at += row_bytes) {
                struct amx_out out = {p.codes + 64 * r, p.d + r, p.dmin + r, p.m + r * f.mins};
                if (b == 0) /* the whole row four rows on */
                    for (size_t k = 0; k < row_bytes; k += 64)
                        amx_prefetch(at + 4 * row_bytes + k, 64);
                else
                    amx_prefetch(at + AMX_ROWS * row_bytes, f.block_bytes);
                take_apart(at, &out);
            }
            AMX_FENCE();
            amx_block(&p, w_rows, b, x, tiles, i, b < 8, b + 8 >= blocks, f);
        }
    }
    _tile_release();
    cpu_amx_results(p.part[0], w_rows, rows, y, y_stride);
}

/* panel_TYPE from block_TYPE. */
#define AMX_PANEL(name, ...)                                                                       \
    static void panel_##name(const void *w, int w_rows, int n, const struct cpu_tile_acts *x,      \
                             int rows, void *scratch, float *y, size_t y_stride)                   \
    {                                                                                              \
        amx_panel256(w, w_rows, n, x, rows, scratch, y, y_stride, (struct amx_form){__VA_ARGS__},  \
                     block_##name);                                                                \
    }

#endif
