/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/quant.h"

static const struct quant_traits *const traits[TENSOR_TYPES] = {
    [TYPE_F32] = &quant_plain_f32,
    [TYPE_F16] = &quant_plain_f16,
    [TYPE_BF16] = &quant_plain_bf16,
    [TYPE_F64] = &quant_plain_f64,
    [TYPE_I8] = &quant_plain_i8,
    [TYPE_I16] = &quant_plain_i16,
    [TYPE_I32] = &quant_plain_i32,
    [TYPE_I64] = &quant_plain_i64,
    [TYPE_Q4_0] = &quant_q4_0,
    [TYPE_Q4_1] = &quant_q4_1,
    [TYPE_Q5_0] = &quant_q5_0,
    [TYPE_Q5_1] = &quant_q5_1,
    [TYPE_Q8_0] = &quant_q8_0,
    [TYPE_Q8_1] = &quant_q8_1,
    [TYPE_IQ4_NL] = &quant_iq4_nl,
    [TYPE_MXFP4] = &quant_mxfp4,
    [TYPE_NVFP4] = &quant_nvfp4,
    [TYPE_Q1_0] = &quant_q1_0,
    [TYPE_Q2_0] = &quant_q2_0,
    [TYPE_Q2_K] = &quant_q2_k,
    [TYPE_Q3_K] = &quant_q3_k,
    [TYPE_Q4_K] = &quant_q4_k,
    [TYPE_Q5_K] = &quant_q5_k,
    [TYPE_Q6_K] = &quant_q6_k,
    [TYPE_Q8_K] = &quant_q8_k,
    [TYPE_IQ2_XXS] = &quant_iq2_xxs,
    [TYPE_IQ2_XS] = &quant_iq2_xs,
    [TYPE_IQ2_S] = &quant_iq2_s,
    [TYPE_IQ3_XXS] = &quant_iq3_xxs,
    [TYPE_IQ3_S] = &quant_iq3_s,
    [TYPE_IQ1_S] = &quant_iq1_s,
    [TYPE_IQ1_M] = &quant_iq1_m,
    [TYPE_IQ4_XS] = &quant_iq4_xs,
    [TYPE_TQ1_0] = &quant_tq1_0,
    [TYPE_TQ2_0] = &quant_tq2_0,
};

const struct quant_traits *quant_traits(uint32_t type)
{
    static const struct quant_traits unknown = {0};
    return type < TENSOR_TYPES && traits[type] ? traits[type] : &unknown;
}

void quant_decode(uint32_t type, const void *blocks, float *out, uint64_t n)
{
    traits[type]->decode(blocks, out, (int64_t)(n / tensor_type_info(type)->block_values));
}
