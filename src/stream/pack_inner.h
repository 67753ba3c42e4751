/* SPDX-License-Identifier: Apache-2.0 */
/* What reading and writing of sidecars share. */
#ifndef STRATA_STREAM_PACK_INNER_H
#define STRATA_STREAM_PACK_INNER_H

#include "stream/pack.h"

/* [p->header_bytes], freed with mem_free. */
uint8_t *pack_header(const struct pack *p, uint64_t checksums_hash, struct err *e);
uint64_t pack_largest_record(const struct pack *p);
/* Tells how far it is; false when it is to stop. */
bool pack_went_on(const struct pack_progress *progress, uint64_t done, uint64_t all, struct err *e);

#endif
