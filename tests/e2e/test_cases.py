# SPDX-License-Identifier: Apache-2.0
"""The case runner on cases that were made wrong: it says what it expected and got, and never dies of it."""

import json
import os
import shutil
import subprocess

import program
from program import Case, TINY

NAME = "q4e_odd"


class Cases(Case):
    def check(self, *arguments):
        check = os.path.join(os.path.dirname(program.STRATA), "strata-check")
        return subprocess.run([check] + list(arguments), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              timeout=program.PATIENCE_S, env=program.environment(), check=False)

    def changed(self, change):
        """What the runner prints and returns for a model's cases after a change to their JSON."""
        for file in os.listdir(TINY):
            if file.startswith(NAME):
                shutil.copyfile(os.path.join(TINY, file), self.path(file))
        with open(self.path(NAME + ".json"), encoding="utf-8") as file:
            cases = json.load(file)
        # One prompt is enough.
        cases["prompts"] = {"text": cases["prompts"]["text"]}
        change(cases["prompts"]["text"])
        with open(self.path(NAME + ".json"), "w", encoding="utf-8") as file:
            json.dump(cases, file)
        return self.check("cases", self.folder)

    def test_a_wrong_expectation_is_one_line_with_expected_and_got(self):
        def change(prompt):
            prompt["greedy"][3] += 1

        done = self.changed(change)
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(len(lines), 2, done)
        self.assertRegex(lines[0], r"^FAIL .*%s\.json text greedy: expected \d+, got \d+ at step 3$" % NAME)
        self.assertRegex(lines[1], r"^\d+ passed, 1 failed, 0 skipped$")

    def test_malformed_expectations_fail_and_do_not_crash(self):
        def without_logits(prompt):
            del prompt["logits"]

        def outside(prompt):
            prompt["positions"][0] = 9999

        def before_the_first(prompt):
            prompt["positions"][0] = -1

        def empty(prompt):
            prompt["tokens"] = []

        def no_file(prompt):
            prompt["logits"] = "gone.npy"

        for change in (without_logits, outside, before_the_first, empty, no_file):
            with self.subTest(change=change.__name__):
                done = self.changed(change)
                self.assertEqual(done.returncode, 1, done)
                self.assertEqual(done.stdout.count("FAIL "), 1, done)
                self.assertRegex(done.stdout, r"\n\d+ passed, 1 failed, 0 skipped\n$")

    def test_a_prompt_may_be_longer_than_the_fixtures_have(self):
        def longer(prompt):
            prompt["tokens"] = (prompt["tokens"] * 40)[:1100]
            for key in ("argmax", "greedy", "ngram_rows", "layers"):
                prompt.pop(key, None)

        done = self.changed(longer)
        self.assertNotIn("feeding", done.stdout)

    def test_a_folder_without_cases_is_an_error(self):
        done = self.check("cases", self.folder)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("no case found", done.stderr)

    def test_help_is_asked_for_or_a_usage_error(self):
        self.assertEqual(self.check("--help").returncode, 0)
        self.assertEqual(self.check("--nonsense").returncode, 2)
