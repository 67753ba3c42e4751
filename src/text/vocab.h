/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the tokenizer: the tables that vocab.c makes from the file and bpe.c reads. */
#ifndef STRATA_TEXT_VOCAB_H
#define STRATA_TEXT_VOCAB_H

#include "text/bpe.h"

/* `tokenizer.ggml.token_type`. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* Two neighbours and the token that they become. The index is the rank: lower merges first. */
struct merge {
    uint32_t left, right, result;
};

/* Open addressing by hash; a slot holds an index plus 1, 0 is empty. At most half full. */
struct slots {
    uint32_t *slot;
    size_t mask; /* number of slots minus 1, a power of two minus 1 */
};

struct tokenizer {
    enum split_kind split;
    size_t count;
    struct gguf_strings texts; /* as in the file, byte alphabet and all */
    uint8_t *types;            /* [count] enum token_type, control tokens known by name included */
    bool *ends;                /* [count] ends the answer */
    char *pieces;              /* what token i prints as: pieces[starts[i]] .. starts[i + 1] - 1 */
    uint64_t *starts;          /* [count + 1] */
    struct slots by_text;      /* -> token; of equal texts the first one */
    struct merge *merges;
    size_t n_merges;
    struct slots by_pair; /* -> merge; of equal merges the first one */
    uint32_t byte_tokens[256];
    uint32_t
        *specials; /* ids of control and user-defined tokens, by text as bytes, each text once */
    size_t n_specials;
    bool begins_special[256];
    int32_t bos, eos, eot; /* -1: none */
    bool adds_bos;
};

struct text_view vocab_text(const struct tokenizer *t, size_t id);

/* Rank of a pair, or UINT32_MAX. */
uint32_t vocab_rank(const struct tokenizer *t, uint32_t left, uint32_t right);

#endif
