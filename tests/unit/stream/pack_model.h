/* SPDX-License-Identifier: Apache-2.0 */
/* A model of three layers for tests of sidecars: its "file" is a memory file of bytes that follow
 * from their place. */
#ifndef TESTS_PACK_MODEL_H
#define TESTS_PACK_MODEL_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stream/pack.h"

enum { PACK_MODEL_LAYERS = 3, PACK_MODEL_EXPERTS = 5, PACK_MODEL_BYTES = 20000 };

static inline int pack_model_file(void)
{
    int fd = memfd_create("model", 0);
    unsigned char *bytes = malloc(PACK_MODEL_BYTES);
    if (fd < 0 || !bytes)
        abort();
    for (int i = 0; i < PACK_MODEL_BYTES; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    if (write(fd, bytes, PACK_MODEL_BYTES) != PACK_MODEL_BYTES)
        abort();
    free(bytes);
    return fd;
}

/* Layer 0: three parts; layer 1: none; layer 2: two parts. layer: [PACK_MODEL_LAYERS]. */
static inline struct pack pack_model(struct pack_layer *layer, int fd)
{
    memset(layer, 0, PACK_MODEL_LAYERS * sizeof *layer);
    struct pack p = {.layers = PACK_MODEL_LAYERS, .layer = layer};
    memset(p.fingerprint, 0x5a, sizeof p.fingerprint);
    uint64_t at = 13;
    for (int l = 0; l < PACK_MODEL_LAYERS; l += 2) {
        layer[l].parts = l ? 2 : 3;
        layer[l].experts = PACK_MODEL_EXPERTS;
        for (int i = 0; i < layer[l].parts; i++) {
            layer[l].part[i].fd = fd;
            layer[l].part[i].path = "model";
            layer[l].part[i].offset = at;
            layer[l].part[i].bytes = 100 + 50 * (uint64_t)i + (uint64_t)l;
            layer[l].part[i].type = 8;
            at += layer[l].part[i].bytes * PACK_MODEL_EXPERTS;
        }
    }
    return p;
}

#endif
