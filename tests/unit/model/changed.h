/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of golden models with keys and tensors changed. */
#ifndef STRATA_TESTS_CHANGED_H
#define STRATA_TESTS_CHANGED_H

#include <stdint.h>

enum change_kind {
    CHANGE_END,
    DROP_KEY,
    SET_NUMBER, /* an unsigned 32-bit key */
    SET_FLOAT,
    SET_TEXT,
    SET_INTS, /* an array of four 32-bit integers */
    DROP_TENSOR,
    SET_SHAPE,  /* of a tensor; its data is cut to fit */
    SET_TYPE,   /* the same */
    MULTIPLY,   /* slice i of an F32 tensor's last dimension by ints[i mod 4] */
    ADD_SCALES, /* a new tensor of floats, `number` of them, ints[i mod 4] each (negative: NaN) */
};

/* One change. `name` is that of a key or tensor; a key the model does not have is added. */
struct change {
    enum change_kind kind;
    const char *name;
    double number;    /* SET_NUMBER, SET_FLOAT, ADD_SCALES; SET_TYPE: the enum tensor_type */
    const char *text; /* SET_TEXT */
    int32_t ints[4];  /* SET_INTS, MULTIPLY, ADD_SCALES; SET_SHAPE (0: no more dimensions) */
};

/* clang-format off */
#define NO_CHANGE {.kind = CHANGE_END}
#define NO_KEY(key) {.kind = DROP_KEY, .name = key}
#define NUMBER(key, value) {.kind = SET_NUMBER, .name = key, .number = value}
#define FLOAT(key, value) {.kind = SET_FLOAT, .name = key, .number = value}
#define TEXT(key, value) {.kind = SET_TEXT, .name = key, .text = value}
#define INTS(key, ...) {.kind = SET_INTS, .name = key, .ints = {__VA_ARGS__}}
#define NO_TENSOR(tensor) {.kind = DROP_TENSOR, .name = tensor}
#define SHAPE(tensor, ...) {.kind = SET_SHAPE, .name = tensor, .ints = {__VA_ARGS__}}
#define TYPE(tensor, value) {.kind = SET_TYPE, .name = tensor, .number = value}
#define TIMES(tensor, ...) {.kind = MULTIPLY, .name = tensor, .ints = {__VA_ARGS__}}
#define SCALES(tensor, count, ...) \
    {.kind = ADD_SCALES, .name = tensor, .number = count, .ints = {__VA_ARGS__}}
/* clang-format on */

/* Writes `model` (a name below fixtures/models) with `changes`, ended by CHANGE_END, to `path`. */
void changed_write(const char *model, const struct change *changes, const char *path);

#endif
