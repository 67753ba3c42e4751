# SPDX-License-Identifier: Apache-2.0
"""Writes small models with random weights, of every architecture, from a seed.

    make(path, arch, variant, seed)        variant 0, 1 or 2; returns a line that says what is in the model

Shapes are drawn from the seed. The variant decides what a model must show in any case:
  0  F32, tensors as the public models have them
  1  F16 and BF16, everything that a file may do differently: fused and packed tensors, no head of its own, keys left to
     their defaults, layer kinds and head counts as arrays, scaled positions, draft layers that have to be skipped
  2  quantized
"""
import numpy as np

from gguf import GgufWriter, TENSOR_TYPES
import quants
import qwen4exp_ref

ARCHS = ("qwen3moe", "qwen3next", "qwen35moe", "qwen4exp")
VARIANTS = (0, 1, 2)
VOCABULARY, SEPARATOR = 259, 257                             # tokens; the one that ends a document
TYPES = (("F32",), ("F16", "BF16"), ("Q4_K", "Q8_0", "Q4_0", "F16"))


def random_q4_k(rng, count, spread):
    """Blocks of random codes whose values have about the given standard deviation and no mean."""
    blocks = rng.integers(0, 256, (count // 256, 144), dtype=np.uint8)

    def with_factor(d):
        blocks[:, 0:4] = np.array([d, 7.5 * d], "<f2").view(np.uint8)
        return blocks.tobytes()
    unit = 2.0 ** -10
    return with_factor(unit * spread / quants.decode("Q4_K", with_factor(unit), count).std())


class Maker:
    """Collects the keys and tensors of one model."""

    def __init__(self, path, arch, variant, seed):
        self.rng = np.random.default_rng([seed, ARCHS.index(arch), variant])
        self.file = GgufWriter(path)
        self.arch, self.variant = arch, variant
        self.types = TYPES[variant]
        self.file.add("general.architecture", arch)
        self.file.add("general.name", "random")

    def one_of(self, *values):
        return values[int(self.rng.integers(len(values)))]

    def keys(self, **named):
        """Keys of the architecture; two underscores stand for a dot."""
        for name, value in named.items():
            self.file.add(self.arch + "." + name.replace("__", "."), value)

    def vector(self, name, values):
        self.file.tensor(name, np.asarray(values, np.float32))

    def norm(self, name, *shape):
        self.vector(name, 1 + 0.2 * self.rng.standard_normal(shape))

    def matrix(self, name, *shape, gain=1.0):
        """[.., n_out, n_in] of one of the model's types that its rows allow."""
        fits = [t for t in self.types if shape[-1] % TENSOR_TYPES[t][1] == 0]
        kind = self.one_of(*fits)
        spread = gain / np.sqrt(shape[-1])
        if kind == "Q4_K":
            self.file.tensor_raw(name, shape[::-1], kind, random_q4_k(self.rng, int(np.prod(shape)), spread))
            return
        values = (spread * self.rng.standard_normal(shape)).astype(np.float32)
        if kind in ("Q8_0", "Q4_0"):
            self.file.tensor_raw(name, shape[::-1], kind, quants.encode(kind, values))
        else:
            self.file.tensor(name, values if kind == "F32" else values.astype(np.float32), kind)

    def vocabulary(self, pre):
        """A byte-level vocabulary: the 256 bytes, one merge, two control tokens."""
        plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
        tokens = [chr(b) if b in plain else chr(256 + sum(o not in plain for o in range(b))) for b in range(256)]
        tokens += ["th", "<|endoftext|>", "<|im_end|>"]
        self.file.add_all({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens})
        self.file.add("tokenizer.ggml.token_type", [1] * 257 + [3, 3], "arr:i32")
        self.file.add("tokenizer.ggml.merges", ["t h"])
        self.file.add_all({"tokenizer.ggml.eos_token_id": VOCABULARY - 1, "tokenizer.ggml.padding_token_id": SEPARATOR})


# ---------------------------------------------------------------- parts that architectures share

class Sizes:
    """Widths and counts, drawn at random; quantized models have rows that blocks of 256 and of 32 divide."""

    def __init__(self, m):
        wide = m.variant == 2
        self.embd = 256 if wide else m.one_of(24, 40, 56)
        self.n_kv = m.one_of(1, 2, 3)
        self.n_head = self.n_kv * m.one_of(1, 2, 4)
        self.d_head = m.one_of(32, 64) if wide else m.one_of(8, 12, 20)
        self.experts = m.one_of(5, 6, 8)
        self.used = m.one_of(1, 2, 3)
        self.width = m.one_of(32, 64, 256) if wide else m.one_of(8, 12, 20)
        self.shared = m.one_of(32, 64) if wide else m.one_of(8, 16)
        self.n_k = m.one_of(1, 2, 3)
        self.n_v = self.n_k * m.one_of(1, 2, 3)
        self.d = 32 if wide else m.one_of(8, 12)
        self.taps = m.one_of(1, 2, 3, 4)
        self.layers = m.one_of(3, 4)


def put_attention(m, s, i, gated, fused, bias=False):
    p = "blk.%d.attn_" % i
    q, kv = s.n_head * s.d_head * (2 if gated else 1), s.n_kv * s.d_head
    if fused:
        m.matrix(p + "qkv.weight", q + 2 * kv, s.embd)
    else:
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            m.matrix(p + name + ".weight", rows, s.embd)
            if bias:
                m.vector(p + name + ".bias", 0.3 * m.rng.standard_normal(rows))
    m.norm(p + "q_norm.weight", s.d_head)
    m.norm(p + "k_norm.weight", s.d_head)
    m.matrix(p + "output.weight", s.embd, s.n_head * s.d_head)


def put_delta_net(m, s, i, packed=False):
    p = "blk.%d." % i
    inner, channels = s.n_v * s.d, (2 * s.n_k + s.n_v) * s.d
    if packed:
        m.matrix(p + "ssm_in.weight", channels + inner, s.embd)
    else:
        m.matrix(p + "attn_qkv.weight", channels, s.embd)
        m.matrix(p + "attn_gate.weight", inner, s.embd)
    if m.arch == "qwen3next":
        m.matrix(p + "ssm_ba.weight", 2 * s.n_v, s.embd)
    else:
        m.matrix(p + "ssm_beta.weight", s.n_v, s.embd)
        m.matrix(p + "ssm_alpha.weight", s.n_v, s.embd)
    m.vector(p + "ssm_conv1d.weight", m.rng.standard_normal((channels, s.taps)) / np.sqrt(s.taps))
    m.vector(p + "ssm_dt.bias", m.rng.standard_normal(s.n_v))
    m.vector(p + "ssm_a", -np.exp(m.rng.standard_normal(s.n_v)))
    m.norm(p + "ssm_norm.weight", s.d)
    m.matrix(p + "ssm_out.weight", s.embd, inner)


def put_experts(m, s, i, fused, shared):
    p = "blk.%d.ffn_" % i
    # Distances between experts are what a router decides by: they are made large.
    m.vector(p + "gate_inp.weight", 6 / np.sqrt(s.embd) * m.rng.standard_normal((s.experts, s.embd)))
    if fused:
        m.matrix(p + "gate_up_exps.weight", s.experts, 2 * s.width, s.embd)
    else:
        m.matrix(p + "gate_exps.weight", s.experts, s.width, s.embd)
        m.matrix(p + "up_exps.weight", s.experts, s.width, s.embd)
    m.matrix(p + "down_exps.weight", s.experts, s.embd, s.width)
    if shared:
        m.vector(p + "gate_inp_shexp.weight", m.rng.standard_normal(s.embd) / np.sqrt(s.embd))
        m.matrix(p + "gate_shexp.weight", s.shared, s.embd)
        m.matrix(p + "up_shexp.weight", s.shared, s.embd)
        m.matrix(p + "down_shexp.weight", s.embd, s.shared)


def put_ends(m, s, tied):
    m.matrix("token_embd.weight", VOCABULARY, s.embd, gain=np.sqrt(s.embd))
    if not tied:
        m.matrix("output.weight", VOCABULARY, s.embd, gain=4.0)


def common_keys(m, s):
    m.keys(context_length=4096, embedding_length=s.embd, attention__layer_norm_rms_epsilon=m.one_of(1e-6, 1e-5),
           attention__head_count=s.n_head, expert_count=s.experts, expert_used_count=s.used)


# ---------------------------------------------------------------- the architectures

def make_qwen3moe(m):
    s, odd = Sizes(m), m.variant == 1
    common_keys(m, s)
    m.keys(block_count=s.layers, rope__freq_base=m.one_of(10000.0, 1e6))
    if odd:                                                  # widths, rotated part and key heads by their defaults
        s.d_head, s.n_kv, s.embd = 2 * s.d_head, s.n_head, 2 * s.d_head * s.n_head
        m.keys(embedding_length=s.embd, feed_forward_length=s.width * s.used)
        m.keys(rope__scaling__type="yarn", rope__scaling__factor=m.one_of(2.0, 4.0),
               rope__scaling__original_context_length=64, rope__scaling__attn_factor=m.one_of(1.0, 0.9))
    else:
        m.keys(attention__head_count_kv=s.n_kv, attention__key_length=s.d_head, attention__value_length=s.d_head,
               rope__dimension_count=s.d_head, expert_feed_forward_length=s.width)
    m.vocabulary("qwen2")
    put_ends(m, s, tied=odd)
    m.norm("output_norm.weight", s.embd)
    for i in range(s.layers):
        m.norm("blk.%d.attn_norm.weight" % i, s.embd)
        m.norm("blk.%d.ffn_norm.weight" % i, s.embd)
        put_attention(m, s, i, gated=False, fused=odd, bias=m.variant == 0)
        put_experts(m, s, i, fused=False, shared=False)


def put_hybrid_layer(m, s, i, recurrent, fused):
    m.norm("blk.%d.attn_norm.weight" % i, s.embd)
    m.norm("blk.%d.post_attention_norm.weight" % i, s.embd)
    if recurrent:
        put_delta_net(m, s, i, packed=fused and m.arch == "qwen3next")
    else:
        put_attention(m, s, i, gated=True, fused=fused)
    put_experts(m, s, i, fused=fused, shared=True)


def make_hybrid(m):
    """qwen3next and qwen35moe"""
    s, odd = Sizes(m), m.variant == 1
    n_rot = s.d_head // 4 * 2
    drafts = 0 if m.variant == 2 else 1
    interval = m.one_of(2, 3)
    recurrent = [(i + 1) % interval != 0 for i in range(s.layers)]
    common_keys(m, s)
    m.keys(block_count=s.layers + drafts, attention__key_length=s.d_head, attention__value_length=s.d_head,
           rope__freq_base=m.one_of(10000.0, 1e7), rope__dimension_count=n_rot, expert_feed_forward_length=s.width,
           ssm__conv_kernel=s.taps, ssm__state_size=s.d, ssm__group_count=s.n_k, ssm__time_step_rank=s.n_v,
           ssm__inner_size=s.n_v * s.d)
    if drafts:
        m.keys(nextn_predict_layers=drafts)
    if odd:
        recurrent = [True, False, True, True][:s.layers]
        m.keys(attention__head_count_kv=[0 if r else s.n_kv for r in recurrent] + [s.n_kv] * drafts,
               feed_forward_length=s.shared, rope__scale_linear=m.one_of(2.0, 8.0))
        m.file.add(m.arch + ".attention.recurrent_layers", recurrent + [False] * drafts, "arr:bool")
    else:
        m.keys(attention__head_count_kv=s.n_kv, full_attention_interval=interval, expert_shared_feed_forward_length=s.shared)
    if m.arch == "qwen35moe":
        third = -(-(n_rot // 2) // 3)
        m.file.add("qwen35moe.rope.dimension_sections", [third, third, third, 0], "arr:i32")
    m.vocabulary("qwen35" if m.arch == "qwen35moe" else "qwen2")
    put_ends(m, s, tied=odd)
    m.norm("output_norm.weight", s.embd)
    for i, r in enumerate(recurrent):
        put_hybrid_layer(m, s, i, r, fused=odd)
    for i in range(s.layers, s.layers + drafts):
        put_hybrid_layer(m, s, i, False, fused=odd)
        m.matrix("blk.%d.nextn.eh_proj.weight" % i, s.embd, 2 * s.embd)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            m.norm("blk.%d.nextn.%s.weight" % (i, name), s.embd)


def put_hyper(m, s, prefix, inject=True):
    flat = s.hc * s.embd
    m.norm(prefix + "_norm.weight", flat)
    m.matrix(prefix + "_down.weight", s.rank, flat, gain=2.0)
    m.matrix(prefix + "_up.weight", flat, s.rank, gain=2.0)
    if inject:
        m.matrix(prefix + "_inject.weight", s.hc, flat, gain=2.0)


def put_ngram(m, s, layer):
    """Table, hash constants and projections of the n-gram layer."""
    heads = (s.ngram - 1) * s.per
    sizes, offsets, rows = qwen4exp_ref.hash_ranges(heads, 40)
    m.keys(ple__ngram_size=s.ngram, ple__heads_per_ngram=s.per, ple__conv_kernel=s.ple_taps, ple__eos_token_id=SEPARATOR,
           embedding_length_per_layer_input=s.embd // heads)
    for name, values, kind in (("ple.layers", [layer], "arr:u32"), ("ple.head_offsets", offsets, "arr:u64"),
                               ("ple.layer_multipliers", qwen4exp_ref.hash_multipliers(VOCABULARY, s.ngram), "arr:u64"),
                               ("ple.head_vocab_sizes", sizes, "arr:u64")):
        m.file.add("qwen4exp." + name, values, kind)
    m.matrix("per_layer_token_embd.weight", rows, s.embd // heads, gain=np.sqrt(s.embd // heads))
    p = "blk.%d.ple_" % layer
    flat = s.hc * s.embd
    m.matrix(p + "key.weight", flat, s.embd)
    m.matrix(p + "value.weight", s.embd, s.embd)
    for name in ("norm_key", "norm_query", "norm_conv"):
        m.norm(p + name + ".weight", flat)
    m.vector(p + "conv1d.weight", m.rng.standard_normal((flat, s.ple_taps)) / np.sqrt(s.ple_taps))


def make_qwen4exp(m):
    s, odd = Sizes(m), m.variant == 1
    s.hc, s.rank = m.one_of(2, 3, 4), 32 if m.variant == 2 else m.one_of(8, 12)
    s.ngram, s.per = m.one_of((2, 4), (3, 2), (3, 4))
    s.ple_taps, s.layers = m.one_of(1, 2, 3, 4), 4
    heads_i, d_i = m.one_of(1, 2, 3), 32 if m.variant == 2 else m.one_of(12, 16)
    n_rot, ratio, drafts = s.d_head // 4 * 2, m.one_of(2, 3, 4), int(odd)
    recurrent = [True, False, True, False] + [False] * drafts
    m.vocabulary("qwen35")
    common_keys(m, s)
    m.keys(block_count=s.layers + drafts, attention__head_count_kv=s.n_kv, attention__key_length=s.d_head,
           attention__value_length=s.d_head, rope__freq_base=m.one_of(10000.0, 1e7), rope__dimension_count=n_rot,
           expert_feed_forward_length=s.width, expert_shared_feed_forward_length=s.shared,
           ssm__conv_kernel=s.taps, ssm__state_size=s.d, ssm__group_count=s.n_k, ssm__time_step_rank=s.n_v,
           ssm__inner_size=s.n_v * s.d, hyper_connection__count=s.hc, hyper_connection__low_rank=s.rank,
           attention__indexer__head_count=heads_i, attention__indexer__key_length=d_i,
           attention__indexer__top_k=2 * ratio)
    if odd:
        m.keys(nextn_predict_layers=1)
        m.file.add("qwen4exp.attention.recurrent_layers", recurrent, "arr:bool")
        ratio_of = [0, 0, 0, ratio, 0]                       # the first attention layer sees everything
    else:
        m.keys(full_attention_interval=2)
        ratio_of = [0 if r else ratio for r in recurrent]
    m.file.add("qwen4exp.attention.compress_ratios", ratio_of, "arr:i32")
    put_ends(m, s, tied=odd)
    put_hyper(m, s, "output_hc", inject=False)
    put_ngram(m, s, m.one_of(0, 1, 2))
    for i, r in enumerate(recurrent):
        p = "blk.%d." % i
        put_hyper(m, s, p + "hc_attn")
        put_hyper(m, s, p + "hc_ffn")
        if r:
            put_delta_net(m, s, i)
        else:
            put_attention(m, s, i, gated=True, fused=False)
            m.matrix(p + "indexer.q_proj.weight", heads_i * d_i, s.embd)
            m.matrix(p + "indexer.k_proj.weight", d_i, s.embd)
            m.norm(p + "indexer.q_norm.weight", d_i)
            m.norm(p + "indexer.k_norm.weight", d_i)
        put_experts(m, s, i, fused=odd, shared=True)
    for i in range(s.layers, s.layers + drafts):
        p = "blk.%d.nextn." % i
        m.norm(p + "enorm.weight", s.embd)
        m.norm(p + "hnorm.weight", s.hc * s.embd)
        m.matrix(p + "eh_proj.weight", s.embd, 2 * s.embd)
        put_hyper(m, s, p + "hc_head", inject=False)


def make(path, arch, variant, seed):
    m = Maker(path, arch, variant, seed)
    {"qwen3moe": make_qwen3moe, "qwen4exp": make_qwen4exp}.get(arch, make_hybrid)(m)
    m.file.write()
    kinds = sorted({name for name, (code, _, _) in TENSOR_TYPES.items() for item in m.file.items.values() if item[1] == code})
    return "%s %d, %d tensors of %s" % (arch, variant, len(m.file.items), " ".join(kinds))
