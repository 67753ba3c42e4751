/* SPDX-License-Identifier: Apache-2.0 */
/* Section numbers are those of other-archs.md. */
#include "model/single_stream.h"

#include "base/mem.h"
#include "model/dump.h"

/* ---- 2 metadata ----------------------------------------------------------------------------- */

static bool read_attention(struct hparams *h, struct single_net *n, int n_all,
                           const struct single_kind *kind)
{
    int n_head = hparam_largest(h, "attention.head_count", n_all, 0, 4096), n_kv = n_head;
    if (hparam_has(h, "attention.head_count_kv"))
        n_kv = hparam_largest(h, "attention.head_count_kv", n_all, 0, 4096);
    if (!n_kv || n_head < n_kv || n_head % n_kv)
        return hparam_refuse(h, "attention.head_count", "%d heads do not share %d key heads evenly",
                             n_head, n_kv);
    int d_head = hparam_int_or(h, "attention.key_length", 1, 4096, n->embd / n_head);
    int value = hparam_int_or(h, "attention.value_length", 1, 4096, d_head);
    if (d_head < 1 || d_head > 4096)
        return hparam_refuse(h, "attention.head_count", "%d heads share a width of %d", n_head,
                             n->embd);
    if (value != d_head)
        return hparam_refuse(h, "attention.value_length", "%d differs from key_length %d", value,
                             d_head);
    n->attn = (struct sparse_attn_params){.embd = n->embd,
                                          .eps = n->eps,
                                          .gated = kind->has_delta,
                                          .n_head = n_head,
                                          .d_head = d_head,
                                          .n_kv = n_kv};
    const struct rope_rules rules = {
        .rotated = d_head, .base = 10000, .scaling = true, .sections = kind->sections};
    if (h->e->code != ERR_NONE || !rope_read(h, d_head, &rules, &n->attn.rope))
        return false;
    return kind->has_delta || n->attn.rope.n_rot == d_head ||
           hparam_refuse(h, "rope.dimension_count", "%d is not the head's %d values",
                         n->attn.rope.n_rot, d_head);
}

static bool read_delta(struct hparams *h, struct single_net *n, bool grouped)
{
    n->delta =
        (struct delta_net_params){.embd = n->embd,
                                  .eps = n->eps,
                                  .gate = GATE_SILU,
                                  .grouped = grouped,
                                  .taps = hparam_int(h, "ssm.conv_kernel", 1, HPARAM_TAPS_MOST),
                                  .d = hparam_int(h, "ssm.state_size", 1, 4096),
                                  .n_k = hparam_int(h, "ssm.group_count", 1, 4096),
                                  .n_v = hparam_int(h, "ssm.time_step_rank", 1, 4096)};
    int inner = hparam_int(h, "ssm.inner_size", 1, HPARAM_SIZE_MOST);
    if (inner != n->delta.n_v * n->delta.d)
        return hparam_refuse(h, "ssm.inner_size", "%d is not %d heads of %d", inner, n->delta.n_v,
                             n->delta.d);
    if (n->delta.n_v % n->delta.n_k)
        return hparam_refuse(h, "ssm.time_step_rank", "%d is not a multiple of %d key heads",
                             n->delta.n_v, n->delta.n_k);
    return h->e->code == ERR_NONE;
}

static bool read_mixture(struct hparams *h, struct single_net *n, bool shared)
{
    int dense = hparam_int_or(h, "feed_forward_length", 0, 1 << 20, 0);
    n->moe =
        (struct mixture_params){.embd = n->embd,
                                .renormalise = true,
                                .experts = hparam_int(h, "expert_count", 1, HPARAM_EXPERTS_MOST),
                                .used = hparam_int(h, "expert_used_count", 1, 1024)};
    n->moe.width = hparam_int_or(h, "expert_feed_forward_length", 1, 1 << 20, dense / n->moe.used);
    if (shared)
        n->moe.shared_width =
            hparam_int_or(h, "expert_shared_feed_forward_length", 1, 1 << 20, dense);
    if (n->moe.used > n->moe.experts)
        return hparam_refuse(h, "expert_used_count", "%d of %d experts", n->moe.used,
                             n->moe.experts);
    if (!n->moe.width || (shared && !n->moe.shared_width))
        return hparam_refuse(h, "feed_forward_length",
                             "missing, and no width of the experts is given");
    return h->e->code == ERR_NONE;
}

static bool read_layer_kinds(struct hparams *h, struct single_net *n, int n_all, bool has_delta)
{
    bool given = has_delta && hparam_has(h, "attention.recurrent_layers");
    int *recurrent = mem_alloc_array((size_t)n_all, sizeof *recurrent, "layers", h->e);
    if (!recurrent)
        return false;
    if (given)
        hparam_ints(h, "attention.recurrent_layers", n_all, 0, 1, recurrent);
    int interval =
        has_delta ? hparam_int_or(h, "full_attention_interval", 1, HPARAM_LAYERS_MOST, 4) : 1;
    for (int i = 0; i < n->n_layer; i++)
        n->layer[i].recurrent = given ? recurrent[i] != 0 : (i + 1) % interval != 0;
    mem_free(recurrent);
    return h->e->code == ERR_NONE;
}

static bool read_hparams(struct model *m, const struct single_kind *kind, struct single_net *n,
                         struct err *e)
{
    struct hparams h = {.file = m->file, .arch = m->arch->name, .e = e};
    int n_all = hparam_int(&h, "block_count", 1, HPARAM_LAYERS_MOST);
    n->n_layer =
        n_all - (kind->has_delta ? hparam_int_or(&h, "nextn_predict_layers", 0, n_all - 1, 0) : 0);
    n->embd = hparam_int(&h, "embedding_length", 1, 1 << 20);
    n->eps = hparam_positive(&h, "attention.layer_norm_rms_epsilon");
    m->info.context = hparam_int(&h, "context_length", 1, INT32_MAX);
    m->info.has_draft =
        m->wants_draft && kind->has_delta && (n->n_layer < n_all || m->has_draft_file);
    n->layer = mem_alloc_array((size_t)n->n_layer + 1, sizeof *n->layer, "layers", e);
    return n->layer && e->code == ERR_NONE && read_attention(&h, n, n_all, kind) &&
           (!kind->has_delta || read_delta(&h, n, kind->grouped)) &&
           read_mixture(&h, n, kind->has_delta) && read_layer_kinds(&h, n, n_all, kind->has_delta);
}

/* ---- 3 tensors ------------------------------------------------------------------------------ */

static bool bind_layer(struct weights *w, const struct single_kind *kind, struct single_net *n,
                       int i, struct err *e)
{
    struct single_layer *l = &n->layer[i];
    return weights_vector(w, &l->attn_norm, n->embd, e, "blk.%d.attn_norm.weight", i) &&
           weights_vector(w, &l->ffn_norm, n->embd, e, "blk.%d.%s.weight", i, kind->ffn_norm) &&
           (l->recurrent ? kind->bind_delta(w, &l->delta, &n->delta, i, e)
                         : sparse_attn_bind(w, &l->attn, &n->attn, i, e)) &&
           mixture_bind(w, &l->moe, &n->moe, i, e);
}

/* 3.6, besides the tensors of a layer */
static bool bind_draft(struct weights *w, struct single_net *n, struct err *e)
{
    return draft_bind(w, &n->draft, 1, n->embd, n->vocab, n->n_layer, e) &&
           weights_vector(w, &n->draft_norm, n->embd, e,
                          weights_has(w, "blk.%d.nextn.shared_head_norm.weight", n->n_layer)
                              ? "blk.%d.nextn.shared_head_norm.weight"
                              : "output_norm.weight",
                          n->n_layer);
}

static bool open_net(struct model *m, struct err *e)
{
    const struct single_kind *kind = m->arch->kind;
    struct single_net *n = m->net = mem_alloc(sizeof *n, "network", e);
    if (!n || !read_hparams(m, kind, n, e))
        return false;
    struct weights *w = &m->weights;
    n->vocab = weights_vocabulary(w, e);
    n->tied = !weights_has(w, "output.weight");
    if (!n->vocab ||
        !weights_matrix(w, &n->token_embd, n->embd, n->vocab, e, "token_embd.weight") ||
        (!n->tied && !weights_matrix(w, &n->output, n->embd, n->vocab, e, "output.weight")) ||
        !weights_vector(w, &n->output_norm, n->embd, e, "output_norm.weight"))
        return false;
    for (int i = 0; i < n->n_layer + m->info.has_draft; i++)
        if (!bind_layer(w, kind, n, i, e))
            return false;
    if (m->info.has_draft && !bind_draft(w, n, e))
        return false;
    m->draft_width = n->embd;
    m->info.layers = n->n_layer;
    m->info.embd = n->embd;
    m->info.vocab = n->vocab;
    m->info.experts = n->moe.experts;
    m->info.experts_used = n->moe.used;
    return true;
}

static void close_net(struct model *m)
{
    struct single_net *n = m->net;
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
    const struct single_net *n = m->net;
    mixture_describe(&n->layer[layer].moe, out);
}

static void row_table(const struct model *m, struct model_row_table *out)
{
    (void)m;
    *out = (struct model_row_table){0};
}

/* ---- memory --------------------------------------------------------------------------------- */

static void limits(const struct model *m, struct backend_limits *out)
{
    const struct single_net *n = m->net;
    int widths[] = {n->embd, m->info.has_draft ? 2 * n->embd : 0, n->delta.n_v * n->delta.d, n->attn.n_head * n->attn.d_head,
                    n->moe.width, n->moe.shared_width};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        out->n_in = widths[i] > out->n_in ? widths[i] : out->n_in;
    out->expert_width =
        n->moe.width > n->moe.shared_width ? n->moe.width : n->moe.shared_width;
    out->delta = m->held ? n->delta.d : 0;
}

static void carve_scratch(struct model *m, int band, int tile, struct carve *device, struct carve *host)
{
    struct single_net *n = m->net;
    struct single_scratch s = {0};
    const size_t f = sizeof(float), d = (size_t)n->embd;
    s.x = carve(device, (size_t)band * d, f);
    s.y = carve(device, (size_t)tile * d, f);
    s.out = carve(device, (size_t)tile * d, f);
    delta_net_carve(&s.delta, &n->delta, tile, device);
    sparse_attn_carve(&s.attn, &n->attn, tile, 0, device);
    mixture_carve(&s.moe, &n->moe, band, tile, device, host);
    pass_carve(&s.head, tile, n->vocab, device, host);
    if (m->info.has_draft)
        draft_carve(&s.draft, 1, n->embd, tile, device);
    for (int i = 0; m->held && i < n->n_layer; i++) {
        struct delta_net_scratch window = {0};
        if (n->layer[i].recurrent)
            delta_net_carve_window(&window, &n->delta, model_held_rows(m, tile), device);
        if (device->base)
            n->layer[i].window = window;
    }
    if (device->base)
        n->scratch = s;
}

/* 6.1 */
static void list_state(const struct model *m, struct state_builder *b)
{
    const struct single_net *n = m->net;
    for (int i = 0; i < n->n_layer; i++) {
        struct layer_state s = {0};
        if (n->layer[i].recurrent)
            delta_net_state(b, &n->delta, i, &s);
        else
            sparse_attn_state(b, &n->attn, i, &s);
        if (b->state)
            b->state->layer[i] = s;
    }
    if (m->info.has_draft) {
        struct layer_state s = {0};
        float *x = draft_state(b, &n->attn, n->n_layer, n->embd, &s);
        if (b->state) {
            b->state->layer[n->n_layer] = s;
            b->state->draft_x = x;
        }
    }
}

static bool restored(struct model *m, struct model_state *s, struct err *e)
{
    (void)m;
    (void)s;
    (void)e;
    return true; /* nothing is derived */
}

/* ---- 4 the forward pass --------------------------------------------------------------------- */

static float *residual_of(const struct pass *p, int first)
{
    const struct single_net *n = p->m->net;
    return p->x + (size_t)first * (size_t)n->embd;
}

static void embed(struct pass *p, int first, int rows)
{
    struct single_net *n = p->m->net;
    p->b->embed(p->b, &n->token_embd, p->batch->ids + first, rows, residual_of(p, first));
}

/* x = x + mixer(norm(x)), and the norm for the experts with their routing (4.1). */
static bool mix(struct pass *p, int i, int first, int rows)
{
    struct single_net *n = p->m->net;
    struct single_layer *l = &n->layer[i];
    struct single_scratch *t = &n->scratch;
    struct backend *b = p->b;
    struct layer_state *s = &p->s->layer[i];
    int d = n->embd, pos = p->position + first;
    float *x = residual_of(p, first), *ffn_in = t->moe.in + (size_t)first * (size_t)d;

    b->norm(b, x, l->attn_norm, 1, rows, d, n->eps, t->y);
    dump_rows(p->batch, b, i, "attn_in", t->y, rows, d, 0);
    if (l->recurrent) /* 4.4 */
        delta_net(b, &n->delta, &l->delta, s, t->y, rows, &t->delta, &l->window, p->batch, i, t->out);
    else /* 4.2 */
        sparse_attn(b, &n->attn, &l->attn, s, t->y, rows, pos, &t->attn, p->batch, i, t->out);
    dump_rows(p->batch, b, i, "attn_out", t->out, rows, d, 0);
    b->add(b, x, t->out, (size_t)rows * (size_t)d);
    dump_rows(p->batch, b, i, "mid", x, rows, d, 0);
    b->norm(b, x, l->ffn_norm, 1, rows, d, n->eps, ffn_in);
    dump_rows(p->batch, b, i, "ffn_in", ffn_in, rows, d, 0);
    return mixture_route(b, &n->moe, &l->moe, &l[i < n->n_layer].moe, &t->moe, first, rows, p->batch, i,
                         p->e); /* 4.5 */
}

static const struct mixture_weights *mixture_of(struct pass *p, int i)
{
    struct single_net *n = p->m->net;
    return &n->layer[i].moe;
}

static void write_back(struct pass *p, int i, int first, int rows)
{
    struct single_net *n = p->m->net;
    mixture_result(p->b, &n->moe, &n->scratch.moe, first, rows, p->batch, i, n->scratch.out);
    dump_rows(p->batch, p->b, i, "ffn_out", n->scratch.out, rows, n->embd, 0);
    p->b->add(p->b, residual_of(p, first), n->scratch.out, (size_t)rows * (size_t)n->embd);
}

static void head(struct pass *p, int first, int rows, float *logits)
{
    struct single_net *n = p->m->net;
    float *y = n->scratch.y;
    p->b->norm(p->b, residual_of(p, first), n->output_norm, 1, rows, n->embd, n->eps, y);
    dump_rows(p->batch, p->b, -1, "final", y, rows, n->embd, 0);
    p->b->linear(p->b, y, rows, n->embd,
                 &(struct product){n->tied ? &n->token_embd : &n->output, logits}, 1);
}

static void show(struct pass *p, int layer, const char *name, int first, int rows)
{
    struct single_net *n = p->m->net;
    dump_rows(p->batch, p->b, layer, name, residual_of(p, first), rows, n->embd, 0);
}

static bool forward(struct model *m, struct model_state *s, const struct batch *batch,
                    const struct expert_source *experts, const struct row_source *rows,
                    struct err *e)
{
    struct single_net *n = m->net;
    const struct pass_steps steps = {.moe = &n->moe,
                                     .embed = embed,
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

/* Keys are cut off by the position. */
static bool commit(struct model *m, struct model_state *s, int rows, struct err *e)
{
    struct single_net *n = m->net;
    for (int i = 0; i < n->n_layer; i++)
        if (n->layer[i].recurrent)
            delta_net_commit(m->backend, &n->delta, &s->layer[i], rows, &n->scratch.delta,
                             &n->layer[i].window);
    return m->backend->finish(m->backend, e);
}

/* ---- 5 the draft layer ---------------------------------------------------------------------- */

/* u = norm(x, output_norm) */
static float *draft_input(struct model *m, int rows)
{
    struct single_net *n = m->net;
    float *x = n->scratch.x;
    for (int at = 0; at < rows; at += m->tile) {
        float *u = x + (size_t)at * (size_t)n->embd;
        int r = rows - at < m->tile ? rows - at : m->tile;
        m->backend->norm(m->backend, u, n->output_norm, 1, r, n->embd, n->eps, u);
    }
    return x;
}

static void draft_embed(struct pass *p, int first, int rows)
{
    struct single_net *n = p->m->net;
    const struct tensor *embd = n->draft.own_embd.data ? &n->draft.own_embd : &n->token_embd;
    p->b->embed(p->b, embd, p->batch->ids + first, rows, n->scratch.y);
    draft_join(p->b, &n->draft, &n->scratch.draft, n->scratch.y, residual_of(p, first), rows, 1,
               n->embd, p->m->tile, n->eps);
}

/* u' takes the place of y: it feeds the next guess. */
static void draft_head(struct pass *p, int first, int rows, float *logits)
{
    struct single_net *n = p->m->net;
    float *u = residual_of(p, first);
    const struct tensor *shared = n->tied ? &n->token_embd : &n->output;
    p->b->norm(p->b, u, n->draft_norm, 1, rows, n->embd, n->eps, u);
    p->b->linear(p->b, u, rows, n->embd,
                 &(struct product){n->draft.own_head.data ? &n->draft.own_head : shared, logits}, 1);
}

static bool draft(struct model *m, struct model_state *s, const struct batch *batch, float *x,
                  int entry, const struct expert_source *experts, struct err *e)
{
    struct single_net *n = m->net;
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

const struct arch_functions single_stream = {
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
