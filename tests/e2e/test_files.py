# SPDX-License-Identifier: Apache-2.0
"""Files that a run is asked to write: what cannot be written is said before the work, and no device is replaced."""

import json
import os
import resource
import stat
import subprocess

import program
from program import Case, DEMO


class Targets(Case):
    def test_a_pipe_or_device_is_not_replaced(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        for option in ("--save", "--stats"):
            with self.subTest(option=option):
                self.fails(1, "run", "-m", DEMO, "-p", "x", "-n", "1", option, pipe, names=["pipe", "not a regular file"])
                self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_a_folder_that_is_not_there_is_said_before_any_text(self):
        for option in ("--save", "--stats"):
            with self.subTest(option=option):
                self.fails(1, "run", "-m", DEMO, "-p", "x", "-n", "5", option, self.path("none/file"), names=["none/file"])
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_limit_of_file_sizes_is_an_error_and_leaves_the_old_file(self):
        state = self.write("state", b"old")
        run = program.start("run", "-m", DEMO, "-p", "x", "-n", "1", "--quiet", "--popularity", "off", "--save", state,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000)))
        _, err = run.communicate(timeout=program.PATIENCE_S)
        self.assertEqual(run.returncode, 1, err)
        self.assertIn(b"state: writing: File too large", err)
        with open(state, "rb") as file:
            self.assertEqual(file.read(), b"old")
        self.assertEqual(os.listdir(self.folder), ["state"])


class FullDisk(Case):
    """A disk of 200 KB: less than a state or a sidecar takes."""

    def setUp(self):
        super().setUp()
        self.disk = self.path("disk")
        os.mkdir(self.disk)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", self.disk], capture_output=True, check=False)
        if made.returncode:
            self.skipTest("the system does not let us mount a small disk")
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def on_disk(self, name, content=b"old"):
        path = os.path.join(self.disk, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def test_what_does_not_fit_is_refused_and_leaves_the_old_file(self):
        state = self.on_disk("state")
        run = ("run", "-m", DEMO, "-p", "x", "-n", "1", "--quiet", "--popularity", "off")
        done = program.call(*run, "--save", state)
        self.assertEqual(done.status, 1, done.err)
        self.assertRegex(done.err.decode(), r"state: \d+ bytes are needed, the disk has \d+ left")
        self.fails(1, "pack", DEMO, "-o", os.path.join(self.disk, "pack"), names=["bytes are needed, the disk has"])
        self.assertEqual(os.listdir(self.disk), ["state"])
        with open(state, "rb") as file:
            self.assertEqual(file.read(), b"old")

    def test_a_profile_that_cannot_be_written_is_no_error(self):
        profile = os.path.join(self.disk, "learned.strata-pop")
        run = ("run", "-m", DEMO, "-p", "x", "-n", "1", "--temp", "0", "--popularity", profile)
        self.succeeds(*run)
        with open(profile, "rb") as file:
            old = file.read()
        with open(os.path.join(self.disk, "rest"), "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        self.assertIn(b"the popularity profile is not written", self.succeeds(*run, "-v").err)
        self.assertEqual(sorted(os.listdir(self.disk)), ["learned.strata-pop", "rest"])
        with open(profile, "rb") as file:
            self.assertEqual(file.read(), old)

    def test_a_trace_that_cannot_be_written_is_an_error(self):
        self.on_disk("rest", bytes(190 << 10))
        done = program.call("run", "-m", DEMO, "-p", "x", "-n", "40", "--quiet", "--trace", os.path.join(self.disk, "run.trc"))
        self.assertEqual(done.status, 1)
        self.assertIn(b"run.trc: No space left on device", done.err)


class Closed(Case):
    """Standard descriptors that the caller closed are not taken for the files that are opened."""

    def shell(self, command):
        return subprocess.run(["sh", "-c", command, program.STRATA, DEMO, self.path("state")], capture_output=True, check=False,
                              env=program.environment(), timeout=program.PATIENCE_S)

    def test_closed_stdin_is_no_text(self):
        done = self.shell('exec "$0" run -m "$1" -n 1 - <&-')
        self.assertEqual((done.returncode, done.stdout), (1, b""), done.stderr)
        self.assertIn(b"stdin", done.stderr)

    def test_closed_stderr_writes_into_no_file(self):
        done = self.shell('exec "$0" run -m "$1" -p x -n 1 --temp 0 --save "$2" -v 2>&-')
        self.assertEqual(done.returncode, 0)
        self.succeeds("run", "-m", DEMO, "-n", "1", "-p", "y", "--load", self.path("state"))

    def test_closed_stdout_is_an_error(self):
        done = self.shell('exec "$0" run -m "$1" -p x -n 1 --temp 0 >&-')
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"stdout", done.stderr)


class EndLine(Case):
    def test_it_counts_the_tokens_of_the_answer(self):
        for n, words in ((1, "answer 1 token"), (3, "answer 3 tokens")):
            done = self.succeeds("run", "-m", DEMO, "-p", "x", "-n", n, "--temp", "0")
            self.assertIn(words, done.err.decode())

    def test_it_says_what_a_token_missed_and_what_routing_displaced(self):
        stats = self.path("stats.json")
        for more, is_bent in (((), False), (("--moce", "0.5"), True)):
            with self.subTest(more=more):
                done = self.succeeds("run", "-m", DEMO, "-p", "The old house", "-n", "12", "--temp", "0", "--arena", "20%",
                                     "--popularity", "off", "--stats", stats, *more)
                with open(stats, encoding="utf-8") as file:
                    said = json.load(file)
                a_token = said["misses"] / (said["prefill_tokens"] + said["decode_tokens"])
                self.assertIn("%d had to be read (%.1f a token)" % (said["misses"], a_token), done.err.decode())
                self.assertEqual("displaced probability %.4f" % said["moce_displaced"] in done.err.decode(), is_bent)

    def test_it_begins_a_line_where_it_follows_the_answer(self):
        run = ("run", "-m", DEMO, "-p", "x", "-n", "3", "--temp", "0")
        text = self.succeeds(*run).out
        self.assertFalse(text.endswith(b"\n"))
        for more, begin in (((), b"\nstrata: prompt "), (("--trace", "/dev/full"), b"\nstrata: /dev/full"), (("--quiet",), b"")):
            with self.subTest(more=more):
                both, _ = program.start(*run, *more, stderr=subprocess.STDOUT).communicate(timeout=program.PATIENCE_S)
                self.assertEqual(both[:len(text) + len(begin)], text + begin)

    def test_values_out_of_range_are_named_with_the_range(self):
        self.fails(2, "run", "-m", DEMO, "-p", "x", "--seed", "-1", names=["-1", "18446744073709551615"])
        self.fails(2, "run", "-m", DEMO, "-p", "x", "--stop", "", names=["--stop", "empty"])
