/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters: metadata keys `ARCH.NAME` with their ranges checked, so that no later product of
 * sizes can overflow. */
#ifndef STRATA_MODEL_HPARAMS_H
#define STRATA_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"

#define HPARAM_LAYERS_MOST 4096
#define HPARAM_SIZE_MOST (1 << 24) /* any width, count or vocabulary */
/* What backends take at most; several times what any model has. */
#define HPARAM_TAPS_MOST 32      /* of a convolution */
#define HPARAM_ROTATED_MOST 512  /* values of a head that turn */
#define HPARAM_EXPERTS_MOST 4096 /* with more than 16384 the sum of the chosen routing weights could
                                    fall below the 2^-14 of other-archs.md 4.5, which needs care */

struct hparams {
    const struct gguf_file *file;
    const char *arch;
    struct err *e; /* first error wins; the getters then give the least allowed value */
};

/* A required integer in least..most. */
int hparam_int(struct hparams *h, const char *name, int64_t least, int64_t most);
/* An optional one; `missing` when the file has none. */
int hparam_int_or(struct hparams *h, const char *name, int64_t least, int64_t most, int missing);
/* A required float above 0. */
float hparam_positive(struct hparams *h, const char *name);
/* A required finite float. */
float hparam_float(struct hparams *h, const char *name);
/* "ARCH.NAME" into out. */
void hparam_key(const struct hparams *h, const char *name, char *out, size_t bytes);
bool hparam_has(const struct hparams *h, const char *name);
/* n integers (an array, or one number for all), each in least..most. */
void hparam_ints(struct hparams *h, const char *name, int n, int64_t least, int64_t most, int *out);
/* The largest of n such integers: head counts, where layers without heads may say 0. */
int hparam_largest(struct hparams *h, const char *name, int n, int64_t least, int64_t most);
/* The first n of an array of unsigned 64-bit integers that may be longer. */
void hparam_u64s(struct hparams *h, const char *name, int n, uint64_t *out);
/* Number of elements of an array key; 1 for a single number, 0 when missing. */
int hparam_count(const struct hparams *h, const char *name);

/* "FILE: key "ARCH.NAME": WHAT". Always false. */
bool hparam_refuse(struct hparams *h, const char *name, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

#endif
