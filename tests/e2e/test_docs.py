# SPDX-License-Identifier: Apache-2.0
"""Commands that the documentation shows: programs, scripts and options are there."""

import glob
import os
import re
import shlex

from program import Case, ROOT, smoke

PAGES = ["README.md", os.path.join("models", "README.md")] + sorted(
    os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "docs", "*.md")))
OPTION = re.compile(r"^--[a-z][a-z0-9-]*")
BENCHES = sorted(glob.glob(os.path.join(ROOT, "tests", "bench", "*.py")))


def shown(page):
    """Code of a page: what stands between backquotes, and indented lines."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    blocks = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        text = text.replace(block, "")
    return re.findall(r"`([^`\n]+)`", text) + re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)


def options_of(words):
    """Their options; of a quoted word, which holds options for another run, those in it."""
    for word in words:
        if " " in word:
            yield from options_of(word.split())
        elif OPTION.match(word):
            yield OPTION.match(word).group(0)


class Docs(Case):
    def setUp(self):
        super().setUp()
        script = self.succeeds("help", "--completion", "bash").out.decode()
        self.of_command = {name: set(names.split()) for name, names in re.findall(r"^ *([a-z]+)\) names='(.*)'", script, re.MULTILINE)}
        self.known = set().union(*self.of_command.values(), *map(self.of_script, BENCHES))
        self.known |= {"--bench", "--repack"}  # of strata-check and of llama.cpp

    @staticmethod
    def of_script(path):
        """Options of a script of ours: words in its text."""
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return set(re.findall(r"--[a-z][a-z0-9-]*", file.read()))

    @smoke
    def test_every_command_has_its_options(self):
        self.assertIn("--arena", self.of_command["run"])
        seen = 0
        for page in PAGES:
            for code in shown(page):
                try:
                    words = shlex.split(code)
                except ValueError:  # an apostrophe: no command
                    continue
                with self.subTest(page=page, code=code):
                    seen += self.check(words)
        self.assertGreater(seen, 100)

    def check(self, words):
        """Whether these are a command or options, which are right then."""
        if words[:2] == ["taskset", "-c"]:
            words = words[3:]
        name = words[0] if words else ""
        if name in ("strata", "build/strata") and len(words) > 1 and not words[1].startswith("-"):
            self.assertIn(words[1], self.of_command)
            self.assertLessEqual(set(options_of(words[2:])), self.of_command[words[1]])
        elif re.match(r"(tests|cross|\.ci)/[a-z/_-]+(\.py|\.sh)?$", name):
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)
            if len(words) > 1:
                self.assertLessEqual(set(options_of(words[1:])), self.of_script(name))
        elif OPTION.match(name):
            self.assertLessEqual(set(options_of(words)), self.known)
        else:
            return False
        return True
