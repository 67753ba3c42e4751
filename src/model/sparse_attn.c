/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sparse_attn.h"

#include <string.h>

#include "base/mem.h"
#include "model/dump.h"

static int query_width(const struct sparse_attn_params *p)
{
    return p->n_head * p->d_head * (p->gated ? 2 : 1);
}

static bool bind_projections(struct weights *w, struct sparse_attn_weights *out,
                             const struct sparse_attn_params *p, int layer, struct err *e)
{
    int64_t wide = query_width(p), narrow = (int64_t)p->n_kv * p->d_head, all = wide + 2 * narrow;
    const char *fused = "blk.%d.attn_qkv.weight";
    if (weights_has(w, "blk.%d.attn_qkv.weight", layer))
        return weights_matrix_slice(w, &out->q, p->embd, all, 0, wide, e, fused, layer) &&
               weights_matrix_slice(w, &out->k, p->embd, all, wide, narrow, e, fused, layer) &&
               weights_matrix_slice(w, &out->v, p->embd, all, wide + narrow, narrow, e, fused, layer);
    return weights_matrix(w, &out->q, p->embd, wide, e, "blk.%d.attn_q.weight", layer) &&
           weights_matrix(w, &out->k, p->embd, narrow, e, "blk.%d.attn_k.weight", layer) &&
           weights_matrix(w, &out->v, p->embd, narrow, e, "blk.%d.attn_v.weight", layer);
}

static bool bind_bias(struct weights *w, const float **out, int64_t count, char which, int layer,
                      struct err *e)
{
    return !weights_has(w, "blk.%d.attn_%c.bias", layer, which) ||
           weights_vector(w, out, count, e, "blk.%d.attn_%c.bias", layer, which);
}

bool sparse_attn_bind(struct weights *w, struct sparse_attn_weights *out,
                      const struct sparse_attn_params *p, int layer, struct err *e)
{
    int64_t wide = (int64_t)p->n_head * p->d_head, narrow = (int64_t)p->n_kv * p->d_head;
    bool may_have_bias = !p->gated; /* other-archs.md 3.2: qwen3moe alone */
    if (!bind_projections(w, out, p, layer, e) ||
        (may_have_bias && (!bind_bias(w, &out->q_bias, wide, 'q', layer, e) ||
                           !bind_bias(w, &out->k_bias, narrow, 'k', layer, e) ||
                           !bind_bias(w, &out->v_bias, narrow, 'v', layer, e))) ||
        !weights_matrix(w, &out->out, wide, p->embd, e, "blk.%d.attn_output.weight", layer) ||
        !weights_vector(w, &out->q_norm, p->d_head, e, "blk.%d.attn_q_norm.weight", layer) ||
        !weights_vector(w, &out->k_norm, p->d_head, e, "blk.%d.attn_k_norm.weight", layer))
        return false;
    if (!p->ratio)
        return true;
    int64_t index = (int64_t)p->index_heads * p->index_d;
    return weights_matrix(w, &out->index_q, p->embd, index, e, "blk.%d.indexer.q_proj.weight",
                          layer) &&
           weights_matrix(w, &out->index_k, p->embd, p->index_d, e, "blk.%d.indexer.k_proj.weight",
                          layer) &&
           weights_vector(w, &out->index_q_norm, p->index_d, e, "blk.%d.indexer.q_norm.weight",
                          layer) &&
           weights_vector(w, &out->index_k_norm, p->index_d, e, "blk.%d.indexer.k_norm.weight",
                          layer);
}

static enum state_element element_of(enum kv_type kv)
{
    return kv == KV_Q8_0 ? STATE_Q8_0 : kv == KV_F16 ? STATE_F16 : STATE_F32;
}

void sparse_attn_state(struct state_builder *b, const struct sparse_attn_params *p, int layer,
                       struct layer_state *out)
{
    enum state_element kv = element_of(b->kv);
    out->kv = (struct kv_cache){.type = b->kv, .n_kv = p->n_kv, .d_head = p->d_head};
    out->kv.k = state_add(b, layer, "k", kv, false, 1, p->n_kv, p->d_head, 0);
    out->kv.v = state_add(b, layer, "v", kv, false, 1, p->n_kv, p->d_head, 0);
    if (!p->ratio)
        return;
    out->index_raw =
        state_add(b, layer, "index_k", element_of(index_type(b->kv)), false, 1, p->index_d, 0);
    out->index_pool = state_add(b, layer, "index_pool", STATE_F32, true, p->ratio, p->index_d, 0);
}

float *draft_state(struct state_builder *b, const struct sparse_attn_params *p, int layer, int width,
                   struct layer_state *out)
{
    enum state_element kv = element_of(b->kv);
    out->kv = (struct kv_cache){.type = b->kv, .n_kv = p->n_kv, .d_head = p->d_head};
    out->kv.k = state_add(b, layer, "draft_k", kv, true, 1, p->n_kv, p->d_head, 0);
    out->kv.v = state_add(b, layer, "draft_v", kv, true, 1, p->n_kv, p->d_head, 0);
    return state_add(b, layer, "draft_x", STATE_F32, true, 0, width, 0);
}

void sparse_attn_carve(struct sparse_attn_scratch *t, const struct sparse_attn_params *p, int tile,
                       int most_blocks, struct carve *device)
{
    const size_t f = sizeof(float), rows = (size_t)tile;
    size_t wide = (size_t)p->n_head * (size_t)p->d_head, narrow = (size_t)p->n_kv * (size_t)p->d_head;
    size_t index = (size_t)p->index_heads * (size_t)p->index_d;
    t->q_gate = carve(device, rows * (size_t)query_width(p), f);
    t->q = carve(device, rows * wide, f);
    t->core = carve(device, rows * wide, f);
    t->k = carve(device, rows * narrow, f);
    t->v = carve(device, rows * narrow, f);
    t->index_q = carve(device, rows * index, f);
    t->index_q_raw = carve(device, rows * index, f);
    t->index_k = carve(device, rows * (size_t)p->index_d, f);
    t->blocks = carve(device, rows * (size_t)most_blocks, sizeof(int32_t));
    t->counts = carve(device, rows, sizeof(int32_t));
}

/* The indexer's scores and choices of one tile, for a dump, `n` blocks wide. */
static void dump_choice(struct backend *b, const struct batch *batch, int layer, const float *scores,
                        const struct block_choice *choice, int rows, int n)
{
    size_t count = (size_t)rows * (size_t)n;
    bool *chosen = mem_alloc(count, "dump", NULL);
    if (chosen && b->finish(b, NULL) && b->host_visible) {
        for (int t = 0; t < rows; t++)
            for (int j = 0; j < choice->counts[t]; j++)
                chosen[(size_t)t * (size_t)n + (size_t)choice->blocks[t * choice->stride + j]] = true;
        dump_put(batch, layer, "idx_score", DUMP_F32, scores, rows, 1, &n);
        dump_put(batch, layer, "idx_chosen", DUMP_BOOL, chosen, rows, 1, &n);
    }
    mem_free(chosen);
}

/* Chooses the blocks that each row may read. */
static void choose(struct backend *b, const struct sparse_attn_params *p,
                   const struct sparse_attn_weights *w, struct layer_state *s, int rows, int pos,
                   const struct sparse_attn_scratch *t, const struct batch *batch, int layer,
                   struct block_choice *choice)
{
    int before = pos / p->ratio, after = (pos + rows) / p->ratio;
    size_t row = (size_t)p->index_heads * (size_t)p->index_d;
    enum kv_type type = index_type(s->kv.type);
    b->norm_rope(b, t->index_q_raw, row, (size_t)p->index_d, w->index_q_norm, &p->rope, rows,
                 p->index_heads, p->index_d, p->eps, pos, t->index_q);
    dump_rows(batch, b, layer, "idx_q", t->index_q, rows, p->index_heads, p->index_d, 0);
    b->store(b, t->index_k, rows, 1, p->index_d, s->index_raw, type, pos);
    if (after > before)
        b->index_pool(b, s->index_raw, type, w->index_k_norm, &p->rope, before, after - before,
                      p->ratio, p->index_d, p->eps, s->index_pool);
    float *scores = NULL;
    int all = batch->end / p->ratio; /* blocks complete after the batch: the width of a dump */
    if (batch->dump && all && b->host_visible)
        scores = mem_alloc_array((size_t)rows * (size_t)all, sizeof *scores, "dump", NULL);
    b->index_choose(b, t->index_q, s->index_pool, rows, p->index_heads, p->index_d, pos, choice,
                    scores, all);
    if (scores)
        dump_choice(b, batch, layer, scores, choice, rows, all);
    mem_free(scores);
}

void sparse_attn(struct backend *b, const struct sparse_attn_params *p,
                 const struct sparse_attn_weights *w, struct layer_state *s, const float *y,
                 int rows, int pos, const struct sparse_attn_scratch *t, const struct batch *batch,
                 int layer, float *out)
{
    size_t d = (size_t)p->d_head, head = p->gated ? 2 * d : d, row = (size_t)p->n_head * head;
    int narrow = p->n_kv * p->d_head, wide = p->n_head * p->d_head;

    b->linear(b, y, rows, p->embd,
              (struct product[]){{&w->q, t->q_gate},
                                 {&w->k, t->k},
                                 {&w->v, t->v},
                                 {&w->index_q, t->index_q_raw},
                                 {&w->index_k, t->index_k}},
              p->ratio ? 5 : 3);
    if (w->q_bias)
        b->add_row(b, t->q_gate, w->q_bias, rows, (int)row);
    if (w->k_bias)
        b->add_row(b, t->k, w->k_bias, rows, narrow);
    if (w->v_bias)
        b->add_row(b, t->v, w->v_bias, rows, narrow);
    b->norm_rope(b, t->q_gate, row, head, w->q_norm, &p->rope, rows, p->n_head, p->d_head, p->eps,
                 pos, t->q);
    b->norm_rope(b, t->k, (size_t)narrow, d, w->k_norm, &p->rope, rows, p->n_kv, p->d_head, p->eps,
                 pos, t->k);
    dump_rows(batch, b, layer, "attn_q", t->q, rows, p->n_head, p->d_head, 0);
    dump_rows(batch, b, layer, "attn_k", t->k, rows, p->n_kv, p->d_head, 0);
    dump_rows(batch, b, layer, "attn_v", t->v, rows, p->n_kv, p->d_head, 0);
    b->store(b, t->k, rows, p->n_kv, p->d_head, s->kv.k, s->kv.type, pos);
    b->store(b, t->v, rows, p->n_kv, p->d_head, s->kv.v, s->kv.type, pos);

    struct block_choice choice = {.ratio = p->ratio, .blocks = t->blocks, .counts = t->counts};
    if (p->ratio) {
        choice.stride = p->budget / p->ratio;
        choose(b, p, w, s, rows, pos, t, batch, layer, &choice);
    }
    b->attention(b, t->q, &s->kv, &choice, rows, p->n_head, pos, t->core);
    dump_rows(batch, b, layer, "attn_core", t->core, rows, p->n_head, p->d_head, 0);
    if (p->gated)
        b->gate(b, t->core, t->q_gate + p->d_head, row, head, rows, p->n_head, p->d_head);
    b->linear(b, t->core, rows, wide, &(struct product){&w->out, out}, 1);
}
