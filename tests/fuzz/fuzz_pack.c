/* SPDX-License-Identifier: Apache-2.0 */
/* Sidecars: whatever the bytes are, they are refused, or they are what would be written. Checksums
 * of header and section are made right first, since no mutation would pass them. */
#define _GNU_SOURCE
#include <xxhash.h>

#include "../unit/stream/pack_model.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "fuzz.h"

static void mend(uint8_t *b, size_t size)
{
    uint32_t header = size >= 64 ? bytes_u32(b + 8) : 0;
    if (header < 72 || header > size)
        return;
    uint64_t at = bytes_u64(b + header - 32), n = bytes_u64(b + header - 24);
    if (header >= 104 && at <= size && n <= size - at)
        bytes_put_u64(b + header - 16, XXH3_64bits(b + at, n));
    bytes_put_u64(b + header - 8, XXH3_64bits(b, header - 8));
}

int fuzz_target(const uint8_t *data, size_t size)
{
    static int model = -1;
    if (model < 0)
        model = pack_model_file();
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    mend(copy, size);
    int fd = memfd_create("sidecar", 0);
    fuzz_require(fd >= 0 && write(fd, copy, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct pack_layer layer[PACK_MODEL_LAYERS];
    struct pack p = pack_model(layer, model);
    struct err e;
    err_clear(&e);
    bool ok = pack_open(&p, path, &e);
    fuzz_require(ok == (e.code == ERR_NONE));
    fuzz_require(!ok || (p.file_bytes == size && p.layer[2].first < size));
    if (ok && !pack_verify(&p, path, NULL, &e))
        fuzz_require(e.code == ERR_FORMAT);
    mem_free(p.checksum);
    free(copy);
    close(fd);
    return 0;
}
