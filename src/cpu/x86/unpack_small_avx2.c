/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking of the types with blocks of 32, 64 and 128 values with AVX2. Layouts:
 * gguf-and-quants.md section 2.4. Nothing outside the row's bytes is read. */
#include "cpu/x86/unpack_small.h"
#include "quant/float_scales.h"

/* 32 signed bytes, to 16 bits each. */
static inline void store32(int16_t *w, __m256i q)
{
    _mm256_storeu_si256((__m256i *)w, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)));
    _mm256_storeu_si256((__m256i *)(w + 16), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)));
}

/* Byte i is ff where bit i of h is set. */
static inline __m256i bits_to_bytes(uint32_t h)
{
    __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)h), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

static inline __m256i look_up(__m256i index, const int8_t *table)
{
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}

static const int8_t values_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t values_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void unpack_q4_0(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 18) {
        x86_prefetch_ahead(b, 18);
        store32(row->w + 32 * k, _mm256_sub_epi8(nibbles(b + 2), _mm256_set1_epi8(8)));
        row->d[k] = x86_half_at(b);
    }
}

/* The minimum is subtracted in the product, hence its sign. */
static inline void store_minimum(struct quant_row *row, int k, float minimum)
{
    row->dmin[k] = -minimum;
    row->m[2 * k] = row->m[2 * k + 1] = 1;
}

static void unpack_q4_1(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 20) {
        x86_prefetch_ahead(b, 20);
        store32(row->w + 32 * k, nibbles(b + 4));
        row->d[k] = x86_half_at(b);
        store_minimum(row, k, x86_half_at(b + 2));
    }
}

static void unpack_q5_0(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 22) {
        x86_prefetch_ahead(b, 22);
        /* low + 16 - 16 where the bit is set, low - 16 = low | f0 elsewhere */
        __m256i high = _mm256_andnot_si256(bits_to_bytes(bytes_u32(b + 2)), _mm256_set1_epi8(-16));
        store32(row->w + 32 * k, _mm256_or_si256(nibbles(b + 6), high));
        row->d[k] = x86_half_at(b);
    }
}

static void unpack_q5_1(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 24) {
        x86_prefetch_ahead(b, 24);
        __m256i high = _mm256_and_si256(bits_to_bytes(bytes_u32(b + 4)), _mm256_set1_epi8(16));
        store32(row->w + 32 * k, _mm256_or_si256(nibbles(b + 8), high));
        row->d[k] = x86_half_at(b);
        store_minimum(row, k, x86_half_at(b + 2));
    }
}

static void unpack_q8_0(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 34) {
        x86_prefetch_ahead(b, 34);
        store32(row->w + 32 * k, _mm256_loadu_si256((const __m256i *)(b + 2)));
        row->d[k] = x86_half_at(b);
    }
}

static void unpack_iq4_nl(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 18) {
        x86_prefetch_ahead(b, 18);
        store32(row->w + 32 * k, look_up(nibbles(b + 2), values_iq4_nl));
        row->d[k] = x86_half_at(b);
    }
}

static void unpack_mxfp4(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 17) {
        x86_prefetch_ahead(b, 17);
        store32(row->w + 32 * k, look_up(nibbles(b + 1), values_fp4));
        row->d[k] = quant_scale_mxfp4(b[0]);
    }
}

static void unpack_nvfp4(const uint8_t *b, int n, struct quant_row *row)
{
    for (int i = 0; i < n; i += 64, b += 36) {
        x86_prefetch_ahead(b, 36);
        for (int half = 0; half < 2; half++) {
            /* low nibbles of 16 bytes, then high ones; eight of each belong together */
            __m256i q = _mm256_permute4x64_epi64(nibbles(b + 4 + 16 * half), 0xd8);
            store32(row->w + i + 32 * half, look_up(q, values_fp4));
        }
        for (int s = 0; s < 4; s++)
            row->d16[i / 16 + s] = quant_scale_nvfp4(b[s]);
    }
}

static void unpack_q1_0(const uint8_t *b, int n, struct quant_row *row)
{
    __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi8(-1);
    for (int i = 0; i < n; i += 128, b += 18) {
        x86_prefetch_ahead(b, 18);
        for (int part = 0; part < 4; part++) {
            __m256i set = bits_to_bytes(bytes_u32(b + 2 + 4 * part));
            store32(row->w + i + 32 * part, _mm256_or_si256(_mm256_xor_si256(set, ones), one));
            row->d[i / 32 + part] = x86_half_at(b);
        }
    }
}

static void unpack_q2_0(const uint8_t *b, int n, struct quant_row *row)
{
    /* 16 values come from four bytes: value i from byte i / 4, multiplied so that its two bits
     * are bits 6 and 7. */
    __m256i byte = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1, 2, -1,
                                    2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1);
    __m256i factor = _mm256_set1_epi64x(0x0001000400100040);
    __m256i three = _mm256_set1_epi16(3), one = _mm256_set1_epi16(1);
    for (int i = 0; i < n; i += 64, b += 18) {
        x86_prefetch_ahead(b, 18);
        for (int s = 0; s < 4; s++) {
            __m256i v = _mm256_set1_epi32((int)bytes_u32(b + 2 + 4 * s));
            v = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, byte), factor);
            v = _mm256_and_si256(_mm256_srli_epi16(v, 6), three);
            _mm256_storeu_si256((__m256i *)(row->w + i + 16 * s), _mm256_sub_epi16(v, one));
        }
        row->d[i / 32] = row->d[i / 32 + 1] = x86_half_at(b);
    }
}

void cpu_set_unpack_small_avx2(struct cpu_matmul *m)
{
    m->unpack[TYPE_Q4_0] = unpack_q4_0;
    m->unpack[TYPE_Q4_1] = unpack_q4_1;
    m->unpack[TYPE_Q5_0] = unpack_q5_0;
    m->unpack[TYPE_Q5_1] = unpack_q5_1;
    m->unpack[TYPE_Q8_0] = unpack_q8_0;
    m->unpack[TYPE_IQ4_NL] = unpack_iq4_nl;
    m->unpack[TYPE_MXFP4] = unpack_mxfp4;
    m->unpack[TYPE_NVFP4] = unpack_nvfp4;
    m->unpack[TYPE_Q1_0] = unpack_q1_0;
    m->unpack[TYPE_Q2_0] = unpack_q2_0;
}
