/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on plain rows of values with AVX2, bit for bit as ops_vector.c. */
#include "cpu/x86/math_avx2.h"
#include "cpu/x86/ops_x86.h"

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        store_8(x + i, _mm256_add_ps(load_8(x + i, left), load_8(y + i, left)), left);
    }
}

static void add_scaled(float *x, const float *y, float s, int n)
{
    __m256 factor = _mm256_set1_ps(s);
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        __m256 product = _mm256_mul_ps(factor, load_8(y + i, left));
        store_8(x + i, _mm256_add_ps(load_8(x + i, left), product), left);
    }
}

static void add_positive(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        /* max with 0 second: NaN counts as 0 */
        __m256 positive = _mm256_max_ps(load_8(y + i, left), _mm256_setzero_ps());
        store_8(x + i, _mm256_add_ps(load_8(x + i, left), positive), left);
    }
}

static void scale(float *out, const float *x, float s, int n)
{
    __m256 factor = _mm256_set1_ps(s);
    for (int i = 0; i < n; i += 8)
        store_8(out + i, _mm256_mul_ps(load_8(x + i, n - i), factor), n - i);
}

static void divide(float *x, float a, float b, int n)
{
    __m256 first = _mm256_set1_ps(a), second = _mm256_set1_ps(b);
    for (int i = 0; i < n; i += 8) {
        __m256 quotient = _mm256_div_ps(load_8(x + i, n - i), first);
        if (b != 1)
            quotient = _mm256_div_ps(quotient, second);
        store_8(x + i, quotient, n - i);
    }
}

static void silu_divided(float *x, float divisor, int n)
{
    __m256 d = _mm256_set1_ps(divisor);
    for (int i = 0; i < n; i += 8)
        store_8(x + i, silu_8(_mm256_div_ps(load_8(x + i, n - i), d)), n - i);
}

static void mul_sigmoid(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        store_8(out + i, _mm256_mul_ps(load_8(x + i, left), sigmoid_8(load_8(z + i, left))), left);
    }
}

static void mul_silu(float *out, const float *x, const float *z, int n)
{
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        store_8(out + i, _mm256_mul_ps(load_8(x + i, left), silu_8(load_8(z + i, left))), left);
    }
}

static bool to_f16(const float *x, int n, uint16_t *out)
{
    __m128i exponent = _mm_set1_epi16(0x7c00), bad = _mm_setzero_si128();
    for (int i = 0; i < n; i += 8) {
        int left = n - i;
        __m128i half =
            _mm256_cvtps_ph(load_8(x + i, left), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        bad = _mm_or_si128(bad, _mm_cmpeq_epi16(_mm_and_si128(half, exponent), exponent));
        uint16_t part[8];
        _mm_storeu_si128((__m128i *)part, half);
        memcpy(out + i, part, left >= 8 ? sizeof part : (size_t)left * sizeof *part);
    }
    return _mm_testz_si128(bad, bad);
}

static void from_f16(const uint16_t *x, int n, float *out)
{
    for (int i = 0; i < n; i += 8)
        store_8(out + i, load_half_8(x + i, n - i), n - i);
}

void cpu_ops_set_vector_avx2(struct cpu_ops *ops)
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
