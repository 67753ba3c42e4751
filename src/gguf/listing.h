/* SPDX-License-Identifier: Apache-2.0 */
/* What `strata inspect` shows of a file: for people, and as JSON (commands.md section 3). */
#ifndef STRATA_GGUF_LISTING_H
#define STRATA_GGUF_LISTING_H

#include <stdbool.h>

#include "base/json.h"
#include "gguf/gguf.h"

struct gguf_listing {
    bool keys;    /* --kv */
    bool tensors; /* --tensors */
};

/* Lines for people: version, alignment, counts, sizes, what the file says about itself, and for each
 * tensor type how much there is of it; then keys and tensors if wanted. Long arrays and texts are
 * cut, bytes that are not printable shown as \xNN. Ends with a newline. */
bool gguf_list_text(const struct gguf_file *g, struct gguf_listing want, struct json_out *out,
                    struct err *e);

/* One JSON object, no newline: `version`, `alignment`, `keys` (of the first part), `tensors`, `files`,
 * `bytes` (of all files), `architecture` (null without the key); with want.keys `kv`, an object of
 * all keys with whole values; with want.tensors `tensor_list`, an array of {`name`, `type`, `ne` (as
 * stored), `file` (name without folder), `offset` (in that file), `bytes`}. Numbers are written in
 * full; NaN and inf are null; bytes that are no UTF-8 become U+FFFD. */
bool gguf_list_json(const struct gguf_file *g, struct gguf_listing want, struct json_out *out,
                    struct err *e);

/* Label of a `general.file_type`, section 1.6 ("Q4_K_M"); NULL for a number without one. */
const char *gguf_file_type_label(uint64_t file_type);

#endif
