/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that the types with blocks of 256 values decode every block of the fixtures bit for bit,
 * and that their integer form stands for exactly the same numbers, whatever the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/tensor_type.h"
#include "quant/quant.h"

struct subject {
    uint32_t type;
    const struct quant_traits *traits;
};

static const struct subject subjects[] = {
    {TYPE_Q2_K, &quant_q2_k},       {TYPE_Q3_K, &quant_q3_k},     {TYPE_Q4_K, &quant_q4_k},
    {TYPE_Q5_K, &quant_q5_k},       {TYPE_Q6_K, &quant_q6_k},     {TYPE_Q8_K, &quant_q8_k},
    {TYPE_IQ2_XXS, &quant_iq2_xxs}, {TYPE_IQ2_XS, &quant_iq2_xs}, {TYPE_IQ2_S, &quant_iq2_s},
    {TYPE_IQ3_XXS, &quant_iq3_xxs}, {TYPE_IQ3_S, &quant_iq3_s},   {TYPE_IQ1_S, &quant_iq1_s},
    {TYPE_IQ1_M, &quant_iq1_m},     {TYPE_IQ4_XS, &quant_iq4_xs}, {TYPE_TQ1_0, &quant_tq1_0},
    {TYPE_TQ2_0, &quant_tq2_0},
};

/* The whole file tests/data/fixtures/quant/NAME.EXTENSION in a buffer of exactly its size, so that
 * the address sanitizer sees a read past the last block. */
static void *fixture(const char *name, const char *extension, size_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/fixtures/quant/%s.%s", TEST_DATA, name, extension);
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

static void decodes_as_in_the_fixtures(void **state)
{
    const struct subject *s = *state;
    const struct tensor_type_info *info = tensor_type_info(s->type);
    size_t bytes, value_bytes;
    uint8_t *blocks = fixture(info->name, "blk.bin", &bytes);
    float *expected = fixture(info->name, "f32.bin", &value_bytes);
    size_t n_blocks = bytes / info->block_bytes;
    assert_true(n_blocks > 0);
    assert_int_equal(bytes % info->block_bytes, 0);
    assert_int_equal(value_bytes, n_blocks * 256 * sizeof(float));
    float *values = malloc(value_bytes);
    assert_non_null(values);
    s->traits->decode(blocks, values, (int64_t)n_blocks);
    for (size_t i = 0; i < 256 * n_blocks; i++) {
        if (isnan(expected[i]) && isnan(values[i]))
            continue;
        if (half_f32_bits(expected[i]) != half_f32_bits(values[i]))
            fail_msg("%s block %zu value %zu: %a, expected %a", info->name, i / 256, i % 256,
                     (double)values[i], (double)expected[i]);
    }
    free(values);
    free(expected);
    free(blocks);
}

static uint64_t random_state = 1;

static uint8_t random_byte(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(random_state >> 56);
}

/* d * w - dmin * m in double has at most one rounding, that to float, as the decoded value. */
static void integer_form_is_the_decoded_value(void **state)
{
    enum { BLOCKS = 3, ROUNDS = 500 };
    const struct subject *s = *state;
    const struct tensor_type_info *info = tensor_type_info(s->type);
    int n = 256 * BLOCKS, finite = 0;
    uint8_t *row = malloc(BLOCKS * info->block_bytes);
    float values[256 * BLOCKS], d[BLOCKS], dmin[BLOCKS];
    int16_t w[256 * BLOCKS], m[16 * BLOCKS];
    struct quant_row form = {.w = w, .d = d, .dmin = dmin, .m = m};
    assert_non_null(row);
    assert_int_equal(s->traits->form, QUANT_INT256);
    for (int round = 0; round < ROUNDS; round++) {
        /* The first rounds are constant bytes, where scales and codes have their extremes. */
        for (int i = 0; i < BLOCKS * info->block_bytes; i++)
            row[i] = round < 256 ? (uint8_t)round : random_byte();
        s->traits->decode(row, values, BLOCKS);
        s->traits->unpack(row, n, &form);
        for (int i = 0; i < n; i++) {
            double value = (double)d[i / 256] * w[i];
            if (s->traits->has_min)
                value -= (double)dmin[i / 256] * m[i / 16];
            finite += isfinite(value);
            if (isfinite(value) ? (float)value != values[i] : isfinite(values[i]))
                fail_msg("%s round %d value %d: %a, decoded %a", info->name, round, i, value,
                         (double)values[i]);
        }
    }
    assert_true(finite > ROUNDS * n / 2);
    free(row);
}

int main(void)
{
    enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };
    struct CMUnitTest tests[2 * SUBJECTS];
    char names[2 * SUBJECTS][64];
    int count = 0;
    for (int i = 0; i < SUBJECTS; i++) {
        const char *name = tensor_type_info(subjects[i].type)->name;
        snprintf(names[count], sizeof names[0], "decodes_as_in_the_fixtures %s", name);
        tests[count] = (struct CMUnitTest){.name = names[count],
                                           .test_func = decodes_as_in_the_fixtures,
                                           .initial_state = (void *)&subjects[i]};
        count++;
        if (subjects[i].traits->form == QUANT_NONE)
            continue;
        snprintf(names[count], sizeof names[0], "integer_form_is_the_decoded_value %s", name);
        tests[count] = (struct CMUnitTest){.name = names[count],
                                           .test_func = integer_form_is_the_decoded_value,
                                           .initial_state = (void *)&subjects[i]};
        count++;
    }
    return _cmocka_run_group_tests("big blocks", tests, (size_t)count, NULL, NULL);
}
