#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The program against the references on models that were made just now.    random_models.py STRATA [SEED]

Three models of each architecture (make_models.py says which); the references compute in float64. Every position's logits
must agree, and so must the greedy continuation, when the ids are fed as one prompt and in decode steps of three.
Quantized models are run both ways: with float32 activations against the plain reference, and with activations rounded
to 8 bits against the reference that rounds by the same rule.

Without numpy nothing can be shown: the script says so and ends with status 77, which Meson counts as skipped.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("SKIP: %s has no numpy, so the references cannot run" % sys.executable)
    sys.exit(77)

import make_models
import other_archs_ref
import qwen4exp_ref

PROMPT, GREEDY = 14, 8
TOLERANCE = 1e-4                                             # of the largest logit
# Close decisions are not compared: prompts are drawn until every choice is at least this clear.
GAP = 3e-3                                                   # of router logits and block scores
MARGIN = 1e-3                                                # of the two best logits, in parts of the largest
# A value on the edge between two steps of 8 bits may fall either way, and everything behind it with it. So of the
# positions of some prompts a share must agree; under another rule of rounding none would.
ROUNDED_PROMPTS, ROUNDED_SHARE = 4, 0.25


class Other:
    """qwen3moe, qwen3next, qwen35moe"""

    def __init__(self, path, rounded):
        self.model = other_archs_ref.Model(path, other_archs_ref.round_project if rounded else None)

    def start(self):
        self.state = self.model.session()
        self.model.min_gap = np.inf

    def feed(self, ids):
        """Logits, and the smallest distance of a decision."""
        logits = self.model.eval(self.state, ids)
        return logits, self.model.min_gap


class Rounding(other_archs_ref.Rounding):
    """As there; halves of a fused tensor can be taken too."""

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return Rounding(self.a[i], self.kind, self.rule)


class RoundingModel(qwen4exp_ref.Model):
    """Rounds the vector in front of every quantized matrix; rows of tables are decoded."""

    def w(self, name):
        kind = self.file.tensors[name].type
        matrix = super().w(name)
        if name.endswith("token_embd.weight") or other_archs_ref.block_length(kind) is None:
            return matrix
        return Rounding(matrix, kind, other_archs_ref.round_project)


class Qwen4exp:
    def __init__(self, path, rounded):
        self.model = (RoundingModel if rounded else qwen4exp_ref.Model)(path, np.float64)

    def start(self):
        self.state = self.model.new_state()

    def feed(self, ids):
        seen = {}
        logits = self.model.forward(ids, self.state, seen)
        p, gaps = self.model.p, [np.inf]
        for name, a in seen.items():
            if name.endswith("router_logits"):
                best = -np.sort(-a, axis=1)
                gaps.append((best[:, p.n_used - 1] - best[:, p.n_used]).min())
            if name.endswith("idx_score"):
                blocks = p.budget // p.ratio[int(name.split(".")[0])]
                for row in a:
                    best = -np.sort(-row[~np.isnan(row)])
                    if len(best) > blocks and best[blocks - 1] > 0:     # among scores of 0 the lowest block wins
                        gaps.append(best[blocks - 1] - best[blocks])
        return logits, min(gaps)


def reference(arch, path, rounded):
    return (Qwen4exp if arch == "qwen4exp" else Other)(path, rounded)


def greedy(r, prompt):
    """The prompt with its continuation, and the logits of all; None when a decision is not clear."""
    r.start()
    logits, gap = r.feed(prompt)
    rows, ids = [logits], list(prompt)
    for _ in range(GREEDY):
        second, best = np.sort(rows[-1][-1])[-2:]
        if gap < GAP or best - second < MARGIN * np.abs(rows[-1]).max():
            return None
        ids.append(int(rows[-1][-1].argmax()))
        logits, gap = r.feed(ids[-1:])
        rows.append(logits)
    return (ids, np.concatenate(rows)) if gap >= GAP else None


def cases(r, rng):
    """Prompts all of whose decisions are clear, with continuation and logits."""
    for _ in range(1000):
        prompt = rng.integers(0, make_models.SEPARATOR, PROMPT).tolist()
        prompt[5] = make_models.SEPARATOR                    # cuts the n-gram hash
        found = greedy(r, prompt)
        if found:
            yield found
    raise RuntimeError("no prompt with clear decisions was found")


class Program:
    def __init__(self, strata, folder):
        self.strata, self.folder = strata, folder

    def logits(self, model, ids, *options):
        given, out = os.path.join(self.folder, "ids"), os.path.join(self.folder, "logits.npy")
        with open(given, "w", encoding="ascii") as file:
            file.write(" ".join(map(str, ids)))
        command = [self.strata, "logits", "-q", "-m", model, "--ids", given, "--out", out, "--kv", "f32", *options]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=240, check=False)
        if done.returncode:
            raise RuntimeError("%s: status %d: %s" % (" ".join(command), done.returncode, done.stderr.decode()))
        return np.load(out)


def difference(got, want):
    """Largest difference, in parts of the largest logit."""
    return np.abs(got - want).max() / np.abs(want).max()


def share_that_agrees(got, want):
    return (np.abs(got - want).max(1) <= TOLERANCE * np.abs(want).max()).mean()


def check_rounded(program, path, arch, prompts):
    """The share of positions where the program agrees with the reference that rounds, and where the plain one would."""
    rounding, ours, plain = reference(arch, path, True), [], []
    for _ in range(ROUNDED_PROMPTS):
        ids, exact = next(prompts)
        rounding.start()
        want, _ = rounding.feed(ids)
        ours.append(share_that_agrees(program.logits(path, ids), want))
        plain.append(share_that_agrees(exact, want))
    return np.mean(ours), np.mean(plain)


def check(program, arch, variant, seed):
    """Runs one model; returns whether all agreed."""
    path = os.path.join(program.folder, "%s-%d.gguf" % (arch, variant))
    about = make_models.make(path, arch, variant, seed)
    quantized = variant == 2
    prompts = cases(reference(arch, path, False), np.random.default_rng([seed, variant]))
    ids, exact = next(prompts)
    float32 = ["--exact-activations"] if quantized else []
    got = program.logits(path, ids, *float32)
    worst = difference(got, exact)
    # Fed with the ids the reference chose, the program must choose the same at each of these positions.
    same = got[PROMPT - 1:-1].argmax(1).tolist() == ids[PROMPT:]
    steps = np.array_equal(program.logits(path, ids, *float32, "--window", "3"), got)
    good = worst <= TOLERANCE and same and steps
    text = "logits %.1e, greedy %s, steps %s" % (worst, "equal" if same else "DIFFERENT", "equal" if steps else "DIFFERENT")
    if quantized:
        rounded, plain = check_rounded(program, path, arch, prompts)
        good = good and rounded >= ROUNDED_SHARE > plain
        text += ", rounded at %.0f%% of positions (not rounded %.0f%%)" % (100 * rounded, 100 * plain)
    print("%s  %s: %s" % ("ok    " if good else "FAILED", about, text), flush=True)
    return good


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    seed = int(sys.argv[2]) if len(sys.argv) == 3 else 1
    with tempfile.TemporaryDirectory(prefix="strata-random-") as folder:
        program = Program(os.path.abspath(sys.argv[1]), folder)
        results = [check(program, arch, variant, seed) for arch in make_models.ARCHS for variant in make_models.VARIANTS]
    print("%d models agree, %d do not (seed %d)" % (sum(results), len(results) - sum(results), seed))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
