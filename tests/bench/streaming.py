#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/benchmarks.md about streaming.    tests/bench/streaming.py BUILD [--big MODEL] [--rounds N] [--only PART,..] [--quick]

Runs arms of `strata bench` in turn, on the demo model and on a model of real shapes (strata synth MODEL --layers 8, with its
MODEL.ids), and prints tables in Markdown, each with the arms' options. On a quiet machine; --quick only shows that it works.
Parts: limits, evenness, replicas, decode, quality, prefill, bands; all but quality, limits and replicas have a table for each model.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models", "strata-demo.gguf")
VALID = os.path.join(ROOT, "tests", "data", "fixtures", "valid.txt")

# What every arm has: an arena that is too small and cold, and one token at a time.
COMMON = ["--popularity", "off", "--draft", "off", "--sidecar", "off"]
EXACT = ["--policy", "lru", "--moce", "0"]
DECODE = [
    ("LRU, nothing computed during reads", EXACT + ["--read-ahead", "0", "--overlap", "off"]),
    ("resident first", EXACT + ["--read-ahead", "0"]),
    ("+ read-ahead", EXACT + ["--read-ahead", "auto"]),
    ("+ MoCE 0.85", ["--policy", "lru", "--read-ahead", "auto", "--moce", "0.85"]),
    ("+ MoCE auto:0.02", ["--policy", "lru", "--read-ahead", "auto", "--moce", "auto:0.02"]),
]


class Bench:
    """Calls of the program of a build."""

    def __init__(self, build, rounds):
        self.program, self.rounds = os.path.join(build, "strata"), rounds

    def json(self, *arguments):
        done = subprocess.run([self.program] + [str(word) for word in arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def arms(self, model, ids, prompt, gen, arms):
        """Runs them in turn; a list of (name, {key: median}) in their order."""
        file = {"model": model, "prompt": prompt, "gen": gen, "rounds": self.rounds,
                "arms": [{"name": name, "flags": COMMON + flags} for name, flags in arms]}
        if ids:
            file["ids"] = ids
        with tempfile.NamedTemporaryFile("w", suffix=".json") as out:
            json.dump(file, out)
            out.flush()
            runs = self.json("bench", "--arms", out.name, "--json", "--quiet")["runs"]
        of_arm = {name: [run for run in runs if run["arm"] == name] for name, _ in arms}
        keys = [key for key, value in runs[0].items() if isinstance(value, (int, float))]
        return [(name, {key: statistics.median(run[key] for run in of_arm[name]) for key in keys}) for name, _ in arms]

    def token_ms(self, model, ids, prompt, tokens, flags):
        """Of each token of an answer, the median of the rounds: all of them miss the same records at the same token."""
        rounds = [self.json("bench", "-m", model, "--ids", ids, "-p", prompt, "-n", tokens, "-r", 1, "--json", "--quiet",
                            *COMMON, *flags)["reps"][0]["token_ms"] for _ in range(self.rounds)]
        return [statistics.median(times) for times in zip(*rounds)]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def decode_row(name, run, tokens):
    return [name, "%.2f" % run["decode_tok_s"], "%.1f" % (run["decode_hits"] / tokens), "%.1f" % (run["decode_misses"] / tokens)] + [
        "%.1f" % (run["decode_ahead_" + key] / tokens) for key in ("useful", "late", "wasted")] + [
        "%.2f" % (1000 * run["decode_wait_s"] / tokens), "%.4f" % run["moce_displaced"]]


def decode(bench, title, model, ids, prompt, tokens, drives):
    for drive in drives:
        extra = ["--arena", "20%"] + (["--io", drive] if drive else [])
        print("%s, %d tokens after %d, `%s`; of a token:\n" % (title, tokens, prompt, " ".join(extra + COMMON)))
        runs = bench.arms(model, ids, prompt, tokens, [(name, flags + extra) for name, flags in DECODE])
        rows = [decode_row("%s: `%s`" % (name, " ".join(dict(DECODE)[name])), run, tokens) for name, run in runs]
        table(["arm", "tok/s", "hits", "misses", "useful", "late", "wasted", "wait, ms", "displaced"], rows)


def quality(bench, tokens):
    print("`strata kld -m strata-demo.gguf -f valid.txt -n %d --arena 20%% --popularity off --against 'FLAGS'`\n" % tokens)
    rows = []
    for name, flags in DECODE[3:]:
        done = bench.json("kld", "-m", DEMO, "-f", VALID, "-n", tokens, "--arena", "20%", "--popularity", "off", "--against",
                          " ".join(flags[2:]), "--json", "--quiet")
        rows.append([name, "%.4f" % done["kl_mean"], "%.3f" % done["top1"], "%.2f" % done["ppl"], "%.2f" % done["ppl_ref"]])
    table(["arm", "KL divergence, mean", "same best token", "perplexity", "of the arm"], rows)


def prefill_row(name, run, tokens):
    seconds = tokens / run["prefill_tok_s"]
    ahead = run["prefill_ahead_useful"] + run["prefill_ahead_late"]
    return [name, "%.1f" % run["prefill_tok_s"], "%.2f" % seconds, "%d" % run["prefill_misses"],
            "%.0f %%" % (100 * ahead / max(1, run["prefill_misses"])), "%d" % (run["prefill_misses"] - ahead),
            "%.2f" % run["prefill_wait_s"], "%.0f %%" % (100 * run["prefill_drive_busy_share"]),
            "%.2f" % (run["prefill_read_bytes"] * 1e-9)]


PREFILL_HEAD = ["arm", "tok/s", "s", "records read", "ahead", "not ahead", "wait, s", "drive busy", "GB read"]


def prefill(bench, title, model, ids, tokens, drives):
    """An arena of half the experts of 8 layers has places for two whole layers besides, as one of 20 % has of 48 layers."""
    for drive in drives:
        extra = ["--band", "1024"] + (["--io", drive] if drive else [])
        print("%s, prompt of %d tokens, `%s`\n" % (title, tokens, " ".join(extra + COMMON)))
        arms = [["--arena", "20%"], ["--arena", "20%", "--read-ahead", "off"], ["--arena", "50%"],
                ["--arena", "50%", "--read-ahead", "off"]]
        runs = bench.arms(model, ids, tokens, 1, [("`%s`" % " ".join(flags), flags + extra) for flags in arms])
        table(PREFILL_HEAD, [prefill_row(name, run, tokens) for name, run in runs])


def bands(bench, title, model, ids, tokens, sizes):
    extra = ["--arena", "20%", "--ctx", str(tokens + 16)]
    print("%s, prompt of %d tokens, `%s`\n" % (title, tokens, " ".join(extra + COMMON)))
    runs = bench.arms(model, ids, tokens, 1, [("--band %d" % size, extra + ["--band", str(size)]) for size in sizes])
    rows = []
    for size, (name, run) in zip(sizes, runs):
        plan = bench.json("plan", model, "--json", "--band", size, *extra)
        rows.append(prefill_row(name, run, tokens) + ["%.0f" % (plan["scratch"] / (1 << 20)), "%.0f" % (plan["plan_total"] / (1 << 20))])
    table(PREFILL_HEAD + ["scratch, MiB", "plan, MiB"], rows)


def text_ids(bench, folder, most):
    """A file with ids of the demo model for the text that it was not trained on."""
    with open(VALID, "rb") as text:
        done = subprocess.run([bench.program, "tokenize", "-m", DEMO], input=text.read(60 * most)[:20 * most].rsplit(b" ", 1)[0],
                              stdout=subprocess.PIPE, check=True)
    path = os.path.join(folder, "ids")
    with open(path, "w", encoding="ascii") as out:
        out.write(" ".join(str(i) for i in json.loads(done.stdout)[:most]))
    return path


def limits(bench, folder, ids, tokens, rates):
    """Speed of answers over the arena, and what the plan expects from a trace, the drive and the time of computing."""
    trace = os.path.join(folder, "trace")
    bench.json("bench", "-m", DEMO, "--ids", ids, "-p", 64, "-n", tokens, "-r", 1, "--trace", trace, "--arena", "max", "--json",
               "--quiet", *COMMON)
    for rate in rates:
        io, drive = ["--io", "sim:rate=%dM" % rate], os.path.join(folder, "drive-%d.json" % rate)
        with open(drive, "w", encoding="ascii") as out:
            json.dump(bench.json("probe", DEMO, "--record", "96K", *io, "--json"), out)
        print("demo model, %d tokens after 64, `--io sim:rate=%dM %s`\n" % (tokens, rate, " ".join(COMMON)))
        arenas = ["min", "10%", "20%", "35%", "50%", "75%", "max"]
        runs = bench.arms(DEMO, ids, 64, tokens, [(arena, ["--arena", arena] + io) for arena in arenas])
        compute = 1000 * (tokens / runs[-1][1]["decode_tok_s"] - runs[-1][1]["decode_wait_s"]) / tokens
        rows = []
        for arena, run in runs:
            plan = bench.json("plan", DEMO, "--arena", arena, "--forecast", "--drive", drive, "--trace", trace, "--compute", compute,
                              "--draft", "off", "--popularity", "off", "--json")
            expected = next(point["tok_s"] for point in plan["points"] if point["name"] == "chosen")
            rows.append([arena, "%.0f" % (plan["plan_total"] / (1 << 20)), "%.0f %%" % (100 * run["decode_hits"] / (
                run["decode_hits"] + run["decode_misses"])), "%.1f" % run["decode_tok_s"], "%.1f" % expected,
                         "%+.0f %%" % (100 * (expected / run["decode_tok_s"] - 1))])
        knee = next(point["total"] for point in plan["points"] if point["name"] == "knee") / (1 << 20)
        table(["arena", "plan, MiB", "hits", "tok/s", "forecast", "off by"], rows)
        print("The knee, the default with this trace: %.0f MiB.\n" % knee)


def speed(times):
    return 1000 * len(times) / sum(times)


def evenness(bench, title, model, ids, prompt, drives, long):
    """Answers right after a long prompt against later ones, and a long answer's second half against its first."""
    rows = []
    for drive in drives:
        extra = ["--arena", "20%"] + (["--io", drive] if drive else [])
        times = bench.token_ms(model, ids, prompt, 250, extra)
        early, late = speed(times[:50]), speed(times[200:])
        row = [drive or "its own", "%.1f" % times[0]] + ["%.1f" % value for value in (early, late)] + ["%.0f %%" % (100 * early / late)]
        if long:
            times = Bench(os.path.dirname(bench.program), 1).token_ms(model, ids, 64, long, extra)
            first, second = speed(times[:long // 2]), speed(times[long // 2:])
            row += ["%.1f" % value for value in (first, second)] + ["%.0f %%" % (100 * second / first)]
        rows.append(row)
    print("%s, `--arena 20%%`: the first token after a prompt of %d, then tokens a second\n" % (title, prompt))
    table(["drive", "first, ms", "1 - 50", "201 - 250", "early / late"] +
          (["1 - %d" % (long // 2), "%d - %d" % (long // 2 + 1, long), "late / early"] if long else []), rows)


def replicas(bench, folder, ids, tokens, rates):
    copy = os.path.join(folder, "copy.gguf")
    shutil.copyfile(DEMO, copy)
    rows = []
    for rate in rates:
        extra = ["--arena", "min", "--io", "sim:rate=%dM" % rate]
        (_, one), (_, two) = bench.arms(DEMO, ids, tokens, 32, [("one", extra), ("two", extra + ["--replica", copy])])
        row = ["%d MB/s" % rate]
        for key in ("prefill_tok_s", "decode_tok_s"):
            row += ["%.1f" % one[key], "%.1f" % two[key], "%.2f" % (two[key] / one[key])]
        rows.append(row + ["%.2f" % (one["decode_wait_s"] / two["decode_wait_s"])])
    print("demo model, prompt of %d tokens and 32 after it, `--arena min %s`; one drive, two with `--replica`, ratio:\n" % (
        tokens, " ".join(COMMON)))
    table(["a drive gives", "prompt, tok/s", "two", "", "answer, tok/s", "two", "", "wait, shorter by"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--big", metavar="MODEL", help="a model of real shapes, its ids in MODEL.ids")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="PART,..", type=lambda text: text.split(","), help="these tables alone")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench(options.build, 1 if options.quick else options.rounds)
    once = Bench(options.build, 1)
    few = 8 if options.quick else 1
    own, drives = [""], [""] if options.quick else ["", "sim:rate=200M"]
    big = [(os.path.basename(options.big), options.big, options.big + ".ids", 64 // few)] if options.big else []
    models = [("demo model", DEMO, None, 256 // few)] + big
    with tempfile.TemporaryDirectory() as folder:
        ids = text_ids(bench, folder, 5000)
        parts = {
            "limits": lambda: limits(bench, folder, ids, 256 // few, (100, 400)),
            "evenness": lambda: [evenness(bench, title, model, file or ids, 4000 // few, drives if model == DEMO else own,
                                          3000 // few if model == DEMO else 0) for title, model, file, _ in models],
            "replicas": lambda: replicas(bench, folder, ids, 512 // few, (50, 10)),
            "decode": lambda: [decode(bench, *model[:3], 64 // few, model[3], drives) for model in models],
            "quality": lambda: quality(bench, 2000 // (few * few)),
            "prefill": lambda: [prefill(bench, *model[:3], 1024 // (few * few), drives) for model in models],
            "bands": lambda: [bands(once, *model[:3], 8192 // (few * few), [size // (few * few) for size in (1024, 2048, 8192)])
                              for model in models],
        }
        for name in options.only or parts:
            if name not in parts:
                parser.error("--only %s: the parts are %s" % (name, ", ".join(parts)))
            parts[name]()


if __name__ == "__main__":
    main()
