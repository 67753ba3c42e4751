/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

static const struct {
    const char *name;
    uint32_t bytes;
} types[GGUF_TYPES] = {
    [GGUF_U8] = {"u8", 1},        [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},      [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},      [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 8},
    [GGUF_ARRAY] = {"array", 12}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(uint32_t type)
{
    return type < GGUF_TYPES ? types[type].name : "unknown";
}

uint32_t gguf_type_bytes(uint32_t type)
{
    return types[type].bytes;
}

static bool is_signed(uint32_t type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

bool gguf_type_is_integer(uint32_t type)
{
    return is_signed(type) || type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 ||
           type == GGUF_U64;
}

bool gguf_type_is_number(uint32_t type)
{
    return gguf_type_is_integer(type) || type == GGUF_F32 || type == GGUF_F64;
}

bool gguf_number_i64(uint32_t type, uint64_t bits, int64_t *out)
{
    switch (type) {
    case GGUF_I8:
        *out = (int8_t)bits;
        return true;
    case GGUF_I16:
        *out = (int16_t)bits;
        return true;
    case GGUF_I32:
        *out = (int32_t)bits;
        return true;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_BOOL:
    case GGUF_I64:
        *out = (int64_t)bits;
        return true;
    case GGUF_U64:
        *out = (int64_t)bits;
        return bits <= INT64_MAX;
    default:
        return false;
    }
}

bool gguf_number_u64(uint32_t type, uint64_t bits, uint64_t *out)
{
    if (type == GGUF_U64) {
        *out = bits;
        return true;
    }
    int64_t v = 0;
    bool known = gguf_number_i64(type, bits, &v);
    *out = (uint64_t)v;
    return known && v >= 0;
}

double gguf_number_f64(uint32_t type, uint64_t bits)
{
    double d;
    int64_t v = 0;
    switch (type) {
    case GGUF_F32:
        return half_bits_f32((uint32_t)bits);
    case GGUF_F64:
        memcpy(&d, &bits, sizeof d);
        return d;
    case GGUF_U64:
        return (double)bits;
    default:
        gguf_number_i64(type, bits, &v);
        return (double)v;
    }
}

/* Shortest decimal that reads back as the same number. */
static void float_text(char out[GGUF_NUMBER_TEXT], bool is_f32, double v)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, GGUF_NUMBER_TEXT, "%.*g", digits, v);
        double back = strtod(out, NULL);
        if (back == v || (is_f32 && (float)back == (float)v))
            return;
    }
}

const char *gguf_number_text(char out[GGUF_NUMBER_TEXT], uint32_t type, uint64_t bits)
{
    int64_t v = 0;
    if (type == GGUF_F32 || type == GGUF_F64)
        float_text(out, type == GGUF_F32, gguf_number_f64(type, bits));
    else if (type == GGUF_BOOL)
        snprintf(out, GGUF_NUMBER_TEXT, "%s", bits ? "true" : "false");
    else if (gguf_number_i64(type, bits, &v))
        snprintf(out, GGUF_NUMBER_TEXT, "%" PRId64, v);
    else
        snprintf(out, GGUF_NUMBER_TEXT, "%" PRIu64, bits);
    return out;
}
