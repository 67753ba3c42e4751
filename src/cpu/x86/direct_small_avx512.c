/* SPDX-License-Identifier: Apache-2.0 */
/* Activation rows times weight rows of types with blocks of 32 and 64 values, straight from the
 * file's bytes with AVX-512 VNNI (matmul.h, cpu_direct_fn); three and four rows are in
 * direct_small_four_avx512.c.
 *
 * Codes are made unsigned bytes by adding a constant, and four products at a time are added to 32
 * bits; what the constant added, constant * sum of the activations, is taken off at the end. All of
 * that is exact, so the bits are those of unpacking. A group is eight blocks of 32, one for each
 * chain; a register holds blocks p and p + 4 of it. */
#include "cpu/x86/direct_small_avx512.h"

#define DIRECT_ROWS 2

struct activations {
    _Alignas(64) int8_t q[CPU_DIRECT_MOST_N]; /* groups of 256, in the order of the type */
    _Alignas(32) int32_t excess[CPU_DIRECT_MOST_N / 32]; /* constant * sum of a block */
    const float *d;
    int blocks; /* of 32 */
};

/* Everything but q. The padding of x makes whole groups, with sums of zero. */
INLINE void take_sums(struct activations *out, const struct quant_act *x, int t, int constant)
{
    out->d = scales_of(x, t);
    out->blocks = x->n / 32;
    for (int i = 0; i < x->n; i += 256) {
        __m256i sums = load16(sums_of(x, t) + i / 16);
        sums = _mm256_madd_epi16(sums, _mm256_set1_epi16((short)constant));
        _mm256_store_si256((__m256i *)(out->excess + i / 32), sums);
    }
}

/* Codes of blocks p and p + 4 of each group side by side. */
INLINE void take_pairs(struct activations *out, const struct quant_act *x, int t, int constant)
{
    take_sums(out, x, t, constant);
    for (int i = 0; i < x->n; i += 256) {
        for (int b = 0; b < 8; b++) {
            __m512i words = _mm512_loadu_si512(codes_of(x, t) + i + 32 * b);
            _mm256_store_si256((__m256i *)(out->q + i + 64 * (b % 4) + 32 * (b / 4)),
                               _mm512_cvtepi16_epi8(words));
        }
    }
}

/* Adds a group to the chains: exact sums with the constant, scales dw, 0 where there is no block.
 */
INLINE __m256 add_group(__m256 chain, __m256i sums, __m256 dw, const struct activations *x, int g)
{
    sums = _mm256_sub_epi32(sums, _mm256_load_si256((const __m256i *)(x->excess + g)));
    __m256 dx = load_scales(x->d + g, x->blocks - g);
    return _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(sums), chain);
}

/* direct_TYPE and window_TYPE, made of rows_TYPE and cpu_four_TYPE. */
#define KERNELS(name)                                                                              \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              float *y)                                                            \
    {                                                                                              \
        rows_##name(w, w_rows, x, t, 1, y, 0);                                                     \
    }                                                                                              \
    static void window_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              int rows, float *y, size_t y_stride)                                 \
    {                                                                                              \
        for (; rows >= 3; rows -= 4, t += 4, y += 4 * y_stride)                                    \
            cpu_four_##name(w, w_rows, x, t, rows < 4 ? rows : 4, y, y_stride);                    \
        if (rows == 2)                                                                             \
            rows_##name(w, w_rows, x, t, 2, y, y_stride);                                          \
        if (rows == 1)                                                                             \
            rows_##name(w, w_rows, x, t, 1, y, 0);                                                 \
    }

/* --- blocks of 32 --- */

/* Lane p is the sum of the lower half of s[p], lane p + 4 that of the upper half. */
INLINE __m256i sum_pairs(const __m512i *s)
{
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    a = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    a = _mm512_add_epi32(a, _mm512_shuffle_i64x2(a, a, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm512_castsi512_si256(_mm512_shuffle_i64x2(a, a, _MM_SHUFFLE(2, 0, 2, 0)));
}

/* The same for types with minimums, whose codes are unsigned as they are: `excess` is 1 * sum of a
 * block, which the negated minimum is taken off as often. */
INLINE __m256 add_group_min(__m256 chain, __m256i sums, __m256 dw, __m256 dmin,
                            const struct activations *x, int g)
{
    __m256 msum = _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(x->excess + g)));
    __m256 dx = load_scales(x->d + g, x->blocks - g);
    chain = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(sums), chain);
    return _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), msum, chain);
}

/* One weight row times `rows` (at most DIRECT_ROWS) activation rows. */
INLINE void direct_row(const uint8_t *row, const struct activations *x, const int rows,
                       const int block_bytes, const enum block_scale scale, codes_fn *codes,
                       float *y, size_t y_stride)
{
    __m256 chain[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8, row += 8 * block_bytes) {
        __m512i sum[DIRECT_ROWS][4];
        int count = x->blocks - g;
        x86_prefetch_ahead(row, 8 * block_bytes);
        for (int p = 0; p < 4; p++) {
            /* In place of a block that is not there its activations, all zero, meet another. */
            const uint8_t *first = row + (p < count ? p : 0) * block_bytes;
            const uint8_t *second = row + (p + 4 < count ? p + 4 : 0) * block_bytes;
            __m512i both = codes(first, second);
            for (int r = 0; r < rows; r++) {
                __m512i q = _mm512_load_si512(x[r].q + 32 * g + 64 * p);
                sum[r][p] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), both, q);
            }
        }
        __m256 d = eight_scales(row, block_bytes, scale, count), m = d;
        if (scale == SCALE_MIN)
            m = eight_minimums(row, block_bytes, count);
        for (int r = 0; r < rows; r++) {
            __m256i sums = sum_pairs(sum[r]);
            chain[r] = scale == SCALE_MIN ? add_group_min(chain[r], sums, d, m, &x[r], g)
                                          : add_group(chain[r], sums, d, &x[r], g);
        }
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r]);
}

INLINE void direct(const uint8_t *w, int w_rows, const struct quant_act *x, int t, const int rows,
                   float *y, size_t y_stride, const int constant, const int block_bytes,
                   const enum block_scale scale, codes_fn *codes)
{
    struct activations a[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        take_pairs(&a[r], x, t + r, constant);
    for (int j = 0; j < w_rows; j++, w += a->blocks * block_bytes)
        direct_row(w, a, rows, block_bytes, scale, codes, y + j, y_stride);
}

#define ROWS32(name, constant, block_bytes, scale)                                                 \
    INLINE void rows_##name(const void *w, int w_rows, const struct quant_act *x, int t,           \
                            const int rows, float *y, size_t y_stride)                             \
    {                                                                                              \
        direct(w, w_rows, x, t, rows, y, y_stride, constant, block_bytes, scale, codes_##name);    \
    }                                                                                              \
    KERNELS(name)

ROWS32(q4_0, 8, 18, SCALE_HALF)
ROWS32(q4_1, 1, 20, SCALE_MIN)
ROWS32(q5_0, 16, 22, SCALE_HALF)
ROWS32(q5_1, 1, 24, SCALE_MIN)
ROWS32(q8_0, 128, 34, SCALE_HALF)
ROWS32(iq4_nl, 128, 18, SCALE_HALF)
ROWS32(mxfp4, 12, 17, SCALE_POWER)

/* --- Q2_0: 64 values in 16 bytes, value 4k + j in bits 2j of byte k --- */

INLINE void take_planes(struct activations *out, const struct quant_act *x, int t)
{
    take_sums(out, x, t, 1);
    for (int i = 0; i < x->stride; i += 64)
        _mm512_store_si512(out->q + i, four_planes(codes_of(x, t) + i));
}

/* Each quarter of a register has the first part of its block in lanes 0 and 1, the second in 2
 * and 3. Lane 2b + h of the result is part h of block b. */
INLINE __m256i sum_parts(const __m512i *s)
{
    __m256i half[2];
    for (int h = 0; h < 2; h++, s += 2) {
        __m512 a = _mm512_castsi512_ps(s[0]), b = _mm512_castsi512_ps(s[1]);
        __m512i even = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
        __m512i odd = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
        __m512i sum = _mm512_add_epi32(even, odd);
        half[h] = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    }
    return _mm256_add_epi32(_mm256_permute2x128_si256(half[0], half[1], 0x20),
                            _mm256_permute2x128_si256(half[0], half[1], 0x31));
}

INLINE void direct_row_q2_0(const uint8_t *row, const struct activations *x, const int rows,
                            float *y, size_t y_stride)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 2, 2, 4, 4, 6, 6);
    __m256 chain[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8, row += 4 * 18) {
        __m512i sum[DIRECT_ROWS][4];
        uint64_t d = 0;
        int count = (x->blocks - g) / 2; /* blocks of 64 */
        x86_prefetch_ahead(row, 4 * 18);
        for (int b = 0; b < 4; b++) {
            const uint8_t *block = row + (b < count ? b : 0) * 18;
            if (b < count)
                d |= (uint64_t)bytes_u16(block) << 16 * b;
            __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(block + 2)));
            v = _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(3));
            for (int r = 0; r < rows; r++)
                sum[r][b] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v,
                                                _mm512_load_si512(x[r].q + 32 * g + 64 * b));
        }
        __m128i both = _mm_cvtsi64_si128((long long)d); /* the two parts of a block share it */
        both = _mm_unpacklo_epi16(both, both);
        for (int r = 0; r < rows; r++)
            chain[r] = add_group(chain[r], sum_parts(sum[r]), _mm256_cvtph_ps(both), &x[r], g);
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r]);
}

INLINE void rows_q2_0(const void *w, int w_rows, const struct quant_act *x, int t, const int rows,
                      float *y, size_t y_stride)
{
    struct activations a[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        take_planes(&a[r], x, t + r);
    for (int j = 0; j < w_rows; j++)
        direct_row_q2_0((const uint8_t *)w + (size_t)j * (size_t)(a->blocks / 2) * 18, a, rows,
                        y + j, y_stride);
}

KERNELS(q2_0)

void cpu_set_direct_small_avx512_vnni(struct cpu_matmul *m)
{
    m->direct[TYPE_Q4_0] = direct_q4_0;
    m->window[TYPE_Q4_0] = window_q4_0;
    m->direct[TYPE_Q5_0] = direct_q5_0;
    m->window[TYPE_Q5_0] = window_q5_0;
    m->direct[TYPE_Q4_1] = direct_q4_1;
    m->window[TYPE_Q4_1] = window_q4_1;
    m->direct[TYPE_Q5_1] = direct_q5_1;
    m->window[TYPE_Q5_1] = window_q5_1;
    m->direct[TYPE_MXFP4] = direct_mxfp4;
    m->window[TYPE_MXFP4] = window_mxfp4;
    m->direct[TYPE_Q8_0] = direct_q8_0;
    m->window[TYPE_Q8_0] = window_q8_0;
    m->direct[TYPE_IQ4_NL] = direct_iq4_nl;
    m->window[TYPE_IQ4_NL] = window_iq4_nl;
    m->direct[TYPE_Q2_0] = direct_q2_0;
    m->window[TYPE_Q2_0] = window_q2_0;
}
