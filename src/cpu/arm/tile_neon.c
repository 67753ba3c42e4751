/* SPDX-License-Identifier: Apache-2.0 */
/* The products of prefill tiles with NEON (lanes_neon.h). Compiled twice, with the dot product
 * extension and without. */
#include "cpu/arm/lanes_neon.h"
#include "cpu/arm/tile_neon.h"

#define W_ROWS 2

/* How a row is scaled, all constants where this is inlined. */
struct form {
    int block;        /* values of a block of activations */
    int scale_values; /* values of a sub-block scale; 0: none */
    int min_values;   /* values of a minimum; 0: none. 16 with blocks of 32: one for both halves */
    bool halves;      /* two float scales a block of 32 */
};

/* Sums over values at .. at + n - 1 of two weight rows and 4 * `quads` activation rows. */
INLINE void sum_values(const uint8_t *const w[W_ROWS], const struct cpu_tile_acts *x, size_t at,
                       const int n, const int quads, int32x4_t sum[W_ROWS][4])
{
    for (int r = 0; r < W_ROWS; r++)
        for (int i = 0; i < quads; i++)
            sum[r][i] = vdupq_n_s32(0);
    for (int k = 0; k < n; k += 16) {
        const int8_t *q = (const int8_t *)x->q + (at + (size_t)k) * CPU_TILE_ROWS;
        int8x16_t v[W_ROWS];
        for (int r = 0; r < W_ROWS; r++)
            v[r] = vreinterpretq_s8_u8(vld1q_u8(w[r] + at + k));
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < quads; i++) {
                int8x16_t four = vld1q_s8(q + 64 * j + 16 * i);
                for (int r = 0; r < W_ROWS; r++)
                    sum[r][i] = dot_lane(sum[r][i], four, v[r], j);
            }
    }
}

/* Adds the block's sums times d[r] to the chains. */
INLINE void add_sums(const float d[W_ROWS], const float *dx, int32x4_t sum[W_ROWS][4],
                     const int quads, float32x4_t chain[W_ROWS][4])
{
    for (int i = 0; i < quads; i++) {
        float32x4_t scale = vld1q_f32(dx + 4 * i);
        for (int r = 0; r < W_ROWS; r++)
            chain[r][i] =
                vfmaq_f32(chain[r][i], vmulq_n_f32(scale, d[r]), vcvtq_f32_s32(sum[r][i]));
    }
}

/* Takes off the minimums of block b; that of a block of 32 values is a float in `start`. */
INLINE void take_minimums(const uint8_t *const w[W_ROWS], const struct cpu_tile_layout *l,
                          const struct cpu_tile_acts *x, size_t b, const struct form f,
                          const float *dx, const int quads, float32x4_t chain[W_ROWS][4])
{
    const int count = f.block / f.min_values; /* even */
    const int16_t *sums = (f.min_values == 16 ? x->bsum16 : x->bsum32) +
                          b * (size_t)count * CPU_TILE_ROWS;
    static const int16_t ones[2] = {1, 1};
    for (int r = 0; r < W_ROWS; r++) {
        const int16_t *m =
            f.block == 32 ? ones : (const int16_t *)(w[r] + l->m) + b * (size_t)count;
        float dmin = ((const float *)(w[r] + (f.block == 32 ? l->start : l->dmin)))[b];
        for (int i = 0; i < quads; i++) {
            int32x4_t sum = vdupq_n_s32(0);
            for (int j = 0; j < count; j += 2) {
                int16x4x2_t pair = vld2_s16(sums + j * CPU_TILE_ROWS + 8 * i);
                sum = vmlal_n_s16(sum, pair.val[0], m[j]);
                sum = vmlal_n_s16(sum, pair.val[1], m[j + 1]);
            }
            float32x4_t d = vmulq_n_f32(vld1q_f32(dx + 4 * i), dmin);
            chain[r][i] = vfmsq_f32(chain[r][i], d, vcvtq_f32_s32(sum));
        }
    }
}

INLINE void add_block(const uint8_t *const w[W_ROWS], const struct cpu_tile_layout *l,
                      const struct cpu_tile_acts *x, size_t b, const struct form f,
                      const int quads, float32x4_t chain[W_ROWS][4])
{
    const float *dx = x->d + b * CPU_TILE_ROWS;
    size_t at = b * (size_t)f.block;
    float d[W_ROWS];
    if (f.halves) {
        for (int h = 0; h < 2; h++) {
            int32x4_t sum[W_ROWS][4];
            sum_values(w, x, at + 16 * (size_t)h, 16, quads, sum);
            for (int r = 0; r < W_ROWS; r++)
                d[r] = ((const float *)(w[r] + l->scale))[2 * b + (size_t)h];
            add_sums(d, dx, sum, quads, chain);
        }
        return;
    }
    int32x4_t sum[W_ROWS][4];
    if (f.scale_values == 0) {
        sum_values(w, x, at, f.block, quads, sum);
    } else {
        for (int r = 0; r < W_ROWS; r++)
            for (int i = 0; i < quads; i++)
                sum[r][i] = vdupq_n_s32(0);
        for (size_t k = at; k < at + (size_t)f.block; k += (size_t)f.scale_values) {
            int32x4_t part[W_ROWS][4];
            sum_values(w, x, k, f.scale_values, quads, part);
            for (int r = 0; r < W_ROWS; r++) {
                int32_t scale =
                    ((const int32_t *)(w[r] + l->scale))[k / (size_t)f.scale_values];
                for (int i = 0; i < quads; i++)
                    sum[r][i] = vmlaq_n_s32(sum[r][i], part[r][i], scale);
            }
        }
    }
    for (int r = 0; r < W_ROWS; r++)
        d[r] = ((const float *)(w[r] + l->d))[b];
    add_sums(d, dx, sum, quads, chain);
    if (f.min_values)
        take_minimums(w, l, x, b, f, dx, quads, chain);
}

/* Two weight rows; the second is not written where it is the first again. */
INLINE void multiply_two(const uint8_t *const w[W_ROWS], int w_rows,
                         const struct cpu_tile_layout *l, const struct cpu_tile_acts *x, int rows,
                         float *y, size_t y_stride, const struct form f, const int quads)
{
    float32x4_t chains[CHAINS][W_ROWS][4];
    size_t blocks = (size_t)(l->n / f.block);
    for (size_t p = 0; p < CHAINS; p++) {
        float32x4_t chain[W_ROWS][4];
        for (int r = 0; r < W_ROWS; r++)
            for (int i = 0; i < quads; i++)
                chain[r][i] = vdupq_n_f32(0);
        for (size_t b = p; b < blocks; b += CHAINS)
            add_block(w, l, x, b, f, quads, chain);
        for (int r = 0; r < W_ROWS; r++)
            for (int i = 0; i < quads; i++)
                chains[p][r][i] = chain[r][i];
    }
    for (int r = 0; r < w_rows; r++) {
        float results[CPU_TILE_ROWS];
        for (int i = 0; i < quads; i++)
            vst1q_f32(results + 4 * i, add_chains(&chains[0][r][i], W_ROWS * 4));
        for (int t = 0; t < rows; t++)
            y[(size_t)t * y_stride + (size_t)r] = results[t];
    }
}

INLINE void multiply(const uint8_t *records, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride,
                     const struct form f)
{
    for (int r = 0; r < w_rows; r += W_ROWS) {
        const uint8_t *first = records + (size_t)r * l->bytes;
        int count = w_rows - r < W_ROWS ? w_rows - r : W_ROWS;
        const uint8_t *w[W_ROWS] = {first, first + (count - 1) * (int64_t)l->bytes};
        if (rows > 8)
            multiply_two(w, count, l, x, rows, y + r, y_stride, f, 4);
        else
            multiply_two(w, count, l, x, rows, y + r, y_stride, f, 2);
    }
}

#define PRODUCT(name, ...)                                                                  \
    void TILE(name)(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,          \
                    const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)     \
    {                                                                                       \
        multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){__VA_ARGS__});           \
    }

PRODUCT(32, 32, 0, 0, false)
PRODUCT(32_halves, 32, 0, 0, true)
PRODUCT(32_min, 32, 0, 16, false)
PRODUCT(256, 256, 0, 0, false)
PRODUCT(256_s16, 256, 16, 0, false)
PRODUCT(256_s16_min16, 256, 16, 16, false)
PRODUCT(256_s32, 256, 32, 0, false)
PRODUCT(256_s32_min32, 256, 32, 32, false)

/* --- activations --- */

static void pack(const struct quant_act *x, int t0, int rows, struct cpu_tile_acts *out)
{
    for (int i = 0; i < CPU_TILE_ROWS; i += 4) {
        const int16_t *q[4];
        int row[4];
        for (int r = 0; r < 4; r++) {
            row[r] = t0 + (i + r < rows ? i + r : rows - 1);
            q[r] = codes_of(x, row[r]);
        }
        for (int k = 0; k < x->n; k += 16)
            pack_four(q, k, (int8_t *)out->q + (size_t)k * CPU_TILE_ROWS + 4 * i,
                      4 * CPU_TILE_ROWS);
        for (int r = 0; r < 4; r++) {
            const int16_t *sum = sums_of(x, row[r]);
            for (int b = 0; b < x->n / x->block; b++)
                out->d[b * CPU_TILE_ROWS + i + r] = scales_of(x, row[r])[b];
            for (int s = 0; s < x->n / 16; s++)
                out->bsum16[(s / 2 * CPU_TILE_ROWS + i + r) * 2 + s % 2] = sum[s];
            if (x->block != 256)
                continue;
            for (int s = 0; s < x->n / 32; s++)
                out->bsum32[(s / 2 * CPU_TILE_ROWS + i + r) * 2 + s % 2] =
                    (int16_t)(sum[2 * s] + sum[2 * s + 1]);
        }
    }
}

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_tile_neon_dot(struct cpu_matmul *m)
{
    m->tile_pack = pack;
    cpu_set_tile256_neon_dot(m);
    cpu_set_tile32_neon_dot(m);
}
#else
void cpu_set_tile_neon(struct cpu_matmul *m)
{
    m->tile_pack = pack;
    cpu_set_tile256_neon(m);
    cpu_set_tile32_neon(m);
}
#endif
