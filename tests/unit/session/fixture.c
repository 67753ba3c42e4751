/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <xxhash.h>

#include "base/bytes.h"

void fixture_ok(bool ok, const struct strata_error *e)
{
    if (!ok)
        fail_msg("%s", e->text);
}

struct fixture fixture_open(const char *path, const struct strata_options *o)
{
    struct strata_error e = {0};
    struct fixture f = {0};
    f.model = strata_model_open(path, o, &e);
    fixture_ok(f.model != NULL, &e);
    fixture_ok(strata_model_load(f.model, &e), &e);
    f.session = strata_session_create(f.model, &e);
    fixture_ok(f.session != NULL, &e);
    struct strata_model_info info;
    fixture_ok(strata_model_info(f.model, &info, &e), &e);
    f.vocab = info.vocab;
    return f;
}

void fixture_close(struct fixture *f)
{
    strata_session_free(f->session);
    strata_model_free(f->model);
}

void fixture_ids(int32_t *ids, int n, int vocab)
{
    uint32_t x = 12345;
    for (int i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
}

struct taken {
    float *logits;
    size_t from, vocab;
};

static bool take(void *ctx, size_t first, size_t rows, const float *logits)
{
    struct taken *t = ctx;
    memcpy(t->logits + (t->from + first) * t->vocab, logits, rows * t->vocab * sizeof *logits);
    return true;
}

float *fixture_logits(struct fixture *f, const int32_t *ids, int n, int window)
{
    struct strata_error e = {0};
    struct taken t = {calloc((size_t)n * (size_t)f->vocab, sizeof(float)), 0, (size_t)f->vocab};
    struct strata_pass pass = {.ctx = &t, .logits = take};
    if (!window)
        fixture_ok(strata_feed(f->session, ids, (size_t)n, &pass, &e), &e);
    for (int at = 0; window && at < n; at += window) {
        int rows = n - at < window ? n - at : window;
        t.from = (size_t)at;
        fixture_ok(strata_step(f->session, ids + at, rows, &pass, &e), &e);
    }
    return t.logits;
}

char *fixture_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

char *fixture_read_state(const char *path, size_t *bytes)
{
    enum { ENTRY = 88 };
    uint8_t *p = (uint8_t *)fixture_read(path, bytes);
    size_t header = bytes_u32(p + 8), last = header - 8 - ENTRY;
    uint32_t sections = bytes_u32(p + 72);
    if (!sections || strcmp((const char *)p + last, "hot") != 0)
        return (char *)p;
    size_t at = bytes_u64(p + last + 64); /* it is the last section */
    memmove(p + header - ENTRY, p + header, at - header);
    header -= ENTRY;
    *bytes = at - ENTRY;
    bytes_put_u32(p + 8, (uint32_t)header);
    bytes_put_u64(p + 16, *bytes);
    bytes_put_u32(p + 72, --sections);
    for (size_t entry = header - 8 - ENTRY * sections; entry < header - 8; entry += ENTRY)
        bytes_put_u64(p + entry + 64, bytes_u64(p + entry + 64) - ENTRY);
    bytes_put_u64(p + header - 8, XXH3_64bits(p, header - 8));
    return (char *)p;
}

void fixture_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("%s cannot be written", path);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}
