/* SPDX-License-Identifier: Apache-2.0 */
/* The sidecar (docs/formats.md, `STRPCK01`): the experts of a model once more, each record in one
 * piece at a multiple of 4,096 bytes, so that one read brings it, without waste.
 *
 * Where everything lies is a function of the model alone, so a header is checked by comparing it
 * with the one that would be written. A pack that was killed goes on after its last finished layer;
 * the final name appears only when all of it is synced. */
#ifndef STRATA_STREAM_PACK_H
#define STRATA_STREAM_PACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define PACK_PARTS 3
#define PACK_ALIGN 4096

struct pack_layer {
    int experts, parts; /* 0: the layer has none */
    struct {
        /* From the model: expert e lies in the file at offset + e * bytes. */
        int fd;
        const char *path;
        uint64_t offset, bytes;
        uint32_t type;
        uint64_t at; /* in the record; filled in by pack_lay_out, like the fields below */
    } part[PACK_PARTS];
    uint64_t record_bytes, first; /* padded; offset of expert 0 in the sidecar */
};

struct pack {
    uint8_t fingerprint[16];
    int layers, experts;      /* experts: of the layer that has most */
    struct pack_layer *layer; /* [layers]; the caller's */
    bool has_checksums;
    uint64_t header_bytes, checksums_at, file_bytes;
    uint64_t
        *checksum; /* xxh3-64 of the records, [layers][experts]; only after pack_open; mem_free */
};

/* Fills in where everything lies, from the layers' parts and has_checksums. */
bool pack_lay_out(struct pack *p, struct err *e);

struct pack_progress {
    void *ctx;
    void (*done)(void *ctx, uint64_t bytes, uint64_t all); /* NULL: nobody wants to know */
    const atomic_bool *cancel;                             /* NULL: never */
};

/* Writes the sidecar of a laid-out `p`, or goes on with one that was left unfinished. Only one
 * process at a time; a disk with too little room is refused before anything is written. */
bool pack_write(struct pack *p, const char *path, const struct pack_progress *progress,
                struct err *e);

/* Whether the file at `path` is the sidecar of this model: header, size, checksums of sections.
 * Sets p->has_checksums and lays `p` out as the file is. */
bool pack_open(struct pack *p, const char *path, struct err *e);

/* Compares every record with the model. `p` is as pack_open left it. */
bool pack_verify(struct pack *p, const char *path, const struct pack_progress *progress,
                 struct err *e);

/* The record of an expert as the sidecar has it, read from the model: [record_bytes], aligned or
 * not. */
bool pack_read_record(const struct pack *p, int layer, int expert, uint8_t *to, struct err *e);
uint64_t pack_checksum(const struct pack *p, int layer, const void *record);

#endif
