/* SPDX-License-Identifier: Apache-2.0 */
/* One to four activation rows times weight rows of types with blocks of 32, 64 and 128 values,
 * straight from the file's bytes with AVX2 (matmul.h, cpu_direct_fn).
 *
 * A group is 256 values, a part of 32 for each chain, in two halves of 128. A register holds 16
 * codes of a block of the first half in its lower lane and 16 of the block at the same place of the
 * second half in its upper lane, so that sums of adjacent lanes end in the order of the chains.
 * Codes are unsigned bytes with a constant added, whose part of the sums is taken off at the end,
 * or signed ones where products of those would not fit 16 bits: nothing saturates. */
#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/unpack_small.h"
#include "quant/codebooks.h"

#define DIRECT_ROWS 4
#define HALF 128

struct activations {
    _Alignas(32) int8_t q[CPU_DIRECT_MOST_N];            /* registers as those of the codes */
    _Alignas(32) int32_t excess[CPU_DIRECT_MOST_N / 32]; /* constant * sum of a part */
    const float *d;
    int parts; /* of 32 */
};

/* What stands at the start of a block. */
enum block_scale {
    SCALE_HALF, /* d as a half float */
    SCALE_MIN,  /* d and the minimum */
    SCALE_POWER /* a power of two in one byte */
};

struct direct_layout {
    int bytes, values; /* of a block */
    enum block_scale scale;
    bool is_signed; /* codes are signed bytes, from -128 on */
    int constant;   /* added to the codes; types with minimums: 1 */
};

/* Sets out[i] to codes 16i to 16i + 15 of two blocks, in the order of take_activations. */
typedef void codes_fn(const uint8_t *first, const uint8_t *second, __m256i *out);

/* --- activations --- */

/* 16 activations of both halves of a group as bytes. */
INLINE __m256i both_halves(const int16_t *q)
{
    __m256i bytes = _mm256_packs_epi16(load16(q), load16(q + HALF));
    return _mm256_permute4x64_epi64(bytes, _MM_SHUFFLE(3, 1, 2, 0));
}

/* Q2_0: values 4k + j of 64, four registers of 16, to byte k of register j. */
INLINE void to_planes_of_four(__m256i *v)
{
    const __m256i transpose = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_shuffle_epi8(v[i], transpose);
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(a, c);
    v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d);
    v[3] = _mm256_unpackhi_epi64(b, d);
}

/* Q1_0: values 8k + j of 128, eight registers of 16, to byte k of register j. */
INLINE void to_planes_of_eight(__m256i *v)
{
    const __m256i transpose = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_shuffle_epi8(v[i], transpose);
    for (int i = 0; i < 8; i += 2) { /* words of j = 0 to 3, of 4 to 7 */
        b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int h = 0; h < 2; h++) { /* double words of two j */
            a[i + 2 * h] = _mm256_unpacklo_epi32(b[i + h], b[i + h + 2]);
            a[i + 2 * h + 1] = _mm256_unpackhi_epi32(b[i + h], b[i + h + 2]);
        }
    }
    for (int i = 0; i < 4; i++) {
        v[2 * i] = _mm256_unpacklo_epi64(a[i], a[i + 4]);
        v[2 * i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 4]);
    }
}

/* Whole groups: the padding of x has activations and sums of zero. */
INLINE void take_activations(struct activations *out, const struct quant_act *x, int t,
                             const int values, const int constant)
{
    const int16_t *q = codes_of(x, t), *bsum = sums_of(x, t);
    out->d = scales_of(x, t);
    out->parts = x->n / 32;
    for (int i = 0; i < x->n; i += 2 * HALF) {
        __m256i v[8];
        for (int k = 0; k < 8; k++)
            v[k] = both_halves(q + i + 16 * k);
        if (values == 64) {
            to_planes_of_four(v);
            to_planes_of_four(v + 4);
        } else if (values == 128) {
            to_planes_of_eight(v);
        }
        for (int k = 0; k < 8; k++)
            _mm256_store_si256((__m256i *)(out->q + i + 32 * k), v[k]);
        __m256i sums = _mm256_madd_epi16(load16(bsum + i / 16), _mm256_set1_epi16((short)constant));
        _mm256_store_si256((__m256i *)(out->excess + i / 32), sums);
    }
}

/* --- codes --- */

/* The 16 bytes at a and those at b. */
INLINE __m256i two_sixteens(const uint8_t *a, const uint8_t *b)
{
    __m256i first = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a));
    return _mm256_inserti128_si256(first, _mm_loadu_si128((const __m128i *)b), 1);
}

INLINE void two_nibbles(const uint8_t *a, const uint8_t *b, __m256i *out)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i v = two_sixteens(a, b);
    out[0] = _mm256_and_si256(v, nibble);
    out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
}

/* Adds 16 to the codes whose bits in the four bytes at a and b are set. */
INLINE void add_fifth_bits(const uint8_t *a, const uint8_t *b, __m256i *codes)
{
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i byte =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    __m128i first = _mm_cvtsi32_si128((int)bytes_u32(a));
    __m128i second = _mm_cvtsi32_si128((int)bytes_u32(b));
    __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    for (int i = 0; i < 2; i++) {
        __m256i index = _mm256_add_epi8(byte, _mm256_set1_epi8((char)(2 * i)));
        __m256i set = _mm256_and_si256(_mm256_shuffle_epi8(v, index), bit);
        set = _mm256_and_si256(_mm256_cmpeq_epi8(set, bit), _mm256_set1_epi8(16));
        codes[i] = _mm256_or_si256(codes[i], set);
    }
}

INLINE void look_up(__m128i table, __m256i *codes)
{
    __m256i both = _mm256_broadcastsi128_si256(table);
    for (int i = 0; i < 2; i++)
        codes[i] = _mm256_shuffle_epi8(both, codes[i]);
}

INLINE void codes_q4_0(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    two_nibbles(first + 2, second + 2, out);
}

INLINE void codes_q4_1(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    two_nibbles(first + 4, second + 4, out);
}

INLINE void codes_q5_0(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    two_nibbles(first + 6, second + 6, out);
    add_fifth_bits(first + 2, second + 2, out);
}

INLINE void codes_q5_1(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    two_nibbles(first + 8, second + 8, out);
    add_fifth_bits(first + 4, second + 4, out);
}

INLINE void codes_q8_0(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    out[0] = two_sixteens(first + 2, second + 2);
    out[1] = two_sixteens(first + 18, second + 18);
}

INLINE void codes_iq4_nl(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    two_nibbles(first + 2, second + 2, out);
    look_up(_mm_loadu_si128((const __m128i *)codebook_iq4nl), out);
}

INLINE void codes_mxfp4(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    two_nibbles(first + 1, second + 1, out);
    /* twice the sixteen values, + 12 */
    look_up(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0), out);
}

/* Value 4k + j is in bits 2j of byte k. */
INLINE void codes_q2_0(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    __m256i v = two_sixteens(first + 2, second + 2);
    for (int j = 0; j < 4; j++)
        out[j] = _mm256_and_si256(_mm256_srli_epi16(v, 2 * j), _mm256_set1_epi8(3));
}

/* Value 8k + j is bit j of byte k; as 0 and 2, less 1. */
INLINE void codes_q1_0(const uint8_t *first, const uint8_t *second, __m256i *out)
{
    __m256i v = two_sixteens(first + 2, second + 2);
    out[0] = _mm256_slli_epi16(v, 1);
    for (int j = 1; j < 8; j++)
        out[j] = _mm256_srli_epi16(v, j - 1);
    for (int j = 0; j < 8; j++)
        out[j] = _mm256_and_si256(out[j], _mm256_set1_epi8(2));
}

/* --- products --- */

/* Four sums of each of two blocks, to be added unless the block has a part for each. The greatest
 * sum of unsigned codes in 16 bits is that of Q5_0 and Q5_1, 4 * 31 * 127. */
INLINE __m256i products(const __m256i *codes, const int8_t *q, const struct direct_layout l)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < l.values / 16; i++) {
        __m256i v = _mm256_load_si256((const __m256i *)(q + 32 * i));
        if (l.is_signed) { /* 2 * 128 * 127; an activation is not -128 */
            v = _mm256_maddubs_epi16(_mm256_abs_epi8(codes[i]), _mm256_sign_epi8(v, codes[i]));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(v, ones));
        } else {
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes[i], v));
        }
    }
    return l.is_signed ? sum : _mm256_madd_epi16(sum, ones);
}

/* Sums of the eight parts of a group in the order of their chains. */
INLINE __m256i sums_of_parts(const __m256i *s, const int values)
{
    if (values == 128)
        return s[0];
    if (values == 64)
        return _mm256_hadd_epi32(s[0], s[1]);
    return _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
}

/* MXFP4: the scales of a group of which `count` blocks exist, 0 for the others, each from the first
 * byte of its block: half of 2^(byte - 127), whose bits are (byte - 1) << 23, or below the normal
 * numbers 2^21 << byte. */
INLINE __m256 eight_powers(const uint8_t *row, int block_bytes, int count)
{
    uint64_t bytes = 0;
    for (int b = 0; b < 8 && b < count; b++)
        bytes |= (uint64_t)row[b * block_bytes] << 8 * b;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i bits = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    return _mm256_castsi256_ps(
        _mm256_and_si256(bits, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane)));
}

/* The half floats of a group's blocks, each for all parts of its block. */
INLINE __m256 scales_of_parts(const uint8_t *at, const struct direct_layout l, int count)
{
    const int blocks = 2 * HALF / l.values;
    __m256 d = x86_load_halves(at, l.bytes, count < blocks ? count : blocks);
    if (l.values == 64)
        return _mm256_permutevar8x32_ps(d, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    if (l.values == 128)
        return _mm256_permutevar8x32_ps(d, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    return d;
}

/* Adds the group of part g, of which `count` blocks exist (all, or more), to the chains of `rows`
 * activation rows. */
INLINE void add_group(__m256 *chain, const uint8_t *row, const struct activations *x, int g,
                      int count, const int rows, const struct direct_layout l, codes_fn *codes)
{
    const int pairs = HALF / l.values;
    __m256i sum[DIRECT_ROWS][4];
    for (int p = 0; p < pairs; p++) {
        /* In place of a block that is not there its activations, all zero, meet another. */
        const uint8_t *first = row + (p < count ? p : 0) * l.bytes;
        const uint8_t *second = row + (p + pairs < count ? p + pairs : 0) * l.bytes;
        __m256i both[8];
        codes(first, second, both);
        for (int r = 0; r < rows; r++)
            sum[r][p] = products(both, x[r].q + 32 * g + 2 * l.values * p, l);
    }
    __m256 dw =
        l.scale == SCALE_POWER ? eight_powers(row, l.bytes, count) : scales_of_parts(row, l, count);
    __m256 dmin = dw;
    if (l.scale == SCALE_MIN) /* it is added, and taken off as its negative */
        dmin = _mm256_xor_ps(scales_of_parts(row + 2, l, count), _mm256_set1_ps(-0.0f));
    for (int r = 0; r < rows; r++) {
        __m256i sums = sums_of_parts(sum[r], l.values);
        __m256i excess = _mm256_load_si256((const __m256i *)(x[r].excess + g));
        __m256 dx = load_scales(x[r].d + g, x->parts - g);
        if (l.scale != SCALE_MIN && l.constant)
            sums = _mm256_sub_epi32(sums, excess);
        chain[r] = _mm256_fmadd_ps(_mm256_mul_ps(dw, dx), _mm256_cvtepi32_ps(sums), chain[r]);
        if (l.scale == SCALE_MIN)
            chain[r] =
                _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), _mm256_cvtepi32_ps(excess), chain[r]);
    }
}

/* One weight row times `rows` (at most DIRECT_ROWS) activation rows. */
INLINE void direct_row(const uint8_t *row, const struct activations *x, const int rows,
                       const struct direct_layout l, codes_fn *codes, float *y, size_t y_stride)
{
    const int blocks = 2 * HALF / l.values;
    int g = 0;
    __m256 chain[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        chain[r] = _mm256_setzero_ps();
    for (; g + 8 <= x->parts; g += 8, row += blocks * l.bytes) {
        x86_prefetch_ahead(row, blocks * l.bytes);
        add_group(chain, row, x, g, blocks, rows, l, codes);
    }
    if (g < x->parts)
        add_group(chain, row, x, g, (x->parts - g) * 32 / l.values, rows, l, codes);
    for (int r = 0; r < rows; r++)
        y[(size_t)r * y_stride] = add_tree(chain[r]);
}

INLINE void direct(const uint8_t *w, int w_rows, const struct quant_act *x, int t, const int rows,
                   float *y, size_t y_stride, const struct direct_layout l, codes_fn *codes)
{
    struct activations a[DIRECT_ROWS];
    for (int r = 0; r < rows; r++)
        take_activations(&a[r], x, t + r, l.values, l.constant);
    for (int j = 0; j < w_rows; j++, w += x->n / l.values * l.bytes)
        direct_row(w, a, rows, l, codes, y + j, y_stride);
}

/* Both kernels of a type, direct_TYPE and window_TYPE. */
#define DIRECT(name, ...)                                                                          \
    INLINE void rows_##name(const void *w, int w_rows, const struct quant_act *x, int t,           \
                            const int rows, float *y, size_t y_stride)                             \
    {                                                                                              \
        direct(w, w_rows, x, t, rows, y, y_stride, (struct direct_layout){__VA_ARGS__},            \
               codes_##name);                                                                      \
    }                                                                                              \
    KERNELS_OF_ROWS(name)

DIRECT(q4_0, 18, 32, SCALE_HALF, false, 8)
DIRECT(q4_1, 20, 32, SCALE_MIN, false, 1)
DIRECT(q5_0, 22, 32, SCALE_HALF, false, 16)
DIRECT(q5_1, 24, 32, SCALE_MIN, false, 1)
DIRECT(q8_0, 34, 32, SCALE_HALF, true, 0)
DIRECT(iq4_nl, 18, 32, SCALE_HALF, true, 0)
DIRECT(mxfp4, 17, 32, SCALE_POWER, false, 12)
DIRECT(q2_0, 18, 64, SCALE_HALF, false, 1)
DIRECT(q1_0, 18, 128, SCALE_HALF, false, 1)

void cpu_set_direct_small_avx2(struct cpu_matmul *m)
{
    m->direct[TYPE_Q4_0] = direct_q4_0;
    m->window[TYPE_Q4_0] = window_q4_0;
    m->direct[TYPE_Q4_1] = direct_q4_1;
    m->window[TYPE_Q4_1] = window_q4_1;
    m->direct[TYPE_Q5_0] = direct_q5_0;
    m->window[TYPE_Q5_0] = window_q5_0;
    m->direct[TYPE_Q5_1] = direct_q5_1;
    m->window[TYPE_Q5_1] = window_q5_1;
    m->direct[TYPE_Q8_0] = direct_q8_0;
    m->window[TYPE_Q8_0] = window_q8_0;
    m->direct[TYPE_IQ4_NL] = direct_iq4_nl;
    m->window[TYPE_IQ4_NL] = window_iq4_nl;
    m->direct[TYPE_MXFP4] = direct_mxfp4;
    m->window[TYPE_MXFP4] = window_mxfp4;
    m->direct[TYPE_Q2_0] = direct_q2_0;
    m->window[TYPE_Q2_0] = window_q2_0;
    m->direct[TYPE_Q1_0] = direct_q1_0;
    m->window[TYPE_Q1_0] = window_q1_0;
}
