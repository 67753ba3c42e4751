/* SPDX-License-Identifier: Apache-2.0 */
/* What all panels share. */
#include "cpu/x86/amx.h"
#include "cpu/x86/tile_avx512.h"

const struct amx_config cpu_amx_64 = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

const struct amx_config cpu_amx_32 = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 8, 8},
};

const struct amx_config cpu_amx_16 = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 16, 16, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 4, 4},
};

void cpu_amx_empty_chain(const struct amx_panel *p, int i, int tiles)
{
    for (int t = 0; t < tiles; t++) {
        float *chain = amx_chain_at(p, i, t), *sum = amx_sum_at(p, i, t);
        const float *second = p->part[1] + (size_t)t * AMX_SUMS;
        const float *third = p->part[2] + (size_t)t * AMX_SUMS;
        for (int k = 0; k < AMX_SUMS; k += 16) {
            const __m512 zero = _mm512_setzero_ps();
            if (amx_end_of(i) == AMX_KEEP)
                amx_put(AMX_KEEP, chain + k, sum + k, second + k, third + k, zero);
            else if (amx_end_of(i) == AMX_ADD)
                amx_put(AMX_ADD, chain + k, sum + k, second + k, third + k, zero);
            else if (amx_end_of(i) == AMX_ADD_TWO)
                amx_put(AMX_ADD_TWO, chain + k, sum + k, second + k, third + k, zero);
            else
                amx_put(AMX_ADD_ALL, chain + k, sum + k, second + k, third + k, zero);
        }
    }
}

void cpu_amx_results(const float *part, int w_rows, int rows, float *y, size_t y_stride)
{
    for (int t = 0; t < rows; t += 16, part += AMX_SUMS) {
        for (int r = 0; r < w_rows; r += 16) {
            int columns = amx_smaller(16, w_rows - r);
            __mmask16 there = (__mmask16)((1u << columns) - 1);
            __m512i v[16];
            for (int i = 0; i < 16; i++)
                v[i] = _mm512_castps_si512(_mm512_load_ps(part + 16 * (r + i)));
            transpose16(v);
            for (int i = 0; i < 16 && t + i < rows; i++)
                _mm512_mask_storeu_epi32(y + (size_t)(t + i) * y_stride + r, there, v[i]);
        }
    }
}

void cpu_set_amx(struct cpu_matmul *m)
{
    m->tile_pack = cpu_tile_pack_signed;
    memset(m->tile, 0, sizeof m->tile);
}
