/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with a sum in them, in C: the definition of their order. */
#include "cpu/ops.h"

#include <math.h>

#include "backend/backend.h"
#include "base/fmath.h"
#include "base/half.h"

static float dot(const float *a, const float *b, int n)
{
    float chain[CPU_CHAINS] = {0};
    for (int i = 0; i < n; i++)
        chain[i % CPU_CHAINS] = fmaf(a[i], b[i], chain[i % CPU_CHAINS]);
    return cpu_chain_tree(chain);
}

static void norm(const float *x, const float *w, int n, float eps, float *out)
{
    float root = sqrtf(dot(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++)
        out[i] = x[i] / root * w[i];
}

static float softmax(float *x, int n, float divisor)
{
    float top = -INFINITY;
    for (int i = 0; i < n; i++) {
        x[i] = x[i] / divisor;
        top = x[i] > top ? x[i] : top;
    }
    float chain[CPU_CHAINS] = {0};
    for (int i = 0; i < n; i++) {
        x[i] = fmath_exp(x[i] - top);
        chain[i % CPU_CHAINS] += x[i];
    }
    return cpu_chain_tree(chain);
}

static size_t row_start(const int32_t *index, int i, size_t stride)
{
    return (size_t)(index ? index[i] : i) * stride;
}

static void dot_rows_f32(const float *q, size_t q_stride, int n_q, const void *k, size_t k_stride,
                         const int32_t *index, int count, int d, float *out, size_t out_stride)
{
    for (int i = 0; i < count; i++) {
        const float *row = (const float *)k + row_start(index, i, k_stride);
        for (int h = 0; h < n_q; h++)
            out[(size_t)h * out_stride + (size_t)i] = dot(q + (size_t)h * q_stride, row, d);
    }
}

static void dot_rows_f16(const float *q, size_t q_stride, int n_q, const void *k, size_t k_stride,
                         const int32_t *index, int count, int d, float *out, size_t out_stride)
{
    for (int i = 0; i < count; i++) {
        const uint16_t *row = (const uint16_t *)k + row_start(index, i, k_stride);
        for (int h = 0; h < n_q; h++) {
            const float *qh = q + (size_t)h * q_stride;
            float chain[CPU_CHAINS] = {0};
            for (int c = 0; c < d; c++)
                chain[c % CPU_CHAINS] = fmaf(qh[c], half_to_f32(row[c]), chain[c % CPU_CHAINS]);
            out[(size_t)h * out_stride + (size_t)i] = cpu_chain_tree(chain);
        }
    }
}

/* Value c of a row of blocks: 7 bits times 11, no rounding. */
static float block_value(const struct kv_block *row, int c)
{
    const struct kv_block *b = row + c / KV_BLOCK;
    return (float)b->q[c % KV_BLOCK] * half_to_f32(b->scale);
}

static void dot_rows_q8_0(const float *q, size_t q_stride, int n_q, const void *k, size_t k_stride,
                          const int32_t *index, int count, int d, float *out, size_t out_stride)
{
    for (int i = 0; i < count; i++) {
        const struct kv_block *row = (const struct kv_block *)k + row_start(index, i, k_stride);
        for (int h = 0; h < n_q; h++) {
            const float *qh = q + (size_t)h * q_stride;
            float chain[CPU_CHAINS] = {0};
            for (int c = 0; c < d; c++)
                chain[c % CPU_CHAINS] = fmaf(qh[c], block_value(row, c), chain[c % CPU_CHAINS]);
            out[(size_t)h * out_stride + (size_t)i] = cpu_chain_tree(chain);
        }
    }
}

static int round_up_16(int n)
{
    return (n + 15) / 16 * 16;
}

static void gather_rows_f32(const void *v, size_t v_stride, const int32_t *index, int count,
                            int columns, float *out)
{
    for (int i = 0; i < count; i++, out += CPU_VALUE_COLUMNS) {
        const float *row = (const float *)v + row_start(index, i, v_stride);
        for (int c = 0; c < round_up_16(columns); c++)
            out[c] = c < columns ? row[c] : 0;
    }
}

static void gather_rows_f16(const void *v, size_t v_stride, const int32_t *index, int count,
                            int columns, float *out)
{
    for (int i = 0; i < count; i++, out += CPU_VALUE_COLUMNS) {
        const uint16_t *row = (const uint16_t *)v + row_start(index, i, v_stride);
        for (int c = 0; c < round_up_16(columns); c++)
            out[c] = c < columns ? half_to_f32(row[c]) : 0;
    }
}

static void gather_rows_q8_0(const void *v, size_t v_stride, const int32_t *index, int count,
                             int columns, float *out)
{
    for (int i = 0; i < count; i++, out += CPU_VALUE_COLUMNS) {
        const struct kv_block *row = (const struct kv_block *)v + row_start(index, i, v_stride);
        for (int c = 0; c < round_up_16(columns); c++)
            out[c] = c < columns ? block_value(row, c) : 0;
    }
}

static void weigh_tile(const float *w, size_t w_stride, int n_q, const float *v, int count,
                       int columns, bool first, float *part)
{
    for (int j = 0; j < CPU_CHAINS; j++) {
        for (int h = 0; h < n_q; h++) {
            float *sum = part + cpu_part_start(j, h);
            for (int c = 0; c < round_up_16(columns); c++) {
                float chain = first ? 0 : sum[c];
                for (int i = j; i < count; i += CPU_CHAINS)
                    chain = fmaf(w[(size_t)h * w_stride + (size_t)i],
                                 v[(size_t)i * CPU_VALUE_COLUMNS + (size_t)c], chain);
                sum[c] = chain;
            }
        }
    }
}

static void sum_chains(const float *part, int n_q, int columns, float *out, size_t out_stride)
{
    for (int h = 0; h < n_q; h++) {
        for (int c = 0; c < columns; c++) {
            float chain[CPU_CHAINS];
            for (int j = 0; j < CPU_CHAINS; j++)
                chain[j] = part[cpu_part_start(j, h) + (size_t)c];
            out[(size_t)h * out_stride + (size_t)c] = cpu_chain_tree(chain);
        }
    }
}

void cpu_ops_set_reduce_c(struct cpu_ops *ops)
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
