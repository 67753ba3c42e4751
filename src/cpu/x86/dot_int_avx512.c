/* SPDX-License-Identifier: Apache-2.0 */
/* Integer rows with AVX-512 (dot_int.h). Compiled twice: with VNNI, where one instruction
 * multiplies and adds, and without. */
#include "cpu/x86/sums_avx512.h"

/* Sums of products of one block and `rows` activation rows, lanes still to be added. */
INLINE void block_sums(const int16_t *w, const int16_t *q, size_t stride, const int block,
                       const int rows, __m512i *sum)
{
    __m512i v = _mm512_loadu_si512(w);
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_madd_epi16(v, _mm512_loadu_si512(q + (size_t)r * stride));
    for (int k = 32; k < block; k += 32) {
        v = _mm512_loadu_si512(w + k);
        for (int r = 0; r < rows; r++)
            sum[r] = multiply_add(sum[r], v, _mm512_loadu_si512(q + (size_t)r * stride + k));
    }
}

INLINE __m256i group_sums(const int16_t *w, const int16_t *q, int count, const int block)
{
    __m512i sum[8];
    for (int b = 0; b < 8; b++) {
        if (b < count)
            block_sums(w + b * block, q + b * block, 0, block, 1, &sum[b]);
        else
            sum[b] = _mm512_setzero_si512();
    }
    return sum_wide(sum);
}

INLINE __m256i pair_sums(const int16_t *w, const int16_t *q, size_t stride, int p, int count,
                         const int block)
{
    __m512i sum[8];
    for (int h = 0; h < 2; h++) {
        int b = p + 4 * h;
        if (b < count)
            block_sums(w + b * block, q + b * block, stride, block, 4, sum + 4 * h);
        else
            sum[4 * h] = sum[4 * h + 1] = sum[4 * h + 2] = sum[4 * h + 3] = _mm512_setzero_si512();
    }
    return sum_wide(sum);
}

static __m256i group_sums_32(const int16_t *w, const int16_t *q, int count)
{
    return group_sums(w, q, count, 32);
}

static __m256i group_sums_256(const int16_t *w, const int16_t *q, int count)
{
    return group_sums(w, q, count, 256);
}

static __m256i pair_sums_32(const int16_t *w, const int16_t *q, size_t stride, int p, int count)
{
    return pair_sums(w, q, stride, p, count, 32);
}

static __m256i pair_sums_256(const int16_t *w, const int16_t *q, size_t stride, int p, int count)
{
    return pair_sums(w, q, stride, p, count, 256);
}

static void dot_int32(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                      float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 32, false, group_sums_32, pair_sums_32);
}

static void dot_int32_min(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                          float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 32, true, group_sums_32, pair_sums_32);
}

static void dot_int256(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                       float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 256, false, group_sums_256, pair_sums_256);
}

static void dot_int256_min(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                           float *y, size_t y_stride)
{
    dot(w, x, t0, rows, y, y_stride, 256, true, group_sums_256, pair_sums_256);
}

#ifdef __AVX512VNNI__
void cpu_set_dot_int_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_dot_int_avx512(struct cpu_matmul *m)
#endif
{
    m->dot_int32 = dot_int32;
    m->dot_int32_min = dot_int32_min;
    m->dot_int256 = dot_int256;
    m->dot_int256_min = dot_int256_min;
}
