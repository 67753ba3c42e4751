/* SPDX-License-Identifier: Apache-2.0 */
/* The product of a prefill tile, for the number of activation rows in LANES: tile_avx512.c includes
 * this file for 16 rows (512 bits) and for 8 (256 bits), whose instructions start twice as often.
 * Every function is named with its number of lanes. */
#if LANES == 16
#define INTS __m512i
#define FLOATS __m512
#define OF(operation) _mm512_##operation
#define NAME(name) name##_16
#define LOAD_INTS(p) _mm512_load_si512(p)
#define NO_INTS() _mm512_setzero_si512()
#else
#define INTS __m256i
#define FLOATS __m256
#define OF(operation) _mm256_##operation
#define NAME(name) name##_8
#define LOAD_INTS(p) _mm256_load_si256((const __m256i *)(p))
#define NO_INTS() _mm256_setzero_si256()
#endif

INLINE INTS NAME(broadcast)(const uint8_t *p)
{
    int32_t dword;
    memcpy(&dword, p, 4);
    return OF(set1_epi32)(dword);
}

INLINE FLOATS NAME(broadcast_float)(const uint8_t *p)
{
    float value;
    memcpy(&value, p, 4);
    return OF(set1_ps)(value);
}

/* sum[r] += codes k to k + count - 1 of weight row r times the activations. */
INLINE void NAME(add_products)(const uint8_t *const *w, const uint8_t *q, size_t k, const int count,
                               INTS *sum)
{
#pragma GCC unroll 8
    for (int i = 0; i < count; i += 4) {
        INTS x = LOAD_INTS(q + 16 * (k + (size_t)i));
#pragma GCC unroll 8
        for (int r = 0; r < W_ROWS; r++)
            sum[r] = OF(dpbusd_epi32)(sum[r], x, NAME(broadcast)(w[r] + k + (size_t)i));
    }
}

/* chain[r] += the minimums of block b, subtracted. */
INLINE void NAME(subtract_minimums)(const uint8_t *const *w, const struct cpu_tile_layout *l,
                                    const struct cpu_tile_acts *x, size_t b, const int values,
                                    FLOATS *chain)
{
    const int pairs = 128 / values;
    const int16_t *bsum = (values == 16 ? x->bsum16 : x->bsum32) + 32 * b * (size_t)pairs;
    FLOATS dx = OF(load_ps)(x->d + 16 * b);
    INTS sum[W_ROWS];
    for (int r = 0; r < W_ROWS; r++)
        sum[r] = NO_INTS();
    for (int i = 0; i < pairs; i++) {
        INTS sums = LOAD_INTS(bsum + 32 * i);
        size_t at = l->m + 4 * (b * (size_t)pairs + (size_t)i);
#pragma GCC unroll 8
        for (int r = 0; r < W_ROWS; r++)
            sum[r] = OF(dpwssd_epi32)(sum[r], sums, NAME(broadcast)(w[r] + at));
    }
#pragma GCC unroll 8
    for (int r = 0; r < W_ROWS; r++) {
        FLOATS d = OF(mul_ps)(NAME(broadcast_float)(w[r] + l->dmin + 4 * b), dx);
        chain[r] = OF(fnmadd_ps)(d, OF(cvtepi32_ps)(sum[r]), chain[r]);
    }
}

/* chain[r] += the sums times the scales at `at` of the records and dx. */
INLINE void NAME(add_scaled)(const uint8_t *const *w, size_t at, FLOATS dx, const INTS *sum,
                             FLOATS *chain)
{
#pragma GCC unroll 8
    for (int r = 0; r < W_ROWS; r++) {
        FLOATS d = OF(mul_ps)(NAME(broadcast_float)(w[r] + at), dx);
        chain[r] = OF(fmadd_ps)(d, OF(cvtepi32_ps)(sum[r]), chain[r]);
    }
}

/* chain[r] += the one minimum of block b of 32, subtracted. */
INLINE void NAME(subtract_minimum)(const uint8_t *const *w, const struct cpu_tile_layout *l,
                                   const struct cpu_tile_acts *x, size_t b, FLOATS *chain)
{
    FLOATS dx = OF(load_ps)(x->d + 16 * b);
    INTS sums = OF(madd_epi16)(LOAD_INTS(x->bsum16 + 32 * b), OF(set1_epi16)(1));
#pragma GCC unroll 8
    for (int r = 0; r < W_ROWS; r++) {
        FLOATS d = OF(mul_ps)(NAME(broadcast_float)(w[r] + l->scale + 4 * b), dx);
        chain[r] = OF(fnmadd_ps)(d, OF(cvtepi32_ps)(sums), chain[r]);
    }
}

/* chain[r] += block b of 32, whose halves have a float scale each. */
INLINE void NAME(add_halves)(const uint8_t *const *w, const struct cpu_tile_layout *l,
                             const struct cpu_tile_acts *x, size_t b, FLOATS *chain)
{
    for (size_t half = 2 * b; half < 2 * b + 2; half++) {
        INTS sum[W_ROWS];
        for (int r = 0; r < W_ROWS; r++)
            sum[r] = NAME(broadcast)(w[r] + l->start + 4 * half);
        NAME(add_products)(w, x->q, 16 * half, 16, sum);
        NAME(add_scaled)(w, l->scale + 4 * half, OF(load_ps)(x->d + 16 * b), sum, chain);
    }
}

/* chain[r] += block b. */
INLINE void NAME(add_block)(const uint8_t *const *w, const struct cpu_tile_layout *l,
                            const struct cpu_tile_acts *x, size_t b, const struct form f,
                            FLOATS *chain)
{
    INTS sum[W_ROWS];
    size_t k = b * (size_t)f.block;
    if (f.halves) {
        NAME(add_halves)(w, l, x, b, chain);
        return;
    }
    for (int r = 0; r < W_ROWS; r++)
        sum[r] = NAME(broadcast)(w[r] + l->start + 4 * b);
    if (!f.scale_values) {
        for (int i = 0; i < f.block; i += 32)
            NAME(add_products)(w, x->q, k + (size_t)i, 32, sum);
    } else {
        for (int i = 0; i < f.block; i += f.scale_values) {
            INTS part[W_ROWS];
            for (int r = 0; r < W_ROWS; r++)
                part[r] = NO_INTS();
            NAME(add_products)(w, x->q, k + (size_t)i, f.scale_values, part);
            size_t at = l->scale + 4 * ((k + (size_t)i) / (size_t)f.scale_values);
#pragma GCC unroll 8
            for (int r = 0; r < W_ROWS; r++)
                sum[r] =
                    OF(add_epi32)(sum[r], OF(mullo_epi32)(part[r], NAME(broadcast)(w[r] + at)));
        }
    }
    NAME(add_scaled)(w, l->d + 4 * b, OF(load_ps)(x->d + 16 * b), sum, chain);
    if (f.block == 32 && f.min_values)
        NAME(subtract_minimum)(w, l, x, b, chain);
    else if (f.min_values)
        NAME(subtract_minimums)(w, l, x, b, f.min_values, chain);
}

/* Chains i with i + 4, + 2, + 1. */
INLINE FLOATS NAME(add_chains)(float chains[CHAINS][W_ROWS][LANES], int r)
{
    FLOATS s[4];
    for (int p = 0; p < 4; p++)
        s[p] = OF(add_ps)(OF(load_ps)(chains[p][r]), OF(load_ps)(chains[p + 4][r]));
    return OF(add_ps)(OF(add_ps)(s[0], s[2]), OF(add_ps)(s[1], s[3]));
}

INLINE void NAME(multiply)(const uint8_t *records, int w_rows, const struct cpu_tile_layout *l,
                           const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride,
                           const struct form f)
{
    _Alignas(64) float chains[CHAINS][W_ROWS][LANES];
    const uint8_t *w[W_ROWS];
    size_t blocks = (size_t)(l->n / f.block);
    for (int r = 0; r < W_ROWS; r++)
        w[r] = records + (size_t)(r < w_rows ? r : w_rows - 1) * l->bytes;
    for (size_t p = 0; p < CHAINS; p++) {
        FLOATS chain[W_ROWS];
        for (int r = 0; r < W_ROWS; r++)
            chain[r] = OF(setzero_ps)();
        for (size_t b = p; b < blocks; b += CHAINS)
            NAME(add_block)(w, l, x, b, f, chain);
        for (int r = 0; r < W_ROWS; r++)
            OF(store_ps)(chains[p][r], chain[r]);
    }
    for (int half = 0; half < LANES; half += 8) {
        __m256 v[8];
        for (int r = 0; r < W_ROWS; r++)
            v[r] = NAME(eight_of)(NAME(add_chains)(chains, r), half);
        put_columns(v, w_rows, rows - half, y + (size_t)half * y_stride, y_stride);
    }
}

#undef INTS
#undef FLOATS
#undef OF
#undef NAME
#undef LOAD_INTS
#undef NO_INTS
#undef LANES
