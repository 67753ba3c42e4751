/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next-80B-A3B and Qwen3-Coder-Next, architecture `qwen3next` (other-archs.md):
 *
 *     x = x + delta_net(norm(x, attn_norm))                 every fourth layer: gated attention
 *     x = x + moe(norm(x, post_attention_norm))             with a shared expert
 *     logits = output norm(x, output_norm)
 *
 * Its delta net packs projections per key head; rows are put into the common order as they are
 * read. Value head h works with key head h / (n_v / n_k). */
#include "model/single_stream.h"

/* 3.4: ssm_in holds, per key head g: d rows q, d rows k, r*d rows v, r*d rows z; r = n_v / n_k. */
static int64_t packed_row(const struct delta_net_params *p, int64_t head, int64_t part, int64_t row)
{
    int64_t r = p->n_v / p->n_k, group = (2 + 2 * r) * p->d;
    return head * group + part * p->d + row;
}

/* Row of attn_qkv (q heads, k heads, v heads) in ssm_in. */
static int64_t qkv_row(int64_t row, const void *ctx)
{
    const struct delta_net_params *p = ctx;
    int64_t head = row / p->d, r = p->n_v / p->n_k;
    if (head < p->n_k)
        return packed_row(p, head, 0, row % p->d);
    if (head < 2 * p->n_k)
        return packed_row(p, head - p->n_k, 1, row % p->d);
    head -= 2 * p->n_k;
    return packed_row(p, head / r, 2 + head % r, row % p->d);
}

static int64_t gate_row(int64_t row, const void *ctx)
{
    const struct delta_net_params *p = ctx;
    int64_t head = row / p->d, r = p->n_v / p->n_k;
    return packed_row(p, head / r, 2 + r + head % r, row % p->d);
}

/* ssm_ba holds, per key head: r rows of beta, then r rows of alpha. */
static int64_t beta_row(int64_t head, const void *ctx)
{
    const struct delta_net_params *p = ctx;
    int64_t r = p->n_v / p->n_k;
    return head / r * 2 * r + head % r;
}

static int64_t alpha_row(int64_t head, const void *ctx)
{
    const struct delta_net_params *p = ctx;
    return beta_row(head, ctx) + p->n_v / p->n_k;
}

static bool bind_delta(struct weights *w, struct delta_net_weights *out,
                       const struct delta_net_params *p, int layer, struct err *e)
{
    int64_t channels = delta_net_channels(p), inner = (int64_t)p->n_v * p->d;
    const char *in = "blk.%d.ssm_in.weight", *ba = "blk.%d.ssm_ba.weight";
    bool ok;
    if (weights_has(w, "blk.%d.ssm_in.weight", layer))
        ok = weights_matrix_rows(w, &out->qkv, p->embd, channels + inner, channels, qkv_row, p, e, in,
                                 layer) &&
             weights_matrix_rows(w, &out->gate, p->embd, channels + inner, inner, gate_row, p, e, in,
                                 layer);
    else
        ok = weights_matrix(w, &out->qkv, p->embd, channels, e, "blk.%d.attn_qkv.weight", layer) &&
             weights_matrix(w, &out->gate, p->embd, inner, e, "blk.%d.attn_gate.weight", layer);
    int64_t both = 2 * (int64_t)p->n_v;
    return ok &&
           weights_matrix_rows(w, &out->beta, p->embd, both, p->n_v, beta_row, p, e, ba, layer) &&
           weights_matrix_rows(w, &out->alpha, p->embd, both, p->n_v, alpha_row, p, e, ba, layer) &&
           delta_net_bind_rest(w, out, p, layer, e);
}

static const struct single_kind kind = {
    .has_delta = true,
    .grouped = true,
    .ffn_norm = "post_attention_norm",
    .bind_delta = bind_delta,
};

const struct arch arch_qwen3next = {.name = "qwen3next", .does = &single_stream, .kind = &kind};
