/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer on a tiny vocabulary: merges, special tokens and who may type them, the way back,
 * and what a broken file is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tiny_vocab.h"

static struct tokenizer *tokenizer;

static int load(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    tokenizer = tiny_vocab("qwen35", TINY_GOOD, &e);
    return tokenizer ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    return 0;
}

/* Encodes with the given ranges and compares; `want` ends with -1. */
static void encodes(const char *text, size_t bytes, enum special_mode mode,
                    const struct text_range *user, size_t n_user, const int32_t *want)
{
    int32_t *ids;
    size_t n;
    struct err e;
    err_clear(&e);
    if (!tokenizer_encode(tokenizer, text, bytes, mode, user, n_user, &ids, &n, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < n; i++)
        if (ids[i] != want[i])
            fail_msg("%s: id %zu is %d, not %d", text, i, ids[i], want[i]);
    assert_int_equal(want[n], -1);
    mem_free(ids);
}

#define ENCODES(text, mode, ...)                                                                   \
    encodes(text, strlen(text), mode, NULL, 0, (const int32_t[]){__VA_ARGS__, -1})

static void test_lowest_rank_first_then_leftmost(void **state)
{
    (void)state;
    ENCODES("abc", SPECIAL_NONE, TINY_ABC);
    ENCODES("aab", SPECIAL_NONE, 'a', TINY_AB); /* "a b" comes before "a a" */
    ENCODES("aaa", SPECIAL_NONE, TINY_AA, 'a');
    ENCODES("aaaaaaa", SPECIAL_NONE, TINY_AAAA, TINY_AA, 'a');
    ENCODES("x a", SPECIAL_NONE, 'x', TINY_SPACE_A);
    ENCODES("\n\n\n", SPECIAL_NONE, TINY_NL2, '\n');
    encodes("", 0, SPECIAL_NONE, NULL, 0, (const int32_t[]){-1});
    encodes("a\0b", 3, SPECIAL_NONE, NULL, 0, (const int32_t[]){'a', 0, 'b', -1});
}

static void test_merges_into_what_is_no_token_never_apply(void **state)
{
    (void)state;
    struct err e;
    err_clear(&e);
    struct tokenizer *good = tokenizer;
    tokenizer = tiny_vocab("qwen2", TINY_MERGE_UNKNOWN, &e);
    assert_non_null(tokenizer);
    ENCODES("azab", SPECIAL_NONE, 'a', 'z', TINY_AB);
    tokenizer_free(tokenizer);
    tokenizer = good;
}

static void test_modes_recognise_their_specials(void **state)
{
    (void)state;
    ENCODES("<think>", SPECIAL_NONE, '<', 't', 'h', 'i', 'n', 'k', '>');
    ENCODES("<think>x</think>", SPECIAL_USER, TINY_THINK, 'x', TINY_THINK_END);
    ENCODES("<|im_start|>", SPECIAL_USER, '<', '|', 'i', 'm', '_', 's', 't', 'a', 'r', 't', '|',
            '>');
    ENCODES("<|im_start|>ab", SPECIAL_ALL, TINY_IM_START, TINY_AB);
    ENCODES("<thin", SPECIAL_USER, TINY_T, 'h', 'i', 'n'); /* the longest that is there */
    ENCODES("a<think>", SPECIAL_USER, 'a', TINY_THINK);
    ENCODES("xy", SPECIAL_ALL, TINY_CONTROL_XY); /* also one that does not begin with < */
    ENCODES("xy", SPECIAL_USER, 'x', 'y');
    /* control by its name, whatever the file says */
    ENCODES("<|im_end|>", SPECIAL_USER, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    ENCODES("<|im_end|>", SPECIAL_ALL, TINY_IM_END);
}

static void test_users_cannot_type_control_tokens(void **state)
{
    (void)state;
    const char *text = "<|im_end|><|im_end|><think>";
    const struct text_range second[] = {{10, 27}}, edge[] = {{0, 0}, {9, 10}, {12, 12}};
    encodes(text, 27, SPECIAL_ALL, second, 1,
            (const int32_t[]){TINY_IM_END, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>',
                              TINY_THINK, -1});
    /* one byte is enough; empty ranges are nothing */
    encodes(text, 27, SPECIAL_ALL, edge, 3,
            (const int32_t[]){'<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>', TINY_IM_END,
                              TINY_THINK, -1});
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    /* each byte is one U+FFFD: EF BF BD */
    ENCODES("a\xf0\x9f", SPECIAL_NONE, 'a', 0xef, 0xbf, 0xbd, 0xef, 0xbf, 0xbd);
    ENCODES("\xc3\xa4", SPECIAL_NONE, 0xc3, 0xa4);
    const struct text_range user[] = {{0, 1}};
    int32_t *ids;
    size_t n;
    struct err e;
    err_clear(&e);
    assert_false(tokenizer_encode(tokenizer, "\xff", 1, SPECIAL_ALL, user, 1, &ids, &n, &e));
}

static void prints(int32_t id, bool with_control, const char *want)
{
    struct text_view v = tokenizer_piece(tokenizer, id, with_control);
    assert_int_equal(v.bytes, strlen(want));
    assert_memory_equal(v.text, want, v.bytes);
}

static void test_the_way_back(void **state)
{
    (void)state;
    prints(TINY_SPACE_A, false, " a");
    prints(0xc3, false, "\xc3");
    prints(TINY_THINK, false, "<think>");
    prints(TINY_IM_START, false, "");
    prints(TINY_IM_START, true, "<|im_start|>");
    prints(TINY_IM_END, false, "");
    prints(TINY_BYTE_41, false, "A");
    prints(TINY_UNUSED, true, "");
    prints(TINY_AB_AGAIN, false, "ab"); /* reachable by id though the text leads to the first */
    prints(-1, true, "");
    prints(TINY_TOKENS, true, "");
    assert_int_equal(tokenizer_find(tokenizer, "ab", 2), TINY_AB);
    assert_int_equal(tokenizer_find(tokenizer, "nothing", 7), -1);
    assert_int_equal(tokenizer_count(tokenizer), TINY_TOKENS);
}

static void test_ends_of_generation(void **state)
{
    (void)state;
    for (int32_t id = -1; id <= TINY_TOKENS; id++) /* eos, eot and those known by name */
        assert_int_equal(tokenizer_is_end(tokenizer, id),
                         id == TINY_IM_END || id == TINY_T || id == TINY_FIM_PAD);
    assert_int_equal(tokenizer_eos(tokenizer), TINY_IM_END);
    assert_int_equal(tokenizer_bos(tokenizer), -1);
    assert_false(tokenizer_adds_bos(tokenizer));
}

static void test_broken_files_are_refused_in_words(void **state)
{
    (void)state;
    static const char *const words[TINY_DEFECTS] = {
        [TINY_MODEL] = "tokenizer.ggml.model is \"llama\"",
        [TINY_PRE] = "tokenizer.ggml.pre is \"gpt-2\", only \"qwen2\" and \"qwen35\"",
        [TINY_NO_PRE] = "tokenizer.ggml.pre is missing, only \"qwen2\" and \"qwen35\"",
        [TINY_NO_TOKENS] = "tokenizer.ggml.tokens",
        [TINY_TOKENS_NUMBERS] = "tokenizer.ggml.tokens",
        [TINY_TYPES_SHORT] = "tokenizer.ggml.token_type has 271 elements",
        [TINY_TYPES_TEXT] = "tokenizer.ggml.token_type",
        [TINY_TYPE_RANGE] = "element 7 is 7",
        [TINY_NO_MERGES] = "tokenizer.ggml.merges",
        [TINY_MERGE_NO_PAIR] = "element 7, \"ab\", is no pair",
        [TINY_MERGE_LEFT_ONLY] = "element 7, \"a \", is no pair",
        [TINY_MERGE_CONTROL] = "element 7 makes the control token \"xy\"",
        [TINY_ID_RANGE] = "tokenizer.ggml.eos_token_id is 272",
        [TINY_TOKEN_LONG] = "string 271 has 65537 bytes",
        [TINY_BYTE_MISSING] = "the byte 41",
    };
    for (int defect = TINY_MERGE_UNKNOWN + 1; defect < TINY_DEFECTS; defect++) {
        struct err e;
        err_clear(&e);
        assert_null(tiny_vocab("qwen2", (enum tiny_defect)defect, &e));
        assert_non_null(words[defect]);
        if (!strstr(e.text, words[defect]) || strncmp(e.text, "tiny-vocab-", 11))
            fail_msg("'%s' lacks '%s'", e.text, words[defect]);
    }
}

static void test_every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    size_t before = mem_in_use();
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        int32_t *ids = NULL;
        size_t count;
        struct err e;
        err_clear(&e);
        mem_fail_at(n);
        done = tokenizer_encode(tokenizer, "a\xff<think>aaab aaaaa", 20, SPECIAL_USER, NULL, 0,
                                &ids, &count, &e);
        mem_fail_at(0);
        if (done)
            mem_free(ids);
        else
            assert_int_equal(e.code, ERR_MEMORY);
    }
    assert_int_equal(mem_in_use(), before);
}

static void test_loading_survives_every_failed_allocation(void **state)
{
    (void)state;
    size_t before = mem_in_use();
    struct tokenizer *t = NULL;
    for (uint64_t n = 1; !t; n++) {
        struct err e;
        err_clear(&e);
        mem_fail_at(n);
        t = tiny_vocab("qwen2", TINY_GOOD, &e);
        mem_fail_at(0);
        assert_int_equal(e.code, t ? ERR_NONE : ERR_MEMORY);
    }
    tokenizer_free(t);
    assert_int_equal(mem_in_use(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest_rank_first_then_leftmost),
        cmocka_unit_test(test_merges_into_what_is_no_token_never_apply),
        cmocka_unit_test(test_modes_recognise_their_specials),
        cmocka_unit_test(test_users_cannot_type_control_tokens),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_the_way_back),
        cmocka_unit_test(test_ends_of_generation),
        cmocka_unit_test(test_broken_files_are_refused_in_words),
        cmocka_unit_test(test_every_failed_allocation_is_an_error),
        cmocka_unit_test(test_loading_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
