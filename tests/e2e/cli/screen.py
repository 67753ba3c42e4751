# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests: the program runs on a pty, and what it writes is collected."""

import os
import pty
import select
import signal
import termios
import time
import unittest

import program


class Screen:
    """The program on a terminal of its own."""

    def __init__(self, *arguments):
        try:
            self.pid, self.fd = pty.fork()
        except OSError as error:
            raise unittest.SkipTest("the system has no terminals to give: %s" % error) from error
        if self.pid == 0:
            env = program.environment(TERM="xterm")
            os.execve(program.STRATA, [program.STRATA] + [str(word) for word in arguments], env)
        self.text = b""
        self.seen = 0
        self.status = None

    def read(self, seconds):
        """Takes what comes within this time; False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            more = os.read(self.fd, 65536)
        except OSError:
            more = b""
        self.text += more
        return bool(more)

    def wait_for(self, word):
        """Waits for a word behind those that were waited for before; returns what came until then."""
        until = time.monotonic() + program.PATIENCE_S
        while word not in self.text[self.seen:]:
            if time.monotonic() > until or not self.read(1):
                raise AssertionError("%r did not come: %r" % (word, self.text[self.seen:]))
        end = self.text.index(word, self.seen) + len(word)
        new = self.text[self.seen:end]
        self.seen = end
        return new

    def wait_for_editor(self):
        """Waits for a prompt and for the editor behind it: before, the terminal itself would edit what is typed."""
        self.wait_for(b"> ")
        until = time.monotonic() + program.PATIENCE_S
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            if time.monotonic() > until:
                raise AssertionError("the line editor did not start")
            self.read(0.01)

    def type(self, keys):
        os.write(self.fd, keys)

    def end(self):
        """Waits for the end of the program; returns its status."""
        if self.status is None:
            until = time.monotonic() + program.PATIENCE_S
            while self.read(1):
                if time.monotonic() > until:
                    os.kill(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    self.status = -signal.SIGKILL
                    raise AssertionError("the program did not end: %r" % self.text[self.seen:])
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.fd)
        return self.status

    def kill(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.end()
