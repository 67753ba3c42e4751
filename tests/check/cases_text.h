/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the text side: tokenizer, chat prompts, text stream. Formats: tests/data/README.md. */
#ifndef STRATA_CHECK_CASES_TEXT_H
#define STRATA_CHECK_CASES_TEXT_H

#include <stddef.h>

#include "base/json.h"
#include "cases.h"
#include "text/bpe.h"

/* The vocabularies that cases need, loaded when the first one asks. All zero but for the folders,
 * of which the first that holds the file is taken. */
struct cases_context {
    const char *const *vocab_dirs;
    size_t n_vocab_dirs;
    struct tokenizer *tokenizers[2]; /* by enum split_kind */
    bool tried[2];
};

void cases_context_close(struct cases_context *c);

/* Runs one line of a .jsonl file when its keys are those of a kind below; false when they are not.
 * Kinds: tokenizer ids (`qwen2`, `special`), splits (`qwen2`), long texts (`repeat`, `fnv1a64`),
 * chat ids (`family`, `messages`, `ids`), chat prompts (`family`, `messages`, `prompt` or `error`),
 * template detection (`template`), text stream (`pieces`, `emit`). */
bool cases_text_line(const struct json *line, const char *file, int line_no,
                     struct cases_context *c, struct case_report *r);

/* Runs every line of a `pieces.tsv`: an id and, in hex, the bytes that it prints as. */
void cases_text_pieces(const char *path, struct cases_context *c, struct case_report *r);

#endif
