/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with a sum in them with NEON, bit for bit as ops_reduce.c: the 32 chains are eight
 * registers, register r holds chains 4 r .. 4 r + 3. */
#include <math.h>

#include "backend/backend.h"
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

/* Values c .. c + 3 of a block; those from `left` on are 0. */
INLINE float32x4_t load_block_4(const struct kv_block *b, int c, int left)
{
    float32x4_t scale = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(b->scale)));
    int32_t four;
    memcpy(&four, b->q + c, 4);
    int32x4_t q = vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)four))));
    if (left < 4)
        q = vandq_s32(q, vreinterpretq_s32_u32(lanes_4(left)));
    return vmulq_f32(vcvtq_f32_s32(q), scale);
}

/* Values c .. c + 3 of a row, c a multiple of 4; those from `left` on are 0. */
INLINE float32x4_t load_row(const void *row, enum kv_type type, int c, int left)
{
    if (type == KV_Q8_0)
        return left > 0
                   ? load_block_4((const struct kv_block *)row + c / KV_BLOCK, c % KV_BLOCK, left)
                   : vdupq_n_f32(0);
    return type == KV_F16 ? load_half_4((const uint16_t *)row + c, left)
                          : load_4((const float *)row + c, left);
}

INLINE const void *row_at(const void *rows, enum kv_type type, size_t stride, const int32_t *index,
                          int i)
{
    return (const char *)rows + (size_t)(index ? index[i] : i) * stride * kv_unit_bytes(type);
}

/* n_q (1 or 2, a constant) heads with one row. */
INLINE void dot_heads(const float *q, size_t q_stride, int n_q, const void *row, enum kv_type type,
                      int d, float *out, size_t out_stride)
{
    struct chains_4 s[2] = {chains_4_zero(), chains_4_zero()};
    int c = 0;
    for (; c + 32 <= d; c += 32)
        for (int r = 0; r < 8; r++) {
            float32x4_t value = load_row(row, type, c + 4 * r, 4);
            for (int h = 0; h < n_q; h++)
                s[h].c[r] = vfmaq_f32(s[h].c[r], vld1q_f32(q + (size_t)h * q_stride + c + 4 * r),
                                      value);
        }
    for (int r = 0; r < 8 && c + 4 * r < d; r++) {
        int left = d - c - 4 * r;
        float32x4_t value = load_row(row, type, c + 4 * r, left);
        for (int h = 0; h < n_q; h++)
            chains_4_fma(&s[h], r, load_4(q + (size_t)h * q_stride + c + 4 * r, left), value, left);
    }
    for (int h = 0; h < n_q; h++)
        out[(size_t)h * out_stride] = chains_4_sum(&s[h]);
}

static float dot(const float *a, const float *b, int n)
{
    float sum;
    dot_heads(a, 0, 1, b, KV_F32, n, &sum, 0);
    return sum;
}

static void norm(const float *x, const float *w, int n, float eps, float *out)
{
    float32x4_t root = vdupq_n_f32(sqrtf(dot(x, x, n) / (float)n + eps));
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        store_4(out + i, vmulq_f32(vdivq_f32(load_4(x + i, left), root), load_4(w + i, left)),
                left);
    }
}

static float softmax(float *x, int n, float divisor)
{
    float32x4_t d = vdupq_n_f32(divisor), top = vdupq_n_f32(-INFINITY);
    for (int i = 0; i < n; i += 4) {
        int left = n - i;
        float32x4_t y = vdivq_f32(load_4(x + i, left), d);
        store_4(x + i, y, left);
        if (left < 4) /* lanes without a value must not win */
            y = vbslq_f32(lanes_4(left), y, top);
        top = vmaxnmq_f32(y, top); /* NaN is passed over */
    }
    float32x4_t most = vdupq_n_f32(vmaxnmvq_f32(top)), one = vdupq_n_f32(1);
    struct chains_4 sum = chains_4_zero();
    for (int i = 0; i < n; i += 32)
        for (int r = 0; r < 8 && i + 4 * r < n; r++) {
            float *at = x + i + 4 * r;
            int left = n - i - 4 * r;
            float32x4_t y = exp_4(vsubq_f32(load_4(at, left), most));
            store_4(at, y, left);
            chains_4_fma(&sum, r, y, one, left);
        }
    return chains_4_sum(&sum);
}

INLINE void dot_rows(const float *q, size_t q_stride, int n_q, const void *k, enum kv_type type,
                     size_t k_stride, const int32_t *index, int count, int d, float *out,
                     size_t out_stride)
{
    for (int i = 0; i < count; i++) {
        const void *row = row_at(k, type, k_stride, index, i);
        int h = 0;
        for (; h + 2 <= n_q; h += 2)
            dot_heads(q + (size_t)h * q_stride, q_stride, 2, row, type, d,
                      out + (size_t)h * out_stride + i, out_stride);
        if (h < n_q)
            dot_heads(q + (size_t)h * q_stride, q_stride, 1, row, type, d,
                      out + (size_t)h * out_stride + i, out_stride);
    }
}

INLINE void gather_rows(const void *v, enum kv_type type, size_t v_stride, const int32_t *index,
                        int count, int columns, float *out)
{
    for (int i = 0; i < count; i++, out += CPU_VALUE_COLUMNS) {
        const void *row = row_at(v, type, v_stride, index, i);
        for (int c = 0; c < columns; c += 16)
            for (int r = 0; r < 16; r += 4)
                vst1q_f32(out + c + r, load_row(row, type, c + r, columns - c - r));
    }
}

#define ROWS(name, type)                                                                       \
    static void dot_rows_##name(const float *q, size_t q_stride, int n_q, const void *k,       \
                                size_t k_stride, const int32_t *index, int count, int d,       \
                                float *out, size_t out_stride)                                 \
    {                                                                                          \
        dot_rows(q, q_stride, n_q, k, type, k_stride, index, count, d, out, out_stride);       \
    }                                                                                          \
    static void gather_rows_##name(const void *v, size_t v_stride, const int32_t *index,       \
                                   int count, int columns, float *out)                         \
    {                                                                                          \
        gather_rows(v, type, v_stride, index, count, columns, out);                            \
    }

ROWS(f32, KV_F32)
ROWS(f16, KV_F16)
ROWS(q8_0, KV_Q8_0)

/* 16 columns from c on, chain by chain, so that the sums stay in registers. n_q is a constant where
 * this is inlined. */
INLINE void weigh_columns(const float *w, size_t w_stride, int n_q, const float *v, int count,
                          int c, bool first, float *part)
{
    for (int j = 0; j < CPU_CHAINS; j++) {
        float32x4_t sum[CPU_OPS_HEADS][4];
        for (int h = 0; h < n_q; h++)
            for (int r = 0; r < 4; r++)
                sum[h][r] =
                    first ? vdupq_n_f32(0) : vld1q_f32(part + cpu_part_start(j, h) + c + 4 * r);
        for (int i = j; i < count; i += CPU_CHAINS) {
            const float *row = v + (size_t)i * CPU_VALUE_COLUMNS + c;
            float32x4_t value[4];
            for (int r = 0; r < 4; r++)
                value[r] = vld1q_f32(row + 4 * r);
            for (int h = 0; h < n_q; h++) {
                float32x4_t weight = vdupq_n_f32(w[(size_t)h * w_stride + (size_t)i]);
                for (int r = 0; r < 4; r++)
                    sum[h][r] = vfmaq_f32(sum[h][r], weight, value[r]);
            }
        }
        for (int h = 0; h < n_q; h++)
            for (int r = 0; r < 4; r++)
                vst1q_f32(part + cpu_part_start(j, h) + c + 4 * r, sum[h][r]);
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
        for (int c = 0; c < columns; c += 4) {
            float32x4_t s[CPU_CHAINS / 2];
            for (int j = 0; j < CPU_CHAINS / 2; j++)
                s[j] = vaddq_f32(vld1q_f32(part + cpu_part_start(j, h) + c),
                                 vld1q_f32(part + cpu_part_start(j + CPU_CHAINS / 2, h) + c));
            for (int step = CPU_CHAINS / 4; step > 0; step /= 2)
                for (int j = 0; j < step; j++)
                    s[j] = vaddq_f32(s[j], s[j + step]);
            store_4(out + (size_t)h * out_stride + c, s[0], columns - c);
        }
    }
}

void cpu_ops_set_reduce_neon(struct cpu_ops *ops)
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
