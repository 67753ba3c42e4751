/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of the types with blocks of 32, 64 and 128 values. A panel is taken apart whole; blocks of
 * 32 codes lie row by row and in each chain by chain: [weight row][chain][block of it][32], scales
 * and minimums [chain][block of it][weight row]. */
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

/* What blocks have besides a scale. */
enum kind { PLAIN, MINIMUM, HALVES };

/* Some blocks of a chain for 16 weight rows and an activation tile; with HALVES halves of blocks. */
struct step {
    const uint8_t *codes;
    size_t stride; /* of rows */
    const float *d, *dmin;
    const struct cpu_tile_acts *x;
    int b, some; /* the first, how many */
    bool is_first;
    int end;
    int32_t *sums; /* [SOME][16][16] */
    float *chain, *sum;
    const float *second, *third;
};

/* Codes and activations of the i-th of them. */
INLINE const uint8_t *codes_of_step(const struct step *s, int i, const enum kind kind)
{
    return s->codes + (size_t)i * (kind == HALVES ? 16 : 32);
}

INLINE const uint8_t *activations_of_step(const struct step *s, int i, const enum kind kind)
{
    if (kind == HALVES)
        return s->x->q + 512 * (size_t)(s->b + 8 * (i / 2)) + 256 * (size_t)(i % 2);
    return s->x->q + 512 * (size_t)(s->b + 8 * i);
}

#define PRODUCT(s, i, wt, xt, kind)                                                                \
    do {                                                                                           \
        _tile_zero(i);                                                                             \
        _tile_loadd(wt, codes_of_step(s, i, kind), (s)->stride);                                   \
        _tile_loadd(xt, activations_of_step(s, i, kind), 64);                                      \
        _tile_dpbssd(i, wt, xt);                                                                   \
    } while (0)

INLINE void products(const struct step *s, const enum kind kind)
{
    PRODUCT(s, 0, 4, 6, kind);
    if (s->some > 1)
        PRODUCT(s, 1, 5, 7, kind);
    if (s->some > 2)
        PRODUCT(s, 2, 4, 6, kind);
    if (s->some > 3)
        PRODUCT(s, 3, 5, 7, kind);
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

INLINE void add_rows(const struct step *s, const int some, const int end, const enum kind kind)
{
    __m512 dx[SOME], least[SOME]; /* sums of activations, which minimums are for */
    const int32_t *sums = s->sums;
    const float *d = s->d, *dmin = s->dmin, *second = s->second, *third = s->third;
    float *chains = s->chain, *sum = s->sum;
    __mmask16 kept = s->is_first ? 0 : 0xffff;
    for (int i = 0; i < some; i++) {
        int b = s->b + 8 * (kind == HALVES ? i / 2 : i);
        dx[i] = _mm512_load_ps(s->x->d + 16 * b);
        if (kind == MINIMUM)
            least[i] = _mm512_cvtepi32_ps(_mm512_madd_epi16(
                _mm512_load_si512(s->x->bsum16 + 32 * b), _mm512_set1_epi16(1)));
    }
#pragma GCC unroll 4
    for (int r = 0; r < 16; r++) {
        __m512 chain = _mm512_maskz_load_ps(kept, chains + 16 * r);
        for (int i = 0; i < some; i++) {
            __m512 scale = _mm512_mul_ps(_mm512_set1_ps(d[AMX_ROWS * i + r]), dx[i]);
            __m512i product = _mm512_load_si512(sums + 256 * i + 16 * r);
            chain = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(product), chain);
            if (kind == MINIMUM) {
                scale = _mm512_mul_ps(_mm512_set1_ps(dmin[AMX_ROWS * i + r]), dx[i]);
                chain = _mm512_fnmadd_ps(scale, least[i], chain);
            }
        }
        amx_put(end, chains + 16 * r, sum + 16 * r, second + 16 * r, third + 16 * r, chain);
    }
}

INLINE void add_some(const struct step *s, const int end, const enum kind kind)
{
    switch (s->some) {
    case 1:
        add_rows(s, 1, end, kind);
        break;
    case 2:
        add_rows(s, 2, end, kind);
        break;
    case 3:
        add_rows(s, 3, end, kind);
        break;
    default:
        add_rows(s, SOME, end, kind);
    }
}

INLINE void finish(const struct step *s, const enum kind kind)
{
    switch (s->end) {
    case AMX_KEEP:
        add_some(s, AMX_KEEP, kind);
        break;
    case AMX_ADD:
        add_some(s, AMX_ADD, kind);
        break;
    case AMX_ADD_TWO:
        add_some(s, AMX_ADD_TWO, kind);
        break;
    default:
        add_some(s, AMX_ADD_ALL, kind);
    }
}

/* One for each kind, called. */
typedef void finish_fn(const struct step *s);

static void finish_plain(const struct step *s)
{
    finish(s, PLAIN);
}

static void finish_minimum(const struct step *s)
{
    finish(s, MINIMUM);
}

static void finish_halves(const struct step *s)
{
    finish(s, HALVES);
}

/* All blocks of the i-th chain; `last` is finished while the products behind it are made. */
INLINE void chain(const struct rows *rows, int groups, const struct cpu_tile_acts *x, int tiles,
                  int i, struct step *last, const enum kind kind, finish_fn *finish_last)
{
    const struct amx_panel *p = rows->p;
    const int of_block = kind == HALVES ? 2 : 1, blocks = SOME / of_block;
    int c = amx_order[i], count = (rows->blocks - c + 7) / 8;
    for (int t = 0; t < tiles; t++) {
        for (int g = 0; g < groups; g++) {
            for (int k = 0; k < count; k += blocks) {
                size_t place = place_of(rows, c + 8 * k);
                size_t at = (size_t)t * AMX_SUMS + (size_t)g * 256;
                struct step s = {
                    .codes = p->codes + (size_t)(16 * g) * rows->stride + 32 * place,
                    .stride = rows->stride,
                    .d = p->d + (size_t)of_block * place * AMX_ROWS + 16 * g,
                    .dmin = p->dmin + place * AMX_ROWS + 16 * g,
                    .x = x + t,
                    .b = c + 8 * k,
                    .some = of_block * amx_smaller(blocks, count - k),
                    .is_first = k == 0,
                    .end = k + blocks >= count ? amx_end_of(i) : AMX_KEEP,
                    .sums = p->sums,
                    .chain = amx_chain_at(p, i, t) + g * 256,
                    .sum = amx_sum_at(p, i, t) + g * 256,
                    .second = p->part[1] + at,
                    .third = p->part[2] + at,
                };
                products(&s, kind);
                if (last->some)
                    finish_last(last);
                store(&s);
                *last = s;
            }
        }
    }
}

INLINE void multiply(const struct rows *rows, int w_rows, const struct cpu_tile_acts *x,
                     int x_rows, float *y, size_t y_stride, const enum kind kind)
{
    finish_fn *finish_last = kind == HALVES    ? finish_halves
                             : kind == MINIMUM ? finish_minimum
                                               : finish_plain;
    int tiles = (x_rows + 15) / 16;
    struct step last = {0};
    AMX_FENCE();
    _tile_loadconfig(kind == HALVES ? &cpu_amx_16 : &cpu_amx_32);
    for (int i = 0; i < 8; i++) {
        if (amx_order[i] < rows->blocks) {
            chain(rows, w_rows > 16 ? 2 : 1, x, tiles, i, &last, kind, finish_last);
            continue;
        }
        if (last.some)
            finish_last(&last);
        last.some = 0;
        cpu_amx_empty_chain(rows->p, i, tiles);
    }
    if (last.some)
        finish_last(&last);
    _tile_release();
    cpu_amx_results(rows->p->part[0], w_rows, x_rows, y, y_stride);
}

/* One for each kind, which all types of the kind call. */
typedef void multiply_fn(const struct rows *rows, int w_rows, const struct cpu_tile_acts *x,
                         int x_rows, float *y, size_t y_stride);

static void multiply_plain(const struct rows *rows, int w_rows, const struct cpu_tile_acts *x,
                           int x_rows, float *y, size_t y_stride)
{
    multiply(rows, w_rows, x, x_rows, y, y_stride, PLAIN);
}

static void multiply_minimum(const struct rows *rows, int w_rows, const struct cpu_tile_acts *x,
                             int x_rows, float *y, size_t y_stride)
{
    multiply(rows, w_rows, x, x_rows, y, y_stride, MINIMUM);
}

static void multiply_halves(const struct rows *rows, int w_rows, const struct cpu_tile_acts *x,
                            int x_rows, float *y, size_t y_stride)
{
    multiply(rows, w_rows, x, x_rows, y, y_stride, HALVES);
}

/* --- panels --- */

/* Weight row r, whose bytes begin at b. */
typedef void take_apart_fn(const uint8_t *b, const struct rows *rows, int r);

INLINE void panel(const uint8_t *w, int w_rows, int n, const struct cpu_tile_acts *x, int x_rows,
                  void *scratch, float *y, size_t y_stride, size_t row_bytes,
                  take_apart_fn *take_apart, multiply_fn *product)
{
    struct amx_panel p;
    struct rows rows = {.p = &p, .blocks = n / 32, .most = (n / 32 + 7) / 8};
    rows.stride = (size_t)rows.most * 256 + 64;
    amx_place(&p, scratch);
    p.d = (float *)(p.codes + AMX_ROWS * rows.stride);
    p.dmin = p.d + (size_t)(8 * rows.most) * AMX_ROWS;
    for (int r = 0; r < w_rows; r++)
        take_apart(w + (size_t)r * row_bytes, &rows, r);
    product(&rows, w_rows, x, x_rows, y, y_stride);
}

INLINE void take_32(const uint8_t *b, const struct rows *rows, int r, const int block_bytes,
                    codes_fn *codes, scale_fn *scale, const bool with_min)
{
    for (int k = 0; k < rows->blocks; k++, b += block_bytes) {
        x86_prefetch_ahead(b, block_bytes);
        put32(rows, r, k, codes(b), scale(b));
        if (with_min) /* behind the scale */
            rows->p->dmin[place_of(rows, k) * AMX_ROWS + (size_t)r] = -x86_half_at(b + 2);
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
    take_32(b, rows, r, 18, codes_q4_0, x86_half_at, false);
}

static void take_q4_1(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 20, codes_q4_1, x86_half_at, true);
}

static void take_q5_1(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 24, codes_q5_1, x86_half_at, true);
}

static void take_q5_0(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 22, codes_q5_0, x86_half_at, false);
}

static void take_q8_0(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 34, codes_q8_0, x86_half_at, false);
}

static void take_iq4_nl(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 18, codes_iq4_nl, x86_half_at, false);
}

static void take_mxfp4(const uint8_t *b, const struct rows *rows, int r)
{
    take_32(b, rows, r, 17, codes_mxfp4, scale_mxfp4, false);
}

/* Scales are [chain][block of it][half][weight row]. */
static void take_nvfp4(const uint8_t *b, const struct rows *rows, int r)
{
    uint8_t *codes = rows->p->codes + (size_t)r * rows->stride;
    for (int k = 0; k < rows->blocks; k += 2, b += 36) {
        _Alignas(16) float d[4];
        x86_prefetch_ahead(b, 36);
        _mm_store_ps(d, x86_nvfp4_scales(_mm_cvtsi32_si128((int)bytes_u32(b))));
        for (int part = 0; part < 2; part++) {
            size_t place = place_of(rows, k + part);
            float *scales = rows->p->d + 2 * place * AMX_ROWS + r;
            _mm256_store_si256((__m256i *)(codes + 32 * place), codes_nvfp4(b, part));
            scales[0] = d[2 * part];
            scales[AMX_ROWS] = d[2 * part + 1];
        }
    }
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

#define PANEL(name, bytes, values, kind)                                                            \
    static void panel_##name(const void *w, int w_rows, int n, const struct cpu_tile_acts *x,      \
                             int rows, void *scratch, float *y, size_t y_stride)                   \
    {                                                                                              \
        panel(w, w_rows, n, x, rows, scratch, y, y_stride, (size_t)(n / (values) * (bytes)),       \
              take_##name, multiply_##kind);                                                       \
    }

PANEL(q4_0, 18, 32, plain)
PANEL(q4_1, 20, 32, minimum)
PANEL(q5_0, 22, 32, plain)
PANEL(q5_1, 24, 32, minimum)
PANEL(q8_0, 34, 32, plain)
PANEL(iq4_nl, 18, 32, plain)
PANEL(mxfp4, 17, 32, plain)
PANEL(nvfp4, 36, 64, halves)
PANEL(q1_0, 18, 128, plain)
PANEL(q2_0, 18, 64, plain)

void cpu_set_amx_small(struct cpu_matmul *m)
{
    m->panel[TYPE_Q4_0] = panel_q4_0;
    m->panel[TYPE_Q4_1] = panel_q4_1;
    m->panel[TYPE_Q5_1] = panel_q5_1;
    m->panel[TYPE_NVFP4] = panel_nvfp4;
    m->panel[TYPE_Q5_0] = panel_q5_0;
    m->panel[TYPE_Q8_0] = panel_q8_0;
    m->panel[TYPE_IQ4_NL] = panel_iq4_nl;
    m->panel[TYPE_MXFP4] = panel_mxfp4;
    m->panel[TYPE_Q1_0] = panel_q1_0;
    m->panel[TYPE_Q2_0] = panel_q2_0;
}
