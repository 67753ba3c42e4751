/* SPDX-License-Identifier: Apache-2.0 */
/* Products of many activation rows with the tiles of AMX (matmul.h, cpu_panel_fn).
 *
 * A tile instruction multiplies 16 weight rows of 64 bytes with 64 bytes of 16 activation rows, and
 * lanes of its sums are activation rows. Sums are exact, so the bits are those of the C dot product.
 *
 * The 32 weight rows of a panel are taken apart for one chain of blocks (b mod 8) at a time: what
 * that gives stays in the L1 cache while all activation rows pass. Chains are walked in the order of
 * the tree that adds them (i with i + 4, + 2, + 1), so that three partial sums are enough. */
#ifndef STRATA_CPU_X86_AMX_H
#define STRATA_CPU_X86_AMX_H

#include "base/mem.h"
#include "cpu/x86/dot_int.h"
#include "cpu/x86/scales.h"
#include "cpu/x86/x86.h"

#define AMX_ROWS CPU_PANEL_W_ROWS
#define AMX_TILE 1024 /* bytes of a tile */
#define AMX_SUMS (AMX_ROWS * 16)

/* gcc 12 does not say that tile instructions read and write memory. */
#define AMX_FENCE() __asm__ volatile("" ::: "memory")

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3 are sums, 4 and 5 weights, 6 and 7 activations; 64, 32 and 16 values at once. */
extern const struct amx_config cpu_amx_64, cpu_amx_32, cpu_amx_16;

/* What one worker holds of a panel. */
struct amx_panel {
    uint8_t *codes;        /* of one chain, or of all */
    float *d, *dmin;       /* [block][AMX_ROWS] */
    int16_t *m;            /* [block][AMX_ROWS][16 or 8] */
    int32_t *sums;         /* [2][AMX_ROWS][16], or 4 tiles */
    float *chain;          /* [activation tile][AMX_ROWS][16] */
    float *part[3];        /* the same: partial sums */
};

INLINE void amx_place(struct amx_panel *p, uint8_t *memory)
{
    p->sums = (int32_t *)memory;
    memory += 4 * AMX_TILE;
    float *sums = (float *)memory;
    for (int i = 0; i < 3; i++, sums += CPU_PANEL_ROWS / 16 * AMX_SUMS)
        p->part[i] = sums;
    p->chain = sums;
    p->codes = (uint8_t *)(sums + CPU_PANEL_ROWS / 16 * AMX_SUMS);
}

/* The order in which chains are walked. */
static const uint8_t amx_order[8] = {0, 4, 2, 6, 1, 5, 3, 7};

/* What becomes of complete sums of the i-th chain: they begin a partial sum, or are added to one,
 * which may complete others. An unfinished chain is kept where it is. */
enum { AMX_KEEP, AMX_ADD, AMX_ADD_TWO, AMX_ADD_ALL };

INLINE int amx_end_of(int i)
{
    return i % 2 == 0 ? AMX_KEEP : i == 3 ? AMX_ADD_TWO : i == 7 ? AMX_ADD_ALL : AMX_ADD;
}

/* Where the i-th chain is summed for activation tile t. */
INLINE float *amx_chain_at(const struct amx_panel *p, int i, int t)
{
    float *base = i % 2 ? p->chain : i == 6 ? p->part[2] : i == 0 ? p->part[0] : p->part[1];
    return base + (size_t)t * AMX_SUMS;
}

/* The partial sum to which the i-th chain is added. */
INLINE float *amx_sum_at(const struct amx_panel *p, int i, int t)
{
    return p->part[i == 5] + (size_t)t * AMX_SUMS;
}

/* c: the sums at `chain`; sum, second and third: the partial sums of the same place. */
INLINE void amx_put(const int end, float *chain, float *sum, const float *second,
                    const float *third, __m512 c)
{
    if (end == AMX_ADD_ALL)
        c = _mm512_add_ps(_mm512_load_ps(third), c);
    if (end == AMX_ADD_ALL || end == AMX_ADD_TWO)
        c = _mm512_add_ps(_mm512_load_ps(second), c);
    if (end == AMX_KEEP)
        _mm512_store_ps(chain, c);
    else
        _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), c));
}

/* A chain without a block is zero. */
void cpu_amx_empty_chain(const struct amx_panel *p, int i, int tiles);

/* All panels end like this: results [weight row][activation row] to y. */
void cpu_amx_results(const float *part, int w_rows, int rows, float *y, size_t y_stride);

/* Asks for the lines of a block of the next panel. */
INLINE void amx_prefetch(const uint8_t *b, const int block_bytes)
{
    for (int i = 0; i < block_bytes; i += 64)
        _mm_prefetch((const char *)((uintptr_t)b + (uintptr_t)i), _MM_HINT_T1);
}

INLINE int amx_smaller(int a, int b)
{
    return a < b ? a : b;
}

#endif
