# SPDX-License-Identifier: Apache-2.0
"""How many threads are taken without -t: what affinity mask and container leave."""

import os
import re
import shutil
import subprocess

import program
from program import Case, DEMO, PATIENCE_S, environment, smoke

CGROUP = "/sys/fs/cgroup"


class Quota:
    """A control group that may use the time of one CPU, version 2 or 1. `folder` is None where the system lets us make none."""

    def __init__(self):
        self.folder = None
        try:
            if os.path.exists(CGROUP + "/cgroup.controllers"):
                self.put(CGROUP + "/cgroup.subtree_control", "+cpu")
                self.make(CGROUP, {"cpu.max": "100000 100000"})
            else:
                for parent in ("cpu", "cpu,cpuacct"):
                    if os.path.exists("%s/%s/cgroup.procs" % (CGROUP, parent)) and not self.folder:
                        self.make("%s/%s" % (CGROUP, parent), {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 100000})
        except OSError:
            self.remove()

    def make(self, parent, settings):
        folder = "%s/strata-threads-%d" % (parent, os.getpid())
        os.mkdir(folder)
        self.folder = folder
        for name, value in settings.items():
            self.put(folder + "/" + name, value)

    @staticmethod
    def put(path, value):
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))

    def remove(self):
        if self.folder:
            os.rmdir(self.folder)
            self.folder = None


class Threads(Case):
    def threads(self, *before, options=()):
        """Of a run that `before` starts."""
        done = subprocess.run(list(before) + [program.STRATA, "run", "-m", DEMO, "-p", "Once", "-n", "0", "-v"] + list(options),
                              stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(re.search(rb"(\d+) threads?\b", done.stderr).group(1))

    @smoke
    def test_no_more_than_the_mask_has_processors(self):
        processors = sorted(os.sched_getaffinity(0))
        self.assertLessEqual(self.threads(), len(processors))
        self.assertEqual(self.threads(options=("-t", "3")), 3)
        if not shutil.which("taskset"):
            self.skipTest("there is no taskset")
        for one in processors[:2]:
            self.assertEqual(self.threads("taskset", "-c", str(one)), 1)

    def test_no_more_than_the_quota_of_a_control_group(self):
        quota = Quota()
        if quota.folder is None:
            self.skipTest("the system does not let us make a control group with a limit of CPU time")
        self.addCleanup(quota.remove)
        inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', quota.folder]
        self.assertEqual(self.threads(*inside), 1)
        self.assertEqual(self.threads(*inside, options=("-t", "2")), 2)  # who asks gets it
