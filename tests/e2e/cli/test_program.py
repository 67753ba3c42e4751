# SPDX-License-Identifier: Apache-2.0
"""The option table and its pages, runs on a terminal, files that are written, dumps."""

import json
import os
import re
import shutil
import subprocess

from program import Case, DEMO, PROMPT, ROOT, TINY, VALID, array, smoke
from cli.screen import Screen


class Pages(Case):
    @smoke
    def test_the_manual_page_is_what_the_table_says(self):
        with open(os.path.join(ROOT, "docs", "strata.1"), "rb") as file:
            self.assertEqual(self.succeeds("help", "--man").out, file.read(),
                             "run: build/strata help --man > docs/strata.1")

    def test_the_manual_page_has_no_mistakes(self):
        if not shutil.which("groff"):
            self.skipTest("there is no groff")
        done = subprocess.run(["groff", "-man", "-ww", "-z", os.path.join(ROOT, "docs", "strata.1")], capture_output=True,
                              check=False)
        self.assertEqual(done.stderr, b"")

    def test_completion_knows_commands_options_and_choices(self):
        script = self.write("completion", self.succeeds("help", "--completion", "bash").out)
        for words, wanted in [(["ru"], "run"), (["run", "--ar"], "--arena"), (["run", "--kv", ""], "f16 f32 q8_0"),
                              (["plan", "--js"], "--json")]:
            line = "source %s; COMP_WORDS=(strata %s); COMP_CWORD=%d; _strata; echo ${COMPREPLY[*]}" \
                % (script, " ".join(word or "''" for word in words), len(words))
            done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
            self.assertEqual(done.stdout.decode().strip(), wanted, done.stderr)

    def test_every_page_says_how_the_command_is_used(self):
        for command in ("run", "chat", "inspect", "plan", "tokenize", "logits", "render", "bench", "synth", "probe", "replay",
                        "pack", "kld"):
            page = self.succeeds(command, "--help").out
            self.assertTrue(page.startswith(b"usage: strata " + command.encode()))
            self.assertEqual(self.succeeds("help", command).out, page)
            self.assertLessEqual(len(page.splitlines()), 40)
            self.assertLessEqual(max(len(line) for line in page.splitlines()), 80)


class Words(Case):
    def test_both_ways_to_write_an_option(self):
        plain = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "4", "--temp", "0").out
        for way in (["--model=" + DEMO, "--prompt=" + PROMPT, "--tokens=4", "--temp=0"],
                    ["-m" + DEMO, "-p" + PROMPT, "-n4", "--temp", "0"]):
            self.assertEqual(self.succeeds("run", *way).out, plain)

    def test_what_does_not_go_together(self):
        for arguments, name in [
                (["run", "-m", DEMO, "-p", "x", "-"], "-p"),
                (["run", "-m", DEMO, "-p", "x", "-p", "y"], "-p"),
                (["run", "-m", DEMO, "--ids", "x", "--chat"], "--chat"),
                (["run", "-m", DEMO, "-p", "x", "--json=yes"], "--json"),
                (["run", "-m", DEMO, "-p", "x", "--quiet", "-v"], "-v"),
                (["run", "-m", DEMO], "-p"),
                (["run", "-m", DEMO, "text"], "text"),
                (["plan", DEMO, DEMO], DEMO),
                (["plan", DEMO, "-p", "x"], "-p"),
                (["logits", "-m", DEMO, "--ids", "-"], "--out"),
                (["chat", "-m", DEMO, "--system", "x", "--system-file", "y"], "--system-file"),
                (["help", "frobnicate"], "frobnicate")]:
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, names=[name])


class Run(Case):
    def test_on_a_terminal_the_answer_ends_with_a_line_break(self):
        screen = Screen("run", "-m", DEMO, "-p", PROMPT, "-n", "4", "--temp", "0", "--quiet")
        self.addCleanup(screen.kill)
        self.assertEqual(screen.end(), 0)
        plain = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "4", "--temp", "0").out
        self.assertEqual(screen.text, plain.replace(b"\n", b"\r\n") + b"\r\n")

    def test_on_a_terminal_the_progress_of_a_prompt_has_its_speeds(self):
        with open(VALID, "rb") as file:
            prompt = self.write("prompt", file.read(4000))
        screen = Screen("run", "-m", DEMO, "-f", prompt, "-n", "1", "--temp", "0", "--arena", "min", "--band", "64",
                        "--popularity", "off", "--io", "sim:rate=60M")
        self.addCleanup(screen.kill)
        self.assertEqual(screen.end(), 0)
        shown = re.findall(rb"reading the prompt: (\d+) of (\d+) tokens, ([\d.]+) a second, ([\d.]+) GB/s", screen.text)
        self.assertGreater(len(shown), 1, screen.text)
        self.assertEqual([int(one[0]) for one in shown], sorted(int(one[0]) for one in shown))
        for done, every, speed, rate in shown:
            self.assertLess(int(done), int(every) + 1)
            self.assertLess(float(rate), 0.1, "the drive gives no more")
        self.assertGreater(float(shown[-1][2]), 0)
        self.assertGreater(float(shown[-1][3]), 0)

    def test_figures_go_to_a_file(self):
        figures = self.path("stats.json")
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "4", "--stats", figures, "--json").json()
        with open(figures, encoding="utf-8") as file:
            written = json.load(file)
        for key in ("prefill_tok_s", "decode_tok_s", "hits", "misses", "bytes_read", "plan_total"):
            self.assertEqual(written[key], done[key])

    def test_the_end_line_shows_a_drawn_seed(self):
        first = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "12")
        seed = first.err.decode().split("seed ")[1].split()[0]
        self.assertEqual(self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "12", "--seed", seed).out, first.out)

    def test_a_state_alone_goes_on(self):
        options = ["--seed", "5"]
        whole = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "12", *options, "--json").json()["ids"]
        state = self.path("state")
        head = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "5", *options, "--save", state, "--json").json()["ids"]
        rest = self.succeeds("run", "-m", DEMO, "--load", state, "-n", "7", "--json").json()["ids"]
        self.assertEqual(head + rest, whole)

    def test_a_device_is_not_replaced_by_a_file(self):
        ids = self.write_ids("ids", [476, 4320])
        self.fails(1, "logits", "-m", DEMO, "--ids", ids, "--out", "/dev/null", names=["/dev/null"])
        self.assertFalse(os.path.isfile("/dev/null"))


class Dump(Case):
    def dump(self, model, ids, *options):
        folder = self.path("dump")
        shutil.rmtree(folder, ignore_errors=True)
        self.succeeds("logits", "-m", model, "--ids", ids, "--dump", folder, *options)
        content = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                content[name] = file.read()
        return content

    def test_intermediates_are_whole_arrays_however_they_are_fed(self):
        model = os.path.join(TINY, "q4e_sparse.gguf")
        ids = self.write_ids("ids", [(7 * i) % 200 for i in range(90)])
        whole = self.dump(model, ids)
        self.assertTrue({"0.in.npy", "1.idx_score.npy", "1.idx_chosen.npy", "0.expert_ids.npy", "final.npy"} <= set(whole))
        self.assertEqual(array(whole["final.npy"])[0], (90, 48))
        for way in (["--tile", "3"], ["--band", "16"], ["--window", "5"], ["--cut", "7"]):
            with self.subTest(way=way):
                other = self.dump(model, ids, *way)
                self.assertEqual(sorted(other), sorted(whole))
                self.assertEqual([name for name in whole if other[name] != whole[name]], [])
