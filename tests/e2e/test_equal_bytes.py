# SPDX-License-Identifier: Apache-2.0
"""However it is run, the logits have the same bits: arenas, threads, bands, tiles, windows, kernels, cut states."""

import json
import os
import struct

import program
from program import Case, DEMO, TINY, VALID, array, smoke

# Each line is one way to run; the bytes of `logits --out` must be those of the first.
WAYS = [
    [],
    ["--arena", "min"], ["--arena", "50%"], ["--arena", "max"],
    ["-t", "1"], ["-t", "2"], ["-t", "3"],
    ["--band", "1"], ["--band", "3"], ["--band", "64"], ["--band", "300"], ["--band", "4096"],
    ["--tile", "1"], ["--tile", "3"], ["--tile", "64"], ["--tile", "300"], ["--tile", "4096"],
    ["--band", "64", "--tile", "3", "--arena", "min", "-t", "3"],
    ["--window", "1"], ["--window", "2"], ["--window", "3"], ["--window", "4"],
    ["--window", "5"], ["--window", "6"], ["--window", "7"], ["--window", "8"],
    ["--window", "5", "--arena", "min", "-t", "3"],
    ["--cut", "1"], ["--cut", "33"], ["--cut", "64", "--window", "3", "--arena", "min"], ["--cut", "5", "--band", "3"],
]


def has_isa(isa):
    """Whether the machine has it; the program itself says so."""
    done = program.call("run", "-m", DEMO, "-p", "x", "-n", "0", "--isa", isa)
    if done.status == 1 and isa.encode() in done.err:
        return False
    assert done.status == 0, done.err
    return True


class EqualBytes(Case):
    def compare(self, ids_file, ways, model, *common):
        reference = self.logits(ids_file, *ways[0], *common, model=model)
        for way in ways[1:]:
            with self.subTest(model=os.path.basename(model), way=" ".join(way)):
                # assertEqual would print both arrays
                self.assertTrue(self.logits(ids_file, *way, *common, model=model) == reference,
                                "the bytes differ from those of the plain run")
        return reference

    def tiny(self, name, prompt):
        with open(os.path.join(TINY, name + ".json"), encoding="utf-8") as file:
            tokens = json.load(file)["prompts"][prompt]["tokens"]
        return os.path.join(TINY, name + ".gguf"), self.write_ids(name + ".ids", tokens), tokens

    def demo_ids(self, count):
        with open(VALID, "rb") as file:
            ids = self.ids(file.read(16 * count))[:count]
        self.assertEqual(len(ids), count)
        return self.write_ids("demo.ids", ids)

    @staticmethod
    def state_sections(path):
        """Checksums by section of a saved session, but for the hot list, which depends on how it was run; and its ids."""
        with open(path, "rb") as file:
            data = file.read()
        header, sections, position = (struct.unpack_from("<I", data, 8)[0], struct.unpack_from("<I", data, 72)[0],
                                      struct.unpack_from("<Q", data, 56)[0])
        entries = [data[at:at + 88] for at in range(header - 8 - 88 * sections, header - 8, 88)]
        return data[24:72], data[80:80 + 4 * position], {e[:32]: e[80:] for e in entries if e[:4] != b"hot\0"}

    def test_guesses_change_neither_text_nor_state(self):
        # A prompt that repeats itself, so that there is something to guess.
        text = "The cat sat on the mat. The dog sat on the mat. " * 3
        for seed in range(4):
            runs = []
            for way in (["--draft", "off"], [], ["--draft", "lookup", "--arena", "min"]):
                state = self.path("drafts.strses")
                done = self.succeeds("run", "-m", DEMO, "-p", text, "-n", "80", "--temp", "0.4", "--seed", str(seed),
                                     "--save", state, "--json", *way).json()
                runs.append((done["ids"], self.state_sections(state)))
            self.assertTrue(runs[0] == runs[1] == runs[2], "other ids or another state")

    def test_a_draft_layer_changes_neither_ids_nor_state(self):
        for name in ("q4e_fused", "q3n_legacy", "q35_plain"):
            model, ids, _ = self.tiny(name, "long")
            runs = []
            for draft in ("off", "lookup", "mtp"):
                state = self.path("drafts.strses")
                done = self.succeeds("run", "-m", model, "--ids", ids, "-n", "60", "--temp", "0.5", "--seed", "7",
                                     "--save", state, "--json", "--draft", draft).json()
                runs.append((done["ids"], self.state_sections(state)))
            self.assertTrue(runs[0] == runs[1] == runs[2], "other ids or another state")

    def test_demo_model_every_way(self):
        shape, _ = array(self.compare(self.demo_ids(320), WAYS, DEMO))
        self.assertEqual(shape, (320, 8192))

    def test_demo_model_past_the_block_budget(self):
        # From position 527 on the sparse attention chooses blocks.
        self.compare(self.demo_ids(600), [[], ["--band", "64", "--arena", "min", "-t", "3"], ["--window", "8"], ["--cut", "560"]],
                     DEMO)

    def test_keys_of_a_byte_take_half_the_memory_and_change_little(self):
        ids = self.demo_ids(600)
        few, bytes_of = {}, {}
        for kv in ("f32", "f16", "q8_0"):
            bytes_of[kv] = self.succeeds("plan", DEMO, "--ctx", "32768", "--kv", kv, "--json").json()["session"]
            few[kv] = self.logits(ids, "--kv", kv)
        self.compare(ids, [[], ["--arena", "min", "-t", "3", "--band", "70"], ["--window", "7"], ["--cut", "559"]], DEMO, "--kv", "q8_0")
        self.assertFalse(few["q8_0"] == few["f16"])
        # keys and values of 32 numbers take 128, 64 and 34 bytes; index keys as with f16
        self.assertLess(bytes_of["q8_0"], 0.7 * bytes_of["f16"])
        self.assertLess(bytes_of["f16"], 0.6 * bytes_of["f32"])
        done = self.succeeds("kld", "-m", DEMO, "-f", VALID, "-n", "700", "--kv", "q8_0", "--against", "--kv f16", "--json").json()
        self.assertGreater(done["kl_mean"], 0)
        self.assertLess(done["kl_mean"], 0.003)

    @smoke
    def test_demo_model_few_ways(self):
        self.compare(self.demo_ids(24), [["-t", "2"], ["--arena", "min", "-t", "3", "--band", "5"], ["--window", "4"], ["--cut", "7"]],
                     DEMO)

    def test_tiny_models_every_way(self):
        self.compare_tiny_models(WAYS, "q4e_plain", "q4e_sparse", "q4e_ngram", "q4e_odd", "q4e_fused")

    def test_other_architectures_every_way(self):
        # Half of their few experts is less than a window may need.
        self.compare_tiny_models([way for way in WAYS if "50%" not in way],
                                 "q3m_yarn", "q3m_mix", "q3n_legacy", "q3n_q8", "q35_fused", "q35_q4km")

    def compare_tiny_models(self, ways, *names):
        for name in names:
            model, ids_file, _ = self.tiny(name, "long")
            self.compare(ids_file, ways, model)
            self.compare(ids_file, WAYS[:2] + [["--window", "3"], ["--cut", "20"]], model, "--kv", "f32")
            self.compare(ids_file, [[], ["--isa", "c"], ["-t", "3", "--band", "5"], ["--window", "3"], ["--cut", "20"]], model,
                         "--kv", "q8_0")
            self.compare(ids_file, WAYS[:2] + [["--window", "3"], ["--cut", "20"]], model, "--exact-activations")

    def test_state_cut_at_every_position(self):
        for name, prompt in (("q4e_odd", "eos"), ("q4e_fused", "eos"), ("q3m_plain", "short"), ("q3n_legacy", "short"),
                             ("q35_plain", "short")):
            model, ids_file, tokens = self.tiny(name, prompt)
            self.compare(ids_file, [[]] + [["--cut", str(at)] for at in range(1, len(tokens))], model)

    def kernels_equal_the_c_kernels(self, isa):
        if not has_isa(isa):
            self.skipTest("this machine has no " + isa)
        files = [(DEMO, self.demo_ids(48))] + [self.tiny(name, "text")[:2] for name in (
            "q4e_plain", "q4e_odd", "q4e_ngram", "q3m_mix", "q3n_q8", "q35_q4km")]
        for model, ids_file in files:
            reference = self.logits(ids_file, "--isa", "c", model=model)
            for window in ([], ["--window", "1"]):
                with self.subTest(model=os.path.basename(model), window=window):
                    self.assertTrue(self.logits(ids_file, "--isa", isa, *window, model=model) == reference,
                                    "the bytes differ from those of the C kernels")

    def test_avx2_equals_c(self):
        self.kernels_equal_the_c_kernels("avx2")

    def test_avx512_equals_c(self):
        self.kernels_equal_the_c_kernels("avx512")

    def test_avx512_without_vnni_equals_c(self):
        self.kernels_equal_the_c_kernels("avx512-plain")

    def test_amx_equals_c(self):
        self.kernels_equal_the_c_kernels("amx")

    def test_the_environment_chooses_kernels_and_the_option_wins(self):
        ids_file = self.demo_ids(6)
        plain = self.logits(ids_file)
        self.assertTrue(self.logits(ids_file, env=program.environment(STRATA_ISA="c")) == plain)
        self.assertTrue(self.logits(ids_file, "--isa", "c", env=program.environment(STRATA_ISA="neon")) == plain)

    def test_last_row_is_the_last_row(self):
        ids_file = self.demo_ids(20)
        shape, every = array(self.logits(ids_file))
        last_shape, last = array(self.logits(ids_file, "--last"))
        self.assertEqual((shape, last_shape), ((20, 8192), (1, 8192)))
        self.assertTrue(every[-len(last):] == last)
