/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of whole models: golden logits, greedy continuations, intermediates. */
#ifndef STRATA_CHECK_CASES_MODEL_H
#define STRATA_CHECK_CASES_MODEL_H

#include "base/json.h"
#include "cases.h"

/* Runs the case `root` of the file at `path` (known by `format`, `model` and `prompts`). The GGUF is
 * looked for in the same folder, in ../../models from there, and in models_dir (NULL: none). */
void cases_model(const struct json *root, const char *path, const char *models_dir,
                 struct case_report *r);

#endif
