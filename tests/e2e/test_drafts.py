# SPDX-License-Identifier: Apache-2.0
"""A draft layer in a file of its own: the same text as without it, and guesses that are counted."""

import os
import re
import sys

from program import Case, ROOT, TINY

sys.path.append(os.path.join(ROOT, "tests", "golden"))
import gguf  # noqa: E402 (lies beside what makes the fixtures)


class DraftModel(Case):
    def halves(self, name):
        """A fixture whose last layer guesses, cut in two: the model without it, and a file that holds it and the words."""
        whole = os.path.join(TINY, name + ".gguf")
        file = gguf.Gguf(whole)
        layers = file.get("block_count") - 1
        key = file.arch + "."
        without = {key + "block_count": layers, key + "nextn_predict_layers": None}
        if key + "attention.compress_ratios" in file.kv:
            without[key + "attention.compress_ratios"] = file.get("attention.compress_ratios")[:layers]
        layer = [tensor for tensor in file.tensors if tensor.startswith("blk.%d." % layers)]
        gguf.copy(whole, self.path("model.gguf"), without, drop=layer)
        gguf.copy(whole, self.path("layer.gguf"),
                  drop=[tensor for tensor in file.tensors if tensor not in layer and tensor != "token_embd.weight"])
        return self.path("model.gguf"), self.path("layer.gguf")

    def test_it_changes_no_text_and_its_guesses_are_counted(self):
        right = 0
        # The first soon repeats one word, which is guessed from the text; in the second only the layer finds something to guess.
        for name, temp, looked_up in (("q4e_fused", "0", True), ("q35_plain", "0.3", False)):
            with self.subTest(model=name):
                model, layer = self.halves(name)
                run = ("run", "-m", model, "-p", "the cat the cat the cat the cat", "-n", "100", "--temp", temp, "--seed", "2")
                plain = self.succeeds(*run, "--draft", "off", "--json").json()
                self.assertEqual((plain["drafted"], plain["tokens"]), (0, 100))
                lookup = self.succeeds(*run, "--draft-model", layer, "--draft", "lookup", "--json").json()
                self.assertEqual((lookup["drafted"] > 0, lookup["ids"]), (looked_up, plain["ids"]))
                for draft in ((), ("--draft", "mtp")):
                    drafted = self.succeeds(*run, "--draft-model", layer, *draft, "--json").json()
                    self.assertEqual(drafted["ids"], plain["ids"])
                    self.assertEqual(drafted["text"], plain["text"])
                    self.assertTrue(0 <= drafted["accepted"] <= drafted["drafted"] and drafted["drafted"] > 0, drafted)
                    right += drafted["accepted"]
                forced = self.succeeds(*run, "--draft-model", layer, "--draft-rows", "3", "--json").json()
                self.assertEqual(forced["ids"], plain["ids"])
                steps = forced["tokens"] - 1 - forced["accepted"]  # two guesses in each, but for gaps and the end
                self.assertTrue(2 * steps - 8 <= forced["drafted"] <= 2 * steps, forced)
                done = self.succeeds(*run, "--draft-model", layer)
                self.assertEqual(done.out.decode().rstrip("\n"), plain["text"].rstrip("\n"))
                self.fails(1, "run", "-m", layer, "-p", "x", names=[layer, "a draft layer alone", "--draft-model"])
                counts = re.search(r", (\d+) of (\d+) guesses right", done.err.decode())
                self.assertTrue(counts and 0 < int(counts[2]) and int(counts[1]) <= int(counts[2]), done.err)
        self.assertGreater(right, 0)

    def test_a_layer_that_is_not_used_is_said(self):
        run = ("run", "-m", os.path.join(TINY, "q35_plain.gguf"), "-p", "x", "-n", "1", "-v")
        self.assertIn(b"has a draft layer, which --draft mtp guesses with", self.succeeds(*run).err)
        for draft in ("off", "lookup", "mtp"):
            self.assertNotIn(b"has a draft layer", self.succeeds(*run, "--draft", draft).err)
        model, _ = self.halves("q35_plain")
        self.assertNotIn(b"has a draft layer", self.succeeds("run", "-m", model, *run[3:]).err)
