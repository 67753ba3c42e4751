/* SPDX-License-Identifier: Apache-2.0 */
/* One activation row times weight rows of K types, straight from the file's bytes with AVX-512
 * (matmul.h, cpu_direct_fn). Compiled twice, with VNNI and without.
 *
 * Codes stay unsigned bytes: pairs of products of a code and an activation fit 16 bits (2 * 63 *
 * 127), and the multiplication that widens them to 32 bits applies the scale. Eight blocks give
 * eight registers of partial sums, which a tree of unpacks turns into one whose lanes are the
 * chains. Everything up to there is exact, so the bits are those of unpacking. */
#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"

/* The activation row as bytes, with sums as the types want them. */
struct activations {
    _Alignas(64) int8_t q[CPU_DIRECT_MOST_N];
    _Alignas(16) int16_t bsum32[CPU_DIRECT_MOST_N / 32];
    const int16_t *bsum16;
    const float *d;
    int blocks;
};

/* What a block adds to its chain. */
struct block_sums {
    __m512i sum; /* lanes to be added */
    __m128i min; /* the same, types with minimums */
};

typedef struct block_sums direct_block_fn(const uint8_t *b, const struct activations *x, int k);

INLINE __m512i multiply_add(__m512i sum, __m512i a, __m512i b)
{
#ifdef __AVX512VNNI__
    return _mm512_dpwssd_epi32(sum, a, b);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

/* 32 codes of 16 bits to bytes; order[i] is the group of 32 values that stands at place i. */
static void take_activations(struct activations *out, const struct quant_act *x, int t,
                             const int order[8])
{
    const int16_t *q = codes_of(x, t);
    out->bsum16 = sums_of(x, t);
    out->d = scales_of(x, t);
    out->blocks = x->n / 256;
    for (int k = 0; k < x->n; k += 256) {
        for (int i = 0; i < 8; i++) {
            __m512i words = _mm512_loadu_si512(q + k + 32 * order[i]);
            _mm256_store_si256((__m256i *)(out->q + k + 32 * i), _mm512_cvtepi16_epi8(words));
        }
    }
    for (int i = 0; i < x->n / 32; i++)
        out->bsum32[i] = (int16_t)(out->bsum16[2 * i] + out->bsum16[2 * i + 1]);
}

/* Lane i is the sum of the lanes of s[i]. */
INLINE __m256i sum_wide(const __m512i *s)
{
    __m256i half[2];
    for (int h = 0; h < 2; h++, s += 4) {
        __m512i a =
            _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
        __m512i b =
            _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
        a = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        half[h] = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    }
    return _mm256_add_epi32(_mm256_permute2x128_si256(half[0], half[1], 0x20),
                            _mm256_permute2x128_si256(half[0], half[1], 0x31));
}

/* The same for registers of four lanes. */
INLINE __m256i sum_narrow(const __m128i *s)
{
    __m256i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_set_m128i(s[i + 4], s[i]);
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a[0], a[1]), _mm256_hadd_epi32(a[2], a[3]));
}

/* One weight row. d_at: where a block has d (and behind it dmin). */
INLINE float direct_row(const uint8_t *row, const struct activations *x, const int block_bytes,
                        const int d_at, const bool with_min, direct_block_fn *block)
{
    __m256 chain = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8) {
        __m512i sum[8] = {0};
        __m128i min[8] = {0};
        uint16_t d[8] = {0}, dmin[8] = {0};
        int count = x->blocks - g < 8 ? x->blocks - g : 8;
        for (int b = 0; b < count; b++, row += block_bytes) {
            x86_prefetch_ahead(row, block_bytes);
            struct block_sums s = block(row, x, g + b);
            sum[b] = s.sum;
            memcpy(&d[b], row + d_at, 2);
            if (with_min) {
                min[b] = s.min;
                memcpy(&dmin[b], row + d_at + 2, 2);
            }
        }
        __m256 dx = load_scales(x->d + g, count);
        __m256 dw = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)d));
        __m256 isum = _mm256_cvtepi32_ps(sum_wide(sum));
        chain = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), isum, chain);
        if (with_min) {
            dw = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)dmin));
            __m256 msum = _mm256_cvtepi32_ps(sum_narrow(min));
            chain = _mm256_fnmadd_ps(_mm256_mul_ps(dw, dx), msum, chain);
        }
    }
    return add_tree(chain);
}

/* Scale `first` in the words of the lower half, `second` in those of the upper. */
INLINE __m512i two_scales(__m512i scales, int first, int second)
{
    __m512i index =
        _mm512_inserti64x4(_mm512_set1_epi16((short)first), _mm256_set1_epi16((short)second), 1);
    return _mm512_permutexvar_epi16(index, scales);
}

/* (a & mask_a) | (b & mask_b) */
INLINE __m512i join(__m512i a, char mask_a, __m512i b, char mask_b)
{
    __m512i masked = _mm512_and_si512(a, _mm512_set1_epi8(mask_a));
    return _mm512_ternarylogic_epi64(masked, b, _mm512_set1_epi8(mask_b), 0xf8);
}

/* Bits rotated to the left, by `first` in the lower half and by `second` in the upper. */
INLINE __m512i rotate_halves(__m512i bits, int first, int second)
{
    __m512i counts = _mm512_inserti64x4(_mm512_set1_epi64(first), _mm256_set1_epi64x(second), 1);
    return _mm512_rolv_epi64(bits, counts);
}

INLINE __m512i load_twice(const uint8_t *b)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b));
}

/* --- Q4_K, Q5_K: a register of codes has groups j and j + 2 --- */

static const int order_q4_k[8] = {0, 2, 1, 3, 4, 6, 5, 7};

/* Scales as words 0..7; the minimums' part of the sums. */
INLINE __m512i scales_and_min(const uint8_t *b, const struct activations *x, int k, __m128i *min)
{
    __m256i words = _mm256_cvtepu8_epi16(x86_q4_k_scales(b));
    __m128i sums = _mm_load_si128((const __m128i *)(x->bsum32 + 8 * k));
    *min = _mm_madd_epi16(_mm256_extracti128_si256(words, 1), sums);
    return _mm512_castsi256_si512(words);
}

INLINE struct block_sums block_q4_k(const uint8_t *b, const struct activations *x, int k)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const int8_t *q = x->q + 256 * k;
    struct block_sums s = {.sum = _mm512_setzero_si512()};
    __m512i scales = scales_and_min(b, x, k, &s.min), other = s.sum;
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 16 + 64 * h);
        __m512i low = _mm512_and_si512(w, nibble);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
        low = _mm512_maddubs_epi16(low, _mm512_load_si512(q + 128 * h));
        high = _mm512_maddubs_epi16(high, _mm512_load_si512(q + 128 * h + 64));
        s.sum = multiply_add(s.sum, low, two_scales(scales, 4 * h, 4 * h + 2));
        other = multiply_add(other, high, two_scales(scales, 4 * h + 1, 4 * h + 3));
    }
    s.sum = _mm512_add_epi32(s.sum, other);
    return s;
}

INLINE struct block_sums block_q5_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    struct block_sums s = {.sum = _mm512_setzero_si512()};
    __m512i scales = scales_and_min(b, x, k, &s.min), other = s.sum;
    __m512i fifth = load_twice(b + 16); /* bit g goes to bit 4 */
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 48 + 64 * h);
        __m512i bits = h ? rotate_halves(fifth, 0, 62) : rotate_halves(fifth, 4, 2);
        __m512i low = join(w, 15, bits, 16);
        bits = h ? rotate_halves(fifth, 63, 61) : rotate_halves(fifth, 3, 1);
        __m512i high = join(_mm512_srli_epi16(w, 4), 15, bits, 16);
        low = _mm512_maddubs_epi16(low, _mm512_load_si512(q + 128 * h));
        high = _mm512_maddubs_epi16(high, _mm512_load_si512(q + 128 * h + 64));
        s.sum = multiply_add(s.sum, low, two_scales(scales, 4 * h, 4 * h + 2));
        other = multiply_add(other, high, two_scales(scales, 4 * h + 1, 4 * h + 3));
    }
    s.sum = _mm512_add_epi32(s.sum, other);
    return s;
}

/* --- Q6_K --- */

static const int order_q6_k[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Four scales from `first` on, each for eight words. */
INLINE __m512i four_scales(__m512i scales, int first)
{
    const __m512i eighths =
        _mm512_setr_epi64(0, 0, 0x1000100010001, 0x1000100010001, 0x2000200020002, 0x2000200020002,
                          0x3000300030003, 0x3000300030003);
    __m512i index = _mm512_add_epi16(eighths, _mm512_set1_epi16((short)first));
    return _mm512_permutexvar_epi16(index, scales);
}

/* Codes 0..63 stand for -32..31: 32 times each scale times the sum of its activations is taken off.
 */
INLINE struct block_sums block_q6_k(const uint8_t *b, const struct activations *x, int k)
{
    const int8_t *q = x->q + 256 * k;
    __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 192)));
    __m256i offset = _mm256_madd_epi16(words, load16(x->bsum16 + 16 * k));
    offset = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(offset, 5));
    __m512i scales = _mm512_castsi256_si512(words);
    struct block_sums s = {.sum = _mm512_zextsi256_si512(offset)};
    __m512i other = _mm512_setzero_si512();
    for (int h = 0; h < 2; h++) {
        __m512i w = _mm512_loadu_si512(b + 64 * h);
        __m512i high_bits = load_twice(b + 128 + 32 * h); /* those of group j, at 2j, go to 4 */
        __m512i low = join(w, 15, rotate_halves(high_bits, 4, 2), 48);
        __m512i high = join(_mm512_srli_epi16(w, 4), 15, rotate_halves(high_bits, 0, 62), 48);
        low = _mm512_maddubs_epi16(low, _mm512_load_si512(q + 128 * h));
        high = _mm512_maddubs_epi16(high, _mm512_load_si512(q + 128 * h + 64));
        s.sum = multiply_add(s.sum, low, four_scales(scales, 8 * h));
        other = multiply_add(other, high, four_scales(scales, 8 * h + 4));
    }
    s.sum = _mm512_add_epi32(s.sum, other);
    return s;
}

static void direct_q4_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    struct activations a;
    take_activations(&a, x, t, order_q4_k);
    for (int r = 0; r < w_rows; r++)
        y[r] = direct_row((const uint8_t *)w + (size_t)r * (size_t)a.blocks * 144, &a, 144, 0, true,
                          block_q4_k);
}

static void direct_q5_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    struct activations a;
    take_activations(&a, x, t, order_q4_k);
    for (int r = 0; r < w_rows; r++)
        y[r] = direct_row((const uint8_t *)w + (size_t)r * (size_t)a.blocks * 176, &a, 176, 0, true,
                          block_q5_k);
}

static void direct_q6_k(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    struct activations a;
    take_activations(&a, x, t, order_q6_k);
    for (int r = 0; r < w_rows; r++)
        y[r] = direct_row((const uint8_t *)w + (size_t)r * (size_t)a.blocks * 210, &a, 210, 208,
                          false, block_q6_k);
}

#ifdef __AVX512VNNI__
void cpu_set_direct_k_avx512_vnni(struct cpu_matmul *m)
#else
void cpu_set_direct_k_avx512(struct cpu_matmul *m)
#endif
{
    m->direct[TYPE_Q4_K] = direct_q4_k;
    m->direct[TYPE_Q5_K] = direct_q5_k;
    m->direct[TYPE_Q6_K] = direct_q6_k;
}
