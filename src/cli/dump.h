/* SPDX-License-Identifier: Apache-2.0 */
/* Intermediates of a pass as DIR/NAME.npy. Rows of a name come tile by tile; they are collected in
 * DIR/NAME.npy.part and become an array at the end, when its shape is known. */
#ifndef STRATA_CLI_DUMP_H
#define STRATA_CLI_DUMP_H

#include "strata.h"

struct dump;

/* Makes the folder if there is none. NULL on an error. */
struct dump *dump_create(const char *folder, struct strata_error *e);
/* For struct strata_pass, ctx being the dump. The first failure is kept for dump_finish. */
void dump_take(void *ctx, const char *name, enum strata_element type, const void *data, int rows,
               int n_dims, const int *dims);
/* Writes the arrays. Rows that are narrower than the widest (blocks become more while a prompt is
 * read) are filled up with NaN, 0 or false. */
bool dump_finish(struct dump *d, struct strata_error *e);
/* Also removes what was not finished. */
void dump_free(struct dump *d);

#endif
