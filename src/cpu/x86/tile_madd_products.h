/* SPDX-License-Identifier: Apache-2.0 */
/* The product of a prefill tile for X_REGS registers of LANES activation rows: tile_madd.c includes
 * this file for what it needs. Every function is named with the number of activation rows, and
 * where a register holds all 16 with "one". */
#if LANES == 16
#define INTS __m512i
#define FLOATS __m512
#define OF(operation) _mm512_##operation
#define NAME(name) name##_one16
#define LOAD_INTS(p) _mm512_load_si512(p)
#else
#define INTS __m256i
#define FLOATS __m256
#define OF(operation) _mm256_##operation
#define LOAD_INTS(p) _mm256_load_si256((const __m256i *)(p))
#if X_REGS == 2
#define NAME(name) name##_16
#else
#define NAME(name) name##_8
#endif
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

/* Four codes times four activations of each row: two sums of two products. */
INLINE INTS NAME(two_products)(INTS codes, INTS x, const bool wide)
{
#if LANES == 8
    if (wide)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
#endif
    return OF(maddubs_epi16)(codes, x);
}

/* sum += group g of a weight row times the activations and the scale; with two float scales the
 * sums of the halves. */
INLINE void NAME(add_group)(const uint8_t *w, const struct cpu_tile_acts *x, size_t g,
                            const struct form f, INTS scale, INTS *sum, INTS *second)
{
    INTS part[X_REGS];
    w += 32 * g;
    for (int h = 0; h < X_REGS && f.offset == 16; h++)
        part[h] = OF(mullo_epi16)(OF(set1_epi16)(-16),
                                  LOAD_INTS(x->bsum16 + 32 * g + 2 * LANES * h));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        INTS codes = NAME(broadcast)(w + 4 * i);
        for (int h = 0; h < X_REGS; h++) {
            INTS four = LOAD_INTS(x->q + 16 * (32 * g + 4 * (size_t)i) + 4 * LANES * h);
            INTS two = NAME(two_products)(codes, four, f.wide);
            part[h] = i % f.together == 0 && f.offset != 16 ? two : OF(add_epi16)(part[h], two);
            if ((i + 1) % f.together == 0)
                sum[h] = OF(add_epi32)(sum[h], OF(madd_epi16)(part[h], scale));
        }
    }
    for (int h = 0; h < X_REGS && f.halves; h++)
        second[h] = OF(madd_epi16)(part[h], OF(set1_epi32)(1 << 16));
}

/* Sums of a block times pairs of words of the weight row at `m`. */
INLINE void NAME(sum_words)(const uint8_t *m, const int16_t *bsum, const int pairs, INTS *sum)
{
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++) {
        INTS words = NAME(broadcast)(m + 4 * i);
        for (int h = 0; h < X_REGS; h++) {
            INTS part = OF(madd_epi16)(words, LOAD_INTS(bsum + 32 * i + 2 * LANES * h));
            sum[h] = i ? OF(add_epi32)(sum[h], part) : part;
        }
    }
}

/* The minimums of block b times the sums of the activations; returns their scale. */
INLINE FLOATS NAME(sum_minimums)(const uint8_t *w, const struct cpu_tile_layout *l,
                                 const struct cpu_tile_acts *x, size_t b, const struct form f,
                                 INTS *sums)
{
    if (f.block == 32) {
        for (int h = 0; h < X_REGS; h++)
            sums[h] = OF(madd_epi16)(OF(set1_epi16)(1),
                                     LOAD_INTS(x->bsum16 + 32 * b + 2 * LANES * h));
        return NAME(broadcast_float)(w + l->start + 4 * b);
    }
    if (f.min_values == 16)
        NAME(sum_words)(w + l->m + 32 * b, x->bsum16 + 256 * b, 8, sums);
    else
        NAME(sum_words)(w + l->m + 16 * b, x->bsum32 + 128 * b, 4, sums);
    return NAME(broadcast_float)(w + l->dmin + 4 * b);
}

/* chain += block b of a weight row; the first block of a chain starts it. */
INLINE void NAME(add_block)(const uint8_t *w, const struct cpu_tile_layout *l,
                            const struct cpu_tile_acts *x, size_t b, const struct form f,
                            float *chain)
{
    const int groups = f.block / 32;
    INTS sum[X_REGS], other[X_REGS]; /* offsets, minimums, or the second half */
    for (int h = 0; h < X_REGS; h++)
        sum[h] = OF(set1_epi32)(0);
    for (size_t g = b * (size_t)groups; g < (b + 1) * (size_t)groups; g++) {
        INTS scale = f.block == 256 ? NAME(broadcast)(w + l->scale + 4 * g)
                     : f.halves     ? OF(set1_epi32)(1)
                                    : OF(set1_epi16)(1);
        NAME(add_group)(w, x, g, f, scale, sum, other);
    }
    if (f.offset > 16) {
        NAME(sum_words)(w + l->scale + 32 * b, x->bsum16 + 256 * b, 8, other);
        for (int h = 0; h < X_REGS; h++)
            sum[h] = OF(sub_epi32)(sum[h], OF(slli_epi32)(other[h], f.offset == 32 ? 5 : 6));
    }
    FLOATS d = NAME(broadcast_float)(w + (f.halves ? l->scale + 8 * b : l->d + 4 * b)), d2 = d;
    if (f.halves)
        d2 = NAME(broadcast_float)(w + l->scale + 8 * b + 4);
    if (f.min_values)
        d2 = NAME(sum_minimums)(w, l, x, b, f, other);
    for (int h = 0; h < X_REGS; h++) {
        FLOATS dx = OF(load_ps)(x->d + 16 * b + LANES * h);
        FLOATS c = b < CHAINS ? OF(setzero_ps)() : OF(load_ps)(chain + LANES * h);
        c = OF(fmadd_ps)(OF(mul_ps)(d, dx), OF(cvtepi32_ps)(sum[h]), c);
        if (f.halves)
            c = OF(fmadd_ps)(OF(mul_ps)(d2, dx), OF(cvtepi32_ps)(other[h]), c);
        if (f.min_values)
            c = OF(fnmadd_ps)(OF(mul_ps)(d2, dx), OF(cvtepi32_ps)(other[h]), c);
        OF(store_ps)(chain + LANES * h, c);
    }
}

INLINE void NAME(multiply)(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                           const struct cpu_tile_acts *x,
                           float (*chains)[CPU_TILE_W_ROWS][CPU_TILE_ROWS], const struct form f)
{
    size_t blocks = (size_t)(l->n / f.block);
    if (blocks < CHAINS)
        memset(chains[blocks], 0, (CHAINS - blocks) * sizeof chains[0]);
    for (size_t b = 0; b < blocks; b++)
        for (int r = 0; r < w_rows; r++)
            NAME(add_block)(w + (size_t)r * l->bytes, l, x, b, f, chains[b % CHAINS][r]);
}

#undef INTS
#undef FLOATS
#undef OF
#undef NAME
#undef LOAD_INTS
#undef LANES
#undef X_REGS
