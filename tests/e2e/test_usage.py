# SPDX-License-Identifier: Apache-2.0
"""Exit statuses, help and version: what scripts rely on before any model is opened."""

import os

from program import Case, DEMO, PROMPT, TINY, call, smoke

COMMANDS = ["run", "chat", "inspect", "plan", "tokenize", "logits", "render"]


class Usage(Case):
    @smoke
    def test_help_is_there_for_every_command_and_fits_a_terminal(self):
        for command in [[]] + [[name] for name in COMMANDS]:
            with self.subTest(command=command):
                done = self.succeeds(*command, "--help")
                self.assertEqual(done.err, b"")
                for line in done.out.decode().splitlines():
                    self.assertLessEqual(len(line), 80, line)

    def test_the_first_help_page_fits_24_lines_and_names_every_command(self):
        text = self.succeeds("--help").out.decode()
        self.assertLessEqual(len(text.splitlines()), 24)
        for command in COMMANDS:
            self.assertIn(command, text)

    def test_without_arguments_it_says_how_it_is_used(self):
        self.fails(2)

    @smoke
    def test_version_says_what_decides_the_bits(self):
        text = self.succeeds("--version").out.decode()
        for word in ("strata ", "kernels", "numerics"):
            self.assertIn(word, text)

    def test_wrong_usage_is_status_2_and_names_the_word(self):
        for arguments, name in [
                (["frobnicate"], "frobnicate"),
                (["--frobnicate"], "--frobnicate"),
                (["run", "-p", "x"], "-m"),
                (["run", "-m", DEMO, "--frobnicate"], "--frobnicate"),
                (["run", "-m", DEMO, "-p", "x", "-n"], "-n"),
                (["run", "-m", DEMO, "-p", "x", "-n", "many"], "many"),
                (["run", "-m", DEMO, "-p", "x", "-n", "-3"], "-3"),
                (["run", "-m", DEMO, "-p", "x", "-n", "99999999999999999999"], "99999999999999999999"),
                (["run", "-m", DEMO, "-p", "x", "--temp", "warm"], "warm"),
                (["run", "-m", DEMO, "-p", "x", "--temp", "nan"], "nan"),
                (["run", "-m", DEMO, "-p", "x", "--top-p", "2"], "2"),
                (["run", "-m", DEMO, "-p", "x", "--arena", "5X"], "5X"),
                (["run", "-m", DEMO, "-p", "x", "--arena", "-1G"], "-1G"),
                (["run", "-m", DEMO, "-p", "x", "--memory", "9999999999T"], "9999999999T"),
                (["run", "-m", DEMO, "-p", "x", "--memory", "0"], "0 is not a size"),
                (["run", "-m", DEMO, "-p", "x", "--ctx", "16777217"], "16777216"),
                (["run", "-m", DEMO, "-p", "x", "--band", "1048577"], "1048576"),
                (["run", "-m", DEMO, "-p", "x", "--kv", "f8"], "f8"),
                (["run", "-m", DEMO, "-p", "x", "--isa", "sse9"], "sse9"),
                (["run", "-m", DEMO, "-p", "x", "-t", "0"], "0"),
                (["run", "-m", DEMO, "-p", "x", "-f", "y"], "-f"),
                (["run", "-m", DEMO, "-p", "x", "--moce", "11"], '--moce: "11"'),
                (["run", "-m", DEMO, "-p", "x", "--io", "fast"], '--io: "fast"'),
                (["run", "-m", DEMO, "-p", "x", "--io", "sim:rate=0"], '--io: sim knows rate=SIZE'),
                (["run", "-m", DEMO, "-p", "x", "--io", "uring:3"], "--io: uring takes no settings"),
                (["plan", DEMO, "--read-ahead", "65"], '--read-ahead: "65"'),
                (["run", "-m", DEMO, "-p", "x", "--chat", "--effort", "most"], "--effort: most"),
                (["chat", "-m", DEMO, "--chat-template", "plain"], "--chat-template plain"),
                (["synth", "x.gguf", "--mix", "q3"], "--mix q3"),
                (["bench", "-m", DEMO, "--depth", "x"], "--depth x"),
                (["bench", "-m", DEMO, "-p", "0", "-n", "0"], "nothing to time"),
                (["run", "-m", DEMO, "-p", "x", "--io-urgent", "8"], "--io-urgent 8: it must be less than --io-depth, which is 8"),
                (["plan", DEMO, "--io-depth", "4", "--io-urgent", "5"], "which is 4"),
                (["logits", "-m", DEMO, "--out", "x.npy"], "--ids"),
                (["logits", "-m", DEMO, "--ids", "-", "--out", "x.npy", "--window", "9"], "9"),
                (["tokenize", "-m", DEMO, "--special", "--no-special"], "--no-special"),
                (["render", "-m", DEMO], "--messages")]:
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, names=[name])

    def test_options_that_change_nothing_are_noted(self):
        run, messages = ("run", "-m", DEMO, "-p", "x", "-n", "1"), self.write("chat.json", b'[{"role": "user", "content": "x"}]')
        for arguments, words in [
                (run + ("--moce-keep", "2", "--prompt-moce"), ["--moce-keep has no effect without --moce", "--prompt-moce has"]),
                (run + ("--effort", "low"), ["--effort has no effect without --chat"]),
                (run + ("--chat-template", "qwen3"), ["--chat-template has no effect without --chat"]),
                (run + ("--think", "off"), ["--think has no effect without --chat"]),
                (run + ("--draft-rows", "3", "--draft", "off"), ["--draft-rows has no effect beside --draft off"]),
                (run + ("--draft-rows", "3", "--window", "2"), ["--draft-rows 3: --window 2"]),
                (run + ("--draft-rows", "3", "--draft", "lookup", "--moce", "auto:0.1"),
                 ["--draft-rows has no effect beside --moce", "--draft has no effect beside --moce"]),
                (run + ("--ahead-margin", "0.1", "--read-ahead", "off"), ["--ahead-margin has no effect beside --read-ahead off"]),
                (("bench", "-m", DEMO, "-p", "4", "-n", "1", "-r", "1", "--draft", "lookup", "--draft-rows", "3"),
                 ["--draft has no effect on speed: `strata bench` makes no guesses", "--draft-rows has"]),
                (("synth", self.path("x.gguf"), "--dry-run", "--mtp-right", "0.5"), ["--mtp-right has no effect without --mtp"]),
                (("render", "-m", DEMO, "--messages", messages, "--effort", "low"), ["--effort low has no effect"])]:
            with self.subTest(arguments=arguments):
                text = self.succeeds(*arguments).err.decode()
                for word in words:
                    self.assertIn(word, text)
        for arguments in (run + ("--moce", "0.1", "--moce-keep", "2"), run + ("--moce", "0", "--draft-rows", "3"), run + ("--chat", "--think", "off"),
                          ("render", "-m", DEMO, "--messages", messages, "--effort", "low", "--chat-template", "qwen3.8")):
            with self.subTest(arguments=arguments):
                self.assertNotIn(b"no effect", self.succeeds(*arguments).err)

    def test_a_draft_layer_of_another_model_is_refused_unless_no_guesses_are_wanted(self):
        run = ("run", "-m", DEMO, "-p", "x", "-n", "1")
        for file, names in ((DEMO, ["no draft layer"]), ("missing.gguf", ["missing.gguf"]),
                            (os.path.join(TINY, "q35_plain.gguf"), ["q35_plain.gguf", "qwen35moe", "qwen4exp"]),
                            (os.path.join(TINY, "q4e_fused.gguf"), ["q4e_fused.gguf", "4 layers", "12"])):
            with self.subTest(file=file):
                self.fails(1, *run, "--draft-model", file, names=names)
                self.succeeds(*run, "--draft-model", file, "--draft", "off")

    def test_no_model_is_written_over(self):
        with open(os.path.join(TINY, "q4e_ngram.gguf"), "rb") as file:
            content = file.read()
        model = self.write("model.gguf", content)
        ids = self.write("ids.txt", b"1 2 3")
        for arguments in (["run", "-m", model, "-p", "x", "-n", "1", "--trace", model], ["run", "-m", model, "-p", "x", "-n", "1", "--save", model],
                          ["run", "-m", DEMO, "-p", "x", "-n", "1", "--stats", model], ["pack", model, "-o", model],
                          ["logits", "-m", model, "--ids", ids, "--out", model], ["bench", "-m", model, "-p", "1", "-n", "1", "--trace", model]):
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, names=["--output" if "-o" in arguments else arguments[-2], model, "not written over"])
                with open(model, "rb") as file:
                    self.assertEqual(file.read(), content)

    def test_one_is_not_said_as_many(self):
        self.assertIn(b"one window of 1 row may need", self.fails(1, "run", "-m", DEMO, "-p", "x", "--arena", "1", "--window", "1").err)
        self.assertIn(b"     1 token  ", self.succeeds("bench", "-m", DEMO, "-p", "1", "-n", "0", "-r", "1").out)

    def test_quiet_leaves_only_the_answer(self):
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "3", "--seed", "1", "--quiet")
        self.assertEqual(done.err, b"")
        self.assertNotEqual(done.out, b"")

    def test_without_a_terminal_stderr_holds_one_line_at_the_end(self):
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "3", "--seed", "1")
        text = done.err.decode()
        self.assertEqual(len(text.splitlines()), 1, text)
        self.assertNotIn("\r", text)
        self.assertNotIn("\x1b", text)
        self.assertFalse(done.out.endswith(b"\n"))

    def test_an_isa_that_the_machine_lacks_is_refused_with_those_it_has(self):
        done = call("run", "-m", DEMO, "-p", "x", "-n", "1", "--isa", "neon")
        text = done.err.decode()
        if done.status == 0:
            self.skipTest("this machine has NEON")
        self.assertEqual(done.status, 1, text)
        self.assertIn("neon", text)
        self.assertIn("c", text.split("neon", 1)[1])
