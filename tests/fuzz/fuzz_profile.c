/* SPDX-License-Identifier: Apache-2.0 */
/* Popularity profiles: whatever the bytes are, reading refuses and changes nothing, or gives counts
 * that writing turns into the same file. The checksums are made right first, since no mutation would
 * pass them. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "fuzz.h"
#include "stream/profile.h"

enum { LAYERS = 3, RECORDS = 13, HEADER = 88, SECTION = 4 * (LAYERS + RECORDS) };

/* The model of tests/data/own/profile/small.strata-pop. */
static const int experts[LAYERS] = {5, 0, 8};

static void check_written(struct profile *p, const uint8_t *data, size_t size)
{
    static const char path[] = "./fuzz-profile-written";
    struct err e;
    err_clear(&e);
    size_t bytes;
    fuzz_require(profile_write(path, p, &e));
    char *again = file_read_all(path, 1 << 16, &bytes, &e);
    fuzz_require(again && bytes == size && !memcmp(again, data, size));
    mem_free(again);
    unlink(path);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    static uint8_t copy[1 << 16];
    static unsigned read;
    if (size > sizeof copy)
        return 0;
    memcpy(copy, data, size);
    if (size >= HEADER + SECTION) {
        bytes_put_u64(copy + 72, XXH3_64bits(copy + HEADER, SECTION));
        bytes_put_u64(copy + 80, XXH3_64bits(copy, 80));
    }
    int fd = memfd_create("profile", 0);
    fuzz_require(fd >= 0 && write(fd, copy, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uint32_t counts[RECORDS];
    memset(counts, 0xab, sizeof counts);
    struct profile p = {
        .fingerprint = "fingerprint-1234", .layers = LAYERS, .experts = experts, .tokens = 5, .counts = counts};
    struct err e;
    err_clear(&e);
    bool ok = profile_read(path, &p, &e);
    close(fd);
    fuzz_require(ok == (e.code == ERR_NONE));
    if (!ok) {
        fuzz_require(p.tokens == 5);
        for (int i = 0; i < RECORDS; i++)
            fuzz_require(counts[i] == 0xabababab);
    } else if (read++ % 256 == 0) { /* writing waits for the disk */
        check_written(&p, copy, size);
    }
    return 0;
}
