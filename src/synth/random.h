/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are the same everywhere (splitmix64; normal ones by Box and Muller). */
#ifndef STRATA_SYNTH_RANDOM_H
#define STRATA_SYNTH_RANDOM_H

#include <math.h>
#include <stdint.h>

#include "base/fmath.h"

struct synth_random {
    uint64_t state;
};

static inline uint64_t random_u64(struct synth_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A stream of its own for each purpose. */
static inline struct synth_random random_stream(uint64_t seed, uint64_t purpose)
{
    struct synth_random r = {seed * 0xd1342543de82ef95u + purpose};
    r.state = random_u64(&r);
    return r;
}

/* Below n, which is 1 to 2^32. */
static inline uint64_t random_below(struct synth_random *r, uint64_t n)
{
    return (random_u64(r) >> 32) * n >> 32;
}

/* In [0, 1), 24 bits. */
static inline float random_unit(struct synth_random *r)
{
    return (float)(random_u64(r) >> 40) * 0x1p-24f;
}

static inline float random_between(struct synth_random *r, float a, float b)
{
    return a + (b - a) * random_unit(r);
}

/* Fills out[0 .. n-1] with normal numbers of the deviation. */
static inline void random_normal(struct synth_random *r, float *out, int n, float deviation)
{
    for (int i = 0; i < n; i += 2) {
        float u = ((float)(random_u64(r) >> 40) + 1) * 0x1p-24f, sine, cosine;
        float length = deviation * sqrtf(-2 * fmath_log(u));
        fmath_sincos(6.28318531f * random_unit(r), &sine, &cosine);
        out[i] = length * cosine;
        if (i + 1 < n)
            out[i + 1] = length * sine;
    }
}

#endif
