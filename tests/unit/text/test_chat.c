/* SPDX-License-Identifier: Apache-2.0 */
/* Chat prompts beyond the handed cases: conversations built by hand, what is marked as the user's,
 * refusals with their codes, and the choice of a family. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/template.h"

static struct text_view view(const char *text)
{
    return (struct text_view){text, text ? strlen(text) : 0};
}

static struct chat *chat_of(enum chat_family f)
{
    struct chat *c = chat_create(f, NULL);
    assert_non_null(c);
    return c;
}

static void say(struct chat *c, enum chat_role role, const char *content, const char *reasoning)
{
    assert_true(chat_add(c, role, view(content), view(reasoning), NULL));
}

static void renders(const struct chat *c, const struct chat_options *o, const char *want)
{
    struct chat_prompt p;
    struct err e;
    err_clear(&e);
    if (!chat_render(c, o, &p, NULL, &e))
        fail_msg("%s", e.text);
    assert_string_equal(p.text, want);
    chat_prompt_free(&p);
}

static void test_a_conversation_by_hand(void **state)
{
    (void)state;
    const struct chat_options plain = {0}, off = {.enable_thinking = CHAT_OFF};
    struct chat *c = chat_of(CHAT_QWEN3);
    say(c, CHAT_SYSTEM, "s", NULL);
    say(c, CHAT_SYSTEM, "t", NULL); /* joined */
    say(c, CHAT_USER, "u\xff", NULL);
    assert_int_equal(chat_count(c), 2);
    renders(c, &off,
            "<|im_start|>system\ns\n\nt<|im_end|>\n<|im_start|>user\nu\ufffd<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    say(c, CHAT_ASSISTANT, "a", "r");
    say(c, CHAT_USER, "again", NULL);
    renders(c, &plain,
            "<|im_start|>system\ns\n\nt<|im_end|>\n<|im_start|>user\nu\ufffd<|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n"
            "<|im_start|>assistant\n");
    chat_truncate(c, 2); /* as if the last question had not been asked */
    assert_int_equal(chat_message_at(c, 1)->role, CHAT_USER);
    renders(c, &plain,
            "<|im_start|>system\ns\n\nt<|im_end|>\n<|im_start|>user\nu\ufffd<|im_end|>\n"
            "<|im_start|>assistant\n");
    chat_free(c);
}

static void test_chatml(void **state)
{
    (void)state;
    const struct chat_options plain = {0}, closed = {.without_generation_prompt = true};
    struct chat *c = chat_of(CHAT_CHATML);
    say(c, CHAT_USER, " u ", NULL);
    say(c, CHAT_TOOL, "t", NULL);
    say(c, CHAT_ASSISTANT, "a", "dropped");
    renders(c, &closed,
            "<|im_start|>user\n u <|im_end|>\n<|im_start|>user\nt<|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n");
    chat_truncate(c, 1);
    renders(c, &plain, "<|im_start|>user\n u <|im_end|>\n<|im_start|>assistant\n");
    chat_free(c);
}

/* Every byte that a user brought is in a range; the template's own markers are in none. */
static void test_ranges_hold_what_the_user_brought(void **state)
{
    (void)state;
    /* the user's texts are made of Z and bytes that JSON needs, the template has no Z */
    static const char request[] =
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"ZZ\",\"description\":\"Z\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"Z\":{\"type\":\"ZZ\"}}}}}],"
        "\"messages\":[{\"role\":\"system\",\"content\":\"ZZZ\"},{\"role\":\"user\",\"content\":"
        "\"Z\"},"
        "{\"role\":\"assistant\",\"content\":\"ZZ\",\"reasoning_content\":\"Z\",\"tool_calls\":"
        "[{\"function\":{\"name\":\"Z\",\"arguments\":\"{\\\"Z\\\": \\\"ZZ\\\"}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"ZZ\"}]}";
    for (int f = 0; f < CHAT_CHATML; f++) {
        struct json_doc *d = json_parse(request, strlen(request), "request", NULL);
        struct chat *c = chat_of((enum chat_family)f);
        const struct chat_options plain = {0};
        struct chat_prompt p;
        assert_true(chat_set_tools(c, json_get(json_root(d), "tools"), NULL, NULL));
        assert_true(chat_add_messages(c, json_get(json_root(d), "messages"), NULL, NULL));
        assert_true(chat_render(c, &plain, &p, NULL, NULL));
        assert_true(p.n_user >= 7);
        size_t outside = 0;
        for (size_t i = 0; i < p.n_user; i++) {
            assert_true(p.user[i].begin < p.user[i].end && p.user[i].begin >= outside);
            assert_null(memchr(p.text + outside, 'Z', p.user[i].begin - outside));
            assert_null(memmem(p.text + p.user[i].begin, p.user[i].end - p.user[i].begin, "<|", 2));
            outside = p.user[i].end;
        }
        assert_null(memchr(p.text + outside, 'Z', p.bytes - outside));
        chat_prompt_free(&p);
        chat_free(c);
        json_free(d);
    }
}

static void refuses(enum chat_family f, const char *messages, const char *tools,
                    const struct chat_options *o, const char *code, const char *param)
{
    struct chat_refusal why = {0};
    struct err e;
    err_clear(&e);
    struct json_doc *m = json_parse(messages, strlen(messages), "messages", &e);
    struct json_doc *t = json_parse(tools, strlen(tools), "tools", &e);
    assert_true(m && t);
    struct chat *c = chat_of(f);
    struct chat_prompt p = {0};
    bool done = chat_set_tools(c, json_root(t), &why, &e) &&
                chat_add_messages(c, json_root(m), &why, &e) && chat_render(c, o, &p, &why, &e);
    if (done || strcmp(why.code, code) || strcmp(why.param, param) ||
        strncmp(e.text, param, strlen(param)))
        fail_msg("%s: %s %s %s", messages, done ? "rendered" : why.code, why.param, e.text);
    chat_free(c);
    json_free(m);
    json_free(t);
}

static void test_refusals_name_code_and_place(void **state)
{
    (void)state;
    const struct chat_options plain = {0}, strict = {.strict_template = true},
                              effort = {.reasoning_effort = "huge"};
    const char *user = "[{\"role\":\"user\",\"content\":\"x\"}]";
    refuses(CHAT_QWEN3, "[]", "null", &plain, "empty_messages", "messages");
    refuses(CHAT_QWEN3, "{}", "null", &plain, "invalid_type", "messages");
    refuses(CHAT_QWEN3, "[1]", "null", &plain, "invalid_type", "messages.0");
    refuses(CHAT_QWEN3, "[{\"content\":\"x\"}]", "null", &plain, "unknown_role", "messages.0.role");
    refuses(CHAT_QWEN3, "[{\"role\":\"user\"}]", "null", &plain, "missing_field",
            "messages.0.content");
    refuses(CHAT_QWEN3, "[{\"role\":\"user\",\"content\":5}]", "null", &plain, "invalid_type",
            "messages.0.content");
    refuses(CHAT_QWEN3, "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "null",
            &plain, "unsupported_content", "messages.0.content");
    refuses(CHAT_QWEN3, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "null", &plain,
            "missing_field", "messages.0.content");
    refuses(CHAT_QWEN38,
            "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":"
            "[{\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]",
            "null", &plain, "bad_tool_arguments", "messages.1.tool_calls");
    refuses(CHAT_QWEN38, "[{\"role\":\"system\",\"content\":\"x\"}]", "null", &plain,
            "no_user_message", "messages");
    refuses(CHAT_QWEN38,
            "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"y\"}]",
            "null", &strict, "system_not_first", "messages");
    refuses(CHAT_QWEN38, user, "null", &effort, "invalid_value", "reasoning_effort");
    refuses(CHAT_QWEN3, user, "[1]", &plain, "invalid_type", "tools");
    refuses(CHAT_CHATML, user, "[{}]", &plain, "unsupported_value", "tools");
}

static void test_whether_the_answer_begins_with_thinking(void **state)
{
    (void)state;
    static const bool opens[CHAT_FAMILIES] = {
        [CHAT_QWEN3_THINKING] = true,
        [CHAT_QWEN35] = true,
        [CHAT_QWEN36] = true,
        [CHAT_QWEN38] = true,
    };
    for (int f = 0; f < CHAT_FAMILIES; f++) {
        struct chat *c = chat_of((enum chat_family)f);
        struct chat_options o = {0};
        struct chat_prompt p;
        say(c, CHAT_USER, "u", NULL);
        assert_true(chat_render(c, &o, &p, NULL, NULL));
        assert_int_equal(p.opens_thinking, opens[f]);
        chat_prompt_free(&p);
        o.without_generation_prompt = true;
        assert_true(chat_render(c, &o, &p, NULL, NULL));
        assert_false(p.opens_thinking);
        chat_prompt_free(&p);
        chat_free(c);
    }
}

static void test_families_by_name_and_text(void **state)
{
    (void)state;
    enum chat_family f;
    for (int i = 0; i < CHAT_FAMILIES; i++)
        assert_true(chat_family_parse(chat_family_name((enum chat_family)i), &f) && (int)f == i);
    assert_false(chat_family_parse("qwen9", &f));
    /* the demo model's template, known by its hash; newlines at the end do not count */
    static const char demo[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}\n\n";
    assert_int_equal(chat_match_template(demo, sizeof demo - 1, &f), CHAT_MATCH_EXACT);
    assert_int_equal(f, CHAT_CHATML);
    assert_int_equal(chat_match_template(demo, sizeof demo - 5, &f), CHAT_MATCH_NONE);
}

static void test_every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    static const char messages[] =
        "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"developer\",\"content\":\"b\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}]},"
        "{\"role\":\"assistant\",\"content\":\"d\",\"reasoning\":\"e\",\"tool_calls\":"
        "[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"g\\\":[1]}\"}}]}]";
    struct json_doc *d = json_parse(messages, strlen(messages), "messages", NULL);
    size_t before = mem_in_use();
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        const struct chat_options plain = {0};
        struct chat_prompt p = {0};
        struct err e;
        err_clear(&e);
        mem_fail_at(n);
        struct chat *c = chat_create(CHAT_QWEN38, &e);
        done = c && chat_add_messages(c, json_root(d), NULL, &e) &&
               chat_add(c, CHAT_USER, view("h\xff"), view(NULL), &e) &&
               chat_render(c, &plain, &p, NULL, &e);
        mem_fail_at(0);
        assert_int_equal(e.code, done ? ERR_NONE : ERR_MEMORY);
        chat_prompt_free(&p);
        chat_free(c);
    }
    assert_int_equal(mem_in_use(), before);
    json_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_conversation_by_hand),
        cmocka_unit_test(test_chatml),
        cmocka_unit_test(test_ranges_hold_what_the_user_brought),
        cmocka_unit_test(test_refusals_name_code_and_place),
        cmocka_unit_test(test_whether_the_answer_begins_with_thinking),
        cmocka_unit_test(test_families_by_name_and_text),
        cmocka_unit_test(test_every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
