/* SPDX-License-Identifier: Apache-2.0 */
/* Integer rows with AVX2 (dot_int.h), and the rows with two scales a block (NVFP4). */
#include "cpu/x86/dot_int.h"

/* Sums of products of one block and `rows` activation rows, eight lanes each still to be added. */
INLINE void block_sums(const int16_t *w, const int16_t *q, size_t stride, const int block,
                       const int rows, __m256i *sum)
{
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_si256();
    for (int k = 0; k < block; k += 16) {
        __m256i v = load16(w + k);
        for (int r = 0; r < rows; r++)
            sum[r] =
                _mm256_add_epi32(sum[r], _mm256_madd_epi16(v, load16(q + (size_t)r * stride + k)));
    }
}

INLINE __m256i group_sums(const int16_t *w, const int16_t *q, int count, const int block)
{
    __m256i sum[8];
    for (int b = 0; b < 8; b++) {
        if (b < count)
            block_sums(w + b * block, q + b * block, 0, block, 1, &sum[b]);
        else
            sum[b] = _mm256_setzero_si256();
    }
    return sum_lanes(sum);
}

INLINE __m256i pair_sums(const int16_t *w, const int16_t *q, size_t stride, int p, int count,
                         const int block)
{
    __m256i sum[8];
    for (int h = 0; h < 2; h++) {
        int b = p + 4 * h;
        if (b < count)
            block_sums(w + b * block, q + b * block, stride, block, 4, sum + 4 * h);
        else
            sum[4 * h] = sum[4 * h + 1] = sum[4 * h + 2] = sum[4 * h + 3] = _mm256_setzero_si256();
    }
    return sum_lanes(sum);
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

/* --- two scales a block (NVFP4) --- */

static float dot_one_d16(const struct quant_row *w, const struct quant_act *x, int t)
{
    const int16_t *q = codes_of(x, t);
    const float *d = scales_of(x, t);
    __m256 chain = _mm256_setzero_ps();
    int blocks = x->n / 32;
    for (int g = 0; g < blocks; g += 8) { /* the padding of x holds whole groups of zeros */
        __m256i first[8], second[8];
        for (int b = 0; b < 8; b++) {
            int i = (g + b) * 32;
            first[b] = _mm256_madd_epi16(load16(w->w + i), load16(q + i));
            second[b] = _mm256_madd_epi16(load16(w->w + i + 16), load16(q + i + 16));
        }
        /* Scales of the first halves are the even ones. */
        __m256 low = load_scales(w->d16 + 2 * g, 2 * (blocks - g));
        __m256 high = load_scales(w->d16 + 2 * g + 8, 2 * (blocks - g) - 8);
        __m256 a = _mm256_permute2f128_ps(low, high, 0x20),
               b = _mm256_permute2f128_ps(low, high, 0x31);
        __m256 even = _mm256_shuffle_ps(a, b, 0x88), odd = _mm256_shuffle_ps(a, b, 0xdd);
        __m256 dx = _mm256_loadu_ps(d + g);
        chain =
            _mm256_fmadd_ps(_mm256_mul_ps(even, dx), _mm256_cvtepi32_ps(sum_lanes(first)), chain);
        chain =
            _mm256_fmadd_ps(_mm256_mul_ps(odd, dx), _mm256_cvtepi32_ps(sum_lanes(second)), chain);
    }
    return add_tree(chain);
}

static void dot_int32_d16(const struct quant_row *w, const struct quant_act *x, int t0, int rows,
                          float *y, size_t y_stride)
{
    for (int t = 0; t < rows; t++)
        y[(size_t)t * y_stride] = dot_one_d16(w, x, t0 + t);
}

void cpu_set_dot_int_avx2(struct cpu_matmul *m)
{
    m->dot_int32 = dot_int32;
    m->dot_int32_min = dot_int32_min;
    m->dot_int32_d16 = dot_int32_d16;
    m->dot_int256 = dot_int256;
    m->dot_int256_min = dot_int256_min;
}
