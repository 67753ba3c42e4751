/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the tables of kernels: C first, then what each instruction set has. */
#include "cpu/arm/arm.h"
#include "cpu/dot.h"
#include "cpu/matmul.h"
#include "cpu/x86/x86.h"

static void set_c(struct cpu_matmul *m)
{
    *m = (struct cpu_matmul){
        .dot_float =
            {[TYPE_F32] = cpu_dot_f32_c, [TYPE_F16] = cpu_dot_f16_c, [TYPE_BF16] = cpu_dot_bf16_c},
        .dot_int32 = cpu_dot_int_c,
        .dot_int32_min = cpu_dot_int_min_c,
        .dot_int32_d16 = cpu_dot_int_d16_c,
        .dot_int256 = cpu_dot_int_c,
        .dot_int256_min = cpu_dot_int_min_c,
        .round = quant_round_row,
    };
    for (uint32_t type = 0; type < TENSOR_TYPES; type++)
        m->unpack[type] = quant_traits(type)->unpack;
}

#if defined(__x86_64__)
static void set_x86(struct cpu_matmul *m, enum cpu_isa isa, struct cpu_traits traits)
{
    if (isa < CPU_ISA_AVX2)
        return;
    cpu_set_round_avx2(m);
    cpu_set_dot_float_avx2(m);
    cpu_set_dot_int_avx2(m);
    cpu_set_unpack_small_avx2(m);
    cpu_set_unpack_k_avx2(m);
    cpu_set_unpack_i_avx2(m);
    cpu_set_direct_k_avx2(m);
    cpu_set_direct_i_avx2(m);
    if (traits.slow_gather) {
        cpu_set_unpack_i_avx2_loads(m);
        cpu_set_direct_i_avx2_loads(m);
    }
    cpu_set_direct_small_avx2(m);
    cpu_set_direct_nvfp4_avx2(m);
    cpu_set_ternary_avx2(m);
    if (isa < CPU_ISA_AVX512_PLAIN) {
        cpu_set_tile_avx2(m);
        cpu_set_tile_small_avx2(m);
        cpu_set_tile_k_avx2(m);
        cpu_set_tile_i_avx2(m);
        if (traits.slow_gather)
            cpu_set_tile_i_avx2_loads(m);
        cpu_set_tile_ternary_avx2(m);
        return;
    }
    cpu_set_round_avx512(m);
    cpu_set_dot_float_avx512(m);
    cpu_set_unpack_small_avx512(m);
    cpu_set_unpack_k_avx512(m);
    cpu_set_unpack_i_avx512(m);
    if (isa == CPU_ISA_AVX512_PLAIN) {
        cpu_set_dot_int_avx512(m);
        cpu_set_direct_k_avx512(m);
        cpu_set_direct_i_avx512(m);
        cpu_set_direct_ternary_avx512(m);
        cpu_set_tile_avx512(m);
        cpu_set_tile_small_avx512(m);
        cpu_set_tile_k_avx512(m);
        cpu_set_tile_i_avx512(m);
        cpu_set_tile_ternary_avx512(m);
    } else {
        cpu_set_dot_int_avx512_vnni(m);
        cpu_set_direct_k_avx512_vnni(m);
        cpu_set_direct_small_avx512_vnni(m);
        cpu_set_direct_nvfp4_avx512_vnni(m);
        cpu_set_direct_i_avx512_vnni(m);
        cpu_set_direct_ternary_avx512_vnni(m);
        cpu_set_tile_avx512_vnni(m);
        cpu_set_tile_small_avx512_vnni(m);
        cpu_set_tile_k_avx512_vnni(m);
        cpu_set_tile_i_avx512_vnni(m);
        cpu_set_tile_ternary_avx512_vnni(m);
        if (traits.has_vbmi) {
            cpu_set_direct_i_avx512_vbmi(m);
            cpu_set_direct_small_avx512_vbmi(m);
        }
        if (traits.has_vbmi && traits.slow_gather) {
            cpu_set_direct_i_avx512_lookup(m);
            cpu_set_tile_i_avx512_lookup(m);
        }
    }
    if (isa == CPU_ISA_AMX) {
        cpu_set_amx(m);
        cpu_set_amx_k(m);
        cpu_set_amx_i(m);
        cpu_set_amx_small(m);
        cpu_set_amx_ternary(m);
    }
}
#endif

#if defined(__aarch64__)
static void set_arm(struct cpu_matmul *m, enum cpu_isa isa)
{
    if (isa < CPU_ISA_NEON_PLAIN)
        return;
    cpu_set_round_neon(m);
    cpu_set_dot_float_neon(m);
    cpu_set_dot_int_neon(m);
    cpu_set_unpack256_neon(m);
    cpu_set_unpack32_neon(m);
    if (isa == CPU_ISA_NEON_PLAIN) {
        cpu_set_direct256_neon(m);
        cpu_set_direct32_neon(m);
        cpu_set_window256_neon(m);
        cpu_set_window32_neon(m);
        cpu_set_tile_neon(m);
    } else {
        cpu_set_direct256_neon_dot(m);
        cpu_set_direct32_neon_dot(m);
        cpu_set_window256_neon_dot(m);
        cpu_set_window32_neon_dot(m);
        cpu_set_tile_neon_dot(m);
    }
}
#endif

void cpu_matmul_init(struct cpu_matmul *m, enum cpu_isa isa)
{
    cpu_matmul_init_as(m, isa, cpu_traits_here());
}

void cpu_matmul_init_as(struct cpu_matmul *m, enum cpu_isa isa, struct cpu_traits traits)
{
    (void)traits;
    set_c(m);
#if defined(__x86_64__)
    set_x86(m, isa, traits);
#elif defined(__aarch64__)
    set_arm(m, isa);
#endif
}
