/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ngram.h"

#include "base/tensor_type.h"
#include "model/dump.h"

bool ngram_bind(struct weights *w, struct ngram_weights *out, const struct ngram_params *p,
                int layer, struct err *e)
{
    int64_t flat = (int64_t)p->hc * p->embd;
    const char *path = gguf_part_path(w->file, 0), *name = "per_layer_token_embd.weight";
    out->table = gguf_tensor_find(w->file, name);
    if (!out->table)
        return err_set(e, ERR_FORMAT, "%s: tensor \"%s\" is missing", path, name);
    if (!tensor_type_info(out->table->type)->is_weight)
        return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": type %s is no weight type", path, name,
                       tensor_type_info(out->table->type)->name);
    if (out->table->ne[0] != (uint64_t)p->row_values || out->table->ne[2] != 1 ||
        out->table->ne[3] != 1)
        return err_set(e, ERR_FORMAT, "%s: tensor \"%s\": rows of %llu values, expected %d", path, name,
                       (unsigned long long)out->table->ne[0], p->row_values);
    for (int h = 0; h < ngram_heads(p); h++)
        if (p->size[h] > out->table->ne[1] || p->offset[h] > out->table->ne[1] - p->size[h])
            return err_set(e, ERR_FORMAT,
                           "%s: tensor \"%s\": head %d reaches row %llu + %llu, beyond %llu rows", path,
                           name, h, (unsigned long long)p->offset[h], (unsigned long long)p->size[h],
                           (unsigned long long)out->table->ne[1]);
    return weights_matrix(w, &out->key, p->embd, flat, e, "blk.%d.ple_key.weight", layer) &&
           weights_matrix(w, &out->value, p->embd, p->embd, e, "blk.%d.ple_value.weight", layer) &&
           weights_vector(w, &out->norm_key, flat, e, "blk.%d.ple_norm_key.weight", layer) &&
           weights_vector(w, &out->norm_query, flat, e, "blk.%d.ple_norm_query.weight", layer) &&
           weights_vector(w, &out->norm_conv, flat, e, "blk.%d.ple_norm_conv.weight", layer) &&
           weights_vector(w, &out->conv, flat * p->taps, e, "blk.%d.ple_conv1d.weight", layer);
}

void ngram_rows(const struct ngram_params *p, const int32_t *ids, int at, uint64_t *rows)
{
    uint64_t hash = (uint64_t)ids[at] * p->multiplier[0];
    bool cut = false; /* an eos before, or the start: everything beyond reads as eos */
    for (int back = 1; back < p->longest; back++) {
        cut = cut || at - back < 0 || ids[at - back] == p->eos;
        uint64_t token = (uint64_t)(cut ? p->eos : ids[at - back]);
        hash ^= token * p->multiplier[back];
        for (int a = 0; a < p->heads_each; a++) {
            int h = (back - 1) * p->heads_each + a;
            rows[h] = hash % p->size[h] + p->offset[h];
        }
    }
}

bool ngram_add(struct backend *b, const struct ngram_params *p, const struct ngram_weights *w,
               struct layer_state *s, float *x, int rows, const void *table_rows,
               const struct ngram_scratch *t, const struct batch *batch, int layer, struct err *e)
{
    int heads = ngram_heads(p), hc = p->hc, d = p->embd, flat = hc * d;
    size_t count = (size_t)rows * (size_t)flat;
    size_t row_bytes = (size_t)tensor_row_bytes(w->table->type, (uint64_t)p->row_values);
    struct tensor table = {.data = t->rows_bytes, .type = w->table->type, .n_in = p->row_values,
                           .n_out = rows * heads, .scale = 1};

    if (!b->write(b, t->rows_bytes, table_rows, (size_t)rows * (size_t)heads * row_bytes, e))
        return false;
    b->embed(b, &table, t->numbers, rows * heads, t->embedding);
    b->linear(b, t->embedding, rows, d, (struct product[]){{&w->key, t->key}, {&w->value, t->value}},
              2);
    b->norm(b, t->key, w->norm_key, hc, rows * hc, d, p->eps, t->key);
    b->norm(b, x, w->norm_query, hc, rows * hc, d, p->eps, t->query);
    b->ple_gate(b, t->key, t->query, rows, hc, d, t->gate);
    b->ple_spread(b, t->gate, t->value, rows, hc, d, t->spread);
    b->norm(b, t->spread, w->norm_conv, hc, rows * hc, d, p->eps, t->normed);
    if (batch->is_held)
        b->conv_held(b, t->normed, w->conv, s->ngram_conv, rows, flat, p->taps, p->longest, t->key);
    else
        b->conv(b, t->normed, w->conv, s->ngram_conv, rows, flat, p->taps, p->longest, t->key);
    b->add(b, t->spread, t->key, count);
    dump_rows(batch, b, layer, "ple_gate", t->gate, rows, hc, 0);
    dump_rows(batch, b, layer, "ple_out", t->spread, rows, hc, d, 0);
    b->add(b, x, t->spread, count);
    return true;
}

void ngram_commit(struct backend *b, const struct ngram_params *p, struct layer_state *s, int rows,
                  const struct ngram_scratch *t)
{
    b->conv_advance(b, t->normed, s->ngram_conv, rows, p->hc * p->embd, (p->taps - 1) * p->longest);
}
