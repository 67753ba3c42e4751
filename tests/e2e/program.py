# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: calling the program, the demo model, small files made on the way."""

import json
import os
import signal
import struct
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "models", "strata-demo.gguf")
TINY = os.path.join(ROOT, "tests", "data", "fixtures", "models")
VALID = os.path.join(ROOT, "tests", "data", "fixtures", "valid.txt")
PROMPT = "Once upon a time there was a king who had three daughters, and"

# What a test may take at most before it counts as hanging; sanitizer builds are slow.
PATIENCE_S = 240

# Kills of a test that kills the program at random moments. The full number, 200, takes some minutes.
KILLS = int(os.environ.get("STRATA_KILLS", "15"))

# What was kept of this machine's drives would change defaults.
CACHE = tempfile.TemporaryDirectory(prefix="strata-tests-")  # pylint: disable=consider-using-with

STRATA = ""


def use_build(folder):
    """Names the build folder whose program is tested."""
    global STRATA
    STRATA = os.path.join(os.path.abspath(folder), "strata")


def smoke(method):
    """Marks a test that also runs in slow sanitizer builds."""
    method.smoke = True
    return method


def environment(**more):
    """The caller's environment without switches that would change what is tested."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
    env.update({"LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": CACHE.name, **more})
    return env


def start(*arguments, **options):
    """Starts the program with pipes; the caller ends it."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                "env": environment()}
    settings.update(options)
    # pylint: disable-next=consider-using-with
    return subprocess.Popen([STRATA] + [str(word) for word in arguments], **settings)


class Done:
    """A finished call: status, and stdout and stderr as bytes."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def json(self):
        return json.loads(self.out)


def call(*arguments, stdin=b"", env=None):
    """Runs the program to its end."""
    done = subprocess.run([STRATA] + [str(word) for word in arguments], input=stdin, capture_output=True,
                          timeout=PATIENCE_S, env=env or environment(), check=False)
    return Done(done.returncode, done.stdout, done.stderr)


class Case(unittest.TestCase):
    """A test with a folder of its own and checks that show what the program said."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="strata-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def succeeds(self, *arguments, **options):
        done = call(*arguments, **options)
        self.assertEqual(done.status, 0, "%s\nstdout: %r\nstderr: %s"
                         % (arguments, done.out[:400], done.err.decode("utf-8", "replace")))
        return done

    def fails(self, status, *arguments, names=(), **options):
        """The call ends with this status, with one message that contains each of the names, and without output."""
        done = call(*arguments, **options)
        text = done.err.decode("utf-8", "replace")
        about = "%s\nstdout: %r\nstderr: %s" % (arguments, done.out[:400], text)
        self.assertEqual(done.status, status, about)
        self.assertEqual(done.out, b"", about)
        self.assertNotEqual(text.strip(), "", about)
        for name in names:
            self.assertIn(str(name), text, about)
        if status == 1:
            self.assertEqual(len(text.strip().splitlines()), 1, "one sentence, one line: " + about)
        return done

    def ids(self, text):
        """The demo model's ids of a text."""
        return self.succeeds("tokenize", "-m", DEMO, stdin=text).json()

    def write_ids(self, name, ids):
        return self.write(name, " ".join(map(str, ids)).encode() + b"\n")

    def logits(self, ids_file, *options, model=DEMO, **settings):
        """The bytes that `logits --out` writes."""
        out = self.path("logits.npy")
        if os.path.exists(out):
            os.remove(out)
        self.succeeds("logits", "-m", model, "--ids", ids_file, "--out", out, *options, **settings)
        with open(out, "rb") as file:
            return file.read()


def array(content):
    """Shape and float32 values of the bytes of a .npy file of version 1.0."""
    assert content[:8] == b"\x93NUMPY\x01\x00"
    length, = struct.unpack("<H", content[8:10])
    header = content[10:10 + length].decode()
    assert (10 + length) % 64 == 0 and "'descr': '<f4'" in header and "'fortran_order': False" in header
    shape = tuple(int(word) for word in header.split("(")[1].split(")")[0].replace(" ", "").split(",") if word)
    return shape, content[10 + length:]


def gguf(**keys):
    """A GGUF without tensors whose keys (dots written as two underscores) have strings for values."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    body = b"".join(text(key.replace("__", ".")) + struct.pack("<I", 8) + text(value) for key, value in keys.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + body


def interrupt(process):
    """What Ctrl-C does."""
    process.send_signal(signal.SIGINT)
