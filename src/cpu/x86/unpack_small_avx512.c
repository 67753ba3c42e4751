/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking of the types with blocks of 32 and 64 values with AVX-512, where it needs fewer
 * instructions than AVX2: 32 codes are one store, bits are mask registers. Nothing outside the
 * row's bytes is read. */
#include "cpu/x86/unpack_small.h"

/* 32 signed bytes, to 16 bits each. */
static inline void store32(int16_t *w, __m256i q)
{
    _mm512_storeu_si512(w, _mm512_cvtepi8_epi16(q));
}

static void unpack_q4_0(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 18) {
        x86_prefetch_ahead(b, 18);
        store32(row->w + 32 * k, _mm256_sub_epi8(nibbles(b + 2), _mm256_set1_epi8(8)));
        row->d[k] = x86_half_at(b);
    }
}

static void unpack_q5_0(const uint8_t *b, int n, struct quant_row *row)
{
    for (int k = 0; k < n / 32; k++, b += 22) {
        x86_prefetch_ahead(b, 22);
        __m256i low = nibbles(b + 6);
        __mmask32 clear = ~bytes_u32(b + 2); /* low - 16 = low | f0 where the fifth bit is clear */
        __m256i minus16 = _mm256_maskz_set1_epi8(clear, -16);
        store32(row->w + 32 * k, _mm256_or_si256(low, minus16));
        row->d[k] = x86_half_at(b);
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
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
    for (int k = 0; k < n / 32; k++, b += 18) {
        x86_prefetch_ahead(b, 18);
        store32(row->w + 32 * k, _mm256_shuffle_epi8(table, nibbles(b + 2)));
        row->d[k] = x86_half_at(b);
    }
}

static void unpack_q2_0(const uint8_t *b, int n, struct quant_row *row)
{
    /* Four copies of a byte as 16-bit lanes, shifted by 0, 2, 4 and 6. */
    const __m512i shift = _mm512_set1_epi64(0x0006000400020000);
    const __m512i copies = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 8, -1, 8, -1, 8, -1, 8, -1));
    const __m512i three = _mm512_set1_epi16(3), one = _mm512_set1_epi16(1);
    for (int i = 0; i < n; i += 64, b += 18) {
        x86_prefetch_ahead(b, 18);
        __m128i c = _mm_loadu_si128((const __m128i *)(b + 2));
        for (int half = 0; half < 2; half++) {
            __m512i v = _mm512_cvtepu8_epi64(half ? _mm_srli_si128(c, 8) : c);
            v = _mm512_srlv_epi16(_mm512_shuffle_epi8(v, copies), shift);
            v = _mm512_sub_epi16(_mm512_and_si512(v, three), one);
            _mm512_storeu_si512(row->w + i + 32 * half, v);
        }
        row->d[i / 32] = row->d[i / 32 + 1] = x86_half_at(b);
    }
}

void cpu_set_unpack_small_avx512(struct cpu_matmul *m)
{
    m->unpack[TYPE_Q4_0] = unpack_q4_0;
    m->unpack[TYPE_Q5_0] = unpack_q5_0;
    m->unpack[TYPE_Q8_0] = unpack_q8_0;
    m->unpack[TYPE_IQ4_NL] = unpack_iq4_nl;
    m->unpack[TYPE_Q2_0] = unpack_q2_0;
}
