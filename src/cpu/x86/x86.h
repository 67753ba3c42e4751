/* SPDX-License-Identifier: Apache-2.0 */
/* What each x86 file puts into the tables. Every file of this folder is compiled for the
 * instruction set of its name and has one function here, which may only be called on a machine
 * that has the set; dispatch.c calls them from the lowest set to the highest. */
#ifndef STRATA_CPU_X86_X86_H
#define STRATA_CPU_X86_X86_H

#include "cpu/matmul.h"

void cpu_set_round_avx2(struct cpu_matmul *m);
void cpu_set_round_avx512(struct cpu_matmul *m);
void cpu_set_dot_float_avx2(struct cpu_matmul *m);
void cpu_set_dot_int_avx2(struct cpu_matmul *m);
void cpu_set_unpack_small_avx2(struct cpu_matmul *m);
void cpu_set_unpack_k_avx2(struct cpu_matmul *m);
void cpu_set_unpack_i_avx2(struct cpu_matmul *m);
void cpu_set_direct_k_avx2(struct cpu_matmul *m);
void cpu_set_direct_i_avx2(struct cpu_matmul *m);
void cpu_set_direct_i_avx2_loads(struct cpu_matmul *m); /* the same sources, without gathers */
void cpu_set_unpack_i_avx2_loads(struct cpu_matmul *m);
void cpu_set_tile_i_avx2_loads(struct cpu_matmul *m);
void cpu_set_direct_small_avx2(struct cpu_matmul *m);
void cpu_set_direct_nvfp4_avx2(struct cpu_matmul *m);
void cpu_set_ternary_avx2(struct cpu_matmul *m);
void cpu_set_tile_avx2(struct cpu_matmul *m); /* the pack */
void cpu_set_tile_small_avx2(struct cpu_matmul *m);
void cpu_set_tile_k_avx2(struct cpu_matmul *m);
void cpu_set_tile_i_avx2(struct cpu_matmul *m);
void cpu_set_tile_ternary_avx2(struct cpu_matmul *m);

void cpu_set_dot_float_avx512(struct cpu_matmul *m);
void cpu_set_dot_int_avx512(struct cpu_matmul *m);      /* multiply and add */
void cpu_set_dot_int_avx512_vnni(struct cpu_matmul *m); /* the same source with VNNI */
void cpu_set_direct_k_avx512(struct cpu_matmul *m);
void cpu_set_direct_k_avx512_vnni(struct cpu_matmul *m);
void cpu_set_direct_i_avx512(struct cpu_matmul *m);
void cpu_set_direct_i_avx512_vnni(struct cpu_matmul *m);
void cpu_set_direct_i_avx512_vbmi(struct cpu_matmul *m); /* with VNNI */
void cpu_set_direct_i_avx512_lookup(struct cpu_matmul *m); /* the same source, without gathers */
void cpu_set_tile_i_avx512_lookup(struct cpu_matmul *m);   /* as for VNNI, with VBMI, without gathers */
void cpu_set_direct_small_avx512_vbmi(struct cpu_matmul *m);
void cpu_set_direct_ternary_avx512(struct cpu_matmul *m);
void cpu_set_direct_ternary_avx512_vnni(struct cpu_matmul *m);
void cpu_set_unpack_small_avx512(struct cpu_matmul *m);
void cpu_set_unpack_k_avx512(struct cpu_matmul *m);
void cpu_set_unpack_i_avx512(struct cpu_matmul *m);
void cpu_set_tile_avx512(struct cpu_matmul *m); /* the same sources as for AVX2 */
void cpu_set_tile_small_avx512(struct cpu_matmul *m);
void cpu_set_tile_k_avx512(struct cpu_matmul *m);
void cpu_set_tile_i_avx512(struct cpu_matmul *m);
void cpu_set_tile_ternary_avx512(struct cpu_matmul *m);
void cpu_set_direct_small_avx512_vnni(struct cpu_matmul *m);
void cpu_set_direct_nvfp4_avx512_vnni(struct cpu_matmul *m); /* the same source as for AVX2 */
void cpu_set_tile_avx512_vnni(struct cpu_matmul *m); /* the pack */
void cpu_set_tile_small_avx512_vnni(struct cpu_matmul *m);
void cpu_set_tile_k_avx512_vnni(struct cpu_matmul *m);
void cpu_set_tile_i_avx512_vnni(struct cpu_matmul *m);
void cpu_set_tile_ternary_avx512_vnni(struct cpu_matmul *m);

/* With VNNI, VBMI and the tiles of AMX. */
void cpu_set_amx(struct cpu_matmul *m); /* the pack */
void cpu_set_amx_k(struct cpu_matmul *m);
void cpu_set_amx_i(struct cpu_matmul *m);
void cpu_set_amx_small(struct cpu_matmul *m);
void cpu_set_amx_ternary(struct cpu_matmul *m);

#endif
