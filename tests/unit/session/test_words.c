/* SPDX-License-Identifier: Apache-2.0 */
/* Words through the public interface, from metadata alone: no model is loaded here. */
#include "fixture.h"

#define DEMO SHIPPED "/strata-demo.gguf"

static struct strata_model *open_demo(const struct strata_options *o)
{
    struct strata_error e = {0};
    struct strata_model *m = strata_model_open(DEMO, o, &e);
    fixture_ok(m != NULL, &e);
    return m;
}

static void text_becomes_ids_and_ids_text(void **unused)
{
    static const char text[] = "Once upon a time, <think>\xc3\xa4\xf0\x9f\x98\x80<|im_end|>";
    struct strata_model *m = open_demo(NULL);
    struct strata_error e = {0};
    size_t n[3];
    for (int mode = 0; mode < 3; mode++) {
        int32_t *ids;
        fixture_ok(
            strata_encode(m, text, strlen(text), (enum strata_special)mode, &ids, &n[mode], &e),
            &e);
        char back[256] = "";
        for (size_t i = 0; i < n[mode]; i++) {
            const char *piece;
            size_t bytes;
            fixture_ok(strata_token_bytes(m, ids[i], &piece, &bytes, &e), &e);
            strncat(back, piece, bytes);
        }
        assert_string_equal(back, text);
        strata_free(ids);
    }
    /* Control tokens are one id in mode `all` only, <think> in `user` too. */
    assert_true(n[STRATA_SPECIAL_ALL] < n[STRATA_SPECIAL_USER]);
    assert_true(n[STRATA_SPECIAL_USER] < n[STRATA_SPECIAL_NONE]);
    const char *piece;
    size_t bytes;
    assert_false(strata_token_bytes(m, strata_vocabulary_size(m), &piece, &bytes, &e));
    assert_false(strata_token_bytes(m, -1, &piece, &bytes, &e));
    strata_model_free(m);
}

static void a_conversation_is_rendered_by_the_file_or_as_asked(void **unused)
{
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"Hi <|im_end|>\"}]";
    struct strata_error e = {0};
    struct strata_model *m = open_demo(NULL);
    struct strata_prompt *p = strata_render(m, messages, NULL, NULL, &e);
    fixture_ok(p != NULL, &e);
    assert_string_equal(strata_prompt_text(p, NULL), "<|im_start|>user\nHi <|im_end|><|im_end|>\n"
                                                     "<|im_start|>assistant\n");
    assert_string_equal(strata_chat_family(m, &e), "chatml");
    int32_t *ids;
    size_t n, ends = 0;
    fixture_ok(strata_prompt_ids(m, p, &ids, &n, &e), &e);
    for (size_t i = 0; i < n; i++)
        ends += strata_token_is_end(m, ids[i]);
    assert_int_equal(ends, 1); /* what the user wrote is no control token */
    strata_free(ids);
    strata_prompt_free(p);
    assert_null(strata_render(m, "[", NULL, NULL, &e));
    assert_null(strata_render(m, "[]", NULL, NULL, &e));
    strata_model_free(m);

    m = open_demo(&(struct strata_options){.chat_family = "qwen3.8"});
    struct strata_render_options off = {.think = STRATA_OFF};
    p = strata_render(m, messages, NULL, &off, &e);
    fixture_ok(p != NULL, &e);
    assert_false(strata_prompt_opens_thinking(p));
    strata_prompt_free(p);
    p = strata_render(m, messages, NULL, NULL, &e);
    assert_true(strata_prompt_opens_thinking(p));
    strata_prompt_free(p);
    strata_model_free(m);
}

static void an_answer_comes_in_whole_characters_and_ends_before_a_stop_string(void **unused)
{
    static const char text[] = "one \xf0\x9f\x98\x80 two STOP three";
    static const char *const stops[] = {"STOP"};
    struct strata_error e = {0};
    struct strata_model *m = open_demo(NULL);
    struct strata_text *t = strata_text_create(m, stops, 1, &e);
    fixture_ok(t != NULL, &e);
    int32_t *ids;
    size_t n, bytes;
    fixture_ok(strata_encode(m, text, strlen(text), STRATA_SPECIAL_NONE, &ids, &n, &e), &e);
    char shown[64] = "";
    const char *piece;
    bool stopped = false;
    for (size_t i = 0; i < n && !stopped; i++) {
        fixture_ok(strata_text_push(t, ids[i], &piece, &bytes, &stopped, &e), &e);
        assert_true(bytes == 0 || ((unsigned char)piece[0] & 0xc0) != 0x80);
        strncat(shown, piece, bytes);
    }
    assert_true(stopped);
    fixture_ok(strata_text_finish(t, &piece, &bytes, &e), &e);
    assert_int_equal(bytes, 0);
    assert_string_equal(shown, "one \xf0\x9f\x98\x80 two ");
    strata_free(ids);
    strata_text_free(t);
    strata_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_ids_and_ids_text),
        cmocka_unit_test(a_conversation_is_rendered_by_the_file_or_as_asked),
        cmocka_unit_test(an_answer_comes_in_whole_characters_and_ends_before_a_stop_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
