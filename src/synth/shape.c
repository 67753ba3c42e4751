/* SPDX-License-Identifier: Apache-2.0 */
#include "synth/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const char *const synth_group_names[SYNTH_GROUPS] = {
    [GROUP_EMBEDDING] = "embedding",
    [GROUP_NGRAM_TABLE] = "n-gram table",
    [GROUP_HYPER] = "hyper-connections",
    [GROUP_DELTA] = "delta net",
    [GROUP_ROUTER] = "router",
    [GROUP_EXPERTS] = "experts",
    [GROUP_SHARED] = "shared expert",
    [GROUP_NGRAM] = "n-gram block",
    [GROUP_ATTENTION] = "attention",
    [GROUP_NORMS] = "norms",
    [GROUP_HEAD] = "head",
    [GROUP_DRAFT] = "draft layer",
};

/* qwen4exp: Qwen3.8-Flash-Next. The others: the releases named in docs/adding-a-model.md, of each
 * architecture the smallest public one (30B-A3B, Next-80B-A3B, 35B-A3B). */
static const struct synth_shape shapes[] = {
    {.arch = "qwen4exp",
     .embd = 2560,
     .heads = 24,
     .kv_heads = 2,
     .head = 256,
     .key_heads = 16,
     .value_heads = 48,
     .linear = 128,
     .taps = 4,
     .experts = 512,
     .used = 10,
     .width = 640,
     .shared = 640,
     .interval = 4,
     .streams = 4,
     .rank = 320,
     .rotated = 64,
     .has_sections = true,
     .has_gate = true,
     .rope_base = 1e7f,
     .has_draft = true,
     .layers = 48,
     .vocab = 248320,
     .context = 262144,
     .eos = 248044,
     .image = 248056,
     .pre = "qwen35",
     .x_rms = 0.51,
     .head_norm = 0.65},
    {.arch = "qwen3moe",
     .embd = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head = 128,
     .experts = 128,
     .used = 8,
     .width = 768,
     .interval = 1,
     .rotated = 128,
     .rope_base = 1e6f,
     .layers = 48,
     .vocab = 151936,
     .context = 40960,
     .eos = 151645,
     .pre = "qwen2",
     .x_rms = 1,
     .head_norm = 0.32},
    {.arch = "qwen3next",
     .embd = 2048,
     .heads = 16,
     .kv_heads = 2,
     .head = 256,
     .key_heads = 16,
     .value_heads = 32,
     .linear = 128,
     .taps = 4,
     .experts = 512,
     .used = 10,
     .width = 512,
     .shared = 512,
     .interval = 4,
     .rotated = 64,
     .has_gate = true,
     .rope_base = 1e7f,
     .has_draft = true,
     .layers = 48,
     .vocab = 151936,
     .context = 262144,
     .eos = 151645,
     .pre = "qwen2",
     .x_rms = 1,
     .head_norm = 0.32},
    {.arch = "qwen35moe",
     .embd = 2048,
     .heads = 16,
     .kv_heads = 2,
     .head = 256,
     .key_heads = 16,
     .value_heads = 32,
     .linear = 128,
     .taps = 4,
     .experts = 256,
     .used = 8,
     .width = 512,
     .shared = 512,
     .interval = 4,
     .rotated = 64,
     .has_sections = true,
     .has_gate = true,
     .rope_base = 1e7f,
     .has_draft = true,
     .layers = 40,
     .vocab = 248320,
     .context = 262144,
     .eos = 248044,
     .pre = "qwen35",
     .x_rms = 1,
     .head_norm = 0.32},
};

const struct synth_shape *synth_shape_of(const char *arch)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].arch, arch))
            return &shapes[i];
    return NULL;
}

/* ---- Types ---------------------------------------------------------------------------------- */

enum { MIX_IQ2XS, MIX_UD1, MIX_UD_Q4, MIX_Q8 };

/* Types of the trunk. Those of ud1 are counted from a public IQ1_S file of qwen4exp; those of ud-q4
 * are a guess. */
struct mix {
    const char *name;
    enum tensor_type table, head, qkv, gate, out, q, k, v, o, shared, ngram;
};

static const struct mix mixes[] = {
    [MIX_IQ2XS] = {"iq2xs", TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_Q5_K,
                   TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_Q5_K, TYPE_IQ4_NL},
    [MIX_UD1] = {"ud1", TYPE_Q4_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_Q5_K, TYPE_Q5_K,
                 TYPE_Q5_K, TYPE_Q5_K, TYPE_Q5_K, TYPE_IQ4_NL},
    [MIX_UD_Q4] = {"ud-q4", TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K,
                   TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, TYPE_IQ4_NL},
    [MIX_Q8] = {"q8", TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0,
                TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_Q4_0},
};

int synth_mix_of(const char *name)
{
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (!strcmp(mixes[i].name, name))
            return (int)i;
    return -1;
}

/* Types of the experts. Of ud1 the counts are those of a public file (28 of 96 tensors IQ2_XXS);
 * which layers have them is a guess. A row of the down matrix need not fit blocks of 256. */
static enum tensor_type expert_type(int mix, bool is_down, int layer)
{
    switch (mix) {
    case MIX_Q8:
        return TYPE_Q8_0;
    case MIX_UD_Q4:
        return is_down ? TYPE_Q5_0 : TYPE_Q4_K;
    case MIX_IQ2XS:
        return is_down ? TYPE_Q2_0 : layer % 7 == 3 ? TYPE_IQ3_S : TYPE_IQ2_XS;
    default:
        return is_down ? TYPE_IQ4_NL : layer % 7 == 0 || layer % 7 == 4 ? TYPE_IQ2_XXS : TYPE_IQ1_S;
    }
}

/* ---- The list ------------------------------------------------------------------------------- */

struct building {
    const struct synth_shape *s;
    const struct mix *m;
    int mix, layer;
    bool is_draft;
    struct synth_list *list;
    struct err *e;
};

/* Adds a tensor of the layer (or, with layer -1, of the model); dimensions of 0 are none. */
static void add(struct building *b, const char *name, int64_t n0, int64_t n1, int64_t n2,
                enum tensor_type type, enum synth_group group, enum synth_fill fill, double x,
                double y)
{
    struct synth_list *l = b->list;
    if (l->n == l->room) {
        int room = l->room * 2 + 64;
        struct synth_tensor *more =
            mem_grow(l->tensor, (size_t)room * sizeof *more, "tensors", b->e);
        if (!more)
            return;
        l->tensor = more;
        l->room = room;
    }
    struct synth_tensor *t = &l->tensor[l->n++];
    *t = (struct synth_tensor){.n_dims = n2   ? 3
                                         : n1 ? 2
                                              : 1,
                               .ne = {(uint64_t)n0, n1 ? (uint64_t)n1 : 1, n2 ? (uint64_t)n2 : 1},
                               .type = type,
                               .group = b->is_draft ? GROUP_DRAFT : group,
                               .fill = fill,
                               .a = x,
                               .b = y};
    if (b->layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", b->layer, name);
}

static void matrix(struct building *b, const char *name, int64_t in, int64_t out,
                   enum tensor_type type, enum synth_group group, double deviation)
{
    add(b, name, in, out, 0, type, group, FILL_RANDOM, deviation, 0);
}

static void ones(struct building *b, const char *name, int64_t n, enum synth_group group)
{
    add(b, name, n, 0, 0, TYPE_F32, group, FILL_ONES, 0, 0);
}

/* Deviation of a matrix whose outputs have RMS 1. */
static double unit(const struct synth_shape *s)
{
    return 1 / (s->x_rms * sqrt(s->embd));
}

/* One that reads the streams; the others write to them too. */
static void add_mixer(struct building *b, const char *prefix)
{
    const struct synth_shape *s = b->s;
    int64_t wide = (int64_t)s->streams * s->embd;
    char name[64];
    snprintf(name, sizeof name, "%s_norm.weight", prefix);
    ones(b, name, wide, GROUP_HYPER);
    snprintf(name, sizeof name, "%s_down.weight", prefix);
    matrix(b, name, wide, s->rank, TYPE_Q8_0, GROUP_HYPER, 4 / sqrt((double)wide));
    snprintf(name, sizeof name, "%s_up.weight", prefix);
    matrix(b, name, s->rank, wide, TYPE_Q8_0, GROUP_HYPER, 1 / (0.6 * sqrt(s->rank)));
}

static void add_hyper(struct building *b, const char *part)
{
    const struct synth_shape *s = b->s;
    int64_t wide = (int64_t)s->streams * s->embd;
    char name[64];
    snprintf(name, sizeof name, "hc_%s", part);
    add_mixer(b, name);
    snprintf(name, sizeof name, "hc_%s_inject.weight", part);
    matrix(b, name, wide, s->streams, TYPE_F32, GROUP_HYPER, 1 / sqrt((double)wide));
}

static void add_delta(struct building *b)
{
    const struct synth_shape *s = b->s;
    const struct mix *m = b->m;
    int64_t key = (int64_t)s->key_heads * s->linear, value = (int64_t)s->value_heads * s->linear;
    matrix(b, "attn_qkv.weight", s->embd, 2 * key + value, m->qkv, GROUP_DELTA, unit(s));
    matrix(b, "attn_gate.weight", s->embd, value, m->gate, GROUP_DELTA, unit(s));
    matrix(b, "ssm_conv1d.weight", s->taps, 2 * key + value, TYPE_F32, GROUP_DELTA, 0.5);
    add(b, "ssm_dt.bias", s->value_heads, 0, 0, TYPE_F32, GROUP_DELTA, FILL_UNIFORM, -4, -1);
    add(b, "ssm_a", s->value_heads, 0, 0, TYPE_F32, GROUP_DELTA, FILL_UNIFORM, -1.5, -0.1);
    if (!strcmp(s->arch, "qwen3next")) {
        matrix(b, "ssm_ba.weight", s->embd, 2 * s->value_heads, TYPE_F32, GROUP_DELTA, unit(s));
    } else {
        matrix(b, "ssm_beta.weight", s->embd, s->value_heads, TYPE_F32, GROUP_DELTA, unit(s));
        matrix(b, "ssm_alpha.weight", s->embd, s->value_heads, TYPE_F32, GROUP_DELTA, unit(s));
    }
    ones(b, "ssm_norm.weight", s->linear, GROUP_DELTA);
    matrix(b, "ssm_out.weight", value, s->embd, m->out, GROUP_DELTA,
           SYNTH_BLOCK_OUT / (0.55 * sqrt((double)value)));
}

static void add_attention(struct building *b)
{
    const struct synth_shape *s = b->s;
    const struct mix *m = b->m;
    int64_t q = (int64_t)s->heads * s->head, kv = (int64_t)s->kv_heads * s->head;
    matrix(b, "attn_q.weight", s->embd, s->has_gate ? 2 * q : q, m->q, GROUP_ATTENTION, unit(s));
    matrix(b, "attn_k.weight", s->embd, kv, m->k, GROUP_ATTENTION, unit(s));
    matrix(b, "attn_v.weight", s->embd, kv, m->v, GROUP_ATTENTION, unit(s));
    /* What attention averages over many values is small; a gate halves it again. */
    matrix(b, "attn_output.weight", q, s->embd, m->o, GROUP_ATTENTION,
           SYNTH_BLOCK_OUT / ((s->has_gate ? 0.16 : 0.3) * sqrt((double)q)));
    ones(b, "attn_q_norm.weight", s->head, GROUP_ATTENTION);
    ones(b, "attn_k_norm.weight", s->head, GROUP_ATTENTION);
    if (!s->streams)
        return;
    matrix(b, "indexer.q_proj.weight", s->embd, SYNTH_INDEX_HEADS * SYNTH_INDEX_DIM, TYPE_BF16,
           GROUP_ATTENTION, unit(s));
    matrix(b, "indexer.k_proj.weight", s->embd, SYNTH_INDEX_DIM, TYPE_BF16, GROUP_ATTENTION,
           unit(s));
    ones(b, "indexer.q_norm.weight", SYNTH_INDEX_DIM, GROUP_ATTENTION);
    ones(b, "indexer.k_norm.weight", SYNTH_INDEX_DIM, GROUP_ATTENTION);
}

static void add_ngram(struct building *b)
{
    const struct synth_shape *s = b->s;
    int64_t wide = (int64_t)s->streams * s->embd;
    matrix(b, "ple_key.weight", s->embd, wide, TYPE_Q8_0, GROUP_NGRAM, 1 / sqrt(s->embd));
    matrix(b, "ple_value.weight", s->embd, s->embd, TYPE_Q8_0, GROUP_NGRAM, 0.2 / sqrt(s->embd));
    ones(b, "ple_norm_key.weight", wide, GROUP_NGRAM);
    ones(b, "ple_norm_query.weight", wide, GROUP_NGRAM);
    ones(b, "ple_norm_conv.weight", wide, GROUP_NGRAM);
    matrix(b, "ple_conv1d.weight", SYNTH_NGRAM_TAPS, wide, TYPE_F32, GROUP_NGRAM, 0.1);
}

static void add_experts(struct building *b)
{
    const struct synth_shape *s = b->s;
    /* silu(gate) * up of unit inputs has RMS 0.6; the weights of the chosen add up to 0.34. */
    double down = 0.07 / (0.34 * 0.6 * sqrt(s->width));
    enum tensor_type wide = expert_type(b->mix, false, b->layer);
    enum tensor_type narrow = expert_type(b->mix, true, b->layer);
    add(b, "ffn_gate_inp.weight", s->embd, s->experts, 0, TYPE_F32, GROUP_ROUTER, FILL_ROUTER,
        b->layer, b->is_draft ? 0 : b->layer);
    add(b, "ffn_gate_exps.weight", s->embd, s->width, s->experts, wide, GROUP_EXPERTS, FILL_EXPERTS,
        unit(s), 0);
    add(b, "ffn_up_exps.weight", s->embd, s->width, s->experts, wide, GROUP_EXPERTS, FILL_EXPERTS,
        unit(s), 0);
    add(b, "ffn_down_exps.weight", s->width, s->embd, s->experts, narrow, GROUP_EXPERTS,
        FILL_EXPERTS, down, 0);
    if (!s->shared)
        return;
    add(b, "ffn_gate_inp_shexp.weight", s->embd, 0, 0, TYPE_F32, GROUP_SHARED, FILL_RANDOM, unit(s),
        0);
    matrix(b, "ffn_gate_shexp.weight", s->embd, s->shared, b->m->shared, GROUP_SHARED, unit(s));
    matrix(b, "ffn_up_shexp.weight", s->embd, s->shared, b->m->shared, GROUP_SHARED, unit(s));
    matrix(b, "ffn_down_shexp.weight", s->shared, s->embd, TYPE_Q8_0, GROUP_SHARED,
           0.07 / (0.5 * 0.6 * sqrt(s->shared)));
}

static void add_layer(struct building *b, int layer)
{
    const struct synth_shape *s = b->s;
    b->layer = layer;
    if (s->streams) {
        add_hyper(b, "attn");
        add_hyper(b, "ffn");
    } else {
        ones(b, "attn_norm.weight", s->embd, GROUP_NORMS);
    }
    if ((layer + 1) % s->interval && !b->is_draft)
        add_delta(b);
    else
        add_attention(b);
    if (!s->streams)
        ones(b, s->value_heads ? "post_attention_norm.weight" : "ffn_norm.weight", s->embd,
             GROUP_NORMS);
    else if (layer == SYNTH_NGRAM_LAYER && !b->is_draft)
        add_ngram(b);
    add_experts(b);
    b->layer = -1;
}

static void add_model(struct building *b, const struct synth_parts *p)
{
    const struct synth_shape *s = b->s;
    add(b, "token_embd.weight", s->embd, p->vocab, 0, b->m->table, GROUP_EMBEDDING, FILL_EMBED, 0,
        0);
    if (s->streams)
        matrix(b, "per_layer_token_embd.weight", SYNTH_NGRAM_DIM, (int64_t)p->ngram_rows,
               b->m->ngram, GROUP_NGRAM_TABLE, 1);
    for (int l = 0; l < p->layers; l++)
        add_layer(b, l);
    if (s->streams)
        add_mixer(b, "output_hc");
    else
        ones(b, "output_norm.weight", s->embd, GROUP_NORMS);
    add(b, "output.weight", s->embd, p->vocab, 0, b->m->head, GROUP_HEAD, FILL_HEAD, 0, 0);
}

/* An attention layer, and what joins a token with the residual before it. Public files name no type
 * for that matrix that is more common than others: a guess. */
static void add_draft(struct building *b, int layer)
{
    const struct synth_shape *s = b->s;
    b->is_draft = true;
    add_layer(b, layer);
    b->layer = layer;
    ones(b, "nextn.enorm.weight", s->embd, GROUP_DRAFT);
    ones(b, "nextn.hnorm.weight", (int64_t)s->embd * (s->streams ? s->streams : 1), GROUP_DRAFT);
    add(b, "nextn.eh_proj.weight", 2 * (int64_t)s->embd, s->embd, 0, TYPE_Q8_0, GROUP_DRAFT,
        FILL_JOIN, 0, 0);
    if (s->streams)
        add_mixer(b, "nextn.hc_head");
    else
        ones(b, "nextn.shared_head_norm.weight", s->embd, GROUP_DRAFT);
    b->layer = -1;
}

bool synth_list_tensors(const struct synth_parts *p, struct synth_list *out, struct err *e)
{
    struct building b = {
        .s = p->shape, .m = &mixes[p->mix], .mix = p->mix, .layer = -1, .list = out, .e = e};
    if (p->has_model)
        add_model(&b, p);
    if (p->has_draft)
        add_draft(&b, p->layers);
    return e->code == ERR_NONE;
}

uint64_t synth_tensor_bytes(const struct synth_tensor *t)
{
    return tensor_row_bytes(t->type, t->ne[0]) * t->ne[1] * t->ne[2];
}
