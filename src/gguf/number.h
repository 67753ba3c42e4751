/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of every GGUF type, given as their bytes zero-extended to 64 bits. */
#ifndef STRATA_GGUF_NUMBER_H
#define STRATA_GGUF_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/gguf.h"

/* Bytes of a value of a known type; of strings and arrays the smallest (their fixed fields). */
uint32_t gguf_type_bytes(uint32_t type);

bool gguf_type_is_integer(uint32_t type); /* bool is none */
bool gguf_type_is_number(uint32_t type);  /* integers, f32, f64 */

/* Value of an integer or bool; false when the type does not hold it. */
bool gguf_number_i64(uint32_t type, uint64_t bits, int64_t *out);
bool gguf_number_u64(uint32_t type, uint64_t bits, uint64_t *out);
/* Value of any number or bool, rounded to nearest where it is wider. */
double gguf_number_f64(uint32_t type, uint64_t bits);

/* The value in decimal, as a message or a listing shows it ("true" for a bool). Returns `out`. */
#define GGUF_NUMBER_TEXT 32
const char *gguf_number_text(char out[GGUF_NUMBER_TEXT], uint32_t type, uint64_t bits);

#endif
