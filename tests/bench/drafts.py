#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/benchmarks.md about drafts.

    tests/bench/drafts.py BUILD [--big MODEL [--layer FILE].. [--costs]] [--rounds N] [--quick]

Answers of `strata run` with --draft off and auto, in turn (off auto, auto off, ...), to three texts: one that repeats itself,
prose and code; by the demo model and by a model of real shapes (strata synth MODEL, with its MODEL.ids), whose words mean
nothing: there the texts are its own, one that repeats 13 ids of it, and one whose every other run of ids is a repetition.
With --layer, a draft layer of such a model (strata synth FILE --mtp only --mtp-right X), also its own text with that layer.

--costs: what steps of 1 to 8 tokens cost when all guesses are right (found in the text, then made by the first --layer, which
should be one of --mtp-right 1), how many experts they need, and what share of right guesses pays for them.
Prints tables in Markdown. On a quiet machine; --quick only shows that it works.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models", "strata-demo.gguf")
PROSE = os.path.join(ROOT, "tests", "data", "fixtures", "valid.txt")
CODE = os.path.join(ROOT, "src", "base", "mem.c")
OPTIONS = ["--temp", "0", "--arena", "max", "--popularity", "off"]


def demo_texts(program, prompt):
    """Name -> ids of the demo model, `prompt` of them."""
    texts = {"repetitive": "The wolf said to the lamb: come in, come in, my dear. " * prompt}
    for name, path in (("prose", PROSE), ("code", CODE)):
        with open(path, encoding="utf-8") as file:
            texts[name] = file.read(20 * prompt)
    ids = {}
    for name, text in texts.items():
        done = subprocess.run([program, "tokenize", "-m", DEMO], input=text[:20 * prompt].encode(), stdout=subprocess.PIPE, check=True)
        ids[name] = json.loads(done.stdout)[:prompt]
    return ids


def big_texts(model, prompt):
    """The same for a model whose ids are given."""
    with open(model + ".ids", encoding="ascii") as file:
        own = [int(word) for word in file.read(16 * prompt).split()[:prompt]]
    quotes = []
    for at in range(0, prompt, 20):
        quotes += own[at:at + 20] + own[at // 40 * 20:at // 40 * 20 + 20]
    return {"repetitive": (own[:13] * prompt)[:prompt], "its own": own, "half of it repeated": quotes[:prompt]}


def answer(program, model, ids, tokens, *draft):
    """What `run --json` says of an answer of so many tokens, or fewer where it ends by itself."""
    done = subprocess.run([program, "run", "-m", model, "--ids", ids, "-n", str(tokens), *draft, "--json", "-q"] + OPTIONS,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def compare(program, model, ids, tokens, rounds, auto):
    """Speeds of both arms, run in turn, and the last answer with guesses."""
    arms = {"off": ["--draft", "off"], "auto": ["--draft", "auto"] + auto}
    speeds = {"off": [], "auto": []}
    guessed = texts = None
    for turn in range(rounds):
        for draft in (("off", "auto") if turn % 2 == 0 else ("auto", "off")):
            done = answer(program, model, ids, tokens, *arms[draft])
            speeds[draft].append(done["decode_tok_s"])
            guessed = done if draft == "auto" else guessed
            if texts not in (None, done["ids"]):
                raise SystemExit("--draft %s gives another text" % draft)
            texts = done["ids"]
    return speeds, guessed


class Costs:
    """What a step of so many tokens takes, all of whose guesses are right."""

    LONGEST = 8

    def __init__(self, program, model, layer, prompt, tokens, folder):
        self.program, self.model, self.layer, self.tokens = program, model, layer, tokens
        self.texts = [os.path.join(folder, name) for name in ("plain", "quote")]
        # The model goes on with a text that it never repeats; behind the first ids of it, it says the same again, with experts
        # that have been read. Where every 12th id is left out, no match is long enough to be preferred to the layer's guesses.
        self.write(0, self.first_ids(prompt))
        self.chain = answer(program, model, self.texts[0], tokens + 32, "--draft", "off")["ids"]
        self.write(0, [one for at, one in enumerate(self.chain) if at % 12] + self.chain[:16])
        self.write(1, self.chain + self.chain[:16])
        self.steps = {way: {rows: [] for rows in range(1, self.LONGEST + 1)} for way in ("lookup", "mtp")[:2 if layer else 1]}
        self.experts = {}

    def first_ids(self, n):
        with open(self.model + ".ids", encoding="ascii") as file:
            return [int(word) for word in file.read(16 * n).split()[:n]]

    def write(self, which, ids):
        with open(self.texts[which], "w", encoding="ascii") as file:
            file.write(" ".join(map(str, ids)))

    def measure(self, way, rows):
        """Milliseconds of a step, and of experts how many it needs in all layers."""
        tokens = 1 + self.tokens // rows * rows
        options = ["--draft", way, "--draft-rows", str(rows)] if rows > 1 else ["--draft", "off"]
        if way == "mtp" and rows > 1:
            options += ["--draft-model", self.layer]
        done = answer(self.program, self.model, self.texts[way == "lookup"], tokens, *options)
        if done["ids"] != self.chain[16:16 + tokens]:
            raise SystemExit("--draft %s of %d gives another text" % (way, rows))
        steps = tokens - 1 - done["accepted"]
        if steps > 1.1 * (tokens - 1) / rows + 1:
            raise SystemExit("--draft %s: %d of %d guesses right, all were expected" % (way, done["accepted"], done["drafted"]))
        return 1000 * (tokens - 1) / done["decode_tok_s"] / steps, (done["decode_hits"] + done["decode_misses"]) / steps

    def round(self, turn):
        order = list(range(1, self.LONGEST + 1))
        for rows in order if turn % 2 == 0 else reversed(order):
            for way, of_rows in self.steps.items():
                took, experts = self.measure(way, rows)
                of_rows[rows].append(took)
                if way == "lookup":
                    self.experts[rows] = experts

    def took(self, way, rows):
        return statistics.median(self.steps[way][rows])

    def gain(self, way, rows, share):
        """Speed against plain steps when each guess is right with this chance, those before it being right."""
        return sum(share ** k for k in range(rows)) * self.took(way, 1) / self.took(way, rows)

    def pays_from(self, way, rows):
        """The least share of right guesses with which such steps are no slower than plain ones."""
        least, most = 0.0, 1.0
        for _ in range(30):
            middle = (least + most) / 2
            least, most = (middle, most) if self.gain(way, rows, middle) < 1 else (least, middle)
        return "%.0f %%" % (100 * most) if most < 0.9999 else "never"

    def print(self):
        ways = list(self.steps)
        print("| tokens of a step | experts | %s |\n|---|---|%s" % (" | ".join(
            "%s: ms | of one token | pays from" % ("found in the text" if way == "lookup" else "by the draft layer") for way in ways),
                                                                "---|---|---|" * len(ways)))
        for rows in range(1, self.LONGEST + 1):
            cells = ["%.1f | %.2f | %s" % (self.took(way, rows), self.took(way, rows) / self.took(way, 1),
                                           self.pays_from(way, rows) if rows > 1 else "-") for way in ways]
            print("| %d | %.0f (%.2f) | %s |" % (rows, self.experts[rows], self.experts[rows] / self.experts[1], " | ".join(cells)))
        print("\nSpeed against plain steps, at the best length (tokens in brackets), by the share of right guesses:\n")
        shares = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        print("| guesses | %s |\n|---|%s" % (" | ".join("%.0f %%" % (100 * share) for share in shares), "---|" * len(shares)))
        for way in ways:
            best = [max((self.gain(way, rows, share), rows) for rows in range(1, self.LONGEST + 1)) for share in shares]
            print("| %s | %s |" % ("found in the text" if way == "lookup" else "by the draft layer",
                                   " | ".join("%.2f (%d)" % one for one in best)), flush=True)


def cell(values):
    return "%.1f (%.1f to %.1f)" % (statistics.median(values), min(values), max(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--big", metavar="MODEL", help="a model of real shapes, its ids in MODEL.ids")
    parser.add_argument("--layer", metavar="FILE", action="append", default=[], help="a draft layer of that model")
    parser.add_argument("--costs", action="store_true", help="only what steps of several tokens cost")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    program = os.path.join(options.build, "strata")
    rounds, prompt, tokens = (1, 40, 8) if options.quick else (options.rounds, 200, 200)
    with tempfile.TemporaryDirectory() as folder:
        if options.costs:
            tokens = min(tokens, 96)
            print("%s: `strata run -m MODEL --ids TEXT -n %d %s --draft WAY --draft-rows N`, all guesses right, medians of %d rounds.\n"
                  % (os.path.basename(options.big), tokens + 1, " ".join(OPTIONS), rounds))
            costs = Costs(program, options.big, options.layer[0] if options.layer else None, prompt, tokens, folder)
            for turn in range(rounds):
                costs.round(turn)
            costs.print()
        else:
            print_speeds(program, options, (rounds, prompt, tokens), os.path.join(folder, "ids"))


def print_speeds(program, options, sizes, path):
    rounds, prompt, tokens = sizes
    cases = [("demo", DEMO, name, ids, tokens, rounds, []) for name, ids in demo_texts(program, prompt).items()]
    if options.big:
        texts = big_texts(options.big, prompt)
        cases += [(os.path.basename(options.big), options.big, name, ids, min(tokens, 96), min(rounds, 3), [])
                  for name, ids in texts.items()]
        cases += [(os.path.basename(options.big), options.big, "its own, with " + os.path.basename(layer), texts["its own"],
                   min(tokens, 96), min(rounds, 3), ["--draft-model", layer]) for layer in options.layer]
    print("`strata run -m MODEL --ids TEXT -n %d %s --draft off|auto`: %d ids, at most %d tokens of an answer, tokens a second.\n"
          % (tokens, " ".join(OPTIONS), prompt, tokens))
    print("| model | text | `off` | `auto` | auto / off | guesses right |\n|---|---|---|---|---|---|")
    for title, model, name, ids, most, times, auto in cases:
        with open(path, "w", encoding="ascii") as file:
            file.write(" ".join(map(str, ids)))
        speeds, guessed = compare(program, model, path, most, times, auto)
        ratio = statistics.median(speeds["auto"]) / statistics.median(speeds["off"])
        print("| %s | %s | %s | %s | %.2f | %d of %d, of %d tokens |" % (
            title, name, cell(speeds["off"]), cell(speeds["auto"]), ratio, guessed["accepted"], guessed["drafted"], guessed["tokens"]),
              flush=True)


if __name__ == "__main__":
    main()
