# SPDX-License-Identifier: Apache-2.0
"""Float64 numpy reference for the GGUF architectures qwen3moe, qwen3next and qwen35moe.

It is written to be read next to the specification: one function per operator, no speed.

    m = Model("NAME.gguf")
    s = m.session()
    logits = m.eval(s, [1, 2, 3])        # float64 [n_tokens, n_vocab]; the state stays in s
    more   = m.eval(s, [4])              # continues at position 3
"""
import math

import numpy as np

from gguf import Gguf
import quants


def load(path):
    """(metadata, {name: float64 array}) of a GGUF file; quantized tensors are decoded."""
    g, out = Gguf(path), {}
    for name, t in g.tensors.items():
        n = int(np.prod(t.shape))
        out[name] = quants.decode(t.type, bytes(g.raw(name)), n).astype(np.float64).reshape(t.shape[::-1])
    return g.kv, out


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0))))


def block_length(kind):
    """Length of the blocks in which a vector is rounded to 8 bits in front of a matrix of this type."""
    n = quants.TYPES[quants.type_id(kind)][1]
    return n if n in (32, 256) else None                     # None: F32, F16, BF16, not rounded


def round_project(x, kind):
    """The rule of docs/numerics.md section 2: d = max|x| / 127 in single precision, q = round(x / d)."""
    b = x.reshape(-1, block_length(kind)).astype(np.float32)
    d = np.abs(b).max(1, keepdims=True) / np.float32(127)
    q = np.rint(b / np.where(d > 0, d, np.float32(1)))
    return (q * d.astype(np.float64)).reshape(x.shape)


class Rounding:
    """A weight matrix whose products round the other factor first: x @ W.T, W[e] @ x."""
    __array_ufunc__ = None                                   # let numpy hand `x @ self` to us

    def __init__(self, a, kind, rule):
        self.a, self.kind, self.rule = a, kind, rule

    def _round(self, x):
        return self.rule(np.ascontiguousarray(x), self.kind)

    @property
    def T(self):
        return Rounding(self.a.T, self.kind, self.rule)

    def __getitem__(self, i):
        return Rounding(self.a[i], self.kind, self.rule)

    def __rmatmul__(self, x):
        return self._round(x) @ self.a

    def __matmul__(self, x):
        return self.a @ self._round(x)


class Model:
    def __init__(self, path, rounding=None):
        """rounding: round_project: round the activations in front of every quantized matrix to
        8 bits (section 7 of other-archs.md)."""
        self.kv, self.w = load(path)
        if rounding:
            for name, t in Gguf(path).tensors.items():
                if block_length(t.type) is None:
                    continue
                if name == "token_embd.weight":              # rows of it are decoded; as a head it is a matrix
                    self.w.setdefault("output.weight", Rounding(self.w[name], t.type, rounding))
                else:
                    self.w[name] = Rounding(self.w[name], t.type, rounding)
        self.arch = a = self.kv["general.architecture"]
        if a not in ("qwen3moe", "qwen3next", "qwen35moe"):
            raise ValueError("not one of the architectures of this reference: " + a)
        self.hybrid = a != "qwen3moe"

        def key(name, default=None):
            v = self.kv.get(a + "." + name, default)
            if v is None:
                raise ValueError("missing key " + a + "." + name)
            return v

        def scalar(v):                          # head counts may be stored per layer; 0 stands for a delta net layer
            return max(v) if isinstance(v, (list, tuple, np.ndarray)) else v

        self.n_nextn = key("nextn_predict_layers", 0) if self.hybrid else 0
        self.n_layer = key("block_count") - self.n_nextn    # layers of the trunk
        self.d = key("embedding_length")
        self.n_head = scalar(key("attention.head_count"))
        self.n_kv = scalar(key("attention.head_count_kv", self.n_head))
        self.hd = key("attention.key_length", self.d // self.n_head)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.n_exp = key("expert_count")
        self.top_k = key("expert_used_count")
        self.n_rot = key("rope.dimension_count", self.hd)
        if self.hybrid:
            self.conv_k = key("ssm.conv_kernel")
            self.s = key("ssm.state_size")                  # head size of q, k and v in the delta net
            self.nk = key("ssm.group_count")                # key heads
            self.nv = key("ssm.time_step_rank")             # value heads
            if key("ssm.inner_size") != self.nv * self.s or self.nv % self.nk:
                raise ValueError("delta net sizes do not fit together")
            per_layer = self.kv.get(a + ".attention.recurrent_layers")
            every = key("full_attention_interval", 4)
            self.recurrent = [bool(per_layer[i]) if per_layer is not None else (i + 1) % every != 0
                              for i in range(self.n_layer)]
        else:
            if self.n_rot != self.hd:
                raise ValueError("qwen3moe rotates whole heads")
            self.recurrent = [False] * self.n_layer
        self._rope_table()
        self.n_vocab = self.w["token_embd.weight"].shape[0]
        self.trace = None                                    # set to a list to collect (layer, residual, expert ids)
        self.min_gap = np.inf                                # smallest router distance between rank k and rank k+1

    # ---- rotary embedding --------------------------------------------------------------------------------------

    def _rope_table(self):
        a, kv, n = self.arch, self.kv, self.n_rot
        base = kv.get(a + ".rope.freq_base", 10000.0)
        j = np.arange(n // 2)
        freq = base ** (-2.0 * j / n)
        kind = kv.get(a + ".rope.scaling.type", "linear")
        factor = kv.get(a + ".rope.scaling.factor", kv.get(a + ".rope.scale_linear", 0.0)) or 1.0
        self.rope_mag = 1.0
        if kind == "yarn":
            n0 = kv.get(a + ".rope.scaling.original_context_length", kv.get(a + ".context_length"))

            def dim(beta):
                return n * math.log(n0 / (beta * 2 * math.pi)) / (2 * math.log(base))
            lo = max(0.0, math.floor(dim(32)))
            hi = min(n - 1.0, math.ceil(dim(1)))
            keep = 1.0 - np.clip((j - lo) / max(0.001, hi - lo), 0.0, 1.0)   # 1: not scaled, 0: fully scaled
            freq = freq / factor * (1 - keep) + freq * keep
            self.rope_mag = (1.0 + 0.1 * math.log(factor)) * kv.get(a + ".rope.scaling.attn_factor", 1.0)
        elif kind == "linear":
            freq = freq / factor
        elif kind != "none":
            raise ValueError("rope scaling not covered: " + kind)
        sections = kv.get(a + ".rope.dimension_sections")
        if a == "qwen35moe":
            # text tokens have the same position in the sections 0..2 and position 0 in the fourth one, so a pair
            # of the fourth section would not be rotated; with the public models there is no such pair
            st, sh, sw = sections[0], sections[1], sections[2]
            c = j % sum(sections)
            r = c % 3
            used = ((r == 0) & (c < 3 * st)) | ((r == 1) & (c < 3 * sh)) | ((r == 2) & (c < 3 * sw))
            freq = np.where(used, freq, 0.0)
        self.freq = freq

    def rope(self, x, pos):
        """x [T, heads, hd]: pairs (j, j + n_rot/2) of the first n_rot elements are rotated, the rest is kept."""
        n, h = self.n_rot, self.n_rot // 2
        ang = pos[:, None] * self.freq
        c = (np.cos(ang) * self.rope_mag)[:, None]
        s = (np.sin(ang) * self.rope_mag)[:, None]
        y = x.copy()
        y[..., :h] = x[..., :h] * c - x[..., h:n] * s
        y[..., h:n] = x[..., h:n] * c + x[..., :h] * s
        return y

    # ---- operators ---------------------------------------------------------------------------------------------

    def rms(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    def l2(self, x):
        return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)       # a constant, not eps

    def attention(self, i, x, st, pos):
        w, p, t = self.w, "blk.%d." % i, len(x)
        nh, nkv, hd = self.n_head, self.n_kv, self.hd
        m = 2 if self.hybrid else 1                          # hybrid: each query head carries a gate head behind it
        if p + "attn_qkv.weight" in w:
            q, k, v = np.split(x @ w[p + "attn_qkv.weight"].T, [m * nh * hd, m * nh * hd + nkv * hd], axis=1)
        else:
            q, k, v = (x @ w[p + "attn_" + n + ".weight"].T for n in "qkv")
        if p + "attn_q.bias" in w and not self.hybrid:       # allowed by the format, used by no public model
            q, k, v = (y + w[p + "attn_" + n + ".bias"] for y, n in zip((q, k, v), "qkv"))
        q = q.reshape(t, nh, m * hd)
        q, gate = q[..., :hd], q[..., hd:]
        k, v = k.reshape(t, nkv, hd), v.reshape(t, nkv, hd)
        q = self.rope(self.rms(q, w[p + "attn_q_norm.weight"]), pos)
        k = self.rope(self.rms(k, w[p + "attn_k_norm.weight"]), pos)
        for n, new in (("k", k), ("v", v), ("pos", pos)):
            st[n] = np.concatenate([st[n], new]) if n in st else new
        k, v = st["k"], st["v"]
        seen = st["pos"][None, :] <= pos[:, None]
        out = np.empty((t, nh, hd))
        for h in range(nh):
            g = h // (nh // nkv)                             # query heads of one key/value head are neighbours
            sc = np.where(seen, q[:, h] @ k[:, g].T / math.sqrt(hd), -np.inf)
            e = np.exp(sc - sc.max(-1, keepdims=True))
            out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, g]
        if self.hybrid:
            out = out * sigmoid(gate)
        return out.reshape(t, nh * hd) @ w[p + "attn_output.weight"].T

    def delta_net(self, i, x, st):
        w, p, t = self.w, "blk.%d." % i, len(x)
        s, nk, nv = self.s, self.nk, self.nv
        r, kd, vd = nv // nk, nk * s, nv * s
        if p + "ssm_in.weight" in w:                         # old qwen3next files: packed per key head
            a = (x @ w[p + "ssm_in.weight"].T).reshape(t, nk, 2 * s + 2 * r * s)
            q, k, v, z = np.split(a, [s, 2 * s, 2 * s + r * s], axis=2)
            qkv = np.concatenate([q.reshape(t, kd), k.reshape(t, kd), v.reshape(t, vd)], axis=1)
        else:
            qkv = x @ w[p + "attn_qkv.weight"].T             # [all q heads | all k heads | all v heads]
            z = x @ w[p + "attn_gate.weight"].T
        z = z.reshape(t, nv, s)
        if self.arch == "qwen3next":                         # per key head: r values of b, then r values of a
            ba = (x @ w[p + "ssm_ba.weight"].T).reshape(t, nk, 2 * r)
            b, a = ba[..., :r].reshape(t, nv), ba[..., r:].reshape(t, nv)
        else:
            b, a = x @ w[p + "ssm_beta.weight"].T, x @ w[p + "ssm_alpha.weight"].T
        beta = sigmoid(b)
        decay = np.exp(w[p + "ssm_a"].reshape(nv) * softplus(a + w[p + "ssm_dt.bias"]))       # ssm_a is negative
        # causal convolution over time, one filter per channel, the newest input meets the last tap
        n = self.conv_k
        hist = st.get("conv", np.zeros((n - 1, 2 * kd + vd)))
        seq = np.concatenate([hist, qkv])
        st["conv"] = seq[len(seq) - (n - 1):]
        taps = w[p + "ssm_conv1d.weight"]                    # [channel, tap]
        y = silu(sum(seq[j:j + t] * taps[:, j] for j in range(n)))
        q = self.l2(y[:, :kd].reshape(t, nk, s)) / math.sqrt(s)
        k = self.l2(y[:, kd:2 * kd].reshape(t, nk, s))
        v = y[:, 2 * kd:].reshape(t, nv, s)
        hv = np.arange(nv)
        of = hv // r if self.arch == "qwen3next" else hv % nk                   # key head of each value head
        q, k = q[:, of], k[:, of]
        mem = st.get("mem", np.zeros((nv, s, s)))            # mem[head][key index][value index]
        out = np.empty((t, nv, s))
        for n in range(t):
            mem = mem * decay[n][:, None, None]
            err = (v[n] - np.einsum("hij,hi->hj", mem, k[n])) * beta[n][:, None]
            mem = mem + k[n][:, :, None] * err[:, None, :]
            out[n] = np.einsum("hij,hi->hj", mem, q[n])
        st["mem"] = mem
        return (self.rms(out, w[p + "ssm_norm.weight"]) * silu(z)).reshape(t, vd) @ w[p + "ssm_out.weight"].T

    def moe(self, i, x):
        w, p = self.w, "blk.%d." % i
        logit = x @ w[p + "ffn_gate_inp.weight"].T
        e = np.exp(logit - logit.max(-1, keepdims=True))
        prob = e / e.sum(-1, keepdims=True)
        order = np.argsort(-prob, axis=-1, kind="stable")
        ids = order[:, :self.top_k]
        if self.top_k < self.n_exp:
            z = np.sort(logit, axis=-1)[:, ::-1]
            self.gap = z[:, self.top_k - 1] - z[:, self.top_k]
            self.min_gap = min(self.min_gap, self.gap.min())
        c = np.take_along_axis(prob, ids, -1)
        c = c / np.maximum(c.sum(-1, keepdims=True), 2.0 ** -14)
        out = np.zeros_like(x)
        for n in range(len(x)):
            for j, ex in enumerate(ids[n]):
                if p + "ffn_gate_up_exps.weight" in w:       # rows: all of gate, then all of up
                    gate, up = np.split(w[p + "ffn_gate_up_exps.weight"][ex] @ x[n], 2)
                else:
                    gate, up = w[p + "ffn_gate_exps.weight"][ex] @ x[n], w[p + "ffn_up_exps.weight"][ex] @ x[n]
                out[n] += c[n, j] * (w[p + "ffn_down_exps.weight"][ex] @ (silu(gate) * up))
        if self.hybrid:
            h = silu(x @ w[p + "ffn_gate_shexp.weight"].T) * (x @ w[p + "ffn_up_shexp.weight"].T)
            g = sigmoid(x @ w[p + "ffn_gate_inp_shexp.weight"].reshape(-1))
            out += (h @ w[p + "ffn_down_shexp.weight"].T) * g[:, None]
        return out, ids

    # ---- the model ---------------------------------------------------------------------------------------------

    def session(self):
        return {"pos": 0, "layer": [{} for _ in range(self.n_layer)]}

    def block(self, i, x, st, pos, recurrent):
        w, p = self.w, "blk.%d." % i
        h = self.rms(x, w[p + "attn_norm.weight"])
        x = x + (self.delta_net(i, h, st) if recurrent else self.attention(i, h, st, pos))
        h = self.rms(x, w[p + ("post_attention_norm" if self.hybrid else "ffn_norm") + ".weight"])
        y, ids = self.moe(i, h)
        return x + y, ids

    def eval(self, session, tokens):
        w = self.w
        pos = session["pos"] + np.arange(len(tokens))
        session["pos"] += len(tokens)
        x = w["token_embd.weight"][np.asarray(tokens, dtype=np.int64)]
        for i in range(self.n_layer):
            x, ids = self.block(i, x, session["layer"][i], pos, self.recurrent[i])
            if self.trace is not None:
                self.trace.append((i, x, ids))
        self.hidden = self.rms(x, w["output_norm.weight"])   # input of the head, and of the MTP block
        return self.hidden @ w["output.weight" if "output.weight" in w else "token_embd.weight"].T

    def greedy(self, tokens, n):
        s = self.session()
        logits = self.eval(s, tokens)[-1]
        out = []
        for _ in range(n):
            out.append(int(logits.argmax()))
            logits = self.eval(s, out[-1:])[-1]
        return out
