# SPDX-License-Identifier: Apache-2.0
"""Conversations: turns and commands through a pipe, and the line editor on a terminal."""

import json
import os

from program import Case, call, DEMO, PROMPT, smoke
from cli.screen import Screen

CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"
SHORT = ["-n", "6", "--temp", "0"]


def lines(*words):
    return "".join(word + "\n" for word in words).encode()


class Turns(Case):
    def chat(self, *words, options=tuple(SHORT), status=0):
        done = call("chat", "-m", DEMO, *options, stdin=lines(*words))
        self.assertEqual(done.status, status, done.err)
        return done

    def messages(self, state):
        """The conversation in a saved state."""
        with open(state, "rb") as file:
            content = file.read()
        start = content.index(b'[{"role"')
        return json.JSONDecoder().raw_decode(content[start:].decode("utf-8", "replace"))[0]

    @smoke
    def test_every_line_is_a_turn_and_answers_depend_on_what_was_said(self):
        one = self.chat("Hello there.").out
        two = self.chat("Hello there.", "And then?").out
        self.assertNotEqual(one, b"")
        self.assertTrue(two.startswith(one))
        self.assertNotEqual(two[len(one):], self.chat("And then?").out)

    def test_the_prompt_is_the_rendered_conversation(self):
        answer = self.chat("Hello there.", options=["-n", "6", "--temp", "0", "--system", "Be kind."]).out.decode()
        messages = self.write("m.json", json.dumps([{"role": "system", "content": "Be kind."},
                                                    {"role": "user", "content": "Hello there."}]).encode())
        prompt = self.succeeds("render", "-m", DEMO, "--messages", messages).out
        ids = self.succeeds("tokenize", "-m", DEMO, "--special", stdin=prompt).json()
        run = self.succeeds("run", "-m", DEMO, "--ids", self.write_ids("ids", ids), *SHORT).out.decode()
        self.assertEqual(answer, run + "\n")

    def test_only_what_is_new_is_read(self):
        figures = self.path("stats")
        self.chat("Tell me a long story of a king.", "And then?", "And then?", options=SHORT + ["--stats", figures])
        with open(figures, encoding="utf-8") as file:
            prefill = json.load(file)["prefill_tokens"]
        messages = self.write("m.json", b'[{"role": "user", "content": "Tell me a long story of a king."},'
                              b'{"role": "user", "content": "And then?"}, {"role": "user", "content": "And then?"}]')
        prompt = self.succeeds("render", "-m", DEMO, "--messages", messages).out
        whole = len(self.succeeds("tokenize", "-m", DEMO, "--special", stdin=prompt).json())
        self.assertLess(prefill, whole * 2)

    def test_retry_reads_only_the_beginning_of_the_answer_again(self):
        def prefill(*words):
            self.chat(*words, options=["-n", "6", "--seed", "1", "--stats", self.path("stats")])
            with open(self.path("stats"), encoding="utf-8") as file:
                return json.load(file)["prefill_tokens"]
        message = "Tell me a long story of a king who had three daughters and a horse."
        self.assertLess(prefill(message, "/retry") - prefill(message), 8)

    def test_several_lines_become_one_message(self):
        state = self.path("state")
        self.chat("one\\", "two", '"""', "three", "", "four", '"""', "/save " + state)
        users = [m["content"] for m in self.messages(state) if m["role"] == "user"]
        self.assertEqual(users, ["one\ntwo", "three\n\nfour"])
        self.assertEqual(os.stat(state).st_mode & 0o777, 0o600)

    def test_undo_reset_and_system_change_the_conversation(self):
        state = self.path("state")
        self.chat("first", "second", "/undo", "/system Be brief.", "third", "/save " + state)
        self.assertEqual([(m["role"], m["content"]) for m in self.messages(state) if m["role"] != "assistant"],
                         [("system", "Be brief."), ("user", "first"), ("user", "third")])
        self.chat("first", "/reset", "second", "/save " + state, options=SHORT + ["--system", "Be brief."])
        self.assertEqual([(m["role"], m["content"]) for m in self.messages(state) if m["role"] != "assistant"],
                         [("system", "Be brief."), ("user", "second")])

    def test_undo_leaves_no_trace_in_the_next_answer(self):
        plain = self.chat("first", "third").out
        detour = self.chat("first", "second", "/undo", "third").out
        first = self.chat("first").out
        self.assertTrue(detour.endswith(plain[len(first):]))

    def test_a_saved_conversation_goes_on(self):
        state = self.path("state")
        whole = self.chat("Hello there.", "And then?").out
        head = self.chat("Hello there.", "/save " + state).out
        self.assertEqual(head + self.chat("And then?", options=SHORT + ["--load", state]).out, whole)
        self.assertEqual(head + self.chat("/load " + state, "And then?").out, whole)

    def test_a_state_without_a_conversation_is_refused(self):
        state = self.path("state")
        self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "0", "--save", state)
        self.fails(1, "chat", "-m", DEMO, "--load", state, names=[state])

    def test_what_is_wrong_is_said_and_the_next_line_works(self):
        for bad, name in [("/frobnicate", "/frobnicate"), ("/think maybe", "maybe"), ("/load /no/such/file", "/no/such/file"),
                          ("/save", "FILE"), ("/undo", "undo"), ("/retry", "retry"), ("/stats now", "now")]:
            with self.subTest(bad=bad):
                done = self.chat(bad, "Hello there.", status=1)
                self.assertIn(name.encode(), done.err)
                self.assertNotEqual(done.out, b"")

    def test_a_path_or_a_blank_before_the_slash_makes_a_message(self):
        for text in ("/etc/passwd is a file", " /quit"):
            self.assertNotEqual(self.chat(text).out, b"", text)

    def test_a_full_context_is_said_and_nothing_is_dropped(self):
        done = self.chat("word " * 200, "Hello there.", options=SHORT + ["--ctx", "128"], status=1)
        self.assertIn(b"128", done.err)
        self.assertIn(b"/reset", done.err)
        self.assertNotEqual(done.out, b"")
        near = self.chat("Hello there.", options=["--temp", "0", "--ctx", "32", "-n", "2"])
        self.assertIn(b"nearly full", near.err)

    def test_reasoning_is_kept_apart(self):
        state = self.path("state")
        out = self.chat("Hello there.", "/save " + state, options=SHORT + ["--chat-template", "qwen3.8"]).out
        self.assertTrue(out.startswith(b"<think>\n"))
        self.assertIn("reasoning_content", self.messages(state)[1])
        self.assertFalse(self.chat("Hello there.", options=SHORT + ["--chat-template", "qwen3.8", "--think", "off"])
                         .out.startswith(b"<think>"))

    def test_help_names_every_command(self):
        err = self.chat("/help").err
        for word in (b"/help", b"/think", b"/system", b"/retry", b"/undo", b"/reset", b"/save", b"/load", b"/stats", b"/quit"):
            self.assertIn(word, err)


class Terminal(Case):
    def start(self, *options):
        screen = Screen("chat", "-m", DEMO, *options)
        self.addCleanup(screen.kill)
        screen.wait_for_editor()
        return screen

    @smoke
    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        screen = self.start("--temp", "0", "-n", "2000")
        screen.type(b"Tell me a story.\r")
        screen.wait_for(b"\r\n")
        screen.read(1)
        screen.type(CTRL_C)
        screen.wait_for(b"stopped")
        screen.wait_for_editor()
        screen.type(b"/quit\r")
        self.assertEqual(screen.end(), 0)

    def test_ctrl_c_clears_the_line_and_a_second_one_leaves(self):
        screen = self.start()
        screen.type(b"abc")
        screen.wait_for(b"abc")
        screen.type(CTRL_C)
        screen.wait_for_editor()
        screen.type(CTRL_C)
        self.assertEqual(screen.end(), 130)

    def test_one_ctrl_c_at_an_empty_line_only_says_how_to_leave(self):
        screen = self.start()
        screen.type(CTRL_C)
        screen.wait_for(b"leaves")
        screen.wait_for_editor()
        screen.type(CTRL_D)
        self.assertEqual(screen.end(), 0)

    def test_lines_are_edited_and_remembered(self):
        state = self.path("state")
        screen = self.start(*SHORT)
        screen.type("hellö\x7fo\r".encode())
        screen.wait_for_editor()
        screen.type(UP + b"!\r")
        screen.wait_for_editor()
        screen.type(b"/save " + state.encode() + b"\r")
        screen.wait_for(b"saved")
        screen.wait_for_editor()
        screen.type(CTRL_D)
        self.assertEqual(screen.end(), 0)
        self.assertEqual([m["content"] for m in Turns.messages(self, state) if m["role"] == "user"], ["hello", "hello!"])

    def test_a_paste_of_several_lines_is_one_message(self):
        state = self.path("state")
        pastes = [b"one\r\ttwo\r\rthree\r", b"".join(b"line %d of a long paste\r" % i for i in range(60))]
        screen = self.start("--ctx", "2048", *SHORT)
        for paste in pastes:
            screen.type(b"\x1b[200~" + paste + b"\x1b[201~")
            screen.type(b" end\r")
            screen.wait_for_editor()
        screen.type(b"/save " + state.encode() + b"\r")
        screen.wait_for(b"saved")
        screen.wait_for_editor()
        screen.type(CTRL_D)
        self.assertEqual(screen.end(), 0)
        users = [m["content"] for m in Turns.messages(self, state) if m["role"] == "user"]
        self.assertEqual(users, ["one\n\ttwo\n\nthree end",
                                 "\n".join("line %d of a long paste" % i for i in range(60)) + " end"])

    def test_thinking_is_dim(self):
        screen = self.start("--chat-template", "qwen3.8", *SHORT)
        screen.type(b"Hello there.\r")
        screen.wait_for(b"\x1b[2m")
        screen.wait_for(b"\x1b[22m")
        screen.wait_for_editor()
        screen.type(CTRL_D)
        self.assertEqual(screen.end(), 0)
