/* SPDX-License-Identifier: Apache-2.0 */
#include "changed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_type.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"

#define CHANGES_MOST 16
#define SCALES_MOST 16

static const struct change *find(const struct change *changes, const char *name)
{
    for (; changes->kind != CHANGE_END; changes++)
        if (!strcmp(changes->name, name))
            return changes;
    return NULL;
}

static void put_key(struct gguf_writer *w, const struct change *c)
{
    if (c->kind == SET_NUMBER)
        gguf_writer_u32(w, c->name, (uint32_t)c->number);
    else if (c->kind == SET_FLOAT)
        gguf_writer_f32(w, c->name, (float)c->number);
    else if (c->kind == SET_TEXT)
        gguf_writer_text(w, c->name, c->text, strlen(c->text));
    else if (c->kind == SET_INTS)
        gguf_writer_array(w, c->name, GGUF_I32, 4, c->ints);
}

static void multiply(const struct gguf_tensor *t, const struct change *c, float *values)
{
    uint64_t slices = t->ne[t->n_dims - 1], count = t->bytes / sizeof *values;
    assert_int_equal(t->type, TYPE_F32);
    for (uint64_t i = 0; i < count; i++)
        values[i] *= (float)c->ints[i / (count / slices) % 4];
}

static void put_tensor(struct gguf_writer *w, const struct gguf_tensor *t, const struct change *c,
                       char *data)
{
    uint64_t ne[4];
    uint32_t n_dims = t->n_dims, type = t->type;
    memcpy(ne, t->ne, sizeof ne);
    if (c && c->kind == DROP_TENSOR)
        return;
    if (c && c->kind == SET_TYPE)
        type = (uint32_t)c->number;
    if (c && c->kind == SET_SHAPE)
        for (n_dims = 0; n_dims < 4 && c->ints[n_dims]; n_dims++)
            ne[n_dims] = (uint64_t)c->ints[n_dims];
    if (c && c->kind == MULTIPLY)
        multiply(t, c, (float *)(void *)(data + t->offset));
    gguf_writer_tensor(w, t->name, n_dims, ne, type, NULL, data + t->offset);
}

/* `room` holds the values until they are written. */
static void put_scales(struct gguf_writer *w, const struct change *c, float room[SCALES_MOST])
{
    uint64_t count = (uint64_t)c->number;
    assert_true(count <= SCALES_MOST);
    for (uint64_t i = 0; i < count; i++)
        room[i] = c->ints[i % 4] < 0 ? NAN : (float)c->ints[i % 4];
    gguf_writer_tensor(w, c->name, 1, &count, TYPE_F32, NULL, room);
}

void changed_write(const char *model, const struct change *changes, const char *path)
{
    char from[512];
    struct err e = {0};
    size_t bytes;
    snprintf(from, sizeof from, TEST_DATA "/fixtures/models/%s.gguf", model);
    struct gguf_file *g = gguf_open(from, &e);
    char *data = g ? file_read_all(from, (size_t)1 << 30, &bytes, &e) : NULL;
    struct gguf_writer *w = data ? gguf_writer_new(&e) : NULL;
    if (!w)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < gguf_key_count(g); i++)
        if (!find(changes, gguf_key_at(g, i)->name))
            gguf_writer_copy_key(w, g, gguf_key_at(g, i));
    for (const struct change *c = changes; c->kind != CHANGE_END; c++)
        put_key(w, c);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        put_tensor(w, t, find(changes, t->name), data);
    }
    float scales[CHANGES_MOST][SCALES_MOST];
    for (int i = 0; changes[i].kind != CHANGE_END; i++) {
        assert_true(i < CHANGES_MOST);
        if (changes[i].kind == ADD_SCALES)
            put_scales(w, &changes[i], scales[i]);
    }
    if (!gguf_writer_write(w, path, &e))
        fail_msg("%s", e.text);
    gguf_writer_free(w);
    mem_free(data);
    gguf_close(g);
}
