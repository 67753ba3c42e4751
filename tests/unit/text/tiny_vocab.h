/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary small enough to read, for tests: the 256 bytes, a few merges, special tokens. */
#ifndef STRATA_TESTS_TINY_VOCAB_H
#define STRATA_TESTS_TINY_VOCAB_H

#include "text/bpe.h"

/* What is wrong with the file. */
enum tiny_defect {
    TINY_GOOD,
    TINY_MERGE_UNKNOWN, /* a merge makes what is no token: no defect, it never applies */
    TINY_MODEL, /* tokenizer.ggml.model is llama */
    TINY_PRE,   /* tokenizer.ggml.pre is gpt-2 */
    TINY_NO_PRE,
    TINY_NO_TOKENS,
    TINY_TOKENS_NUMBERS, /* an array of numbers */
    TINY_TYPES_SHORT,    /* one element less than tokens */
    TINY_TYPES_TEXT,     /* an array of strings */
    TINY_TYPE_RANGE,     /* a type 7 */
    TINY_NO_MERGES,
    TINY_MERGE_NO_PAIR,   /* "ab" */
    TINY_MERGE_LEFT_ONLY, /* "a " */
    TINY_MERGE_CONTROL,   /* makes a control token */
    TINY_ID_RANGE,        /* eos_token_id is the number of tokens */
    TINY_TOKEN_LONG,      /* a token of 64 KiB and one byte */
    TINY_BYTE_MISSING,    /* no token for the byte 0x41 */
    TINY_DEFECTS,
};

/* Tokens behind the 256 bytes, which have their own value as id. */
enum {
    TINY_AB = 256,
    TINY_ABC,
    TINY_AA,
    TINY_AAAA,
    TINY_SPACE_A,
    TINY_NL2,
    TINY_THINK,
    TINY_THINK_END,
    TINY_T,
    TINY_IM_START,
    TINY_IM_END,
    TINY_BYTE_41,
    TINY_UNUSED,
    TINY_AB_AGAIN,
    TINY_FIM_PAD,
    TINY_CONTROL_XY,
    TINY_TOKENS,
};

/* Writes the file into memory and loads it. NULL and the error when it is refused. */
struct tokenizer *tiny_vocab(const char *pre, enum tiny_defect defect, struct err *e);

#endif
