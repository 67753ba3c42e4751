/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.8-Flash-Next, architecture `qwen4exp`: hyper-parameters, weights and forward pass, in the
 * order of the model's specification (section numbers are those of qwen4exp.md). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/tensor_type.h"
#include "model/arch.h"
#include "model/delta_net.h"
#include "model/draft.h"
#include "model/dump.h"
#include "model/hparams.h"
#include "model/hyper.h"
#include "model/mixture.h"
#include "model/ngram.h"
#include "model/pass.h"
#include "model/rope.h"
#include "model/sparse_attn.h"

struct layer {
    bool recurrent; /* delta net, else attention */
    bool has_ngram;
    struct hyper_weights hc_attn, hc_ffn;
    struct delta_net_weights delta;
    struct delta_net_scratch window; /* of a held window */
    struct sparse_attn_params attn; /* ratio differs between layers */
    struct sparse_attn_weights attn_weights;
    struct mixture_weights moe;
};

struct scratch {
    /* of a band */
    float *x;             /* [band][hc][D] the residual streams */
    float *inject;        /* [band][hc] write weights of the experts' hyper-connection */
    uint64_t *table_rows; /* host [band][heads] */
    /* of a tile */
    float *y, *out;      /* [tile][D] input and output of a mixer */
    float *mixer_inject; /* [tile][hc] */
    float *embedding;    /* [tile][D] */
    struct hyper_scratch hyper;
    struct delta_net_scratch delta;
    struct sparse_attn_scratch attn;
    struct mixture_scratch moe;
    struct ngram_scratch ngram;
    struct draft_scratch draft;
    struct pass_scratch head;
};

struct net {
    int vocab, n_layer;
    struct hyper_params hyper;
    struct delta_net_params delta;
    struct sparse_attn_params attn;
    struct mixture_params moe;
    struct ngram_params ngram;
    int ngram_layer; /* -1: none */

    struct tensor token_embd, output;
    bool tied; /* the head is the token embedding */
    struct hyper_weights output_hc;
    struct ngram_weights ngram_weights;
    struct layer *layer; /* [n_layer], then the draft layer's if it is bound */
    struct draft_weights draft;
    struct hyper_weights draft_hc; /* before its head */
    struct scratch scratch;
};

/* ---- 1.1 hyper-parameters ------------------------------------------------------------------- */

static bool read_ngram(struct hparams *h, struct net *n)
{
    n->ngram_layer = -1;
    int layers = hparam_count(h, "ple.layers");
    if (!layers)
        return true;
    if (layers > 1)
        return hparam_refuse(h, "ple.layers", "%d layers, only one is supported", layers);
    hparam_ints(h, "ple.layers", 1, 0, n->n_layer - 1, &n->ngram_layer);
    struct ngram_params *p = &n->ngram;
    p->embd = n->hyper.embd;
    p->hc = n->hyper.hc;
    p->eps = n->hyper.eps;
    p->longest = hparam_int(h, "ple.ngram_size", 2, NGRAM_LONGEST);
    p->heads_each = hparam_int(h, "ple.heads_per_ngram", 1, NGRAM_HEADS_MOST);
    p->row_values = hparam_int(h, "embedding_length_per_layer_input", 1, HPARAM_SIZE_MOST);
    p->taps = hparam_int(h, "ple.conv_kernel", 1, HPARAM_TAPS_MOST);
    p->eos = hparam_int(h, "ple.eos_token_id", 0, INT32_MAX);
    int heads = ngram_heads(p);
    if (heads > NGRAM_HEADS_MOST || (int64_t)heads * p->row_values != p->embd)
        return hparam_refuse(h, "ple.heads_per_ngram", "%d heads of %d values are not %d", heads,
                             p->row_values, p->embd);
    hparam_u64s(h, "ple.layer_multipliers", p->longest, p->multiplier);
    hparam_u64s(h, "ple.head_vocab_sizes", heads, p->size);
    hparam_u64s(h, "ple.head_offsets", heads, p->offset);
    for (int i = 0; i < heads; i++)
        if (!p->size[i])
            return hparam_refuse(h, "ple.head_vocab_sizes", "head %d has no rows", i);
    return true;
}

static bool read_layer_kinds(struct hparams *h, struct net *n, int n_all)
{
    int *ratio = mem_alloc_array((size_t)n_all, sizeof *ratio, "layers", h->e);
    int *recurrent = mem_alloc_array((size_t)n_all, sizeof *recurrent, "layers", h->e);
    bool given = hparam_has(h, "attention.recurrent_layers");
    bool ok = ratio && recurrent;
    if (ok && hparam_has(h, "attention.compress_ratios"))
        hparam_ints(h, "attention.compress_ratios", n_all, 0, 1 << 16, ratio);
    if (ok && given)
        hparam_ints(h, "attention.recurrent_layers", n_all, 0, 1, recurrent);
    int interval =
        given ? 1 : hparam_int_or(h, "full_attention_interval", 1, HPARAM_LAYERS_MOST, 4);
    for (int i = 0; ok && i < n->n_layer; i++) {
        struct layer *l = &n->layer[i];
        l->recurrent = given ? recurrent[i] != 0 : (i + 1) % interval != 0;
        l->has_ngram = i == n->ngram_layer;
        l->attn = n->attn;
        l->attn.ratio = l->recurrent ? 0 : ratio[i];
        if (l->attn.ratio && (n->attn.budget < l->attn.ratio || n->attn.budget % l->attn.ratio))
            ok = hparam_refuse(h, "attention.indexer.top_k",
                               "%d is not a multiple of layer %d's block of %d tokens",
                               n->attn.budget, i, l->attn.ratio);
    }
    mem_free(ratio);
    mem_free(recurrent);
    return ok && h->e->code == ERR_NONE;
}

static bool read_hparams(struct model *m, struct net *n, struct err *e)
{
    struct hparams h = {.file = m->file, .arch = "qwen4exp", .e = e};
    const int64_t most = HPARAM_SIZE_MOST;
    int n_all = hparam_int(&h, "block_count", 1, HPARAM_LAYERS_MOST);
    n->n_layer = n_all - hparam_int_or(&h, "nextn_predict_layers", 0, n_all - 1, 0);
    int embd = hparam_int(&h, "embedding_length", 1, 1 << 20);
    float eps = hparam_positive(&h, "attention.layer_norm_rms_epsilon");
    m->info.context = hparam_int(&h, "context_length", 1, INT32_MAX);

    n->hyper = (struct hyper_params){.hc = hparam_int(&h, "hyper_connection.count", 2, 64),
                                     .rank = hparam_int(&h, "hyper_connection.low_rank", 1, most),
                                     .embd = embd,
                                     .eps = eps};
    n->delta =
        (struct delta_net_params){.embd = embd,
                                  .eps = eps,
                                  .gate = GATE_SIGMOID,
                                  .taps = hparam_int(&h, "ssm.conv_kernel", 1, HPARAM_TAPS_MOST),
                                  .d = hparam_int(&h, "ssm.state_size", 1, 4096),
                                  .n_k = hparam_int(&h, "ssm.group_count", 1, 4096),
                                  .n_v = hparam_int(&h, "ssm.time_step_rank", 1, 4096)};
    int inner = hparam_int(&h, "ssm.inner_size", 1, most);
    if (inner != n->delta.n_v * n->delta.d)
        return hparam_refuse(&h, "ssm.inner_size", "%d is not %d heads of %d", inner, n->delta.n_v,
                             n->delta.d);
    n->moe = (struct mixture_params){
        .embd = embd,
        .renormalise = true,
        .experts = hparam_int(&h, "expert_count", 1, HPARAM_EXPERTS_MOST),
        .used = hparam_int(&h, "expert_used_count", 1, 1024),
        .width = hparam_int(&h, "expert_feed_forward_length", 1, 1 << 20),
        .shared_width = hparam_int(&h, "expert_shared_feed_forward_length", 1, 1 << 20)};
    if (n->moe.used > n->moe.experts)
        return hparam_refuse(&h, "expert_used_count", "%d of %d experts", n->moe.used,
                             n->moe.experts);
    n->attn = (struct sparse_attn_params){
        .embd = embd,
        .eps = eps,
        .gated = true,
        .n_head = hparam_largest(&h, "attention.head_count", n_all, 0, 4096),
        .n_kv = hparam_largest(&h, "attention.head_count_kv", n_all, 0, 4096),
        .d_head = hparam_int(&h, "attention.key_length", 1, 4096),
        .index_heads = hparam_int(&h, "attention.indexer.head_count", 1, 4096),
        .index_d = hparam_int(&h, "attention.indexer.key_length", 1, 4096),
        .budget = hparam_int(&h, "attention.indexer.top_k", 1, most)};
    int value = hparam_int_or(&h, "attention.value_length", 1, 4096, n->attn.d_head);
    if (value != n->attn.d_head)
        return hparam_refuse(&h, "attention.value_length", "%d differs from key_length %d", value,
                             n->attn.d_head);
    if (!n->attn.n_kv || n->attn.n_head < n->attn.n_kv || n->attn.n_head % n->attn.n_kv)
        return hparam_refuse(&h, "attention.head_count",
                             "%d heads do not share %d key heads evenly", n->attn.n_head,
                             n->attn.n_kv);
    const struct rope_rules rules = {.sections = ROPE_SECTIONS_OPTIONAL};
    m->info.has_draft = m->wants_draft && (n->n_layer < n_all || m->has_draft_file);
    n->layer = mem_alloc_array((size_t)n->n_layer + 1, sizeof *n->layer, "layers", e);
    if (!n->layer || e->code != ERR_NONE || !rope_read(&h, n->attn.d_head, &rules, &n->attn.rope) ||
        !read_ngram(&h, n) || !read_layer_kinds(&h, n, n_all))
        return false;
    bool indexed = false;
    for (int i = 0; i < n->n_layer; i++)
        indexed |= n->layer[i].attn.ratio > 0;
    if (indexed && n->attn.index_d < n->attn.rope.n_rot)
        return hparam_refuse(&h, "attention.indexer.key_length",
                             "%d is less than the %d rotated values", n->attn.index_d,
                             n->attn.rope.n_rot);
    return e->code == ERR_NONE;
}

/* ---- 1.2 tensors ---------------------------------------------------------------------------- */

static bool bind_layer(struct weights *w, struct net *n, int i, struct err *e)
{
    struct layer *l = &n->layer[i];
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blk.%d.hc_attn", i);
    if (!hyper_bind(w, &l->hc_attn, &n->hyper, true, prefix, e))
        return false;
    snprintf(prefix, sizeof prefix, "blk.%d.hc_ffn", i);
    return hyper_bind(w, &l->hc_ffn, &n->hyper, true, prefix, e) &&
           (l->recurrent ? delta_net_bind(w, &l->delta, &n->delta, i, e)
                         : sparse_attn_bind(w, &l->attn_weights, &l->attn, i, e)) &&
           mixture_bind(w, &l->moe, &n->moe, i, e) &&
           (!l->has_ngram || ngram_bind(w, &n->ngram_weights, &n->ngram, i, e));
}

/* 2.9, besides the tensors of a layer */
static bool bind_draft(struct weights *w, struct net *n, struct err *e)
{
    char prefix[48];
    snprintf(prefix, sizeof prefix, "blk.%d.nextn.hc_head", n->n_layer);
    return draft_bind(w, &n->draft, n->hyper.hc, n->hyper.embd, n->vocab, n->n_layer, e) &&
           hyper_bind(w, &n->draft_hc, &n->hyper, false, prefix, e);
}

static bool open_net(struct model *m, struct err *e)
{
    struct net *n = m->net = mem_alloc(sizeof *n, "network", e);
    if (!n || !read_hparams(m, n, e))
        return false;
    struct weights *w = &m->weights;
    n->vocab = weights_vocabulary(w, e);
    n->tied = !weights_has(w, "output.weight");
    if (!n->vocab ||
        !weights_matrix(w, &n->token_embd, n->hyper.embd, n->vocab, e, "token_embd.weight") ||
        (!n->tied && !weights_matrix(w, &n->output, n->hyper.embd, n->vocab, e, "output.weight")) ||
        !hyper_bind(w, &n->output_hc, &n->hyper, false, "output_hc", e))
        return false;
    n->layer[n->n_layer].attn = n->attn; /* of the draft layer: dense */
    for (int i = 0; i < n->n_layer + m->info.has_draft; i++)
        if (!bind_layer(w, n, i, e))
            return false;
    if (m->info.has_draft && !bind_draft(w, n, e))
        return false;
    m->draft_width = n->hyper.hc * n->hyper.embd;
    m->info.layers = n->n_layer;
    m->info.embd = n->hyper.embd;
    m->info.vocab = n->vocab;
    m->info.experts = n->moe.experts;
    m->info.experts_used = n->moe.used;
    return true;
}

static void close_net(struct model *m)
{
    struct net *n = m->net;
    if (!n)
        return;
    for (int i = 0; n->layer && i < n->n_layer + m->info.has_draft; i++)
        mixture_free(&n->layer[i].moe);
    mem_free(n->layer);
    mem_free((void *)n->attn.rope.inv_freq);
    mem_free(n);
}

static void experts_of(const struct model *m, int layer, struct model_experts *out)
{
    const struct net *n = m->net;
    mixture_describe(&n->layer[layer].moe, out);
}

static void row_table(const struct model *m, struct model_row_table *out)
{
    const struct net *n = m->net;
    *out = (struct model_row_table){0};
    if (n->ngram_layer < 0)
        return;
    const struct gguf_tensor *t = n->ngram_weights.table;
    *out = (struct model_row_table){.tensor = t,
                                    .rows = t->ne[1],
                                    .row_bytes = (size_t)(t->bytes / t->ne[1]),
                                    .rows_per_token = ngram_heads(&n->ngram)};
}

/* ---- memory --------------------------------------------------------------------------------- */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static void limits(const struct model *m, struct backend_limits *out)
{
    const struct net *n = m->net;
    int n_in = larger(n->hyper.hc * n->hyper.embd, n->hyper.rank);
    n_in = larger(n_in, n->delta.n_v * n->delta.d);
    n_in = larger(n_in, n->attn.n_head * n->attn.d_head);
    n_in = larger(n_in, larger(n->moe.width, n->moe.shared_width));
    out->n_in = n_in;
    out->expert_width = larger(n->moe.width, n->moe.shared_width);
    out->delta = m->held ? n->delta.d : 0;
    for (int i = 0; i < n->n_layer; i++)
        if (n->layer[i].attn.ratio)
            out->blocks = larger(out->blocks, out->ctx / n->layer[i].attn.ratio + 1);
}

static void carve_ngram(const struct net *n, const struct model *m, struct scratch *s, int band,
                        int tile, struct carve *device, struct carve *host)
{
    const size_t f = sizeof(float), rows = (size_t)tile, d = (size_t)n->hyper.embd;
    const size_t hc = (size_t)n->hyper.hc;
    size_t table_heads = (size_t)ngram_heads(&n->ngram);
    struct model_row_table table;
    row_table(m, &table);
    s->table_rows = carve(host, (size_t)band * table_heads, sizeof *s->table_rows);
    s->ngram.numbers = carve(host, rows * table_heads, sizeof *s->ngram.numbers);
    s->ngram.rows_bytes = carve(device, rows * table_heads, table.row_bytes);
    s->ngram.embedding = carve(device, rows * d, f);
    s->ngram.key = carve(device, rows * hc * d, f);
    s->ngram.query = carve(device, rows * hc * d, f);
    s->ngram.value = carve(device, rows * d, f);
    s->ngram.gate = carve(device, rows * hc, f);
    s->ngram.spread = carve(device, rows * hc * d, f);
    s->ngram.normed = carve(device, rows * hc * d, f);
    for (size_t i = 0; s->ngram.numbers && i < rows * table_heads; i++)
        s->ngram.numbers[i] = (int32_t)i;
}

static void carve_scratch(struct model *m, int band, int tile, struct carve *device,
                          struct carve *host)
{
    struct net *n = m->net;
    struct scratch cut = {0}, *s = &cut;
    const size_t f = sizeof(float), rows = (size_t)tile, d = (size_t)n->hyper.embd;
    const size_t hc = (size_t)n->hyper.hc;
    s->x = carve(device, (size_t)band * hc * d, f);
    s->inject = carve(device, (size_t)band * hc, f);
    s->y = carve(device, rows * d, f);
    s->out = carve(device, rows * d, f);
    s->mixer_inject = carve(device, rows * hc, f);
    s->embedding = carve(device, rows * d, f);
    pass_carve(&s->head, tile, n->vocab, device, host);
    s->hyper.normed = carve(device, rows * hc * d, f);
    s->hyper.gate = carve(device, rows * hc * d, f);
    s->hyper.low = carve(device, rows * (size_t)n->hyper.rank, f);

    int chosen = 0;
    for (int i = 0; i < n->n_layer; i++)
        if (n->layer[i].attn.ratio)
            chosen = larger(chosen, n->attn.budget / n->layer[i].attn.ratio);
    delta_net_carve(&s->delta, &n->delta, tile, device);
    sparse_attn_carve(&s->attn, &n->attn, tile, chosen, device);
    mixture_carve(&s->moe, &n->moe, band, tile, device, host);
    if (n->ngram_layer >= 0)
        carve_ngram(n, m, s, band, tile, device, host);
    if (m->info.has_draft)
        draft_carve(&s->draft, n->hyper.hc, n->hyper.embd, tile, device);
    for (int i = 0; m->held && i < n->n_layer; i++) {
        struct delta_net_scratch window = {0};
        if (n->layer[i].recurrent)
            delta_net_carve_window(&window, &n->delta, model_held_rows(m, tile), device);
        if (device->base)
            n->layer[i].window = window;
    }
    if (device->base)
        n->scratch = cut;
}

/* Section 5: what a session keeps. */
static void list_state(const struct model *m, struct state_builder *b)
{
    const struct net *n = m->net;
    for (int i = 0; i < n->n_layer; i++) {
        const struct layer *l = &n->layer[i];
        struct layer_state ls = {0};
        if (l->recurrent)
            delta_net_state(b, &n->delta, i, &ls);
        else
            sparse_attn_state(b, &l->attn, i, &ls);
        if (l->has_ngram && n->ngram.taps > 1)
            ls.ngram_conv =
                state_add(b, i, "ngram_conv", STATE_F32, false, 0,
                          (n->ngram.taps - 1) * n->ngram.longest, n->hyper.hc * n->hyper.embd, 0);
        if (b->state)
            b->state->layer[i] = ls;
    }
    if (m->info.has_draft) {
        struct layer_state ls = {0};
        int width = n->hyper.hc * n->hyper.embd;
        float *x = draft_state(b, &n->attn, n->n_layer, width, &ls);
        if (b->state) {
            b->state->layer[n->n_layer] = ls;
            b->state->draft_x = x;
        }
    }
}

/* The pooled index keys of complete blocks come from the raw ones. */
static bool restored(struct model *m, struct model_state *s, struct err *e)
{
    const struct net *n = m->net;
    struct backend *b = m->backend;
    for (int i = 0; i < n->n_layer; i++) {
        const struct layer *l = &n->layer[i];
        int blocks = l->attn.ratio ? s->position / l->attn.ratio : 0;
        if (blocks)
            b->index_pool(b, s->layer[i].index_raw, index_type(s->kv),
                          l->attn_weights.index_k_norm, &l->attn.rope, 0, blocks, l->attn.ratio, n->attn.index_d, n->attn.eps,
                          s->layer[i].index_pool);
    }
    return b->finish(b, e);
}

/* ---- 2 the forward pass --------------------------------------------------------------------- */

static float *streams_of(const struct pass *p, int first)
{
    const struct net *n = p->m->net;
    return p->x + (size_t)first * (size_t)n->hyper.hc * (size_t)n->hyper.embd;
}

/* The n-gram rows of all tokens are known as soon as the tokens are: their reads start first. */
static bool begin(struct pass *p)
{
    struct net *n = p->m->net;
    uint64_t *numbers = n->scratch.table_rows;
    int rows = p->batch->rows, heads = ngram_heads(&n->ngram);
    if (n->ngram_layer < 0)
        return true;
    for (int r = 0; r < rows; r++)
        ngram_rows(&n->ngram, p->s->ids, p->s->position + r, numbers + (size_t)r * (size_t)heads);
    for (int r = 0; p->batch->dump && r < rows;
         r++) { /* 31 bits do in models small enough to dump */
        int32_t shown[NGRAM_HEADS_MOST];
        for (int h = 0; h < heads; h++)
            shown[h] = (int32_t)numbers[(size_t)r * (size_t)heads + (size_t)h];
        dump_host_i32(p->batch, n->ngram_layer, "ple_rows", shown, 1, heads);
    }
    return p->rows->begin(p->rows->ctx, numbers, rows * heads, p->e);
}

/* 2.1: hc equal copies of the token's embedding. */
static void embed(struct pass *p, int first, int rows)
{
    struct net *n = p->m->net;
    p->b->embed(p->b, &n->token_embd, p->batch->ids + first, rows, n->scratch.embedding);
    p->b->repeat(p->b, n->scratch.embedding, rows, n->hyper.embd, n->hyper.hc,
                 streams_of(p, first));
}

static bool enter(struct pass *p, int i)
{
    struct net *n = p->m->net;
    const void *bytes = NULL;
    if (!n->layer[i].has_ngram)
        return true;
    backend_lap(p->b, LAP_READS);
    bool ok = p->rows->wait(p->rows->ctx, &bytes, p->e);
    p->table_bytes = bytes;
    return ok;
}

/* x = x + ple(x), the mixer between its hyper-connection's read and write, and the read for the
 * experts with their routing. */
static bool mix(struct pass *p, int i, int first, int rows)
{
    struct net *n = p->m->net;
    struct layer *l = &n->layer[i];
    struct scratch *t = &n->scratch;
    struct backend *b = p->b;
    const struct batch *batch = p->batch;
    int hc = n->hyper.hc, d = n->hyper.embd, pos = p->position + first;
    struct layer_state *s = &p->s->layer[i];
    float *x = streams_of(p, first);
    float *inject = t->inject + (size_t)first * (size_t)hc;
    float *ffn_in = t->moe.in + (size_t)first * (size_t)d;

    if (l->has_ngram) { /* 2.4 */
        struct model_row_table table;
        row_table(p->m, &table);
        size_t at = (size_t)first * (size_t)table.rows_per_token * table.row_bytes;
        if (!ngram_add(b, &n->ngram, &n->ngram_weights, s, x, rows, p->table_bytes + at, &t->ngram,
                       batch, i, p->e))
            return false;
    }
    hyper_read(b, &n->hyper, &l->hc_attn, x, rows, &t->hyper, t->y, t->mixer_inject); /* 2.3 */
    dump_rows(batch, b, i, "attn_in", t->y, rows, d, 0);
    dump_rows(batch, b, i, "attn_inject", t->mixer_inject, rows, hc, 0);
    if (l->recurrent) /* 2.5 */
        delta_net(b, &n->delta, &l->delta, s, t->y, rows, &t->delta, &l->window, batch, i, t->out);
    else /* 2.6 */
        sparse_attn(b, &l->attn, &l->attn_weights, s, t->y, rows, pos, &t->attn, batch, i, t->out);
    dump_rows(batch, b, i, "attn_out", t->out, rows, d, 0);
    b->hc_write(b, x, t->out, t->mixer_inject, rows, hc, d);
    dump_rows(batch, b, i, "mid", x, rows, hc, d, 0);
    hyper_read(b, &n->hyper, &l->hc_ffn, x, rows, &t->hyper, ffn_in, inject);
    dump_rows(batch, b, i, "ffn_in", ffn_in, rows, d, 0);
    dump_rows(batch, b, i, "ffn_inject", inject, rows, hc, 0);
    return mixture_route(b, &n->moe, &l->moe, &l[i < n->n_layer].moe, &t->moe, first, rows, batch, i,
                         p->e); /* 2.7 */
}

static const struct mixture_weights *mixture_of(struct pass *p, int i)
{
    struct net *n = p->m->net;
    return &n->layer[i].moe;
}

static void write_back(struct pass *p, int i, int first, int rows)
{
    struct net *n = p->m->net;
    struct scratch *t = &n->scratch;
    int hc = n->hyper.hc, d = n->hyper.embd;
    mixture_result(p->b, &n->moe, &t->moe, first, rows, p->batch, i, t->out);
    dump_rows(p->batch, p->b, i, "ffn_out", t->out, rows, d, 0);
    p->b->hc_write(p->b, streams_of(p, first), t->out, t->inject + (size_t)first * (size_t)hc, rows,
                   hc, d);
}

/* 2.8: final mixer and head. */
static void head(struct pass *p, int first, int rows, float *logits)
{
    struct net *n = p->m->net;
    struct scratch *t = &n->scratch;
    int d = n->hyper.embd;
    hyper_read(p->b, &n->hyper, &n->output_hc, streams_of(p, first), rows, &t->hyper, t->y, NULL);
    dump_rows(p->batch, p->b, -1, "final", t->y, rows, d, 0);
    p->b->linear(p->b, t->y, rows, d,
                 &(struct product){n->tied ? &n->token_embd : &n->output, logits}, 1);
}

static void show(struct pass *p, int layer, const char *name, int first, int rows)
{
    struct net *n = p->m->net;
    dump_rows(p->batch, p->b, layer, name, streams_of(p, first), rows, n->hyper.hc, n->hyper.embd,
              0);
}

static bool forward(struct model *m, struct model_state *s, const struct batch *batch,
                    const struct expert_source *experts, const struct row_source *rows,
                    struct err *e)
{
    struct net *n = m->net;
    const struct pass_steps steps = {.moe = &n->moe,
                                     .begin = begin,
                                     .embed = embed,
                                     .enter = enter,
                                     .mix = mix,
                                     .mixture = mixture_of,
                                     .write_back = write_back,
                                     .head = head,
                                     .show = show};
    struct pass p = {.m = m,
                     .b = m->backend,
                     .s = s,
                     .batch = batch,
                     .x = n->scratch.x,
                     .position = s->position,
                     .experts = experts,
                     .rows = rows,
                     .steps = &steps,
                     .moe = &n->scratch.moe,
                     .e = e};
    return pass_run(&p, &n->scratch.head);
}

/* Keys are cut off by the position, and pooled again when their block is complete. */
static bool commit(struct model *m, struct model_state *s, int rows, struct err *e)
{
    struct net *n = m->net;
    struct scratch *t = &n->scratch;
    for (int i = 0; i < n->n_layer; i++) {
        struct layer *l = &n->layer[i];
        if (l->has_ngram)
            ngram_commit(m->backend, &n->ngram, &s->layer[i], rows, &t->ngram);
        if (l->recurrent)
            delta_net_commit(m->backend, &n->delta, &s->layer[i], rows, &t->delta, &l->window);
    }
    return m->backend->finish(m->backend, e);
}

/* ---- 2.9 the draft layer -------------------------------------------------------------------- */

static float *draft_input(struct model *m, int rows)
{
    (void)rows;
    struct net *n = m->net;
    return n->scratch.x;
}

static void draft_embed(struct pass *p, int first, int rows)
{
    struct net *n = p->m->net;
    const struct tensor *embd = n->draft.own_embd.data ? &n->draft.own_embd : &n->token_embd;
    p->b->embed(p->b, embd, p->batch->ids + first, rows, n->scratch.embedding);
    draft_join(p->b, &n->draft, &n->scratch.draft, n->scratch.embedding, streams_of(p, first), rows,
               n->hyper.hc, n->hyper.embd, p->m->tile, n->hyper.eps);
}

static void draft_head(struct pass *p, int first, int rows, float *logits)
{
    struct net *n = p->m->net;
    struct scratch *t = &n->scratch;
    const struct tensor *shared = n->tied ? &n->token_embd : &n->output;
    hyper_read(p->b, &n->hyper, &n->draft_hc, streams_of(p, first), rows, &t->hyper, t->y, NULL);
    p->b->linear(p->b, t->y, rows, n->hyper.embd,
                 &(struct product){n->draft.own_head.data ? &n->draft.own_head : shared, logits}, 1);
}

static bool draft(struct model *m, struct model_state *s, const struct batch *batch, float *x,
                  int entry, const struct expert_source *experts, struct err *e)
{
    struct net *n = m->net;
    const struct pass_steps steps = {.moe = &n->moe,
                                     .embed = draft_embed,
                                     .mix = mix,
                                     .mixture = mixture_of,
                                     .write_back = write_back,
                                     .head = draft_head};
    struct pass p = {.m = m,
                     .b = m->backend,
                     .s = s,
                     .batch = batch,
                     .x = x,
                     .position = entry,
                     .experts = experts,
                     .steps = &steps,
                     .moe = &n->scratch.moe,
                     .e = e};
    return pass_draft(&p, &n->scratch.head);
}

static const struct arch_functions functions = {
    .open = open_net,
    .close = close_net,
    .experts = experts_of,
    .row_table = row_table,
    .limits = limits,
    .scratch = carve_scratch,
    .list_state = list_state,
    .restored = restored,
    .forward = forward,
    .commit = commit,
    .draft_input = draft_input,
    .draft = draft,
};

const struct arch arch_qwen4exp = {.name = "qwen4exp", .does = &functions};
