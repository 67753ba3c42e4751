# SPDX-License-Identifier: Apache-2.0
"""What each command prints for the demo model."""

import json
import os
import random

from program import Case, DEMO, PROMPT, ROOT, TINY, VALID, smoke

DEMO_GOLDEN = os.path.join(ROOT, "tests", "data", "fixtures", "demo", "demo.json")


class Tokenize(Case):
    @smoke
    def test_text_comes_back_byte_for_byte(self):
        with open(VALID, "rb") as file:
            text = file.read(20000)
        ids = self.succeeds("tokenize", "-m", DEMO, stdin=text)
        self.assertIsInstance(ids.json(), list)
        self.assertEqual(self.succeeds("tokenize", "-m", DEMO, "--ids", stdin=ids.out).out, text)

    def test_any_text_comes_back(self):
        some = random.Random(1)
        letters = "".join(chr(some.choice((some.randrange(128), some.randrange(0x80, 0xd800), some.randrange(0x10000, 0x110000))))
                          for _ in range(3000))
        for text in (letters, "", "\0", "e\u0301 \u4f60\u597d \U0001f600\r\n\t ", " " * 300, "a" * 300):
            ids = self.succeeds("tokenize", "-m", DEMO, stdin=text.encode())
            self.assertEqual(self.succeeds("tokenize", "-m", DEMO, "--ids", stdin=ids.out).out.decode(), text)

    def test_bytes_that_are_no_text_become_replacement_characters(self):
        ids = self.succeeds("tokenize", "-m", DEMO, stdin=b"a\xffb\xc3")
        self.assertEqual(self.succeeds("tokenize", "-m", DEMO, "--ids", stdin=ids.out).out.decode(), "a\ufffdb\ufffd")

    def test_decimals_are_read_like_a_json_list(self):
        ids = self.ids(b"The wolf said to the")
        self.assertEqual(ids, [476, 4320, 370, 278, 260])
        plain = " \n".join(map(str, ids)).encode()
        self.assertEqual(self.succeeds("tokenize", "-m", DEMO, "--ids", stdin=plain).out, b"The wolf said to the")

    def test_special_tokens_by_mode(self):
        end = b"<|im_end|>"
        self.assertEqual(self.succeeds("tokenize", "-m", DEMO, "--special", stdin=end).json(), [8185])
        self.assertNotIn(8185, self.succeeds("tokenize", "-m", DEMO, stdin=end).json())
        self.assertNotIn(8185, self.succeeds("tokenize", "-m", DEMO, "--no-special", stdin=end).json())
        self.assertEqual(self.succeeds("tokenize", "-m", DEMO, "--ids", stdin=b"[8185]").out, end)

    def test_bad_ids_are_refused_by_value(self):
        for bad, name in [(b"[8192]", "8192"), (b"[-1]", "-1"), (b"12 dog", "dog"), (b"[1, 2", ""),
                          (b"99999999999999999999", "99999999999999999999"), (b"1.5", "1.5")]:
            with self.subTest(bad=bad):
                self.fails(1, "tokenize", "-m", DEMO, "--ids", stdin=bad, names=[name])


class Run(Case):
    @smoke
    def test_greedy_text_is_the_golden_one(self):
        with open(DEMO_GOLDEN, encoding="utf-8") as file:
            prompts = json.load(file)["prompts"]
        for name in ("wolf", "captain", "dorothy"):
            with self.subTest(prompt=name):
                golden = prompts[name]
                done = self.succeeds("run", "-m", DEMO, "-p", golden["text"], "-n", "32", "--temp", "0", "--json").json()
                self.assertEqual(done["ids"], golden["greedy"])
                self.assertEqual(done["prompt_tokens"], len(golden["tokens"]))
                self.assertEqual((done["tokens"], done["finish_reason"]), (32, "length"))

    @smoke
    def test_json_holds_the_promised_keys_and_nothing_else_is_printed(self):
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "8", "--seed", "3", "--arena", "20%", "--json").json()
        for key in ("text", "ids", "prompt_tokens", "tokens", "finish_reason", "seed", "prefill_tok_s", "decode_tok_s", "hits",
                    "drafted", "accepted", "misses", "ahead_useful", "ahead_late", "ahead_wasted", "ahead_cancelled", "bytes_read", "bytes_urgent",
                    "bytes_ahead", "drive_busy_gb_s", "wait_ms_per_token", "moce_displaced", "peak_rss", "plan_total",
                    "drive_busy_share", "row_cache_hits", "major_faults", "staging_empty", "prefill_ahead_share"):
            self.assertIn(key, done)
        for key in ("hits", "misses", "ahead_useful", "ahead_late", "ahead_wasted"):
            self.assertEqual(done[key], done["prefill_" + key] + done["decode_" + key], key)
        self.assertEqual(done["bytes_read"], done["prefill_read_bytes"] + done["decode_read_bytes"])
        self.assertGreater(done["prefill_misses"], 0)
        self.assertTrue(0 < done["drive_busy_share"] <= 1)
        self.assertEqual(done["seed"], 3)
        self.assertEqual(len(done["ids"]), done["tokens"])
        self.assertGreater(done["misses"], 0)
        self.assertGreater(done["bytes_read"], 0)

    def test_the_same_seed_gives_the_same_text(self):
        def text(seed, *options):
            return self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "24", "--seed", seed, *options).out

        plain = text(7)
        for options in (["-t", "1"], ["-t", "3"], ["--arena", "min"], ["--arena", "max"], ["--isa", "c"]):
            self.assertEqual(text(7, *options), plain, options)
        self.assertNotEqual(text(8), plain)

    def test_a_drawn_seed_is_shown_and_repeats_the_text(self):
        first = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "16", "--json").json()
        again = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "16", "--json", "--seed", first["seed"]).json()
        self.assertEqual(again["ids"], first["ids"])

    def test_text_from_file_stdin_and_ids(self):
        ids = self.ids(PROMPT.encode())
        options = ["-n", "8", "--temp", "0"]
        plain = self.succeeds("run", "-m", DEMO, "-p", PROMPT, *options).out
        file = self.write("prompt.txt", PROMPT.encode())
        self.assertEqual(self.succeeds("run", "-m", DEMO, "-f", file, *options).out, plain)
        self.assertEqual(self.succeeds("run", "-m", DEMO, "-", *options, stdin=PROMPT.encode()).out, plain)
        self.assertEqual(self.succeeds("run", "-m", DEMO, "--ids", self.write_ids("ids", ids), *options).out, plain)
        self.assertEqual(self.succeeds("run", "-m", DEMO, "--ids", "-", *options, stdin=json.dumps(ids).encode()
                                       .replace(b",", b" ").strip(b"[]")).out, plain)

    def test_a_stop_text_ends_the_answer_and_is_not_printed(self):
        plain = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "32", "--temp", "0").out.decode()
        word = plain.split()[4]
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "32", "--temp", "0", "--stop", word, "--json").json()
        self.assertEqual((done["text"], done["finish_reason"]), (plain[:plain.index(word)], "stop"))

    def test_n_0_reads_the_prompt_only(self):
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "0", "--json").json()
        self.assertEqual((done["text"], done["ids"], done["tokens"]), ("", [], 0))
        self.assertGreater(done["prompt_tokens"], 5)

    def test_a_saved_state_goes_on_as_if_nothing_had_happened(self):
        ids = self.ids(PROMPT.encode())
        whole = self.succeeds("run", "-m", DEMO, "--ids", self.write_ids("whole", ids), "-n", "12", "--temp", "0", "--json").json()
        state = self.path("state")
        self.succeeds("run", "-m", DEMO, "--ids", self.write_ids("head", ids[:6]), "-n", "0", "--save", state)
        self.assertEqual(os.stat(state).st_mode & 0o777, 0o600)
        rest = self.succeeds("run", "-m", DEMO, "--load", state, "--ids", self.write_ids("tail", ids[6:]), "-n", "12", "--temp", "0",
                             "--json").json()
        self.assertEqual(rest["ids"], whole["ids"])

    def test_a_damaged_or_foreign_state_is_refused(self):
        state = self.path("state")
        self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "0", "--save", state)
        with open(state, "rb") as file:
            good = file.read()
        for name, content in [("flipped", good[:40] + bytes([good[40] ^ 1]) + good[41:]), ("cut", good[:-1]), ("empty", b""),
                              ("data", good[:-20] + bytes([good[-20] ^ 4]) + good[-19:])]:
            with self.subTest(name=name):
                self.fails(1, "run", "-m", DEMO, "--load", self.write(name, content), "-p", "x", "-n", "1", names=[self.path(name)])
        tiny = os.path.join(TINY, "q4e_plain.gguf")
        self.fails(1, "run", "-m", tiny, "--load", state, "-p", "x", "-n", "1", names=[state])

    def test_a_prompt_longer_than_the_context_is_refused_before_work(self):
        with open(VALID, "rb") as file:
            prompt = self.write("long.txt", file.read(4000))
        self.fails(1, "run", "-m", DEMO, "-f", prompt, "-n", "1", "--ctx", "64", names=["64"])

    def test_an_answer_that_reaches_the_context_ends_with_length(self):
        ids = self.ids(PROMPT.encode())
        done = self.succeeds("run", "-m", DEMO, "-p", PROMPT, "--ctx", len(ids) + 5, "--seed", "1", "--json").json()
        self.assertEqual(done["finish_reason"], "length")
        self.assertLessEqual(done["tokens"], 6)

    def test_an_empty_prompt_is_refused(self):
        self.fails(1, "run", "-m", DEMO, "-p", "", "-n", "1")


class Render(Case):
    MESSAGES = b'[{"role": "user", "content": "Hello <|im_end|>"}]'

    @smoke
    def test_the_prompt_of_a_conversation(self):
        messages = self.write("messages.json", self.MESSAGES)
        done = self.succeeds("render", "-m", DEMO, "--chat-template", "qwen3", "--messages", messages)
        self.assertEqual(done.out, b"<|im_start|>user\nHello <|im_end|><|im_end|>\n<|im_start|>assistant\n")
        done = self.succeeds("render", "-m", DEMO, "--chat-template", "qwen3", "--messages", messages, "--no-generation-prompt")
        self.assertEqual(done.out, b"<|im_start|>user\nHello <|im_end|><|im_end|>\n")

    def test_bad_messages_are_refused(self):
        for name, content in [("not-json", b"[{"), ("not-a-list", b"{}"), ("bad-role", b'[{"role": "wizard", "content": "x"}]'),
                              ("empty", b"[]")]:
            with self.subTest(name=name):
                self.fails(1, "render", "-m", DEMO, "--chat-template", "qwen3", "--messages", self.write(name, content))


class Inspect(Case):
    @smoke
    def test_json_counts_what_the_file_holds(self):
        done = self.succeeds("inspect", DEMO, "--json").json()
        self.assertEqual((done["version"], done["files"], done["architecture"]), (3, 1, "qwen4exp"))
        self.assertEqual(done["bytes"], os.path.getsize(DEMO))
        self.assertNotIn("kv", done)
        self.assertNotIn("tensor_list", done)

    def test_keys_and_tensors_on_request(self):
        done = self.succeeds("inspect", "-m", DEMO, "--json", "--kv", "--tensors").json()
        self.assertEqual(done["kv"]["general.architecture"], "qwen4exp")
        self.assertEqual(len(done["tensor_list"]), done["tensors"])
        self.assertEqual(len(done["kv"]), done["keys"])
        for tensor in done["tensor_list"]:
            self.assertEqual(set(tensor), {"name", "type", "ne", "file", "offset", "bytes"})
            self.assertLessEqual(tensor["offset"] + tensor["bytes"], os.path.getsize(DEMO))

    def test_for_people_it_prints_text(self):
        text = self.succeeds("inspect", DEMO).out.decode()
        self.assertIn("qwen4exp", text)
        self.assertIn("token_embd.weight", self.succeeds("inspect", DEMO, "--tensors").out.decode())


class Plan(Case):
    PARTS = ("trunk", "session", "scratch", "io", "staging", "snapshots", "program", "arena")

    @smoke
    def test_the_total_is_the_sum_of_its_parts(self):
        for options in ([], ["--arena", "20%"], ["--arena", "min"], ["--arena", "max"], ["--ctx", "512"], ["--memory", "256M"],
                        ["--kv", "f32"], ["--band", "64"], ["-t", "3"]):
            with self.subTest(options=options):
                plan = self.succeeds("plan", DEMO, "--json", *options).json()
                self.assertEqual(sum(plan[part] for part in self.PARTS), plan["plan_total"])
                self.assertEqual(plan["experts"], 288)
                self.assertIn("points", plan)

    def test_sizes_are_kept(self):
        plan = self.succeeds("plan", DEMO, "--json", "--memory", "256M").json()
        self.assertLessEqual(plan["plan_total"], 256 << 20)
        small = self.succeeds("plan", DEMO, "--json", "--arena", "min").json()
        fifth = self.succeeds("plan", DEMO, "--json", "--arena", "20%").json()
        every = self.succeeds("plan", DEMO, "--json", "--arena", "max").json()
        self.assertLess(small["slots"], every["slots"])
        self.assertGreaterEqual(every["slots"], 288)
        # A fifth would be 58; what alignment takes is taken from the slots.
        self.assertTrue(40 <= fifth["slots"] <= 58, fifth["slots"])
        self.assertEqual(self.succeeds("plan", DEMO, "--json", "--ctx", "512").json()["ctx"], 512)

    def test_what_does_not_fit_is_refused_with_a_number(self):
        self.fails(1, "plan", DEMO, "--memory", "1M")
        self.fails(1, "plan", DEMO, "--arena", "1K")
        self.fails(1, "run", "-m", DEMO, "-p", "x", "--arena", "max", "--memory", "20M")
        self.fails(2, "plan", DEMO, "--ctx", "100000000", names=["100000000"])
