/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of another file in an open set, for a layer that is distributed apart. */
#ifndef STRATA_GGUF_JOIN_H
#define STRATA_GGUF_JOIN_H

#include "gguf/gguf.h"

#define GGUF_JOIN_PREFIX 32

/* Takes the tensors of `from` whose names start with `prefix` (shorter than GGUF_JOIN_PREFIX), and
 * its files, which become the last parts of g. What the set itself says stays: keys, fingerprint,
 * gguf_own_parts. A name that g has already is an error, after which g is good for gguf_close only.
 * `from` loses its descriptors: gguf_close is all that may follow. Once for a set, before others
 * use it. */
bool gguf_join(struct gguf_file *g, struct gguf_file *from, const char *prefix, struct err *e);

/* Parts of the set itself, which come first. */
int gguf_own_parts(const struct gguf_file *g);

/* Path of the file where a tensor of this name belongs: of the joined file, if there is one, for its
 * prefix, else of the first part. */
const char *gguf_home_path(const struct gguf_file *g, const char *tensor);

#endif
