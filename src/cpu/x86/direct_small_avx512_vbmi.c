/* SPDX-License-Identifier: Apache-2.0 */
/* One activation row times weight rows of Q4_0, IQ4_NL, Q8_0 and Q2_0, straight from the file's
 * bytes with AVX-512, VNNI and VBMI (matmul.h, direct_short).
 *
 * As direct_small_avx512.c, but several weight rows side by side: experts have rows of a few groups
 * (640 values), whose last group is often half there, and a tree of sums for each row costs as much
 * as a group. A register holds sums of four rows and four blocks, or of two rows and eight. */
#include "cpu/x86/direct_small_avx512.h"
#include "cpu/x86/sums_avx512.h"

#define ROWS 4                       /* weight rows side by side */
#define FOURS(n) (((n) + 127) / 128) /* of blocks */

/* An activation row by registers. Of blocks that it does not have all is 0. */
struct activations {
    _Alignas(64) int8_t q[FOURS(CPU_SHORT_N)][2][64];
    _Alignas(64) float d[FOURS(CPU_SHORT_N)][16];        /* scales, in the order of the sums */
    _Alignas(64) int32_t excess[FOURS(CPU_SHORT_N)][16]; /* constant * sum of a block */
    int blocks;                                          /* of 32 */
};

/* Scales of eight blocks from block b on, and their sums times a constant: lane i is that of block
 * b + at[i]. */
INLINE void take_factors(struct activations *out, int i, const struct quant_act *x, int t, int b,
                         int constant, __m512i at)
{
    int left = x->n / 32 - b;
    __mmask8 there = (__mmask8)(left >= 8 ? 255 : (1 << left) - 1);
    __m256i d = _mm256_maskz_loadu_epi32(there, scales_of(x, t) + b);
    __m256i sums = _mm256_maskz_loadu_epi32(there, sums_of(x, t) + 2 * b);
    sums = _mm256_madd_epi16(sums, _mm256_set1_epi16((short)constant));
    _mm512_store_si512(out->d[i], _mm512_permutexvar_epi32(at, _mm512_castsi256_si512(d)));
    _mm512_store_si512(out->excess[i], _mm512_permutexvar_epi32(at, _mm512_castsi256_si512(sums)));
}

INLINE void take_activations(struct activations *out, const struct quant_act *x, int t,
                             int constant)
{
    const __m512i four_times = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    out->blocks = x->n / 32;
    for (int h = 0; h < FOURS(x->n); h++) {
        for (int b = 0; b < 4; b++) {
            __m512i words = _mm512_loadu_si512(codes_of(x, t) + 128 * h + 32 * b);
            __m256i codes = _mm512_cvtepi16_epi8(words);
            _mm_store_si128((__m128i *)(out->q[h][0] + 16 * b), _mm256_castsi256_si128(codes));
            _mm_store_si128((__m128i *)(out->q[h][1] + 16 * b), _mm256_extracti128_si256(codes, 1));
        }
        take_factors(out, h, x, t, 4 * h, constant, four_times);
    }
}

/* 16 bytes of each of four blocks; in place of one that is not there, of which the activations are
 * zero, those of the first. */
INLINE __m512i four_sixteens(const uint8_t *b, const int block_bytes, int count)
{
    const uint8_t *at[4];
    for (int i = 0; i < 4; i++)
        at[i] = b + (i < count ? i : 0) * block_bytes;
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)at[0]));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const __m128i *)at[1]));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const __m128i *)at[2]));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const __m128i *)at[3]));
}

/* Unsigned codes of four blocks times their activations; each 128 bits for one block. */
typedef __m512i products_fn(const uint8_t *b, int count, const int8_t q[2][64]);

INLINE __m512i products(__m512i low, __m512i high, const int8_t q[2][64])
{
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, _mm512_load_si512(q[0]));
    return _mm512_dpbusd_epi32(sum, high, _mm512_load_si512(q[1]));
}

/* Nibbles by a table of 16 codes. It is there four times, so that the two bits above a nibble do
 * not count. */
INLINE __m512i nibble_products(const uint8_t *b, int count, __m128i table, const int8_t q[2][64])
{
    __m512i four = _mm512_broadcast_i32x4(table), v = four_sixteens(b + 2, 18, count);
    return products(_mm512_permutexvar_epi8(v, four),
                    _mm512_permutexvar_epi8(_mm512_srli_epi16(v, 4), four), q);
}

INLINE __m512i products_q4_0(const uint8_t *b, int count, const int8_t q[2][64])
{
    return nibble_products(b, count,
                           _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), q);
}

INLINE __m512i products_iq4_nl(const uint8_t *b, int count, const int8_t q[2][64])
{
    return nibble_products(b, count, iq4_nl_codes(), q);
}

INLINE __m512i products_q8_0(const uint8_t *b, int count, const int8_t q[2][64])
{
    const __m512i sign = _mm512_set1_epi8(-128);
    return products(_mm512_xor_si512(four_sixteens(b + 2, 34, count), sign),
                    _mm512_xor_si512(four_sixteens(b + 18, 34, count), sign), q);
}

/* The first `bytes` bytes at b, 64 or more: all. */
INLINE __m512i up_to_64(const uint8_t *b, int bytes)
{
    if (bytes >= 64)
        return _mm512_loadu_si512(b);
    return _mm512_maskz_loadu_epi8(bytes > 0 ? (UINT64_C(1) << bytes) - 1 : 0, b);
}

/* Puts the half floats at the start of blocks of 18 bytes, or of 34, into words 4i .. 4i + 3 of
 * `halves`, i the block's number, where `words` has them. */
INLINE __m512i put_scales(__m512i halves, __mmask64 words, const int block_bytes, __m512i source)
{
    const __m512i at_18 = _mm512_setr_epi64(0x0100010001000100, 0x1312131213121312,
                                            0x2524252425242524, 0x3736373637363736, 0, 0, 0, 0);
    const __m512i at_34 = _mm512_setr_epi64(0x0100010001000100, 0x2322232223222322,
                                            0x0100010001000100, 0x2322232223222322, 0, 0, 0, 0);
    return _mm512_mask_permutexvar_epi8(halves, words, block_bytes == 18 ? at_18 : at_34, source);
}

/* The scales of four blocks of each of four rows, in the order of the sums. */
INLINE __m512 four_scales(const uint8_t *const row[ROWS], const int block_bytes, int count)
{
    __m512i halves = _mm512_setzero_si512();
    int bytes = count * block_bytes;
    for (int r = 0; r < ROWS; r++) {
        const __mmask64 words = UINT64_C(0x03030303) << 2 * r;
        if (block_bytes == 18) {
            halves = put_scales(halves, words, 18, up_to_64(row[r], bytes));
            continue;
        }
        halves = put_scales(halves, words & 0xffff, 34, up_to_64(row[r], bytes));
        halves = put_scales(halves, words & 0xffff0000, 34, up_to_64(row[r] + 68, bytes - 68));
    }
    return _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
}

/* Adds scaled sums to chains; register i of the activations. */
INLINE __m512 add_sums(__m512 chain, __m512i sums, __m512 d, const struct activations *x, int i)
{
    sums = _mm512_sub_epi32(sums, _mm512_load_si512(x->excess[i]));
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_load_ps(x->d[i])), _mm512_cvtepi32_ps(sums),
                           chain);
}

/* The upper half of v added to the lower. */
INLINE __m256 fold(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

INLINE __m128 fold_again(__m256 v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* Four weight rows; chain 4h + i of row r is lane 4i + r of chain[h]. */
INLINE __m128 four_rows(const uint8_t *const rows[ROWS], const struct activations *x,
                        const int block_bytes, products_fn *product)
{
    __m512 chain[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const uint8_t *row[ROWS];
    for (int r = 0; r < ROWS; r++)
        row[r] = rows[r];
    for (int i = 0; 4 * i < x->blocks; i++) {
        __m512i sum[ROWS];
        int count = x->blocks - 4 * i;
        for (int r = 0; r < ROWS; r++) {
            x86_prefetch_ahead(row[r], 4 * block_bytes);
            sum[r] = product(row[r], count, x->q[i]);
        }
        __m512 d = four_scales(row, block_bytes, count);
        __m512 next = add_sums(chain[0], sum_quarters(sum), d, x, i);
        chain[0] = chain[1];
        chain[1] = next;
        for (int r = 0; r < ROWS; r++)
            row[r] += 4 * block_bytes;
    }
    return fold_again(fold(_mm512_add_ps(chain[0], chain[1])));
}

INLINE void direct(const uint8_t *w, int w_rows, const struct quant_act *x, int t, float *y,
                   const int constant, const int block_bytes, products_fn *product)
{
    struct activations a;
    take_activations(&a, x, t, constant);
    for (int j = 0; j < w_rows; j += ROWS) {
        const uint8_t *row[ROWS];
        int left = w_rows - j;
        for (int r = 0; r < ROWS; r++)
            row[r] = w + (size_t)(j + (r < left ? r : 0)) * (size_t)a.blocks * (size_t)block_bytes;
        __m128 sums = four_rows(row, &a, block_bytes, product);
        _mm_mask_storeu_ps(y + j, left >= ROWS ? 15 : (__mmask8)((1 << left) - 1), sums);
    }
}

#define DIRECT(name, constant, block_bytes)                                                        \
    static void direct_##name(const void *w, int w_rows, const struct quant_act *x, int t,         \
                              float *y)                                                            \
    {                                                                                              \
        direct(w, w_rows, x, t, y, constant, block_bytes, products_##name);                        \
    }

DIRECT(q4_0, 8, 18)
DIRECT(iq4_nl, 128, 18)
DIRECT(q8_0, 128, 34)

/* --- Q2_0: 64 values in 16 bytes, value 4k + j in bits 2j of byte k --- */

/* Of four blocks: values 4k + j of 64 are byte k of each 128 bits of register j. */
INLINE void take_planes(struct activations *out, const struct quant_act *x, int t)
{
    const __m512i both = _mm512_setr_epi32(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7);
    out->blocks = x->n / 32;
    for (int i = 0; i < x->stride; i += 64) {
        __m512i v = four_planes(codes_of(x, t) + i);
        int8_t *to = out->q[i / 128 / 2 * 2][0] + 16 * (i % 256 / 64);
        _mm_store_si128((__m128i *)to, _mm512_castsi512_si128(v));
        _mm_store_si128((__m128i *)(to + 64), _mm512_extracti32x4_epi32(v, 1));
        _mm_store_si128((__m128i *)(to + 128), _mm512_extracti32x4_epi32(v, 2));
        _mm_store_si128((__m128i *)(to + 192), _mm512_extracti32x4_epi32(v, 3));
        if (i % 256 == 0)
            take_factors(out, i / 256, x, t, i / 32, 1, both);
    }
}

/* Four blocks; each 64 bits of the result for one part of 32 values. */
INLINE __m512i products_q2_0(const uint8_t *b, int count, const int8_t *q)
{
    /* The second and the third pair of bits of an index of six. */
    const __m512i second =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    const __m512i third =
        _mm512_setr_epi64(0, 0, 0x0101010101010101, 0x0101010101010101, 0x0202020202020202,
                          0x0202020202020202, 0x0303030303030303, 0x0303030303030303);
    const __m512i first = _mm512_set1_epi8(3);
    __m512i v = four_sixteens(b + 2, 18, count);
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(v, first),
                                      _mm512_load_si512(q));
    sum = _mm512_dpbusd_epi32(sum, _mm512_permutexvar_epi8(v, second), _mm512_load_si512(q + 64));
    sum = _mm512_dpbusd_epi32(sum, _mm512_permutexvar_epi8(v, third), _mm512_load_si512(q + 128));
    v = _mm512_and_si512(_mm512_srli_epi16(v, 6), first);
    return _mm512_dpbusd_epi32(sum, v, _mm512_load_si512(q + 192));
}

/* Lane 4i + 2r + h is the sum of the 64 bits 2i + h of s[r]. */
INLINE __m512i sum_eighths(const __m512i s[2])
{
    __m512 a = _mm512_castsi512_ps(s[0]), b = _mm512_castsi512_ps(s[1]);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
}

/* Two weight rows; chain 2i + h of row r is lane 4i + 2r + h. */
INLINE __m128 two_rows(const uint8_t *const row[2], const struct activations *x)
{
    __m512 chain = _mm512_setzero_ps();
    for (int g = 0; 8 * g < x->blocks; g++) {
        __m512i sum[2], halves = _mm512_setzero_si512();
        int count = x->blocks / 2 - 4 * g;
        for (int r = 0; r < 2; r++) {
            const uint8_t *b = row[r] + 72 * g;
            x86_prefetch_ahead(b, 72);
            sum[r] = products_q2_0(b, count, x->q[2 * g][0]);
            halves = put_scales(halves, UINT64_C(0x0f0f0f0f) << 4 * r, 18, up_to_64(b, 18 * count));
        }
        __m512 d = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
        chain = add_sums(chain, sum_eighths(sum), d, x, g);
    }
    __m128 sums = fold_again(fold(chain));
    return _mm_add_ps(sums, _mm_movehdup_ps(sums));
}

static void direct_q2_0(const void *w, int w_rows, const struct quant_act *x, int t, float *y)
{
    struct activations a;
    take_planes(&a, x, t);
    size_t bytes = (size_t)(a.blocks / 2) * 18;
    for (int j = 0; j < w_rows; j += 2) {
        const uint8_t *first = (const uint8_t *)w + (size_t)j * bytes;
        bool is_pair = j + 1 < w_rows;
        __m128 sums = two_rows((const uint8_t *[]){first, is_pair ? first + bytes : first}, &a);
        y[j] = _mm_cvtss_f32(sums);
        if (is_pair)
            y[j + 1] = _mm_cvtss_f32(_mm_movehl_ps(sums, sums));
    }
}

void cpu_set_direct_small_avx512_vbmi(struct cpu_matmul *m)
{
    m->direct_short[TYPE_Q4_0] = direct_q4_0;
    m->direct_short[TYPE_Q8_0] = direct_q8_0;
    m->direct_short[TYPE_IQ4_NL] = direct_iq4_nl;
    m->direct_short[TYPE_Q2_0] = direct_q2_0;
}
