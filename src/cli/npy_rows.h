/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a .npy file of float32 rows from front to end. */
#ifndef STRATA_CLI_NPY_ROWS_H
#define STRATA_CLI_NPY_ROWS_H

#include "strata.h"

struct npy_rows;

/* A file of at least `rows` rows of exactly `width` float32 values, in C order. Freed with
 * npy_rows_close. */
struct npy_rows *npy_rows_open(const char *path, size_t rows, size_t width, struct strata_error *e);
/* The next n rows. */
bool npy_rows_read(struct npy_rows *f, float *out, size_t n, struct strata_error *e);
void npy_rows_close(struct npy_rows *f);

#endif
