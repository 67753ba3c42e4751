/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf/join.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/set.h"

static bool take_parts(struct gguf_file *g, struct gguf_file *from, struct err *e)
{
    int room = g->n_parts + from->n_parts;
    struct gguf_part *parts =
        mem_grow(g->parts, (size_t)room * sizeof *parts, "parts of the model", e);
    if (!parts)
        return false;
    g->parts = parts;
    g->parts_room = room;
    g->n_joined = from->n_parts;
    memcpy(g->parts + g->n_parts, from->parts, (size_t)from->n_parts * sizeof *parts);
    g->n_parts = room;
    from->n_parts = 0;
    return true;
}

static bool take_tensor(struct gguf_file *g, const struct gguf_tensor *t, struct err *e)
{
    struct gguf_tensors *all = &g->tensors;
    if (all->count == all->room) {
        size_t room = 2 * all->room + 16;
        struct gguf_tensor *items = mem_grow(all->items, room * sizeof *items, "tensor list", e);
        if (!items)
            return false;
        all->items = items;
        all->room = room;
    }
    struct gguf_tensor *own = &all->items[all->count];
    size_t before;
    *own = *t;
    own->part += gguf_own_parts(g);
    if (!gguf_names_add(&all->names, t->name, strlen(t->name), all->count, &own->name, &before, e))
        return false;
    if (before != GGUF_NO_NAME) {
        char text[300];
        return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": %s has one too",
                       g->parts[own->part].path,
                       err_escape(text, sizeof text, t->name, strlen(t->name)), g->parts[0].path);
    }
    all->count++;
    return true;
}

bool gguf_join(struct gguf_file *g, struct gguf_file *from, const char *prefix, struct err *e)
{
    snprintf(g->joined_prefix, sizeof g->joined_prefix, "%s", prefix);
    if (!take_parts(g, from, e))
        return false;
    for (size_t i = 0; i < from->tensors.count; i++)
        if (!strncmp(from->tensors.items[i].name, prefix, strlen(prefix)) &&
            !take_tensor(g, &from->tensors.items[i], e))
            return false;
    return true;
}

int gguf_own_parts(const struct gguf_file *g)
{
    return g->n_parts - g->n_joined;
}

const char *gguf_home_path(const struct gguf_file *g, const char *tensor)
{
    bool is_joined = g->n_joined && !strncmp(tensor, g->joined_prefix, strlen(g->joined_prefix));
    return g->parts[is_joined ? gguf_own_parts(g) : 0].path;
}
