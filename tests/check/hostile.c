/* SPDX-License-Identifier: Apache-2.0 */
/* Weight blocks of any bytes with the scales that kernels are most likely to treat apart. */
#include "base/tensor_type.h"
#include "check.h"

#include <string.h>

enum form { HALF, BFLOAT, FLOAT, BYTES, SPREAD /* IQ1_M: over the upper bits of four words */ };

/* The scales of a block; those of float types are their values. */
struct scales {
    enum form form;
    int count, at[2];
};

static struct scales scales_of(uint32_t type)
{
    switch (type) {
    case TYPE_F32:
        return (struct scales){FLOAT, 1, {0}};
    case TYPE_BF16:
        return (struct scales){BFLOAT, 1, {0}};
    case TYPE_MXFP4:
        return (struct scales){BYTES, 1, {0}};
    case TYPE_NVFP4:
        return (struct scales){BYTES, 4, {0}};
    case TYPE_Q4_1:
    case TYPE_Q5_1:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
        return (struct scales){HALF, 2, {0, 2}};
    case TYPE_Q2_K:
        return (struct scales){HALF, 2, {80, 82}};
    case TYPE_Q3_K:
        return (struct scales){HALF, 1, {108}};
    case TYPE_Q6_K:
        return (struct scales){HALF, 1, {208}};
    case TYPE_TQ1_0:
        return (struct scales){HALF, 1, {52}};
    case TYPE_TQ2_0:
        return (struct scales){HALF, 1, {64}};
    case TYPE_IQ1_M:
        return (struct scales){SPREAD, 1, {48}};
    default:
        return (struct scales){HALF, 1, {0}};
    }
}

enum kind { ORDINARY, DENORMAL, ZERO, LARGEST, MIXED, INFINITE, NOT_A_NUMBER, KINDS };

static uint16_t half_of(struct check *c, enum kind kind)
{
    static const uint16_t halves[KINDS][4] = {
        [DENORMAL] = {0x0001, 0x8001, 0x03ff, 0x8200},
        [ZERO] = {0x0000, 0x8000, 0x8000, 0x0000},
        [LARGEST] = {0x7bff, 0xfbff, 0x7800, 0xf801},
        [MIXED] = {0x3c00, 0x8001, 0x7bff, 0x8000},
        [INFINITE] = {0x7c00, 0xfc00, 0x7c00, 0x3c00},
        [NOT_A_NUMBER] = {0x7e00, 0xfc01, 0x7fff, 0xffff},
    };
    return kind == ORDINARY ? (uint16_t)(check_u32(c) & 0xbfff) : halves[kind][check_below(c, 4)];
}

/* The same of a float32, by its upper half, which is a BF16. */
static uint16_t bfloat_of(struct check *c, enum kind kind)
{
    static const uint16_t halves[KINDS][4] = {
        [DENORMAL] = {0x0001, 0x8001, 0x007f, 0x8040},
        [ZERO] = {0x0000, 0x8000, 0x8000, 0x0000},
        [LARGEST] = {0x7f7f, 0xff7f, 0x7f00, 0xff01},
        [MIXED] = {0x3f80, 0x8001, 0x7f7f, 0x8000},
        [INFINITE] = {0x7f80, 0xff80, 0x7f80, 0x3f80},
        [NOT_A_NUMBER] = {0x7fc0, 0xff81, 0x7fff, 0xffff},
    };
    return kind == ORDINARY ? (uint16_t)(check_u32(c) & 0xbfff) : halves[kind][check_below(c, 4)];
}

/* Scales of one byte are all finite: those that a kernel could take for something else. */
static uint8_t byte_of(struct check *c, enum kind kind)
{
    static const uint8_t bytes[] = {0, 1, 2, 7, 8, 0x7e, 0x7f, 0x80, 0x81, 0xfd, 0xfe, 0xff};
    return kind == ORDINARY ? (uint8_t)check_u32(c) : bytes[check_below(c, sizeof bytes)];
}

static void put_u16(uint8_t *b, unsigned v)
{
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

/* Scale i of the block at b. */
static void put_scale(struct check *c, const struct scales *s, int i, enum kind kind, uint8_t *b)
{
    unsigned half;
    switch (s->form) {
    case HALF:
        put_u16(b + s->at[i], half_of(c, kind));
        break;
    case BFLOAT:
        put_u16(b, bfloat_of(c, kind));
        break;
    case FLOAT:
        put_u16(b + 2, bfloat_of(c, kind));
        if (kind == ZERO || kind == INFINITE)
            put_u16(b, 0);
        break;
    case BYTES:
        b[i] = byte_of(c, kind);
        break;
    case SPREAD:
        half = half_of(c, kind);
        for (int k = 0; k < 4; k++) {
            uint8_t *high = b + s->at[0] + 2 * k + 1;
            *high = (uint8_t)((*high & 15) | (half >> 4 * k & 15) << 4);
        }
    }
}

void check_fill_hostile(struct check *c, uint32_t type, uint8_t *blocks, int n)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    const struct scales s = scales_of(type);
    bool is_float = info->block_values == 1;
    enum kind kind = ORDINARY;
    for (int i = 0; i < n; i += info->block_values, blocks += info->block_bytes) {
        if (i == 0 || !check_below(c, is_float ? 32 : 4)) /* runs of one kind */
            kind = (enum kind)check_below(c, check_below(c, 40) ? INFINITE : KINDS);
        if (kind >= INFINITE && is_float && check_below(c, 32))
            kind = (enum kind)check_below(c, INFINITE);
        check_fill_bytes(c, blocks, info->block_bytes);
        if (!check_below(c, 4)) {
            int same = check_below(c, 2) ? 0xff : check_below(c, 2) ? 0x80 : 0;
            memset(blocks, same, info->block_bytes);
        }
        for (int k = 0; k < s.count; k++)
            put_scale(c, &s, k, kind, blocks);
    }
}
