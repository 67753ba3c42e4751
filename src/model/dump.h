/* SPDX-License-Identifier: Apache-2.0 */
/* Hands intermediates to a batch's dump_sink, when there is one. */
#ifndef STRATA_MODEL_DUMP_H
#define STRATA_MODEL_DUMP_H

#include "model/model.h"

/* `rows` rows of the given dimensions (ended by 0) of float32 at a backend address. */
void dump_rows(const struct batch *batch, struct backend *b, int layer, const char *name,
               const float *data, int rows, ...);
/* The same for 32-bit integers on the host. */
void dump_host_i32(const struct batch *batch, int layer, const char *name, const int32_t *data,
                   int rows, int width);
/* The name as qwen4exp.md section 7 writes it: "3.attn_out", or without a layer (-1) "out". */
void dump_put(const struct batch *batch, int layer, const char *name, enum dump_type type,
              const void *host, int rows, int n_dims, const int *dims);

#endif
