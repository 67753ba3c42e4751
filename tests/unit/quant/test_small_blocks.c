/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that plain types and types with blocks of 32 to 128 values decode every block of the
 * fixtures bit for bit, that the integer form stands for the same numbers, and that the table knows
 * every type of the format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "quant/quant.h"

static const uint32_t types[] = {
    TYPE_F32,    TYPE_F16,   TYPE_BF16,  TYPE_F64,  TYPE_I8,   TYPE_I16,  TYPE_I32,
    TYPE_I64,    TYPE_Q4_0,  TYPE_Q4_1,  TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0, TYPE_Q8_1,
    TYPE_IQ4_NL, TYPE_MXFP4, TYPE_NVFP4, TYPE_Q1_0, TYPE_Q2_0,
};
#define TYPES (sizeof types / sizeof *types)

/* The whole fixture in a buffer of exactly its size, so that the address sanitizer sees a read past
 * the last block. */
static void *fixture(uint32_t type, const char *extension, size_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/fixtures/quant/%s.%s", TEST_DATA, tensor_type_info(type)->name,
             extension);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s cannot be opened", path);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    void *data = malloc(*bytes);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

static void decode_gives_the_fixtures(void **state)
{
    for (size_t k = 0; k < TYPES; k++) {
        const struct tensor_type_info *info = tensor_type_info(types[k]);
        size_t bytes, value_bytes;
        uint8_t *blocks = fixture(types[k], "blk.bin", &bytes);
        float *expected = fixture(types[k], "f32.bin", &value_bytes);
        size_t n = value_bytes / 4;
        assert_int_equal(bytes / info->block_bytes * info->block_values, n);
        float *values = malloc(value_bytes);
        assert_non_null(values);
        quant_decode(types[k], blocks, values, n);
        for (size_t i = 0; i < n; i++) {
            if (isnan(expected[i]) && isnan(values[i]))
                continue;
            if (half_f32_bits(expected[i]) != half_f32_bits(values[i]))
                fail_msg("%s value %zu: %a, expected %a", info->name, i, (double)values[i],
                         (double)expected[i]);
        }
        free(values);
        free(expected);
        free(blocks);
    }
}

/* Value i of a row from its integer form, in double: at most one rounding away from the decode. */
static double form_value(const struct quant_traits *t, const struct quant_row *row, size_t i)
{
    if (t->has_d16)
        return (double)row->d16[i / 16] * row->w[i];
    double value = (double)row->d[i / 32] * row->w[i];
    return t->has_min ? value - (double)row->dmin[i / 32] * row->m[i / 16] : value;
}

static void integer_form_is_the_decoded_value(void **state)
{
    for (size_t k = 0; k < TYPES; k++) {
        const struct quant_traits *t = quant_traits(types[k]);
        if (t->form != QUANT_INT32)
            continue;
        size_t bytes, value_bytes;
        uint8_t *blocks = fixture(types[k], "blk.bin", &bytes);
        float *values = fixture(types[k], "f32.bin", &value_bytes);
        size_t n = value_bytes / 4, checked = 0;
        struct quant_row row = {malloc(n * 2), malloc(n / 8), malloc(n / 8), malloc(n / 8),
                                malloc(n / 4)};
        assert_true(row.w && row.d && row.dmin && row.m && row.d16);
        t->unpack(blocks, (int)n, &row);
        for (size_t i = 0; i < n; i++) {
            double value = form_value(t, &row, i);
            checked += isfinite(values[i]);
            if (isfinite(values[i]) ? (float)value != values[i] : fabs(value) < 3.4e38)
                fail_msg("%s value %zu: %a, decoded %a", tensor_type_info(types[k])->name, i, value,
                         (double)values[i]);
        }
        assert_true(checked > n / 2);
        free(row.w);
        free(row.d);
        free(row.dmin);
        free(row.m);
        free(row.d16);
        free(values);
        free(blocks);
    }
}

static void every_type_of_the_format_has_a_decoder(void **state)
{
    for (uint32_t type = 0; type < TENSOR_TYPES + 10; type++) {
        const struct tensor_type_info *info = tensor_type_info(type);
        const struct quant_traits *t = quant_traits(type);
        assert_int_equal(t->decode != NULL, info->block_values != 0);
        assert_int_equal(t->form != QUANT_NONE, info->is_weight);
        assert_int_equal(t->unpack != NULL, t->form == QUANT_INT32 || t->form == QUANT_INT256);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_gives_the_fixtures),
        cmocka_unit_test(integer_form_is_the_decoded_value),
        cmocka_unit_test(every_type_of_the_format_has_a_decoder),
    };
    return cmocka_run_group_tests_name("small blocks", tests, NULL, NULL);
}
