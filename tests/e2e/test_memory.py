# SPDX-License-Identifier: Apache-2.0
"""The plan is a contract: peak memory stays under it, also where the system enforces it; hostile files cost little."""

import os
import resource
import struct
import subprocess
import time

import program
from program import Case, DEMO, Done, PATIENCE_S, ROOT, VALID, environment, gguf, start

HOSTILE = os.path.join(ROOT, "tests", "data", "cases", "gguf-hostile")
CGROUP = "/sys/fs/cgroup"


class Limit:
    """A control group with a memory limit, version 2 or 1. `folder` is None where the system does not let us make one."""

    def __init__(self, limit_bytes):
        self.folder = None
        try:
            if os.path.exists(CGROUP + "/cgroup.controllers"):
                self.make(CGROUP, {"memory.max": limit_bytes, "memory.swap.max": 0})
            elif os.path.exists(CGROUP + "/memory/cgroup.procs"):
                self.make(CGROUP + "/memory", {"memory.limit_in_bytes": limit_bytes})
        except OSError:
            self.remove()

    def make(self, parent, settings):
        if os.path.exists(parent + "/cgroup.subtree_control"):
            self.put(parent + "/cgroup.subtree_control", "+memory")
        folder = "%s/strata-e2e-%d" % (parent, os.getpid())
        os.mkdir(folder)
        self.folder = folder
        for name, value in settings.items():
            if name != "memory.swap.max" or os.path.exists(folder + "/" + name):
                self.put(folder + "/" + name, value)

    @staticmethod
    def put(path, value):
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))

    def remove(self):
        if self.folder:
            os.rmdir(self.folder)
            self.folder = None

    def run(self, arguments):
        """Runs the program inside; the shell goes in first, so that all of it counts."""
        return subprocess.run(["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.folder, program.STRATA] + arguments,
                              stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=PATIENCE_S, check=False)


def peak_anonymous_bytes(arguments):
    """Runs the program and watches how much memory that is no file's it has; returns the peak seen and how it ended."""
    process = start(*arguments)
    peak = 0
    while process.poll() is None:
        try:
            with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file if ":" in line)
            peak = max(peak, sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem") if name in fields))
        except OSError:
            pass
        time.sleep(0.002)
    out, err = process.communicate()
    return peak, Done(process.returncode, out, err)


class PlanHolds(Case):
    def ways(self):
        """Options that change memory, with a prompt of 900 tokens and an answer. The model is about 5 to 10 times the arena."""
        with open(VALID, "rb") as file:
            ids = self.ids(file.read(8000))[:900]
        rest = ["--ids", self.write_ids("ids", ids), "-n", "40", "--temp", "0"]
        for options in (["--arena", "min"], ["--arena", "20%"], ["--arena", "20%", "--kv", "f32", "--band", "256"],
                        ["--arena", "min", "-t", "3", "--tile", "16"], ["--memory", "80M"], ["--arena", "50%", "--exact-activations"]):
            plan = self.succeeds("plan", DEMO, "--json", *options).json()
            yield options, ["run", "-m", DEMO] + options + rest, plan["plan_total"]

    def test_memory_seen_stays_under_the_plan(self):
        for options, arguments, total in self.ways():
            with self.subTest(options=options):
                peak, done = peak_anonymous_bytes(arguments + ["--json"])
                self.assertEqual(done.status, 0, done.err)
                self.assertGreater(peak, 1 << 20)
                self.assertLessEqual(peak, total * 1.05)
                self.assertEqual(done.json()["plan_total"], total)

    def test_measuring_what_memory_gives_stays_under_the_plan(self):
        for words in (["bench", "-p", "16", "-n", "4", "-r", "1"], ["run", "-p", "x", "-n", "4", "--profile"]):
            with self.subTest(command=words[0]):
                peak, done = peak_anonymous_bytes([words[0], "-m", DEMO, "--arena", "min", "-t", "4", "--json"] + words[1:])
                self.assertEqual(done.status, 0, done.err)
                said = done.json()
                self.assertLessEqual(peak, said["plan_total"] * 1.05)
                self.assertGreater(said.get("profile", said)["memory_gb_s"], 0)

    def test_it_runs_under_an_enforced_limit_of_plan_plus_5_percent(self):
        for options, arguments, total in self.ways():
            with self.subTest(options=options):
                limit = Limit(int(total * 1.05))
                if limit.folder is None:
                    self.skipTest("the system does not let us make a control group with a memory limit")
                self.addCleanup(limit.remove)
                done = limit.run(arguments)
                limit.remove()
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout, self.succeeds(*arguments).out)


def restrain():
    """One second of processor time, 64 MB of memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
    resource.setrlimit(resource.RLIMIT_DATA, (64_000_000, 64_000_000))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class HostileFiles(Case):
    def refused(self, path, *names):
        for command in (["inspect"], ["run", "-p", "x"]):
            with self.subTest(file=os.path.relpath(path, HOSTILE), command=command[0]):
                process = start(command[0], "-m", path, *command[1:], preexec_fn=restrain)
                out, err = process.communicate(timeout=PATIENCE_S)
                text = err.decode("utf-8", "replace")
                self.assertEqual((process.returncode, out), (1, b""), text)
                self.assertEqual(len(text.strip().splitlines()), 1, text)
                for name in names:
                    self.assertIn(name, text)

    def test_each_is_refused_within_a_second_and_64_mb(self):
        with open(os.path.join(HOSTILE, "cases.tsv"), encoding="utf-8") as file:
            columns = file.readline().rstrip("\n").split("\t")
            rows = [dict(zip(columns, line.rstrip("\n").split("\t"))) for line in file]
        self.assertGreater(len(rows), 150)
        for row in rows:
            self.refused(os.path.join(HOSTILE, row["file"]), *row["message_names"].split("|"))

    def test_a_key_of_65536_bytes(self):
        self.refused(self.write("key.gguf", gguf(**{"k" * 65536: "x"})), "65536")

    def test_arrays_nested_100000_deep(self):
        key = struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9)
        nest = struct.pack("<IQ", 9, 1) * 100_000 + struct.pack("<IQ", 4, 0)
        self.refused(self.write("nest.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + nest), "a")

    def test_a_string_of_5_gib_that_the_file_really_has(self):
        path = self.write("string.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 3) + b"t.s"
                          + struct.pack("<IQ", 8, 5 << 30))
        try:
            os.truncate(path, (5 << 30) + 4096)
        except OSError:
            self.skipTest("this file system has no sparse file of 5 GiB")
        # It may be loaded or refused; a model it is not, for want of an architecture.
        process = start("inspect", path, preexec_fn=restrain, stdout=subprocess.DEVNULL)
        process.communicate(timeout=PATIENCE_S)
        self.assertIn(process.returncode, (0, 1))
        process = start("run", "-m", path, "-p", "x", preexec_fn=restrain)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 1, err)
