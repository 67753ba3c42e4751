# SPDX-License-Identifier: Apache-2.0
"""Models of a size that nobody has here, in many parts: sparse files, whose zeros take no room on the drive."""

import ctypes
import mmap
import os
import resource
import sys

import program
from program import Case, DEMO, ROOT, TINY

sys.path.append(os.path.join(ROOT, "tests", "golden"))
import gguf  # noqa: E402 (lies beside what makes the fixtures)

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def cached_bytes(path, start=0):
    """Of a file's bytes from `start` on those that the page cache holds."""
    size, page = os.path.getsize(path), mmap.PAGESIZE
    seen = ctypes.create_string_buffer(-(-size // page))
    with open(path, "rb") as file:
        at = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        assert at not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
        failed = LIBC.mincore(at, size, seen)
        LIBC.munmap(at, size)
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(byte & 1 for byte in seen.raw[-(-start // page):]) * page


def forget(paths):
    """Lets the page cache have nothing of these files."""
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Sets(Case):
    LAYERS, EXPERTS, WIDTH = 48, 1024, 10240

    def big(self):
        """72 GB in 97 parts, nearly all of it experts of 1.5 MB."""
        small = gguf.Gguf(os.path.join(TINY, "q3m_plain.gguf"))
        writer = gguf.GgufWriter("")
        sizes = {"block_count": self.LAYERS, "expert_count": self.EXPERTS, "expert_used_count": 2,
                 "expert_feed_forward_length": self.WIDTH}
        for key, value in small.kv.items():
            value = sizes.get(key[len(small.arch) + 1:], value)
            writer.add(key, value, small.kv_type[key])
        embd = small.get("embedding_length")
        shapes = {"ffn_gate_exps": (embd, self.WIDTH, self.EXPERTS), "ffn_up_exps": (embd, self.WIDTH, self.EXPERTS),
                  "ffn_down_exps": (self.WIDTH, embd, self.EXPERTS), "ffn_gate_inp": (embd, self.EXPERTS)}
        layer = [tensor for tensor in small.tensors.values() if tensor.name.startswith("blk.0.")]
        for tensor in small.tensors.values():
            if not tensor.name.startswith("blk."):
                writer.tensor_hole(tensor.name, tensor.shape, tensor.type)
        for i in range(self.LAYERS):
            for tensor in layer:
                name = tensor.name.replace("blk.0.", "blk.%d." % i)
                kind = name.split(".")[2]
                writer.tensor_hole(name, shapes.get(kind, tensor.shape), "F16" if kind.endswith("_exps") else tensor.type)
        try:
            return writer.write_set(self.path("big"), 97)
        except OSError:
            return self.skipTest("this file system has no sparse files of 1.6 GB")

    def check_untouched(self, paths, said):
        """No page of experts came into the page cache: fronts are read by it, in the first part a piece more, all else past it."""
        if b"no direct I/O" in said:
            self.skipTest("this file system has no direct I/O")
        for path in paths:
            more = cached_bytes(path, gguf.Gguf(path).data_start)
            self.assertLessEqual(more, 128 << 10 if path == paths[0] else 0, path)

    def run_it(self, model, *options, files=None):
        words = ["run", "-m", model, "--temp", "0", "--popularity", "off", "--json", *options]
        limit = (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        done = program.start(*words, preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit)) if files else None)
        out, err = done.communicate(timeout=program.PATIENCE_S)
        self.assertEqual(done.returncode, 0, err)
        return program.Done(done.returncode, out, err)

    def test_72_gb_in_97_parts_are_opened_planned_and_answer_in_little_memory(self):
        paths = self.big()
        self.assertGreater(sum(os.path.getsize(path) for path in paths), 72_000_000_000)
        taken = [os.stat(path).st_blocks for path in paths]
        forget(paths)
        options = ("--arena", "min", "--window", "1", "--draft", "off", "--ctx", "64")
        plan = self.succeeds("plan", paths[0], "--json", *options).json()
        self.assertEqual((plan["experts"], plan["ctx"]), (self.LAYERS * self.EXPERTS, 64))
        done = self.run_it(paths[0], "--ids", self.write_ids("ids", [1]), "-n", "2", *options)
        said = done.json()
        self.assertEqual((said["tokens"], said["plan_total"]), (2, plan["plan_total"]))
        self.assertLess(said["plan_total"], 150 << 20)
        self.assertLessEqual(said["peak_rss"], said["plan_total"])
        self.assertLess(said["bytes_read"], 1 << 29)
        self.assertEqual([os.stat(path).st_blocks for path in paths], taken)
        self.check_untouched(paths, done.err)

    def test_a_set_answers_as_its_one_file_does_also_where_few_files_may_be_open(self):
        writer, demo = gguf.GgufWriter(""), gguf.Gguf(DEMO)
        for key, value in demo.kv.items():
            writer.add(key, value, demo.kv_type[key])
        writer.alignment = demo.alignment
        for name, tensor in demo.tensors.items():
            writer.tensor_raw(name, tensor.shape, tensor.type, demo.raw(name))
        paths = writer.write_set(self.path("demo"), 60)
        forget(paths)
        options = ("-p", program.PROMPT, "-n", "20", "--arena", "20%")
        done = self.run_it(paths[0], *options, files=50)
        self.assertEqual(done.json()["ids"], self.run_it(DEMO, *options).json()["ids"])
        self.check_untouched(paths, done.err)
