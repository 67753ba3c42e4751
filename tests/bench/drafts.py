#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/benchmarks.md about drafts.    tests/bench/drafts.py BUILD [--big MODEL] [--rounds N] [--quick]

Answers of `strata run` with --draft off and auto, in turn (off auto, auto off, ...), to three texts: one that repeats itself,
prose and code; by the demo model and by a model of real shapes (strata synth MODEL, with its MODEL.ids), whose words mean
nothing: there the texts are its own, one that repeats 13 ids of it, and one whose every other run of ids is a repetition.
Prints a table in Markdown. On a quiet machine; --quick only shows that it works.
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


def answer(program, model, ids, draft, tokens):
    """What `run --json` says of an answer of so many tokens, or fewer where it ends by itself."""
    done = subprocess.run([program, "run", "-m", model, "--ids", ids, "-n", str(tokens), "--draft", draft, "--json", "-q"] + OPTIONS,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def compare(program, model, ids, tokens, rounds):
    """Speeds of both arms, run in turn, and the last answer with guesses."""
    speeds = {"off": [], "auto": []}
    guessed = texts = None
    for turn in range(rounds):
        for draft in (("off", "auto") if turn % 2 == 0 else ("auto", "off")):
            done = answer(program, model, ids, draft, tokens)
            speeds[draft].append(done["decode_tok_s"])
            guessed = done if draft == "auto" else guessed
            if texts not in (None, done["ids"]):
                raise SystemExit("--draft %s gives another text" % draft)
            texts = done["ids"]
    return speeds, guessed


def cell(values):
    return "%.1f (%.1f to %.1f)" % (statistics.median(values), min(values), max(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--big", metavar="MODEL", help="a model of real shapes, its ids in MODEL.ids")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    program = os.path.join(options.build, "strata")
    rounds, prompt, tokens = (1, 40, 8) if options.quick else (options.rounds, 200, 200)
    cases = [("demo", DEMO, name, ids, tokens, rounds) for name, ids in demo_texts(program, prompt).items()]
    if options.big:
        cases += [(os.path.basename(options.big), options.big, name, ids, min(tokens, 96), min(rounds, 3))
                  for name, ids in big_texts(options.big, prompt).items()]
    print("`strata run -m MODEL --ids TEXT -n %d %s --draft off|auto`: %d ids, at most %d tokens of an answer, tokens a second.\n"
          % (tokens, " ".join(OPTIONS), prompt, tokens))
    print("| model | text | `off` | `auto` | auto / off | guesses right |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ids")
        for title, model, name, ids, most, times in cases:
            with open(path, "w", encoding="ascii") as file:
                file.write(" ".join(map(str, ids)))
            speeds, guessed = compare(program, model, path, most, times)
            ratio = statistics.median(speeds["auto"]) / statistics.median(speeds["off"])
            print("| %s | %s | %s | %s | %.2f | %d of %d, of %d tokens |" % (
                title, name, cell(speeds["off"]), cell(speeds["auto"]), ratio, guessed["accepted"], guessed["drafted"], guessed["tokens"]),
                  flush=True)


if __name__ == "__main__":
    main()
