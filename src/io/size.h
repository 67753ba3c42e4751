/* SPDX-License-Identifier: Apache-2.0 */
/* SIZE of commands.md section 1: "1.5G". */
#ifndef STRATA_IO_SIZE_H
#define STRATA_IO_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decimal number, with a fraction if one likes, then K, M, G or T for powers of 1024, or nothing
 * for bytes; the n bytes at `text` exactly. Rounds down. False: not a size, or 2^63 bytes and more.
 */
bool io_parse_size(const char *text, size_t n, uint64_t *bytes);

#endif
