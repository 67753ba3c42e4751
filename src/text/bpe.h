/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer: byte-level BPE with special tokens, text to ids and back. Source: text.md part 1.
 *
 * Loaded once from the metadata of a GGUF file, constant afterwards: all functions may be called
 * from several threads at once. Encoding is near-linear in the text, whatever it is, and needs
 * memory in proportion to it. */
#ifndef STRATA_TEXT_BPE_H
#define STRATA_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"
#include "text/split.h"
#include "text/unicode.h"

struct tokenizer;

/* Reads and checks the keys `tokenizer.ggml.*` (1.1). NULL and a message that names the file, the
 * key and the value when the file has no tokenizer, one that is not known, or a broken one. The
 * file is not needed afterwards. */
struct tokenizer *tokenizer_load(const struct gguf_file *g, struct err *e);
void tokenizer_free(struct tokenizer *t);

/* Which special tokens are recognised in a text (1.6). */
enum special_mode {
    SPECIAL_NONE, /* none */
    SPECIAL_USER, /* user-defined ones: <think>, <tool_call> and the like */
    SPECIAL_ALL,  /* control tokens too, where they do not touch a range of the user */
};

/* Text to ids, nothing added in front or behind. `user` are the parts of a chat prompt that came
 * from the user, rising and apart; only SPECIAL_ALL looks at them. Bytes that are not UTF-8 become
 * U+FFFD (1.8), which is refused when there are ranges. *ids is freed with mem_free. */
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                      enum special_mode mode, const struct text_range *user, size_t n_user,
                      int32_t **ids, size_t *n, struct err *e);

/* The bytes that a token prints as (1.7), no NUL behind them. Control tokens print nothing unless
 * `with_control`; unused tokens and ids out of range never print anything. */
struct text_view tokenizer_piece(const struct tokenizer *t, int32_t id, bool with_control);

/* The answer ends with this token. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);

/* The token with exactly this text as the vocabulary has it (special tokens: as they look), the
 * first one if there are several; -1: none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t bytes);

size_t tokenizer_count(const struct tokenizer *t); /* ids are 0 .. count - 1 */
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none; likewise eos */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t); /* the model wants bos before a text */

#endif
