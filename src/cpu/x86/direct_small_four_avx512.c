/* SPDX-License-Identifier: Apache-2.0 */
/* Three and four activation rows times weight rows of types with blocks of 32 and 64 values, straight
 * from the file's bytes with AVX-512 VNNI. Lane 4r + p of every register is part p, of 32 values, of
 * activation row r: four codes of each of four parts, which a load repeats for the rows, meet as many
 * activations, and sums end in their lanes without a shuffle. Eight parts are a group, of two such
 * registers, one for each chain. Codes are put into that order once for the four rows, in memory.
 *
 * Codes are made unsigned by adding a constant, as in direct_small_avx512.c. */
#include "cpu/x86/direct_small_avx512.h"

/* gcc would take what was just stored out of its register again, which costs shuffles: a load that
 * repeats 16 bytes costs none. */
#define IN_MEMORY(object) __asm__("" : "+m"(object))

/* Steps of a group: in each a register of activations meets 16 bytes of codes. */
#define STEPS 16

struct four_activations {
    _Alignas(64) int8_t q[4 * CPU_DIRECT_MOST_N]; /* [step][row][part][4], as the type's codes */
    /* Constant * sum, [part / 4][row][4]; with two scales a part of its first 16 and its others. */
    _Alignas(64) int32_t excess[2][4 * CPU_DIRECT_MOST_N / 32];
    _Alignas(64) float d[4 * CPU_DIRECT_MOST_N / 32]; /* the same places */
    int parts;
};

/* How a type keeps its blocks. */
struct layout {
    int block_bytes, values; /* values of a block: 32 or 64 */
    enum block_scale scale;  /* of blocks of 32 */
    int constant;            /* added to the codes; types with minimums: 1 */
    bool halves;             /* NVFP4: a scale for each 16 values */
};

/* The codes of a group in the order of the steps; of its parts `count` exist. In place of one that
 * does not its activations, all zero, meet another. */
typedef void take_group_fn(const uint8_t *row, int count, __m512i codes[4]);
/* 128 codes or activations in the file's order to the order of eight steps. */
typedef void order_fn(__m512i v[2]);

/* Sets v[0] to the dwords that `first` says of both, v[1] to those that `second` says. */
INLINE void pick(__m512i v[2], __m512i first, __m512i second)
{
    __m512i a = _mm512_permutex2var_epi32(v[0], first, v[1]);
    v[1] = _mm512_permutex2var_epi32(v[0], second, v[1]);
    v[0] = a;
}

/* Dword s of four parts goes to step s. */
INLINE void order_32(__m512i v[2])
{
    const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    pick(v, first, _mm512_add_epi32(first, _mm512_set1_epi32(4)));
}

/* --- activations --- */

/* Eight sums for the parts of a group and row r. */
INLINE void put_eight(int32_t *at, int r, __m256i sums)
{
    _mm_store_si128((__m128i *)(at + 4 * r), _mm256_castsi256_si128(sums));
    _mm_store_si128((__m128i *)(at + 16 + 4 * r), _mm256_extracti128_si256(sums, 1));
}

/* 64 codes as bytes. */
INLINE __m512i load_bytes(const int16_t *q)
{
    const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i v = _mm512_packs_epi16(_mm512_loadu_si512(q), _mm512_loadu_si512(q + 32));
    return _mm512_permutexvar_epi64(in_order, v);
}

/* Quarters: those of a register become the same one of four. */
INLINE void transpose_quarters(__m512i v[4])
{
    __m512i a = _mm512_shuffle_i64x2(v[0], v[1], 0x44), b = _mm512_shuffle_i64x2(v[2], v[3], 0x44);
    __m512i c = _mm512_shuffle_i64x2(v[0], v[1], 0xee), d = _mm512_shuffle_i64x2(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i64x2(a, b, 0x88);
    v[1] = _mm512_shuffle_i64x2(a, b, 0xdd);
    v[2] = _mm512_shuffle_i64x2(c, d, 0x88);
    v[3] = _mm512_shuffle_i64x2(c, d, 0xdd);
}

/* The codes of rows t[0] to t[3]. */
INLINE void take_codes(struct four_activations *out, const struct quant_act *x, const int t[4],
                       order_fn *order)
{
    for (int i = 0; i < x->stride; i += 128) {
        __m512i half[2][4];
        for (int r = 0; r < 4; r++) {
            const int16_t *q = codes_of(x, t[r]) + i;
            __m512i v[2] = {load_bytes(q), load_bytes(q + 64)};
            order(v);
            half[0][r] = v[0];
            half[1][r] = v[1];
        }
        for (int h = 0; h < 2; h++) {
            transpose_quarters(half[h]);
            for (int s = 0; s < 4; s++)
                _mm512_store_si512(out->q + 4 * i + 256 * h + 64 * s, half[h][s]);
        }
    }
}

/* The sums and scales of row r of the four, row t of x. */
INLINE void take_sums(struct four_activations *out, int r, const struct quant_act *x, int t,
                      const struct layout l)
{
    const int16_t *bsum = sums_of(x, t);
    const float *d = scales_of(x, t);
    for (int k = 0; k < x->stride / 32; k += 8) {
        __m256i sums = load16(bsum + 2 * k), first = _mm256_set1_epi16((short)l.constant);
        if (l.halves)
            first = _mm256_srli_epi32(first, 16);
        put_eight(out->excess[0] + 4 * k, r, _mm256_madd_epi16(sums, first));
        if (l.halves)
            put_eight(out->excess[1] + 4 * k, r,
                      _mm256_madd_epi16(sums, _mm256_slli_epi32(first, 16)));
        _mm_store_ps(out->d + 4 * k + 4 * r, _mm_loadu_ps(d + k));
        _mm_store_ps(out->d + 4 * k + 16 + 4 * r, _mm_loadu_ps(d + k + 4));
    }
}

/* Rows t..t+rows-1 of x, the last again where there are three; their padding makes whole groups. */
INLINE void take_four(struct four_activations *out, const struct quant_act *x, int t, int rows,
                      const struct layout l, order_fn *order)
{
    int row[4];
    for (int r = 0; r < 4; r++)
        row[r] = t + (r < rows ? r : rows - 1);
    out->parts = x->n / 32;
    take_codes(out, x, row, order);
    for (int r = 0; r < 4; r++)
        take_sums(out, r, x, row[r], l);
}

/* --- products --- */

/* The four floats of half h, for each row. */
INLINE __m512 for_rows(__m256 eight, const int h)
{
    __m512 v = _mm512_castps256_ps512(eight);
    return h ? _mm512_shuffle_f32x4(v, v, 0x55) : _mm512_shuffle_f32x4(v, v, 0);
}

/* sum + the products of steps `from` to `from` + `count` - 1. */
INLINE __m512i add_steps(__m512i sum, const uint8_t *codes, const int8_t *q, const int from,
                         const int count)
{
#pragma GCC unroll 8
    for (int s = from; s < from + count; s++) {
        __m128i c = _mm_load_si128((const __m128i *)(codes + 16 * s));
        sum = _mm512_dpbusd_epi32(sum, _mm512_broadcast_i32x4(c), _mm512_load_si512(q + 64 * s));
    }
    return sum;
}

/* chain + scales * (sums with the constant - what it added) */
INLINE __m512 add_sums(__m512 chain, __m512i sums, const int32_t *excess, __m512 dw, __m512 dx)
{
    sums = _mm512_sub_epi32(sums, _mm512_load_si512(excess));
    return _mm512_fmadd_ps(_mm512_mul_ps(dw, dx), _mm512_cvtepi32_ps(sums), chain);
}

/* Ends a weight row: chains i with i + 4, + 2, + 1. */
INLINE void put_results(const __m512 chain[2], int rows, float *y, size_t y_stride)
{
    _Alignas(64) float results[16];
    __m512 all = _mm512_add_ps(chain[0], chain[1]);
    all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
    _mm512_store_ps(results, _mm512_add_ps(all, _mm512_permute_ps(all, 0xb1)));
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = results[4 * r];
}

/* NVFP4: the scales of the first and of the other 16 values of each part. */
INLINE void scales_of_halves(const uint8_t *row, int count, const struct layout l, __m256 d[2])
{
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    int32_t bytes[4];
    for (int b = 0; b < 4; b++)
        bytes[b] = (int32_t)bytes_u32(row + (2 * b < count ? b : 0) * l.block_bytes);
    __m128i all = _mm_shuffle_epi8(_mm_setr_epi32(bytes[0], bytes[1], bytes[2], bytes[3]), order);
    d[0] = x86_nvfp4_eight_scales(all);
    d[1] = x86_nvfp4_eight_scales(_mm_unpackhi_epi64(all, all));
}

/* The scales of a group's parts; d[1]: those of the other 16 values, or the minimums. */
INLINE void scales_of_group(const uint8_t *row, int count, const struct layout l, __m256 d[2])
{
    if (l.halves) {
        scales_of_halves(row, count, l, d);
        return;
    }
    if (l.values == 32) {
        d[0] = eight_scales(row, l.block_bytes, l.scale, count);
        if (l.scale == SCALE_MIN)
            d[1] = eight_minimums(row, l.block_bytes, count);
        return;
    }
    uint64_t four = 0; /* both parts of a block share it */
    for (int b = 0; b < 4 && 2 * b < count; b++)
        four |= (uint64_t)bytes_u16(row + b * l.block_bytes) << 16 * b;
    __m128i both = _mm_cvtsi64_si128((long long)four);
    d[0] = _mm256_cvtph_ps(_mm_unpacklo_epi16(both, both));
}

/* Half h of a group, its chains; q: the activations of its first step. */
INLINE __m512 add_half(__m512 chain, const uint8_t *codes, const int8_t *q,
                       const struct four_activations *x, int place, const struct layout l,
                       const __m256 d[2], const int h)
{
    const __m512i zero = _mm512_setzero_si512();
    const int32_t *excess = x->excess[0] + place;
    __m512 dx = _mm512_load_ps(x->d + place), dw = for_rows(d[0], h);
    if (l.halves) {
        __m512i first = add_steps(add_steps(zero, codes, q, 0, 2), codes, q, 4, 2);
        __m512i second = add_steps(add_steps(zero, codes, q, 2, 2), codes, q, 6, 2);
        chain = add_sums(chain, first, excess, dw, dx);
        return add_sums(chain, second, x->excess[1] + place, for_rows(d[1], h), dx);
    }
    __m512i sums = add_steps(zero, codes, q, 0, 8);
    if (l.scale != SCALE_MIN)
        return add_sums(chain, sums, excess, dw, dx);
    /* Codes are unsigned as they are, and a negated minimum is taken off for each. */
    chain = _mm512_fmadd_ps(_mm512_mul_ps(dw, dx), _mm512_cvtepi32_ps(sums), chain);
    __m512 least = _mm512_cvtepi32_ps(_mm512_load_si512(excess));
    return _mm512_fnmadd_ps(_mm512_mul_ps(for_rows(d[1], h), dx), least, chain);
}

INLINE void direct_four_row(const uint8_t *row, const struct four_activations *x, int rows,
                            const struct layout l, take_group_fn *take_group, float *y,
                            size_t y_stride)
{
    const int group_bytes = 256 / l.values * l.block_bytes;
    __m512 chain[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int g = 0; g < x->parts; g += 8, row += group_bytes) {
        _Alignas(64) uint8_t stored[16 * STEPS];
        __m512i codes[4];
        int count = x->parts - g;
        x86_prefetch_ahead(row, group_bytes);
        take_group(row, count, codes);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(stored + 64 * i, codes[i]);
        IN_MEMORY(stored);
        __m256 d[2];
        scales_of_group(row, count, l, d);
        for (int h = 0; h < 2; h++)
            chain[h] = add_half(chain[h], stored + 128 * h, x->q + 128 * g + 512 * h, x,
                                4 * g + 16 * h, l, d, h);
    }
    put_results(chain, rows, y, y_stride);
}

INLINE void direct_four(const void *w, int w_rows, const struct quant_act *x, int t, int rows,
                        float *y, size_t y_stride, const struct layout l, order_fn *order,
                        take_group_fn *take_group)
{
    struct four_activations a;
    take_four(&a, x, t, rows, l, order);
    size_t row_bytes = (size_t)(x->n / l.values) * (size_t)l.block_bytes;
    for (int j = 0; j < w_rows; j++)
        direct_four_row((const uint8_t *)w + (size_t)j * row_bytes, &a, rows, l, take_group, y + j,
                        y_stride);
}

/* cpu_four_TYPE from take_TYPE. */
#define FOUR(name, order, ...)                                                                     \
    void cpu_four_##name(const void *w, int w_rows, const struct quant_act *x, int t, int rows,    \
                         float *y, size_t y_stride)                                                \
    {                                                                                              \
        direct_four(w, w_rows, x, t, rows, y, y_stride, (struct layout){__VA_ARGS__}, order,       \
                    take_##name);                                                                  \
    }

/* --- blocks of 32 --- */

INLINE void take_blocks(const uint8_t *row, int count, __m512i codes[4], const int block_bytes,
                        codes_fn *two_blocks)
{
    for (int p = 0; p < 4; p++) {
        const uint8_t *first = row + (2 * p < count ? 2 * p : 0) * block_bytes;
        const uint8_t *second = row + (2 * p + 1 < count ? 2 * p + 1 : 0) * block_bytes;
        codes[p] = two_blocks(first, second);
    }
    order_32(codes);
    order_32(codes + 2);
}

#define FOUR_32(name, add, bytes, kind)                                                            \
    INLINE void take_##name(const uint8_t *row, int count, __m512i codes[4])                       \
    {                                                                                              \
        take_blocks(row, count, codes, bytes, codes_##name);                                       \
    }                                                                                              \
    FOUR(name, order_32, .block_bytes = (bytes), .values = 32, .scale = (kind), .constant = (add))

FOUR_32(q4_0, 8, 18, SCALE_HALF)
FOUR_32(q4_1, 1, 20, SCALE_MIN)
FOUR_32(q5_0, 16, 22, SCALE_HALF)
FOUR_32(q5_1, 1, 24, SCALE_MIN)
FOUR_32(q8_0, 128, 34, SCALE_HALF)
FOUR_32(iq4_nl, 128, 18, SCALE_HALF)
FOUR_32(mxfp4, 12, 17, SCALE_POWER)

/* --- Q2_0: 64 values in 16 bytes, value 4k + j in bits 2j of byte k --- */

/* Eight bytes are a part, two dwords: step 2j + i has bits 2j of dword i. Of 16 activations those of
 * bits 2j are gathered in dword j first. */
INLINE void order_q2_0(__m512i v[2])
{
    const __m512i transpose =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 1, 9, 17, 25, 5, 13, 21, 29);
    for (int h = 0; h < 2; h++)
        v[h] = _mm512_shuffle_epi8(v[h], transpose);
    pick(v, first, _mm512_add_epi32(first, _mm512_set1_epi32(2)));
}

INLINE void take_q2_0(const uint8_t *row, int count, __m512i codes[4])
{
    const __m512i dwords =
        _mm512_setr_epi32(0, 2, 16, 18, 1, 3, 17, 19, 0, 2, 16, 18, 1, 3, 17, 19);
    const __m512i right = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    const __m512i three = _mm512_set1_epi8(3);
    for (int h = 0; h < 2; h++) {
        const uint8_t *a = row + (4 * h < count ? 2 * h : 0) * 18;
        const uint8_t *b = row + (4 * h + 2 < count ? 2 * h + 1 : 0) * 18;
        __m512i first = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(a + 2)));
        __m512i second = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(b + 2)));
        __m512i v = _mm512_permutex2var_epi32(first, dwords, second);
        v = _mm512_srlv_epi64(v, right);
        codes[2 * h] = _mm512_and_si512(v, three);
        codes[2 * h + 1] = _mm512_and_si512(_mm512_srli_epi64(v, 4), three);
    }
}

FOUR(q2_0, order_q2_0, .block_bytes = 18, .values = 64, .constant = 1)

/* --- NVFP4: 64 values in 32 bytes; the low nibbles of eight bytes are values 0 to 7 of 16, the high
 * ones values 8 to 15 --- */

/* Steps 0, 1, 4 and 5 are the first 16 values of each part. */
INLINE void order_nvfp4(__m512i v[2])
{
    const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 4, 12, 20, 28, 5, 13, 21, 29);
    pick(v, first, _mm512_add_epi32(first, _mm512_set1_epi32(2)));
}

INLINE void take_nvfp4(const uint8_t *row, int count, __m512i codes[4])
{
    const __m512i table = _mm512_broadcast_i32x4( /* twice the sixteen values, + 12 */
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i columns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int h = 0; h < 2; h++) {
        const uint8_t *a = row + (4 * h < count ? 2 * h : 0) * 36;
        const uint8_t *b = row + (4 * h + 2 < count ? 2 * h + 1 : 0) * 36;
        __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(a + 4)));
        v = _mm512_inserti64x4(v, _mm256_loadu_si256((const __m256i *)(b + 4)), 1);
        v = _mm512_permutexvar_epi32(columns, v);
        __m512i high = _mm512_and_si512(_mm512_srli_epi64(v, 4), nibble);
        codes[2 * h] = _mm512_shuffle_epi8(table, _mm512_and_si512(v, nibble));
        codes[2 * h + 1] = _mm512_shuffle_epi8(table, high);
    }
}

FOUR(nvfp4, order_nvfp4, .block_bytes = 36, .values = 64, .constant = 12, .halves = true)
