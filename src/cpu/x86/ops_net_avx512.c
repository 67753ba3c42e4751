/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are parts of certain layers with AVX-512, bit for bit as ops_net.c. */
#include "cpu/x86/math_avx512.h"
#include "cpu/x86/ops_x86.h"

#define INLINE static inline __attribute__((always_inline))

static void hc_mix(const float *gate, const float *x, size_t stride, int hc, int n, float *y)
{
    __m512 share = _mm512_set1_ps(1.0f / (float)hc);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 sum = _mm512_mul_ps(sigmoid_16(load_16(gate + i, m)), load_16(x + i, m));
        for (int s = 1; s < hc; s++) {
            size_t at = (size_t)s * stride + (size_t)i;
            __m512 product = _mm512_mul_ps(sigmoid_16(load_16(gate + at, m)), load_16(x + at, m));
            sum = _mm512_add_ps(sum, product);
        }
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(share, sum));
    }
}

static void conv(const float *const *in, const float *kernel, size_t stride, int taps, int n,
                 float *out)
{
    for (int c = 0; c < n; c += 16) {
        __mmask16 m = lanes_16(n - c);
        __m512 chain[32];
        int used = taps < 32 ? taps : 32;
        for (int j = 0; j < taps; j++)
            chain[j % 32] =
                _mm512_fmadd_ps(load_16(kernel + (size_t)j * stride + c, m), load_16(in[j] + c, m),
                                j < 32 ? _mm512_setzero_ps() : chain[j % 32]);
        for (int i = 0; i < used && i < 16; i++) /* unused chains add zero: it turns -0 into 0 */
            chain[i] = _mm512_add_ps(chain[i], i + 16 < used ? chain[i + 16] : _mm512_setzero_ps());
        for (int half = 8; half; half /= 2)
            for (int i = 0; i < half && i + half < used; i++)
                chain[i] = _mm512_add_ps(chain[i], chain[i + half]);
        _mm512_mask_storeu_ps(out + c, m, silu_16(chain[0]));
    }
}

/* Any head size: the decayed row goes through memory. */
static float delta_row(float *row, const float *q, const float *k, float v, float decay, float beta,
                       int d)
{
    __m512 factor = _mm512_set1_ps(decay), chain[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int c = 0; c < d; c += 16) {
        __mmask16 m = lanes_16(d - c);
        __m512 s = _mm512_mul_ps(factor, load_16(row + c, m));
        _mm512_mask_storeu_ps(row + c, m, s);
        chain[c / 16 % 2] = _mm512_mask3_fmadd_ps(s, load_16(k + c, m), chain[c / 16 % 2], m);
    }
    __m512 e = _mm512_set1_ps(beta * (v - tree_16(_mm512_add_ps(chain[0], chain[1]))));
    chain[0] = chain[1] = _mm512_setzero_ps();
    for (int c = 0; c < d; c += 16) {
        __mmask16 m = lanes_16(d - c);
        __m512 s = _mm512_fmadd_ps(load_16(k + c, m), e, load_16(row + c, m));
        _mm512_mask_storeu_ps(row + c, m, s);
        chain[c / 16 % 2] = _mm512_mask3_fmadd_ps(s, load_16(q + c, m), chain[c / 16 % 2], m);
    }
    return tree_16(_mm512_add_ps(chain[0], chain[1]));
}

/* Rows of state that are asked for ahead: decoding, the state comes from memory. */
#define ROWS_AHEAD 8

/* Heads of 128: the row stays in eight registers between its load and its store. `ahead`: a row
 * that will be needed soon. */
INLINE float delta_row_128(float *row, const float *ahead, const float *q, const float *k, float v,
                           float decay, float beta)
{
    __m512 s[8], factor = _mm512_set1_ps(decay);
    __m512 chain[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int r = 0; r < 8; r++) {
        _mm_prefetch((const char *)(ahead + 16 * r), _MM_HINT_T0);
        s[r] = _mm512_mul_ps(factor, _mm512_loadu_ps(row + 16 * r));
        chain[r % 2] = _mm512_fmadd_ps(s[r], _mm512_loadu_ps(k + 16 * r), chain[r % 2]);
    }
    __m512 e = _mm512_set1_ps(beta * (v - tree_16(_mm512_add_ps(chain[0], chain[1]))));
    chain[0] = chain[1] = _mm512_setzero_ps();
    for (int r = 0; r < 8; r++) {
        s[r] = _mm512_fmadd_ps(_mm512_loadu_ps(k + 16 * r), e, s[r]);
        _mm512_storeu_ps(row + 16 * r, s[r]);
        chain[r % 2] = _mm512_fmadd_ps(s[r], _mm512_loadu_ps(q + 16 * r), chain[r % 2]);
    }
    return tree_16(_mm512_add_ps(chain[0], chain[1]));
}

static void delta_step(float *state, const float *q, const float *k, const float *v, float decay,
                       float beta, int d, float *out)
{
    for (int i = 0; i < d; i++) {
        float *row = state + (size_t)i * (size_t)d;
        const float *ahead = i + ROWS_AHEAD < d ? row + ROWS_AHEAD * d : row;
        out[i] = d == 128 ? delta_row_128(row, ahead, q, k, v[i], decay, beta)
                          : delta_row(row, q, k, v[i], decay, beta, d);
    }
}

static void rope(float *x, const float *cosine, const float *sine, int half)
{
    for (int i = 0; i < half; i += 16) {
        __mmask16 m = lanes_16(half - i);
        __m512 a = load_16(x + i, m), b = load_16(x + half + i, m);
        __m512 c = load_16(cosine + i, m), s = load_16(sine + i, m);
        _mm512_mask_storeu_ps(x + i, m, _mm512_sub_ps(_mm512_mul_ps(a, c), _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(x + half + i, m,
                              _mm512_add_ps(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s)));
    }
}

static void add_8_rounded(int64_t *sum, __m256 v, __mmask8 lanes)
{
    __m512i whole = _mm512_cvtps_epi64(_mm256_mul_ps(v, _mm256_set1_ps(0x1p32f)));
    __m512i old = _mm512_maskz_loadu_epi64(lanes, sum);
    _mm512_mask_storeu_epi64(sum, lanes, _mm512_add_epi64(old, whole));
}

static bool routed_add(int64_t *sum, const float *x, float weight, int n)
{
    __m512 factor = _mm512_set1_ps(weight), limit = _mm512_set1_ps(0x1p19f);
    __mmask16 good = ALL_16;
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 v = _mm512_mul_ps(load_16(x + i, m), factor);
        good &= _mm512_cmp_ps_mask(_mm512_abs_ps(v), limit, _CMP_LT_OQ) | (__mmask16)~m;
        add_8_rounded(sum + i, _mm512_castps512_ps256(v), (__mmask8)m);
        add_8_rounded(sum + i + 8, _mm512_extractf32x8_ps(v, 1), (__mmask8)(m >> 8));
    }
    return good == ALL_16;
}

static void routed_out(int64_t *sum, int n, float *out)
{
    __m256 unit = _mm256_set1_ps(0x1p-32f);
    for (int i = 0; i < n; i += 8) {
        __mmask8 m = (__mmask8)lanes_16(n - i);
        __m256 y = _mm512_cvtepi64_ps(_mm512_maskz_loadu_epi64(m, sum + i));
        _mm256_mask_storeu_ps(out + i, m, _mm256_mul_ps(y, unit));
        _mm512_mask_storeu_epi64(sum + i, m, _mm512_setzero_si512());
    }
}

void cpu_ops_set_net_avx512(struct cpu_ops *ops)
{
    ops->hc_mix = hc_mix;
    ops->conv = conv;
    ops->delta_step = delta_step;
    ops->rope = rope;
    ops->routed_add = routed_add;
    ops->routed_out = routed_out;
}
