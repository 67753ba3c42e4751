/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are parts of certain layers with AVX2, bit for bit as ops_net.c. Back from 64-bit
 * integers to floats AVX2 has nothing: routed_out stays C. */
#include "cpu/x86/math_avx2.h"
#include "cpu/x86/ops_x86.h"

static void hc_mix(const float *gate, const float *x, size_t stride, int hc, int n, float *y)
{
    __m256 share = _mm256_set1_ps(1.0f / (float)hc);
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        __m256 sum = _mm256_mul_ps(sigmoid_8(load_8(gate + i, left)), load_8(x + i, left));
        for (int s = 1; s < hc; s++) {
            size_t at = (size_t)s * stride + (size_t)i;
            __m256 product =
                _mm256_mul_ps(sigmoid_8(load_8(gate + at, left)), load_8(x + at, left));
            sum = _mm256_add_ps(sum, product);
        }
        store_8(y + i, _mm256_mul_ps(share, sum), left);
    }
}

/* Four taps, eight channels at a time; other kernels and the last channels one by one. */
static void spread_taps(const float *kernel, int taps, int n, float *out, size_t stride)
{
    int c = 0;
    for (; taps == 4 && c + 8 <= n; c += 8) {
        const float *from = kernel + 4 * c; /* registers: two channels each, one in each half */
        __m256 r0 = _mm256_loadu_ps(from), r1 = _mm256_loadu_ps(from + 8);
        __m256 r2 = _mm256_loadu_ps(from + 16), r3 = _mm256_loadu_ps(from + 24);
        __m256 c04 = _mm256_permute2f128_ps(r0, r2, 0x20),
               c15 = _mm256_permute2f128_ps(r0, r2, 0x31);
        __m256 c26 = _mm256_permute2f128_ps(r1, r3, 0x20),
               c37 = _mm256_permute2f128_ps(r1, r3, 0x31);
        __m256 low = _mm256_unpacklo_ps(c04, c15), high = _mm256_unpackhi_ps(c04, c15);
        __m256 low2 = _mm256_unpacklo_ps(c26, c37), high2 = _mm256_unpackhi_ps(c26, c37);
        _mm256_storeu_ps(out + c, _mm256_shuffle_ps(low, low2, 0x44));
        _mm256_storeu_ps(out + stride + c, _mm256_shuffle_ps(low, low2, 0xee));
        _mm256_storeu_ps(out + 2 * stride + c, _mm256_shuffle_ps(high, high2, 0x44));
        _mm256_storeu_ps(out + 3 * stride + c, _mm256_shuffle_ps(high, high2, 0xee));
    }
    for (; c < n; c++)
        for (int j = 0; j < taps; j++)
            out[(size_t)j * stride + (size_t)c] = kernel[(size_t)c * (size_t)taps + (size_t)j];
}

static void conv(const float *const *in, const float *kernel, size_t stride, int taps, int n,
                 float *out)
{
    for (int c = 0; c < n; c += 8) {
        int left = n - c;
        __m256 chain[32];
        int used = taps < 32 ? taps : 32;
        for (int j = 0; j < taps; j++)
            chain[j % 32] = _mm256_fmadd_ps(load_8(kernel + (size_t)j * stride + c, left),
                                            load_8(in[j] + c, left),
                                            j < 32 ? _mm256_setzero_ps() : chain[j % 32]);
        for (int i = 0; i < used && i < 16; i++) /* unused chains add zero: it turns -0 into 0 */
            chain[i] = _mm256_add_ps(chain[i], i + 16 < used ? chain[i + 16] : _mm256_setzero_ps());
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half && i + half < used; i++)
                chain[i] = _mm256_add_ps(chain[i], chain[i + half]);
        store_8(out + c, silu_8(chain[0]), left);
    }
}

/* One value row; the decayed row goes through memory, which is in the L1 cache. */
static float delta_row(float *row, const float *q, const float *k, float v, float decay, float beta,
                       int d)
{
    __m256 factor = _mm256_set1_ps(decay);
    struct chains_8 sum = chains_8_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 4 && c + 8 * r < d; r++) {
            int at = c + 8 * r, left = d - at;
            __m256 s = _mm256_mul_ps(factor, load_8(row + at, left));
            store_8(row + at, s, left);
            chains_8_fma(&sum, r, s, load_8(k + at, left), left);
        }
    __m256 e = _mm256_set1_ps(beta * (v - chains_8_sum(&sum)));
    sum = chains_8_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 4 && c + 8 * r < d; r++) {
            int at = c + 8 * r, left = d - at;
            __m256 s = _mm256_fmadd_ps(load_8(k + at, left), e, load_8(row + at, left));
            store_8(row + at, s, left);
            chains_8_fma(&sum, r, s, load_8(q + at, left), left);
        }
    return chains_8_sum(&sum);
}

/* The same for heads whose size is a multiple of 32, without a look at what is left. */
static float delta_row_even(float *row, const float *q, const float *k, float v, float decay,
                            float beta, int d)
{
    __m256 factor = _mm256_set1_ps(decay);
    struct chains_8 sum = chains_8_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 4; r++) {
            int at = c + 8 * r;
            __m256 s = _mm256_mul_ps(factor, _mm256_loadu_ps(row + at));
            sum.c[r] = _mm256_fmadd_ps(s, _mm256_loadu_ps(k + at), sum.c[r]);
        }
    __m256 e = _mm256_set1_ps(beta * (v - chains_8_sum(&sum)));
    sum = chains_8_zero();
    for (int c = 0; c < d; c += 32)
        for (int r = 0; r < 4; r++) {
            int at = c + 8 * r;
            __m256 s =
                _mm256_mul_ps(factor, _mm256_loadu_ps(row + at)); /* again: cheaper than a store */
            s = _mm256_fmadd_ps(_mm256_loadu_ps(k + at), e, s);
            _mm256_storeu_ps(row + at, s);
            sum.c[r] = _mm256_fmadd_ps(s, _mm256_loadu_ps(q + at), sum.c[r]);
        }
    return chains_8_sum(&sum);
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay,
                       float beta, int d, float *out)
{
    for (int i = 0; i < d; i++) {
        float *row = state + (size_t)i * (size_t)d;
        out[i] = d % 32 ? delta_row(row, q, k, v[i], decay, beta, d)
                        : delta_row_even(row, q, k, v[i], decay, beta, d);
    }
}

static void rope(float *x, const float *cosine, const float *sine, int half)
{
    for (int i = 0; i < half; i += 8) {
        int left = half - i;
        __m256 a = load_8(x + i, left), b = load_8(x + half + i, left);
        __m256 c = load_8(cosine + i, left), s = load_8(sine + i, left);
        store_8(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)), left);
        store_8(x + half + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)), left);
    }
}

/* Adds v * 2^32, rounded: adding 1.5 * 2^52 leaves the integer in the low bits of a double, which
 * is right for |v| * 2^32 <= 2^51 (kernels.md section 4). */
static void add_4_rounded(int64_t *sum, __m128 v)
{
    __m256d magic = _mm256_set1_pd(0x1.8p52);
    __m256d shifted =
        _mm256_add_pd(_mm256_mul_pd(_mm256_cvtps_pd(v), _mm256_set1_pd(0x1p32)), magic);
    __m256i whole = _mm256_sub_epi64(_mm256_castpd_si256(shifted), _mm256_castpd_si256(magic));
    __m256i old = _mm256_loadu_si256((const __m256i *)sum);
    _mm256_storeu_si256((__m256i *)sum, _mm256_add_epi64(old, whole));
}

static bool routed_add(int64_t *sum, const float *x, float weight, int n)
{
    __m256 factor = _mm256_set1_ps(weight), limit = _mm256_set1_ps(0x1p19f);
    __m256 size = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    bool good = true;
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        __m256 v = _mm256_mul_ps(load_8(x + i, left), factor);
        if (left < 8)
            v = _mm256_and_ps(v, _mm256_castsi256_ps(lanes_8(left)));
        __m256 small = _mm256_cmp_ps(_mm256_and_ps(v, size), limit, _CMP_LT_OQ);
        good &= _mm256_movemask_ps(small) == 0xff;
        int64_t part[8] = {0}, *to = left < 8 ? part : sum + i;
        if (left < 8)
            memcpy(part, sum + i, (size_t)left * sizeof *sum);
        add_4_rounded(to, _mm256_castps256_ps128(v));
        add_4_rounded(to + 4, _mm256_extractf128_ps(v, 1));
        if (left < 8)
            memcpy(sum + i, part, (size_t)left * sizeof *sum);
    }
    return good;
}

void cpu_ops_set_net_avx2(struct cpu_ops *ops)
{
    ops->hc_mix = hc_mix;
    ops->spread_taps = spread_taps;
    ops->conv = conv;
    ops->delta_step = delta_step;
    ops->rope = rope;
    ops->routed_add = routed_add;
}
