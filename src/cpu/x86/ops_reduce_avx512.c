/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with a sum in them with AVX-512, bit for bit as ops_reduce.c: the 32 chains are two
 * registers, elements 32 i .. + 15 and 32 i + 16 .. + 31. */
#include <math.h>

#include "backend/backend.h"
#include "cpu/x86/math_avx512.h"
#include "cpu/x86/ops_x86.h"

#define INLINE static inline __attribute__((always_inline))

static float dot(const float *a, const float *b, int n)
{
    __m512 low = _mm512_setzero_ps(), high = low;
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        low = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), low);
        high = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + 16), _mm512_loadu_ps(b + i + 16), high);
    }
    __mmask16 m = lanes_16(n - i), m2 = lanes_16(n - i - 16);
    low = _mm512_mask3_fmadd_ps(load_16(a + i, m), load_16(b + i, m), low, m);
    high = _mm512_mask3_fmadd_ps(load_16(a + i + 16, m2), load_16(b + i + 16, m2), high, m2);
    return tree_16(_mm512_add_ps(low, high));
}

static void norm(const float *x, const float *w, int n, float eps, float *out)
{
    __m512 root = _mm512_set1_ps(sqrtf(dot(x, x, n) / (float)n + eps));
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 y = _mm512_mul_ps(_mm512_div_ps(load_16(x + i, m), root), load_16(w + i, m));
        _mm512_mask_storeu_ps(out + i, m, y);
    }
}

static float softmax(float *x, int n, float divisor)
{
    __m512 d = _mm512_set1_ps(divisor), top = _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 y = _mm512_div_ps(load_16(x + i, m), d);
        _mm512_mask_storeu_ps(x + i, m, y);
        top = _mm512_mask_max_ps(top, m, y, top); /* top second: NaN is passed over */
    }
    __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(top));
    __m512 chain[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int i = 0; i < n; i += 32) {
        for (int half = 0; half < 2; half++) {
            float *at = x + i + 16 * half;
            __mmask16 m = lanes_16(n - i - 16 * half);
            __m512 y = exp_16(_mm512_sub_ps(load_16(at, m), most));
            _mm512_mask_storeu_ps(at, m, y);
            chain[half] = _mm512_mask_add_ps(chain[half], m, chain[half], y);
        }
    }
    return tree_16(_mm512_add_ps(chain[0], chain[1]));
}

/* Values c .. c + 15 of a row, c a multiple of 16. `whole`: all lanes, without a mask. */
INLINE __m512 load_row(const void *row, enum kv_type type, int c, bool whole, __mmask16 lanes)
{
    if (type == KV_Q8_0) {
        if (!whole && !lanes)
            return _mm512_setzero_ps();
        const struct kv_block *b = (const struct kv_block *)row + c / KV_BLOCK;
        const int8_t *q = b->q + c % KV_BLOCK;
        __m512 scale = _mm512_cvtph_ps(_mm256_set1_epi16((short)b->scale));
        __m128i bytes =
            whole ? _mm_loadu_si128((const __m128i *)q) : _mm_maskz_loadu_epi8(lanes, q);
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), scale);
    }
    if (type == KV_F16) {
        const uint16_t *p = (const uint16_t *)row + c;
        return whole ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))
                     : load_half_16(p, lanes);
    }
    const float *p = (const float *)row + c;
    return whole ? _mm512_loadu_ps(p) : load_16(p, lanes);
}

INLINE const void *row_at(const void *rows, enum kv_type type, size_t stride, const int32_t *index,
                          int i)
{
    return (const char *)rows + (size_t)(index ? index[i] : i) * stride * kv_unit_bytes(type);
}

/* Asks for `bytes` of a row that will be read soon: the rows of a list lie where no hardware
 * expects them. */
INLINE void prefetch_row(const void *row, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)row + at, _MM_HINT_T0);
}

/* Elements c .. c + 31 of four dots; low and high are their chains. */
INLINE void dot_4_step(const float *const q[4], const void *const k[4], enum kv_type type,
                       bool one_k, int c, bool whole, int left, __m512 low[4], __m512 high[4])
{
    __mmask16 m = whole ? ALL_16 : lanes_16(left), m2 = whole ? ALL_16 : lanes_16(left - 16);
    __m512 a = load_row(k[0], type, c, whole, m), b = load_row(k[0], type, c + 16, whole, m2);
    for (int r = 0; r < 4; r++) {
        if (!one_k && r > 0) {
            a = load_row(k[r], type, c, whole, m);
            b = load_row(k[r], type, c + 16, whole, m2);
        }
        __m512 x = load_row(q[r], KV_F32, c, whole, m),
               y = load_row(q[r], KV_F32, c + 16, whole, m2);
        low[r] = whole ? _mm512_fmadd_ps(x, a, low[r]) : _mm512_mask3_fmadd_ps(x, a, low[r], m);
        high[r] = whole ? _mm512_fmadd_ps(y, b, high[r]) : _mm512_mask3_fmadd_ps(y, b, high[r], m2);
    }
}

/* Four dots: row r of q with row r of k; where all are the same row it is loaded once. */
INLINE __m128 dot_4(const float *const q[4], const void *const k[4], enum kv_type type, bool one_k,
                    int d)
{
    __m512 low[4], high[4];
    for (int r = 0; r < 4; r++)
        low[r] = high[r] = _mm512_setzero_ps();
    int c = 0;
    for (; c + 32 <= d; c += 32)
        dot_4_step(q, k, type, one_k, c, true, 32, low, high);
    if (c < d)
        dot_4_step(q, k, type, one_k, c, false, d - c, low, high);
    for (int r = 0; r < 4; r++)
        low[r] = _mm512_add_ps(low[r], high[r]);
    return tree_4x16(low[0], low[1], low[2], low[3]);
}

/* One query head, four rows of k at a time. */
INLINE void dot_one_head(const float *q, const void *k, enum kv_type type, size_t k_stride,
                         const int32_t *index, int count, int d, float *out)
{
    const float *const qs[4] = {q, q, q, q};
    for (int i = 0; i < count; i += 4) {
        const void *rows[4];
        for (int r = 0; r < 4; r++)
            rows[r] = row_at(k, type, k_stride, index, i + r < count ? i + r : i);
        _mm_mask_storeu_ps(out + i, (__mmask8)lanes_16(count - i), dot_4(qs, rows, type, false, d));
    }
}

#define ROWS_AHEAD 4

/* Three or four query heads share each row of k. */
INLINE void dot_heads(const float *q, size_t q_stride, int n_q, const void *k, enum kv_type type,
                      size_t k_stride, const int32_t *index, int count, int d, float *out,
                      size_t out_stride)
{
    const float *qs[4];
    for (int h = 0; h < 4; h++)
        qs[h] = q + (size_t)(h < n_q ? h : 0) * q_stride;
    for (int i = 0; i < count; i++) {
        const void *row = row_at(k, type, k_stride, index, i);
        const void *const rows[4] = {row, row, row, row};
        if (i + ROWS_AHEAD < count)
            prefetch_row(row_at(k, type, k_stride, index, i + ROWS_AHEAD),
                         kv_units(type, (size_t)d) * kv_unit_bytes(type));
        float dots[4];
        _mm_storeu_ps(dots, dot_4(qs, rows, type, true, d));
        for (int h = 0; h < n_q; h++)
            out[(size_t)h * out_stride + (size_t)i] = dots[h];
    }
}

INLINE void dot_rows(const float *q, size_t q_stride, int n_q, const void *k, enum kv_type type,
                     size_t k_stride, const int32_t *index, int count, int d, float *out,
                     size_t out_stride)
{
    if (n_q >= 3) {
        dot_heads(q, q_stride, n_q, k, type, k_stride, index, count, d, out, out_stride);
        return;
    }
    for (size_t h = 0; h < (size_t)n_q; h++)
        dot_one_head(q + h * q_stride, k, type, k_stride, index, count, d, out + h * out_stride);
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
        int c = 0;
        for (; c + 16 <= columns; c += 16)
            _mm512_storeu_ps(out + c, load_row(row, type, c, true, ALL_16));
        if (c < columns)
            _mm512_storeu_ps(out + c, load_row(row, type, c, false, lanes_16(columns - c)));
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

/* Chain by chain, so that the sums stay in registers. n_q heads and 16 * n_r columns from c on,
 * both constants where this is inlined. */
INLINE void weigh_columns(const float *w, size_t w_stride, int n_q, const float *v, int count,
                          int c, int n_r, bool first, float *part)
{
    for (int j = 0; j < CPU_CHAINS; j++) {
        __m512 sum[CPU_OPS_HEADS][4];
        for (int h = 0; h < n_q; h++)
            for (int r = 0; r < n_r; r++)
                sum[h][r] = first ? _mm512_setzero_ps()
                                  : _mm512_loadu_ps(part + cpu_part_start(j, h) + c + 16 * r);
        for (int i = j; i < count; i += CPU_CHAINS) {
            __m512 value[4];
            for (int r = 0; r < n_r; r++)
                value[r] = _mm512_loadu_ps(v + (size_t)i * CPU_VALUE_COLUMNS + c + 16 * r);
            for (int h = 0; h < n_q; h++) {
                __m512 weight = _mm512_set1_ps(w[(size_t)h * w_stride + (size_t)i]);
                for (int r = 0; r < n_r; r++)
                    sum[h][r] = _mm512_fmadd_ps(weight, value[r], sum[h][r]);
            }
        }
        for (int h = 0; h < n_q; h++)
            for (int r = 0; r < n_r; r++)
                _mm512_storeu_ps(part + cpu_part_start(j, h) + c + 16 * r, sum[h][r]);
    }
}

INLINE void weigh_heads(const float *w, size_t w_stride, int n_q, const float *v, int count,
                        int columns, bool first, float *part)
{
    if (columns == CPU_VALUE_COLUMNS) {
        weigh_columns(w, w_stride, n_q, v, count, 0, 4, first, part);
        return;
    }
    for (int c = 0; c < columns; c += 16)
        weigh_columns(w, w_stride, n_q, v, count, c, 1, first, part);
}

static void weigh_tile(const float *w, size_t w_stride, int n_q, const float *v, int count,
                       int columns, bool first, float *part)
{
    switch (n_q) {
    case 1:
        weigh_heads(w, w_stride, 1, v, count, columns, first, part);
        break;
    case 2:
        weigh_heads(w, w_stride, 2, v, count, columns, first, part);
        break;
    case 3:
        weigh_heads(w, w_stride, 3, v, count, columns, first, part);
        break;
    default:
        weigh_heads(w, w_stride, 4, v, count, columns, first, part);
    }
}

static void sum_chains(const float *part, int n_q, int columns, float *out, size_t out_stride)
{
    for (int h = 0; h < n_q; h++) {
        for (int c = 0; c < columns; c += 16) {
            __m512 s[CPU_CHAINS / 2];
            for (int j = 0; j < CPU_CHAINS / 2; j++)
                s[j] = _mm512_add_ps(
                    _mm512_loadu_ps(part + cpu_part_start(j, h) + c),
                    _mm512_loadu_ps(part + cpu_part_start(j + CPU_CHAINS / 2, h) + c));
            for (int step = CPU_CHAINS / 4; step > 0; step /= 2)
                for (int j = 0; j < step; j++)
                    s[j] = _mm512_add_ps(s[j], s[j + step]);
            _mm512_mask_storeu_ps(out + (size_t)h * out_stride + c, lanes_16(columns - c), s[0]);
        }
    }
}

void cpu_ops_set_reduce_avx512(struct cpu_ops *ops)
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
