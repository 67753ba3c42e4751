# SPDX-License-Identifier: Apache-2.0
"""Files that are missing, cut or foreign; reads that fail on the way; Ctrl-C and closed pipes at any moment."""

import errno
import json
import os
import resource
import shutil
import signal
import time

from program import Case, DEMO, PATIENCE_S, PROMPT, TINY, VALID, gguf, interrupt, smoke, start


class Files(Case):
    @smoke
    def test_a_missing_file_is_named(self):
        for command in (["run", "-p", "x"], ["chat"], ["inspect"], ["plan"], ["tokenize"], ["logits", "--ids", "-", "--out",
                        self.path("out.npy")], ["render", "--messages", "/dev/null"]):
            with self.subTest(command=command):
                self.fails(1, command[0], "-m", self.path("absent.gguf"), *command[1:], names=[self.path("absent.gguf")])

    def test_a_folder_an_empty_file_and_text_are_no_model(self):
        for path in (self.folder, self.write("empty.gguf", b""), VALID):
            self.fails(1, "run", "-m", path, "-p", "x", names=[path])

    def test_a_cut_model_is_refused_before_work(self):
        with open(DEMO, "rb") as file:
            whole = file.read()
        for length in (3, 23, 1000, 200_000, 400_000, len(whole) // 2, len(whole) - 1):
            with self.subTest(length=length):
                path = self.write("cut.gguf", whole[:length])
                self.fails(1, "run", "-m", path, "-p", "x", "-n", "1", names=[path])

    @smoke
    def test_what_is_no_model_is_refused_by_its_type(self):
        for kind in ("mmproj", "adapter", "imatrix"):
            path = self.write(kind + ".gguf", gguf(general__architecture="qwen4exp", general__type=kind))
            for command in (["run", "-p", "x"], ["plan"]):
                self.fails(1, command[0], "-m", path, *command[1:], names=[path, kind])

    def test_an_unknown_architecture_is_named(self):
        path = self.write("other.gguf", gguf(general__architecture="perceptron", general__type="model"))
        self.fails(1, "run", "-m", path, "-p", "x", names=[path, "perceptron"])

    def test_a_model_without_its_tensors_is_refused(self):
        path = self.write("bare.gguf", gguf(general__architecture="qwen4exp", general__type="model"))
        self.fails(1, "run", "-m", path, "-p", "x", names=[path])

    def test_a_result_that_cannot_be_written_is_an_error(self):
        ids = self.write_ids("ids", [476, 4320])
        out = self.path("no/such/folder/out.npy")
        self.fails(1, "logits", "-m", DEMO, "--ids", ids, "--out", out, names=[out])
        self.fails(1, "run", "-m", DEMO, "-p", "x", "-n", "0", "--save", self.path("no/such/state"), names=[self.path("no/such/state")])

    def test_a_full_disk_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full here")
        with open("/dev/full", "wb") as full:
            process = start("run", "-m", DEMO, "-p", PROMPT, "-n", "4", stdout=full)
            _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(b"space", err)

    def test_ids_outside_the_vocabulary_are_refused(self):
        for content, name in ((b"8192", "8192"), (b"-1", "-1"), (b"1 two", "two"), (b"", "")):
            out = self.path("out.npy")
            self.fails(1, "logits", "-m", DEMO, "--ids", self.write("ids", content), "--out", out, names=[name])
            self.assertFalse(os.path.exists(out))

    def test_a_model_that_shrinks_while_it_is_read_ends_with_an_error(self):
        model = self.path("shrinks.gguf")
        shutil.copyfile(DEMO, model)
        process = start("run", "-m", model, "-p", PROMPT, "--arena", "min", "--temp", "0", "-n", "2000")
        self.addCleanup(process.kill)
        process.stdout.read(1)
        os.truncate(model, 1_000_000)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(model.encode(), err)


class Interrupts(Case):
    @smoke
    def test_ctrl_c_keeps_what_was_generated(self):
        process = start("run", "-m", DEMO, "-p", PROMPT, "--temp", "0", "--arena", "min", "--io", "sim:rate=50M")
        self.addCleanup(process.kill)
        first = process.stdout.read(1)
        interrupt(process)
        out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertNotEqual(first + out, b"")

    def test_ctrl_c_with_json_leaves_one_whole_object(self):
        for rate in ("8M", "1"):  # the answer takes minutes, or the first read hours
            with self.subTest(rate=rate):
                trace = self.path("begun-%s.trc" % rate)
                process = start("run", "-m", DEMO, "-p", PROMPT, "--temp", "0", "--json", "--arena", "min",
                                "--io", "sim:rate=" + rate, "--trace", trace)
                self.addCleanup(process.kill)
                until = time.monotonic() + PATIENCE_S
                while not os.path.exists(trace) and process.poll() is None and time.monotonic() < until:
                    time.sleep(0.01)
                interrupt(process)  # it has begun
                out, err = process.communicate(timeout=PATIENCE_S)
                self.assertEqual(process.returncode, 130, err)
                self.assertEqual(json.loads(out)["finish_reason"], "interrupted")

    def test_a_probe_that_finds_no_room_says_so(self):
        def no_more():  # the last write takes a part of what it is given
            resource.setrlimit(resource.RLIMIT_FSIZE, ((1 << 20) + 5, (1 << 20) + 5))
        process = start("probe", self.folder, preexec_fn=no_more)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(os.strerror(errno.EFBIG).encode(), err)
        self.assertEqual(os.listdir(self.folder), [])

    def test_ctrl_c_ends_a_probe_that_would_take_hours(self):
        process = start("probe", DEMO, "--io", "sim:rate=1")
        self.addCleanup(process.kill)
        time.sleep(0.3)
        interrupt(process)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertIn(process.returncode, (130, -signal.SIGINT), err)

    def test_ctrl_c_at_any_moment_ends_it(self):
        with open(VALID, "rb") as file:
            prompt = self.write("long.txt", file.read(6000))
        for delay_ms in (0, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280):
            with self.subTest(delay_ms=delay_ms):
                process = start("run", "-m", DEMO, "-f", prompt, "-n", "2000", "--arena", "min")
                self.addCleanup(process.kill)
                time.sleep(delay_ms / 1000)
                interrupt(process)
                _, err = process.communicate(timeout=PATIENCE_S)
                # Before the program listens, the signal ends it as it ends any program. A lost one would give 0.
                self.assertIn(process.returncode, (130, -signal.SIGINT), err)

    def test_ctrl_c_leaves_no_half_written_file(self):
        ids = self.write_ids("ids", self.ids(PROMPT.encode()) * 40)
        out = self.path("out.npy")
        process = start("logits", "-m", DEMO, "--ids", ids, "--out", out, "--window", "1")
        self.addCleanup(process.kill)
        time.sleep(0.3)
        interrupt(process)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertIn(process.returncode, (0, 130, -signal.SIGINT), err)
        if process.returncode == 130:
            self.assertEqual([name for name in os.listdir(self.folder) if name != "ids"], [])

    @smoke
    def test_a_closed_pipe_ends_quietly(self):
        process = start("run", "-m", DEMO, "-p", PROMPT, "-n", "2000", "--temp", "0")
        self.addCleanup(process.kill)
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=PATIENCE_S)
        self.assertIn(process.returncode, (0, -signal.SIGPIPE, 128 + signal.SIGPIPE), err)
        self.assertNotIn(b"rror", err)
        self.assertNotIn(b"roken", err)

    def test_a_listing_into_a_closed_pipe_ends_quietly(self):
        process = start("inspect", DEMO, "--tensors", "--kv", "--json")
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=PATIENCE_S)
        self.assertNotIn(b"rror", err)

    def test_the_next_call_after_a_failure_works(self):
        # Nothing of a failed call stays behind that the next one trips over.
        self.fails(1, "run", "-m", DEMO, "-p", "x", "--arena", "1K")
        self.succeeds("run", "-m", os.path.join(TINY, "q4e_plain.gguf"), "--ids", "-", "-n", "1", stdin=b"1 2 3")
