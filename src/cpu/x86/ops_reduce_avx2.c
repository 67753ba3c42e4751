/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with a sum in them with AVX2, bit for bit as ops_reduce.c: the 32 chains are four
 * registers, register r holds chains 8 r .. 8 r + 7. */
#include <math.h>

#include "backend/backend.h"
#include "cpu/x86/math_avx2.h"
#include "cpu/x86/ops_x86.h"

#define INLINE static inline __attribute__((always_inline))

/* Values c .. c + 7 of a block; those from `left` on are 0. */
INLINE __m256 load_block_8(const struct kv_block *b, int c, int left)
{
    __m256 scale = _mm256_cvtph_ps(_mm_set1_epi16((short)b->scale));
    __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(b->q + c)));
    if (left < 8)
        q = _mm256_and_si256(q, lanes_8(left));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(q), scale);
}

/* Values c .. c + 7 of a row, c a multiple of 8; those from `left` on are 0. */
INLINE __m256 load_row(const void *row, enum kv_type type, int c, int left)
{
    if (type == KV_Q8_0)
        return left > 0
                   ? load_block_8((const struct kv_block *)row + c / KV_BLOCK, c % KV_BLOCK, left)
                   : _mm256_setzero_ps();
    return type == KV_F16 ? load_half_8((const uint16_t *)row + c, left)
                          : load_8((const float *)row + c, left);
}

INLINE const void *row_at(const void *rows, enum kv_type type, size_t stride, const int32_t *index,
                          int i)
{
    return (const char *)rows + (size_t)(index ? index[i] : i) * stride * kv_unit_bytes(type);
}

/* n_q (1 or 2, a constant) heads with one row; each dot's eight sums after + 16 and + 8. */
INLINE void dot_heads(const float *q, size_t q_stride, int n_q, const void *row, enum kv_type type,
                      int d, __m256 *folded)
{
    struct chains_8 s[2] = {chains_8_zero(), chains_8_zero()};
    int c = 0;
    for (; c + 32 <= d; c += 32)
        for (int r = 0; r < 4; r++) {
            __m256 value = load_row(row, type, c + 8 * r, 8);
            for (int h = 0; h < n_q; h++)
                s[h].c[r] = _mm256_fmadd_ps(_mm256_loadu_ps(q + (size_t)h * q_stride + c + 8 * r),
                                            value, s[h].c[r]);
        }
    for (int r = 0; r < 4 && c + 8 * r < d; r++) {
        int left = d - c - 8 * r;
        __m256 value = load_row(row, type, c + 8 * r, left);
        for (int h = 0; h < n_q; h++)
            chains_8_fma(&s[h], r, load_8(q + (size_t)h * q_stride + c + 8 * r, left), value, left);
    }
    for (int h = 0; h < n_q; h++)
        folded[h] = chains_8_fold(&s[h]);
}

static float dot(const float *a, const float *b, int n)
{
    __m256 folded;
    dot_heads(a, 0, 1, b, KV_F32, n, &folded);
    return tree_8(folded);
}

static void norm(const float *x, const float *w, int n, float eps, float *out)
{
    __m256 root = _mm256_set1_ps(sqrtf(dot(x, x, n) / (float)n + eps));
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        __m256 y = _mm256_mul_ps(_mm256_div_ps(load_8(x + i, left), root), load_8(w + i, left));
        store_8(out + i, y, left);
    }
}

static float largest(__m256 top)
{
    float lane[8], most = -INFINITY;
    _mm256_storeu_ps(lane, top);
    for (int i = 0; i < 8; i++)
        most = lane[i] > most ? lane[i] : most;
    return most;
}

static float softmax(float *x, int n, float divisor)
{
    __m256 d = _mm256_set1_ps(divisor), top = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        __m256 y = _mm256_div_ps(load_8(x + i, left), d);
        store_8(x + i, y, left);
        if (left < 8) /* lanes without a value must not win */
            y = _mm256_blendv_ps(top, y, _mm256_castsi256_ps(lanes_8(left)));
        top = _mm256_max_ps(y, top); /* top second: NaN is passed over */
    }
    __m256 most = _mm256_set1_ps(largest(top)), one = _mm256_set1_ps(1);
    struct chains_8 sum = chains_8_zero();
    for (int i = 0; i < n; i += 32)
        for (int r = 0; r < 4 && i + 8 * r < n; r++) {
            float *at = x + i + 8 * r;
            int left = n - i - 8 * r;
            __m256 y = exp_8(_mm256_sub_ps(load_8(at, left), most));
            store_8(at, y, left);
            chains_8_fma(&sum, r, y, one, left);
        }
    return chains_8_sum(&sum);
}

INLINE void dot_rows(const float *q, size_t q_stride, int n_q, const void *k, enum kv_type type,
                     size_t k_stride, const int32_t *index, int count, int d, float *out,
                     size_t out_stride)
{
    for (int i = 0; i < count; i++) {
        const void *row = row_at(k, type, k_stride, index, i);
        float *to = out + i;
        __m256 folded[2];
        int h = 0;
        for (; h + 2 <= n_q; h += 2) {
            dot_heads(q + (size_t)h * q_stride, q_stride, 2, row, type, d, folded);
            to[(size_t)h * out_stride] = tree_8(folded[0]);
            to[(size_t)(h + 1) * out_stride] = tree_8(folded[1]);
        }
        if (h < n_q) {
            dot_heads(q + (size_t)h * q_stride, q_stride, 1, row, type, d, folded);
            to[(size_t)h * out_stride] = tree_8(folded[0]);
        }
    }
}

static void dot_rows_f32(const float *q, size_t q_stride, int n_q, const void *k, size_t k_stride,
                         const int32_t *index, int count, int d, float *out, size_t out_stride)
{
    dot_rows(q, q_stride, n_q, k, KV_F32, k_stride, index, count, d, out, out_stride);
}

static void dot_rows_f16(const float *q, size_t q_stride, int n_q, const void *k, size_t k_stride,
                         const int32_t *index, int count, int d, float *out, size_t out_stride)
{
    dot_rows(q, q_stride, n_q, k, KV_F16, k_stride, index, count, d, out, out_stride);
}

static void dot_rows_q8_0(const float *q, size_t q_stride, int n_q, const void *k, size_t k_stride,
                          const int32_t *index, int count, int d, float *out, size_t out_stride)
{
    dot_rows(q, q_stride, n_q, k, KV_Q8_0, k_stride, index, count, d, out, out_stride);
}

INLINE void gather_rows(const void *v, enum kv_type type, size_t v_stride, const int32_t *index,
                        int count, int columns, float *out)
{
    for (int i = 0; i < count; i++, out += CPU_VALUE_COLUMNS) {
        const void *row = row_at(v, type, v_stride, index, i);
        for (int c = 0; c < columns; c += 16) {
            _mm256_storeu_ps(out + c, load_row(row, type, c, columns - c));
            _mm256_storeu_ps(out + c + 8, load_row(row, type, c + 8, columns - c - 8));
        }
    }
}

static void gather_rows_f32(const void *v, size_t v_stride, const int32_t *index, int count,
                            int columns, float *out)
{
    gather_rows(v, KV_F32, v_stride, index, count, columns, out);
}

static void gather_rows_f16(const void *v, size_t v_stride, const int32_t *index, int count,
                            int columns, float *out)
{
    gather_rows(v, KV_F16, v_stride, index, count, columns, out);
}

static void gather_rows_q8_0(const void *v, size_t v_stride, const int32_t *index, int count,
                             int columns, float *out)
{
    gather_rows(v, KV_Q8_0, v_stride, index, count, columns, out);
}

/* 16 columns from c on, chain by chain, so that the sums stay in registers. n_q is a constant where
 * this is inlined. */
INLINE void weigh_columns(const float *w, size_t w_stride, int n_q, const float *v, int count,
                          int c, bool first, float *part)
{
    for (int j = 0; j < CPU_CHAINS; j++) {
        __m256 sum[CPU_OPS_HEADS][2];
        for (int h = 0; h < n_q; h++)
            for (int r = 0; r < 2; r++)
                sum[h][r] = first ? _mm256_setzero_ps()
                                  : _mm256_loadu_ps(part + cpu_part_start(j, h) + c + 8 * r);
        for (int i = j; i < count; i += CPU_CHAINS) {
            const float *row = v + (size_t)i * CPU_VALUE_COLUMNS + c;
            __m256 low = _mm256_loadu_ps(row), high = _mm256_loadu_ps(row + 8);
            for (int h = 0; h < n_q; h++) {
                __m256 weight = _mm256_set1_ps(w[(size_t)h * w_stride + (size_t)i]);
                sum[h][0] = _mm256_fmadd_ps(weight, low, sum[h][0]);
                sum[h][1] = _mm256_fmadd_ps(weight, high, sum[h][1]);
            }
        }
        for (int h = 0; h < n_q; h++)
            for (int r = 0; r < 2; r++)
                _mm256_storeu_ps(part + cpu_part_start(j, h) + c + 8 * r, sum[h][r]);
    }
}

static void weigh_tile(const float *w, size_t w_stride, int n_q, const float *v, int count,
                       int columns, bool first, float *part)
{
    for (int c = 0; c < columns; c += 16) {
        switch (n_q) {
        case 1:
            weigh_columns(w, w_stride, 1, v, count, c, first, part);
            break;
        case 2:
            weigh_columns(w, w_stride, 2, v, count, c, first, part);
            break;
        case 3:
            weigh_columns(w, w_stride, 3, v, count, c, first, part);
            break;
        default:
            weigh_columns(w, w_stride, 4, v, count, c, first, part);
        }
    }
}

static void sum_chains(const float *part, int n_q, int columns, float *out, size_t out_stride)
{
    for (int h = 0; h < n_q; h++) {
        for (int c = 0; c < columns; c += 8) {
            __m256 s[CPU_CHAINS / 2];
            for (int j = 0; j < CPU_CHAINS / 2; j++)
                s[j] = _mm256_add_ps(
                    _mm256_loadu_ps(part + cpu_part_start(j, h) + c),
                    _mm256_loadu_ps(part + cpu_part_start(j + CPU_CHAINS / 2, h) + c));
            for (int step = CPU_CHAINS / 4; step > 0; step /= 2)
                for (int j = 0; j < step; j++)
                    s[j] = _mm256_add_ps(s[j], s[j + step]);
            store_8(out + (size_t)h * out_stride + c, s[0], columns - c);
        }
    }
}

void cpu_ops_set_reduce_avx2(struct cpu_ops *ops)
{
    ops->dot = dot;
    ops->norm = norm;
    ops->softmax = softmax;
    ops->dot_rows[KV_F32] = dot_rows_f32;
    ops->dot_rows[KV_F16] = dot_rows_f16;
    ops->dot_rows[KV_Q8_0] = dot_rows_q8_0;
    ops->gather_rows[KV_F32] = gather_rows_f32;
    ops->gather_rows[KV_F16] = gather_rows_f16;
    ops->gather_rows[KV_Q8_0] = gather_rows_q8_0;
    ops->weigh_tile = weigh_tile;
    ops->sum_chains = sum_chains;
}
