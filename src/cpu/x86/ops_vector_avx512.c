/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on plain rows of values with AVX-512, bit for bit as ops_vector.c. */
#include "cpu/x86/math_avx512.h"
#include "cpu/x86/ops_x86.h"

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        _mm512_mask_storeu_ps(x + i, m, _mm512_add_ps(load_16(x + i, m), load_16(y + i, m)));
    }
}

static void add_scaled(float *x, const float *y, float s, int n)
{
    __m512 factor = _mm512_set1_ps(s);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 product = _mm512_mul_ps(factor, load_16(y + i, m));
        _mm512_mask_storeu_ps(x + i, m, _mm512_add_ps(load_16(x + i, m), product));
    }
}

static void add_positive(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        /* max with 0 second: NaN counts as 0 */
        __m512 positive = _mm512_max_ps(load_16(y + i, m), _mm512_setzero_ps());
        _mm512_mask_storeu_ps(x + i, m, _mm512_add_ps(load_16(x + i, m), positive));
    }
}

static void scale(float *out, const float *x, float s, int n)
{
    __m512 factor = _mm512_set1_ps(s);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(load_16(x + i, m), factor));
    }
}

static void divide(float *x, float a, float b, int n)
{
    __m512 first = _mm512_set1_ps(a), second = _mm512_set1_ps(b);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 quotient = _mm512_div_ps(load_16(x + i, m), first);
        if (b != 1)
            quotient = _mm512_div_ps(quotient, second);
        _mm512_mask_storeu_ps(x + i, m, quotient);
    }
}

static void silu_divided(float *x, float divisor, int n)
{
    __m512 d = _mm512_set1_ps(divisor);
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        _mm512_mask_storeu_ps(x + i, m, silu_16(_mm512_div_ps(load_16(x + i, m), d)));
    }
}

static void mul_sigmoid(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 s = sigmoid_16(load_16(z + i, m));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(load_16(x + i, m), s));
    }
}

static void mul_silu(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m512 s = silu_16(load_16(z + i, m));
        _mm512_mask_storeu_ps(out + i, m, _mm512_mul_ps(load_16(x + i, m), s));
    }
}

static bool to_f16(const float *x, int n, uint16_t *out)
{
    __m256i exponent = _mm256_set1_epi16(0x7c00);
    __mmask16 bad = 0;
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        __m256i half =
            _mm512_cvtps_ph(load_16(x + i, m), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_mask_storeu_epi16(out + i, m, half);
        bad |= _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, exponent), exponent);
    }
    return !bad;
}

static void from_f16(const uint16_t *x, int n, float *out)
{
    for (int i = 0; i < n; i += 16) {
        __mmask16 m = lanes_16(n - i);
        _mm512_mask_storeu_ps(out + i, m, load_half_16(x + i, m));
    }
}

void cpu_ops_set_vector_avx512(struct cpu_ops *ops)
{
    ops->add = add;
    ops->add_scaled = add_scaled;
    ops->add_positive = add_positive;
    ops->scale = scale;
    ops->divide = divide;
    ops->silu_divided = silu_divided;
    ops->mul_sigmoid = mul_sigmoid;
    ops->mul_silu = mul_silu;
    ops->to_f16 = to_f16;
    ops->from_f16 = from_f16;
}
