/* SPDX-License-Identifier: Apache-2.0 */
/* One to four activation rows times weight rows of types with blocks of 32 and 64 values, straight
 * from the file's bytes with AVX-512 VNNI (matmul.h, cpu_direct_fn).
 *
 * Codes are made unsigned bytes by adding a constant, and four products at a time are added to 32
 * bits; what the constant added, constant * sum of the activations, is taken off at the end. All of
 * that is exact, so the bits are those of unpacking. A group is eight blocks of 32, one for each
 * chain; a register holds blocks p and p + 4 of it. */
#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/unpack_small.h"

struct activations {
    _Alignas(64) int8_t q[CPU_DIRECT_MOST_N]; /* groups of 256, in the order of the type */
    _Alignas(32) int32_t excess[CPU_DIRECT_MOST_N / 32]; /* constant * sum of a block */
    const float *d;
    int blocks; /* of 32 */
};

/* Everything but q. The padding of x makes whole groups, with sums of zero. */
INLINE void take_sums(struct activations *out, const struct quant_act *x, int t, int constant)
{
    out->d = scales_of(x, t);
    out->blocks = x->n / 32;
    for (int i = 0; i < x->n; i += 256) {
        __m256i sums = load16(sums_of(x, t) + i / 16);
        sums = _mm256_madd_epi16(sums, _mm256_set1_epi16((short)constant));
        _mm256_store_si256((__m256i *)(out->excess + i / 32), sums);
    }
}

/* Codes of blocks p and p + 4 of each group side by side. */
INLINE void take_pairs(struct activations *out, const struct quant_act *x, int t, int constant)
{
    take_sums(out, x, t, constant);
    for (int i = 0; i < x->n; i += 256) {
        for (int b = 0; b < 8; b++) {
            __m512i words = _mm512_loadu_si512(codes_of(x, t) + i + 32 * b);
            _mm256_store_si256((__m256i *)(out->q + i + 64 * (b % 4) + 32 * (b / 4)),
                               _mm512_cvtepi16_epi8(words));
        }
    }
}

/* Four half floats, each at the start of a block. Put together in general registers: as eight small
 * stores they would hold up the load of the vector. */
INLINE uint64_t four_halves(const uint8_t *b, size_t block_bytes)
{
    return bytes_u16(b) | (uint64_t)bytes_u16(b + block_bytes) << 16 |
           (uint64_t)bytes_u16(b + 2 * block_bytes) << 32 |
           (uint64_t)bytes_u16(b + 3 * block_bytes) << 48;
}

/* The scales of a group of which `count` blocks exist; 0 for the others. */
INLINE __m128i eight_halves(const uint8_t *row, size_t block_bytes, int count)
{
    if (count >= 8)
        return _mm_set_epi64x((long long)four_halves(row + 4 * block_bytes, block_bytes),
                              (long long)four_halves(row, block_bytes));
    uint16_t d[8] = {0};
    for (int b = 0; b < count; b++)
        d[b] = bytes_u16(row + (size_t)b * block_bytes);
    return _mm_loadu_si128((const __m128i *)d);
}

/* MXFP4: the scales of a group as eight_halves, each from the first byte of its block: half of
 * 2^(byte - 127), whose bits are (byte - 1) << 23, or below the normal numbers 2^21 << byte. */
INLINE __m256 eight_powers(const uint8_t *row, size_t block_bytes, int count)
{
    uint64_t bytes = 0;
    for (int b = 0; b < 8 && b < count; b++)
        bytes |= (uint64_t)row[(size_t)b * block_bytes] << 8 * b;
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __mmask8 small = _mm256_cmplt_epi32_mask(e, _mm256_set1_epi32(2));
    bits = _mm256_mask_sllv_epi32(bits, small, _mm256_set1_epi32(0x00200000), e);
    __mmask8 there = (__mmask8)(count >= 8 ? 255 : (1 << count) - 1);
    return _mm256_castsi256_ps(_mm256_maskz_mov_epi32(there, bits));
}

/* Adds a group to the chains: exact sums with the constant, scales dw, 0 where there is no block.
 */
INLINE __m256 add_group(__m256 chain, __m256i sums, __m256 dw, const struct activations *x, int g)
{
    sums = _mm256_sub_epi32(sums, _mm256_load_si256((const __m256i *)(x->excess + g)));
    __m256 dx = load_scales(x->d + g, x->blocks - g);
    return _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(sums), chain);
}

/* --- blocks of 32 --- */

/* Unsigned codes of two blocks. */
typedef __m512i codes_fn(const uint8_t *first, const uint8_t *second);

/* Lane p is the sum of the lower half of s[p], lane p + 4 that of the upper half. */
INLINE __m256i sum_pairs(const __m512i *s)
{
    __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    a = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    a = _mm512_add_epi32(a, _mm512_shuffle_i64x2(a, a, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm512_castsi512_si256(_mm512_shuffle_i64x2(a, a, _MM_SHUFFLE(2, 0, 2, 0)));
}

/* The same for types with minimums, whose codes are unsigned as they are: `excess` is 1 * sum of a
 * block, which the negated minimum is taken off as often. */
INLINE __m256 add_group_min(__m256 chain, __m256i sums, __m256 dw, __m256 m,
                            const struct activations *x, int g)
{
    __m256 dmin = _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
    __m256 msum = _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(x->excess + g)));
    __m256 dx = load_scales(x->d + g, x->blocks - g);
    chain = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(sums), chain);
    return _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), msum, chain);
}

/* What stands at the start of a block. */
enum block_scale {
    SCALE_HALF, /* d as a half float */
    SCALE_MIN,  /* d and the minimum */
    SCALE_POWER /* a power of two in one byte */
};

/* One weight row times `rows` (at most 4) activation rows. */
INLINE void direct_row(const uint8_t *row, const struct activations *x, const int rows,
                       const int block_bytes, const enum block_scale scale, codes_fn *codes,
                       float *y, size_t y_stride)
{
    __m256 chain[4];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8, row += 8 * block_bytes) {
        __m512i sum[4][4];
        int count = x->blocks - g;
        x86_prefetch_ahead(row, 8 * block_bytes);
        for (int p = 0; p < 4; p++) {
            /* In place of a block that is not there its activations, all zero, meet another. */
            const uint8_t *first = row + (p < count ? p : 0) * block_bytes;
            const uint8_t *second = row + (p + 4 < count ? p + 4 : 0) * block_bytes;
            __m512i both = codes(first, second);
            for (int r = 0; r < rows; r++) {
                __m512i q = _mm512_load_si512(x[r].q + 32 * g + 64 * p);
                sum[r][p] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), both, q);
            }
        }
        __m256 d = scale == SCALE_POWER
                       ? eight_powers(row, (size_t)block_bytes, count)
                       : _mm256_cvtph_ps(eight_halves(row, (size_t)block_bytes, count));
        __m256 m = d;
        if (scale == SCALE_MIN)
            m = _mm256_cvtph_ps(eight_halves(row + 2, (size_t)block_bytes, count));
        for (int r = 0; r < rows; r++) {
            __m256i sums = sum_pairs(sum[r]);
            chain[r] = scale == SCALE_MIN ? add_group_min(chain[r], sums, d, m, &x[r], g)
                                          : add_group(chain[r], sums, d, &x[r], g);
        }
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r]);
}

/* 32 nibbles of each of two blocks, whose 16 bytes start at a and b. */
INLINE __m512i two_nibbles(const uint8_t *a, const uint8_t *b)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)a));
    __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)b));
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    return _mm512_and_si512(_mm512_srlv_epi64(both, shift), _mm512_set1_epi8(15));
}

INLINE __m512i codes_q4_0(const uint8_t *first, const uint8_t *second)
{
    return two_nibbles(first + 2, second + 2);
}

INLINE __m512i codes_q5_0(const uint8_t *first, const uint8_t *second)
{
    __mmask64 fifth = bytes_u32(first + 2) | (uint64_t)bytes_u32(second + 2) << 32;
    __m512i low = two_nibbles(first + 6, second + 6);
    return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
}

INLINE __m512i codes_q4_1(const uint8_t *first, const uint8_t *second)
{
    return two_nibbles(first + 4, second + 4);
}

INLINE __m512i codes_q5_1(const uint8_t *first, const uint8_t *second)
{
    __mmask64 fifth = bytes_u32(first + 4) | (uint64_t)bytes_u32(second + 4) << 32;
    __m512i low = two_nibbles(first + 8, second + 8);
    return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
}

INLINE __m512i codes_mxfp4(const uint8_t *first, const uint8_t *second)
{
    /* twice the sixteen values, + 12 */
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm512_shuffle_epi8(table, two_nibbles(first + 1, second + 1));
}

INLINE __m512i codes_q8_0(const uint8_t *first, const uint8_t *second)
{
    __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(first + 2)));
    __m512i both = _mm512_inserti64x4(low, _mm256_loadu_si256((const __m256i *)(second + 2)), 1);
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
}

INLINE __m512i codes_iq4_nl(const uint8_t *first, const uint8_t *second)
{
    /* the sixteen values + 128 */
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241));
    return _mm512_shuffle_epi8(table, two_nibbles(first + 2, second + 2));
}

INLINE void direct(const uint8_t *w, int w_rows, const struct quant_act *x, int t, const int rows,
                   float *y, size_t y_stride, const int constant, const int block_bytes,
                   const enum block_scale scale, codes_fn *codes)
{
    struct activations a[4];
    for (int r = 0; r < rows; r++)
        take_pairs(&a[r], x, t + r, constant);
    for (int j = 0; j < w_rows; j++, w += a->blocks * block_bytes)
        direct_row(w, a, rows, block_bytes, scale, codes, y + j, y_stride);
}

#define ROWS32(name, constant, block_bytes, scale)                                                 \
    INLINE void rows_##name(const void *w, int w_rows, const struct quant_act *x, int t,           \
                            const int rows, float *y, size_t y_stride)                             \
    {                                                                                              \
        direct(w, w_rows, x, t, rows, y, y_stride, constant, block_bytes, scale, codes_##name);    \
    }                                                                                              \
    KERNELS_OF_ROWS(name)

ROWS32(q4_0, 8, 18, SCALE_HALF)
ROWS32(q4_1, 1, 20, SCALE_MIN)
ROWS32(q5_0, 16, 22, SCALE_HALF)
ROWS32(q5_1, 1, 24, SCALE_MIN)
ROWS32(q8_0, 128, 34, SCALE_HALF)
ROWS32(iq4_nl, 128, 18, SCALE_HALF)
ROWS32(mxfp4, 12, 17, SCALE_POWER)

/* --- Q2_0: 64 values in 16 bytes, value 4k + j in bits 2j of byte k --- */

/* Activations by planes: value 4k + j of 64 goes to place 16j + k. */
INLINE void take_planes(struct activations *out, const struct quant_act *x, int t)
{
    const __m512i transpose =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const int16_t *q = codes_of(x, t);
    take_sums(out, x, t, 1);
    for (int i = 0; i < x->stride; i += 64) {
        __m256i first = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + i));
        __m256i second = _mm512_cvtepi16_epi8(_mm512_loadu_si512(q + i + 32));
        __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
        v = _mm512_permutexvar_epi32(gather, _mm512_shuffle_epi8(v, transpose));
        _mm512_store_si512(out->q + i, v);
    }
}

/* Each quarter of a register has the first part of its block in lanes 0 and 1, the second in 2
 * and 3. Lane 2b + h of the result is part h of block b. */
INLINE __m256i sum_parts(const __m512i *s)
{
    __m256i half[2];
    for (int h = 0; h < 2; h++, s += 2) {
        __m512 a = _mm512_castsi512_ps(s[0]), b = _mm512_castsi512_ps(s[1]);
        __m512i even = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
        __m512i odd = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
        __m512i sum = _mm512_add_epi32(even, odd);
        half[h] = _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    }
    return _mm256_add_epi32(_mm256_permute2x128_si256(half[0], half[1], 0x20),
                            _mm256_permute2x128_si256(half[0], half[1], 0x31));
}

INLINE void direct_row_q2_0(const uint8_t *row, const struct activations *x, const int rows,
                            float *y, size_t y_stride)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 2, 2, 4, 4, 6, 6);
    __m256 chain[4];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (int g = 0; g < x->blocks; g += 8, row += 4 * 18) {
        __m512i sum[4][4];
        uint64_t d = 0;
        int count = (x->blocks - g) / 2; /* blocks of 64 */
        x86_prefetch_ahead(row, 4 * 18);
        for (int b = 0; b < 4; b++) {
            const uint8_t *block = row + (b < count ? b : 0) * 18;
            if (b < count)
                d |= (uint64_t)bytes_u16(block) << 16 * b;
            __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(block + 2)));
            v = _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(3));
            for (int r = 0; r < rows; r++)
                sum[r][b] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v,
                                                _mm512_load_si512(x[r].q + 32 * g + 64 * b));
        }
        __m128i both = _mm_cvtsi64_si128((long long)d); /* the two parts of a block share it */
        both = _mm_unpacklo_epi16(both, both);
        for (int r = 0; r < rows; r++)
            chain[r] = add_group(chain[r], sum_parts(sum[r]), _mm256_cvtph_ps(both), &x[r], g);
    }
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r]);
}

INLINE void rows_q2_0(const void *w, int w_rows, const struct quant_act *x, int t, const int rows,
                      float *y, size_t y_stride)
{
    struct activations a[4];
    for (int r = 0; r < rows; r++)
        take_planes(&a[r], x, t + r);
    for (int j = 0; j < w_rows; j++)
        direct_row_q2_0((const uint8_t *)w + (size_t)j * (size_t)(a->blocks / 2) * 18, a, rows,
                        y + j, y_stride);
}

KERNELS_OF_ROWS(q2_0)

void cpu_set_direct_small_avx512_vnni(struct cpu_matmul *m)
{
    m->direct[TYPE_Q4_0] = direct_q4_0;
    m->window[TYPE_Q4_0] = window_q4_0;
    m->direct[TYPE_Q5_0] = direct_q5_0;
    m->window[TYPE_Q5_0] = window_q5_0;
    m->direct[TYPE_Q4_1] = direct_q4_1;
    m->window[TYPE_Q4_1] = window_q4_1;
    m->direct[TYPE_Q5_1] = direct_q5_1;
    m->window[TYPE_Q5_1] = window_q5_1;
    m->direct[TYPE_MXFP4] = direct_mxfp4;
    m->window[TYPE_MXFP4] = window_mxfp4;
    m->direct[TYPE_Q8_0] = direct_q8_0;
    m->window[TYPE_Q8_0] = window_q8_0;
    m->direct[TYPE_IQ4_NL] = direct_iq4_nl;
    m->window[TYPE_IQ4_NL] = window_iq4_nl;
    m->direct[TYPE_Q2_0] = direct_q2_0;
    m->window[TYPE_Q2_0] = window_q2_0;
}
