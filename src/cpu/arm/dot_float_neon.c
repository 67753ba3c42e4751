/* SPDX-License-Identifier: Apache-2.0 */
/* Float rows with NEON: the 32 chains of numerics.md section 1 are the lanes of eight registers. */
#include "cpu/arm/arm.h"
#include "cpu/arm/math_neon.h"

enum kind { KIND_F32, KIND_F16, KIND_BF16 };

INLINE size_t value_bytes(enum kind kind)
{
    return kind == KIND_F32 ? 4 : 2;
}

/* Values i .. i + 3 of a weight row, of which `left` exist. */
INLINE float32x4_t load_weights(const uint8_t *w, int i, enum kind kind, int left)
{
    uint8_t part[16] = {0};
    w += (size_t)i * value_bytes(kind);
    if (left < 4) {
        memcpy(part, w, (size_t)left * value_bytes(kind));
        w = part;
    }
    if (kind == KIND_F32)
        return vreinterpretq_f32_u8(vld1q_u8(w));
    uint16x4_t half = vreinterpret_u16_u8(vld1_u8(w));
    if (kind == KIND_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* `rows` (1 or 2) x rows at once share the loads of w. */
INLINE void dot_rows(const uint8_t *w, const float *x, size_t x_stride, int n, float *y,
                     size_t y_stride, enum kind kind, const int rows)
{
    struct chains_4 s[2] = {chains_4_zero(), chains_4_zero()};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int c = 0; c < 8; c++) {
            float32x4_t v = load_weights(w, i + 4 * c, kind, 4);
            for (int r = 0; r < rows; r++)
                s[r].c[c] =
                    vfmaq_f32(s[r].c[c], v, vld1q_f32(x + (size_t)r * x_stride + i + 4 * c));
        }
    for (int c = 0; c < 8 && i + 4 * c < n; c++) {
        int left = n - i - 4 * c;
        float32x4_t v = load_weights(w, i + 4 * c, kind, left);
        for (int r = 0; r < rows; r++)
            chains_4_fma(&s[r], c, v, load_4(x + (size_t)r * x_stride + i + 4 * c, left), left);
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = chains_4_sum(&s[r]);
}

INLINE void dot(const uint8_t *w, const float *x, size_t x_stride, int n, int rows, float *y,
                size_t y_stride, enum kind kind)
{
    int t = 0;
    for (; t + 2 <= rows; t += 2)
        dot_rows(w, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride, kind,
                 2);
    if (t < rows)
        dot_rows(w, x + (size_t)t * x_stride, x_stride, n, y + (size_t)t * y_stride, y_stride, kind,
                 1);
}

static void dot_f32(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                    size_t y_stride)
{
    dot(w, x, x_stride, n, rows, y, y_stride, KIND_F32);
}

static void dot_f16(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                    size_t y_stride)
{
    dot(w, x, x_stride, n, rows, y, y_stride, KIND_F16);
}

static void dot_bf16(const void *w, const float *x, size_t x_stride, int n, int rows, float *y,
                     size_t y_stride)
{
    dot(w, x, x_stride, n, rows, y, y_stride, KIND_BF16);
}

void cpu_set_dot_float_neon(struct cpu_matmul *m)
{
    m->dot_float[TYPE_F32] = dot_f32;
    m->dot_float[TYPE_F16] = dot_f16;
    m->dot_float[TYPE_BF16] = dot_bf16;
}
