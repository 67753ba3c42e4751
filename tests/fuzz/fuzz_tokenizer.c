/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer: a GGUF file is loaded as one; any other input is a text for a tiny vocabulary. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"

#include "../unit/text/tiny_vocab.c"

static void load(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_require(!ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    struct err e = {0};
    struct gguf_file *g = gguf_open(path, &e);
    struct tokenizer *t = g ? tokenizer_load(g, &e) : NULL;
    fuzz_require(!t == (e.code != ERR_NONE) && !strchr(e.text, '\n'));
    if (t) {
        int32_t *ids;
        size_t n;
        fuzz_require(
            tokenizer_encode(t, (const char *)data, size, SPECIAL_ALL, NULL, 0, &ids, &n, &e));
        mem_free(ids);
    }
    tokenizer_free(t);
    gguf_close(g);
}

/* Encoding loses nothing, whatever is recognised; and control tokens keep out of the user's part.
 */
static void encode(const struct tokenizer *t, const char *text, size_t bytes,
                   enum special_mode mode, const struct text_range *user)
{
    char *repaired;
    size_t n, at = 0;
    int32_t *ids;
    fuzz_require(unicode_repair(text, bytes, &repaired, &bytes, NULL));
    if (repaired)
        text = repaired;
    struct text_range clipped = {user->begin, user->end < bytes ? user->end : bytes};
    size_t n_user = clipped.begin < clipped.end;
    fuzz_require(tokenizer_encode(t, text, bytes, mode, &clipped, n_user, &ids, &n, NULL));
    for (size_t i = 0; i < n; i++) {
        struct text_view shown = tokenizer_piece(t, ids[i], false);
        struct text_view v = tokenizer_piece(t, ids[i], true);
        fuzz_require(v.bytes && at + v.bytes <= bytes && !memcmp(text + at, v.text, v.bytes));
        bool control = shown.bytes != v.bytes;
        bool apart = !n_user || at + v.bytes <= clipped.begin || at >= clipped.end;
        fuzz_require(!control || (mode == SPECIAL_ALL && apart));
        at += v.bytes;
    }
    fuzz_require(at == bytes);
    mem_free(ids);
    mem_free(repaired);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    static struct tokenizer *tiny[2];
    for (int i = 0; i < 2; i++)
        if (!tiny[i])
            tiny[i] = tiny_vocab(i ? "qwen35" : "qwen2", TINY_GOOD, NULL);
    fuzz_require(tiny[0] && tiny[1]);
    size_t before = mem_in_use();
    if (size >= 4 && !memcmp(data, "GGUF", 4)) {
        load(data, size);
    } else if (size >= 2) {
        struct text_range user = {data[0], (size_t)data[0] + data[1]};
        for (int mode = SPECIAL_NONE; mode <= SPECIAL_ALL; mode++)
            encode(tiny[mode & 1], (const char *)data + 2, size - 2, (enum special_mode)mode,
                   &user);
    }
    fuzz_require(mem_in_use() == before);
    return 0;
}
