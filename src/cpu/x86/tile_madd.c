/* SPDX-License-Identifier: Apache-2.0 */
/* Prefill tiles by multiply and add (tile_madd.h), eight weight rows times 16 activation rows.
 * Lanes are activation rows, so nothing is added across lanes. Chains are in memory: AVX2 has 16
 * registers, which hold the sums of one block. */
#include "cpu/x86/tile_madd.h"

#include <string.h>

#include "base/mem.h"

#define CHAINS 8

/* What a form of rows has. Constant in each kernel. */
struct form {
    int block;
    int offset;     /* that codes are stored with */
    int together;   /* sums of two products that are added in 16 bits */
    int min_values; /* codes of a minimum; 0: none */
    bool halves;    /* a float scale for each 16 codes */
    bool wide;      /* signed codes to 128 */
};

/* Eight rows of eight dwords: rows become columns. */
INLINE void transpose8(__m256i *v)
{
    __m256i t[8], u[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    /* u[4 i + c], 128-bit lane L: column 4 L + c of rows 4 i to 4 i + 3 */
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        v[c] = _mm256_permute2x128_si256(u[c], u[4 + c], 0x20);
        v[4 + c] = _mm256_permute2x128_si256(u[c], u[4 + c], 0x31);
    }
}

/* --- activations --- */

/* The row of lane r of a tile; lanes without a row repeat the last. */
static inline size_t row_of(int t0, int rows, int r)
{
    return (size_t)(t0 + (r < rows ? r : rows - 1));
}

/* `count` dwords (a multiple of eight) of rows r0 to r0 + 7, `stride` apart, to out[dword][row]. */
static void pack_dwords(const void *from, size_t stride, int count, int t0, int rows, int r0,
                        void *out)
{
    for (int i = 0; i < count; i += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++)
            v[r] = load_bytes((const int32_t *)from + row_of(t0, rows, r0 + r) * stride + i);
        transpose8(v);
        for (int j = 0; j < 8; j++)
            _mm256_store_si256((__m256i *)((int32_t *)out + (i + j) * 16 + r0), v[j]);
    }
}

/* 32 codes as bytes, in the order of weight rows. */
INLINE __m256i load_codes(const int16_t *q)
{
    return weave_words(_mm256_packs_epi16(load16(q), load16(q + 16)));
}

/* Rows r0 to r0 + 7 of the tile. */
static void pack_eight(const struct quant_act *x, int t0, int rows, int r0,
                       struct cpu_tile_acts *out)
{
    size_t stride = (size_t)x->stride;
    for (int k = 0; k < x->n; k += 32) {
        __m256i v[8];
        for (int r = 0; r < 8; r++)
            v[r] = load_codes(codes_of(x, (int)row_of(t0, rows, r0 + r)) + k);
        transpose8(v);
        for (int j = 0; j < 8; j++)
            _mm256_store_si256((__m256i *)(out->q + 16 * k + 64 * j + 4 * r0), v[j]);
    }
    int sums = (int)mem_round_up((size_t)(x->n / 32), 8);
    pack_dwords(x->bsum, stride / 32, sums, t0, rows, r0, out->bsum16);
    if (x->block == 32) {
        pack_dwords(x->d, stride / 32, sums, t0, rows, r0, out->d);
        return;
    }
    for (int b = 0; b < x->n / 256; b++) {
        for (int r = r0; r < r0 + 8; r++)
            out->d[16 * b + r] = scales_of(x, (int)row_of(t0, rows, r))[b];
    }
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < x->n / 64; i++) {
        const int16_t *from = out->bsum16 + 64 * i + 2 * r0;
        __m256i even = _mm256_madd_epi16(load16(from), ones);
        __m256i odd = _mm256_madd_epi16(load16(from + 32), ones);
        even = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
        _mm256_store_si256((__m256i *)(out->bsum32 + 32 * i + 2 * r0), even);
    }
}

static void pack(const struct quant_act *x, int t0, int rows, struct cpu_tile_acts *out)
{
    pack_eight(x, t0, rows, 0, out);
    if (rows > 8) /* as multiply */
        pack_eight(x, t0, rows, 8, out);
}

/* --- products --- */

#define LANES 8
#define X_REGS 2
#include "cpu/x86/tile_madd_products.h"
#define LANES 8
#define X_REGS 1
#include "cpu/x86/tile_madd_products.h"
#ifdef __AVX512BW__
#define LANES 16
#define X_REGS 1
#include "cpu/x86/tile_madd_products.h"
#endif

/* Chains i with i + 4, + 2, + 1, of activation rows t to t + 7 and weight row r. */
INLINE __m256i add_chains(float (*chains)[CPU_TILE_W_ROWS][CPU_TILE_ROWS], int r, int t)
{
    __m256 s[4];
    for (int p = 0; p < 4; p++)
        s[p] = _mm256_add_ps(_mm256_load_ps(chains[p][r] + t), _mm256_load_ps(chains[p + 4][r] + t));
    return _mm256_castps_si256(_mm256_add_ps(_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[1], s[3])));
}

INLINE void multiply(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,
                     const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride,
                     const struct form f)
{
    _Alignas(64) float chains[CHAINS][CPU_TILE_W_ROWS][CPU_TILE_ROWS];
    if (rows <= 8)
        multiply_8(w, w_rows, l, x, chains, f);
#ifdef __AVX512BW__
    else if (!f.wide)
        multiply_one16(w, w_rows, l, x, chains, f);
#endif
    else
        multiply_16(w, w_rows, l, x, chains, f);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(w_rows), lane);
    for (int t = 0; t < rows; t += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++)
            v[r] = add_chains(chains, r, t);
        transpose8(v);
        for (int i = 0; i < 8 && t + i < rows; i++)
            _mm256_maskstore_ps(y + (size_t)(t + i) * y_stride, there, _mm256_castsi256_ps(v[i]));
    }
}

#define PRODUCT(name, ...)                                                                  \
    void TILE(name)(const uint8_t *w, int w_rows, const struct cpu_tile_layout *l,          \
                    const struct cpu_tile_acts *x, int rows, float *y, size_t y_stride)     \
    {                                                                                       \
        multiply(w, w_rows, l, x, rows, y, y_stride, (struct form){__VA_ARGS__});           \
    }

PRODUCT(32, .block = 32, .offset = 16, .together = 8)
PRODUCT(32_halves, .block = 32, .offset = 16, .together = 8, .halves = true)
PRODUCT(32_min, .block = 32, .together = 4, .min_values = 32)
PRODUCT(32_wide, .block = 32, .together = 1, .wide = true)
PRODUCT(256, .block = 256, .offset = 16, .together = 8)
PRODUCT(256_32, .block = 256, .offset = 32, .together = 2)
PRODUCT(256_64, .block = 256, .offset = 64, .together = 1)
PRODUCT(256_wide, .block = 256, .together = 1, .wide = true)
PRODUCT(256_min16, .block = 256, .together = 8, .min_values = 16)
PRODUCT(256_min32, .block = 256, .together = 8, .min_values = 32)
PRODUCT(256_min32_31, .block = 256, .together = 4, .min_values = 32)

#ifdef __AVX512BW__
void cpu_set_tile_avx512(struct cpu_matmul *m)
#else
void cpu_set_tile_avx2(struct cpu_matmul *m)
#endif
{
    m->tile_pack = pack;
}
