/* SPDX-License-Identifier: Apache-2.0 */
/* Where small files that outlive a run lie: $XDG_CACHE_HOME/strata, default ~/.cache/strata. */
#ifndef STRATA_BASE_CACHE_H
#define STRATA_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* The path of the file `name` there, at most `room` bytes with its zero; with `make` the folders are
 * made where they are missing. False, and nothing made: neither variable is an absolute path, as their
 * specification wants, or the path is too long. */
bool cache_path(const char *name, bool make, char *out, size_t room);

#endif
