/* SPDX-License-Identifier: Apache-2.0 */
/* A draft (MTP) layer in a file of its own (qwen4exp.md 2.9): it becomes a part of the model's
 * file. */
#ifndef STRATA_MODEL_DRAFT_FILE_H
#define STRATA_MODEL_DRAFT_FILE_H

#include "gguf/gguf.h"

/* Takes the tensors blk.N.* of the file at `path`, N the layers of the model in g, into g: from then
 * on g has a draft layer. Refused in one sentence when the file holds none, or that of another
 * architecture, of other sizes or another vocabulary, or when g has one itself. Before g is used. */
bool draft_file_join(struct gguf_file *g, const char *path, struct err *e);

#endif
