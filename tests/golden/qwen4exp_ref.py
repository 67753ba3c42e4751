# SPDX-License-Identifier: Apache-2.0
"""Reference forward pass of `qwen4exp` in numpy.

It loads a GGUF file whose tensors are F32, F16 or BF16 and computes logits
and named intermediates.  It is written to be read next to qwen4exp.md: the
section numbers in the comments are those of that document.  It is slow.

    model = Model("x.gguf")                     # float32; Model(path, np.float64) for double
    state = model.new_state()
    logits = model.forward([1, 2, 3], state)    # [3, n_vocab]; state now holds 3 tokens
    logits = model.forward([4], state)          # one more

`forward` takes any number of tokens, so a prompt can be cut into windows at
will; the result must not depend on the cuts beyond rounding.
"""

import numpy as np

from gguf import Gguf


# ---------------------------------------------------------------- small operators

def sigmoid(x):
    out = np.empty_like(x)
    pos = x >= 0
    out[pos] = 1 / (1 + np.exp(-x[pos]))
    e = np.exp(x[~pos])
    out[~pos] = e / (1 + e)
    return out


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    # log(1 + exp(x)) without overflow; the references return x itself above 20
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def rms_norm(x, gamma, eps):
    """Over the last axis.  gamma is the stored weight (files hold 1 + w already)."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps)) * gamma


def l2_norm(x, eps):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(eps))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def top_k(values, k):
    """Indices of the k largest, best first; equal values: the lower index first."""
    return np.argsort(-values, kind="stable")[:k]


def rotate(x, pos, freq_base, n_rot):
    """Rotary embedding, section 2.2.  x [..., heads, dim], pos [...].

    Pairs are (i, i + n_rot/2); dimensions from n_rot on stay as they are."""
    half = n_rot // 2
    inv = (1.0 / np.float64(freq_base) ** (np.arange(half, dtype=np.float64) * 2 / n_rot)).astype(x.dtype)
    angle = np.asarray(pos).astype(x.dtype)[..., None] * inv
    c, s = np.cos(angle)[..., None, :], np.sin(angle)[..., None, :]
    out = x.copy()
    a, b = x[..., :half], x[..., half:n_rot]
    out[..., :half] = a * c - b * s
    out[..., half:n_rot] = b * c + a * s
    return out


def delta_rule_steps(q, k, v, g, beta, state):
    """Gated delta rule, one token at a time, section 2.5.

    q, k [T, H, dk] (already normalised, q already scaled), v [T, H, dv],
    g [T, H] (log decay), beta [T, H], state [H, dk, dv].  Returns out [T, H, dv], state."""
    out = np.empty_like(v)
    state = state.copy()
    for t in range(len(q)):
        state *= np.exp(g[t])[:, None, None]
        seen = np.einsum("hkv,hk->hv", state, k[t])
        delta = (v[t] - seen) * beta[t][:, None]
        state += k[t][:, :, None] * delta[:, None, :]
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    return out, state


# ---------------------------------------------------------------- model

class Params:
    """Hyper-parameters, section 1.  Names follow the table there."""

    def __init__(self, g):
        if g.arch != "qwen4exp":
            raise ValueError(f"architecture is {g.arch}, not qwen4exp")

        def get(key, default=None):
            v = g.kv.get("qwen4exp." + key, default)
            if v is None:
                raise ValueError(f"qwen4exp.{key} is missing")
            return v

        def per_layer(key, n):
            v = np.asarray(get(key))
            return [int(v)] * n if v.ndim == 0 else [int(x) for x in v]

        n_all = int(get("block_count"))
        self.n_draft = int(get("nextn_predict_layers", 0))
        self.n_layer = n_all - self.n_draft
        self.n_embd = int(get("embedding_length"))
        self.n_vocab = g.tensors["token_embd.weight"].shape[1]
        self.n_ctx = int(get("context_length"))
        self.eps = float(get("attention.layer_norm_rms_epsilon"))
        self.n_head = int(get("attention.head_count"))
        self.n_kv = int(get("attention.head_count_kv"))
        self.d_head = int(get("attention.key_length"))
        self.n_rot = int(get("rope.dimension_count"))
        self.freq_base = float(get("rope.freq_base"))
        self.hc = int(get("hyper_connection.count"))
        self.hc_rank = int(get("hyper_connection.low_rank"))
        # gated delta net
        self.conv_k = int(get("ssm.conv_kernel"))
        self.gdn_d = int(get("ssm.state_size"))            # head size of q, k and of v
        self.gdn_nk = int(get("ssm.group_count"))
        self.gdn_nv = int(get("ssm.time_step_rank"))
        if int(get("ssm.inner_size")) != self.gdn_nv * self.gdn_d:
            raise ValueError("ssm.inner_size is not time_step_rank * state_size")
        # mixture of experts
        self.n_expert = int(get("expert_count"))
        self.n_used = int(get("expert_used_count"))
        # sparse attention
        self.idx_heads = int(get("attention.indexer.head_count"))
        self.idx_d = int(get("attention.indexer.key_length"))
        self.budget = int(get("attention.indexer.top_k"))
        self.ratio = per_layer("attention.compress_ratios", n_all) if \
            "qwen4exp.attention.compress_ratios" in g.kv else [0] * n_all
        if "qwen4exp.attention.recurrent_layers" in g.kv:
            self.recurrent = [bool(x) for x in g.kv["qwen4exp.attention.recurrent_layers"]]
        else:
            step = int(get("full_attention_interval", 4))
            self.recurrent = [(i + 1) % step != 0 for i in range(self.n_layer)]
        # n-gram embedding
        self.ple_layers = [int(x) for x in g.kv.get("qwen4exp.ple.layers", [])]
        if self.ple_layers:
            self.ngram = int(get("ple.ngram_size"))
            self.ple_per = int(get("ple.heads_per_ngram"))
            self.ple_heads = (self.ngram - 1) * self.ple_per
            self.ple_d = int(get("embedding_length_per_layer_input"))
            self.ple_k = int(get("ple.conv_kernel"))
            self.ple_eos = int(get("ple.eos_token_id"))
            ints = lambda key, n: [int(x) for x in get(key)][:n]
            self.ple_mul = ints("ple.layer_multipliers", self.ngram)
            self.ple_off = ints("ple.head_offsets", self.ple_heads)
            self.ple_size = ints("ple.head_vocab_sizes", self.ple_heads)


class Model:
    def __init__(self, path, dtype=np.float32):
        self.file = Gguf(path)
        self.p = Params(self.file)
        self.dtype = np.dtype(dtype).type
        self._cache = {}

    def w(self, name):
        """Tensor as [n_out, n_in] (or [n]), in the working precision."""
        if name not in self._cache:
            self._cache[name] = self.file.array(name, self.dtype)
        return self._cache[name]

    def new_state(self):
        p, f = self.p, self.dtype
        layers = []
        for i in range(p.n_layer):
            s = {}
            if p.recurrent[i]:
                width = 2 * p.gdn_nk * p.gdn_d + p.gdn_nv * p.gdn_d
                s["conv"] = np.zeros((p.conv_k - 1, width), f)
                s["delta"] = np.zeros((p.gdn_nv, p.gdn_d, p.gdn_d), f)
            else:
                s["k"] = np.zeros((0, p.n_kv, p.d_head), f)
                s["v"] = np.zeros((0, p.n_kv, p.d_head), f)
                s["idx_k"] = np.zeros((0, p.idx_d), f)      # raw index keys, one per token
            if i in p.ple_layers:
                s["ple_conv"] = np.zeros(((p.ple_k - 1) * p.ngram, p.hc * p.n_embd), f)
            layers.append(s)
        state = {"pos": 0, "layers": layers}
        if p.ple_layers:
            state["recent"] = [p.ple_eos] * (p.ngram - 1)   # last n-1 tokens, oldest first
        return state

    # ------------------------------------------------ 2.3 hyper-connections

    def hc_read(self, x, prefix, inject=True):
        """x [T, hc, n_embd] -> mixed [T, n_embd], write weights [T, hc]."""
        p, T = self.p, len(x)
        n = rms_norm(x, self.w(prefix + "_norm.weight").reshape(p.hc, p.n_embd), p.eps)
        flat = n.reshape(T, -1)
        low = silu(flat @ self.w(prefix + "_down.weight").T / self.dtype(p.hc))
        gate = sigmoid(low @ self.w(prefix + "_up.weight").T).reshape(n.shape)
        mixed = (gate * n).mean(1)
        if not inject:
            return mixed, None
        return mixed, 2 * sigmoid(flat @ self.w(prefix + "_inject.weight").T / self.dtype(p.hc))

    @staticmethod
    def hc_write(x, y, weights):
        return x + weights[:, :, None] * y[:, None, :]

    # ------------------------------------------------ 2.4 n-gram embedding

    def ngram_rows(self, tokens, recent):
        """Row ids [T, heads] for `tokens` after the tokens in `recent`."""
        p = self.p
        hist = list(recent) + [int(t) for t in tokens]
        first = len(recent)
        rows = np.empty((len(tokens), p.ple_heads), np.int64)
        for t in range(len(tokens)):
            i = first + t
            ctx, cut = [hist[i]], False
            for back in range(1, p.ngram):
                prev = hist[i - back] if i - back >= 0 else p.ple_eos
                cut = cut or prev == p.ple_eos
                ctx.append(p.ple_eos if cut else prev)
            for n in range(2, p.ngram + 1):
                mixed = 0
                for j in range(n):
                    mixed ^= (ctx[j] * p.ple_mul[j]) & 0xFFFFFFFFFFFFFFFF
                for h in range((n - 2) * p.ple_per, (n - 1) * p.ple_per):
                    rows[t, h] = mixed % p.ple_size[h] + p.ple_off[h]
        return rows

    def ple(self, x, tokens, i, state, rec):
        p, T = self.p, len(x)
        b = f"blk.{i}.ple_"
        rows = self.ngram_rows(tokens, state["recent"])
        table = self.file.tensors["per_layer_token_embd.weight"]
        emb = self.w(table.name)[rows].reshape(T, -1)
        shape = (p.hc, p.n_embd)
        key = rms_norm((emb @ self.w(b + "key.weight").T).reshape(T, *shape),
                       self.w(b + "norm_key.weight").reshape(shape), p.eps)
        value = emb @ self.w(b + "value.weight").T
        query = rms_norm(x, self.w(b + "norm_query.weight").reshape(shape), p.eps)
        dot = (key * query).sum(-1) / self.dtype(np.sqrt(p.n_embd))
        gate = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), self.dtype(1e-6))))
        gated = gate[:, :, None] * value[:, None, :]
        normed = rms_norm(gated, self.w(b + "norm_conv.weight").reshape(shape), p.eps).reshape(T, -1)
        s = state["layers"][i]
        hist = np.concatenate([s["ple_conv"], normed])
        kernel = self.w(b + "conv1d.weight")                 # [hc * n_embd, K]
        conv = np.zeros_like(normed)
        for tap in range(p.ple_k):
            conv += hist[tap * p.ngram:tap * p.ngram + T] * kernel[:, tap]
        s["ple_conv"] = hist[len(hist) - (p.ple_k - 1) * p.ngram:]
        out = gated + silu(conv).reshape(gated.shape)
        rec(f"{i}.ple_rows", rows)
        rec(f"{i}.ple_gate", gate)
        rec(f"{i}.ple_out", out)
        return x + out

    # ------------------------------------------------ 2.5 gated delta net

    def gdn(self, x, i, s, rec):
        p, T, b = self.p, len(x), f"blk.{i}."
        qkv = x @ self.w(b + "attn_qkv.weight").T
        z = (x @ self.w(b + "attn_gate.weight").T).reshape(T, p.gdn_nv, p.gdn_d)
        beta = sigmoid(x @ self.w(b + "ssm_beta.weight").T)
        g = self.w(b + "ssm_a") * softplus(x @ self.w(b + "ssm_alpha.weight").T + self.w(b + "ssm_dt.bias"))
        hist = np.concatenate([s["conv"], qkv])
        kernel = self.w(b + "ssm_conv1d.weight")             # [channels, K]
        conv = np.zeros_like(qkv)
        for tap in range(p.conv_k):
            conv += hist[tap:tap + T] * kernel[:, tap]
        conv = silu(conv)
        s["conv"] = hist[len(hist) - (p.conv_k - 1):]
        nk, nv, d = p.gdn_nk, p.gdn_nv, p.gdn_d
        q = conv[:, :nk * d].reshape(T, nk, d)
        k = conv[:, nk * d:2 * nk * d].reshape(T, nk, d)
        v = conv[:, 2 * nk * d:].reshape(T, nv, d)
        q = l2_norm(q, 1e-6) * self.dtype(d ** -0.5)
        k = l2_norm(k, 1e-6)
        pick = np.arange(nv) % nk                            # value head j reads key head j mod nk
        q, k = q[:, pick], k[:, pick]
        out, s["delta"] = delta_rule_steps(q, k, v, g, beta, s["delta"])
        y = rms_norm(out, self.w(b + "ssm_norm.weight"), p.eps) * sigmoid(z)
        rec(f"{i}.gdn_conv", conv)
        rec(f"{i}.gdn_g", g)
        rec(f"{i}.gdn_beta", beta)
        rec(f"{i}.gdn_core", out)
        return y.reshape(T, -1) @ self.w(b + "ssm_out.weight").T

    # ------------------------------------------------ 2.6 sparse attention

    def qsa_select(self, q, raw, pos, i):
        """q [T, heads, d] rotated index queries at positions pos; raw [n, d] all raw keys.

        Returns mask [T, n] of the tokens each query may attend to, scores [T, blocks]
        (NaN where the block is not complete for the query), chosen [T, blocks]."""
        p, n, r = self.p, len(raw), self.p.ratio[i]
        b = f"blk.{i}.indexer."
        n_blocks = n // r
        keys = raw[:n_blocks * r].reshape(n_blocks, r, p.idx_d).mean(1)
        keys = rms_norm(keys, self.w(b + "k_norm.weight"), p.eps)
        keys = rotate(keys[:, None], np.arange(n_blocks) * r, p.freq_base, p.n_rot)[:, 0]
        mask = np.zeros((len(q), n), bool)
        scores = np.full((len(q), n_blocks), np.nan, self.dtype)
        chosen = np.zeros((len(q), n_blocks), bool)
        for t in range(len(q)):
            seen = int(pos[t]) + 1
            full = seen // r
            if full:
                dots = q[t] @ keys[:full].T                       # [heads, full]
                scores[t, :full] = np.maximum(dots, 0).sum(0) / self.dtype(np.sqrt(p.idx_d))
                best = top_k(scores[t, :full], min(p.budget // r, full))
                chosen[t, best] = True
                for blk in best:
                    mask[t, blk * r:(blk + 1) * r] = True
            mask[t, full * r:seen] = True                         # the incomplete block
        return mask, scores, chosen

    def attention(self, x, i, s, pos, rec):
        p, T, b = self.p, len(x), f"blk.{i}."
        qg = (x @ self.w(b + "attn_q.weight").T).reshape(T, p.n_head, 2 * p.d_head)
        q, gate = qg[..., :p.d_head], qg[..., p.d_head:]
        k = (x @ self.w(b + "attn_k.weight").T).reshape(T, p.n_kv, p.d_head)
        v = (x @ self.w(b + "attn_v.weight").T).reshape(T, p.n_kv, p.d_head)
        q = rotate(rms_norm(q, self.w(b + "attn_q_norm.weight"), p.eps), pos, p.freq_base, p.n_rot)
        k = rotate(rms_norm(k, self.w(b + "attn_k_norm.weight"), p.eps), pos, p.freq_base, p.n_rot)
        s["k"], s["v"] = np.concatenate([s["k"], k]), np.concatenate([s["v"], v])
        n = len(s["k"])
        if p.ratio[i] > 0:
            iq = (x @ self.w(b + "indexer.q_proj.weight").T).reshape(T, p.idx_heads, p.idx_d)
            iq = rotate(rms_norm(iq, self.w(b + "indexer.q_norm.weight"), p.eps), pos, p.freq_base, p.n_rot)
            s["idx_k"] = np.concatenate([s["idx_k"], x @ self.w(b + "indexer.k_proj.weight").T])
            mask, scores, chosen = self.qsa_select(iq, s["idx_k"], pos, i)
            rec(f"{i}.idx_q", iq)
            rec(f"{i}.idx_score", scores)
            rec(f"{i}.idx_chosen", chosen)
        else:
            mask = np.arange(n)[None, :] <= np.arange(n - T, n)[:, None]
        group = p.n_head // p.n_kv
        out = np.empty((T, p.n_head, p.d_head), self.dtype)
        for h in range(p.n_head):
            sc = q[:, h] @ s["k"][:, h // group].T * self.dtype(p.d_head ** -0.5)
            out[:, h] = softmax(np.where(mask, sc, -np.inf)) @ s["v"][:, h // group]
        rec(f"{i}.attn_q", q)
        rec(f"{i}.attn_k", k)
        rec(f"{i}.attn_v", v)
        rec(f"{i}.attn_core", out)
        return (out * sigmoid(gate)).reshape(T, -1) @ self.w(b + "attn_output.weight").T

    # ------------------------------------------------ 2.7 mixture of experts

    def expert(self, i, e, x):
        b = f"blk.{i}.ffn_"
        if b + "gate_up_exps.weight" in self.file:
            gu = self.w(b + "gate_up_exps.weight")[e]
            half = len(gu) // 2
            gate, up = gu[:half], gu[half:]
        else:
            gate, up = self.w(b + "gate_exps.weight")[e], self.w(b + "up_exps.weight")[e]
        return (silu(x @ gate.T) * (x @ up.T)) @ self.w(b + "down_exps.weight")[e].T

    def moe(self, x, i, rec):
        p, b = self.p, f"blk.{i}.ffn_"
        logits = x @ self.w(b + "gate_inp.weight").T
        probs = softmax(logits)
        ids = np.array([top_k(row, p.n_used) for row in probs])
        wts = np.take_along_axis(probs, ids, 1)
        wts = wts / wts.sum(1, keepdims=True)
        routed = np.zeros_like(x)
        for e in np.unique(ids):
            t, slot = np.nonzero(ids == e)
            routed[t] += wts[t, slot, None] * self.expert(i, e, x[t])
        shared = silu(x @ self.w(b + "gate_shexp.weight").T) * (x @ self.w(b + "up_shexp.weight").T)
        shared = shared @ self.w(b + "down_shexp.weight").T
        shared = shared * sigmoid(x @ self.w(b + "gate_inp_shexp.weight").reshape(-1, 1))
        rec(f"{i}.router_logits", logits)
        rec(f"{i}.expert_ids", ids)
        rec(f"{i}.expert_weights", wts)
        rec(f"{i}.moe_routed", routed)
        rec(f"{i}.moe_shared", shared)
        return routed + shared

    # ------------------------------------------------ 2.1 the whole pass

    def forward(self, tokens, state, record=None):
        """Logits [T, n_vocab]; `state` is advanced.  record: dict for the intermediates."""
        p = self.p
        rec = (lambda name, a: record.__setitem__(name, np.array(a))) if record is not None else (lambda *a: None)
        tokens = [int(t) for t in tokens]
        pos = np.arange(state["pos"], state["pos"] + len(tokens))
        emb = self.w("token_embd.weight")[tokens]
        x = np.repeat(emb[:, None], p.hc, 1)
        for i in range(p.n_layer):
            s = state["layers"][i]
            rec(f"{i}.in", x)
            if i in p.ple_layers:
                x = self.ple(x, tokens, i, state, rec)
            y, wr = self.hc_read(x, f"blk.{i}.hc_attn")
            rec(f"{i}.attn_in", y)
            rec(f"{i}.attn_inject", wr)
            y = self.gdn(y, i, s, rec) if p.recurrent[i] else self.attention(y, i, s, pos, rec)
            rec(f"{i}.attn_out", y)
            x = self.hc_write(x, y, wr)
            rec(f"{i}.mid", x)
            y, wr = self.hc_read(x, f"blk.{i}.hc_ffn")
            rec(f"{i}.ffn_in", y)
            rec(f"{i}.ffn_inject", wr)
            y = self.moe(y, i, rec)
            rec(f"{i}.ffn_out", y)
            x = self.hc_write(x, y, wr)
        rec("out", x)
        y, _ = self.hc_read(x, "output_hc", inject=False)
        rec("final", y)
        head = "output.weight" if "output.weight" in self.file else "token_embd.weight"
        state["pos"] += len(tokens)
        if p.ple_layers:
            state["recent"] = (state["recent"] + tokens)[-(p.ngram - 1):]
        return y @ self.w(head).T

    def greedy(self, tokens, n, window=0):
        """Prompt, then n tokens by largest logit (equal: the lower id)."""
        state = self.new_state()
        step = window or len(tokens)
        for s in range(0, len(tokens), step):
            logits = self.forward(tokens[s:s + step], state)
        ids = []
        while len(ids) < n:
            ids.append(int(np.argmax(logits[-1])))
            if len(ids) < n:
                logits = self.forward(ids[-1:], state)
        return ids


# ---------------------------------------------------------------- hash constants, section 2.4

def hash_multipliers(n_vocab, ngram, layer_index=0, seed=1234):
    """How the public checkpoint derives ple.layer_multipliers (files store the result)."""
    m64 = (1 << 64) - 1
    gamma = 0x9E3779B97F4A7C15

    def mix(v):
        v = (v + gamma) & m64
        v = ((v ^ (v >> 30)) * 0xBF58476D1CE4E5B9) & m64
        v = ((v ^ (v >> 27)) * 0x94D049BB133111EB) & m64
        return v ^ (v >> 31)

    half = max(1, ((1 << 63) - 1) // max(n_vocab, 1) // 2)
    base = seed + 10007 * layer_index
    return [2 * (mix((base + gamma * (i + 1)) & m64) % half) + 1 for i in range(ngram)]


def hash_ranges(heads, base, layer_index=0, divisor=128):
    """head_vocab_sizes (consecutive primes from `base` on), head_offsets, padded row count."""
    def prime(v):
        return v > 1 and all(v % d for d in range(2, int(v ** 0.5) + 1))

    sizes, v = [], base
    while len(sizes) < heads * (layer_index + 1):
        if prime(v):
            sizes.append(v)
        v += 1
    sizes = sizes[heads * layer_index:]
    offsets = [sum(sizes[:h]) for h in range(heads)]
    return sizes, offsets, -(-sum(sizes) // divisor) * divisor
