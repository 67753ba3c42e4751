/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF reader, everything that reads values of an open file, and the listings. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "fuzz.h"
#include "gguf/gguf.h"
#include "gguf/listing.h"

#define VALUES 8

/* Every way to read a key; wrong types must be errors and nothing else. */
static void read_key(const struct gguf_file *g, const struct gguf_key *key)
{
    uint64_t u[VALUES];
    int64_t i[VALUES];
    float f[VALUES];
    double d;
    bool b;
    char *text = NULL;
    uint64_t *u_array = NULL;
    int64_t *i_array = NULL;
    float *f_array = NULL;
    size_t n;
    struct gguf_strings strings = {0};
    fuzz_require(gguf_key_find(g, key->name) == key);
    gguf_get_u64(g, key->name, true, u, NULL);
    gguf_get_i64(g, key->name, true, i, NULL);
    gguf_get_f64(g, key->name, true, &d, NULL);
    gguf_get_bool(g, key->name, true, &b, NULL);
    gguf_fill_u64(g, key->name, true, u, VALUES, NULL);
    gguf_fill_i64(g, key->name, true, i, VALUES, NULL);
    gguf_fill_f32(g, key->name, true, f, VALUES, NULL);
    gguf_get_u64_array(g, key->name, true, SIZE_MAX, &u_array, &n, NULL);
    gguf_get_i64_array(g, key->name, true, SIZE_MAX, &i_array, &n, NULL);
    gguf_get_f32_array(g, key->name, true, SIZE_MAX, &f_array, &n, NULL);
    mem_free(u_array);
    mem_free(i_array);
    mem_free(f_array);
    if (gguf_get_text(g, key->name, true, &text, &n, NULL))
        fuzz_require(key->type == GGUF_STRING && n == key->bytes && text[n] == 0);
    mem_free(text);
    if (gguf_get_strings(g, key->name, true, SIZE_MAX, SIZE_MAX, &strings, NULL))
        fuzz_require(strings.starts[strings.count] + 8 * strings.count == key->bytes);
    gguf_strings_free(&strings);
}

static void check_tensors(const struct gguf_file *g, size_t size)
{
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        fuzz_require(gguf_tensor_find(g, t->name) == t);
        fuzz_require(t->bytes && t->bytes <= size && t->offset <= size - t->bytes);
        fuzz_require(t->offset >= gguf_part_header_bytes(g, 0));
    }
}

static void list(const struct gguf_file *g)
{
    struct json_out text = {0}, json = {0};
    struct err e = {0};
    const struct gguf_listing all = {true, true};
    fuzz_require(gguf_list_text(g, all, &text, NULL));
    fuzz_require(gguf_list_json(g, all, &json, NULL));
    struct json_doc *doc = json_parse(json.text, json.bytes, "listing", &e);
    fuzz_require(doc);
    json_free(doc);
    json_out_free(&text);
    json_out_free(&json);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_require(!ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    struct err e = {0};
    size_t before = mem_in_use();
    struct gguf_file *g = gguf_open(path, &e);
    if (!g) {
        fuzz_require(strncmp(e.text, path, strlen(path)) == 0 && !strchr(e.text, '\n'));
    } else {
        uint8_t fingerprint[16];
        fuzz_require(mem_in_use() - before < 16 * size + 16384);
        check_tensors(g, size);
        for (size_t i = 0; i < gguf_key_count(g); i++)
            read_key(g, gguf_key_at(g, i));
        list(g);
        fuzz_require(gguf_fingerprint(g, fingerprint, NULL));
    }
    gguf_close(g);
    fuzz_require(mem_in_use() == before);
    return 0;
}
