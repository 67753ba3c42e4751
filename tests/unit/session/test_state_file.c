/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a saved session: it is byte for byte the checked-in example, and whatever is missing,
 * changed or foreign is refused in one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "session/hot_list.h"
#include "session/state_file.h"

#define EXAMPLE DATA "/own/state/small.strses"
static const char path[] = "state-file-test.strses";

enum { TOKENS = 5, CTX = 64 };

static bool copy_to(struct backend *b, void *to, const void *host, size_t bytes, struct err *e)
{
    memcpy(to, host, bytes);
    return true;
}

static bool copy_from(struct backend *b, void *host, const void *from, size_t bytes, struct err *e)
{
    memcpy(host, from, bytes);
    return true;
}

/* A state with a fixed item, one that grows, and one that can be rebuilt. */
struct small {
    struct backend backend;
    struct state_item items[3];
    struct model_state state;
    float delta[4][6], pooled[CTX];
    uint16_t k[CTX][4];
    int32_t ids[CTX];
};

static void small_init(struct small *s)
{
    memset(s, 0, sizeof *s);
    s->backend = (struct backend){.write = copy_to, .read = copy_from};
    s->items[0] = (struct state_item){.name = "0.delta",
                                      .element = STATE_F32,
                                      .n_dims = 2,
                                      .dims = {4, 6},
                                      .unit_bytes = 96,
                                      .data = s->delta};
    s->items[1] = (struct state_item){.name = "1.k",
                                      .element = STATE_F16,
                                      .per_token = true,
                                      .tokens_per_unit = 1,
                                      .n_dims = 1,
                                      .dims = {4},
                                      .unit_bytes = 8,
                                      .data = s->k};
    s->items[2] = (struct state_item){.name = "1.index_pool",
                                      .element = STATE_F32,
                                      .per_token = true,
                                      .derived = true,
                                      .tokens_per_unit = 1,
                                      .n_dims = 1,
                                      .dims = {1},
                                      .unit_bytes = 4,
                                      .data = s->pooled};
    s->state = (struct model_state){.backend = &s->backend,
                                    .ctx = CTX,
                                    .position = TOKENS,
                                    .ids = s->ids,
                                    .items = s->items,
                                    .n_items = 3};
}

static void small_fill(struct small *s)
{
    small_init(s);
    for (int i = 0; i < 24; i++)
        s->delta[i / 6][i % 6] = (float)i * 0.25f - 2;
    for (int i = 0; i < TOKENS * 4; i++)
        s->k[i / 4][i % 4] = (uint16_t)(0x3c00 + i);
    for (int i = 0; i < TOKENS; i++)
        s->ids[i] = 1000 + i;
}

static const struct state_header header = {"model fingerpr.", "bits fingerpri.", TOKENS, CTX};

static void write_small(const char *to)
{
    struct small s;
    struct err e;
    small_fill(&s);
    err_clear(&e);
    const struct state_block blocks[] = {{"messages", "[1, 2]", 6}};
    if (!state_file_write(to, &header, &s.state, blocks, 1, &e))
        fail_msg("%s", e.text);
}

/* Everything that can be read of a file. */
static bool read_small(const char *from, struct small *s, char messages[16], struct err *e)
{
    struct state_file f;
    void *data = NULL;
    size_t bytes = 0;
    small_init(s);
    bool ok = state_file_open(&f, from, e);
    if (ok && f.head.position != TOKENS)
        ok = err_set(e, ERR_FORMAT, "%s: another position", from);
    ok = ok && state_file_ids(&f, s->ids, e) && state_file_items(&f, &s->state, e) &&
         state_file_block(&f, "messages", 15, &data, &bytes, e);
    if (ok && data)
        memcpy(messages, data, bytes + 1);
    mem_free(data);
    state_file_close(&f);
    return ok;
}

static char *read_all(const char *from, size_t *bytes)
{
    FILE *file = fopen(from, "rb");
    if (!file)
        fail_msg("%s cannot be opened", from);
    char *data = malloc(1 << 16);
    *bytes = fread(data, 1, 1 << 16, file);
    fclose(file);
    return data;
}

static void write_all(const char *to, const void *data, size_t bytes)
{
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static void the_checked_in_example_is_read_and_written_byte_for_byte(void **unused)
{
    struct small wanted, got;
    struct err e;
    char messages[16] = "";
    err_clear(&e);
    small_fill(&wanted);
    if (!read_small(EXAMPLE, &got, messages, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(got.delta, wanted.delta, sizeof got.delta);
    assert_memory_equal(got.k, wanted.k, sizeof got.k);
    assert_memory_equal(got.ids, wanted.ids, sizeof got.ids);
    assert_string_equal(messages, "[1, 2]");

    write_small(path);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    size_t bytes, example_bytes;
    char *data = read_all(path, &bytes), *example = read_all(EXAMPLE, &example_bytes);
    assert_int_equal(bytes, example_bytes);
    assert_memory_equal(data, example, bytes);
    free(data);
    free(example);
    remove(path);
}

static void refused(const char *what, long at)
{
    struct small s;
    struct err e;
    char messages[16];
    err_clear(&e);
    if (read_small(path, &s, messages, &e))
        fail_msg("%s at %ld was accepted", what, at);
    assert_true(strncmp(e.text, path, strlen(path)) == 0);
    assert_null(strchr(e.text, '\n'));
}

static void every_cut_and_a_flipped_bit_in_every_byte_is_refused(void **unused)
{
    write_small(path);
    size_t bytes;
    char *data = read_all(path, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        write_all(path, data, n);
        refused("a file cut", (long)n);
    }
    uint32_t head = bytes_u32(data + 8);
    for (size_t i = 0; i < bytes; i++) {
        /* The zeros behind the last section (delta 96, k 40, messages 6) belong to no checksum. */
        if (i >= head + 96 + 40 + 6)
            continue;
        data[i] ^= (char)(1 << i % 8);
        write_all(path, data, bytes);
        refused("a flipped bit", (long)i);
        data[i] ^= (char)(1 << i % 8);
    }
    free(data);
    remove(path);
}

/* Changes one field and makes the header's checksum right again. */
static void refused_with(char *data, size_t bytes, size_t at, uint64_t value, size_t width,
                         const char *text)
{
    char *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    for (size_t i = 0; i < width; i++)
        copy[at + i] = (char)(value >> 8 * i);
    uint32_t end = bytes_u32(data + 8) - 8;
    bytes_put_u64(copy + end, XXH3_64bits(copy, end));
    write_all(path, copy, bytes);
    free(copy);

    struct small s;
    struct err e;
    char messages[16];
    err_clear(&e);
    assert_false(read_small(path, &s, messages, &e));
    if (!strstr(e.text, text))
        fail_msg("'%s' does not say '%s'", e.text, text);
}

static void numbers_that_lie_are_refused_by_name(void **unused)
{
    write_small(path);
    size_t bytes;
    char *data = read_all(path, &bytes);
    size_t table = bytes_u32(data + 8) - 8 - 3 * 88;
    refused_with(data, bytes, 6, '0' | '2' << 8, 2, "version 02, this program reads version 01");
    refused_with(data, bytes, 3, 'T' | 'R' << 8 | 'C' << 16, 3, "not a saved session");
    refused_with(data, bytes, 12, 1, 4, "unknown flags 0x1");
    refused_with(data, bytes, 8, 0xfffffff8, 4, "the size of the file");
    refused_with(data, bytes, 16, UINT64_MAX, 8, "the size of the file");
    refused_with(data, bytes, 56, UINT64_MAX / 4, 8, "does not hold");
    refused_with(data, bytes, 56, (uint64_t)1 << 32, 8, "does not hold");
    refused_with(data, bytes, 72, UINT32_MAX, 4, "does not hold");
    refused_with(data, bytes, table, 0, 1, "no proper name");
    refused_with(data, bytes, table + 31, 'x', 1, "no proper name");
    refused_with(data, bytes, table + 32, 4, 4, "element type 4");
    refused_with(data, bytes, table + 36, 0, 4, "0 dimensions");
    refused_with(data, bytes, table + 36, 7, 4, "7 dimensions");
    refused_with(data, bytes, table + 40, UINT32_MAX, 4, "does not fit its place");
    refused_with(data, bytes, table + 64, 0, 8, "does not fit its place");
    refused_with(data, bytes, table + 72, UINT64_MAX - 7, 8, "does not fit its place");
    refused_with(data, bytes, table, '9', 1, "section 0.delta is missing");
    refused_with(data, bytes, table + 88,
                 '0' | '.' << 8 | (uint64_t)'d' << 16 | (uint64_t)'e' << 24 | (uint64_t)'l' << 32 |
                     (uint64_t)'t' << 40 | (uint64_t)'a' << 48,
                 8, "twice");
    free(data);
    remove(path);
}

static void a_hot_list_must_name_what_there_is_and_nothing_twice(void **state)
{
    static const struct {
        uint32_t entry[4];
        size_t bytes;
        const char *why; /* NULL: it is good */
    } lists[] = {{{0, 7, 2, 0}, 16, NULL},
                 {{0, 0, 0, 0}, 0, NULL},
                 {{0, 7, 0, 7}, 16, "expert 7 of layer 0 twice"},
                 {{0, 7, 3, 0}, 16, "expert 0 of layer 3;"},
                 {{0, 8, 2, 0}, 16, "expert 8 of layer 0;"},
                 {{0xffffffff, 0, 2, 0}, 16, "expert 0 of layer 4294967295;"},
                 {{0, 0x80000000, 2, 0}, 16, "expert 2147483648 of layer 0;"},
                 {{0, 7, 2, 0}, 12, "12 bytes"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        uint8_t data[16];
        struct stream_name names[2];
        struct err e;
        err_clear(&e);
        for (int k = 0; k < 4; k++)
            bytes_put_u32(data + 4 * k, lists[i].entry[k]);
        bool ok = hot_list_parse("x.strses", data, lists[i].bytes, 3, 8, names, &e);
        assert_int_equal(ok, !lists[i].why);
        if (!ok)
            assert_non_null(strstr(e.text, lists[i].why));
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) { /* makes the example */
        write_small(argv[1]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checked_in_example_is_read_and_written_byte_for_byte),
        cmocka_unit_test(every_cut_and_a_flipped_bit_in_every_byte_is_refused),
        cmocka_unit_test(a_hot_list_must_name_what_there_is_and_nothing_twice),
        cmocka_unit_test(numbers_that_lie_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
