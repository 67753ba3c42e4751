/* SPDX-License-Identifier: Apache-2.0 */
#include "model/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch.h"

/* Bytes of d neighbouring values, the last dimension of an item. */
static bool values_bytes(enum state_element e, size_t d, size_t *out)
{
    if (e == STATE_Q8_0)
        return mem_mul(kv_units(KV_Q8_0, d), sizeof(struct kv_block), out);
    return mem_mul(d, e == STATE_F16 ? 2 : 4, out);
}

void *state_add(struct state_builder *b, int layer, const char *name, enum state_element element,
                bool derived, int tokens_per_unit, ...)
{
    struct state_item item = {.element = element, .per_token = tokens_per_unit > 0,
                              .derived = derived, .tokens_per_unit = tokens_per_unit};
    size_t unit = 1, units = 1;
    va_list ap;
    int d;
    va_start(ap, tokens_per_unit);
    while (item.n_dims < 4 && (d = va_arg(ap, int)) != 0) {
        if (item.n_dims)
            b->carve.overflow |= !mem_mul(unit, item.dims[item.n_dims - 1], &unit);
        item.dims[item.n_dims++] = (uint32_t)d;
    }
    va_end(ap);
    size_t last;
    b->carve.overflow |= !values_bytes(element, item.dims[item.n_dims - 1], &last) ||
                         !mem_mul(unit, last, &unit);
    if (item.per_token)
        units = ((size_t)b->ctx + (size_t)tokens_per_unit - 1) / (size_t)tokens_per_unit;
    else if (!derived)
        b->carve.overflow |= !mem_add(b->fixed_bytes, mem_round_up(unit, 64), &b->fixed_bytes);
    item.unit_bytes = unit;
    item.data = carve(&b->carve, units, unit);
    if (b->state) {
        snprintf(item.name, sizeof item.name, "%d.%s", layer, name);
        b->state->items[b->items] = item;
    }
    b->items++;
    return item.data;
}

static struct state_builder count_items(const struct model *m, int ctx, enum kv_type kv)
{
    struct state_builder b = {.ctx = ctx, .kv = kv};
    m->arch->does->list_state(m, &b);
    return b;
}

size_t model_state_bytes(const struct model *m, int ctx, enum kv_type kv)
{
    struct state_builder b = count_items(m, ctx, kv);
    size_t host = (size_t)ctx * sizeof(int32_t), all;
    return b.carve.overflow || !mem_add(b.carve.used, host, &all) ? 0 : all;
}

size_t model_state_fixed_bytes(const struct model *m)
{
    return count_items(m, 1, KV_F32).fixed_bytes;
}

struct model_state *model_state_create(struct model *m, int ctx, enum kv_type kv, struct err *e)
{
    struct state_builder count = count_items(m, ctx, kv);
    if (count.carve.overflow) {
        err_set(e, ERR_MEMORY, "a context of %d tokens: the state's size overflows", ctx);
        return NULL;
    }
    struct model_state *s = mem_alloc(sizeof *s, "session state", e);
    if (!s)
        return NULL;
    s->model = m;
    s->backend = m->backend;
    s->ctx = ctx;
    s->kv = kv;
    s->draft_at = -1;
    s->n_items = count.items;
    s->ids = mem_alloc_array((size_t)ctx, sizeof *s->ids, "token ids", e);
    s->layer = mem_alloc_array((size_t)m->info.layers + 1, sizeof *s->layer, "session state", e);
    s->items = mem_alloc_array((size_t)count.items, sizeof *s->items, "session state", e);
    s->block_bytes = count.carve.used;
    s->block = s->ids && s->layer && s->items
                   ? m->backend->alloc(m->backend, s->block_bytes, "session state", e)
                   : NULL;
    if (!s->block) {
        model_state_free(s);
        return NULL;
    }
    struct state_builder make = {.carve.base = s->block, .state = s, .ctx = ctx, .kv = kv};
    m->arch->does->list_state(m, &make);
    return s;
}

void model_state_free(struct model_state *s)
{
    if (!s)
        return;
    if (s->block)
        s->backend->release(s->backend, s->block, s->block_bytes);
    mem_free(s->items);
    mem_free(s->layer);
    mem_free(s->ids);
    mem_free(s);
}

static bool in_snapshot(const struct state_item *item)
{
    return !item->per_token && !item->derived;
}

bool model_state_reset(struct model_state *s, struct err *e)
{
    static const char zeros[1 << 16];
    for (int i = 0; i < s->n_items; i++) {
        const struct state_item *item = &s->items[i];
        for (size_t at = 0; in_snapshot(item) && at < item->unit_bytes; at += sizeof zeros) {
            size_t left = item->unit_bytes - at;
            if (!s->backend->write(s->backend, (char *)item->data + at, zeros,
                                   left < sizeof zeros ? left : sizeof zeros, e))
                return false;
        }
    }
    s->position = 0;
    s->draft_at = -1;
    s->draft_entries = 0;
    return true;
}

bool model_state_snapshot(const struct model_state *s, void *to, struct err *e)
{
    char *at = to;
    for (int i = 0; i < s->n_items; i++) {
        const struct state_item *item = &s->items[i];
        if (!in_snapshot(item))
            continue;
        if (!s->backend->read(s->backend, at, item->data, item->unit_bytes, e))
            return false;
        at += mem_round_up(item->unit_bytes, 64);
    }
    return true;
}

bool model_state_rewind(struct model_state *s, const void *snapshot, int position, struct err *e)
{
    const char *at = snapshot;
    for (int i = 0; i < s->n_items; i++) {
        const struct state_item *item = &s->items[i];
        if (!in_snapshot(item))
            continue;
        if (!s->backend->write(s->backend, item->data, at, item->unit_bytes, e))
            return false;
        at += mem_round_up(item->unit_bytes, 64);
    }
    s->position = position;
    s->draft_at = -1;
    if (s->draft_entries > position)
        s->draft_entries = position;
    return s->backend->finish(s->backend, e);
}

size_t state_item_bytes(const struct model_state *s, const struct state_item *item)
{
    if (!item->per_token)
        return item->unit_bytes;
    return (size_t)s->position / (size_t)item->tokens_per_unit * item->unit_bytes;
}

bool model_state_read_item(const struct model_state *s, int item, void *host, struct err *e)
{
    const struct state_item *it = &s->items[item];
    return s->backend->read(s->backend, host, it->data, state_item_bytes(s, it), e);
}

bool model_state_write_item(struct model_state *s, int item, const void *host, struct err *e)
{
    const struct state_item *it = &s->items[item];
    return s->backend->write(s->backend, it->data, host, state_item_bytes(s, it), e);
}

bool model_state_restored(struct model_state *s, const atomic_bool *cancel, struct err *e)
{
    return model_wait(s->model, cancel, e) &&
           s->model->arch->does->restored(s->model, s, e) && s->backend->finish(s->backend, e);
}
