#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/benchmarks.md about long contexts and a cold start.

    tests/bench/growth.py BUILD [--growth MODEL] [--cold MODEL] [--depths N,N...] [--kv TYPE] [--rounds N] [--quick]

--growth: speed of a prompt and of an answer behind contexts of several lengths, on a model of few layers of real shapes
(strata synth MODEL --layers 4 --ids-len 140000, with its MODEL.ids). One text passes all depths, once for each round: some
minutes for 131,072 tokens of 4 layers. --cold: time until the first token when nothing of the
file is in memory, beside what the drive needs to read the trunk. Both print tables in Markdown. On a quiet machine; --quick
only shows that it works, with the demo model where none is named.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models", "strata-demo.gguf")
OPTIONS = ["--popularity", "off", "--draft", "off"]
PROMPT, TOKENS = 512, 32


def call(program, *arguments):
    """What a command says with --json."""
    done = subprocess.run([program] + [str(word) for word in arguments] + ["--json", "--quiet"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def growth(program, model, depths, rounds, kv, prompt):
    """One text passes all depths, so that the longest of them costs what one prompt of its length does."""
    options = ["-d", ",".join(map(str, depths)), "-p", prompt, "-n", TOKENS, "-r", rounds, "--arena", "max", "--kv", kv] + OPTIONS
    print("%s: `strata bench -m MODEL --ids MODEL.ids %s`. One text passes all depths: at each of them %d tokens are fed, then %d "
          "answered.\n" % (os.path.basename(model), " ".join(map(str, options)), prompt, TOKENS))
    ids = ["--ids", model + ".ids"] if os.path.exists(model + ".ids") else []
    points = call(program, "bench", "-m", model, *ids, *options)["depths"]
    print("| depth | answer, tok/s | of depth %s | prompt at this depth, s per 1,000 tokens | of depth %s | since the depth before, s per 1,000 tokens |"
          "\n|---|---|---|---|---|---|" % (format(depths[0], ","), format(depths[0], ",")))
    first = points[0]
    for point in points:
        print("| %s | %.1f | %.0f %% | %.2f | %.2f | %s |" % (
            format(point["depth"], ","), point["decode_tok_s"], 100 * point["decode_tok_s"] / first["decode_tok_s"],
            1000 / point["prefill_tok_s"], first["prefill_tok_s"] / point["prefill_tok_s"],
            "%.2f" % (1000 / point["depth_tok_s"]) if point["depth_tok_s"] else "-"), flush=True)
    print(flush=True)


def forget(path):
    """Drops the pages of a file from the page cache."""
    handle = os.open(path, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def own_memory(size):
    """Takes free memory once and gives it back. A virtual machine may have handed it to its host; the first touch after that
    takes up to ten times what clearing takes, which says nothing about the program."""
    pages = bytes(1 << 21)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for _ in range(size // len(pages)):
            memory.write(pages)


def plain_read(path, size):
    """Seconds that the first `size` bytes of a file take processes that do nothing but read them, eight reads of 1 MiB at a time
    past the page cache into memory that is there: what the drive gives for as long as a trunk takes."""
    piece, readers = 1 << 20, 8
    began = time.monotonic()
    children = []
    for reader in range(readers):
        child = os.fork()
        if not child:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
            with mmap.mmap(-1, piece) as memory:
                for place in range(reader * piece, size, readers * piece):
                    os.preadv(handle, [memory], place)
                os._exit(0)
        children.append(child)
    failed = [os.waitpid(child, 0)[1] for child in children]
    if any(failed):
        raise SystemExit("%s could not be read" % path)
    return time.monotonic() - began


def first_token(program, model):
    """Seconds from the start of the program to the first bytes of an answer to one token."""
    began = time.monotonic()
    with subprocess.Popen([program, "run", "-m", model, "-p", "A", "-n", "4", "--temp", "0", "-q", *OPTIONS], bufsize=0,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as run:
        run.stdout.read(1)
        seconds = time.monotonic() - began
        run.stdout.read()
    if run.returncode:
        raise SystemExit("strata run: status %d" % run.returncode)
    return seconds


def cold(program, model, rounds):
    print("%s, its pages dropped and twice the trunk's memory touched before each run: `strata run -m MODEL -p A -n 4 --temp 0 %s`, from the start of the program "
          "to the first letter; the drive's best by `strata probe MODEL`; plain: another program only reads as many bytes.\n" % (os.path.basename(model), " ".join(OPTIONS)))
    trunk = call(program, "plan", model, *OPTIONS)["trunk"]
    took, plain, rates, steps = [], [], [], []
    for _ in range(rounds):
        forget(model)
        rates.append(max(point["gb_s"] for point in call(program, "probe", model)["points"]))
        forget(model)
        plain.append(plain_read(model, trunk))
        forget(model)
        own_memory(2 * trunk)
        took.append(first_token(program, model))
        forget(model)
        own_memory(2 * trunk)
        steps.append(call(program, "bench", "-m", model, "-p", 1, "-n", 4, "-r", 1, *OPTIONS)["reps"][0]["decode_ms_first"] / 1000)
    rate, read, seconds, step = (statistics.median(values) for values in (rates, plain, took, steps))
    least = trunk * 1e-9 / rate
    print("| file, GB | trunk, GB | drive's best, GB/s | reading the trunk, s | plain, s | one step, s | first token, s | of best and step | of plain and step |"
          "\n|---|---|---|---|---|---|---|---|---|")
    print("| %.1f | %.3f | %.2f | %.2f | %.2f (%.2f to %.2f) | %.2f | %.2f (%.2f to %.2f) | %.2f | %.2f |\n" % (
        os.path.getsize(model) * 1e-9, trunk * 1e-9, rate, least, read, min(plain), max(plain), step, seconds, min(took), max(took),
        seconds / (least + step), seconds / (read + step)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--growth", metavar="MODEL")
    parser.add_argument("--cold", metavar="MODEL")
    parser.add_argument("--depths", default="0,2048,8192,32768,131072")
    parser.add_argument("--kv", default="q8_0")
    parser.add_argument("--rounds", type=int, default=0, help="1 of --growth, 3 of --cold")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    program = os.path.join(options.build, "strata")
    depths = [0, 64, 128] if options.quick else [int(depth) for depth in options.depths.split(",")]
    rounds = 1 if options.quick else options.rounds
    if options.growth or options.quick:
        growth(program, options.growth or DEMO, depths, rounds or 1, options.kv, 16 if options.quick else PROMPT)
    if options.cold or options.quick:
        cold(program, options.cold or DEMO, rounds or 3)


if __name__ == "__main__":
    main()
