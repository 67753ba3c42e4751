# SPDX-License-Identifier: Apache-2.0
"""The conversation on a real terminal: line editing, its commands, Ctrl-C, long pastes, saving and loading."""

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from fcntl import ioctl

import program
from program import Case, DEMO, PATIENCE_S, call, environment, smoke

CONTROL = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|.)|[\r\x08]")
CTRL_C, CTRL_D = b"\x03", b"\x04"


class Terminal:
    """The program on a terminal of 24 lines by 80 columns."""

    def __init__(self, *arguments):
        master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.master = master
        # A session of its own, so that Ctrl-C on the terminal reaches the program.
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(
            [program.STRATA] + list(arguments), stdin=slave, stdout=slave, stderr=slave, env=environment(TERM="xterm"),
            start_new_session=True, preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.shown = b""

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def send(self, what):
        os.write(self.master, what)

    def read(self, seconds):
        """Takes what the terminal shows within this time; false when nothing came."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            self.shown += os.read(self.master, 65536)
        except OSError:  # the program has closed it
            return False
        return True

    def text(self):
        return CONTROL.sub(b"", self.shown).decode("utf-8", "replace")

    def wait_for(self, word):
        """Waits until this is shown, then forgets what was shown up to there."""
        ends = time.monotonic() + PATIENCE_S
        while word not in self.text():
            if time.monotonic() > ends or (not self.read(1) and self.process.poll() is not None):
                raise AssertionError("%r did not come; shown was %r" % (word, self.text()[-1500:]))
        before, _, after = self.text().partition(word)
        self.shown = after.encode()
        return before

    def command(self, line):
        self.send(line.encode() + b"\r")

    def ready(self):
        """Waits for the prompt of the next message; returns what was shown before it."""
        return self.wait_for("> ")

    def status(self):
        while self.process.poll() is None:
            self.read(0.1)
        return self.process.wait(timeout=PATIENCE_S)


class Chat(Case):
    def open(self, *options):
        terminal = Terminal("chat", "-m", DEMO, "--seed", "1", "-n", "12", *options)
        self.addCleanup(terminal.close)
        terminal.ready()
        return terminal

    @smoke
    def test_help_names_every_command(self):
        terminal = self.open()
        terminal.command("/help")
        terminal.wait_for("/help")  # the echo
        text = terminal.ready()
        for word in ("think", "reset", "save", "load", "stats", "system", "retry", "undo"):
            self.assertIn(word, text)
        terminal.send(CTRL_D)
        self.assertEqual(terminal.status(), 0)

    def test_messages_are_answered_and_commands_that_do_not_exist_named(self):
        terminal = self.open()
        terminal.command("Tell me a story.")
        terminal.wait_for("story.")
        self.assertNotEqual(terminal.ready().strip(), "")
        terminal.command("/dance")
        terminal.wait_for("/dance")
        self.assertIn("/dance", terminal.ready())
        terminal.command("/stats")
        terminal.wait_for("/stats")
        self.assertIn("hits" if "hits" in terminal.text() else "read", terminal.ready())
        terminal.command("/quit")
        self.assertEqual(terminal.status(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        terminal = Terminal("chat", "-m", DEMO, "--seed", "1", "--arena", "min", "--io", "sim:rate=50M")
        self.addCleanup(terminal.close)
        terminal.ready()
        for _ in range(3):
            terminal.command("Tell me a long story.")
            terminal.wait_for("story.")
            ends = time.monotonic() + PATIENCE_S
            while not terminal.text().strip() and time.monotonic() < ends:
                terminal.read(1)
            terminal.send(CTRL_C)
            terminal.ready()
        terminal.command("/help")
        terminal.wait_for("/help")
        self.assertIn("/reset", terminal.ready())
        terminal.send(CTRL_D)
        self.assertEqual(terminal.status(), 0)

    def test_a_saved_conversation_goes_on(self):
        state = self.path("talk")
        terminal = self.open("--temp", "0")
        terminal.command("Tell me a story.")
        terminal.ready()
        terminal.command("/save " + state)
        terminal.ready()
        terminal.command("And then?")
        terminal.wait_for("then?")
        wanted = terminal.ready()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.status(), 0)
        self.assertEqual(os.stat(state).st_mode & 0o777, 0o600)

        terminal = self.open("--temp", "0")
        terminal.command("/load " + state)
        terminal.ready()
        terminal.command("And then?")
        terminal.wait_for("then?")
        self.assertEqual(terminal.ready(), wanted)

    def test_undo_reset_and_retry(self):
        terminal = self.open("--temp", "0")
        terminal.command("Tell me a story.")
        terminal.wait_for("story.")
        first = terminal.ready()
        self.assertNotEqual(first.strip(), "")
        for line in ("/retry", "/undo", "/reset"):
            terminal.command(line)
            terminal.wait_for(line)
            terminal.ready()
        terminal.command("Tell me a story.")
        terminal.wait_for("story.")
        self.assertEqual(terminal.ready(), first)

    def test_a_paste_of_several_lines_is_one_message(self):
        terminal = self.open()
        terminal.send(b"\x1b[200~First line.\nSecond line.\x1b[201~\r")
        terminal.wait_for("Second line.")
        terminal.ready()
        state = self.path("talk")
        terminal.command("/save " + state)
        terminal.ready()
        with open(state, "rb") as file:
            self.assertIn(rb"First line.\nSecond line.", file.read())

    def test_without_a_terminal_each_line_is_a_message(self):
        done = self.succeeds("chat", "-m", DEMO, "--seed", "1", "-n", "5", stdin=b"Hello.\nAnd then?\n")
        self.assertNotEqual(done.out.strip(), b"")
        self.assertNotIn(b"\x1b", done.out + done.err)

    def test_a_bad_state_is_refused(self):
        path = self.write("bad", b"STRSES01" + bytes(200))
        done = call("chat", "-m", DEMO, "--load", path, stdin=b"Hello.\n")
        self.assertEqual(done.status, 1, done.err)
        self.assertIn(path.encode(), done.err)
