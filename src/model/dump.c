/* SPDX-License-Identifier: Apache-2.0 */
#include "model/dump.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

void dump_put(const struct batch *batch, int layer, const char *name, enum dump_type type,
              const void *host, int rows, int n_dims, const int *dims)
{
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "%d.%s", layer, name);
    batch->dump->put(batch->dump->ctx, full, type, host, rows, n_dims, dims);
}

void dump_rows(const struct batch *batch, struct backend *b, int layer, const char *name,
               const float *data, int rows, ...)
{
    if (!batch->dump)
        return;
    int dims[3], n_dims = 0, d;
    size_t count = (size_t)rows;
    va_list ap;
    va_start(ap, rows);
    while (n_dims < 3 && (d = va_arg(ap, int)) != 0) {
        dims[n_dims++] = d;
        count *= (size_t)d;
    }
    va_end(ap);
    /* Dumps are for looking at small models: an allocation here is allowed. */
    float *host = mem_alloc_array(count, sizeof *host, "dump", NULL);
    if (host && b->read(b, host, data, count * sizeof *host, NULL))
        dump_put(batch, layer, name, DUMP_F32, host, rows, n_dims, dims);
    mem_free(host);
}

void dump_host_i32(const struct batch *batch, int layer, const char *name, const int32_t *data,
                   int rows, int width)
{
    if (batch->dump)
        dump_put(batch, layer, name, DUMP_I32, data, rows, 1, &width);
}
