/* SPDX-License-Identifier: Apache-2.0 */
#include "model/delta_net.h"

#include "base/mem.h"
#include "model/dump.h"

#define L2_EPS 1e-6f /* a constant of the model, not its eps */

bool delta_net_bind(struct weights *w, struct delta_net_weights *out,
                    const struct delta_net_params *p, int layer, struct err *e)
{
    int64_t channels = delta_net_channels(p), inner = (int64_t)p->n_v * p->d;
    return weights_matrix(w, &out->qkv, p->embd, channels, e, "blk.%d.attn_qkv.weight", layer) &&
           weights_matrix(w, &out->gate, p->embd, inner, e, "blk.%d.attn_gate.weight", layer) &&
           weights_matrix(w, &out->alpha, p->embd, p->n_v, e, "blk.%d.ssm_alpha.weight", layer) &&
           weights_matrix(w, &out->beta, p->embd, p->n_v, e, "blk.%d.ssm_beta.weight", layer) &&
           delta_net_bind_rest(w, out, p, layer, e);
}

bool delta_net_bind_rest(struct weights *w, struct delta_net_weights *out,
                         const struct delta_net_params *p, int layer, struct err *e)
{
    int64_t channels = delta_net_channels(p), inner = (int64_t)p->n_v * p->d;
    return weights_vector(w, &out->conv, channels * p->taps, e, "blk.%d.ssm_conv1d.weight", layer) &&
           weights_vector(w, &out->dt, p->n_v, e, "blk.%d.ssm_dt.bias", layer) &&
           weights_vector(w, &out->a, p->n_v, e, "blk.%d.ssm_a", layer) &&
           weights_vector(w, &out->norm, p->d, e, "blk.%d.ssm_norm.weight", layer) &&
           weights_matrix(w, &out->out, inner, p->embd, e, "blk.%d.ssm_out.weight", layer);
}

void delta_net_carve(struct delta_net_scratch *t, const struct delta_net_params *p, int tile,
                     struct carve *device)
{
    const size_t f = sizeof(float), rows = (size_t)tile, channels = (size_t)delta_net_channels(p);
    size_t heads = (size_t)p->n_v, inner = heads * (size_t)p->d;
    t->qkv = carve(device, rows * channels, f);
    t->conv = carve(device, rows * channels, f);
    t->z = carve(device, rows * inner, f);
    t->core = carve(device, rows * inner, f);
    t->g = carve(device, rows * heads, f);
    t->beta = carve(device, rows * heads, f);
}

void delta_net_carve_window(struct delta_net_scratch *window, const struct delta_net_params *p,
                            int rows, struct carve *device)
{
    const size_t f = sizeof(float), n = (size_t)rows, channels = (size_t)delta_net_channels(p);
    *window = (struct delta_net_scratch){0};
    window->qkv = carve(device, n * channels, f);
    window->conv = carve(device, n * channels, f);
    window->g = carve(device, n * (size_t)p->n_v, f);
    window->beta = carve(device, n * (size_t)p->n_v, f);
}

void delta_net_state(struct state_builder *b, const struct delta_net_params *p, int layer,
                     struct layer_state *out)
{
    if (p->taps > 1)
        out->conv = state_add(b, layer, "conv", STATE_F32, false, 0, p->taps - 1,
                              delta_net_channels(p), 0);
    out->delta = state_add(b, layer, "delta", STATE_F32, false, 0, p->n_v, p->d, p->d, 0);
}

/* The state after these rows, as S [n_v][key][value] (fixtures). */
static void dump_state(struct backend *b, const struct delta_net_params *p,
                       const struct layer_state *s, const struct batch *batch, int layer)
{
    size_t d = (size_t)p->d, count = (size_t)p->n_v * d * d;
    float *ours = mem_alloc_array(2 * count, sizeof *ours, "dump", NULL);
    if (ours && b->read(b, ours, s->delta, count * sizeof *ours, NULL)) {
        float *turned = ours + count;
        for (size_t at = 0; at < count; at++) {
            size_t h = at / (d * d), v = at / d % d, k = at % d;
            turned[(h * d + k) * d + v] = ours[at];
        }
        dump_put(batch, layer, "gdn_state", DUMP_F32, turned, 0, 3, (int[]){p->n_v, p->d, p->d});
    }
    mem_free(ours);
}

/* What the network and its commit have in common; `w` NULL: the recurrence alone. */
static struct delta_rows rows_of(const struct delta_net_params *p,
                                 const struct delta_net_weights *w, struct layer_state *s, int rows,
                                 const struct delta_net_scratch *in, float *out)
{
    return (struct delta_rows){.rows = rows,
                               .n_k = p->n_k,
                               .n_v = p->n_v,
                               .d = p->d,
                               .taps = p->taps,
                               .grouped = p->grouped,
                               .l2_eps = L2_EPS,
                               .eps = p->eps,
                               .gate = p->gate,
                               .kernel = w ? w->conv : NULL,
                               .a = w ? w->a : NULL,
                               .dt = w ? w->dt : NULL,
                               .norm = w ? w->norm : NULL,
                               .qkv = in->qkv,
                               .history = s->conv,
                               .state = s->delta,
                               .conv = in->conv,
                               .g = in->g,
                               .beta = in->beta,
                               .out = out};
}

void delta_net(struct backend *b, const struct delta_net_params *p,
               const struct delta_net_weights *w, struct layer_state *s, const float *y, int rows,
               const struct delta_net_scratch *t, const struct delta_net_scratch *window,
               const struct batch *batch, int layer, float *out)
{
    int channels = delta_net_channels(p), inner = p->n_v * p->d;
    const struct delta_net_scratch *in = batch->is_held ? window : t;
    b->linear(b, y, rows, p->embd,
              (struct product[]){
                  {&w->qkv, in->qkv}, {&w->gate, t->z}, {&w->alpha, in->g}, {&w->beta, in->beta}},
              4);
    struct delta_rows r = rows_of(p, w, s, rows, in, t->core);
    r.z = t->z;
    r.is_held = batch->is_held;
    if (batch->dump) { /* in the place of what is not needed any more */
        r.conv_shown = in->qkv;
        r.core_shown = t->z;
    }
    b->delta_net(b, &r);
    dump_rows(batch, b, layer, "gdn_conv", in->qkv, rows, channels, 0);
    dump_rows(batch, b, layer, "gdn_g", in->g, rows, p->n_v, 0);
    dump_rows(batch, b, layer, "gdn_beta", in->beta, rows, p->n_v, 0);
    dump_rows(batch, b, layer, "gdn_core", t->z, rows, p->n_v, p->d, 0);
    if (batch->dump)
        dump_state(b, p, s, batch, layer);
    b->linear(b, t->core, rows, inner, &(struct product){&w->out, out}, 1);
}

void delta_net_commit(struct backend *b, const struct delta_net_params *p, struct layer_state *s,
                      int rows, const struct delta_net_scratch *t,
                      const struct delta_net_scratch *window)
{
    struct delta_rows r = rows_of(p, NULL, s, rows, window, t->core);
    b->conv_advance(b, window->qkv, s->conv, rows, delta_net_channels(p), p->taps - 1);
    b->delta_scan(b, &r);
}
