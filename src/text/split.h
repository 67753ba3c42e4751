/* SPDX-License-Identifier: Apache-2.0 */
/* The pre-tokenizers: text is cut into pieces that the merges never cross (text.md 1.4). */
#ifndef STRATA_TEXT_SPLIT_H
#define STRATA_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* By `tokenizer.ggml.pre`. They differ in where marks belong: to words in qwen35, to symbols in
 * qwen2. */
enum split_kind {
    SPLIT_QWEN2,
    SPLIT_QWEN35,
};

/* False when the name is not known. */
bool split_kind_parse(const char *name, enum split_kind *out);

/* Bytes of the first piece of a text that is valid UTF-8 and not empty. The text is one fragment
 * between two special tokens. Cutting a whole text piece by piece takes linear time. */
size_t split_first(enum split_kind kind, const char *text, size_t bytes);

#endif
