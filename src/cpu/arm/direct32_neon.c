/* SPDX-License-Identifier: Apache-2.0 */
/* Types with blocks of 32, 64 and 128 values times one activation row (direct_neon.h). Compiled
 * twice, with the dot product extension and without. */
#include "cpu/arm/direct_neon.h"
#include "cpu/arm/types32_neon.h"

/* What a group of eight parts gives. */
struct group {
    int32x4_t sum[8], second[8]; /* lanes to be added; HALVES have two */
    float d[8], d_second[8];
    int32x4_t min[8];
};

INLINE void add_part(struct group *s, int i, const uint8_t *b, int p, const int8_t *q,
                     const int16_t *bsum, const enum scaling scaling, codes32_fn *codes, d32_fn *d)
{
    const int32x4_t zero = vdupq_n_s32(0);
    struct codes_32 x = codes(b, p);
    s->sum[i] = dot_bytes(zero, x.c[0], vld1q_s8(q));
    if (scaling == HALVES) {
        s->second[i] = dot_bytes(zero, x.c[1], vld1q_s8(q + 16));
        s->d[i] = d(b, 2 * p);
        s->d_second[i] = d(b, 2 * p + 1);
        return;
    }
    s->sum[i] = dot_bytes(s->sum[i], x.c[1], vld1q_s8(q + 16));
    s->d[i] = d(b, p);
    if (scaling == WITH_MINIMUM) {
        s->d_second[i] = -half_at(b + 2); /* the minimum is subtracted in the product */
        s->min[i] = vsetq_lane_s32(bsum[0] + bsum[1], zero, 0);
    }
}

INLINE void direct(const uint8_t *b, int w_rows, const struct quant_act *x, int t, float *y,
                   const int bytes, const int values, const enum scaling scaling,
                   codes32_fn *codes, d32_fn *d)
{
    const int parts = values / 32;
    struct activations a;
    take_activations(&a, x, t);
    for (int r = 0; r < w_rows; r++) {
        struct chains_8 chains = chains_8_zero();
        for (int g = 0; g < a.blocks; g += 8) {
            struct group s = {0};
            int count = a.blocks - g < 8 ? a.blocks - g : 8;
            for (int i = 0; i < count; i += parts, b += bytes) {
                prefetch_ahead(b, bytes);
                for (int p = 0; p < parts; p++)
                    add_part(&s, i + p, b, p, a.q + 32 * (g + i + p), a.bsum + 2 * (g + i + p),
                             scaling, codes, d);
            }
            add_group(&chains, s.d, a.d + g, s.sum, count);
            if (scaling == HALVES)
                add_group(&chains, s.d_second, a.d + g, s.second, count);
            else if (scaling == WITH_MINIMUM)
                take_group(&chains, s.d_second, a.d + g, s.min, count);
        }
        y[r] = chains_8_sum(&chains);
    }
}

#define DIRECT(name, TYPE, bytes, values, scaling)                                              \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,      \
                              float *y)                                                         \
    {                                                                                           \
        direct(w, w_rows, x, t, y, bytes, values, scaling, codes_##name, d_##name);             \
    }
TYPES_32(DIRECT)

#define SET(name, TYPE, bytes, values, scaling) m->direct[TYPE_##TYPE] = direct_##name;

#ifdef __ARM_FEATURE_DOTPROD
void cpu_set_direct32_neon_dot(struct cpu_matmul *m)
#else
void cpu_set_direct32_neon(struct cpu_matmul *m)
#endif
{
    TYPES_32(SET)
}
