/* SPDX-License-Identifier: Apache-2.0 */
/* What commands read besides the model: texts and ids, from files or stdin. */
#ifndef STRATA_CLI_INPUT_H
#define STRATA_CLI_INPUT_H

#include "strata.h"

/* All of the file at `path` ("-": stdin; pipes are fine), NUL-terminated; freed with mem_free. */
char *input_read(const char *path, size_t *bytes, struct strata_error *e);
/* The same for text that holds no NUL, as JSON and messages must not. */
char *input_read_text(const char *path, struct strata_error *e);

/* Ids as decimals with white space between, or as a JSON list of them, each below `vocabulary`.
 * `name` is what messages call the text. *ids is freed with mem_free. */
bool input_ids(const char *text, size_t bytes, const char *name, int vocabulary, int32_t **ids,
               size_t *n, struct strata_error *e);

#endif
