/* SPDX-License-Identifier: Apache-2.0 */
/* The element types of GGUF tensors: number, name, block. Source: gguf-and-quants.md section 2.1.
 * What the bytes of a block mean is the business of src/quant. */
#ifndef STRATA_BASE_TENSOR_TYPE_H
#define STRATA_BASE_TENSOR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

enum tensor_type {
    TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q4_1 = 3, TYPE_Q5_0 = 6, TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8, TYPE_Q8_1 = 9, TYPE_Q2_K = 10, TYPE_Q3_K = 11, TYPE_Q4_K = 12, TYPE_Q5_K = 13,
    TYPE_Q6_K = 14, TYPE_Q8_K = 15, TYPE_IQ2_XXS = 16, TYPE_IQ2_XS = 17, TYPE_IQ3_XXS = 18,
    TYPE_IQ1_S = 19, TYPE_IQ4_NL = 20, TYPE_IQ3_S = 21, TYPE_IQ2_S = 22, TYPE_IQ4_XS = 23,
    TYPE_I8 = 24, TYPE_I16 = 25, TYPE_I32 = 26, TYPE_I64 = 27, TYPE_F64 = 28, TYPE_IQ1_M = 29,
    TYPE_BF16 = 30, TYPE_TQ1_0 = 34, TYPE_TQ2_0 = 35, TYPE_MXFP4 = 39, TYPE_NVFP4 = 40,
    TYPE_Q1_0 = 41, TYPE_Q2_0 = 42,
};
#define TENSOR_TYPES 43

struct tensor_type_info {
    const char *name;      /* "Q4_K"; of a removed type its former name; NULL: number never used */
    uint16_t block_values; /* 0: removed or unused */
    uint16_t block_bytes;
    bool is_weight; /* may stand where a model needs a weight matrix */
};

/* Never NULL: numbers that are unknown give an entry without a name. */
const struct tensor_type_info *tensor_type_info(uint32_t type);

/* Bytes of a row of n values; n is a multiple of the block. */
static inline uint64_t tensor_row_bytes(uint32_t type, uint64_t n)
{
    const struct tensor_type_info *t = tensor_type_info(type);
    return n / t->block_values * t->block_bytes;
}

#endif
