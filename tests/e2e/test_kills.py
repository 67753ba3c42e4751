# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, a run leaves the old profile or state, or the new one, and nothing that stays."""

import os
import random
import time

from program import Case, DEMO, KILLS, PATIENCE_S, PROMPT, start


class Kills(Case):
    def content(self, path):
        with open(path, "rb") as file:
            return file.read()

    def kill(self, arguments, path, some):
        """Half of the kills come at any moment, half while the temporary file is being written. True: that was seen."""
        process = start(*arguments)
        self.addCleanup(process.kill)
        seen = False
        if some.random() < 0.5:
            time.sleep(some.random() * 0.2)
        else:
            temporary, until = "%s.tmp-%d" % (path, process.pid), time.monotonic() + PATIENCE_S
            while not seen and process.poll() is None and time.monotonic() < until:
                seen = os.path.exists(temporary)
            time.sleep(some.random() * 0.002)
        process.kill()
        process.communicate()
        return seen

    def kill_all(self, before, after, path):
        """`before` writes the file, `after` replaces it: each content is as it was without a kill."""
        self.succeeds(*before)
        old = self.content(path)
        self.succeeds(*after)
        new = self.content(path)
        self.assertTrue(old != new)
        some = random.Random(9)
        seen = done = 0
        while done < KILLS or (not seen and done < 20 * KILLS):  # a fast drive may need more of them
            done += 1
            self.write(os.path.basename(path), old)
            seen += self.kill(after, path, some)
            self.assertTrue(self.content(path) in (old, new), "what has its name is neither the old nor the new file")
        self.assertGreater(seen, 0, "no kill met the writing")
        self.write(os.path.basename(path), old)
        self.succeeds(*after)
        self.assertTrue(self.content(path) == new)
        self.assertEqual(os.listdir(self.folder), [os.path.basename(path)], "what was left is removed by the next writer")

    def test_a_profile_is_the_old_or_the_new_one(self):
        path = self.path("learned.strata-pop")
        run = ("run", "-m", DEMO, "-n", "2", "--temp", "0", "--arena", "max", "--draft", "off", "--popularity", path)
        self.kill_all(run + ("-p", "The old house"), run + ("-p", PROMPT), path)

    def test_a_saved_state_is_the_old_or_the_new_one(self):
        path = self.path("talk.strses")
        run = ("run", "-m", DEMO, "-n", "2", "--temp", "0", "--seed", "1", "--arena", "max", "--draft", "off",
               "--popularity", "off", "--save", path)
        self.kill_all(run + ("-p", "The old house"), run + ("-p", PROMPT), path)
