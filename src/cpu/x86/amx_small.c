/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of the types with blocks of 32, 64 and 128 values. A panel is taken apart whole; blocks of
 * 32 codes lie row by row and in each chain by chain: [weight row][chain][block of it][32], scales
 * [chain][block of it][weight row]. */
#include "cpu/x86/amx.h"
#include "cpu/x86/small_codes_avx512.h"

/* Blocks of a chain that are multiplied before their sums are added. */
#define SOME 4

/* A panel's rows; a chain has room for `most` blocks. */
struct rows {
    const struct amx_panel *p;
    int blocks, most;
    size_t stride; /* bytes of a row's codes: no power of two, so that rows spread over the L1 cache */
};

/* The place of block b in its row. */
INLINE size_t place_of(const struct rows *rows, int b)
{
    return (size_t)(b % 8 * rows->most + b / 8);
}

INLINE void put32(const struct rows *rows, int r, int b, __m256i codes, float d)
{
    size_t place = place_of(rows, b);
    uint8_t *row = rows->p->codes + (size_t)r * rows->stride;
    _mm256_store_si256((__m256i *)(row + 32 * place), codes);
    rows->p->d[place * AMX_ROWS + (size_t)r] = d;
}

/* --- products --- */

/* Some blocks of a chain for 16 weight rows and an activation tile. */
struct step {
    const uint8_t *codes;
    size_t stride; /* of rows */
    const float *d;
    const struct cpu_tile_acts *x;
    int b, some; /* the first, how many */
    bool is_first;
    int end;
    int32_t *sums; /* [SOME][16][16] */
    float *chain, *sum;
    const float *second, *third;
};

#define PRODUCT(s, i, wt, xt)                                                                      \
    do {                                                                                           \
        _tile_zero(i);                                                                             \
        _tile_loadd(wt, (s)->codes + (i) * 32, (s)->stride);                                       \
        _tile_loadd(xt, (s)->x->q + 512 * ((size_t)(s)->b + 8 * (i)), 64);                         \
        _tile_dpbssd(i, wt, xt);                                                                   \
    } while (0)

INLINE void products(const struct step *s)
{
    PRODUCT(s, 0, 4, 6);
    if (s->some > 1)
        PRODUCT(s, 1, 5, 7);
    if (s->some > 2)
        PRODUCT(s, 2, 4, 6);
    if (s->some > 3)
        PRODUCT(s, 3, 5, 7);
}

INLINE void store(const struct step *s)
{
    _tile_stored(0, s->sums, 64);
    if (s->some > 1)
        _tile_stored(1, s->sums + 256, 64);
    if (s->some > 2)
        _tile_stored(2, s->sums + 512, 64);
    if (s->some > 3)
        _tile_stored(3, s->sums + 768, 64);
    AMX_FENCE();
}

INLINE void add_rows(const struct step *s, const int some, const int end)
{
    __m512 dx[SOME];
    const int32_t *sums = s->sums;
    const float *d = s->d, *second = s->second, *third = s->third;
    float *chains = s->chain, *sum = s->sum;
    __mmask16 kept = s->is_first ? 0 : 0xffff;
    for (int i = 0; i < some; i++)
        dx[i] = _mm512_load_ps(s->x->d + 16 * (s->b + 8 * i));
#pragma GCC unroll 4
    for (int r = 0; r < 16; r++) {
        __m512 chain = _mm512_maskz_load_ps(kept, chains + 16 * r);
        for (int i = 0; i < some; i++) {
            __m512 scale = _mm512_mul_ps(_mm512_set1_ps(d[AMX_ROWS * i + r]), dx[i]);
            __m512i product = _mm512_load_si512(sums + 256 * i + 16 * r);
            chain = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(product), chain);
        }
        amx_put(end, chains + 16 * r, sum + 16 * r, second + 16 * r, third + 16 * r, chain);
    }
}

INLINE void add_some(const struct step *s, const int end)
{
    switch (s->some) {
    case 1:
        add_rows(s, 1, end);
        break;
    case 2:
        add_rows(s, 2, end);
        break;
    case 3:
        add_rows(s, 3, end);
        break;
    default:
        add_rows(s, SOME, end);
    }
}

static void finish(const struct step *s)
{
    switch (s->end) {
    case AMX_KEEP:
        add_some(s, AMX_KEEP);
        break;
    case AMX_ADD:
        add_some(s, AMX_ADD);
        break;
    case AMX_ADD_TWO:
        add_some(s, AMX_ADD_TWO);
        break;
    default:
        add_some(s, AMX_ADD_ALL);
    }
}

/* All blocks of the i-th chain; `last` is finished while the products behind it are made. */
static void chain(const struct rows *rows, int groups, const struct cpu_tile_acts *x, int tiles,
                  int i, struct step *last)
{
    const struct amx_panel *p = rows->p;
    int c = amx_order[i], count = (rows->blocks - c + 7) / 8;
    for (int t = 0; t < tiles; t++) {
        for (int g = 0; g < groups; g++) {
            for (int k = 0; k < count; k += SOME) {
                size_t place = place_of(rows, c + 8 * k);
                size_t at = (size_t)t * AMX_SUMS + (size_t)g * 256;
                struct step s = {
                    .codes = p->codes + (size_t)(16 * g) * rows->stride + 32 * place,
                    .stride = rows->stride,
                    .d = p->d + place * AMX_ROWS + 16 * g,
                    .x = x + t,
                    .b = c + 8 * k,
                    .some = amx_smaller(SOME, count - k),
                    .is_first = k == 0,
                    .end = k + SOME >= count ? amx_end_of(i) : AMX_KEEP,
                    .sums = p->sums,
                    .chain = amx_chain_at(p, i, t) + g * 256,
                    .sum = amx_sum_at(p, i, t) + g * 256,
                    .second = p->part[1] + at,
                    .third = p->part[2] + at,
                };
                products(&s);
                if (last->some)
                    finish(last);
                store(&s);
                *last = s;
            }
        }
    }
}

static void multiply(const struct rows *rows, int w_rows, const struct cpu_tile_acts *x,
                     int x_rows, float *y, size_t y_stride)
{
    int tiles = (x_rows + 15) / 16;
    struct step last = {0};
    AMX_FENCE();
    _tile_loadconfig(&cpu_amx_32);
    for (int i = 0; i < 8; i++) {
        if (amx_order[i] < rows->blocks) {
            chain(rows, w_rows > 16 ? 2 : 1, x, tiles, i, &last);
            continue;
        }
        if (last.some)
            finish(&last);
        last.some = 0;
        cpu_amx_empty_chain(rows->p, i, tiles);
    }
    if (last.some)
        finish(&last);
    _tile_release();
    cpu_amx_results(rows->p->part[0], w_rows, x_rows, y, y_stride);
}

/* --- panels --- */

/* Weight row r, whose bytes begin at b. */
typedef void take_apart_fn(const uint8_t *b, const struct rows *rows, int r);

INLINE void panel(const uint8_t *w, int w_rows, int n, const struct cpu_tile_acts *x, int x_rows,
                  void *scratch, float *y, size_t y_stride, size_t row_bytes,
                  take_apart_fn *take_apart)
{
    struct amx_panel p;
    struct rows rows = {.p = &p, .blocks = n / 32, .most = (n / 32 + 7) / 8};
    rows.stride = (size_t)rows.most * 256 + 64;
    amx_place(&p, scratch);
    p.d = (float *)(p.codes + AMX_ROWS * rows.stride);
    for (int r = 0; r < w_rows; r++)
        take_apart(w + (size_t)r * row_bytes, &rows, r);
    multiply(&rows, w_rows, x, x_rows, y, y_stride);
}

INLINE void take_32(const uint8_t *b, const struct rows *rows, int r, const int block_bytes,
                    codes_fn *codes, scale_fn *scale)
{
    for (int k = 0; k < rows->blocks; k++, b += block_bytes) {
        x86_prefetch_ahead(b, block_bytes);
        put32(rows, r, k, codes(b), scale(b));
    }
}

/* Blocks k and k + 1. */
INLINE void put64(const struct rows *rows, int r, int k, __m512i codes, float d)
{
    put32(rows, r, k, _mm512_castsi512_si256(codes), d);
    put32(rows, r, k + 1, _mm512_extracti64x4_epi64(codes, 1), d);
}

static void take_q4_0(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 18, codes_q4_0, x86_half_at);
}

static void take_q5_0(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 22, codes_q5_0, x86_half_at);
}

static void take_q8_0(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 34, codes_q8_0, x86_half_at);
}

static void take_iq4_nl(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 18, codes_iq4_nl, x86_half_at);
}

static void take_mxfp4(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 17, codes_mxfp4, scale_mxfp4);
}

static void take_q1_0(const uint8_t *b, const struct rows *rows, int r)
{
    for (int k = 0; k < rows->blocks; k += 4, b += 18) {
        x86_prefetch_ahead(b, 18);
        put64(rows, r, k, codes_q1_0(b, 0), x86_half_at(b));
        put64(rows, r, k + 2, codes_q1_0(b, 1), x86_half_at(b));
    }
}

static void take_q2_0(const uint8_t *b, const struct rows *rows, int r)
{
    for (int k = 0; k < rows->blocks; k += 2, b += 18) {
        x86_prefetch_ahead(b, 18);
        put64(rows, r, k, codes_q2_0(b), x86_half_at(b));
    }
}

#define PANEL(name, bytes, values)                                                                 \
    static void panel_##name(const void *w, int w_rows, int n, const struct cpu_tile_acts *x,      \
                             int rows, void *scratch, float *y, size_t y_stride)                   \
    {                                                                                              \
        panel(w, w_rows, n, x, rows, scratch, y, y_stride, (size_t)(n / (values) * (bytes)),       \
              take_##name);                                                                        \
    }

PANEL(q4_0, 18, 32)
PANEL(q5_0, 22, 32)
PANEL(q8_0, 34, 32)
PANEL(iq4_nl, 18, 32)
PANEL(mxfp4, 17, 32)
PANEL(q1_0, 18, 128)
PANEL(q2_0, 18, 64)

void cpu_set_amx_small(struct cpu_matmul *m)
{
    m->panel[TYPE_Q4_0] = panel_q4_0;
    m->panel[TYPE_Q5_0] = panel_q5_0;
    m->panel[TYPE_Q8_0] = panel_q8_0;
    m->panel[TYPE_IQ4_NL] = panel_iq4_nl;
    m->panel[TYPE_MXFP4] = panel_mxfp4;
    m->panel[TYPE_Q1_0] = panel_q1_0;
    m->panel[TYPE_Q2_0] = panel_q2_0;
}
