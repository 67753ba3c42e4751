#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy continuations against llama.cpp, 64 tokens, F32 weights and F32 cache.    greedy_parity.py STRATA

For every architecture golden models are written again with F32 weights, the peer continues their prompts, and at each
position of what it wrote the program must choose the same token. Where qwen4exp chooses blocks the two programs follow
different rules by design, so the budget is raised until every block is chosen.

Needs LLAMA_PEER, the program that calls the peer's libraries, STRATA_PEERS, where those are, and numpy. Without them
the script says so and ends with status 77, which Meson counts as skipped.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "data", "fixtures", "models")
sys.path.insert(0, os.path.join(HERE, "..", "golden"))


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


for name in ("LLAMA_PEER", "STRATA_PEERS"):
    if not os.environ.get(name):
        skip("%s is not set, so there is no peer to compare with" % name)
try:
    import numpy as np
except ImportError:
    skip("%s has no numpy" % sys.executable)

from gguf import Gguf, copy                                  # noqa: E402

GREEDY = 64
# Two correct programs may differ where the best two logits lie closer than their rounding, relative to the largest.
CLOSE = 1e-4
NAMES = ("q3m_plain", "q3m_tied", "q3m_yarn", "q3n_plain", "q3n_legacy", "q35_plain", "q35_fused",
         "q4e_plain", "q4e_sparse", "q4e_ngram", "q4e_odd")


def call(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError("%s: status %d: %s" % (" ".join(command), done.returncode, done.stderr.decode()[-400:]))


def write_f32(source, target):
    """The model with F32 weights; blocks are never few enough to choose from."""
    g = Gguf(source)
    f32 = {name: (t.shape, "F32", g.array(name, np.float32)) for name, t in g.tensors.items()}
    budget = g.arch + ".attention.indexer.top_k"
    copy(source, target, {budget: 120 * g.kv[budget]} if budget in g.kv else {}, replace=f32)


def write_ids(path, ids):
    with open(path, "w", encoding="ascii") as file:
        file.write(" ".join(map(str, ids)))
    return path


def compare(strata, model, prompt, folder):
    """Tokens equal before the first difference, whether that was a close one, the largest difference of a logit."""
    def path(name):
        return os.path.join(folder, name)
    n = len(prompt)
    peer = [os.environ["LLAMA_PEER"], "-m", model, "-t", "1", "-tb", "1", "--ctk", "f32", "--ctv", "f32", "--fa", "0"]
    ids = write_ids(path("ids"), prompt)
    call(*peer, "-p", str(n), "-n", str(GREEDY), "-r", "1", "--greedy", "--ids", ids, "--out-ids", path("out"))
    with open(path("out"), encoding="ascii") as file:
        chosen = [int(word) for word in file.read().split()][:GREEDY]
    if len(chosen) != GREEDY:
        raise RuntimeError("%s: the peer wrote %d tokens, not %d" % (model, len(chosen), GREEDY))
    ids = write_ids(path("ids"), prompt + chosen)
    call(strata, "logits", "-q", "-m", model, "--ids", ids, "--ctx", str(n + GREEDY), "--kv", "f32", "--out", path("ours.npy"))
    call(*peer, "-p", str(n + GREEDY), "--ids", ids, "--logits", path("theirs.npy"))
    ours, theirs = np.load(path("ours.npy")), np.load(path("theirs.npy"))
    largest = np.abs(theirs).max()
    for i, token in enumerate(chosen):
        row = ours[n - 1 + i]
        if row.argmax() != token:
            return i, row.max() - row[token] < CLOSE * largest, np.abs(ours - theirs).max() / largest
    return GREEDY, False, np.abs(ours - theirs).max() / largest


def check(strata, name, folder):
    """Whether all prompts of a model go the same way."""
    model = os.path.join(folder, name + ".gguf")
    write_f32(os.path.join(MODELS, name + ".gguf"), model)
    with open(os.path.join(MODELS, name + ".json"), encoding="utf-8") as file:
        prompts = json.load(file)["prompts"]
    good = True
    for which, prompt in prompts.items():
        equal, close, worst = compare(strata, model, prompt["tokens"], folder)
        verdict = "ok" if equal == GREEDY else "close" if close else "FAILED"
        good = good and verdict != "FAILED"
        print("%-6s  %-10s %-5s %d of %d tokens equal, logits differ by %.1e of the largest"
              % (verdict, name, which, equal, GREEDY, worst), flush=True)
    return good


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    strata = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="strata-peer-") as folder:
        results = [check(strata, name, folder) for name in NAMES]
    print("%d models agree with the peer, %d do not" % (sum(results), len(results) - sum(results)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
